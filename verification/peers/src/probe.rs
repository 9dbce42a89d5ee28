//! A few requests in early versions, encoded by hand, so that a broker's reports are read by code
//! that shares nothing with the broker under test: the APIs that it serves, and whether it serves
//! every partition.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// One entry of a broker's ApiVersions response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdvertisedApi {
    pub api_key: i16,
    pub min_version: i16,
    pub max_version: i16,
}

/// The topics and partitions that a broker serves while each partition has a leader that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    pub partitions: usize,
    /// The sum of all log end offsets.
    pub records: i64,
}

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
const METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;
const CORRELATION_ID: i32 = 7;
/// Large enough for the metadata of half a million partitions, in bytes.
const MAX_ANSWER: usize = 16 << 20;
/// The timestamp that requests the log end offset.
const LATEST: i64 = -1;
const ACKS_ALL: i16 = -1;
/// The first byte of a TLS alert. A response begins with 0, the high byte of its size.
const TLS_ALERT: u8 = 21;
const FETCH_WAIT_MS: i32 = 500;
/// Shorter than the client-side timeout.
const PRODUCE_TIMEOUT_MS: i32 = 1500;

/// Of a question that is asked again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a broker on this local port answers.
pub fn answers(port: u16) -> bool {
    advertised_apis(port, PATIENCE).is_ok()
}

/// Whether a broker serves a listener with TLS on this local port: whether it refuses a request
/// without TLS, with an alert or by the end of the connection.
///
/// A connection alone says nothing. The kernel makes it as soon as the port is bound, and a starting
/// broker binds its ports long before it accepts connections.
pub fn refuses_plaintext(port: u16) -> bool {
    let Ok(mut asker) = connect(port) else {
        return false;
    };
    if asker.send(API_VERSIONS, 0, &[]).is_err() {
        return false;
    }
    let mut first = [0];
    match asker.0.read(&mut first) {
        Ok(0) => true,
        Ok(_) => first == [TLS_ALERT],
        // The process has not accepted the connection yet, or ended before that.
        Err(_) => false,
    }
}

/// Queries the APIs and versions that the broker on this local port serves. It answers within this
/// time.
pub fn advertised_apis(port: u16, patience: Duration) -> Result<Vec<AdvertisedApi>> {
    let mut asker = connect(port)?.patient(patience)?;
    parse(&asker.ask(API_VERSIONS, 0, &[])?)
}

/// Queries all topics and the end offset of each partition; `None` while a partition has no leader
/// or does not answer.
pub fn served(port: u16) -> Result<Option<Served>> {
    let mut asker = connect(port)?;
    let every_topic = (-1i32).to_be_bytes();
    let answer = asker.ask(METADATA, 1, &every_topic)?;
    let Some(topics) = led_topics(&mut Fields(&answer[4..]))? else {
        return Ok(None);
    };
    let mut request = Vec::new();
    let consumer = (-1i32).to_be_bytes();
    request.extend_from_slice(&consumer);
    request.extend_from_slice(&(topics.len() as i32).to_be_bytes());
    for (name, partitions) in &topics {
        push_string(&mut request, name);
        request.extend_from_slice(&(partitions.len() as i32).to_be_bytes());
        for partition in partitions {
            request.extend_from_slice(&partition.to_be_bytes());
            request.extend_from_slice(&LATEST.to_be_bytes());
        }
    }
    let answer = asker.ask(LIST_OFFSETS, 1, &request)?;
    let ends = end_offsets(&mut Fields(&answer[4..]))?;
    let wanted: usize = topics.iter().map(|(_, partitions)| partitions.len()).sum();
    Ok(ends.filter(|ends| ends.len() == wanted).map(|ends| Served {
        partitions: ends.len(),
        records: ends.iter().sum(),
    }))
}

/// The smallest number of in-sync replicas of any partition of a topic, as this broker knows it; 0
/// if it does not know the topic.
pub fn fewest_in_sync(port: u16, topic: &str) -> Result<usize> {
    let partitions = connect(port)?.partitions(topic)?;
    Ok(partitions
        .iter()
        .map(|it| it.in_sync.len())
        .min()
        .unwrap_or(0))
}

/// A connection to a broker, with one request in flight at a time.
pub struct Asker(TcpStream);

/// Connects to the broker on this local port. Each response may take two seconds, after which most
/// callers ask again; for an answer that is asked for once, see [`Asker::patient`].
pub fn connect(port: u16) -> Result<Asker> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(Asker(stream))
}

impl Asker {
    /// Sets the timeout of each response.
    pub fn patient(self, patience: Duration) -> Result<Asker> {
        self.0.set_read_timeout(Some(patience))?;
        Ok(self)
    }

    /// The partitions of a topic as this broker knows them, by number; empty if it does not know
    /// the topic.
    pub fn partitions(&mut self, topic: &str) -> Result<Vec<Partition>> {
        // Requesting a topic by name would create it in this version.
        let every_topic = (-1i32).to_be_bytes();
        let answer = self.ask(METADATA, 1, &every_topic)?;
        let topics = topics_of(&mut Fields(&answer[4..]))?;
        let found = topics.into_iter().find(|found| found.name == topic);
        let mut partitions = found.map_or(Vec::new(), |topic| topic.partitions);
        partitions.sort_by_key(|partition| partition.index);
        Ok(partitions)
    }

    /// Appends a batch to a partition with `acks=all`. Returns the error code, 0 for none.
    pub fn produce(&mut self, topic: &str, partition: i32, batch: &[u8]) -> Result<i16> {
        only(&self.produce_to_each(topic, &[partition], batch)?)
    }

    /// As [`Asker::produce`], for a batch of a transaction of this transactional ID.
    pub fn produce_in_transaction(
        &mut self,
        transactional_id: &str,
        topic: &str,
        partition: i32,
        batch: &[u8],
    ) -> Result<i16> {
        let mut request = Vec::new();
        push_string(&mut request, transactional_id);
        only(&self.send_batch(request, topic, &[partition], batch)?)
    }

    /// Appends the same batch to several partitions of a topic with `acks=all`. Returns the error
    /// code of each, 0 for none.
    pub fn produce_to_each(
        &mut self,
        topic: &str,
        partitions: &[i32],
        batch: &[u8],
    ) -> Result<Vec<(i32, i16)>> {
        let no_transaction = (-1i16).to_be_bytes();
        self.send_batch(no_transaction.to_vec(), topic, partitions, batch)
    }

    /// `request` is a Produce request that ends after its transactional ID.
    fn send_batch(
        &mut self,
        mut request: Vec<u8>,
        topic: &str,
        partitions: &[i32],
        batch: &[u8],
    ) -> Result<Vec<(i32, i16)>> {
        request.extend_from_slice(&ACKS_ALL.to_be_bytes());
        request.extend_from_slice(&PRODUCE_TIMEOUT_MS.to_be_bytes());
        request.extend_from_slice(&1i32.to_be_bytes());
        push_string(&mut request, topic);
        request.extend_from_slice(&(partitions.len() as i32).to_be_bytes());
        for partition in partitions {
            request.extend_from_slice(&partition.to_be_bytes());
            request.extend_from_slice(&(batch.len() as i32).to_be_bytes());
            request.extend_from_slice(batch);
        }
        let answer = self.ask(PRODUCE, 3, &request)?;
        codes_of(&mut Fields(&answer[4..]))
    }

    /// The sum of the high watermarks of these partitions, which this broker leads.
    pub fn high_watermarks(&mut self, topic: &str, partitions: &[i32]) -> Result<i64> {
        let mut request = Vec::new();
        let consumer = (-1i32).to_be_bytes();
        request.extend_from_slice(&consumer);
        request.extend_from_slice(&1i32.to_be_bytes());
        push_string(&mut request, topic);
        request.extend_from_slice(&(partitions.len() as i32).to_be_bytes());
        for partition in partitions {
            request.extend_from_slice(&partition.to_be_bytes());
            request.extend_from_slice(&LATEST.to_be_bytes());
        }
        let answer = self.ask(LIST_OFFSETS, 1, &request)?;
        let ends = end_offsets(&mut Fields(&answer[4..]))?;
        let ends = ends.with_context(|| format!("{topic} is not served"))?;
        Ok(ends.iter().sum())
    }

    /// Fetches once from an offset of a partition, which this broker leads. Returns the number of
    /// bytes of its records, which may be zero.
    pub fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        max_bytes: i32,
    ) -> Result<usize> {
        let mut request = Vec::new();
        let consumer = (-1i32).to_be_bytes();
        request.extend_from_slice(&consumer);
        request.extend_from_slice(&FETCH_WAIT_MS.to_be_bytes());
        let min_bytes = 1i32.to_be_bytes();
        request.extend_from_slice(&min_bytes);
        request.extend_from_slice(&max_bytes.to_be_bytes());
        let read_uncommitted = 0u8;
        request.push(read_uncommitted);
        request.extend_from_slice(&1i32.to_be_bytes());
        push_string(&mut request, topic);
        request.extend_from_slice(&1i32.to_be_bytes());
        request.extend_from_slice(&partition.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&max_bytes.to_be_bytes());
        let answer = self.ask(FETCH, 4, &request)?;
        fetched_bytes(&mut Fields(&answer[4..]))
    }

    /// The broker's metadata of all topics with this name prefix.
    pub fn known(&mut self, prefix: &str) -> Result<Known> {
        let every_topic = (-1i32).to_be_bytes();
        let answer = self.ask(METADATA, 1, &every_topic)?;
        let mut known = Known::default();
        for topic in topics_of(&mut Fields(&answer[4..]))? {
            if !topic.name.starts_with(prefix) {
                continue;
            }
            for partition in topic.partitions {
                known.partitions += 1;
                known.led += usize::from(partition.is_served && partition.leader.is_some());
                known.in_sync += partition.in_sync.len();
            }
        }
        Ok(known)
    }

    /// Sends one request and returns the response, starting with the correlation ID.
    pub(super) fn ask(&mut self, api_key: i16, version: i16, body: &[u8]) -> Result<Vec<u8>> {
        self.send(api_key, version, body)?;
        let mut size = [0; 4];
        self.0.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size)).context("negative answer size")?;
        ensure!(
            (4..=MAX_ANSWER).contains(&size),
            "an answer of {size} bytes to API {api_key}"
        );
        let mut answer = vec![0; size];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }

    fn send(&mut self, api_key: i16, version: i16, body: &[u8]) -> Result<()> {
        let client_id = b"xtask";
        let mut request = Vec::new();
        request.extend_from_slice(&api_key.to_be_bytes());
        request.extend_from_slice(&version.to_be_bytes());
        request.extend_from_slice(&CORRELATION_ID.to_be_bytes());
        request.extend_from_slice(&(client_id.len() as i16).to_be_bytes());
        request.extend_from_slice(client_id);
        request.extend_from_slice(body);
        self.0.write_all(&(request.len() as i32).to_be_bytes())?;
        self.0.write_all(&request)?;
        Ok(())
    }
}

pub(super) fn push_string(request: &mut Vec<u8>, text: &str) {
    request.extend_from_slice(&(text.len() as i16).to_be_bytes());
    request.extend_from_slice(text.as_bytes());
}

/// The unread rest of a response with fixed-size numbers.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .context("the answer is cut short")?;
        self.0 = rest;
        Ok(*taken)
    }

    fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.take()?))
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.take()?))
    }

    /// A string; null becomes empty.
    fn string(&mut self) -> Result<String> {
        let length = usize::try_from(self.i16()?).unwrap_or(0);
        ensure!(length <= self.0.len(), "the answer is cut short");
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(String::from_utf8(text.to_vec())?)
    }

    /// An array of numbers, preceded by its length.
    fn numbers(&mut self) -> Result<Vec<i32>> {
        let count = usize::try_from(self.i32()?).unwrap_or(0);
        (0..count).map(|_| self.i32()).collect()
    }
}

/// A broker's view of several topics together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    pub partitions: usize,
    /// Partitions with a leader.
    pub led: usize,
    /// In-sync replicas of all partitions.
    pub in_sync: usize,
}

/// A topic in a Metadata response.
struct Topic {
    name: String,
    is_known: bool,
    partitions: Vec<Partition>,
}

/// A partition in a Metadata response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub index: i32,
    pub leader: Option<i32>,
    pub replicas: Vec<i32>,
    pub in_sync: Vec<i32>,
    /// Whether its error code is 0.
    is_served: bool,
}

fn topics_of(fields: &mut Fields<'_>) -> Result<Vec<Topic>> {
    for _ in 0..fields.i32()? {
        fields.i32()?; // node id
        fields.string()?; // host
        fields.i32()?; // port
        fields.string()?; // rack
    }
    fields.i32()?; // controller
    let mut topics = Vec::new();
    for _ in 0..fields.i32()? {
        let is_known = fields.i16()? == 0;
        let name = fields.string()?;
        fields.take::<1>()?; // is internal
        let mut partitions = Vec::new();
        for _ in 0..fields.i32()? {
            let is_served = fields.i16()? == 0;
            let index = fields.i32()?;
            let leader = fields.i32()?;
            partitions.push(Partition {
                index,
                leader: (leader >= 0).then_some(leader),
                replicas: fields.numbers()?,
                in_sync: fields.numbers()?,
                is_served,
            });
        }
        topics.push(Topic {
            name,
            is_known,
            partitions,
        });
    }
    Ok(topics)
}

/// The topics of a Metadata response with their partitions, if all partitions have leaders.
fn led_topics(fields: &mut Fields<'_>) -> Result<Option<Vec<(String, Vec<i32>)>>> {
    let topics = topics_of(fields)?;
    let is_led = |topic: &Topic| {
        let mut partitions = topic.partitions.iter();
        topic.is_known && partitions.all(|it| it.is_served && it.leader.is_some())
    };
    if !topics.iter().all(is_led) {
        return Ok(None);
    }
    let with_numbers = topics.into_iter().map(|topic| {
        let numbers = topic.partitions.iter().map(|partition| partition.index);
        (topic.name, numbers.collect())
    });
    Ok(Some(with_numbers.collect()))
}

/// The error code of each partition in a Produce response for one topic.
fn codes_of(fields: &mut Fields<'_>) -> Result<Vec<(i32, i16)>> {
    ensure!(fields.i32()? == 1, "an answer about other topics");
    fields.string()?;
    let mut codes = Vec::new();
    for _ in 0..fields.i32()? {
        codes.push((fields.i32()?, fields.i16()?));
        fields.i64()?; // base offset
        fields.i64()?; // time of appending
    }
    Ok(codes)
}

/// The error code of the only partition of a Produce response.
fn only(codes: &[(i32, i16)]) -> Result<i16> {
    match codes {
        [(_, code)] => Ok(*code),
        _ => bail!("an answer about other partitions"),
    }
}

/// The offsets of a ListOffsets response, if it contains no error.
fn end_offsets(fields: &mut Fields<'_>) -> Result<Option<Vec<i64>>> {
    let mut ends = Vec::new();
    let mut is_served = true;
    for _ in 0..fields.i32()? {
        fields.string()?;
        for _ in 0..fields.i32()? {
            fields.i32()?; // partition
            is_served &= fields.i16()? == 0;
            fields.i64()?; // timestamp
            ends.push(fields.i64()?);
        }
    }
    Ok(is_served.then_some(ends))
}

/// The size of the records in a Fetch response for one partition.
fn fetched_bytes(fields: &mut Fields<'_>) -> Result<usize> {
    fields.i32()?; // throttle time
    ensure!(fields.i32()? == 1, "an answer about other topics");
    let topic = fields.string()?;
    ensure!(fields.i32()? == 1, "an answer about other partitions");
    let partition = fields.i32()?;
    let code = fields.i16()?;
    ensure!(code == 0, "fetching {topic}-{partition}: error code {code}");
    fields.i64()?; // high watermark
    fields.i64()?; // last stable offset
    for _ in 0..fields.i32()? {
        fields.i64()?; // producer
        fields.i64()?; // first offset of its aborted transaction
    }
    // Null has the length -1.
    Ok(usize::try_from(fields.i32()?).unwrap_or(0))
}

fn parse(answer: &[u8]) -> Result<Vec<AdvertisedApi>> {
    ensure!(answer.len() >= 10, "the answer is cut short");
    let correlation_id = i32::from_be_bytes(answer[0..4].try_into()?);
    ensure!(
        correlation_id == CORRELATION_ID,
        "correlation id {correlation_id}"
    );
    let error = i16::from_be_bytes(answer[4..6].try_into()?);
    ensure!(error == 0, "error code {error}");
    let count = usize::try_from(i32::from_be_bytes(answer[6..10].try_into()?))?;
    let rows = &answer[10..];
    ensure!(
        rows.len() == 6 * count,
        "{count} rows in {} bytes",
        rows.len()
    );
    let mut apis: Vec<AdvertisedApi> = rows
        .chunks_exact(6)
        .map(|row| AdvertisedApi {
            api_key: i16::from_be_bytes([row[0], row[1]]),
            min_version: i16::from_be_bytes([row[2], row[3]]),
            max_version: i16::from_be_bytes([row[4], row[5]]),
        })
        .collect();
    apis.sort();
    Ok(apis)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_with_tls_is_served_when_it_refuses_and_not_when_it_is_bound() {
        let served_by = |reaction: Option<&'static [u8]>| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let Some(reaction) = reaction else {
                return refuses_plaintext(port);
            };
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                // The whole request is read, or the end of the connection would be a reset.
                let mut size = [0; 4];
                stream.read_exact(&mut size).unwrap();
                let mut request = vec![0; u32::from_be_bytes(size) as usize];
                stream.read_exact(&mut request).unwrap();
                stream.write_all(reaction).unwrap();
            });
            let refuses = refuses_plaintext(port);
            server.join().unwrap();
            refuses
        };
        assert!(!served_by(None), "it is bound, but not accepting");
        assert!(served_by(Some(&[TLS_ALERT, 3, 3, 0, 2, 2, 10])));
        assert!(served_by(Some(&[])));
        assert!(!served_by(Some(&[0, 0, 0, 4, 0, 0, 0, 7])));
    }

    #[test]
    fn an_answer_is_read_and_a_damaged_one_refused() {
        let mut answer = Vec::new();
        answer.extend_from_slice(&CORRELATION_ID.to_be_bytes());
        answer.extend_from_slice(&0i16.to_be_bytes());
        answer.extend_from_slice(&2i32.to_be_bytes());
        for number in [18i16, 0, 4, 0, 3, 13] {
            answer.extend_from_slice(&number.to_be_bytes());
        }
        let apis = parse(&answer).unwrap();
        assert_eq!(
            apis[0],
            AdvertisedApi {
                api_key: 0,
                min_version: 3,
                max_version: 13
            }
        );
        assert_eq!(apis[1].api_key, 18);
        assert!(parse(&answer[..answer.len() - 1]).is_err());
        answer[5] = 35;
        assert!(parse(&answer).is_err());
    }

    #[test]
    fn each_partition_of_a_produce_answer_has_its_code() {
        let mut answer = vec![0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2];
        for (partition, code) in [(4i32, 0i16), (7, 6)] {
            answer.extend_from_slice(&partition.to_be_bytes());
            answer.extend_from_slice(&code.to_be_bytes());
            answer.extend_from_slice(&[0; 16]);
        }
        let codes = codes_of(&mut Fields(&answer)).unwrap();
        assert_eq!(codes, [(4, 0), (7, 6)]);
        assert!(codes_of(&mut Fields(&answer[..answer.len() - 1])).is_err());
    }

    #[test]
    fn the_bytes_of_a_fetch_answer_are_counted() {
        let answer = |code: i16, size: i32| {
            let mut answer = vec![0; 4];
            answer.extend_from_slice(&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 3]);
            answer.extend_from_slice(&code.to_be_bytes());
            answer.extend_from_slice(&[0; 16]);
            answer.extend_from_slice(&1i32.to_be_bytes());
            answer.extend_from_slice(&[0; 16]);
            answer.extend_from_slice(&size.to_be_bytes());
            answer
        };
        for (size, expected) in [(77, 77), (0, 0), (-1, 0)] {
            let found = fetched_bytes(&mut Fields(&answer(0, size))).unwrap();
            assert_eq!(found, expected);
        }
        assert!(fetched_bytes(&mut Fields(&answer(1, 0))).is_err());
    }

    #[test]
    fn a_partition_without_a_leader_is_not_served() {
        let metadata = |leader: i32| {
            let mut answer = Vec::new();
            answer.extend_from_slice(&0i32.to_be_bytes()); // no broker
            answer.extend_from_slice(&1i32.to_be_bytes()); // the controller
            answer.extend_from_slice(&1i32.to_be_bytes()); // one topic
            answer.extend_from_slice(&[0, 0, 0, 1, b't', 0]);
            answer.extend_from_slice(&1i32.to_be_bytes()); // one partition
            answer.extend_from_slice(&[0, 0, 0, 0, 0, 5]);
            answer.extend_from_slice(&leader.to_be_bytes());
            for _ in 0..2 {
                answer.extend_from_slice(&1i32.to_be_bytes());
                answer.extend_from_slice(&1i32.to_be_bytes());
            }
            answer
        };
        let (led, unled) = (metadata(1), metadata(-1));
        let topics = led_topics(&mut Fields(&led)).unwrap();
        assert_eq!(topics, Some(vec![("t".to_owned(), vec![5])]));
        assert_eq!(led_topics(&mut Fields(&unled)).unwrap(), None);
        assert!(led_topics(&mut Fields(&led[..led.len() - 1])).is_err());
    }
}
