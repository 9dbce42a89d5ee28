//! Where a follower truncates a log that diverges from its leader's (KIP-101, KIP-279, KIP-595).
//!
//! The leader names an epoch and its end offset in its log; this log knows the end of the same
//! epoch, or of the largest before it. Records after the smaller of the two are not the leader's.
//!
//! Kafka: `AbstractFetcherThread.getOffsetTruncationState`.

use ottla_types::{LeaderEpoch, Offset};

use crate::EpochEnd;

/// The offset to truncate to. `local` is this log's end of the leader's epoch. `initial_offset` is
/// used if the leader does not know the requested epoch.
///
/// The logs may still differ before that offset: if the leader's epoch is unknown here, the leader
/// must be asked again with the epoch that is then the latest. The next fetch does that.
pub(crate) fn truncation_offset(
    leader: EpochEnd,
    local: Option<EpochEnd>,
    initial_offset: Offset,
    log_end_offset: Offset,
) -> Offset {
    let to = if leader.end_offset == Offset::UNKNOWN {
        initial_offset
    } else if leader.leader_epoch == LeaderEpoch::UNKNOWN {
        leader.end_offset
    } else {
        match local {
            // This log starts after that epoch.
            None => leader.end_offset,
            Some(local) if local.leader_epoch == leader.leader_epoch => {
                local.end_offset.min(leader.end_offset)
            }
            // The epoch is unknown here. Records after the epoch before it are not the leader's.
            Some(local) => local.end_offset,
        }
    };
    to.min(log_end_offset).max(Offset::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_truncated_where_it_diverges_from_the_leader() {
        let end = |leader_epoch, end_offset| EpochEnd {
            leader_epoch: LeaderEpoch(leader_epoch),
            end_offset: Offset(end_offset),
        };
        type Row = (&'static str, EpochEnd, Option<EpochEnd>, i64);
        let table: [Row; 9] = [
            (
                "the leader's epoch is shorter",
                end(3, 20),
                Some(end(3, 25)),
                20,
            ),
            (
                "the epoch here is shorter",
                end(3, 25),
                Some(end(3, 20)),
                20,
            ),
            ("both end after the log", end(3, 45), Some(end(3, 40)), 30),
            (
                "the epoch is not known here",
                end(3, 20),
                Some(end(2, 15)),
                15,
            ),
            ("nothing before it either", end(3, 20), None, 20),
            ("the same, after the log", end(3, 45), None, 30),
            ("the leader knows nothing", end(-1, -1), None, 10),
            (
                "the leader names no epoch",
                end(-1, 20),
                Some(end(3, 15)),
                20,
            ),
            ("nonsense", end(3, -7), Some(end(3, 15)), 0),
        ];
        for (what, leader, local, to) in table {
            let found = truncation_offset(leader, local, Offset(10), Offset(30));
            assert_eq!(found, Offset(to), "{what}");
        }
    }
}
