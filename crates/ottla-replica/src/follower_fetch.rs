//! A follower's fetch from the leader's point of view, and its possible errors.
//!
//! Kafka: `Partition.fetchRecords`, `Partition.readRecords`, `Partition.followerReplicaOrThrow`.

use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::EpochEnd;

/// One partition of a replica's Fetch request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowerFetch {
    pub replica_id: BrokerId,
    /// The broker epoch of the fetching process; `BrokerEpoch::UNKNOWN` in older request versions.
    pub broker_epoch: BrokerEpoch,
    /// The leader epoch that the follower knows; `None` in older versions.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The follower has all records before this offset.
    pub fetch_offset: Offset,
    /// The epoch of the follower's last record, for KIP-595's divergence check.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// `LeaderEpochs::end_offset_for(last_fetched_epoch)` of this log, determined after earlier
    /// batches were processed.
    pub end_of_last_fetched_epoch: Option<EpochEnd>,
    /// The follower's log start offset.
    pub log_start_offset: Offset,
    /// The log start offset of this replica.
    pub leader_log_start_offset: Offset,
    /// The time of the request.
    pub now_ms: u64,
}

/// Why a follower gets no records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchRefusal {
    Error(ErrorCode),
    /// Not an error: the response contains the point of divergence, and the follower truncates.
    Diverging(EpochEnd),
}

impl FollowerFetch {
    /// Checks that the follower's log can be continued from this log.
    pub(crate) fn check_offset(&self, log_end_offset: Offset) -> Result<(), FetchRefusal> {
        const OUT_OF_RANGE: FetchRefusal = FetchRefusal::Error(ErrorCode::OffsetOutOfRange);
        if let Some(last_fetched_epoch) = self.last_fetched_epoch {
            let end = self.end_of_last_fetched_epoch.ok_or(OUT_OF_RANGE)?;
            // Checked before divergence, because deleted records cannot be compared.
            if self.fetch_offset < self.leader_log_start_offset {
                return Err(OUT_OF_RANGE);
            }
            if end.leader_epoch < last_fetched_epoch || end.end_offset < self.fetch_offset {
                return Err(FetchRefusal::Diverging(end));
            }
        }
        if self.fetch_offset < self.leader_log_start_offset || self.fetch_offset > log_end_offset {
            return Err(OUT_OF_RANGE);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leader's log from 10 to 30. Epoch 3 ended at 20, and epoch 5 is current.
    #[test]
    fn an_offset_is_checked_against_the_epochs_first() {
        let end = |leader_epoch, end_offset| {
            Some(EpochEnd {
                leader_epoch: LeaderEpoch(leader_epoch),
                end_offset: Offset(end_offset),
            })
        };
        let out_of_range = Err(FetchRefusal::Error(ErrorCode::OffsetOutOfRange));
        let diverging = |epoch, offset| Err(FetchRefusal::Diverging(end(epoch, offset).unwrap()));
        type Row = (i64, Option<i32>, Option<EpochEnd>, Result<(), FetchRefusal>);
        let table: [Row; 11] = [
            (30, Some(5), end(5, 30), Ok(())),
            (20, Some(3), end(3, 20), Ok(())),
            (15, Some(3), end(3, 20), Ok(())),
            (21, Some(3), end(3, 20), diverging(3, 20)),
            (20, Some(4), end(3, 20), diverging(3, 20)),
            (31, Some(5), end(5, 30), diverging(5, 30)),
            (9, Some(3), end(3, 20), out_of_range),
            (20, Some(6), None, out_of_range),
            (30, None, None, Ok(())),
            (31, None, None, out_of_range),
            (9, None, None, out_of_range),
        ];
        for (fetch_offset, last_fetched_epoch, end_of_last_fetched_epoch, expected) in table {
            let fetch = FollowerFetch {
                replica_id: BrokerId(2),
                broker_epoch: BrokerEpoch(1),
                leader_epoch: Some(LeaderEpoch(5)),
                fetch_offset: Offset(fetch_offset),
                last_fetched_epoch: last_fetched_epoch.map(LeaderEpoch),
                end_of_last_fetched_epoch,
                log_start_offset: Offset(0),
                leader_log_start_offset: Offset(10),
                now_ms: 0,
            };
            assert_eq!(fetch.check_offset(Offset(30)), expected, "{fetch:?}");
        }
    }
}
