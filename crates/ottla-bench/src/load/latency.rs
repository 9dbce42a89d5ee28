//! Latency of one record at a time from producer to consumer, as Kafka's `EndToEndLatency` measures
//! it, but in microseconds.
//!
//! 1. The consumer's fetch is sent and waits at the broker for data.
//! 2. The clock starts, the record is produced, and its acknowledgement is awaited.
//! 3. The response to the fetch, which must contain that record, is awaited, and the clock stops.
//!
//! With a rate, the clock starts when the record is due, which does not depend on the records before it.
//! Without one, a stall of any length delays a single record, so it hardly shows in a percentile.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use ottla_records::Compression;
use ottla_types::Timestamp;

use super::fetch::{FetchRequests, parse_rate};
use super::prepared::{BatchShape, prepare, produce_version};
use super::produce::{parse_acks, receive_acknowledgement};
use super::topic::Topic;
use super::wire::Connection;
use crate::workload::latencies::Latencies;
use crate::workload::pacing::{Pacer, RunClock, Schedule};
use crate::workload::values::{Content, ValueSizes, ValueSource};

#[derive(Args, Clone, Copy, Debug)]
pub struct EndToEndOptions {
    #[arg(long, default_value_t = 20_000)]
    pub records: u64,
    #[arg(long, default_value_t = 100)]
    pub record_bytes: usize,
    /// 1 or all.
    #[arg(long, default_value = "1", value_parser = parse_acks)]
    pub acks: i16,
    /// Records per second; latencies then count from when a record was due. By default, each record is sent
    /// after the one before it was fetched.
    #[arg(long, value_parser = parse_rate)]
    pub rate: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub struct EndToEnd {
    pub records: u64,
    pub bytes: u64,
    pub payload_bytes: u64,
    /// From before the send, or from when the record was due, to the end of the fetch.
    pub end_to_end: Latencies,
    /// As far as the acknowledgement.
    pub acknowledgement: Latencies,
    pub elapsed: Duration,
}

/// A fetch may return empty after its maximum wait. This many empty responses in a row are an
/// error.
const EMPTY_ANSWERS: usize = 20;

/// Sends the records one by one to the first partition.
pub fn run(topic: &Topic, options: EndToEndOptions) -> Result<EndToEnd> {
    ensure!(
        options.acks != 0,
        "the acknowledgement is waited for; give --acks 1 or all"
    );
    let partition = topic
        .partitions
        .first()
        .context("the topic has no partitions")?;
    let mut producer = topic.access.open(&partition.leader)?;
    let mut consumer = topic.access.open(&partition.leader)?;
    let version = produce_version(&producer)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let shape = BatchShape {
        // Smaller than any record, so that each batch holds one.
        batch_bytes: 0,
        record_bytes: options.record_bytes,
        compression: Compression::None,
    };
    let sizes = ValueSizes::fixed(options.record_bytes);
    let values = ValueSource::random(Content::Letters, sizes, 1, 1);
    let mut request = prepare(
        &producer,
        topic,
        partition.index,
        shape,
        options.acks,
        Timestamp(now),
        &mut values.values(1, 0),
    )?;
    let mut fetches = FetchRequests::new(&consumer, topic)?;
    let mut offset = end_offset(&mut consumer, topic, partition.index)?;
    let mut outcome = EndToEnd::default();
    let start = Instant::now();
    let schedule = options.rate.map(|rate| Schedule::new(rate, 1, 0));
    let mut pacer = schedule.map(|schedule| Pacer::new(RunClock::start(), Some(schedule)));
    for _ in 0..options.records {
        fetches.send(&mut consumer, partition.index, offset)?;
        let sent = match &mut pacer {
            Some(pacer) => {
                let due = pacer.wait_for_turn().due;
                pacer.clock().instant(due)
            }
            None => Instant::now(),
        };
        producer.send(&mut request.frame)?;
        receive_acknowledgement(&mut producer, version)?;
        outcome.acknowledgement.record(sent.elapsed());
        offset = receive_record(&mut fetches, &mut consumer, partition.index, offset)?;
        outcome.end_to_end.record(sent.elapsed());
        outcome.records += 1;
        outcome.bytes += request.batch_bytes;
        outcome.payload_bytes += request.payload_bytes;
    }
    outcome.elapsed = start.elapsed();
    Ok(outcome)
}

/// Waits for the response to the pending fetch, and fetches again while responses are empty.
fn receive_record(
    fetches: &mut FetchRequests,
    consumer: &mut Connection,
    partition: i32,
    offset: i64,
) -> Result<i64> {
    let mut part = fetches.receive(consumer)?;
    for _ in 0..EMPTY_ANSWERS {
        match part.records {
            0 => part = fetches.fetch(consumer, partition, offset)?,
            1 => return Ok(part.next_offset),
            _ => bail!("others write to the topic at the same time; give another --topic"),
        }
    }
    bail!(
        "{}: the record at offset {offset} was acknowledged, but is not fetched",
        consumer.address()
    )
}

/// The current log end offset; existing records are not measured.
fn end_offset(consumer: &mut Connection, topic: &Topic, partition: i32) -> Result<i64> {
    let mut fetches = FetchRequests::new(consumer, topic)?.max_wait(Duration::ZERO);
    let part = fetches.fetch(consumer, partition, 0)?;
    Ok(part.high_watermark)
}
