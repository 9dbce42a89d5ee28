//! Reads from remote storage, for the partitions of a Fetch whose records are no longer local.
//!
//! As many partitions as there is memory for, and as one response may hold, are read at the same
//! time. The others are left for the next request, as if the response had reached its maximum size.
//! Only a response that holds no memory waits for some: responses that each hold a part and wait for
//! the rest would wait for each other. After `remote.fetch.max.wait.ms`, unfinished reads are
//! cancelled, and the response has no records and no error for these partitions. If the client
//! disconnects, all reads are cancelled.
//!
//! Unlike a response with local records, a response with remote records takes memory. A budget
//! (`Budgets::remote_read_bytes`) limits concurrent reads, and no read starts while clients leave
//! too many response bytes unread.
//!
//! Kafka: `ReplicaManager.processRemoteFetches`, `DelayedRemoteFetch`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::Records;
use ottla_protocol::messages::fetch_response::AbortedTransaction;
use ottla_remote::{RemoteLogs, RemoteRecords, RemoteRequest};
use ottla_sync::task::JoinSet;
use ottla_types::ErrorCode;

use super::read::{ReadLimits, ReadOutcome, Wanted, error_answer};
use crate::Broker;
use ottla_partition::partition::Isolation;

pub(super) async fn read(
    broker: &Arc<Broker>,
    targets: &[Wanted],
    limits: ReadLimits,
    outcome: &mut ReadOutcome,
) {
    let requests = std::mem::take(&mut outcome.remote);
    let Some(remote_logs) = broker.remote_logs() else {
        for (index, _) in requests {
            fail(targets, index, ErrorCode::OffsetOutOfRange, outcome);
        }
        return;
    };
    let max_wait_ms = broker.config().remote_fetch_max_wait_ms.max(1) as u64;
    let max_wait = Duration::from_millis(max_wait_ms);
    let reading = async {
        broker.network.unsent_answers.wait_for_room().await;
        read_each(remote_logs, requests, targets, limits, outcome).await;
    };
    if ottla_sync::time::timeout(max_wait, reading).await.is_err() {
        remote_logs.on_fetch_expired();
    }
}

/// If this is dropped, the reads that have not ended are cancelled.
async fn read_each(
    remote_logs: &Arc<RemoteLogs>,
    requests: Vec<(usize, RemoteRequest)>,
    targets: &[Wanted],
    limits: ReadLimits,
    outcome: &mut ReadOutcome,
) {
    let mut reads = JoinSet::new();
    let mut reserved = 0;
    for (index, request) in requests {
        let Ok(partition) = &targets[index].target else {
            continue;
        };
        let bytes = remote_logs.read_bytes(request.max_bytes);
        let admitted = if reads.is_empty() {
            match remote_logs.admit(partition, request).await {
                Ok(admitted) => Some(admitted),
                Err(error) => {
                    fail(targets, index, error.error_code(), outcome);
                    None
                }
            }
        } else if reserved + bytes <= remote_logs.response_bytes() {
            remote_logs.admit_at_once(partition, request)
        } else {
            None
        };
        if let Some(admitted) = admitted {
            reserved += bytes;
            let remote_logs = Arc::clone(remote_logs);
            reads.spawn(async move { (index, remote_logs.read(admitted).await) });
        }
    }
    while let Some(read) = reads.join_next().await {
        match read {
            // The panic was reported where it happened.
            Err(_) => {}
            Ok((index, Ok(records))) => take(index, records, limits, outcome),
            Ok((index, Err(error))) => fail(targets, index, error.error_code(), outcome),
        }
    }
}

fn take(index: usize, read: RemoteRecords, limits: ReadLimits, outcome: &mut ReadOutcome) {
    let Some(answer) = outcome.answers.get_mut(index) else {
        return;
    };
    outcome.bytes += read.records.len() as u64;
    outcome.remote_memory.extend(read.memory);
    answer.records = Some(Records::Bytes(read.records));
    if limits.isolation == Isolation::LastStableOffset {
        let aborted = read.aborted.unwrap_or_default();
        let aborted = aborted.iter().map(|transaction| AbortedTransaction {
            producer_id: transaction.producer_id.0,
            first_offset: transaction.first_offset.0,
            ..Default::default()
        });
        answer.aborted_transactions = Some(aborted.collect());
    }
}

fn fail(targets: &[Wanted], index: usize, code: ErrorCode, outcome: &mut ReadOutcome) {
    if let Some(answer) = outcome.answers.get_mut(index) {
        *answer = error_answer(targets[index].requested.partition, code);
        answer.records = Some(Records::Bytes(Bytes::new()));
    }
}
