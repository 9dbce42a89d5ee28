//! The originals of letters that only remote storage has, read by Fetch requests of this broker to
//! itself, because remote storage is not reached from here.
//!
//! Where that fails, the letters have only headers, as in `originals.rs`.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use ottla_coordinator::share_partition::DeadLetters;
use ottla_net::BrokerPeers;
use ottla_partition::partition::Partition;
use ottla_protocol::Records;
use ottla_protocol::messages::FetchRequest;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_records::RecordBatch;
use ottla_types::{ErrorCode, Offset};

use super::originals::{Originals, READ_BYTES};
use super::size_limits::SizeLimits;
use crate::surroundings::Surroundings;

/// How long a Fetch waits for remote storage, if `remote.fetch.max.wait.ms` is less.
const WAIT_MS: i32 = 500;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(35);

/// Whether only remote storage has the original of the first letter.
pub(super) fn has_first(partition: &Partition, pending: &VecDeque<DeadLetters>) -> bool {
    let first = pending.front();
    first.is_some_and(|first| partition.reader().is_only_remote(first.first_offset))
}

/// Reads the originals of letters, in their order, up to the start of the local log, or until there
/// are `batch_bytes` of them. The next batch goes on after that.
pub(super) async fn read(
    surroundings: &Surroundings,
    peers: &BrokerPeers,
    partition: &Partition,
    pending: &VecDeque<DeadLetters>,
    limits: SizeLimits,
) -> Originals {
    let local_start = partition.reader().local_log_start_offset();
    let mut originals = Originals {
        letters: 0,
        ..Originals::none()
    };
    for range in pending {
        if range.first_offset >= local_start {
            break;
        }
        let last = Offset(range.last_offset.0.min(local_start.0 - 1));
        let mut next = range.first_offset;
        while next <= last {
            let Some(bytes) = fetch(surroundings, peers, partition, next).await else {
                break;
            };
            let before = next;
            for batch in RecordBatch::read_all(bytes) {
                // The last batch may be cut off; the next read starts with it.
                let Ok(batch) = batch else {
                    break;
                };
                let taken = originals.take_from(&batch, next, last, limits);
                if let ControlFlow::Break(offset) = taken {
                    originals.letters += offset.0 - range.first_offset.0;
                    return originals;
                }
                next = next.max(batch.header.next_offset());
            }
            if next == before {
                break;
            }
        }
        originals.letters += last.0 - range.first_offset.0 + 1;
        if last < range.last_offset {
            break;
        }
    }
    match originals.letters {
        // The log has changed since it was looked at.
        0 => Originals::none(),
        _ => originals,
    }
}

/// The batches from an offset on; `None` if they cannot be had.
async fn fetch(
    surroundings: &Surroundings,
    peers: &BrokerPeers,
    partition: &Partition,
    offset: Offset,
) -> Option<Bytes> {
    let context = &surroundings.context;
    let topic_partition = &partition.topic_partition;
    let most_bytes = i32::try_from(READ_BYTES).unwrap_or(i32::MAX);
    let request = FetchRequest {
        max_wait_ms: WAIT_MS,
        min_bytes: 1,
        max_bytes: most_bytes,
        topics: vec![FetchTopic {
            topic: topic_partition.topic.clone(),
            topic_id: partition.topic_id,
            partitions: vec![FetchPartition {
                partition: topic_partition.partition.0,
                fetch_offset: offset.0,
                partition_max_bytes: most_bytes,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let connection = peers.connection(context, context.broker_id(), REQUEST_TIMEOUT);
    let fetched = async { connection.await?.send(&request).await };
    let reason = match fetched.await {
        Ok(response) => {
            let topics = response.responses.into_iter();
            let fetched = topics.flat_map(|topic| topic.partitions).next()?;
            match (ErrorCode::from_code(fetched.error_code), fetched.records) {
                (ErrorCode::None, Some(Records::Bytes(bytes))) => return Some(bytes),
                (code, _) => code.to_string(),
            }
        }
        Err(error) => error.to_string(),
    };
    tracing::debug!(%topic_partition, "dead letters from offset {offset} on are written without their originals: {reason}");
    None
}
