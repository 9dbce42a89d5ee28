//! Share partitions, in scripted and in random tests.

mod acknowledging;
mod acquiring;
mod archiving;
mod led;
mod random;
mod recovering;

use std::sync::Arc;

use ottla_types::{LeaderEpoch, Offset, ProducerId};

use super::{
    AbortedTransaction, AcknowledgeError, AcknowledgeType, AcknowledgementBatch, AcquireMode,
    AcquireRequest, FetchedBatch, MemberId, PersistedBatch, PersistedState, RecordState,
    SharePartition, SharePartitionSettings, StateWrite,
};

const LOCK_MS: u64 = 30_000;

/// A share partition with a clock and its last write.
struct Story {
    partition: SharePartition,
    now_ms: u64,
    mode: AcquireMode,
    batch_size: i32,
    max_records: i32,
    aborted: Vec<AbortedTransaction>,
}

/// First offset, last offset, delivery count.
type Acquired = (i64, i64, i16);

impl Story {
    fn new() -> Self {
        Self::restored(0, &[])
    }

    fn with(settings: SharePartitionSettings) -> Self {
        let mut story = Self::new();
        story.partition.configure(settings);
        story
    }

    /// Batches as first offset, last offset, state and delivery count.
    fn restored(start_offset: i64, batches: &[(i64, i64, RecordState, i16)]) -> Self {
        let persisted = PersistedState {
            state_epoch: 3,
            start_offset: Offset(start_offset),
            batches: batches.iter().map(|batch| persisted(*batch)).collect(),
        };
        let settings = SharePartitionSettings::default();
        let partition = SharePartition::restore(settings, LeaderEpoch(7), &persisted);
        Story {
            partition: partition.expect("the state is in order"),
            now_ms: 1_000,
            mode: AcquireMode::BatchOptimized,
            batch_size: 500,
            max_records: 500,
            aborted: Vec::new(),
        }
    }

    /// Reads batches of the log from the partition's fetch offset, and acquires as many records as
    /// possible.
    fn acquire(&mut self, member: &str, log: &[(i64, i64)]) -> Vec<Acquired> {
        let fetch_offset = self.partition.next_fetch_offset();
        self.acquire_at(member, fetch_offset.0, log)
    }

    fn acquire_at(&mut self, member: &str, fetch_offset: i64, log: &[(i64, i64)]) -> Vec<Acquired> {
        let member: MemberId = Arc::from(member);
        let batches: Vec<FetchedBatch> = log.iter().map(|batch| fetched(*batch)).collect();
        let acquired = self.partition.acquire(AcquireRequest {
            member: &member,
            mode: self.mode,
            batch_size: self.batch_size,
            max_records: self.max_records,
            fetch_offset: Offset(fetch_offset),
            batches: &batches,
            aborted_transactions: &self.aborted,
            now_ms: self.now_ms,
        });
        let given = acquired.batches.iter();
        let records: i64 = given
            .map(|batch| batch.last_offset.since(batch.first_offset) + 1)
            .sum();
        assert_eq!(acquired.records, records);
        let given = acquired.batches.iter();
        given
            .map(|batch| {
                (
                    batch.first_offset.0,
                    batch.last_offset.0,
                    batch.delivery_count,
                )
            })
            .collect()
    }

    fn acknowledge(
        &mut self,
        member: &str,
        first: i64,
        last: i64,
        types: &[AcknowledgeType],
    ) -> Result<Option<StateWrite>, AcknowledgeError> {
        let batch = AcknowledgementBatch {
            first_offset: Offset(first),
            last_offset: Offset(last),
            types: types.to_vec(),
        };
        self.partition.acknowledge(member, &[batch], self.now_ms)
    }

    /// Acknowledges records and persists that.
    fn settle(&mut self, member: &str, first: i64, last: i64, kind: AcknowledgeType) {
        let write = self.acknowledge(member, first, last, &[kind]);
        let write = write.expect("it is allowed").expect("something changes");
        self.partition.on_state_written(write.id, true);
    }

    fn wait(&mut self, ms: u64) -> Option<StateWrite> {
        self.now_ms += ms;
        self.partition.on_lock_timeouts(self.now_ms)
    }

    fn next_fetch_offset(&mut self) -> i64 {
        self.partition.next_fetch_offset().0
    }

    fn ends(&self) -> (i64, i64) {
        (
            self.partition.start_offset().0,
            self.partition.end_offset().0,
        )
    }

    /// First offset, last offset and state of everything in flight. Adjacent equal states are
    /// merged.
    fn in_flight(&self) -> Vec<(i64, i64, RecordState, i32)> {
        let mut all: Vec<(i64, i64, RecordState, i32)> = Vec::new();
        for (first, last, state) in self.partition.in_flight.values().flat_map(|b| b.runs()) {
            let now = (state.state(), state.delivery_count());
            match all.last_mut() {
                Some(run) if run.1 + 1 == first && (run.2, run.3) == now => run.1 = last,
                _ => all.push((first, last, now.0, now.1)),
            }
        }
        all
    }
}

fn persisted((first, last, state, count): (i64, i64, RecordState, i16)) -> PersistedBatch {
    PersistedBatch {
        first_offset: Offset(first),
        last_offset: Offset(last),
        delivery_state: state.id(),
        delivery_count: count,
    }
}

fn fetched((base, last): (i64, i64)) -> FetchedBatch {
    FetchedBatch {
        base_offset: Offset(base),
        last_offset: Offset(last),
        producer_id: ProducerId::NONE,
        is_transactional: false,
        is_abort_marker: false,
    }
}
