//! The cost of producing and consuming 100-byte records on one core, without a network.
//!
//! `cargo bench -p ottla-client` prints the median and the spread of several rounds. All memory is
//! touched once before anything is measured. Times are CPU times of the thread, so other load on
//! the machine changes them little, except through the caches.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use ottla_client::{ConsumerConfig, OfflineConsumer, OfflineProducer, ProducerConfig, RecordRef};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{Offset, Timestamp};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(300);
const RECORD_BYTES: usize = 100;

fn main() {
    let config = |batch_size: usize| ProducerConfig {
        batch_size,
        acks: 1,
        ..ProducerConfig::default()
    };
    produce("producer, tagged, batch.size=16384", config(16_384), false);
    produce(
        "producer, with deliveries, batch.size=16384",
        config(16_384),
        true,
    );
    produce("producer, tagged, batch.size=65536", config(65_536), false);
    let idempotent = ProducerConfig {
        acks: -1,
        ..config(16_384)
    };
    produce(
        "producer, idempotent, tagged, batch.size=16384",
        idempotent,
        false,
    );
    consume("consumer, borrowed records", true);
    consume("consumer, owned records, max.poll.records=500", false);
}

/// A response of a megabyte with batches of a producer's default size, read repeatedly.
fn consume(name: &str, borrows: bool) {
    let records = answer();
    let mut consumer = OfflineConsumer::new(ConsumerConfig::default(), "topic");
    let mut round = || {
        let (began, mut count, mut bytes) = (thread_time(), 0u64, 0usize);
        while thread_time() - began < ROUND {
            consumer.answer(records.clone());
            if borrows {
                while let Some(batches) = some(consumer.take_batches().expect("whole batches")) {
                    for record in batches.iter().flat_map(|batch| batch.iter()) {
                        let record = record.expect("a whole record");
                        bytes += black_box(record.value).map_or(0, <[u8]>::len);
                        count += 1;
                    }
                }
            } else {
                while let Some(records) = some(consumer.take_records().expect("whole batches")) {
                    for record in &records {
                        bytes += black_box(record.value.as_deref()).map_or(0, <[u8]>::len);
                        count += 1;
                    }
                }
            }
        }
        assert_eq!(bytes as u64, count * RECORD_BYTES as u64);
        count as f64 / (thread_time() - began).as_secs_f64()
    };
    round();
    report(name, (0..ROUNDS).map(|_| round()).collect());
}

fn some<T>(taken: Vec<T>) -> Option<Vec<T>> {
    (!taken.is_empty()).then_some(taken)
}

/// A leader's response of `max.partition.fetch.bytes`.
fn answer() -> Bytes {
    let payload = [b'x'; RECORD_BYTES];
    let (mut bytes, mut offset) = (Vec::new(), 0);
    while bytes.len() < 1_000_000 {
        let mut batch = RecordBatchBuilder::new(Compression::None).base_offset(Offset(offset));
        while batch.uncompressed_size() < 16_384 - RECORD_BYTES - 10 {
            let timestamp = Timestamp(1_700_000_000_000 + offset / 1000);
            batch.append(timestamp, None, Some(&payload), &[]);
            offset += 1;
        }
        bytes.extend_from_slice(&batch.build_in_place());
    }
    bytes.into()
}

fn produce(name: &str, config: ProducerConfig, with_deliveries: bool) {
    let mut producer = OfflineProducer::new(config, "topic", 6).expect("settings that go together");
    let payload = [b'x'; RECORD_BYTES];
    let mut round = || {
        let (began, mut count) = (thread_time(), 0u64);
        while thread_time() - began < ROUND {
            for _ in 0..20_000 {
                let record = RecordRef::new("topic", &payload);
                if with_deliveries {
                    black_box(producer.try_send(record).expect("there is memory"));
                } else {
                    producer
                        .try_send_tagged(record, count)
                        .expect("there is memory");
                }
                count += 1;
            }
            black_box(producer.deliver_all());
        }
        count as f64 / (thread_time() - began).as_secs_f64()
    };
    round();
    report(name, (0..ROUNDS).map(|_| round()).collect());
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn report(name: &str, mut rates: Vec<f64>) {
    rates.sort_by(f64::total_cmp);
    let million = |rate: f64| rate / 1e6;
    println!(
        "{name:<52} {:6.2} million records/s (from {:.2} to {:.2}), {:.1} ns each",
        million(rates[rates.len() / 2]),
        million(rates[0]),
        million(rates[rates.len() - 1]),
        1e9 / rates[rates.len() / 2]
    );
}
