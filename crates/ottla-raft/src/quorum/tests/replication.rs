use super::*;

fn fetch_answer(story: &Story) -> &FetchResponse {
    match story.answer() {
        Response::Fetch(response) => response,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_parked_fetch_is_answered_once_when_the_log_grows() {
    let mut story = Story::of_three().into_active_leader();
    let end = story.quorum.log_end();
    let known = |story: &Story| story.quorum.high_watermark().expect("is active");
    let request = |story: &Story, from, end| {
        let Request::Fetch(mut request) = fetch(from, end, 4) else {
            unreachable!();
        };
        request.high_watermark = known(story);
        Request::Fetch(request)
    };
    let waits = request(&story, 3, end);
    assert_eq!(story.request(waits), []);
    story.step(Event::LogAppended {
        end_offset: end.offset.plus(2),
    });
    let records = FetchData::ReadFrom {
        offset: end.offset,
        max_bytes: 1000,
    };
    assert_eq!(fetch_answer(&story).data, records);
    // Unflushed records do not count towards the majority.
    let next = log_end(end.offset.value() + 2, 4);
    story.request(fetch(3, next, 4));
    assert_eq!(known(&story), end.offset);
    story.flush();
    assert_eq!(known(&story), next.offset);
    let waits = request(&story, 2, next);
    assert_eq!(story.request(waits), []);
    story.after(500);
    assert_eq!(fetch_answer(&story).data, FetchData::Empty);
    assert_eq!(story.after(500), []);
}

#[test]
fn parked_fetches_fail_when_the_leadership_is_lost() {
    let mut story = Story::of_three().into_leader();
    let end = story.quorum.log_end();
    assert_eq!(story.request(fetch(3, end, 4)), []);
    let epoch = story.quorum.epoch();
    story.step(Event::ResignRequested { epoch });
    assert_eq!(fetch_answer(&story).error, ErrorCode::NotLeaderOrFollower);
}

#[test]
fn invalid_fetches_are_refused() {
    let mut story = Story::of_three().into_leader();
    for (from, end, epoch, error) in [
        (3, log_end(-1, 3), 4, ErrorCode::InvalidRequest),
        (3, log_end(1, 5), 4, ErrorCode::InvalidRequest),
        (3, log_end(1, 3), 3, ErrorCode::FencedLeaderEpoch),
        (3, log_end(1, 3), 5, ErrorCode::UnknownLeaderEpoch),
        (1, log_end(1, 3), 4, ErrorCode::UnknownServerError),
    ] {
        story.request(fetch(from, end, epoch));
        assert_eq!(fetch_answer(&story).error, error);
    }
    story.request(fetch(3, log_end(12, 3), 4));
    assert_eq!(
        fetch_answer(&story).data,
        FetchData::Diverging(log_end(10, 3))
    );
}

#[test]
fn a_follower_appends_flushes_and_fetches_again() {
    let mut story = Story::of_three().into_follower();
    let batches = FetchData::Batches(vec![batch(10, 12, 3), batch(13, 13, 4)]);
    let effects = story.response(2, fetched(2, 4, batches, Some(12))).to_vec();
    assert_eq!(
        effects[..2],
        [
            Effect::AppendFetched {
                end_offset: Offset(14),
                flush: true
            },
            Effect::AdvanceHighWatermark(Offset(12)),
        ]
    );
    assert!(
        matches!(&effects[2], Effect::Send { request: Request::Fetch(request), .. }
        if request.log_end == log_end(14, 4))
    );
    assert_eq!(effects.len(), 3);
}

#[test]
fn batches_that_do_not_continue_the_log_are_not_appended() {
    for batches in [
        vec![batch(9, 12, 3)],
        vec![batch(11, 12, 3)],
        vec![batch(10, 9, 3)],
        vec![batch(10, 12, 2)],
        vec![batch(10, i64::MAX, 3)],
    ] {
        let mut story = Story::of_three().into_follower();
        let effects = story
            .response(2, fetched(2, 4, FetchData::Batches(batches), None))
            .to_vec();
        assert!(matches!(effects[0], Effect::Report { .. }), "{effects:?}");
        assert_eq!(story.quorum.log_end(), log_end(10, 3));
    }
    // An epoch that is not known yet: later.
    let mut story = Story::of_three().into_follower();
    let batches = FetchData::Batches(vec![batch(10, 10, 4), batch(11, 11, 5)]);
    story.response(2, fetched(2, 4, batches, None));
    assert_eq!(story.quorum.log_end(), log_end(11, 4));
}

#[test]
fn a_voter_set_applies_from_its_append_until_a_truncation() {
    let mut story = Story::of_three().into_follower();
    let mut with_voters = batch(10, 10, 4);
    let record = ControlRecord::Voters(voters(&[1, 2, 3, 5]).to_record());
    with_voters.control_records.push((Offset(10), record));
    let data = FetchData::Batches(vec![with_voters]);
    story.response(2, fetched(2, 4, data, Some(10)));
    assert_eq!(story.quorum.voters(), &voters(&[1, 2, 3, 5]));
    let diverging = FetchData::Diverging(log_end(10, 3));
    let effects = story.response(2, fetched(2, 4, diverging, None)).to_vec();
    assert_eq!(
        effects[0],
        Effect::TruncateLog {
            end_offset: Offset(10)
        }
    );
    assert_eq!(story.quorum.voters(), &voters(&[1, 2, 3]));
    let committed = FetchData::Diverging(log_end(9, 3));
    let effects = story.response(2, fetched(2, 4, committed, None)).to_vec();
    assert!(matches!(effects[0], Effect::Report { .. }));
    assert_eq!(story.quorum.log_end(), log_end(10, 3));
}

#[test]
fn invalid_control_records_are_ignored() {
    let mut story = Story::of_three().into_follower();
    let mut damaged = batch(10, 10, 4);
    let record = ControlRecord::Voters(Default::default());
    damaged.control_records.push((Offset(10), record));
    let data = FetchData::Batches(vec![damaged]);
    let effects = story.response(2, fetched(2, 4, data, Some(10))).to_vec();
    assert!(matches!(effects[0], Effect::Report { .. }));
    assert_eq!(story.quorum.log_end(), log_end(10, 3));
    assert_eq!(story.quorum.voters(), &voters(&[1, 2, 3]));
}

#[test]
fn a_snapshot_is_fetched_in_parts() {
    let id = SnapshotId {
        end_offset: Offset(50),
        epoch: LeaderEpoch(4),
    };
    let part = |position, length_bytes| {
        Response::FetchSnapshot(FetchSnapshotResponse {
            error: ErrorCode::None,
            current_leader: led_by(Some(2), 4),
            snapshot: Some(id),
            size_bytes: 100,
            position,
            length_bytes,
        })
    };
    let mut story = Story::of_three().into_follower();
    let effects = story
        .response(2, fetched(2, 4, FetchData::Snapshot(id), None))
        .to_vec();
    assert_eq!(effects[0], Effect::CreateSnapshot(id));
    let effects = story.response(2, part(0, 60)).to_vec();
    assert!(
        matches!(&effects[1], Effect::Send { request: Request::FetchSnapshot(request), .. }
        if request.position == 60)
    );
    let effects = story.response(2, part(60, 40)).to_vec();
    assert_eq!(
        effects[..2],
        [
            Effect::AppendSnapshot {
                snapshot: id,
                position: 60,
                length_bytes: 40
            },
            Effect::InstallSnapshot(id),
        ]
    );
    let effects = story
        .step(Event::SnapshotInstalled {
            snapshot: id,
            kraft_version: KRaftVersion::V1,
            voters: Some(voters(&[1, 2])),
        })
        .to_vec();
    assert_eq!(effects[0], Effect::AdvanceHighWatermark(Offset(50)));
    assert_eq!(story.quorum.log_end(), log_end(50, 4));
    assert_eq!(story.quorum.voters(), &voters(&[1, 2]));

    // A part that does not continue the download or exceeds the size is refused.
    for bad in [part(10, 20), part(0, 101), part(0, 0), part(0, i64::MAX)] {
        let mut story = Story::of_three().into_follower();
        story.response(2, fetched(2, 4, FetchData::Snapshot(id), None));
        let effects = story.response(2, bad).to_vec();
        assert!(matches!(effects[0], Effect::Report { .. }), "{effects:?}");
    }
}

#[test]
fn a_leader_offers_its_snapshot_to_an_empty_replica() {
    let mut story = Story::of_three().into_active_leader();
    let id = SnapshotId {
        end_offset: Offset(8),
        epoch: LeaderEpoch(3),
    };
    story.step(Event::SnapshotsChanged {
        snapshots: vec![id],
        log_start_offset: Offset(8),
    });
    story.request(fetch(3, log_end(0, 0), 4));
    assert_eq!(fetch_answer(&story).data, FetchData::Snapshot(id));
    let request = |snapshot, position| {
        Request::FetchSnapshot(FetchSnapshotRequest {
            replica: key(3),
            current_leader_epoch: LeaderEpoch(4),
            snapshot,
            position,
            max_bytes: 100,
        })
    };
    let unknown = SnapshotId {
        end_offset: Offset(9),
        ..id
    };
    for (snapshot, position, error) in [
        (id, 0, ErrorCode::None),
        (id, -1, ErrorCode::PositionOutOfRange),
        (unknown, 0, ErrorCode::SnapshotNotFound),
        (SnapshotId::BOOTSTRAP, 0, ErrorCode::SnapshotNotFound),
    ] {
        story.request(request(snapshot, position));
        let Response::FetchSnapshot(response) = story.answer() else {
            panic!("another answer");
        };
        assert_eq!(response.error, error);
    }
}

#[test]
fn a_leader_without_followers_resigns() {
    let mut story = Story::of_three().into_active_leader();
    story.after(2_999);
    assert!(story.quorum.is_active_leader());
    story.after(1);
    assert_eq!(story.quorum.role(), Role::Resigned);
    assert!(
        story
            .effects
            .contains(&Effect::DeactivateLeader(LeaderEpoch(4)))
    );
}

#[test]
fn a_node_asks_a_bootstrap_server_for_the_leader() {
    let mut story = Story::begin(options(7, &[2, 3]));
    // While the response is awaited, nothing is due now or at the election timeout.
    assert_eq!(story.quorum.wake_at_ms(), story.now_ms + 2_000);
    story.after(1_999);
    assert_eq!(story.quorum.wake_at_ms(), story.now_ms + 1);
    let (to, _, request) = story.sent[0].clone();
    assert_eq!(to, Quorum::bootstrap_id(0));
    assert!(matches!(request, Request::Fetch(_)));
    let response = Response::Fetch(FetchResponse {
        error: ErrorCode::FencedLeaderEpoch,
        current_leader: led_by(Some(3), 6),
        log_start_offset: Offset(0),
        high_watermark: None,
        data: FetchData::Empty,
    });
    story.response(to.value(), response);
    assert_eq!(story.quorum.leader(), Some(BrokerId(3)));
    assert_eq!(story.sent[1].0, BrokerId(3));
    // It does not respond: the bootstrap server is asked for another leader.
    story.after(2_000);
    assert_eq!(story.sent[2].0, Quorum::bootstrap_id(0));
    assert_eq!(
        story.quorum.role(),
        Role::Follower,
        "an observer holds no election"
    );
}

#[test]
fn a_server_without_a_leader_is_asked_again_after_the_backoff() {
    let mut story = Story::begin(options(7, &[2, 3]));
    let bootstrap = Quorum::bootstrap_id(0);
    let retry_backoff_ms = QuorumConfig::default().retry_backoff_ms;
    let refusals = [
        (ErrorCode::FencedLeaderEpoch, 3),
        (ErrorCode::NotLeaderOrFollower, 3),
        (ErrorCode::UnknownLeaderEpoch, 2),
    ];
    for (asked, (error, epoch)) in (1..).zip(refusals) {
        assert_eq!(story.sent.len(), asked);
        assert_eq!(story.sent[asked - 1].0, bootstrap);
        let response = FetchResponse {
            error,
            current_leader: led_by(None, epoch),
            log_start_offset: Offset(0),
            high_watermark: None,
            data: FetchData::Empty,
        };
        let effects = story.response(bootstrap.value(), Response::Fetch(response));
        assert_eq!(effects, [], "{error:?}");
        assert_eq!(story.quorum.wake_at_ms(), story.now_ms + retry_backoff_ms);
        story.after(retry_backoff_ms);
    }
}
