//! When an append is acknowledged, and the result.

use ottla_types::{ErrorCode, Offset, Timestamp};

/// `acks` of a Produce request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequiredAcks {
    /// 0: the client does not wait. The acknowledgement is still released once the append is in the
    /// leader's log.
    None,
    /// 1: released once it is in the leader's log, and flushed if `flush.messages` requires it.
    Leader,
    /// As `Leader`, but refused like `All` if the ISR is below `min.insync.replicas`: for a writer
    /// of this broker that needs the offset early and waits for the high watermark itself.
    LeaderWithMinIsr,
    /// -1: released once every in-sync replica has it, that is, once the high watermark has passed
    /// it.
    All,
}

impl RequiredAcks {
    /// The value on the wire, or `None` for a value that Kafka refuses with
    /// `INVALID_REQUIRED_ACKS`.
    pub fn from_wire(acks: i16) -> Option<RequiredAcks> {
        match acks {
            0 => Some(RequiredAcks::None),
            1 => Some(RequiredAcks::Leader),
            -1 => Some(RequiredAcks::All),
            _ => None,
        }
    }
}

/// The result of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckOutcome {
    /// In the log from `base_offset` on, as durable as `acks` requires.
    Appended { base_offset: Offset },
    /// A retry of an idempotent producer; these are the offset and time of the first append.
    /// `log_append_time` is -1 unless the topic uses `LogAppendTime`.
    Duplicate {
        base_offset: Offset,
        log_append_time: Timestamp,
    },
    /// Not written, because this replica does not lead the partition; or written, and leadership
    /// was lost before it was acknowledged.
    NotLeader,
    /// Not written: the writer expects an older leader epoch.
    FencedLeaderEpoch,
    /// Not written: the writer knows a newer leader epoch than this replica.
    UnknownLeaderEpoch,
    /// Not written: the ISR is below `min.insync.replicas`.
    NotEnoughReplicas,
    /// Written, but the ISR fell below `min.insync.replicas` before the records were committed.
    NotEnoughReplicasAfterAppend,
    /// Written, but `timeout.ms` passed before it was acknowledged.
    RequestTimedOut,
    /// Not written: the producer state refuses it with this code.
    RefusedForProducer(ErrorCode),
    /// Unknown whether it was written: the log directory refused the write or failed.
    StorageError,
}

impl AckOutcome {
    /// The error code of Kafka's response.
    pub fn error_code(self) -> ErrorCode {
        match self {
            AckOutcome::Appended { .. } | AckOutcome::Duplicate { .. } => ErrorCode::None,
            AckOutcome::NotLeader => ErrorCode::NotLeaderOrFollower,
            AckOutcome::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
            AckOutcome::UnknownLeaderEpoch => ErrorCode::UnknownLeaderEpoch,
            AckOutcome::NotEnoughReplicas => ErrorCode::NotEnoughReplicas,
            AckOutcome::NotEnoughReplicasAfterAppend => ErrorCode::NotEnoughReplicasAfterAppend,
            AckOutcome::RequestTimedOut => ErrorCode::RequestTimedOut,
            AckOutcome::RefusedForProducer(code) => code,
            AckOutcome::StorageError => ErrorCode::KafkaStorageError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_acks_exist() {
        assert_eq!(RequiredAcks::from_wire(-1), Some(RequiredAcks::All));
        assert_eq!(RequiredAcks::from_wire(0), Some(RequiredAcks::None));
        assert_eq!(RequiredAcks::from_wire(1), Some(RequiredAcks::Leader));
        assert_eq!(RequiredAcks::from_wire(2), None);
        assert_eq!(RequiredAcks::from_wire(-2), None);
    }

    #[test]
    fn outcomes_have_kafkas_codes() {
        use ErrorCode as E;
        let table = [
            (
                AckOutcome::Appended {
                    base_offset: Offset(3),
                },
                E::None,
            ),
            (
                AckOutcome::Duplicate {
                    base_offset: Offset(3),
                    log_append_time: Timestamp::NONE,
                },
                E::None,
            ),
            (AckOutcome::NotLeader, E::NotLeaderOrFollower),
            (AckOutcome::FencedLeaderEpoch, E::FencedLeaderEpoch),
            (AckOutcome::UnknownLeaderEpoch, E::UnknownLeaderEpoch),
            (AckOutcome::NotEnoughReplicas, E::NotEnoughReplicas),
            (
                AckOutcome::NotEnoughReplicasAfterAppend,
                E::NotEnoughReplicasAfterAppend,
            ),
            (AckOutcome::RequestTimedOut, E::RequestTimedOut),
            (
                AckOutcome::RefusedForProducer(E::OutOfOrderSequenceNumber),
                E::OutOfOrderSequenceNumber,
            ),
            (AckOutcome::StorageError, E::KafkaStorageError),
        ];
        for (outcome, code) in table {
            assert_eq!(outcome.error_code(), code, "{outcome:?}");
        }
    }
}
