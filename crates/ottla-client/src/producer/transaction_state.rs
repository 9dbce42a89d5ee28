//! The state of a transactional producer: the permitted operations, and the partitions of its
//! transaction. Pure.

use std::collections::BTreeMap;
use std::time::Instant;

use ottla_types::ErrorCode;

use crate::error::ClientError;

#[derive(Clone, Debug, Default)]
pub(super) enum Phase {
    #[default]
    Uninitialized,
    Ready,
    InTransaction,
    Committing,
    Aborting,
    /// The transaction can only be aborted.
    Abortable(ClientError),
    /// The producer can only be closed.
    Fatal(ClientError),
}

pub(super) type TopicPartition = (String, i32);

/// The state of the producer.
#[derive(Default)]
pub(super) struct TransactionState {
    pub(super) phase: Phase,
    /// Whether the cluster's `transaction.version` was 2 or more when the transaction began.
    pub(super) is_v2: bool,
    /// Whether it contains partitions or groups, so that it must be ended.
    pub(super) has_started: bool,
    pub(super) added: BTreeMap<TopicPartition, ()>,
    pub(super) pending: BTreeMap<TopicPartition, ()>,
    pub(super) is_adding: bool,
    pub(super) add_after: Option<Instant>,
    /// Whether sequences are missing, so that the next transaction needs another epoch.
    pub(super) needs_new_epoch: bool,
}

impl TransactionState {
    /// Whether records can be sent now.
    pub(super) fn check_may_send(&self) -> Result<(), ClientError> {
        match &self.phase {
            Phase::InTransaction => Ok(()),
            Phase::Abortable(error) | Phase::Fatal(error) => Err(error.clone()),
            _ => Err(misuse("begin_transaction comes before send")),
        }
    }

    /// Whether batches of a partition can be sent. Notes partitions that must be added first.
    pub(super) fn may_leave(&mut self, topic: &str, partition: i32) -> bool {
        if !matches!(self.phase, Phase::InTransaction | Phase::Committing) {
            return false;
        }
        let key = (topic.to_owned(), partition);
        if self.added.contains_key(&key) {
            return true;
        }
        if self.is_v2 {
            self.added.insert(key, ());
            self.has_started = true;
            return true;
        }
        self.pending.insert(key, ());
        false
    }

    pub(super) fn take_pending(&mut self, now: Instant) -> Option<Vec<TopicPartition>> {
        let is_early = self.add_after.is_some_and(|after| after > now);
        if self.is_adding || self.pending.is_empty() || is_early {
            return None;
        }
        self.is_adding = true;
        Some(std::mem::take(&mut self.pending).into_keys().collect())
    }

    pub(super) fn on_added(
        &mut self,
        partitions: Vec<TopicPartition>,
        result: Result<(), ClientError>,
    ) {
        self.is_adding = false;
        match result {
            Ok(()) => {
                self.has_started = true;
                self.added.extend(partitions.into_iter().map(|it| (it, ())));
            }
            Err(error) => self.on_error(error),
        }
    }

    /// Some part of the transaction has failed.
    pub(super) fn on_error(&mut self, error: ClientError) {
        if matches!(self.phase, Phase::Fatal(_) | Phase::Aborting) && !is_fatal(&error) {
            return;
        }
        if matches!(self.phase, Phase::Fatal(_)) {
            return;
        }
        self.phase = match is_fatal(&error) {
            true => Phase::Fatal(error),
            false => Phase::Abortable(error),
        };
    }

    pub(super) fn begin(&mut self, is_v2: bool) -> Result<(), ClientError> {
        match &self.phase {
            Phase::Ready => {}
            Phase::Uninitialized => {
                return Err(misuse("init_transactions comes before begin_transaction"));
            }
            Phase::Abortable(error) | Phase::Fatal(error) => return Err(error.clone()),
            _ => return Err(misuse("the last transaction has not been ended")),
        }
        *self = TransactionState {
            phase: Phase::InTransaction,
            is_v2,
            needs_new_epoch: self.needs_new_epoch,
            ..TransactionState::default()
        };
        Ok(())
    }

    pub(super) fn begin_commit(&mut self) -> Result<(), ClientError> {
        self.check_may_send()?;
        self.phase = Phase::Committing;
        Ok(())
    }

    pub(super) fn begin_abort(&mut self) -> Result<(), ClientError> {
        match &self.phase {
            Phase::InTransaction | Phase::Abortable(_) | Phase::Committing => {
                self.phase = Phase::Aborting;
                Ok(())
            }
            Phase::Fatal(error) => Err(error.clone()),
            _ => Err(misuse("there is no transaction to abort")),
        }
    }
}

pub(super) fn misuse(text: &str) -> ClientError {
    ClientError::Config(text.to_owned())
}

/// Whether the producer cannot be used any more after an error.
pub(super) fn is_fatal(error: &ClientError) -> bool {
    matches!(
        error.code(),
        Some(
            ErrorCode::ProducerFenced
                | ErrorCode::TransactionCoordinatorFenced
                | ErrorCode::ClusterAuthorizationFailed
                | ErrorCode::TransactionalIdAuthorizationFailed
                | ErrorCode::UnsupportedVersion
                | ErrorCode::UnsupportedForMessageFormat
                | ErrorCode::InvalidProducerIdMapping
        )
    ) || matches!(error, ClientError::Unsupported { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(is_v2: bool) -> TransactionState {
        let mut state = TransactionState {
            phase: Phase::Ready,
            ..TransactionState::default()
        };
        state.begin(is_v2).unwrap();
        state
    }

    #[test]
    fn partitions_are_added_before_they_are_written() {
        let mut state = begun(false);
        assert!(!state.may_leave("t", 1));
        let partitions = state.take_pending(ottla_sync::time::now()).unwrap();
        assert_eq!(partitions, [("t".to_owned(), 1)]);
        assert!(!state.may_leave("t", 2));
        assert!(
            state.take_pending(ottla_sync::time::now()).is_none(),
            "one request at a time"
        );
        state.on_added(partitions, Ok(()));
        assert!(state.may_leave("t", 1) && !state.may_leave("t", 2));
        // In version 2, the first batch adds its partition implicitly.
        let mut state = begun(true);
        assert!(state.may_leave("t", 1) && state.has_started);
    }

    #[test]
    fn an_error_stops_sending_until_the_transaction_is_aborted() {
        let error = |code: ErrorCode| ClientError::broker("x", code.code(), None::<&str>);
        let mut state = begun(true);
        state.on_error(error(ErrorCode::InvalidTxnState));
        assert!(state.check_may_send().is_err() && state.begin_commit().is_err());
        assert!(!state.may_leave("t", 1));
        state.begin_abort().unwrap();
        let mut state = begun(true);
        state.on_error(error(ErrorCode::ProducerFenced));
        assert!(state.begin_abort().is_err(), "fenced for good");
    }

    #[test]
    fn calls_out_of_order_are_errors() {
        let mut state = TransactionState::default();
        assert!(state.begin(true).is_err() && state.check_may_send().is_err());
        let mut state = begun(true);
        assert!(state.begin(true).is_err());
        state.begin_commit().unwrap();
        assert!(state.check_may_send().is_err());
    }
}
