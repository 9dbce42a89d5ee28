//! An object store that fails on purpose and records its requests. It keeps one bucket in memory, which
//! it serves as S3, without a check of signatures, or with the rules of another store; or it passes the
//! requests on to a real server, which the suite `tiered` starts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What happens to requests whose line contains `request`.
struct Fault {
    request: &'static str,
    /// How many requests it takes.
    times: usize,
    kind: FaultKind,
}

#[derive(Clone, Copy)]
pub enum FaultKind {
    /// This status, with an S3 error of this code.
    Status(u16, &'static str),
    /// The answer comes later.
    Slow(Duration),
    /// The connection ends in the middle of the body.
    Cut,
    /// The connection ends without an answer.
    Close,
    /// A byte of the body changes on its way to the server. Only in memory.
    Damaged,
    /// The range of the request is ignored. Only in memory.
    Whole,
    /// The range ends one byte too early. Only in memory.
    Shorter,
    /// These bytes are the whole answer.
    Answer(&'static str),
}

/// A request, as it has arrived.
pub struct Request<'a> {
    pub method: &'a str,
    /// After the host, not decoded.
    pub target: &'a str,
    pub head: &'a str,
    pub body: &'a [u8],
}

impl Request<'_> {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().skip(1).filter_map(|line| {
            let (found, value) = line.split_once(':')?;
            Some((found, value.trim()))
        });
        let found = headers.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Whether the name of a header begins with this.
    pub fn has_header_of(&self, prefix: &str) -> bool {
        let mut names = self.head.lines().skip(1);
        names.any(|line| line.to_ascii_lowercase().starts_with(prefix))
    }
}

/// The status and the code of the error for a request that breaks a rule of a store; `None` if it keeps
/// all of them.
pub type Rules = Arc<dyn Fn(&Request<'_>) -> Option<(u16, &'static str)> + Send + Sync>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    uploads: BTreeMap<String, Upload>,
    requests: Vec<String>,
    connections: usize,
    faults: VecDeque<Fault>,
    delay: Duration,
    /// Of uploads and parts.
    next_id: u32,
}

/// An upload in parts that has begun.
struct Upload {
    key: String,
    /// By their numbers, each with its ETag.
    parts: BTreeMap<u32, (String, Vec<u8>)>,
}

/// Of a part that is not the last.
const LEAST_PART_BYTES: usize = 5 << 20;

impl Upload {
    /// The object of the parts that the end of an upload names, or the code of an error. S3 and Google
    /// have the same rules.
    fn complete(&self, request: &[u8]) -> Result<Vec<u8>, &'static str> {
        let request = String::from_utf8_lossy(request).replace("&quot;", "\"");
        let element = |part: &str, name: &str| {
            let (_, rest) = part.split_once(&format!("<{name}>"))?;
            Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
        };
        let mut named = Vec::new();
        for part in request.split("<Part>").skip(1) {
            let number = element(part, "PartNumber").and_then(|it| it.parse::<u32>().ok());
            let tag = element(part, "ETag");
            named.push(number.zip(tag).ok_or("MalformedXML")?);
        }
        if !request.contains("<CompleteMultipartUpload") || named.is_empty() {
            return Err("MalformedXML");
        }
        if !named.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Err("InvalidPartOrder");
        }
        let mut object = Vec::new();
        let mut previous = LEAST_PART_BYTES;
        for (number, tag) in named {
            let (expected, bytes) = self.parts.get(&number).ok_or("InvalidPart")?;
            if tag != *expected {
                return Err("InvalidPart");
            }
            if previous < LEAST_PART_BYTES {
                return Err("EntityTooSmall");
            }
            previous = bytes.len();
            object.extend_from_slice(bytes);
        }
        Ok(object)
    }
}

/// Who answers the requests that meet no fault.
#[derive(Clone)]
pub enum Behind {
    /// The bucket in memory, as S3.
    Memory,
    /// The bucket in memory, as a store with these rules.
    Rules(Rules),
    /// The server at this address.
    Server(String),
    /// fake-gcs-server, at this address. It accepts the upload of an object through the XML API only with
    /// the query of a signed URL, and answers it without an ETag. Both are added.
    FakeGcs(String),
}

/// In [`FaultServer::s3_settings`]. No message may contain it.
pub const SECRET: &str = "topsecret";

#[derive(Clone)]
pub struct FaultServer {
    pub endpoint: String,
    state: Arc<Mutex<State>>,
    behind: Behind,
}

impl FaultServer {
    pub async fn start() -> FaultServer {
        FaultServer::in_front_of(Behind::Memory).await
    }

    pub async fn in_front_of(behind: Behind) -> FaultServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = FaultServer {
            endpoint,
            state: Arc::default(),
            behind,
        };
        let served = server.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let server = served.clone();
                tokio::spawn(async move {
                    server.state.lock().unwrap().connections += 1;
                    let _ = server.serve(socket).await;
                    server.state.lock().unwrap().connections -= 1;
                });
            }
        });
        server
    }

    /// The settings of a broker that keeps its segments here, as in S3, with chunks of 1 MB.
    pub fn s3_settings(&self) -> [(&str, &str); 8] {
        [
            (
                "remote.log.storage.manager.class.name",
                "io.aiven.kafka.tieredstorage.RemoteStorageManager",
            ),
            (
                "rsm.config.storage.backend.class",
                "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
            ),
            ("rsm.config.storage.s3.bucket.name", "bucket"),
            ("rsm.config.storage.s3.region", "eu-1"),
            ("rsm.config.storage.s3.endpoint.url", self.endpoint.as_str()),
            ("rsm.config.storage.aws.access.key.id", "id"),
            ("rsm.config.storage.aws.secret.access.key", SECRET),
            ("rsm.config.chunk.size", "1000000"),
        ]
    }

    pub fn fail(&self, request: &'static str, times: usize, kind: FaultKind) {
        self.state.lock().unwrap().faults.push_back(Fault {
            request,
            times,
            kind,
        });
    }

    /// No request fails any more.
    pub fn heal(&self) {
        self.state.lock().unwrap().faults.clear();
    }

    /// How long each answer takes.
    pub fn delay(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    /// The requests since the last call: `GET key bytes=0-9`.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    pub fn keys(&self) -> Vec<String> {
        self.state.lock().unwrap().objects.keys().cloned().collect()
    }

    pub fn open_uploads(&self) -> usize {
        self.state.lock().unwrap().uploads.len()
    }

    pub fn open_connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    async fn serve(&self, socket: TcpStream) -> std::io::Result<()> {
        let mut socket = BufReader::new(socket);
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await?);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let mut first = head.lines().next().unwrap_or_default().split(' ');
            let method = first.next().unwrap_or_default();
            let target = first.next().unwrap_or_default();
            let mut request = Request {
                method,
                target,
                head: &head,
                body: &[],
            };
            let length = request.header("content-length");
            let mut body = vec![0; length.map_or(0, |it| it.parse().unwrap())];
            socket.read_exact(&mut body).await?;
            let path = target.strip_prefix("/bucket/").unwrap_or(target).to_owned();
            let range = request.header("range").unwrap_or_default().to_owned();
            let line = format!("{method} {path} {range}").trim_end().to_owned();
            let (fault, delay) = {
                let mut state = self.state.lock().unwrap();
                state.requests.push(line.clone());
                let place = state.faults.iter().position(|it| line.contains(it.request));
                let fault = place.map(|at| {
                    let kind = state.faults[at].kind;
                    state.faults[at].times -= 1;
                    if state.faults[at].times == 0 {
                        state.faults.remove(at);
                    }
                    kind
                });
                (fault, state.delay)
            };
            tokio::time::sleep(delay).await;
            if matches!(fault, Some(FaultKind::Damaged)) {
                let middle = body.len() / 2;
                body[middle] ^= 1;
            }
            let mut answer = match fault {
                Some(FaultKind::Status(status, code)) => {
                    refused(status, code, "asked for by the test")
                }
                Some(FaultKind::Close) => return Ok(()),
                Some(FaultKind::Answer(answer)) => answer.as_bytes().to_vec(),
                Some(FaultKind::Whole) => self.answer(method, &path, "", body),
                Some(FaultKind::Shorter) => {
                    let (from, to) = range.rsplit_once('-').unwrap();
                    let to = to.parse::<usize>().unwrap() - 1;
                    self.answer(method, &path, &format!("{from}-{to}"), body)
                }
                Some(FaultKind::Slow(_) | FaultKind::Cut | FaultKind::Damaged) | None => {
                    if let Some(FaultKind::Slow(time)) = fault {
                        tokio::time::sleep(time).await;
                    }
                    match &self.behind {
                        Behind::Memory => self.answer(method, &path, &range, body),
                        Behind::Rules(refusal) => {
                            request.body = &body;
                            match refusal(&request) {
                                Some((status, code)) => refused(status, code, "a rule is broken"),
                                None => self.answer(method, &path, &range, body),
                            }
                        }
                        Behind::Server(address) => passed_on(address, &head, &body).await?,
                        Behind::FakeGcs(address) => {
                            passed_on_to_fake_gcs(address, &head, &body).await?
                        }
                    }
                }
            };
            if method == "HEAD" {
                let end = answer.windows(4).position(|at| at == b"\r\n\r\n").unwrap();
                answer.truncate(end + 4);
            }
            if matches!(fault, Some(FaultKind::Cut)) {
                answer.truncate(answer.len() - 5);
                socket.write_all(&answer).await?;
                return Ok(());
            }
            socket.write_all(&answer).await?;
        }
    }

    fn answer(&self, method: &str, path: &str, range: &str, body: Vec<u8>) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        let (key, query) = path.split_once('?').unwrap_or((path, ""));
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(found, _)| *found == name)
                .map(|(_, value)| value.to_owned())
        };
        match (method, parameter("uploadId")) {
            ("POST", None) => {
                state.next_id += 1;
                let id = format!("upload{}", state.next_id);
                let xml = format!(
                    "<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>{key}</Key>\
                     <UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                );
                let upload = Upload {
                    key: key.to_owned(),
                    parts: BTreeMap::new(),
                };
                state.uploads.insert(id, upload);
                response(200, "", xml.as_bytes())
            }
            (_, Some(id)) if state.uploads.get(&id).is_none_or(|it| it.key != key) => {
                refused(404, "NoSuchUpload", "it is unknown")
            }
            ("PUT", Some(id)) => {
                state.next_id += 1;
                let tag = format!("\"part{}\"", state.next_id);
                let number = parameter("partNumber").unwrap().parse().unwrap();
                let answer = tagged_response(200, &tag, "", b"");
                let upload = state.uploads.get_mut(&id).unwrap();
                upload.parts.insert(number, (tag, body));
                answer
            }
            ("POST", Some(id)) => {
                let whole = match state.uploads[&id].complete(&body) {
                    Ok(whole) => whole,
                    Err(code) => return refused(400, code, "the parts do not fit"),
                };
                state.uploads.remove(&id);
                state.objects.insert(key.to_owned(), whole);
                let xml = format!(
                    "<CompleteMultipartUploadResult><Location>x</Location><Bucket>bucket</Bucket>\
                     <Key>{key}</Key><ETag>\"e\"</ETag></CompleteMultipartUploadResult>"
                );
                response(200, "", xml.as_bytes())
            }
            ("DELETE", Some(id)) => {
                state.uploads.remove(&id);
                response(204, "", b"")
            }
            ("PUT", None) => {
                state.objects.insert(key.to_owned(), body);
                response(200, "", b"")
            }
            ("DELETE", None) => {
                state.objects.remove(key);
                response(204, "", b"")
            }
            _ => match state.objects.get(key) {
                None => response(404, "", b"<Error><Code>NoSuchKey</Code></Error>"),
                Some(object) => match range.strip_prefix("bytes=") {
                    None => response(200, "", object),
                    Some(range) => {
                        let (from, to) = range.split_once('-').unwrap();
                        let from: usize = from.parse().unwrap();
                        let to = object.len().min(to.parse::<usize>().unwrap() + 1);
                        if from >= to {
                            return response(416, "", b"");
                        }
                        let size = object.len();
                        let place = format!("Content-Range: bytes {from}-{}/{size}\r\n", to - 1);
                        response(206, &place, &object[from..to])
                    }
                },
            },
        }
    }
}

/// The answer of a server. Each request has a connection of its own, which ends with the answer.
pub async fn passed_on(address: &str, head: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(address).await?;
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    server.write_all(head.as_bytes()).await?;
    server.write_all(body).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    Ok(answer)
}

async fn passed_on_to_fake_gcs(address: &str, head: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
    if !head.starts_with("PUT ") {
        return passed_on(address, head, body).await;
    }
    let signed = head.replacen(
        " HTTP/1.1",
        "?X-Goog-Algorithm=GOOG4-RSA-SHA256 HTTP/1.1",
        1,
    );
    let answer = passed_on(address, &signed, body).await?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer
        .replacen("\r\n", "\r\nETag: \"e\"\r\n", 1)
        .into_bytes())
}

fn refused(status: u16, code: &str, message: &str) -> Vec<u8> {
    let xml = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    response(status, "", xml.as_bytes())
}

fn response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    tagged_response(status, "\"e\"", headers, body)
}

fn tagged_response(status: u16, tag: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nETag: {tag}\r\n\
         Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n{headers}\r\n"
    )
    .into_bytes();
    answer.extend_from_slice(body);
    answer
}
