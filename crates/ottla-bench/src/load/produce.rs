//! Produce load: as fast as the broker responds, with a fixed number of requests in flight, or at a
//! fixed rate.
//!
//! At a fixed rate the generator is an open loop: each request has a due time that does not depend
//! on earlier requests, and its latency counts from there, so that a stalled broker still gets, and
//! is measured on, the requests due during the stall.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ottla_protocol::messages::produce_response::ProduceResponse;
use ottla_records::Compression;
use ottla_types::Timestamp;

use super::prepared::{BatchShape, PreparedProduce, prepare, produce_version};
use super::topic::Topic;
use super::wire::{Connection, check};
use crate::workload::latencies::Latencies;
use crate::workload::pacing::{Pacer, RunClock, Schedule};
use crate::workload::values::{Content, ValueSizes, ValueSource};

#[derive(Clone, Copy, Debug)]
pub struct ProduceOptions {
    pub shape: BatchShape,
    pub connections: usize,
    /// Maximum requests in flight per connection; not used with a fixed rate.
    pub in_flight: usize,
    pub acks: i16,
    pub until: RunLength,
    /// Requests per second over all connections; `None` for as fast as they are answered.
    pub requests_per_second: Option<f64>,
}

impl ProduceOptions {
    /// Batches of a number of records at a rate of records, without an end.
    pub fn paced(
        batch_records: usize,
        record_bytes: usize,
        records_per_second: f64,
        connections: usize,
        acks: i16,
    ) -> ProduceOptions {
        ProduceOptions {
            shape: BatchShape {
                // A record of this size has less than 16 bytes besides its value, and the batch header
                // has 61.
                batch_bytes: 61 + batch_records * (record_bytes + 16) - 16,
                record_bytes,
                compression: Compression::None,
            },
            connections,
            in_flight: usize::MAX,
            acks,
            until: RunLength::Time(Duration::MAX),
            requests_per_second: Some(records_per_second / batch_records as f64),
        }
    }
}

/// The required acknowledgements of a producer, as a number.
pub fn parse_acks(text: &str) -> Result<i16> {
    Ok(match text {
        "0" => 0,
        "1" => 1,
        "all" | "-1" => -1,
        _ => bail!("give 0, 1 or all"),
    })
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum RunLength {
    /// As many requests as contain this many bytes of batches.
    Bytes(u64),
    Time(Duration),
}

#[derive(Clone, Debug, Default)]
pub struct Produced {
    pub requests: u64,
    pub records: u64,
    pub bytes: u64,
    pub payload_bytes: u64,
    /// From the send, or at a fixed rate from the due time, to the response; empty with `acks=0`.
    pub latencies: Latencies,
    /// Every request of a fixed rate, per connection, for a timeline.
    pub each: Vec<RequestTiming>,
    pub elapsed: Duration,
}

/// One request of a fixed rate.
#[derive(Clone, Copy, Debug)]
pub struct RequestTiming {
    pub due: Instant,
    pub latency: Duration,
}

/// Number of different batches per partition that each connection cycles through.
const VARIANTS: usize = 4;
/// From this many partitions on there is one batch for each, because all are kept in memory.
const MANY_PARTITIONS: usize = 1000;
const SEED: u64 = 1;

struct Writer {
    connection: Connection,
    version: i16,
    requests: Vec<PreparedProduce>,
}

/// Runs the load. Requests are prepared and connections opened before the clock starts.
pub fn run(topic: &Topic, options: ProduceOptions) -> Result<Produced> {
    run_and_tell(topic, options, |_| {})
}

/// Like [`run`]; `on_start` is called with the time at which the clock started.
pub(super) fn run_and_tell(
    topic: &Topic,
    options: ProduceOptions,
    on_start: impl FnOnce(Instant),
) -> Result<Produced> {
    let leaders = topic.by_leader();
    let sizes = ValueSizes::fixed(options.shape.record_bytes);
    let values = ValueSource::random(Content::Letters, sizes, SEED, u64::MAX);
    let mut writers = Vec::new();
    for number in 0..options.connections {
        let (leader, partitions) = &leaders[number % leaders.len()];
        let writer = writer(topic, leader, partitions, number, &options, &values)?;
        writers.push(writer);
    }
    let total_requests = match options.until {
        RunLength::Time(_) => i64::MAX,
        RunLength::Bytes(bytes) => {
            let batch_bytes = writers[0].requests[0].batch_bytes;
            i64::try_from(bytes.div_ceil(batch_bytes)).context("too many --bytes")?
        }
    };
    let budget = AtomicI64::new(total_requests);
    let start_line = Barrier::new(writers.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = writers
            .into_iter()
            .enumerate()
            .map(|(number, writer)| {
                let (budget, start_line) = (&budget, &start_line);
                scope.spawn(move || {
                    start_line.wait();
                    match options.requests_per_second {
                        None => saturate(writer, &options, budget),
                        Some(rate) => pace(writer, &options, rate, number, total_requests),
                    }
                })
            })
            .collect();
        // Taken before the barrier: this thread may be the last to wake after it, when other
        // threads have already started.
        let start = Instant::now();
        start_line.wait();
        on_start(start);
        let mut total = Produced::default();
        for thread in threads {
            let produced = thread.join().expect("a writer does not panic")?;
            total.requests += produced.requests;
            total.records += produced.records;
            total.bytes += produced.bytes;
            total.payload_bytes += produced.payload_bytes;
            total.latencies.add(&produced.latencies);
            total.each.extend(produced.each);
        }
        total.elapsed = start.elapsed();
        Ok(total)
    })
}

fn writer(
    topic: &Topic,
    leader: &str,
    partitions: &[i32],
    number: usize,
    options: &ProduceOptions,
    values: &ValueSource,
) -> Result<Writer> {
    let connection = topic.access.open(leader)?;
    let mut values = values.values(SEED, number as u64);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let mut requests = Vec::new();
    let variants = match partitions.len() {
        MANY_PARTITIONS.. => 1,
        _ => VARIANTS,
    };
    for _ in 0..variants {
        // Connections start at different partitions, so that they do not move in lockstep.
        for turn in 0..partitions.len() {
            let partition = partitions[(number + turn) % partitions.len()];
            let (shape, acks) = (options.shape, options.acks);
            requests.push(prepare(
                &connection,
                topic,
                partition,
                shape,
                acks,
                Timestamp(now),
                &mut values,
            )?);
        }
    }
    Ok(Writer {
        version: produce_version(&connection)?,
        connection,
        requests,
    })
}

impl Produced {
    fn count(&mut self, request: &PreparedProduce) {
        self.requests += 1;
        self.records += request.records;
        self.bytes += request.batch_bytes;
        self.payload_bytes += request.payload_bytes;
    }
}

fn saturate(mut writer: Writer, options: &ProduceOptions, budget: &AtomicI64) -> Result<Produced> {
    let deadline = match options.until {
        RunLength::Time(time) => Some(Instant::now() + time),
        RunLength::Bytes(_) => None,
    };
    let mut produced = Produced::default();
    let mut sent: VecDeque<Instant> = VecDeque::with_capacity(options.in_flight);
    let mut next = 0;
    loop {
        while sent.len() < options.in_flight {
            let in_time = deadline.is_none_or(|deadline| Instant::now() < deadline);
            if !in_time || budget.fetch_sub(1, Ordering::Relaxed) <= 0 {
                break;
            }
            let request = &mut writer.requests[next];
            writer.connection.send(&mut request.frame)?;
            produced.count(request);
            next = (next + 1) % writer.requests.len();
            if options.acks != 0 {
                sent.push_back(Instant::now());
            }
        }
        let Some(instant) = sent.pop_front() else {
            return Ok(produced);
        };
        receive_acknowledgement(&mut writer.connection, writer.version)?;
        produced.latencies.record(instant.elapsed());
    }
}

fn pace(
    mut writer: Writer,
    options: &ProduceOptions,
    requests_per_second: f64,
    number: usize,
    total_requests: i64,
) -> Result<Produced> {
    ensure!(
        options.acks != 0,
        "at a fixed rate latency is measured; give --acks 1 or all"
    );
    let total = match options.until {
        RunLength::Bytes(_) => total_requests,
        RunLength::Time(time) => (time.as_secs_f64() * requests_per_second) as i64,
    };
    let connections = options.connections as i64;
    let share = (total - number as i64 + connections - 1) / connections;
    let requests = usize::try_from(share.max(0)).context("too many requests for one run")?;
    let schedule = Schedule::new(requests_per_second, connections as u64, number as u64);
    let clock = RunClock::start();
    let mut receiver = writer.connection.try_clone()?;
    let version = writer.version;
    std::thread::scope(|scope| {
        let acknowledged = scope.spawn(move || -> Result<(Latencies, Vec<RequestTiming>)> {
            let mut latencies = Latencies::default();
            let mut each = Vec::with_capacity(requests);
            for turn in 0..requests {
                receive_acknowledgement(&mut receiver, version)?;
                let due = clock.instant(schedule.due(turn as u64));
                let latency = due.elapsed();
                latencies.record(latency);
                each.push(RequestTiming { due, latency });
            }
            Ok((latencies, each))
        });
        let mut produced = Produced::default();
        let mut pacer = Pacer::new(clock, Some(schedule));
        for turn in 0..requests {
            pacer.wait_for_turn();
            let next = turn % writer.requests.len();
            let request = &mut writer.requests[next];
            writer.connection.send(&mut request.frame)?;
            produced.count(request);
        }
        (produced.latencies, produced.each) =
            acknowledged.join().expect("a receiver does not panic")?;
        Ok(produced)
    })
}

/// Waits for the response to a prepared request. Fails if the broker returned an error.
pub fn receive_acknowledgement(connection: &mut Connection, version: i16) -> Result<()> {
    let address = connection.address().to_owned();
    connection.receive_with(version, |answer: ProduceResponse| {
        for topic in &answer.responses {
            for part in &topic.partition_responses {
                let message = part.error_message.as_deref().unwrap_or_default();
                let doing = format_args!("producing to partition {}: {message}", part.index);
                check(part.error_code, doing, &address)?;
            }
        }
        Ok(())
    })
}

/// Writes the requests in the order of their due times, as wall-clock times, so that other programs
/// can relate them.
pub fn write_each(each: &[RequestTiming], file: &Path) -> Result<()> {
    let (now, since_epoch) = (
        Instant::now(),
        SystemTime::now().duration_since(UNIX_EPOCH)?,
    );
    let mut rows: Vec<(u128, u128)> = each
        .iter()
        .map(|request| {
            let due = since_epoch.saturating_sub(now.saturating_duration_since(request.due));
            (due.as_micros(), request.latency.as_micros())
        })
        .collect();
    rows.sort_unstable();
    let mut text = String::from("due_us,latency_us\n");
    for (due, latency) in rows {
        text.push_str(&format!("{due},{latency}\n"));
    }
    std::fs::write(file, text).with_context(|| file.display().to_string())
}
