//! TxnOffsetCommit, and the end of transactions: offsets are pending until a marker commits or
//! aborts them. Source: `OffsetMetadataManager.commitTransactionalOffset`,
//! `validateTransactionalOffsetCommit`, `CoordinatorRuntime.completeTransaction`; KIP-98, KIP-447, KIP-1319.

use ottla_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Timestamp};

use super::coordinator::{Deferred, GroupCoordinator};
use super::member::owned;
use super::outcome::{Outcome, ReplyTo};
use crate::runtime::{TransactionEnd, TransactionalProducer, WriteKind};

impl GroupCoordinator {
    /// Commits offsets as part of the transaction of `producer`. The topics and partitions in
    /// `request` must exist, with names and IDs, and the transaction must have been verified with
    /// the transaction coordinator. `guard` is the log's guard of that verification, `None` if the
    /// transaction already has offsets here. `tells_stale_members`: whether the client understands
    /// `STALE_MEMBER_EPOCH` and `GROUP_ID_NOT_FOUND`.
    pub fn handle_txn_offset_commit(
        &mut self,
        to: ReplyTo<OffsetCommitResponse>,
        request: &OffsetCommitRequest,
        producer: TransactionalProducer,
        guard: Option<u64>,
        tells_stale_members: bool,
        now: Timestamp,
    ) -> Outcome {
        if let Err(error) = self.validate_commit(request, true, tells_stale_members) {
            return self.refuse_offset_commit(to, request, error);
        }
        let mut effects = self.effects();
        self.create_group(&owned(&request.group_id), effects.next_write(), now);
        let records = self.offset_records(request, None, now);
        let response = self.commit_response(request);
        if records.is_empty() {
            self.reply_when_committed(to, response, &mut effects);
            return self.finish(effects);
        }
        let reply = Deferred::Reply(to.with(response));
        self.apply_and_write_transactional(producer, guard, records, reply, now, &mut effects);
        self.finish(effects)
    }

    /// The transaction coordinator ends the transaction of `producer` in this partition. Its
    /// pending offsets become committed or are dropped. An administrator can also request it for
    /// any producer.
    pub fn handle_transaction_end(
        &mut self,
        to: ReplyTo<ErrorCode>,
        producer: TransactionalProducer,
        marker: TransactionEnd,
    ) -> Outcome {
        let mut effects = self.effects();
        if producer.id == ProducerId::NONE || producer.epoch == ProducerEpoch::NONE {
            // Kafka cannot write such a marker either: `MemoryRecords.withEndTransactionMarker`.
            effects.reply(to, ErrorCode::UnknownServerError);
            return self.finish(effects);
        }
        let write = effects.next_write();
        self.apply_transaction_end(write, producer.id.value(), marker.is_commit);
        effects.write_as(
            WriteKind::EndTransaction { producer, marker },
            Vec::new(),
            Deferred::Reply(to.with(ErrorCode::None)),
        );
        self.finish(effects)
    }
}
