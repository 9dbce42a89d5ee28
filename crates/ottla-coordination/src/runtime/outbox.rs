//! Appends the writes of a coordinator to the log and passes the results back.
//!
//! [`ottla_coordinator::CoordinatorRuntime`] decides which writes are batched and when: it hands
//! out no batch before the result of the previous one.

use std::sync::Arc;

use ottla_coordinator::{OutboundBatch, WriteId, WriteKind};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_sync::oneshot;
use ottla_types::ErrorCode;

use super::batch;
use super::shard::{Shard, ShardedCoordinator};
use crate::planted::{self, Bug};
use ottla_partition::partition::{Ack, OfTransaction, PendingAppend};
use ottla_sync::planted::has;

fn append_of<C: ShardedCoordinator>(
    shard: &Shard<C>,
    outbound: &OutboundBatch,
    host: &C::Host,
    ack: Ack,
) -> PendingAppend {
    PendingAppend {
        batch: batch::build(
            outbound.writes(),
            C::compression(host),
            host.surroundings.context.timestamp(),
        ),
        // The shard waits for the high watermark itself.
        required_acks: if C::REQUIRES_MIN_ISR && !planted::has(Bug::AppendUnderMinIsr) {
            RequiredAcks::LeaderWithMinIsr
        } else {
            RequiredAcks::Leader
        },
        expected_leader_epoch: Some(shard.leader_epoch()),
        of_transaction: match outbound.kind() {
            WriteKind::Plain => OfTransaction::No,
            WriteKind::Transactional { guard, .. } => OfTransaction::Verified(guard),
            WriteKind::EndTransaction { marker, .. } => {
                OfTransaction::Marker(marker.transaction_version)
            }
        },
        // The log always responds, and waiting requests time out on their own.
        deadline_ms: u64::MAX,
        ack,
    }
}

impl<C: ShardedCoordinator> Shard<C> {
    /// Appends pending batches, unless another thread is doing so, and executes pending commands.
    pub(super) fn run_outbox(self: &Arc<Self>, host: &Arc<C::Host>) {
        while let Some(outbound) = self.next_append(host) {
            let first = outbound.first();
            let (released, mut written) = oneshot::channel();
            let append = append_of(self, &outbound, host, Ack::Internal(released));
            self.partition.append(&host.surroundings.host, append);
            match written.try_recv() {
                Ok(outcome) => self.on_written(host, first, outcome),
                // Another thread holds the partition's run token, or the log must be flushed first.
                Err(_) => {
                    self.watch_deadlines();
                    let (shard, host) = (Arc::clone(self), Arc::clone(host));
                    ottla_sync::task::spawn(async move {
                        // A dropped append was not written: the partition is gone.
                        let outcome = written.await.unwrap_or(AckOutcome::NotLeader);
                        shard.on_written(&host, first, outcome);
                        shard.run_outbox(&host);
                    });
                    return;
                }
            }
        }
    }

    fn on_written(&self, host: &C::Host, first: WriteId, outcome: AckOutcome) {
        let written = match outcome {
            AckOutcome::Appended { base_offset } | AckOutcome::Duplicate { base_offset, .. } => {
                Ok(base_offset)
            }
            // This broker still leads the partition, or will soon, but not in the term of this shard.
            // Clients know no such error of a coordinator: to them it is one that has gone.
            AckOutcome::FencedLeaderEpoch | AckOutcome::UnknownLeaderEpoch => {
                Err(ErrorCode::NotLeaderOrFollower)
            }
            refused => Err(refused.error_code()),
        };
        let reader = self.partition.reader();
        let high_watermark = match has("a coordinator answers before replication") {
            true => reader.log_end_offset(),
            false => reader.high_watermark(),
        };
        #[cfg(feature = "planted-bugs")]
        if planted::has(match written {
            Ok(_) => Bug::AnswerForAppendsInTwoSteps,
            Err(_) => Bug::RefuseAppendsInTwoSteps,
        }) {
            let begun = self.step(host, |runtime, _| {
                runtime.begin_on_written(first, written, high_watermark)
            });
            if let Some(complete) = begun {
                self.step(host, complete);
            }
            return;
        }
        self.step(host, |runtime, at| {
            runtime.on_written(first, written, high_watermark, at)
        });
    }
}
