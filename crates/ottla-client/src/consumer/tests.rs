use bytes::{Bytes, BytesMut};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{Offset, Timestamp};

use super::fetched::HeldFetch;
use super::metrics::RequestTally;
use super::*;
use crate::config::ClientConfig;

/// A consumer that has fetched `batches` compressed batches, each with one record of zeros.
fn consumer(batches: i64, record_bytes: usize, config: ConsumerConfig) -> Consumer {
    let client = Client::unconnected(ClientConfig::new("127.0.0.1:1").expect("an address"));
    let mut consumer = Consumer::new(client, config);
    let partition = ("t".to_owned(), 0);
    consumer.assign(std::slice::from_ref(&partition));
    let mut bytes = BytesMut::new();
    for offset in 0..batches {
        let mut builder = RecordBatchBuilder::new(Compression::Gzip { level: 6 });
        builder = builder.base_offset(Offset(offset));
        builder.append(Timestamp(1), None, Some(&vec![0; record_bytes]), &[]);
        bytes.extend_from_slice(&builder.build_in_place());
    }
    let bytes: Bytes = bytes.freeze();
    let tally = RequestTally::new(consumer.sensors.clone());
    let fetch = CompletedFetch::new("t".into(), 0, bytes, 0, Vec::new(), true);
    let held = HeldFetch {
        fetch: fetch.with_max_batch_bytes(consumer.config.max_batch_bytes),
        topic: "t".into(),
        tally,
    };
    let position = consumer.positions.get_mut(&partition).expect("assigned");
    position.next = Some(0);
    position.hold(held);
    consumer
}

#[tokio::test]
async fn a_poll_decompresses_at_most_fetch_max_bytes() {
    let config = ConsumerConfig {
        fetch_max_bytes: 250_000,
        ..ConsumerConfig::default()
    };
    let mut consumer = consumer(10, 100_000, config);
    let mut polled = Vec::new();
    loop {
        let batches = consumer.take_batches(500).expect("readable");
        if batches.is_empty() {
            break;
        }
        polled.push(batches.len());
    }
    assert_eq!(polled, [3, 3, 3, 1]);
}

#[tokio::test]
async fn a_batch_with_a_too_large_decompressed_size_is_not_read() {
    let config = ConsumerConfig {
        max_batch_bytes: 50_000,
        ..ConsumerConfig::default()
    };
    let mut consumer = consumer(2, 100_000, config);
    let partition = ("t".to_owned(), 0);
    assert_eq!(consumer.skip_unreadable_batch(&partition), None);
    assert!(matches!(
        consumer.take_batches(500),
        Err(ClientError::Records { .. })
    ));
    assert_eq!(consumer.position(&partition), Some(0));
    assert_eq!(consumer.skip_unreadable_batch(&partition), Some(0..1));
    assert_eq!(consumer.position(&partition), Some(1));
    assert_eq!(consumer.skip_unreadable_batch(&partition), None);
}
