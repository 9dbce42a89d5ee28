//! The committed offsets of a partition of `__consumer_offsets`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_coordinator::group::{
    GroupCoordinator, GroupCoordinatorConfig, Outcome, TimerChange, TimerKey,
};
use ottla_coordinator::{Coordinator, ReplyId, ReplyTo};
use ottla_protocol::messages::OffsetCommitRequest;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_types::{Timestamp, TopicId};

use crate::measure::{Row, best_of, best_time};

pub const DELETION: Row = Row {
    name: "topic-deletion",
    operation: "a commit for a topic, and the deletion of this topic at the coordinator",
    counted: "groups with offsets for other topics",
    smallest: 1_000,
    measure: deletion,
};

pub const EXPIRATION: Row = Row {
    name: "group-expiration",
    operation: "the longest step of a tick of the expiration, while nothing expires",
    counted: "groups, each with one offset",
    smallest: 3_000,
    measure: expiration,
};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const DELETIONS: u32 = 50;

fn topic_id(topic: &str) -> TopicId {
    TopicId::from_u128(1 + topic.len() as u128)
}

/// A client without a group membership commits an offset.
fn commit(coordinator: &mut GroupCoordinator, group_id: &str, topic: &str) {
    let request = OffsetCommitRequest {
        group_id: group_id.to_owned().into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.to_owned().into(),
            topic_id: topic_id(topic),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 7,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let to = ReplyTo::new(ReplyId(1));
    let outcome = coordinator.handle_offset_commit(to, request, true, NOW);
    assert!(committed(coordinator, &outcome) > 0);
}

/// Commits the writes. Returns the number of their records.
fn committed(coordinator: &mut GroupCoordinator, outcome: &Outcome) -> usize {
    for write in &outcome.writes {
        coordinator.on_records_committed(write.id, NOW);
    }
    outcome.writes.iter().map(|write| write.records.len()).sum()
}

fn with_groups(count: u64) -> GroupCoordinator {
    let mut coordinator = GroupCoordinator::new(Arc::new(GroupCoordinatorConfig::default()));
    coordinator.on_loaded(NOW);
    for group in 0..count {
        commit(&mut coordinator, &format!("group-{group:08}"), "payments");
    }
    coordinator
}

fn deletion(count: u64) -> Duration {
    let mut coordinator = with_groups(count);
    let topics = [("orders".into(), topic_id("orders"))];
    best_of(DELETIONS, || {
        for _ in 0..DELETIONS {
            commit(&mut coordinator, "group-00000500", "orders");
            let outcome = coordinator.on_topics_deleted(&topics, NOW);
            assert_eq!(committed(&mut coordinator, &outcome), 1);
        }
    })
}

fn expiration(count: u64) -> Duration {
    let mut coordinator = with_groups(count);
    best_time(|| {
        let mut longest = Duration::ZERO;
        loop {
            let began = Instant::now();
            let outcome = coordinator.on_timer(TimerKey::Expiration, NOW);
            longest = longest.max(began.elapsed());
            assert!(outcome.writes.is_empty(), "nothing expires");
            if !outcome.timers.iter().any(continues) {
                return longest;
            }
        }
    })
}

/// Whether the timer is for the next step; the next tick comes after minutes.
fn continues(change: &TimerChange) -> bool {
    matches!(change, TimerChange::Set { after_ms, .. } if *after_ms < 1_000)
}
