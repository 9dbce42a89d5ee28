//! A member of a share group (KIP-932): what it says in its heartbeats, and what it makes of the answers. Pure: time is
//! an argument, in milliseconds since some beginning.
//!
//! Members share partitions, so that nobody waits for anybody: what the coordinator assigns is read at once, and what it
//! takes away is read no more. A member that the coordinator does not know, or whose epoch is not the current one, joins
//! again with epoch 0.
//!
//! Kafka has this in `org.apache.kafka.clients.consumer.internals.ShareMembershipManager` and
//! `ShareHeartbeatRequestManager`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::ApiKey;
use ottla_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use ottla_types::{ErrorCode, Uuid};

use crate::connection::Connection;
use crate::error::ClientError;
use crate::heartbeats::{Advice, GroupMember, Refusal};

/// Joins, and is no member yet.
const JOIN_EPOCH: i32 = 0;
const LEAVE_EPOCH: i32 = -1;

/// Partitions by the ids of their topics.
pub(super) type Partitions = BTreeMap<Uuid, Vec<i32>>;

#[derive(Clone, Debug)]
pub(super) struct MemberSettings {
    pub(super) group_id: String,
    /// Drawn by the member itself, and kept as long as it lives.
    pub(super) member_id: String,
    pub(super) rack: Option<String>,
    pub(super) max_poll_interval_ms: u64,
    pub(super) retry_backoff_ms: u64,
    pub(super) retry_backoff_max_ms: u64,
}

#[derive(Debug)]
pub(super) struct Member {
    settings: MemberSettings,
    topics: BTreeSet<String>,
    /// As the last heartbeat said; what has not changed is not said again.
    said_topics: Option<BTreeSet<String>>,
    /// 0 until the coordinator has given one.
    epoch: i32,
    assignment: Partitions,
    heartbeat_interval_ms: u64,
    next_heartbeat_at: u64,
    is_in_flight: bool,
    /// Something was said, answered or not, since it last left.
    may_be_known: bool,
    failures: u32,
    /// By then the owner has to poll, or the member leaves until it does.
    poll_by: u64,
    is_refused: bool,
}

impl Member {
    pub(super) fn new(settings: MemberSettings) -> Member {
        Member {
            settings,
            topics: BTreeSet::new(),
            said_topics: None,
            epoch: JOIN_EPOCH,
            assignment: Partitions::new(),
            heartbeat_interval_ms: 0,
            next_heartbeat_at: 0,
            is_in_flight: false,
            may_be_known: false,
            failures: 0,
            poll_by: 0,
            is_refused: false,
        }
    }

    /// What it may read; nothing while it is no member.
    pub(super) fn assignment(&self) -> &Partitions {
        &self.assignment
    }

    pub(super) fn subscribe(&mut self, topics: BTreeSet<String>) {
        if self.topics != topics {
            self.topics = topics;
            self.next_heartbeat_at = 0;
        }
    }

    fn request(&self, epoch: i32) -> ShareGroupHeartbeatRequest {
        ShareGroupHeartbeatRequest {
            group_id: self.settings.group_id.clone().into(),
            member_id: self.settings.member_id.clone().into(),
            member_epoch: epoch,
            ..Default::default()
        }
    }

    fn join_again(&mut self, at: u64) {
        self.epoch = JOIN_EPOCH;
        self.said_topics = None;
        self.assignment = Partitions::new();
        self.next_heartbeat_at = at;
    }
}

impl GroupMember for Member {
    type Request = ShareGroupHeartbeatRequest;

    fn next_heartbeat(&mut self, now: u64) -> Option<ShareGroupHeartbeatRequest> {
        if self.is_in_flight || self.is_refused {
            return None;
        }
        if now >= self.poll_by || self.topics.is_empty() {
            // What is lost on the way expires by itself.
            return self.leave();
        }
        if now < self.next_heartbeat_at {
            return None;
        }
        (self.is_in_flight, self.may_be_known) = (true, true);
        let is_news = self.said_topics.as_ref() != Some(&self.topics);
        self.said_topics = Some(self.topics.clone());
        let names = || {
            self.topics
                .iter()
                .map(|topic| topic.clone().into())
                .collect()
        };
        Some(ShareGroupHeartbeatRequest {
            rack_id: match self.epoch {
                JOIN_EPOCH => self.settings.rack.clone().map(Into::into),
                _ => None,
            },
            subscribed_topic_names: (is_news || self.epoch == JOIN_EPOCH).then(names),
            ..self.request(self.epoch)
        })
    }

    fn wakes_at(&self) -> Option<u64> {
        let is_asleep = self.is_in_flight
            || self.is_refused
            || self.topics.is_empty()
            || (self.epoch == JOIN_EPOCH && self.poll_by == 0);
        (!is_asleep).then(|| self.next_heartbeat_at.min(self.poll_by))
    }

    fn on_polled(&mut self, now: u64) {
        self.poll_by = now.saturating_add(self.settings.max_poll_interval_ms);
    }

    fn on_answered(&mut self, now: u64, response: &ShareGroupHeartbeatResponse) -> Advice {
        let code = ErrorCode::from_code(response.error_code);
        match code {
            ErrorCode::None => {}
            ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId => {
                self.is_in_flight = false;
                self.join_again(now.saturating_add(self.settings.retry_backoff_ms));
                return Advice::Nothing;
            }
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
                self.on_failed(now);
                return Advice::FindCoordinator;
            }
            _ if code.is_retriable() => {
                self.on_failed(now);
                return Advice::Nothing;
            }
            // It stays what it is, for the case that it is authorized later.
            ErrorCode::TopicAuthorizationFailed => {
                self.on_failed(now);
                return tell(code, response);
            }
            _ => {
                self.on_refused();
                return tell(code, response);
            }
        }
        self.is_in_flight = false;
        self.failures = 0;
        if response.member_epoch <= 0 {
            // The answer to its leaving.
            return Advice::Nothing;
        }
        self.epoch = response.member_epoch;
        self.heartbeat_interval_ms = u64::try_from(response.heartbeat_interval_ms).unwrap_or(0);
        let is_news = self.said_topics.as_ref() != Some(&self.topics);
        self.next_heartbeat_at = match is_news {
            true => now,
            false => now.saturating_add(self.heartbeat_interval_ms),
        };
        if let Some(assignment) = &response.assignment {
            let topics = assignment.topic_partitions.iter();
            self.assignment = topics
                .map(|topic| (topic.topic_id, topic.partitions.clone()))
                .collect();
        }
        Advice::Nothing
    }

    fn on_failed(&mut self, now: u64) {
        self.is_in_flight = false;
        // Nobody knows whether it was heard.
        self.said_topics = None;
        let backoff = self.settings.retry_backoff_ms << self.failures.min(16);
        let backoff = backoff.min(self.settings.retry_backoff_max_ms);
        self.failures += 1;
        self.next_heartbeat_at = now.saturating_add(backoff);
    }

    fn on_refused(&mut self) {
        self.is_in_flight = false;
        self.is_refused = true;
        self.assignment = Partitions::new();
    }

    fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The last heartbeat, if the coordinator may know of it: of a join that was not answered it may. It joins again with
    /// the next poll.
    fn leave(&mut self) -> Option<ShareGroupHeartbeatRequest> {
        self.join_again(0);
        self.poll_by = 0;
        std::mem::take(&mut self.may_be_known).then(|| self.request(LEAVE_EPOCH))
    }

    fn check_served(
        connection: &Connection,
        _request: &ShareGroupHeartbeatRequest,
    ) -> Result<(), ClientError> {
        let version = connection.version(ApiKey::ShareGroupHeartbeat);
        version.map(drop).map_err(|error| {
            ClientError::Config(format!(
                "share groups: {error}; the cluster has them from share.version=1 on"
            ))
        })
    }

    fn refused(group: &str, refusal: &Refusal) -> ClientError {
        let what = format!("joining share group {group}");
        ClientError::broker(what, refusal.code.code(), Some(&refusal.message))
    }
}

fn tell(code: ErrorCode, response: &ShareGroupHeartbeatResponse) -> Advice {
    let message = response.error_message.as_deref().unwrap_or_default();
    let message = message.to_owned();
    Advice::Tell(Refusal { code, message })
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};

    use super::*;

    const TOPIC: Uuid = Uuid::from_u128(7);

    fn member() -> Member {
        let mut member = Member::new(MemberSettings {
            group_id: "g".into(),
            member_id: "m".into(),
            rack: Some("r".into()),
            max_poll_interval_ms: 10_000,
            retry_backoff_ms: 100,
            retry_backoff_max_ms: 1_000,
        });
        member.subscribe(BTreeSet::from(["t".to_owned()]));
        member
    }

    fn joined() -> Member {
        let mut member = member();
        member.on_polled(0);
        member.next_heartbeat(0).expect("it joins");
        let partitions = TopicPartitions {
            topic_id: TOPIC,
            partitions: vec![0, 2],
            ..Default::default()
        };
        let assignment = Assignment {
            topic_partitions: vec![partitions],
            ..Default::default()
        };
        let answer = ShareGroupHeartbeatResponse {
            assignment: Some(assignment),
            ..answer(3)
        };
        assert_eq!(member.on_answered(0, &answer), Advice::Nothing);
        member
    }

    fn answer(epoch: i32) -> ShareGroupHeartbeatResponse {
        ShareGroupHeartbeatResponse {
            member_epoch: epoch,
            heartbeat_interval_ms: 5_000,
            ..Default::default()
        }
    }

    fn refusal(code: ErrorCode) -> ShareGroupHeartbeatResponse {
        ShareGroupHeartbeatResponse {
            error_code: code.code(),
            error_message: Some("why".into()),
            ..Default::default()
        }
    }

    #[test]
    fn it_joins_with_the_first_poll_and_says_things_once() {
        let mut silent = member();
        assert_eq!(silent.next_heartbeat(0), None);
        silent.on_polled(0);
        let join = silent.next_heartbeat(0).expect("it joins");
        assert_eq!((join.member_epoch, join.rack_id.as_deref()), (0, Some("r")));
        assert!(join.subscribed_topic_names.is_some());

        let mut member = joined();
        assert_eq!(member.assignment()[&TOPIC], [0, 2]);
        assert_eq!(member.wakes_at(), Some(5_000));
        assert_eq!(member.next_heartbeat(4_999), None);
        let next = member.next_heartbeat(5_000).expect("it is alive");
        assert_eq!((next.member_epoch, next.subscribed_topic_names), (3, None));
        assert_eq!(member.next_heartbeat(5_001), None, "one at a time");
        // An answer without an assignment changes nothing of it.
        member.on_answered(5_001, &answer(3));
        assert_eq!(member.assignment().len(), 1);
        member.subscribe(BTreeSet::from(["u".to_owned()]));
        let other = member.next_heartbeat(5_002).expect("it wants others");
        assert!(other.subscribed_topic_names.is_some());
    }

    #[test]
    fn one_that_is_fenced_joins_again_with_nothing() {
        for code in [ErrorCode::FencedMemberEpoch, ErrorCode::UnknownMemberId] {
            let mut member = joined();
            member.next_heartbeat(5_000).expect("it is alive");
            assert_eq!(member.on_answered(5_000, &refusal(code)), Advice::Nothing);
            assert!(member.assignment().is_empty());
            let join = member.next_heartbeat(5_100).expect("it joins again");
            assert_eq!(join.member_epoch, 0);
            assert!(join.subscribed_topic_names.is_some());
        }
    }

    #[test]
    fn what_fails_is_tried_again_at_growing_distances() {
        let mut member = joined();
        member.next_heartbeat(5_000).expect("it is alive");
        member.on_failed(5_000);
        assert_eq!(member.wakes_at(), Some(5_100));
        member.next_heartbeat(5_100).expect("again");
        let moved = refusal(ErrorCode::NotCoordinator);
        assert_eq!(member.on_answered(5_100, &moved), Advice::FindCoordinator);
        assert_eq!(member.wakes_at(), Some(5_300));
        assert!(!member.assignment().is_empty(), "it is a member still");
    }

    #[test]
    fn one_that_is_refused_says_no_more() {
        let mut member = joined();
        member.next_heartbeat(5_000).expect("it is alive");
        let told = member.on_answered(5_000, &refusal(ErrorCode::GroupAuthorizationFailed));
        assert_eq!(
            told,
            Advice::Tell(Refusal {
                code: ErrorCode::GroupAuthorizationFailed,
                message: "why".into(),
            })
        );
        assert!(member.is_refused() && member.next_heartbeat(60_000).is_none());
    }

    #[test]
    fn one_that_may_not_see_its_topics_says_so_and_asks_again() {
        let mut member = joined();
        member.next_heartbeat(5_000).expect("it is alive");
        let told = member.on_answered(5_000, &refusal(ErrorCode::TopicAuthorizationFailed));
        assert!(matches!(told, Advice::Tell(_)), "{told:?}");
        assert!(!member.is_refused());
        let again = member.next_heartbeat(5_100).expect("it asks again");
        assert_eq!(again.member_epoch, 3);
    }

    #[test]
    fn one_that_leaves_while_it_joins_says_that_it_leaves() {
        let mut silent = member();
        assert_eq!(silent.leave(), None, "nobody knows of it");

        let mut joining = member();
        joining.on_polled(0);
        joining.next_heartbeat(0).expect("it joins");
        assert_eq!(joining.leave().map(|it| it.member_epoch), Some(-1));
        assert_eq!(joining.leave(), None);

        let mut unheard = member();
        unheard.on_polled(0);
        unheard.next_heartbeat(0).expect("it joins");
        unheard.on_failed(0);
        assert_eq!(unheard.leave().map(|it| it.member_epoch), Some(-1));
    }

    #[test]
    fn one_whose_owner_is_away_leaves_until_it_is_back() {
        let mut member = joined();
        let leave = member.next_heartbeat(10_000).expect("nobody polled");
        assert_eq!(leave.member_epoch, -1);
        assert!(member.assignment().is_empty());
        assert_eq!(
            (member.next_heartbeat(20_000), member.wakes_at()),
            (None, None)
        );
        member.on_polled(20_000);
        assert_eq!(
            member.next_heartbeat(20_000).map(|it| it.member_epoch),
            Some(0)
        );
        assert!(joined().leave().is_some());
    }
}
