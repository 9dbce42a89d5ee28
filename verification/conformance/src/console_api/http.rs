//! A small HTTP client for the console: one request per connection, whole answers and streams.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The console answers within the timeout of its client, which is a minute.
const PATIENCE: Duration = Duration::from_secs(180);

/// A console at an address.
pub struct Http {
    pub address: String,
    /// Of a session: `name=value`.
    pub cookie: Option<String>,
}

/// The answer of one request, whose body is read as it comes.
pub struct Answer {
    pub status: u16,
    /// The value of `Set-Cookie`.
    pub cookie: Option<String>,
    is_chunked: bool,
    /// The rest of the current chunk.
    left: usize,
    has_ended: bool,
    body: BufReader<TcpStream>,
}

impl Http {
    /// Without a session.
    pub fn new(address: String) -> Http {
        let cookie = None;
        Http { address, cookie }
    }

    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.send_with("", method, path, body)
    }

    /// The bytes of a file as a browser gets it, compressed.
    pub fn compressed(&self, path: &str) -> Result<u64> {
        let mut answer = self.send_with("Accept-Encoding: gzip\r\n", "GET", path, None)?;
        ensure!(answer.status == 200, "GET {path}: status {}", answer.status);
        let mut bytes = Vec::new();
        answer.read_to_end(&mut bytes)?;
        ensure!(bytes.starts_with(b"\x1f\x8b"), "GET {path}: not compressed");
        Ok(bytes.len() as u64)
    }

    /// `headers` are further ones, each with its line break.
    fn send_with(
        &self,
        headers: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let length = body.len();
        let cookie = self.cookie.as_ref();
        let cookie = cookie.map_or_else(String::new, |it| format!("Cookie: {it}\r\n"));
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nX-Ottla-Console: 1\r\n{cookie}{headers}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}",
            self.address
        )?;
        let mut body = BufReader::new(stream);
        let mut line = String::new();
        body.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|it| it.parse().ok());
        let status = status.with_context(|| format!("{method} {path}: answered {line:?}"))?;
        let (mut is_chunked, mut left, mut cookie) = (false, 0, None);
        loop {
            line.clear();
            body.read_line(&mut line)?;
            let header = line.trim_end().to_lowercase();
            if header.is_empty() {
                break;
            }
            if header.starts_with("set-cookie: ") {
                cookie = line.trim_end().split_once(": ").map(|it| it.1.to_owned());
            }
            is_chunked |= header == "transfer-encoding: chunked";
            if let Some(length) = header.strip_prefix("content-length: ") {
                left = length.parse()?;
            }
        }
        Ok(Answer {
            status,
            cookie,
            is_chunked,
            left,
            has_ended: false,
            body,
        })
    }

    /// The JSON of a successful answer; `null` if it is empty.
    pub fn json(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.send(method, path, body)?;
        let status = answer.status;
        let text = answer.text()?;
        ensure!(
            (200..300).contains(&status),
            "{method} {path}: status {status}: {text}"
        );
        if text.is_empty() {
            Ok(Value::Null)
        } else {
            serde_json::from_str(&text).with_context(|| format!("{method} {path}: {text}"))
        }
    }

    pub fn get(&self, path: &str) -> Result<Value> {
        self.json("GET", path, None)
    }

    /// The status and the problem of a request that is to fail.
    pub fn refused(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, String)> {
        let answer = self.send(method, path, body)?;
        let status = answer.status;
        let problem: Value = serde_json::from_str(&answer.text()?)?;
        Ok((
            status,
            problem["detail"].as_str().unwrap_or_default().to_owned(),
        ))
    }

    /// All events of a stream that ends: the records, and the data of `done`.
    pub fn records(&self, path: &str) -> Result<(Vec<Value>, Value)> {
        self.stream("GET", path, None)
    }

    pub fn stream(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(Vec<Value>, Value)> {
        let mut answer = self.send(method, path, body)?;
        if answer.status != 200 {
            let status = answer.status;
            bail!("{method} {path}: status {status}: {}", answer.text()?);
        }
        let mut records = Vec::new();
        while let Some((event, data)) = answer.event()? {
            match &*event {
                "records" => records.extend(data.as_array().cloned().unwrap_or_default()),
                "done" => return Ok((records, data)),
                "problem" => bail!("{method} {path}: {data}"),
                _ => {}
            }
        }
        bail!("{method} {path}: the stream ended without done")
    }
}

impl Answer {
    pub fn text(mut self) -> Result<String> {
        let mut text = String::new();
        self.read_to_string(&mut text)?;
        Ok(text)
    }

    /// The next event of a stream, with its data.
    pub fn event(&mut self) -> Result<Option<(String, Value)>> {
        let mut event = String::new();
        loop {
            let Some(line) = self.line()? else {
                return Ok(None);
            };
            if let Some(name) = line.strip_prefix("event: ") {
                event = name.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Ok(Some((event, serde_json::from_str(data)?)));
            }
        }
    }

    /// Reads events until one of them is as wanted.
    pub fn wait_for(
        &mut self,
        what: &str,
        is_wanted: impl Fn(&str, &Value) -> bool,
    ) -> Result<Value> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match self.event()? {
                Some((event, data)) if is_wanted(&event, &data) => return Ok(data),
                Some(_) => {}
                None => bail!("the stream ended before {what}"),
            }
        }
        bail!("no {what} within {} s", PATIENCE.as_secs())
    }

    fn line(&mut self) -> Result<Option<String>> {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.read(&mut byte)? == 1 {
            if byte[0] == b'\n' {
                return Ok(Some(String::from_utf8(line)?));
            }
            line.push(byte[0]);
        }
        Ok(None)
    }
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 && self.is_chunked && !self.has_ended {
            let mut size = String::new();
            self.body.read_line(&mut size)?;
            if size.trim().is_empty() {
                // The line break after the previous chunk.
                self.body.read_line(&mut size)?;
            }
            let size = usize::from_str_radix(size.trim(), 16);
            self.left = size.map_err(|_| std::io::Error::other("the answer broke off"))?;
            self.has_ended = self.left == 0;
        }
        let length = self.left.min(buffer.len());
        let read = self.body.read(&mut buffer[..length])?;
        self.left -= read;
        Ok(read)
    }
}
