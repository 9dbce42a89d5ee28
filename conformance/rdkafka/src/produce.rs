//! Producing. One thread hands records over and hears of what became of them.

use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use rdkafka::bindings;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

use crate::measurement::{Interface, config_of, report};

#[derive(Args)]
pub struct Options {
    #[arg(long)]
    topic: String,
    #[arg(long)]
    num_records: u64,
    #[arg(long)]
    record_size: usize,
    #[arg(long, value_enum, default_value = "batches")]
    interface: Interface,
    /// Settings of librdkafka.
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

/// Records handed over before what became of others is heard of.
const TOGETHER: usize = 500;
/// Larger than what is under way at a time, and far larger than a batch.
const POOL_BYTES: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts what has come back; all share it with the producer.
#[derive(Default)]
struct Counts {
    written: AtomicU64,
    failed: AtomicU64,
}

impl ClientContext for Counts {}

impl ProducerContext for Counts {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let counter = match result {
            Ok(_) => &self.written,
            Err(_) => &self.failed,
        };
        // Callbacks come on the thread that polls, which is one.
        counter.store(counter.load(Relaxed) + 1, Relaxed);
    }
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(
        (1..=POOL_BYTES).contains(&options.record_size),
        "--record-size must be from 1 to {POOL_BYTES}"
    );
    let producer: BaseProducer<Counts> =
        config_of(&options.settings)?.create_with_context(Counts::default())?;
    let metadata = producer
        .client()
        .fetch_metadata(Some(&options.topic), PATIENCE)?;
    let partitions = metadata.topics()[0].partitions().len();
    ensure!(partitions > 0, "{} has no partitions", options.topic);
    let values = Values::new(options.record_size);
    let began = Instant::now();
    match options.interface {
        Interface::Records => one_by_one(&producer, options, values)?,
        Interface::Batches => in_batches(&producer, options, values, partitions as u64)?,
    }
    producer.flush(PATIENCE)?;
    let took = began.elapsed();
    let counts = producer.context();
    let (written, failed) = (counts.written.load(Relaxed), counts.failed.load(Relaxed));
    ensure!(
        written == options.num_records && failed == 0,
        "{written} of {} records were written, {failed} failed",
        options.num_records
    );
    report(written, took);
    Ok(())
}

fn one_by_one(
    producer: &BaseProducer<Counts>,
    options: &Options,
    mut values: Values,
) -> Result<()> {
    for number in 0..options.num_records {
        let value = values.next();
        let record = BaseRecord::<(), [u8]>::to(&options.topic).payload(value);
        let mut refused = producer.send(record).err();
        while let Some((error, record)) = refused {
            let KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) = error else {
                return Err(error.into());
            };
            producer.poll(Duration::from_millis(1));
            refused = producer.send(record).err();
        }
        if number.is_multiple_of(TOGETHER as u64) {
            producer.poll(Duration::ZERO);
        }
    }
    Ok(())
}

/// A partition after the other gets an array of records. Values stay where they are in the pool until they are sent,
/// which is why this does not copy them and the pool outlives the flush.
fn in_batches(
    producer: &BaseProducer<Counts>,
    options: &Options,
    mut values: Values,
    partitions: u64,
) -> Result<()> {
    let name = CString::new(options.topic.as_str())?;
    let client = producer.client().native_ptr();
    // SAFETY: the client lives as long as the producer, and the name is copied; the handle is destroyed below.
    let topic = unsafe { bindings::rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut()) };
    ensure!(!topic.is_null(), "no handle for topic {}", options.topic);
    let mut left = options.num_records;
    let mut turn = 0u64;
    let mut messages: Vec<bindings::rd_kafka_message_t> = Vec::with_capacity(TOGETHER);
    while left > 0 {
        messages.clear();
        for _ in 0..left.min(TOGETHER as u64) {
            let value = values.next();
            // SAFETY: the type is plain data of the C library, for which all zeros stand for nothing.
            let mut message: bindings::rd_kafka_message_t = unsafe { std::mem::zeroed() };
            message.payload = value.as_ptr().cast_mut().cast();
            message.len = value.len();
            messages.push(message);
        }
        left -= messages.len() as u64;
        let partition = (turn % partitions) as i32;
        turn += 1;
        let mut rest = &mut messages[..];
        loop {
            // SAFETY: the array has so many messages, whose payloads are part of a pool that is never freed.
            let taken = unsafe {
                bindings::rd_kafka_produce_batch(
                    topic,
                    partition,
                    0,
                    rest.as_mut_ptr(),
                    rest.len() as i32,
                )
            };
            if taken as usize == rest.len() {
                break;
            }
            // Those that were refused stand anywhere in the array, where the queue filled up from there on.
            let full = bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__QUEUE_FULL;
            let none = bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
            if let Some(bad) = rest.iter().find(|it| it.err != none && it.err != full) {
                bail!("librdkafka refuses a record: {:?}", bad.err);
            }
            let first = rest
                .iter()
                .position(|it| it.err == full)
                .unwrap_or(rest.len());
            rest = &mut rest[first..];
            if rest.is_empty() {
                break;
            }
            ensure!(
                rest.iter().all(|it| it.err == full),
                "librdkafka took records behind those that it refused"
            );
            producer.poll(Duration::from_millis(1));
        }
        producer.poll(Duration::ZERO);
    }
    // SAFETY: nothing is produced through it any more; what is under way holds a reference of its own.
    unsafe { bindings::rd_kafka_topic_destroy(topic) };
    Ok(())
}

/// Slices of a pool of random capital letters, as Kafka's tool fills its records.
struct Values {
    pool: &'static [u8],
    size: usize,
    at: usize,
}

impl Values {
    /// The pool is made once and never freed.
    fn new(size: usize) -> Values {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let letters = (0..POOL_BYTES).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            b'A' + (state % 26) as u8
        });
        Values {
            pool: Box::leak(letters.collect()),
            size,
            at: 0,
        }
    }

    fn next(&mut self) -> &'static [u8] {
        if self.at + self.size > self.pool.len() {
            self.at = 0;
        }
        let value = &self.pool[self.at..self.at + self.size];
        self.at += self.size;
        value
    }
}
