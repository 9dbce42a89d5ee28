//! One event, then the exact effects.

use ottla_types::Timestamp;

use super::*;
use crate::test_batches::batch;
use crate::{Event, FetchPosition, Replica};

const ME: BrokerId = BrokerId(1);
const NO_DEADLINE: u64 = u64::MAX;
const SETTINGS: ReplicaSettings = ReplicaSettings {
    min_insync_replicas: 1,
    flush_messages: i64::MAX,
};

/// A replica together with the effects of its last step.
struct Story {
    replica: Replica<u32>,
    /// The partition epoch of the last registration.
    partition_epoch: i32,
}

impl Story {
    /// Broker 1 leads in epoch 4, with this ISR, from an empty log.
    fn leader_with(isr: &[i32], min_insync_replicas: usize, flush_messages: i64) -> Story {
        let mut story = Story {
            replica: Replica::new(
                ReplicaConfig::new(ME),
                Offset(0),
                Offset(0),
                Offset(0),
                None,
            ),
            partition_epoch: 0,
        };
        let effects = story.step(elected(4, isr, min_insync_replicas, flush_messages));
        assert_eq!(
            effects,
            [Effect::AssignLeaderEpoch {
                leader_epoch: LeaderEpoch(4),
                start_offset: Offset(0)
            }]
        );
        story
    }

    fn alone() -> Story {
        Story::leader_with(&[1], 1, i64::MAX)
    }

    /// Gives each registration a partition epoch of its own.
    fn step(&mut self, mut event: Event<u32>) -> Vec<Effect<u32>> {
        if let Event::LeaderElected { leadership, .. } = &mut event {
            self.partition_epoch += 1;
            leadership.partition_epoch = PartitionEpoch(self.partition_epoch);
        }
        let mut effects = Vec::new();
        self.replica.step(event, &mut effects);
        effects
    }

    /// Appends a batch of this many records and checks its base offset.
    fn append(&mut self, ack: u32, required_acks: RequiredAcks, records: i32, base_offset: i64) {
        let effects = self.step(append(ack, required_acks, records));
        assert_eq!(effects, [write(records, base_offset)]);
    }

    fn written(&mut self, log_end_offset: i64) -> Vec<Effect<u32>> {
        self.step(Event::LogWritten {
            log_end_offset: Offset(log_end_offset),
        })
    }

    fn fetched(&mut self, follower: i32, log_end_offset: i64) -> Vec<Effect<u32>> {
        self.step(Event::FollowerFetched(FollowerFetch {
            replica_id: BrokerId(follower),
            broker_epoch: BrokerEpoch::UNKNOWN,
            leader_epoch: None,
            fetch_offset: Offset(log_end_offset),
            last_fetched_epoch: None,
            end_of_last_fetched_epoch: None,
            log_start_offset: Offset(0),
            leader_log_start_offset: Offset(0),
            now_ms: 0,
        }))
    }
}

fn elected(
    leader_epoch: i32,
    isr: &[i32],
    min_insync_replicas: usize,
    flush_messages: i64,
) -> Event<u32> {
    let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<Vec<_>>();
    let replicas: &[i32] = if isr == [1] && min_insync_replicas == 1 {
        &[1]
    } else {
        &[1, 2, 3]
    };
    Event::LeaderElected {
        leadership: Leadership {
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(0),
            replicas: ids(replicas),
            isr: ids(isr),
            brokers: Vec::new(),
            settings: ReplicaSettings {
                min_insync_replicas,
                flush_messages,
            },
        },
        now_ms: 0,
    }
}

fn append_with(
    ack: u32,
    required_acks: RequiredAcks,
    records: i32,
    verdict: ProducerVerdict,
) -> Event<u32> {
    Event::Append(Append {
        batch: batch(0, records, -1, 0),
        required_acks,
        expected_leader_epoch: None,
        deadline_ms: NO_DEADLINE,
        verdict,
        ack,
    })
}

fn append(ack: u32, required_acks: RequiredAcks, records: i32) -> Event<u32> {
    append_with(ack, required_acks, records, ProducerVerdict::InSequence)
}

fn write(records: i32, base_offset: i64) -> Effect<u32> {
    Effect::WriteLog {
        batch: batch(base_offset, records, 4, 0),
    }
}

fn high_watermark(offset: i64) -> Effect<u32> {
    Effect::AdvanceHighWatermark {
        high_watermark: Offset(offset),
    }
}

fn appended(ack: u32, base_offset: i64) -> Effect<u32> {
    released(
        ack,
        AckOutcome::Appended {
            base_offset: Offset(base_offset),
        },
    )
}

fn released(ack: u32, outcome: AckOutcome) -> Effect<u32> {
    Effect::ReleaseAck { ack, outcome }
}

use RequiredAcks::{All, Leader as LeaderOnly, None as NoAcks};

#[test]
fn a_leader_alone_acknowledges_when_the_log_is_written() {
    let mut story = Story::alone();
    story.append(1, All, 3, 0);
    assert_eq!(story.replica.log_end_offset(), Offset(0));
    assert_eq!(story.written(3), [high_watermark(3), appended(1, 0)]);
    assert_eq!(story.replica.log_end_offset(), Offset(3));
    assert_eq!(story.replica.high_watermark(), Offset(3));
    story.append(2, LeaderOnly, 1, 3);
    assert_eq!(story.written(4), [high_watermark(4), appended(2, 3)]);
}

#[test]
fn appends_written_at_once_are_released_in_order() {
    let mut story = Story::alone();
    story.append(1, LeaderOnly, 2, 0);
    story.append(2, NoAcks, 2, 2);
    story.append(3, All, 2, 4);
    assert_eq!(
        story.written(6),
        [
            high_watermark(6),
            appended(1, 0),
            appended(2, 2),
            appended(3, 4)
        ]
    );
}

#[test]
fn acks_all_waits_for_the_slowest_in_sync_replica() {
    let mut story = Story::leader_with(&[1, 2, 3], 2, i64::MAX);
    story.append(1, All, 5, 0);
    story.append(2, LeaderOnly, 5, 5);
    assert_eq!(story.written(10), [appended(2, 5)]);
    assert_eq!(story.fetched(2, 10), []);
    assert_eq!(story.fetched(3, 4), [high_watermark(4)]);
    assert_eq!(story.fetched(3, 5), [high_watermark(5), appended(1, 0)]);
}

#[test]
fn a_broker_that_is_no_replica_moves_nothing() {
    let mut story = Story::leader_with(&[1, 2], 1, i64::MAX);
    story.append(1, All, 1, 0);
    assert_eq!(story.written(1), []);
    assert_eq!(story.fetched(9, 1), []);
}

#[test]
fn a_replica_out_of_sync_is_not_waited_for() {
    let mut story = Story::leader_with(&[1, 2, 3], 1, i64::MAX);
    story.append(1, All, 1, 0);
    story.written(1);
    story.fetched(2, 1);
    assert_eq!(
        story.step(elected(4, &[1, 2], 1, i64::MAX)),
        [high_watermark(1), appended(1, 0)]
    );
}

#[test]
fn a_writer_that_waits_for_the_high_watermark_itself_is_refused_under_min_isr() {
    let mut story = Story::leader_with(&[1], 2, i64::MAX);
    assert_eq!(
        story.step(append(1, RequiredAcks::LeaderWithMinIsr, 1)),
        [released(1, AckOutcome::NotEnoughReplicas)]
    );
    // The writer learns the offset before other replicas have the records.
    let mut story = Story::leader_with(&[1, 2], 2, i64::MAX);
    story.append(2, RequiredAcks::LeaderWithMinIsr, 1, 0);
    assert_eq!(story.written(1), [appended(2, 0)]);
}

#[test]
fn too_few_in_sync_replicas_refuse_acks_all_only() {
    let mut story = Story::leader_with(&[1], 2, i64::MAX);
    assert_eq!(
        story.step(append(1, All, 1)),
        [released(1, AckOutcome::NotEnoughReplicas)]
    );
    story.append(2, LeaderOnly, 1, 0);
    // The high watermark does not advance below `min.insync.replicas`.
    assert_eq!(story.written(1), [appended(2, 0)]);
    assert_eq!(story.replica.high_watermark(), Offset(0));
}

#[test]
fn min_insync_replicas_counts_at_most_the_replicas_there_are() {
    let mut story = Story {
        replica: Replica::new(
            ReplicaConfig::new(ME),
            Offset(0),
            Offset(0),
            Offset(0),
            None,
        ),
        partition_epoch: 0,
    };
    story.step(Event::LeaderElected {
        leadership: Leadership {
            leader_epoch: LeaderEpoch(4),
            partition_epoch: PartitionEpoch(0),
            replicas: vec![ME],
            isr: vec![ME],
            brokers: Vec::new(),
            settings: ReplicaSettings {
                min_insync_replicas: 2,
                flush_messages: i64::MAX,
            },
        },
        now_ms: 0,
    });
    story.append(1, All, 1, 0);
    assert_eq!(story.written(1), [high_watermark(1), appended(1, 0)]);
}

#[test]
fn an_append_stays_parked_while_too_few_replicas_are_in_sync() {
    let mut story = Story::leader_with(&[1, 2], 2, i64::MAX);
    story.append(1, All, 1, 0);
    story.written(1);
    assert_eq!(story.step(elected(4, &[1], 2, i64::MAX)), []);
    assert_eq!(story.fetched(2, 1), []);
    // The follower is back in the ISR: the high watermark advances and the append is acknowledged.
    assert_eq!(
        story.step(elected(4, &[1, 2], 2, i64::MAX)),
        [high_watermark(1), appended(1, 0)]
    );
}

#[test]
fn losing_the_leadership_answers_everybody() {
    let mut story = Story::leader_with(&[1, 2], 1, i64::MAX);
    story.append(1, All, 1, 0);
    story.written(1);
    story.append(2, LeaderOnly, 1, 1);
    assert_eq!(
        story.step(Event::FollowerOf {
            leader: BrokerId(2),
            leader_epoch: LeaderEpoch(5),
            partition_epoch: PartitionEpoch(9),
            settings: SETTINGS,
        }),
        [
            released(1, AckOutcome::NotLeader),
            released(2, AckOutcome::NotLeader),
            Effect::Fetch(FetchPosition {
                leader: BrokerId(2),
                leader_epoch: LeaderEpoch(5),
                fetch_offset: Offset(1),
                last_fetched_epoch: Some(LeaderEpoch(4)),
                is_in_sync: false,
            }),
        ]
    );
    assert_eq!(story.replica.leader(), BrokerId(2));
    assert_eq!(story.replica.leader_epoch(), LeaderEpoch(5));
    assert_eq!(
        story.step(append(3, All, 1)),
        [released(3, AckOutcome::NotLeader)]
    );
}

#[test]
fn a_lost_log_answers_with_a_storage_error() {
    let mut story = Story::alone();
    story.append(1, All, 1, 0);
    assert_eq!(
        story.step(Event::LogLost),
        [released(1, AckOutcome::StorageError)]
    );
    assert_eq!(story.replica.leader(), BrokerId::NONE);
}

#[test]
fn only_the_named_leader_epoch_may_write() {
    let mut story = Story::alone();
    for (named, outcome) in [
        (3, AckOutcome::FencedLeaderEpoch),
        (5, AckOutcome::UnknownLeaderEpoch),
    ] {
        let Event::Append(mut append) = append(1, All, 1) else {
            unreachable!()
        };
        append.expected_leader_epoch = Some(LeaderEpoch(named));
        assert_eq!(
            story.step(Event::Append(append)),
            [released(1, outcome)],
            "epoch {named}"
        );
    }
    assert_eq!(story.replica.check_leader_epoch(None), Ok(()));
    assert_eq!(
        story.replica.check_leader_epoch(Some(LeaderEpoch(4))),
        Ok(())
    );
}

#[test]
fn a_failed_write_refuses_the_writes_after_it() {
    let mut story = Story::alone();
    story.append(1, LeaderOnly, 2, 0);
    story.append(2, LeaderOnly, 2, 2);
    story.append(3, All, 2, 4);
    assert_eq!(
        story.step(Event::WriteRefused {
            log_end_offset: Offset(2)
        }),
        [
            high_watermark(2),
            appended(1, 0),
            released(2, AckOutcome::StorageError),
            released(3, AckOutcome::StorageError)
        ]
    );
    // The offsets are assigned again.
    story.append(4, LeaderOnly, 1, 2);
    assert_eq!(story.written(3), [high_watermark(3), appended(4, 2)]);
}

#[test]
fn a_duplicate_waits_until_the_first_copy_is_safe() {
    let mut story = Story::leader_with(&[1, 2], 1, i64::MAX);
    story.append(1, All, 2, 0);
    story.written(2);
    let duplicate = ProducerVerdict::Duplicate {
        base_offset: Offset(0),
        last_offset: Offset(1),
        log_append_time: Timestamp::NONE,
    };
    assert_eq!(story.step(append_with(2, All, 2, duplicate)), []);
    let duplicate = AckOutcome::Duplicate {
        base_offset: Offset(0),
        log_append_time: Timestamp::NONE,
    };
    assert_eq!(
        story.fetched(2, 2),
        [high_watermark(2), appended(1, 0), released(2, duplicate)]
    );
}

#[test]
fn a_duplicate_of_a_failed_write_is_no_success() {
    let mut story = Story::alone();
    story.append(1, All, 2, 0);
    let duplicate = ProducerVerdict::Duplicate {
        base_offset: Offset(0),
        last_offset: Offset(1),
        log_append_time: Timestamp::NONE,
    };
    assert_eq!(story.step(append_with(2, All, 2, duplicate)), []);
    assert_eq!(
        story.step(Event::WriteRefused {
            log_end_offset: Offset(0)
        }),
        [
            released(1, AckOutcome::StorageError),
            released(2, AckOutcome::StorageError)
        ]
    );
}

#[test]
fn a_sequence_gap_is_reported_once_the_earlier_writes_are_safe() {
    let mut story = Story::leader_with(&[1, 2], 1, i64::MAX);
    let gap = ProducerVerdict::Refused(ErrorCode::OutOfOrderSequenceNumber);
    story.append(1, All, 2, 0);
    story.written(2);
    assert_eq!(story.step(append_with(2, All, 2, gap)), []);
    let refused = AckOutcome::RefusedForProducer(ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(
        story.fetched(2, 2),
        [high_watermark(2), appended(1, 0), released(2, refused)]
    );
    // Without earlier appends it is answered at once.
    assert_eq!(
        story.step(append_with(3, All, 2, gap)),
        [released(3, refused)]
    );
}

#[test]
fn a_sequence_gap_after_a_failed_write_is_reported() {
    let mut story = Story::alone();
    let gap = ProducerVerdict::Refused(ErrorCode::OutOfOrderSequenceNumber);
    story.append(1, All, 2, 0);
    assert_eq!(story.step(append_with(2, All, 2, gap)), []);
    assert_eq!(
        story.step(Event::WriteRefused {
            log_end_offset: Offset(0)
        }),
        [
            released(1, AckOutcome::StorageError),
            released(
                2,
                AckOutcome::RefusedForProducer(ErrorCode::OutOfOrderSequenceNumber)
            )
        ]
    );
}

#[test]
fn flush_messages_holds_the_acknowledgement_until_the_flush() {
    let mut story = Story::leader_with(&[1], 1, 1);
    story.append(1, LeaderOnly, 1, 0);
    assert_eq!(story.written(1), [Effect::Flush { up_to: Offset(1) }]);
    story.append(2, All, 1, 1);
    assert_eq!(story.written(2), [Effect::Flush { up_to: Offset(2) }]);
    assert_eq!(
        story.step(Event::Flushed { up_to: Offset(1) }),
        [high_watermark(1), appended(1, 0)]
    );
    assert_eq!(
        story.step(Event::Flushed { up_to: Offset(2) }),
        [high_watermark(2), appended(2, 1)]
    );
}

#[test]
fn flush_messages_counts_records_since_the_last_flush() {
    let mut story = Story::leader_with(&[1], 1, 3);
    story.append(1, LeaderOnly, 2, 0);
    assert_eq!(story.written(2), [high_watermark(2), appended(1, 0)]);
    story.append(2, LeaderOnly, 1, 2);
    assert_eq!(story.written(3), [Effect::Flush { up_to: Offset(3) }]);
    story.append(3, LeaderOnly, 1, 3);
    assert_eq!(story.written(4), []);
    assert_eq!(
        story.step(Event::Flushed { up_to: Offset(3) }),
        [high_watermark(4), appended(2, 2), appended(3, 3)]
    );
}

#[test]
fn timed_out_acknowledgements_are_released() {
    let mut story = Story::leader_with(&[1, 2], 1, i64::MAX);
    let with_deadline = |ack, deadline_ms| {
        let Event::Append(mut append) = append(ack, All, 1) else {
            unreachable!()
        };
        append.deadline_ms = deadline_ms;
        Event::Append(append)
    };
    story.step(with_deadline(1, 300));
    story.step(with_deadline(2, 200));
    assert_eq!(story.replica.next_deadline_ms(), None);
    story.written(2);
    assert_eq!(story.replica.next_deadline_ms(), Some(200));
    assert_eq!(
        story.step(Event::ClockTicked { now_ms: 200 }),
        [released(2, AckOutcome::RequestTimedOut)]
    );
    assert_eq!(story.replica.next_deadline_ms(), Some(300));
    // The remaining append is released by the high watermark.
    assert_eq!(story.fetched(2, 2), [high_watermark(2), appended(1, 0)]);
}

#[test]
fn a_new_epoch_of_the_same_leader_keeps_parked_acknowledgements() {
    let mut story = Story::leader_with(&[1, 2], 1, i64::MAX);
    story.append(1, All, 1, 0);
    story.written(1);
    assert_eq!(
        story.step(elected(5, &[1, 2], 1, i64::MAX)),
        [Effect::AssignLeaderEpoch {
            leader_epoch: LeaderEpoch(5),
            start_offset: Offset(1)
        }]
    );
    assert_eq!(story.fetched(2, 1), [high_watermark(1), appended(1, 0)]);
}

#[test]
fn the_checkpointed_high_watermark_catches_up_at_election() {
    let mut story = Story {
        replica: Replica::new(
            ReplicaConfig::new(ME),
            Offset(8),
            Offset(5),
            Offset(8),
            None,
        ),
        partition_epoch: 0,
    };
    assert_eq!(
        story.step(elected(4, &[1], 1, i64::MAX)),
        [
            Effect::AssignLeaderEpoch {
                leader_epoch: LeaderEpoch(4),
                start_offset: Offset(8)
            },
            high_watermark(8)
        ]
    );
    assert_eq!(
        Replica::<u32>::new(
            ReplicaConfig::new(ME),
            Offset(3),
            Offset(5),
            Offset(3),
            None
        )
        .high_watermark(),
        Offset(3)
    );
}

#[test]
fn a_replica_that_lost_its_log_never_leads_again() {
    let mut story = Story::alone();
    story.step(Event::LogLost);
    for event in [
        elected(5, &[1], 1, i64::MAX),
        Event::SettingsChanged(ReplicaSettings {
            min_insync_replicas: 1,
            flush_messages: 1,
        }),
        Event::FollowerOf {
            leader: BrokerId(2),
            leader_epoch: LeaderEpoch(6),
            partition_epoch: PartitionEpoch(9),
            settings: SETTINGS,
        },
        elected(7, &[1], 1, i64::MAX),
    ] {
        assert_eq!(story.step(event), []);
        assert!(story.replica.is_lost());
        assert!(!story.replica.is_leader());
    }
    assert_eq!(
        story.step(append(1, RequiredAcks::Leader, 1)),
        [Effect::ReleaseAck {
            ack: 1,
            outcome: AckOutcome::StorageError
        }]
    );
}

#[test]
fn changed_settings_take_effect_at_once_and_elect_no_leader() {
    let mut story = Story::leader_with(&[1], 2, i64::MAX);
    let settings = |min_insync_replicas| {
        Event::SettingsChanged(ReplicaSettings {
            min_insync_replicas,
            flush_messages: i64::MAX,
        })
    };
    story.append(1, RequiredAcks::Leader, 1, 0);
    assert!(
        !story
            .written(1)
            .iter()
            .any(|effect| matches!(effect, Effect::AdvanceHighWatermark { .. })),
        "too few replicas are in sync"
    );
    assert_eq!(
        story.step(settings(1)),
        [Effect::AdvanceHighWatermark {
            high_watermark: Offset(1)
        }]
    );

    let mut offline: Replica<u32> = Replica::new(
        ReplicaConfig::new(ME),
        Offset(0),
        Offset(0),
        Offset(0),
        None,
    );
    let mut effects = Vec::new();
    offline.step(settings(1), &mut effects);
    assert_eq!(effects, []);
    assert!(!offline.is_leader());
}
