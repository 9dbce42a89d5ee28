//! Measures the bandwidth to a cluster without writing: records for a topic that does not exist are
//! received completely and then rejected. One connection cannot produce faster than this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use ottla_client::Client;
use ottla_protocol::Records;
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{Timestamp, Uuid};

/// Value size of a request: large, so that the round trip hardly counts, and far below the brokers'
/// limit.
const VALUE_BYTES: usize = 512 << 10;
/// Requests in flight.
const IN_FLIGHT: usize = 8;
const LENGTH: Duration = Duration::from_millis(700);
/// The first requests open the TCP window.
const WARM_UP: Duration = Duration::from_millis(200);

/// MB (2^20 bytes) per second to one broker over one connection.
pub async fn measure(client: &Client) -> Result<f64> {
    let connection = client.any_node().await?;
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.append(Timestamp(0), None, Some(&vec![b'x'; VALUE_BYTES]), &[]);
    let request = Arc::new(ProduceRequest {
        acks: 1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: "ottla-bench-nowhere".into(),
            // The ID of no topic, because topic IDs are random.
            topic_id: Uuid::from_random([0x5a; 16]).unwrap_or(Uuid::ZERO),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Records::Bytes(builder.build().to_bytes())),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    });
    let (began, received) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let (connection, request) = (connection.clone(), request.clone());
        let received = received.clone();
        senders.spawn(async move {
            while began.elapsed() < WARM_UP + LENGTH {
                connection.send(&*request).await?;
                if began.elapsed() > WARM_UP {
                    received.fetch_add(VALUE_BYTES as u64, Relaxed);
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = senders.join_next().await {
        ended??;
    }
    let seconds = (began.elapsed() - WARM_UP).as_secs_f64();
    Ok(received.load(Relaxed) as f64 / 1_048_576.0 / seconds)
}
