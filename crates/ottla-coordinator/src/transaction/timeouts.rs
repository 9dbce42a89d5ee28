//! Timeouts: transactions that exceed their timeout are aborted, and unused ids are removed.
//! Source: `TransactionCoordinator.abortTimedOutTransactions`,
//! `TransactionStateManager.removeExpiredTransactionalIds`.

use bytestring::ByteString;
use ottla_types::Timestamp;

use super::coordinator::{AwaitingProducerId, Effects, EndAnswer, TransactionCoordinator};
use super::outcome::TimerKey;

/// Splits tombstones over several writes, so that one tick after a long stop does not produce a
/// batch that is too large for the log.
const MAX_TOMBSTONES_PER_WRITE: usize = 1000;

impl TransactionCoordinator {
    pub(super) fn schedule_aborts(&self, effects: &mut Effects) {
        let interval_ms = self
            .config
            .transaction_abort_timed_out_transaction_cleanup_interval_ms;
        effects.set_timer(
            TimerKey::AbortTimedOut,
            u64::try_from(interval_ms).unwrap_or(0),
        );
    }

    pub(super) fn schedule_expiration(&self, effects: &mut Effects) {
        let interval_ms = self
            .config
            .transaction_remove_expired_transaction_cleanup_interval_ms;
        effects.set_timer(
            TimerKey::RemoveExpired,
            u64::try_from(interval_ms).unwrap_or(0),
        );
    }

    /// One tick of `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
    pub(super) fn abort_all_timed_out(&mut self, now: Timestamp, effects: &mut Effects) {
        let timed_out = self
            .transactions
            .values()
            .filter(|it| !it.has_pending() && it.transaction.has_timed_out(now.value()));
        let mut timed_out: Vec<_> = timed_out.map(|it| it.transactional_id.clone()).collect();
        timed_out.sort();
        for transactional_id in timed_out {
            self.abort_timed_out(transactional_id, now, effects);
        }
        self.schedule_aborts(effects);
    }

    pub(super) fn abort_timed_out(
        &mut self,
        transactional_id: ByteString,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let metadata = self.transactions.get(&transactional_id);
        let is_due = metadata
            .is_some_and(|it| !it.has_pending() && it.transaction.has_timed_out(now.value()));
        if is_due {
            let id = transactional_id.clone();
            let again = || AwaitingProducerId::Abort(id);
            self.fence_and_abort(transactional_id, EndAnswer::NoClient, again, now, effects);
        }
    }

    /// One tick of `transaction.remove.expired.transaction.cleanup.interval.ms`.
    pub(super) fn remove_expired(&mut self, now: Timestamp, effects: &mut Effects) {
        let expiration_ms = i64::from(self.config.transactional_id_expiration_ms);
        let oldest_kept = now.value().saturating_sub(expiration_ms);
        let mut expired = Vec::new();
        for metadata in self.transactions.values_mut() {
            let current = &metadata.transaction;
            let is_expired =
                current.state.may_expire() && current.last_update_timestamp_ms <= oldest_kept;
            if is_expired && metadata.prepare_dead() {
                expired.push(metadata.transactional_id.clone());
            }
        }
        expired.sort();
        while !expired.is_empty() {
            let rest = expired.split_off(expired.len().min(MAX_TOMBSTONES_PER_WRITE));
            self.write_tombstones(expired, effects);
            expired = rest;
        }
        self.schedule_expiration(effects);
    }
}
