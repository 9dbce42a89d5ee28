//! Reads a topic back with large fetches into one buffer. Only batch headers are parsed, to find the next offset.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use ottla_protocol::Records;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::fetch_response::{FetchResponse, PartitionData};
use ottla_records::BatchHeader;
use ottla_types::ErrorCode;

use super::topic::Topic;
use super::wire::{Connection, check, frame};
use crate::workload::latencies::Latencies;

/// The first version of Fetch that identifies topics by ID (KIP-516).
pub(super) const FIRST_VERSION_WITH_TOPIC_ID: i16 = 13;
/// This many consecutive responses without records are an error. A read from remote storage that
/// takes longer than `remote.fetch.max.wait.ms` is answered without records.
const EMPTY_ANSWERS: usize = 60;
/// A fetch at a rate that is sent this much after it was due counts as sent in time.
const PUNCTUAL: Duration = Duration::from_millis(5);
/// A fetch outside any session (KIP-227).
pub(super) const NO_SESSION: i32 = -1;

/// The parameters of a read.
#[derive(Args, Clone, Copy, Debug)]
pub struct FetchOptions {
    #[arg(long, default_value_t = 4)]
    pub connections: usize,
    /// Maximum bytes of one response, and of each partition in it.
    #[arg(long, default_value_t = 1 << 20)]
    pub fetch_bytes: usize,
    /// How often the topic is read.
    #[arg(long, default_value_t = 1)]
    pub passes: usize,
    /// Read only this many bytes of each partition in a pass; by default everything.
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    pub partition_bytes: u64,
    /// Read at most this many 10^6 bytes per second, an equal share on each connection, one fetch at a
    /// time; by default as fast as possible.
    #[arg(long, value_parser = parse_rate)]
    pub megabytes_per_second: Option<f64>,
    /// Reading ends with the next response when this is set.
    #[arg(skip)]
    pub stop: Option<&'static AtomicBool>,
}

/// Far lower rates give a fetch or a record more time than a clock can represent.
const LEAST_RATE: f64 = 0.001;

pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate >= LEAST_RATE && rate.is_finite() => Ok(rate),
        _ => Err(format!("give a number of at least {LEAST_RATE}")),
    }
}

/// The result of reading.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    pub requests: u64,
    pub records: u64,
    /// Bytes of complete batches.
    pub bytes: u64,
    /// From sending a request to receiving its response.
    pub latencies: Latencies,
    pub elapsed: Duration,
}

/// Builds and sends the fetch requests of one connection.
pub struct FetchRequests {
    request: FetchRequest,
    version: i16,
    address: String,
    topic: String,
}

/// The part of a response that determines the next offset.
#[derive(Clone, Copy, Debug)]
pub struct FetchedPart {
    pub next_offset: i64,
    pub high_watermark: i64,
    pub records: u64,
    pub bytes: u64,
}

impl FetchRequests {
    pub fn new(connection: &Connection, topic: &Topic) -> Result<FetchRequests> {
        let version = connection.version::<FetchRequest>()?;
        let by_id = version >= FIRST_VERSION_WITH_TOPIC_ID;
        let request = FetchRequest {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 1 << 20,
            session_epoch: NO_SESSION,
            topics: vec![FetchTopic {
                topic: if by_id {
                    Default::default()
                } else {
                    topic.name.clone().into()
                },
                topic_id: if by_id { topic.id } else { Default::default() },
                partitions: vec![FetchPartition {
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        Ok(FetchRequests {
            request,
            version,
            address: connection.address().to_owned(),
            topic: topic.name.clone(),
        })
    }

    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.request.max_wait_ms = i32::try_from(max_wait.as_millis()).unwrap_or(i32::MAX);
        self
    }

    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self.request.max_bytes = bytes;
        self.request.topics[0].partitions[0].partition_max_bytes = bytes;
        self
    }

    pub fn send(&mut self, connection: &mut Connection, partition: i32, offset: i64) -> Result<()> {
        let asked = &mut self.request.topics[0].partitions[0];
        (asked.partition, asked.fetch_offset) = (partition, offset);
        connection.send(&mut frame(&self.request, self.version)?)
    }

    pub fn receive(&self, connection: &mut Connection) -> Result<FetchedPart> {
        let asked = &self.request.topics[0].partitions[0];
        let doing = format!(
            "fetching {}-{} from offset {}",
            self.topic, asked.partition, asked.fetch_offset
        );
        connection.receive_with(self.version, |answer: FetchResponse| {
            check(answer.error_code, &doing, &self.address)?;
            let topic = answer.responses.first();
            let part = topic.and_then(|topic| topic.partitions.first());
            let part =
                part.with_context(|| format!("{}: an empty answer while {doing}", self.address))?;
            if part.error_code == ErrorCode::OffsetOutOfRange.code()
                && part.log_start_offset > asked.fetch_offset
            {
                // Retention deleted the first records; the caller continues at the log start
                // offset.
                return Ok(FetchedPart {
                    next_offset: part.log_start_offset,
                    high_watermark: part.high_watermark,
                    records: 0,
                    bytes: 0,
                });
            }
            check(part.error_code, &doing, &self.address)?;
            step_over_batches(part, asked.fetch_offset)
        })
    }

    pub fn fetch(
        &mut self,
        connection: &mut Connection,
        partition: i32,
        offset: i64,
    ) -> Result<FetchedPart> {
        self.send(connection, partition, offset)?;
        self.receive(connection)
    }
}

fn step_over_batches(part: &PartitionData, from: i64) -> Result<FetchedPart> {
    let mut fetched = FetchedPart {
        next_offset: from,
        high_watermark: part.high_watermark,
        records: 0,
        bytes: 0,
    };
    let Some(Records::Bytes(records)) = &part.records else {
        return Ok(fetched);
    };
    let mut rest = &records[..];
    while rest.len() >= BatchHeader::SIZE {
        let header = BatchHeader::parse(rest)?;
        let Some(after) = rest.get(header.size_in_bytes()..) else {
            break;
        };
        ensure!(
            header.next_offset().0 > fetched.next_offset,
            "a batch up to offset {} was answered to a fetch from {}",
            header.last_offset(),
            fetched.next_offset
        );
        fetched.next_offset = header.next_offset().0;
        fetched.records += header.record_count.max(0) as u64;
        fetched.bytes += header.size_in_bytes() as u64;
        rest = after;
    }
    Ok(fetched)
}

/// When a connection may fetch again, so that it reads at a rate. What was late is not caught up: it would be
/// read as fast as possible.
struct Pace {
    bytes_per_second: f64,
    due: Instant,
}

impl Pace {
    /// The connections begin one after the other, within the time that a fetch has.
    fn new(options: FetchOptions, connection: usize, start: Instant) -> Option<Pace> {
        let of_all = options.megabytes_per_second? * 1e6;
        let seconds = options.fetch_bytes as f64 / of_all * connection as f64;
        Some(Pace {
            bytes_per_second: of_all / options.connections as f64,
            due: start + Duration::from_secs_f64(seconds),
        })
    }

    fn wait(&self) {
        std::thread::sleep(self.due.saturating_duration_since(Instant::now()));
    }

    /// A fetch that was sent at this time has been answered with these bytes.
    fn on_fetched(&mut self, sent: Instant, bytes: u64) {
        let seconds = bytes as f64 / self.bytes_per_second;
        // A sleep ends a little late; that does not add up.
        let late = sent.saturating_duration_since(self.due);
        let begun = if late < PUNCTUAL { self.due } else { sent };
        self.due = begun + Duration::from_secs_f64(seconds);
    }
}

/// Reads everything up to the initial high watermark. The partitions are distributed round-robin over the
/// connections; if there are more connections than partitions, several read the same one.
pub fn run(topic: &Topic, options: FetchOptions) -> Result<Fetched> {
    let mut readers = Vec::new();
    for number in 0..options.connections {
        let partitions: Vec<_> = match topic.partitions.len() {
            count if count <= options.connections => vec![&topic.partitions[number % count]],
            _ => topic
                .partitions
                .iter()
                .skip(number)
                .step_by(options.connections)
                .collect(),
        };
        let mut open: Vec<Reader> = Vec::new();
        for partition in partitions {
            let position = match open
                .iter()
                .position(|reader| reader.connection.address() == partition.leader)
            {
                Some(position) => position,
                None => {
                    let connection = topic.access.open(&partition.leader)?;
                    let requests =
                        FetchRequests::new(&connection, topic)?.max_bytes(options.fetch_bytes);
                    open.push(Reader {
                        connection,
                        requests,
                        partitions: Vec::new(),
                    });
                    open.len() - 1
                }
            };
            open[position].partitions.push(partition.index);
        }
        readers.push(open);
    }
    let start_line = Barrier::new(readers.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = readers
            .into_iter()
            .enumerate()
            .map(|(number, readers)| {
                let start_line = &start_line;
                scope.spawn(move || {
                    start_line.wait();
                    read_all(readers, options, Pace::new(options, number, Instant::now()))
                })
            })
            .collect();
        start_line.wait();
        let start = Instant::now();
        let mut total = Fetched::default();
        for thread in threads {
            let fetched = thread.join().expect("a reader does not panic")?;
            total.requests += fetched.requests;
            total.records += fetched.records;
            total.bytes += fetched.bytes;
            total.latencies.add(&fetched.latencies);
        }
        total.elapsed = start.elapsed();
        Ok(total)
    })
}

struct Reader {
    connection: Connection,
    requests: FetchRequests,
    partitions: Vec<i32>,
}

fn read_all(
    mut readers: Vec<Reader>,
    options: FetchOptions,
    mut pace: Option<Pace>,
) -> Result<Fetched> {
    let mut total = Fetched::default();
    for _ in 0..options.passes {
        for reader in &mut readers {
            for &partition in &reader.partitions {
                let (mut offset, before) = (0, total.bytes);
                let mut empty_answers = 0;
                loop {
                    if let Some(pace) = &pace {
                        pace.wait();
                    }
                    let sent = Instant::now();
                    let part = reader
                        .requests
                        .fetch(&mut reader.connection, partition, offset)?;
                    total.latencies.record(sent.elapsed());
                    if let Some(pace) = &mut pace {
                        pace.on_fetched(sent, part.bytes);
                    }
                    total.requests += 1;
                    total.records += part.records;
                    total.bytes += part.bytes;
                    let is_empty = part.next_offset <= offset && part.high_watermark > offset;
                    empty_answers = if is_empty { empty_answers + 1 } else { 0 };
                    ensure!(
                        empty_answers < EMPTY_ANSWERS,
                        "{}: no records of partition {partition} arrived from offset {offset}, although it ends at {}; \
                         give a larger --fetch-bytes",
                        reader.connection.address(),
                        part.high_watermark
                    );
                    if options
                        .stop
                        .is_some_and(|stop| stop.load(Ordering::Relaxed))
                    {
                        return Ok(total);
                    }
                    offset = part.next_offset;
                    let has_enough = total.bytes - before >= options.partition_bytes;
                    if offset >= part.high_watermark || has_enough {
                        break;
                    }
                }
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::{Offset, Timestamp};

    use super::*;

    fn batch(base_offset: i64, records: usize) -> Bytes {
        let mut builder =
            RecordBatchBuilder::new(Compression::None).base_offset(Offset(base_offset));
        for _ in 0..records {
            builder.append(Timestamp(1), None, Some(b"value"), &[]);
        }
        builder.build().to_bytes()
    }

    fn part(records: Vec<u8>) -> PartitionData {
        PartitionData {
            high_watermark: 99,
            records: Some(Records::Bytes(Bytes::from(records))),
            ..Default::default()
        }
    }

    #[test]
    fn batches_are_counted_up_to_a_truncated_one() {
        let (first, second) = (batch(10, 3), batch(13, 2));
        let mut records = [first.clone(), second.clone()].concat();
        let all = step_over_batches(&part(records.clone()), 10).unwrap();
        assert_eq!(
            (all.next_offset, all.records, all.bytes),
            (15, 5, records.len() as u64)
        );
        records.pop();
        let cut = step_over_batches(&part(records), 10).unwrap();
        assert_eq!(
            (cut.next_offset, cut.records, cut.bytes),
            (13, 3, first.len() as u64)
        );
        assert_eq!(
            step_over_batches(&PartitionData::default(), 10)
                .unwrap()
                .next_offset,
            10
        );
    }

    #[test]
    fn a_connection_reads_its_share_of_the_rate() {
        let options = FetchOptions {
            connections: 4,
            fetch_bytes: 1_000_000,
            passes: 1,
            partition_bytes: u64::MAX,
            megabytes_per_second: Some(20.0),
            stop: None,
        };
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let pace = |connection| Pace::new(options, connection, start).unwrap();
        // A fetch has 200 ms, in which each connection begins.
        let dues = [0, 1, 2, 3].map(|connection| pace(connection).due);
        assert_eq!(dues, [0, 50, 100, 150].map(after));
        let mut pace = pace(0);
        pace.on_fetched(after(3), 1_000_000);
        assert_eq!(pace.due, after(200), "in time");
        pace.on_fetched(after(200), 500_000);
        assert_eq!(pace.due, after(300), "a smaller response");
        pace.on_fetched(after(450), 1_000_000);
        assert_eq!(pace.due, after(650), "late");
        pace.on_fetched(after(650), 0);
        assert_eq!(pace.due, after(650), "no records");
        let unlimited = FetchOptions {
            megabytes_per_second: None,
            ..options
        };
        assert!(Pace::new(unlimited, 0, start).is_none());
        for text in ["0", "1e-300", "-1", "inf", "NaN", "fast"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        assert_eq!(parse_rate("0.5"), Ok(0.5));
    }

    #[test]
    fn a_repeated_response_ends_the_run() {
        assert!(step_over_batches(&part(batch(10, 3).to_vec()), 13).is_err());
        assert!(step_over_batches(&part([batch(10, 3), batch(10, 3)].concat()), 10).is_err());
    }
}
