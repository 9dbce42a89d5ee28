//! The start of a follower whose next offset is only in the leader's remote storage: its log start
//! offset, leader epochs and producers.
//!
//! The leader answers a fetch with `OFFSET_MOVED_TO_TIERED_STORAGE`. The follower does not copy the
//! records that are remote. It asks the leader where the local log begins, finds the remote segment
//! before that, takes leader epochs and producers from it, and continues after it. Its log is
//! truncated only after all of them have been read.
//!
//! Kafka: `AbstractFetcherThread.handleOffsetsMovedToTieredStorage`, `TierStateMachine`. Kafka also
//! asks for the leader's end, for a metric.

use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use crate::leader_epochs::{LeaderEpochs, LeaderEpochsError};
use crate::metadata_cache::RemoteLogMetadataCache;
use crate::remote_segment::RemoteSegment;
use crate::task::StoreFailure;

/// Builds the state of one follower once. After a failure the follower fetches again, and begins
/// anew when the leader gives the same answer.
#[derive(Debug)]
pub struct AuxiliaryState {
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    FindingLeaderEnd,
    FindingLogStart {
        is_last_tiered: bool,
    },
    FindingPendingUpload {
        log_start_offset: Offset,
    },
    FindingLocalStart {
        log_start_offset: Offset,
        /// The leader does not know the earliest offset that is pending upload.
        is_pending_upload_unknown: bool,
    },
    FindingEpoch {
        log_start_offset: Offset,
        start: OffsetAndEpoch,
    },
    FetchingEpochs {
        log_start_offset: Offset,
        segment: RemoteSegment,
    },
    FetchingProducers {
        log_start_offset: Offset,
        segment: RemoteSegment,
        leader_epochs: LeaderEpochs,
    },
    Done,
}

/// The result of a ListOffsets request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetAndEpoch {
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

/// The special timestamps of ListOffsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListedOffset {
    /// -1
    Latest,
    /// -2: the start of the log, in either tier.
    Earliest,
    /// -4: the start of the local log (KIP-405).
    EarliestLocal,
    /// -6: the first offset that is not in remote storage (KIP-1023).
    EarliestPendingUpload,
}

impl ListedOffset {
    /// The timestamp in the request.
    pub const fn timestamp(self) -> i64 {
        match self {
            ListedOffset::Latest => -1,
            ListedOffset::Earliest => -2,
            ListedOffset::EarliestLocal => -4,
            ListedOffset::EarliestPendingUpload => -6,
        }
    }
}

/// The index files that a follower needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchedIndex {
    LeaderEpoch,
    ProducerSnapshot,
}

/// The next request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuxiliaryEffect {
    /// Send the leader a ListOffsets request.
    ListOffsets(ListedOffset),
    /// Ask the leader for the end of this epoch (OffsetForLeaderEpoch).
    FindEpochEnd { leader_epoch: LeaderEpoch },
    /// Fetch an index of the segment from the store.
    FetchIndex {
        segment: RemoteSegment,
        index: FetchedIndex,
    },
    /// Truncate the log fully, start at `next_offset` with this state, and fetch from there.
    Restart(Box<Restart>),
    /// Fetch again after a while.
    Failed(AuxiliaryFailure),
}

/// The state of a follower's log before its first record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restart {
    /// The local log starts and ends here.
    pub next_offset: Offset,
    /// The start of the leader's log, in either tier.
    pub log_start_offset: Offset,
    pub leader_epochs: LeaderEpochs,
    /// The content of the producer snapshot at `next_offset`; none if nothing is before the log.
    pub producer_snapshot: Option<Vec<u8>>,
}

/// The answer to an effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuxiliaryEvent {
    /// To `ListOffsets`; offset -1 for an unknown one.
    OffsetListed(Result<OffsetAndEpoch, ErrorCode>),
    /// To `FindEpochEnd`: the largest epoch up to the requested one, and its end (exclusive).
    EpochEndFound(Result<OffsetAndEpoch, ErrorCode>),
    /// To `FetchIndex`.
    IndexFetched(Result<Vec<u8>, StoreFailure>),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AuxiliaryFailure {
    /// `FENCED_LEADER_EPOCH` stops fetching until the metadata names a newer epoch.
    #[error("the leader answers {0:?}")]
    Leader(ErrorCode),
    #[error(
        "segments are in remote storage, but the leader does not know which offset is not there yet"
    )]
    NoPendingUpload,
    #[error("the leader does not know an offset of its log")]
    NoOffset,
    #[error("the metadata of remote segments is not read to its end yet")]
    NotReady,
    #[error("no remote segment has offset {offset} of leader epoch {leader_epoch}")]
    NoSegment {
        leader_epoch: LeaderEpoch,
        offset: Offset,
    },
    #[error("the store failed")]
    Store(StoreFailure),
    #[error(transparent)]
    LeaderEpochs(#[from] LeaderEpochsError),
}

impl AuxiliaryState {
    /// Begins for a follower whose log ends at `log_end_offset`. `is_last_tiered_enabled` is
    /// `follower.fetch.last.tiered.offset.enable`, for a topic that is tiered and not compacted:
    /// then an empty follower starts after the last uploaded segment, and not with the leader's
    /// local log.
    pub fn begin(
        log_end_offset: Offset,
        is_last_tiered_enabled: bool,
    ) -> (AuxiliaryState, AuxiliaryEffect) {
        let (phase, listed) = if is_last_tiered_enabled && log_end_offset == Offset::ZERO {
            (Phase::FindingLeaderEnd, ListedOffset::Latest)
        } else {
            let is_last_tiered = false;
            (
                Phase::FindingLogStart { is_last_tiered },
                ListedOffset::Earliest,
            )
        };
        (
            AuxiliaryState { phase },
            AuxiliaryEffect::ListOffsets(listed),
        )
    }

    /// Processes an answer and returns what comes next. `cache` is that of the partition, once its
    /// metadata was read to the end.
    pub fn step(
        &mut self,
        event: AuxiliaryEvent,
        cache: Option<&RemoteLogMetadataCache>,
    ) -> AuxiliaryEffect {
        self.proceed(event, cache)
            .unwrap_or_else(AuxiliaryEffect::Failed)
    }

    fn proceed(
        &mut self,
        event: AuxiliaryEvent,
        cache: Option<&RemoteLogMetadataCache>,
    ) -> Result<AuxiliaryEffect, AuxiliaryFailure> {
        match (std::mem::replace(&mut self.phase, Phase::Done), event) {
            (phase, AuxiliaryEvent::OffsetListed(listed)) => {
                self.on_listed(phase, listed.map_err(AuxiliaryFailure::Leader)?, cache)
            }
            (
                Phase::FindingEpoch {
                    log_start_offset,
                    start,
                },
                AuxiliaryEvent::EpochEndFound(end),
            ) => {
                let end = end.map_err(AuxiliaryFailure::Leader)?;
                // The leader names the epoch that it has, so that gaps between epochs do not
                // matter.
                let leader_epoch = if end.offset >= start.offset {
                    end.leader_epoch
                } else {
                    start.leader_epoch
                };
                self.find_segment(log_start_offset, start.offset, leader_epoch, cache)
            }
            (
                Phase::FetchingEpochs {
                    log_start_offset,
                    segment,
                },
                AuxiliaryEvent::IndexFetched(index),
            ) => {
                let text = index.map_err(AuxiliaryFailure::Store)?;
                self.phase = Phase::FetchingProducers {
                    log_start_offset,
                    segment: segment.clone(),
                    leader_epochs: LeaderEpochs::from_checkpoint(&text)?,
                };
                Ok(AuxiliaryEffect::FetchIndex {
                    segment,
                    index: FetchedIndex::ProducerSnapshot,
                })
            }
            (
                Phase::FetchingProducers {
                    log_start_offset,
                    segment,
                    leader_epochs,
                },
                AuxiliaryEvent::IndexFetched(index),
            ) => Ok(AuxiliaryEffect::Restart(Box::new(Restart {
                next_offset: segment.next_offset(),
                log_start_offset,
                leader_epochs,
                producer_snapshot: Some(index.map_err(AuxiliaryFailure::Store)?),
            }))),
            (phase, event) => panic!("{event:?} is no answer to a follower that is {phase:?}"),
        }
    }

    fn on_listed(
        &mut self,
        phase: Phase,
        listed: OffsetAndEpoch,
        cache: Option<&RemoteLogMetadataCache>,
    ) -> Result<AuxiliaryEffect, AuxiliaryFailure> {
        let is_unknown = listed.offset < Offset::ZERO;
        // Elsewhere, the log would begin at offset -1.
        if is_unknown && !matches!(phase, Phase::FindingPendingUpload { .. }) {
            return Err(AuxiliaryFailure::NoOffset);
        }
        let (phase, next) = match phase {
            Phase::FindingLeaderEnd => {
                let is_last_tiered = listed.offset != Offset::ZERO;
                (
                    Phase::FindingLogStart { is_last_tiered },
                    ListedOffset::Earliest,
                )
            }
            Phase::FindingLogStart { is_last_tiered } => {
                let log_start_offset = listed.offset;
                if is_last_tiered {
                    let phase = Phase::FindingPendingUpload { log_start_offset };
                    (phase, ListedOffset::EarliestPendingUpload)
                } else {
                    let phase = Phase::FindingLocalStart {
                        log_start_offset,
                        is_pending_upload_unknown: false,
                    };
                    (phase, ListedOffset::EarliestLocal)
                }
            }
            Phase::FindingPendingUpload { log_start_offset } if is_unknown => {
                let phase = Phase::FindingLocalStart {
                    log_start_offset,
                    is_pending_upload_unknown: true,
                };
                (phase, ListedOffset::EarliestLocal)
            }
            Phase::FindingPendingUpload { log_start_offset } => {
                return self.find_epoch(log_start_offset, listed, cache);
            }
            Phase::FindingLocalStart {
                log_start_offset,
                is_pending_upload_unknown,
            } => {
                if is_pending_upload_unknown && listed.offset != log_start_offset {
                    return Err(AuxiliaryFailure::NoPendingUpload);
                }
                return self.find_epoch(log_start_offset, listed, cache);
            }
            phase => panic!("{listed:?} is no answer to a follower that is {phase:?}"),
        };
        self.phase = phase;
        Ok(AuxiliaryEffect::ListOffsets(next))
    }

    /// The epoch of the last record before `start` is its own epoch or an older one.
    fn find_epoch(
        &mut self,
        log_start_offset: Offset,
        start: OffsetAndEpoch,
        cache: Option<&RemoteLogMetadataCache>,
    ) -> Result<AuxiliaryEffect, AuxiliaryFailure> {
        // There is no record before it. Kafka would look for a segment, and fail.
        if start.offset <= log_start_offset {
            return Ok(AuxiliaryEffect::Restart(Box::new(Restart {
                next_offset: start.offset,
                log_start_offset,
                leader_epochs: LeaderEpochs::default(),
                producer_snapshot: None,
            })));
        }
        if start.leader_epoch.0 <= 0 {
            return self.find_segment(log_start_offset, start.offset, start.leader_epoch, cache);
        }
        self.phase = Phase::FindingEpoch {
            log_start_offset,
            start,
        };
        Ok(AuxiliaryEffect::FindEpochEnd {
            leader_epoch: LeaderEpoch(start.leader_epoch.0 - 1),
        })
    }

    fn find_segment(
        &mut self,
        log_start_offset: Offset,
        start_offset: Offset,
        leader_epoch: LeaderEpoch,
        cache: Option<&RemoteLogMetadataCache>,
    ) -> Result<AuxiliaryEffect, AuxiliaryFailure> {
        let cache = cache.ok_or(AuxiliaryFailure::NotReady)?;
        let offset = Offset(start_offset.0 - 1);
        let segment = cache.segment(leader_epoch, offset);
        let segment = segment.ok_or(AuxiliaryFailure::NoSegment {
            leader_epoch,
            offset,
        })?;
        self.phase = Phase::FetchingEpochs {
            log_start_offset,
            segment: segment.clone(),
        };
        Ok(AuxiliaryEffect::FetchIndex {
            segment,
            index: FetchedIndex::LeaderEpoch,
        })
    }
}

#[cfg(test)]
mod tests;
