//! A leader, its followers and the controller: one event, then the exact effects.

use super::*;
use crate::test_batches::batch;
use crate::{EpochEnd, Event, IsrMember, ReadCandidate, Replica};

const ME: BrokerId = BrokerId(1);
const LAG_MAX_MS: u64 = 30_000;

/// Broker 1 leads replicas 1, 2 and 3 in epoch 4 from offset 10 on; broker n has broker epoch 100 + n.
struct Story {
    replica: Replica<u32>,
    brokers: Vec<ReplicaBroker>,
    min_insync_replicas: usize,
    now_ms: u64,
}

impl Story {
    fn leader_with(isr: &[i32], min_insync_replicas: usize) -> Story {
        let broker = |id| ReplicaBroker {
            broker_id: BrokerId(id),
            broker_epoch: BrokerEpoch(100 + i64::from(id)),
            is_fenced: false,
            is_in_controlled_shutdown: false,
        };
        let mut story = Story {
            replica: Replica::new(
                ReplicaConfig::new(ME),
                Offset(10),
                Offset(10),
                Offset(10),
                Some(LeaderEpoch(3)),
            ),
            brokers: (1..=3).map(broker).collect(),
            min_insync_replicas,
            now_ms: 1_000,
        };
        let effects = story.registered(4, 5, isr);
        assert_eq!(
            effects,
            [Effect::AssignLeaderEpoch {
                leader_epoch: LeaderEpoch(4),
                start_offset: Offset(10)
            }]
        );
        story
    }

    fn step(&mut self, event: Event<u32>) -> Vec<Effect<u32>> {
        let mut effects = Vec::new();
        self.replica.step(event, &mut effects);
        effects
    }

    /// Applies a registration.
    fn registered(
        &mut self,
        leader_epoch: i32,
        partition_epoch: i32,
        isr: &[i32],
    ) -> Vec<Effect<u32>> {
        let leadership = Leadership {
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            replicas: ids(&[1, 2, 3]),
            isr: ids(isr),
            brokers: self.brokers.clone(),
            settings: ReplicaSettings {
                min_insync_replicas: self.min_insync_replicas,
                flush_messages: i64::MAX,
            },
        };
        let now_ms = self.now_ms;
        self.step(Event::LeaderElected { leadership, now_ms })
    }

    /// Appends a record and reports it as written.
    fn appended(&mut self, ack: u32, required_acks: RequiredAcks) -> Vec<Effect<u32>> {
        let effects = self.step(Event::Append(Append {
            batch: batch(0, 1, -1, 0),
            required_acks,
            expected_leader_epoch: None,
            deadline_ms: u64::MAX,
            verdict: ProducerVerdict::InSequence,
            ack,
        }));
        if !matches!(effects[..], [Effect::WriteLog { .. }]) {
            return effects;
        }
        let log_end_offset = self.replica.next_offset();
        self.step(Event::LogWritten { log_end_offset })
    }

    /// A fetch of the broker's registered process.
    fn fetch(&self, follower: i32, fetch_offset: i64) -> FollowerFetch {
        FollowerFetch {
            replica_id: BrokerId(follower),
            broker_epoch: BrokerEpoch(100 + i64::from(follower)),
            leader_epoch: Some(LeaderEpoch(4)),
            fetch_offset: Offset(fetch_offset),
            last_fetched_epoch: None,
            end_of_last_fetched_epoch: None,
            log_start_offset: Offset(0),
            leader_log_start_offset: Offset(0),
            now_ms: self.now_ms,
        }
    }

    fn fetched(&mut self, follower: i32, fetch_offset: i64) -> Vec<Effect<u32>> {
        let fetch = self.fetch(follower, fetch_offset);
        assert_eq!(self.replica.check_follower_fetch(&fetch), Ok(()));
        let mut effects = self.step(Event::FollowerFetched(fetch));
        // These have their own test.
        effects.retain(|effect| !matches!(effect, Effect::MoveLowWatermark { .. }));
        effects
    }

    fn answered(
        &mut self,
        proposal: &AlterPartition,
        result: Result<&[i32], ErrorCode>,
    ) -> Vec<Effect<u32>> {
        let result = result.map(|isr| AlteredPartition {
            leader_epoch: proposal.leader_epoch,
            partition_epoch: PartitionEpoch(proposal.partition_epoch.0 + 1),
            isr: ids(isr),
        });
        let proposal = proposal.clone();
        self.step(Event::PartitionAltered { proposal, result })
    }

    fn ticked(&mut self, after_ms: u64) -> Vec<Effect<u32>> {
        self.now_ms += after_ms;
        let now_ms = self.now_ms;
        self.step(Event::ClockTicked { now_ms })
    }

    fn brokers_changed(&mut self) -> Vec<Effect<u32>> {
        let brokers = self.brokers.clone();
        self.step(Event::BrokersChanged(brokers))
    }
}

fn ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

/// Each member with its broker epoch; -1 for one that has not fetched.
fn proposal(partition_epoch: i32, members: &[(i32, i64)]) -> AlterPartition {
    let members = members.iter().map(|&(broker_id, broker_epoch)| IsrMember {
        broker_id: BrokerId(broker_id),
        broker_epoch: BrokerEpoch(broker_epoch),
    });
    AlterPartition {
        leader_epoch: LeaderEpoch(4),
        partition_epoch: PartitionEpoch(partition_epoch),
        new_isr: members.collect(),
    }
}

fn high_watermark(offset: i64) -> Effect<u32> {
    Effect::AdvanceHighWatermark {
        high_watermark: Offset(offset),
    }
}

fn acknowledged(ack: u32, base_offset: i64) -> Effect<u32> {
    let outcome = AckOutcome::Appended {
        base_offset: Offset(base_offset),
    };
    Effect::ReleaseAck { ack, outcome }
}

use RequiredAcks::{All, Leader as LeaderOnly};

#[test]
fn a_follower_that_has_caught_up_joins() {
    let mut story = Story::leader_with(&[1, 2], 1);
    story.appended(1, LeaderOnly);
    assert_eq!(story.fetched(3, 9), []);
    let expansion = proposal(5, &[(1, 101), (2, -1), (3, 103)]);
    assert_eq!(
        story.fetched(3, 10),
        [Effect::AlterPartition(expansion.clone())]
    );
    // One proposal at a time, and it counts already: 2 alone does not advance the high watermark.
    assert_eq!(story.fetched(3, 10), []);
    assert_eq!(story.fetched(2, 11), []);
    assert_eq!(story.replica.isr(), ids(&[1, 2]));
    assert_eq!(story.answered(&expansion, Ok(&[1, 2, 3])), []);
    assert_eq!(story.replica.isr(), ids(&[1, 2, 3]));
    assert_eq!(story.replica.partition_epoch(), PartitionEpoch(6));
    assert_eq!(story.fetched(3, 11), [high_watermark(11)]);
}

#[test]
fn a_follower_joins_with_all_that_the_leader_began_with() {
    // The leader knows a high watermark of 10; its predecessor may have committed up to 12.
    let mut story = Story::leader_with(&[1, 2], 2);
    story.appended(1, LeaderOnly);
    story.appended(2, LeaderOnly);
    story.registered(5, 6, &[1, 2]);
    assert_eq!(story.replica.leader_epoch_start_offset(), Some(Offset(12)));
    let mut fetch = story.fetch(3, 11);
    fetch.leader_epoch = Some(LeaderEpoch(5));
    assert_eq!(story.step(Event::FollowerFetched(fetch)), []);
    fetch.fetch_offset = Offset(12);
    let effects = story.step(Event::FollowerFetched(fetch));
    assert!(
        matches!(effects[..], [Effect::AlterPartition(_)]),
        "{effects:?}"
    );
}

#[test]
fn an_ineligible_replica_does_not_join_the_isr() {
    let spoils: [fn(&mut ReplicaBroker); 4] = [
        |broker| broker.is_fenced = true,
        |broker| broker.is_in_controlled_shutdown = true,
        |broker| broker.broker_epoch = BrokerEpoch(99),
        |broker| broker.broker_id = BrokerId(9),
    ];
    for spoil in spoils {
        let mut story = Story::leader_with(&[1, 2], 1);
        let before = story.brokers.clone();
        spoil(&mut story.brokers[2]);
        assert_eq!(story.brokers_changed(), []);
        assert_eq!(story.fetched(3, 10), [], "{:?}", story.brokers);
        story.brokers = before;
        story.brokers_changed();
        let effects = story.fetched(3, 10);
        assert!(
            matches!(effects[..], [Effect::AlterPartition(_)]),
            "{effects:?}"
        );
    }
}

#[test]
fn fetches_are_refused_as_kafka_does() {
    use ErrorCode as E;
    let mut story = Story::leader_with(&[1, 2], 1);
    let refused = |error| Err(FetchRefusal::Error(error));
    let fetch = story.fetch(2, 10);
    let check = |story: &Story, fetch| story.replica.check_follower_fetch(&fetch);
    let with = |change: fn(&mut FollowerFetch)| {
        let mut fetch = fetch;
        change(&mut fetch);
        fetch
    };
    let old = with(|fetch| fetch.leader_epoch = Some(LeaderEpoch(3)));
    assert_eq!(check(&story, old), refused(E::FencedLeaderEpoch));
    let new = with(|fetch| fetch.leader_epoch = Some(LeaderEpoch(5)));
    assert_eq!(check(&story, new), refused(E::UnknownLeaderEpoch));
    let stranger = with(|fetch| fetch.replica_id = BrokerId(9));
    assert_eq!(check(&story, stranger), refused(E::UnknownLeaderEpoch));
    let mut without_epoch = stranger;
    without_epoch.leader_epoch = None;
    assert_eq!(
        check(&story, without_epoch),
        refused(E::NotLeaderOrFollower)
    );
    let beyond = with(|fetch| fetch.fetch_offset = Offset(11));
    assert_eq!(check(&story, beyond), refused(E::OffsetOutOfRange));
    let replaced = with(|fetch| fetch.broker_epoch = BrokerEpoch(101));
    assert_eq!(check(&story, replaced), refused(E::NotLeaderOrFollower));
    let end = EpochEnd {
        leader_epoch: LeaderEpoch(2),
        end_offset: Offset(7),
    };
    let mut diverging = with(|fetch| fetch.last_fetched_epoch = Some(LeaderEpoch(3)));
    diverging.end_of_last_fetched_epoch = Some(end);
    assert_eq!(check(&story, diverging), Err(FetchRefusal::Diverging(end)));
    // Refused fetches do not change the follower's position.
    story.appended(1, LeaderOnly);
    for fetch in [old, new, stranger, beyond, replaced, diverging] {
        let mut fetch = fetch;
        fetch.fetch_offset = fetch.fetch_offset.max(Offset(11));
        if fetch.leader_epoch == Some(LeaderEpoch(4)) && fetch.fetch_offset == Offset(11) {
            fetch.leader_log_start_offset = Offset(12);
        }
        assert_eq!(story.step(Event::FollowerFetched(fetch)), []);
    }
}

#[test]
fn a_follower_that_lags_for_too_long_leaves() {
    let mut story = Story::leader_with(&[1, 2, 3], 1);
    story.fetched(2, 10);
    story.fetched(3, 10);
    story.appended(1, All);
    story.now_ms += 10_000;
    assert_eq!(story.fetched(2, 11), []);
    assert_eq!(story.ticked(LAG_MAX_MS - 10_000), []);
    let shrinking = proposal(5, &[(1, 101), (2, 102)]);
    assert_eq!(story.ticked(1), [Effect::AlterPartition(shrinking.clone())]);
    // Until the proposal is committed, 3 still counts.
    assert_eq!(story.ticked(1_000), []);
    assert_eq!(
        story.answered(&shrinking, Ok(&[1, 2])),
        [high_watermark(11), acknowledged(1, 10)]
    );
    // Without appends no replica lags, however long ago it fetched.
    assert_eq!(story.ticked(10 * LAG_MAX_MS), []);
}

#[test]
fn below_min_isr_records_are_neither_accepted_nor_committed() {
    let mut story = Story::leader_with(&[1, 2], 2);
    story.fetched(2, 10);
    story.appended(1, All);
    let shrinking = proposal(5, &[(1, 101)]);
    let shrinking = match &story.ticked(LAG_MAX_MS + 1)[..] {
        [Effect::AlterPartition(found)] => {
            assert_eq!(found.new_isr[0], shrinking.new_isr[0]);
            found.clone()
        }
        effects => panic!("{effects:?}"),
    };
    assert_eq!(story.answered(&shrinking, Ok(&[1])), []);
    assert_eq!(
        story.appended(2, All),
        [Effect::ReleaseAck {
            ack: 2,
            outcome: AckOutcome::NotEnoughReplicas
        }]
    );
    // The follower returns: the proposal alone commits nothing, since it may be refused.
    let expansion = proposal(6, &[(1, 101), (2, 102)]);
    assert_eq!(
        story.fetched(2, 11),
        [Effect::AlterPartition(expansion.clone())]
    );
    assert_eq!(
        story.answered(&expansion, Ok(&[1, 2])),
        [high_watermark(11), acknowledged(1, 10)]
    );
}

#[test]
fn a_replica_that_has_caught_up_recently_is_waited_for() {
    let mut story = Story::leader_with(&[1], 1);
    // 3 has caught up, but the controller refuses it.
    let Some(Effect::AlterPartition(expansion)) = story.fetched(3, 10).pop() else {
        panic!("not proposed")
    };
    story.answered(&expansion, Err(ErrorCode::IneligibleReplica));
    assert_eq!(story.appended(1, All), []);
    assert_eq!(story.ticked(LAG_MAX_MS), []);
    assert_eq!(story.ticked(1), [high_watermark(11), acknowledged(1, 10)]);
    // A fenced replica is not proposed.
    let mut story = Story::leader_with(&[1], 1);
    let Some(Effect::AlterPartition(expansion)) = story.fetched(3, 10).pop() else {
        panic!("not proposed")
    };
    story.answered(&expansion, Err(ErrorCode::IneligibleReplica));
    assert_eq!(story.appended(1, All), []);
    story.brokers[2].is_fenced = true;
    assert_eq!(
        story.brokers_changed(),
        [high_watermark(11), acknowledged(1, 10)]
    );
}

#[test]
fn a_proposal_that_met_no_controller_is_made_again() {
    let mut story = Story::leader_with(&[1, 2], 1);
    let Some(Effect::AlterPartition(expansion)) = story.fetched(3, 10).pop() else {
        panic!("not proposed")
    };
    assert_eq!(
        story.answered(&expansion, Err(ErrorCode::NotController)),
        [Effect::AlterPartition(expansion.clone())]
    );
    // Refused as outdated: the leader waits for the metadata, and 3 counts until then.
    assert_eq!(
        story.answered(&expansion, Err(ErrorCode::InvalidUpdateVersion)),
        []
    );
    story.appended(1, LeaderOnly);
    assert_eq!(story.fetched(2, 11), []);
    assert_eq!(story.fetched(3, 10), []);
    // (3 has caught up recently, so it is awaited whatever the metadata says.)
    assert_eq!(story.registered(4, 7, &[1, 2, 3]), []);
    assert_eq!(story.fetched(3, 11), [high_watermark(11)]);
}

#[test]
fn an_older_registration_is_skipped() {
    let mut story = Story::leader_with(&[1, 2], 1);
    let Some(Effect::AlterPartition(expansion)) = story.fetched(3, 10).pop() else {
        panic!("not proposed")
    };
    story.answered(&expansion, Ok(&[1, 2, 3]));
    assert_eq!(story.registered(4, 5, &[1, 2]), []);
    assert_eq!(story.replica.isr(), ids(&[1, 2, 3]));
    let deposed = Event::FollowerOf {
        leader: BrokerId(2),
        leader_epoch: LeaderEpoch(4),
        partition_epoch: PartitionEpoch(5),
        settings: ReplicaSettings {
            min_insync_replicas: 1,
            flush_messages: i64::MAX,
        },
    };
    assert_eq!(story.step(deposed), []);
    assert!(story.replica.is_leader());
}

#[test]
fn the_low_watermark_is_that_of_live_replicas() {
    let mut story = Story::leader_with(&[1, 2, 3], 1);
    assert_eq!(story.replica.low_watermark(Offset(5)), Some(Offset(-1)));
    let mut fetch = story.fetch(2, 10);
    fetch.log_start_offset = Offset(5);
    assert_eq!(story.step(Event::FollowerFetched(fetch)), []);
    let mut fetch = story.fetch(3, 10);
    fetch.log_start_offset = Offset(3);
    let moved = |offset| Effect::MoveLowWatermark {
        of_followers: Offset(offset),
    };
    assert_eq!(story.step(Event::FollowerFetched(fetch)), [moved(3)]);
    assert_eq!(story.replica.low_watermark(Offset(5)), Some(Offset(3)));
    story.brokers[2].is_fenced = true;
    assert_eq!(story.brokers_changed(), [moved(5)]);
    assert_eq!(story.replica.low_watermark(Offset(4)), Some(Offset(4)));
}

#[test]
fn consumers_may_read_from_followers_in_sync_that_have_the_offset() {
    let mut story = Story::leader_with(&[1, 2], 1);
    story.fetched(2, 8);
    story.fetched(3, 10);
    let candidates = |story: &Story, offset| {
        let candidates = story
            .replica
            .read_candidates(Offset(offset), story.now_ms + 5);
        candidates.collect::<Vec<_>>()
    };
    let second = ReadCandidate {
        broker_id: BrokerId(2),
        log_end_offset: Offset(8),
        ms_since_caught_up: 5,
    };
    assert_eq!(candidates(&story, 8), [second]);
    assert_eq!(candidates(&story, 9), []);
    assert_eq!(candidates(&story, -1), []);
}

#[test]
fn an_epoch_that_began_after_a_failed_write_begins_at_the_end() {
    let mut story = Story::leader_with(&[1], 1);
    story.step(Event::Append(Append {
        batch: batch(0, 1, -1, 0),
        required_acks: LeaderOnly,
        expected_leader_epoch: None,
        deadline_ms: u64::MAX,
        verdict: ProducerVerdict::InSequence,
        ack: 1,
    }));
    story.registered(5, 6, &[1]);
    assert_eq!(story.replica.leader_epoch_start_offset(), Some(Offset(11)));
    let refused = story.step(Event::WriteRefused {
        log_end_offset: Offset(10),
    });
    assert!(refused.contains(&Effect::AssignLeaderEpoch {
        leader_epoch: LeaderEpoch(5),
        start_offset: Offset(10)
    }));
    assert_eq!(story.replica.leader_epoch_start_offset(), Some(Offset(10)));
}
