//! When an append is acknowledged, and with what.

use ottla_types::{ErrorCode, Offset, Timestamp};

/// `acks` of a Produce request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequiredAcks {
    /// 0: the client does not wait. The append is still released, once it is in the leader's log.
    None,
    /// 1: once it is in the leader's log (and flushed there where `flush.messages` demands it).
    Leader,
    /// As `Leader`, and refused as `All` where fewer replicas are in sync than `min.insync.replicas`: for a writer of this
    /// broker that has to know where its records stand, and waits for the high watermark by itself.
    LeaderWithMinIsr,
    /// -1: once every in-sync replica has it, that is, once the high watermark has passed it.
    All,
}

impl RequiredAcks {
    /// The number on the wire, or `None` for one that Kafka refuses with `INVALID_REQUIRED_ACKS`.
    pub fn from_wire(acks: i16) -> Option<RequiredAcks> {
        match acks {
            0 => Some(RequiredAcks::None),
            1 => Some(RequiredAcks::Leader),
            -1 => Some(RequiredAcks::All),
            _ => None,
        }
    }
}

/// How an append ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckOutcome {
    /// It is in the log from `base_offset` on, as safely as its `acks` asked for.
    Appended { base_offset: Offset },
    /// An idempotent producer sent it before; this is where it went then. `log_append_time` is -1
    /// unless the topic stamps its records at append.
    Duplicate {
        base_offset: Offset,
        log_append_time: Timestamp,
    },
    /// It was not written: this replica does not lead the partition; or it was written, and leadership
    /// was lost before it was safe.
    NotLeader,
    /// It was not written: the writer expects an older leader epoch than the one in force.
    FencedLeaderEpoch,
    /// It was not written: the writer knows of a leader epoch that this replica has not heard of.
    UnknownLeaderEpoch,
    /// It was not written: fewer replicas are in sync than `min.insync.replicas`.
    NotEnoughReplicas,
    /// It was written, and the in-sync replicas fell below `min.insync.replicas` meanwhile.
    NotEnoughReplicasAfterAppend,
    /// It was written, and `timeout.ms` ran out before it was safe.
    RequestTimedOut,
    /// It was not written: the producer state of the log refuses it, with this code.
    RefusedForProducer(ErrorCode),
    /// It was not written, or may have been: the log directory refused the write or failed.
    StorageError,
}

impl AckOutcome {
    /// The code that Kafka answers with.
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
