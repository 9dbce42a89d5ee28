//! The acknowledgements that wait at the leader of a partition.

use std::time::Duration;

use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_replica::{
    Append, Event, FollowerFetch, Leadership, ProducerVerdict, Replica, ReplicaConfig,
    ReplicaSettings, RequiredAcks,
};
use ottla_types::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, Timestamp};

use crate::measure::{Row, best_of};

pub const ROW: Row = Row {
    name: "parked-acks",
    operation: "an append with `acks=all`, and its acknowledgement",
    counted: "acknowledgements that wait",
    smallest: 100,
    measure: append,
};

const APPENDS: u32 = 2_000;

fn append(parked: u64) -> Duration {
    let mut leader = Leader::new();
    for _ in 0..parked {
        leader.append(batch());
    }
    let batch = batch();
    best_of(APPENDS, || {
        for _ in 0..APPENDS {
            leader.append(batch.clone());
            leader.fetched(leader.end - parked as i64);
        }
    })
}

fn batch() -> RecordBatch {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.append(Timestamp(0), None, Some(b"value"), &[]);
    builder.build()
}

/// A leader of three replicas.
struct Leader {
    replica: Replica<u32>,
    end: i64,
    now_ms: u64,
}

impl Leader {
    fn new() -> Leader {
        let start = Offset::ZERO;
        let replica = Replica::new(ReplicaConfig::new(BrokerId(1)), start, start, start, None);
        let ids = vec![BrokerId(1), BrokerId(2), BrokerId(3)];
        let mut leader = Leader {
            replica,
            end: 0,
            now_ms: 0,
        };
        leader.step(Event::LeaderElected {
            leadership: Leadership {
                leader_epoch: LeaderEpoch(1),
                partition_epoch: PartitionEpoch(1),
                replicas: ids.clone(),
                isr: ids,
                brokers: Vec::new(),
                settings: ReplicaSettings {
                    min_insync_replicas: 2,
                    flush_messages: i64::MAX,
                },
            },
            now_ms: 0,
        });
        leader
    }

    fn step(&mut self, event: Event<u32>) {
        let mut effects = Vec::new();
        self.replica.step(event, &mut effects);
    }

    fn append(&mut self, batch: RecordBatch) {
        self.now_ms += 1;
        self.step(Event::Append(Append {
            batch,
            required_acks: RequiredAcks::All,
            expected_leader_epoch: None,
            deadline_ms: self.now_ms + 30_000,
            verdict: ProducerVerdict::InSequence,
            ack: 0,
        }));
        self.end += 1;
        self.step(Event::LogWritten {
            log_end_offset: Offset(self.end),
        });
        std::hint::black_box(self.replica.next_deadline_ms());
    }

    /// Both followers have everything up to there.
    fn fetched(&mut self, end: i64) {
        for id in [2, 3] {
            self.step(Event::FollowerFetched(FollowerFetch {
                replica_id: BrokerId(id),
                broker_epoch: BrokerEpoch::UNKNOWN,
                leader_epoch: None,
                fetch_offset: Offset(end),
                last_fetched_epoch: None,
                end_of_last_fetched_epoch: None,
                log_start_offset: Offset::ZERO,
                leader_log_start_offset: Offset::ZERO,
                now_ms: self.now_ms,
            }));
            std::hint::black_box(self.replica.next_deadline_ms());
        }
    }
}
