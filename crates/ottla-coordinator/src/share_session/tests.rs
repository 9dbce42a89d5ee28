//! Share sessions, in scripted and in random tests.

use ottla_types::{ErrorCode, PartitionIndex, TopicIdPartition, Uuid};

use super::{
    ConnectionId, Disconnected, FINAL_EPOCH, FetchRequest, INITIAL_EPOCH, SessionFetch,
    ShareSessionKey, ShareSessions, rotate,
};

fn key(member: &'static str) -> ShareSessionKey {
    ShareSessionKey {
        group_id: "g".into(),
        member_id: member.into(),
    }
}

fn partitions(indexes: &[i32]) -> Vec<TopicIdPartition> {
    let partition = |index: &i32| TopicIdPartition {
        topic_id: Uuid::from_u128(9),
        partition: PartitionIndex(*index),
    };
    indexes.iter().map(partition).collect()
}

struct Story(ShareSessions);

impl Story {
    fn fetch(
        &mut self,
        member: &'static str,
        epoch: i32,
        added: &[i32],
        forgotten: &[i32],
    ) -> Result<SessionFetch, ErrorCode> {
        let connection = ConnectionId(u64::from(member.as_bytes()[0]));
        let (added, forgotten) = (partitions(added), partitions(forgotten));
        let request = FetchRequest {
            epoch,
            added: &added,
            forgotten: &forgotten,
            has_acknowledgements: false,
            connection,
        };
        self.0.begin_fetch(&key(member), request)
    }

    fn reads(&mut self, member: &'static str, epoch: i32) -> Vec<i32> {
        match self.fetch(member, epoch, &[], &[]) {
            Ok(SessionFetch::Subsequent(read)) => read.iter().map(|p| p.partition.0).collect(),
            other => panic!("{other:?}"),
        }
    }
}

/// The first request of a session, without partitions.
fn first(connection: u64) -> FetchRequest<'static> {
    FetchRequest {
        epoch: INITIAL_EPOCH,
        added: &[],
        forgotten: &[],
        has_acknowledgements: false,
        connection: ConnectionId(connection),
    }
}

fn story() -> Story {
    Story(ShareSessions::new(2))
}

#[test]
fn a_session_is_begun_gone_on_with_and_ended() {
    let mut story = story();
    assert_eq!(
        story.fetch("a", 1, &[], &[]),
        Err(ErrorCode::ShareSessionNotFound)
    );
    assert_eq!(
        story.fetch("a", FINAL_EPOCH, &[], &[]),
        Err(ErrorCode::ShareSessionNotFound)
    );
    assert_eq!(
        story.fetch("a", INITIAL_EPOCH, &[0, 1], &[]),
        Ok(SessionFetch::Initial)
    );
    assert_eq!(
        story.fetch("a", 2, &[], &[]),
        Err(ErrorCode::InvalidShareSessionEpoch)
    );
    assert_eq!(story.reads("a", 1), [0, 1]);
    let read = story.fetch("a", 2, &[2, 1], &[0, 7]);
    assert_eq!(read, Ok(SessionFetch::Subsequent(partitions(&[1, 2]))));
    assert_eq!(story.0.begin_acknowledge(&key("a"), 3), Ok(()));
    assert_eq!(
        story.fetch("a", FINAL_EPOCH, &[], &[]),
        Ok(SessionFetch::Final)
    );
    assert_eq!(story.0.partitions(), 2);
    assert_eq!(story.0.end(&key("a")), Some(partitions(&[1, 2])));
    assert_eq!(story.0.end(&key("a")), None);
    assert!(story.0.is_empty());
}

#[test]
fn acknowledging_needs_a_session_and_its_epoch() {
    let mut story = story();
    let acknowledge = |story: &mut Story, epoch| story.0.begin_acknowledge(&key("a"), epoch);
    assert_eq!(
        acknowledge(&mut story, INITIAL_EPOCH),
        Err(ErrorCode::InvalidShareSessionEpoch)
    );
    assert_eq!(
        acknowledge(&mut story, 1),
        Err(ErrorCode::ShareSessionNotFound)
    );
    story
        .fetch("a", INITIAL_EPOCH, &[0], &[])
        .expect("there is room");
    assert_eq!(
        acknowledge(&mut story, 2),
        Err(ErrorCode::InvalidShareSessionEpoch)
    );
    assert_eq!(acknowledge(&mut story, 1), Ok(()));
    assert_eq!(acknowledge(&mut story, FINAL_EPOCH), Ok(()));
    assert_eq!(acknowledge(&mut story, 2), Ok(()));
    let with_acknowledgements = FetchRequest {
        has_acknowledgements: true,
        ..first(1)
    };
    let refused = story.0.begin_fetch(&key("b"), with_acknowledgements);
    assert_eq!(refused, Err(ErrorCode::InvalidRequest));
}

#[test]
fn the_number_of_sessions_is_limited() {
    let mut story = story();
    for member in ["a", "b", "a"] {
        assert_eq!(
            story.fetch(member, INITIAL_EPOCH, &[0], &[]),
            Ok(SessionFetch::Initial)
        );
    }
    let full = story.fetch("c", INITIAL_EPOCH, &[0], &[]);
    assert_eq!(full, Err(ErrorCode::ShareSessionLimitReached));
}

#[test]
fn a_partition_is_in_the_response_only_if_it_has_news() {
    let mut story = story();
    story
        .fetch("a", INITIAL_EPOCH, &[0, 1, 2], &[])
        .expect("there is room");
    story.fetch("a", 1, &[3], &[]).expect("it is the next");
    let mut tell = |partition: i32, has_records, has_error| {
        story.0.must_tell(
            &key("a"),
            &partitions(&[partition])[0],
            has_records,
            has_error,
        )
    };
    assert!(!tell(0, false, false));
    assert!(tell(3, false, false));
    assert!(!tell(3, false, false));
    assert!(tell(1, false, true));
    assert!(tell(1, false, false));
    assert!(!tell(1, false, false));
    assert!(tell(0, true, false));
    assert!(tell(8, false, false));
    // The partition with records has moved to the end.
    assert_eq!(story.reads("a", 2), [1, 2, 3, 0]);
}

#[test]
fn a_connection_takes_its_session_along() {
    let mut story = story();
    story
        .fetch("a", INITIAL_EPOCH, &[0], &[])
        .expect("there is room");
    story
        .fetch("b", INITIAL_EPOCH, &[1], &[])
        .expect("there is room");
    let (a, b) = (ConnectionId(u64::from(b'a')), ConnectionId(u64::from(b'b')));
    let ended = |member, partitions| Disconnected {
        sessions: vec![(key(member), partitions)],
        left_group: None,
    };
    let sessions = &mut story.0;
    assert_eq!(sessions.on_disconnected(a), ended("a", partitions(&[0])));
    assert_eq!(sessions.on_disconnected(a), Disconnected::default());
    // The session was closed and restarted on another connection, so the old connection does not
    // end it.
    let begun = sessions.begin_fetch(&key("b"), first(5));
    assert_eq!(begun, Ok(SessionFetch::Initial));
    let left = Disconnected {
        sessions: vec![],
        left_group: Some("g".into()),
    };
    assert_eq!(sessions.on_disconnected(b), left);
    assert_eq!(sessions.len(), 1);
    assert_eq!(
        sessions.on_disconnected(ConnectionId(5)),
        ended("b", vec![])
    );
}

#[test]
fn a_connection_takes_the_sessions_of_all_its_members_along() {
    let mut sessions = ShareSessions::new(10);
    for member in ["a", "b", "c", "a"] {
        let begun = sessions.begin_fetch(&key(member), first(1));
        assert_eq!(begun, Ok(SessionFetch::Initial));
    }
    let begun = sessions.begin_fetch(&key("d"), first(2));
    assert_eq!(begun, Ok(SessionFetch::Initial));
    assert_eq!(sessions.end(&key("b")), Some(vec![]));
    let ended = Disconnected {
        sessions: ["a", "c"]
            .map(|member| (key(member), partitions(&[])))
            .into(),
        left_group: Some("g".into()),
    };
    assert_eq!(sessions.on_disconnected(ConnectionId(1)), ended);
    assert_eq!(sessions.len(), 1, "the one on the other connection");
}

/// Otherwise a client could make a connection remember any number of groups.
#[test]
fn a_connection_keeps_one_group_that_its_members_have_left() {
    let mut sessions = ShareSessions::new(10);
    let of_group = |group: &'static str| ShareSessionKey {
        group_id: group.into(),
        ..key("a")
    };
    for (group, is_closed) in [("g", false), ("h", true), ("i", true), ("g", false)] {
        let begun = sessions.begin_fetch(&of_group(group), first(1));
        assert_eq!(begun, Ok(SessionFetch::Initial));
        assert_eq!(sessions.end(&of_group(group)), Some(vec![]));
        sessions.on_released(group);
        assert_eq!(sessions.take_abandoned(group), is_closed, "{group}");
    }
    assert!(sessions.groups.is_empty());
    let ended = sessions.on_disconnected(ConnectionId(1));
    assert_eq!(ended.left_group, Some("g".into()));
    assert!(sessions.take_abandoned("g"));
    assert!(sessions.groups.is_empty() && sessions.by_connection.is_empty());
}

#[test]
fn a_group_is_abandoned_when_the_last_release_has_ended() {
    let mut sessions = ShareSessions::new(10);
    let (a, b) = (ConnectionId(1), ConnectionId(2));
    let begin = |sessions: &mut ShareSessions, member, connection: ConnectionId| {
        let begun = sessions.begin_fetch(&key(member), first(connection.0));
        assert_eq!(begun, Ok(SessionFetch::Initial));
    };
    begin(&mut sessions, "a", a);
    begin(&mut sessions, "b", b);
    // A member that leaves and keeps its connection abandons nothing.
    sessions.end(&key("a"));
    sessions.on_released("g");
    assert!(!sessions.take_abandoned("g"));
    begin(&mut sessions, "a", a);
    sessions.on_disconnected(a);
    assert!(!sessions.take_abandoned("g"), "b is a member");
    sessions.on_disconnected(b);
    sessions.on_released("g");
    assert!(!sessions.take_abandoned("g"), "a release is in progress");
    sessions.on_released("g");
    assert!(sessions.take_abandoned("g"));
    assert!(!sessions.take_abandoned("g"), "it was closed");
    // A member that comes back in time keeps the share partitions open.
    begin(&mut sessions, "a", a);
    sessions.on_disconnected(a);
    begin(&mut sessions, "a", b);
    sessions.on_released("g");
    assert!(!sessions.take_abandoned("g"));
}

#[test]
fn each_partition_is_first_in_its_turn() {
    let mut order = partitions(&[0, 1, 2]);
    for (epoch, expected) in [
        (0, [0, 1, 2]),
        (-1, [0, 1, 2]),
        (1, [1, 2, 0]),
        (2, [0, 1, 2]),
    ] {
        rotate(&mut order, epoch);
        assert_eq!(order, partitions(&expected), "{epoch}");
    }
    rotate(&mut [], 3);
}

#[test]
fn a_member_is_connected_while_it_has_a_session() {
    let mut random = 0x5851_f42d_4c95_7f2d_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut sessions = ShareSessions::new(3);
    let mut releasing = 0;
    for _ in 0..20_000 {
        let member = key(["a", "b", "c", "d"][below(4) as usize]);
        let connection = ConnectionId(below(5));
        match below(6) {
            0 | 1 => {
                let epoch = below(3) as i32;
                let added = partitions(&[below(4) as i32]);
                let request = FetchRequest {
                    epoch,
                    added: &added,
                    connection,
                    ..first(0)
                };
                let _ = sessions.begin_fetch(&member, request);
            }
            2 => releasing += usize::from(sessions.end(&member).is_some()),
            3 => {
                let ended = sessions.on_disconnected(connection);
                releasing += ended.sessions.len();
            }
            4 if releasing > 0 => {
                sessions.on_released("g");
                releasing -= 1;
                let is_in_use = releasing > 0 || !sessions.is_empty();
                assert!(!sessions.take_abandoned("g") || !is_in_use);
            }
            _ => {
                let partition = partitions(&[below(4) as i32])[0];
                sessions.must_tell(&member, &partition, below(2) == 0, below(2) == 0);
            }
        }
        let members = sessions.groups.values().map(|group| group.members);
        assert_eq!(members.sum::<usize>(), sessions.len());
        let connections = sessions.by_connection.values();
        let of_connections = connections.map(|connection| connection.sessions.len());
        assert_eq!(of_connections.sum::<usize>(), sessions.len());
        assert!(sessions.len() <= 3 && sessions.by_connection.len() <= 5);
    }
}

#[test]
fn the_first_session_of_a_group_is_known() {
    let mut story = Story(ShareSessions::new(10));
    let group_id = key("m").group_id;
    assert!(!story.0.has_one_session(&group_id));
    assert_eq!(story.fetch("m", 0, &[0], &[]), Ok(SessionFetch::Initial));
    assert!(story.0.has_one_session(&group_id));
    assert_eq!(story.fetch("n", 0, &[0], &[]), Ok(SessionFetch::Initial));
    assert!(!story.0.has_one_session(&group_id));
    assert!(story.0.end(&key("m")).is_some());
    assert!(story.0.has_one_session(&group_id));
}
