use super::*;

fn add(id: i32, ack_when_committed: bool) -> Request {
    Request::AddVoter(AddVoterRequest {
        voter: key(id),
        endpoints: endpoints(id),
        ack_when_committed,
    })
}

fn remove(id: i32) -> Request {
    Request::RemoveVoter(RemoveVoterRequest { voter: key(id) })
}

fn supports(range: Option<(i16, i16)>) -> Response {
    Response::ApiVersions(ApiVersionsResponse {
        error: ErrorCode::None,
        kraft_versions: range,
    })
}

fn change_error(story: &Story) -> ErrorCode {
    match story.answer() {
        Response::AddVoter(response) | Response::RemoveVoter(response) => response.error,
        other => panic!("{other:?}"),
    }
}

fn change_message(story: &Story) -> Option<String> {
    match story.answer() {
        Response::AddVoter(response) | Response::RemoveVoter(response) => response.message.clone(),
        other => panic!("{other:?}"),
    }
}

/// Node 2, 3 or 5 has the leader's log.
fn catch_up(story: &mut Story, id: i32) {
    let end = story.quorum.log_end();
    let epoch = story.quorum.epoch().value();
    story.request(fetch(id, end, epoch));
}

#[test]
fn a_voter_is_added_after_it_caught_up() {
    let mut story = Story::of_three().into_active_leader();
    story.request(add(5, true));
    assert_eq!(
        story.sent.last().map(|sent| (sent.0, sent.2.clone())),
        Some((BrokerId(5), Request::ApiVersions))
    );
    story.response(5, supports(Some((0, 1))));
    assert_eq!(change_error(&story), ErrorCode::RequestTimedOut, "it lags");

    catch_up(&mut story, 5);
    story.request(add(5, true));
    let effects = story.response(5, supports(Some((0, 1)))).to_vec();
    let Effect::AppendControlRecords {
        base_offset,
        records,
        ..
    } = &effects[0]
    else {
        panic!("{effects:?}");
    };
    assert_eq!(*base_offset, Offset(11));
    assert_eq!(records.len(), 1);
    assert_eq!(story.quorum.voters(), &voters(&[1, 2, 3, 5]));
    story.flush();
    catch_up(&mut story, 2);
    // Two of four.
    assert_eq!(story.quorum.high_watermark(), Some(Offset(11)));
    story.request(remove(3));
    assert_eq!(
        change_error(&story),
        ErrorCode::RequestTimedOut,
        "one at a time"
    );
    let end = story.quorum.log_end();
    story.request(fetch(5, end, 4));
    let answers: Vec<_> = story
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Respond {
                response: Response::AddVoter(response),
                ..
            } => Some(response.error),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [ErrorCode::None]);
    assert_eq!(story.quorum.high_watermark(), Some(Offset(12)));
}

#[test]
fn voters_that_cannot_be_added_are_refused() {
    let mut story = Story::of_three().into_leader();
    story.request(add(5, true));
    assert_eq!(
        change_error(&story),
        ErrorCode::RequestTimedOut,
        "earlier changes may not be committed"
    );
    let mut story = Story::of_three().into_active_leader();
    story.request(add(3, true));
    assert_eq!(change_error(&story), ErrorCode::DuplicateVoter);
    let Request::AddVoter(mut nameless) = add(5, true) else {
        unreachable!();
    };
    nameless.voter.directory_id = None;
    story.request(Request::AddVoter(nameless));
    assert_eq!(change_error(&story), ErrorCode::InvalidRequest);
    catch_up(&mut story, 5);
    story.request(add(5, true));
    story.response(5, supports(Some((0, 0))));
    assert_eq!(change_error(&story), ErrorCode::InvalidRequest);
    story.request(add(5, true));
    story.after(2_000);
    assert_eq!(
        change_error(&story),
        ErrorCode::RequestTimedOut,
        "no answer"
    );
    let mut story = Story::of_three().into_follower();
    story.request(add(5, true));
    assert_eq!(change_error(&story), ErrorCode::NotLeaderOrFollower);
}

#[test]
fn a_request_may_be_answered_before_the_commit() {
    let mut story = Story::of_three().into_active_leader();
    catch_up(&mut story, 5);
    story.request(add(5, false));
    story.response(5, supports(Some((0, 1))));
    assert_eq!(change_error(&story), ErrorCode::None);
    story.request(remove(3));
    assert_eq!(change_error(&story), ErrorCode::RequestTimedOut);
}

#[test]
fn a_removed_leader_leads_until_its_removal_is_committed() {
    let mut story = Story::of_three().into_active_leader();
    story.request(remove(1));
    assert_eq!(story.quorum.voters(), &voters(&[2, 3]));
    story.flush();
    catch_up(&mut story, 2);
    assert!(story.quorum.is_active_leader(), "one of two");
    let end = story.quorum.log_end();
    story.request(fetch(3, end, 4));
    assert_eq!(story.quorum.role(), Role::Resigned);
    assert!(story.effects.iter().any(|effect| matches!(
        effect,
        Effect::Respond { response: Response::RemoveVoter(response), .. }
            if response.error == ErrorCode::None
    )));
}

#[test]
fn updates_of_voters_are_written_and_of_others_refused() {
    let mut story = Story::of_three().into_active_leader();
    let update = |voter| {
        Request::UpdateVoter(UpdateVoterRequest {
            current_leader_epoch: LeaderEpoch(4),
            voter,
        })
    };
    let error = |story: &Story| match story.answer() {
        Response::UpdateVoter(response) => response.error,
        other => panic!("{other:?}"),
    };
    let mut moved = voter(3);
    moved.endpoints[0].port = 19_093;
    story.request(update(moved.clone()));
    assert_eq!(error(&story), ErrorCode::None);
    assert_eq!(story.quorum.voters().voter(BrokerId(3)), Some(&moved));
    story.flush();
    catch_up(&mut story, 2);
    story.request(update(voter(5)));
    assert_eq!(error(&story), ErrorCode::VoterNotFound);
    moved.supported_kraft_versions = (0, 0);
    story.request(update(moved));
    assert_eq!(error(&story), ErrorCode::InvalidRequest);
}

#[test]
fn an_observer_joins_automatically_if_configured() {
    let mut options = options(7, &[2, 3]);
    options.config.auto_join = true;
    let mut story = Story::begin(options.clone()).into_follower();
    story.response(2, fetched(2, 4, FetchData::Empty, None));
    let answered = |story: &mut Story| {
        story.now_ms += 2_000;
        story.response(2, fetched(2, 4, FetchData::Empty, None));
    };
    answered(&mut story);
    assert!(
        matches!(&story.sent.last().expect("sent").2, Request::AddVoter(request)
        if request.voter == key(7) && !request.ack_when_committed)
    );

    // With a different directory than the voter's: that voter is removed first.
    let old = Voter {
        key: ReplicaKey::new(BrokerId(7), Uuid::from_u128(9)),
        ..voter(7)
    };
    let voters = VoterSet::new([voter(2), voter(3), old.clone()]).expect("voters");
    options.control_records.set_voters(Offset(1), voters);
    let mut story = Story::begin(options).into_follower();
    answered(&mut story);
    assert!(
        matches!(&story.sent.last().expect("sent").2, Request::RemoveVoter(request)
        if request.voter == old.key)
    );
}

#[test]
fn kraft_version_is_raised_once_all_voters_sent_their_endpoints() {
    let mut options = options(1, &[1]);
    options.control_records = ControlRecordHistory::new(
        VoterSet::new([1, 2].map(|id| {
            let mut voter = voter(id);
            voter.key.directory_id = None;
            voter.supported_kraft_versions = (0, 0);
            voter
        }))
        .expect("voters"),
    );
    let mut story = Story::begin(options).into_prospective();
    story.response(2, granted(3, true));
    story.response(2, granted(4, true));
    story.flush();
    catch_up(&mut story, 2);
    assert!(story.quorum.is_active_leader());
    for (request, doing) in [(add(5, true), "adding"), (remove(2), "removing")] {
        story.request(request);
        assert_eq!(change_error(&story), ErrorCode::UnsupportedVersion);
        let reason =
            format!("Cluster doesn't support {doing} voter because the kraft.version feature is 0");
        assert_eq!(change_message(&story), Some(reason));
    }
    let check = |story: &Story, epoch, version| {
        story
            .quorum
            .check_kraft_version_upgrade(LeaderEpoch(epoch), version)
    };
    let upgrade = |story: &mut Story, epoch| {
        let epoch = LeaderEpoch(epoch);
        let version = KRaftVersion::V1;
        story
            .step(Event::KRaftVersionUpgradeRequested { epoch, version })
            .to_vec()
    };
    let (v0, v1) = (KRaftVersion::V0, KRaftVersion::V1);
    assert_eq!(check(&story, 4, v0), Ok(false));
    assert_eq!(
        check(&story, 3, v1),
        Err(UpgradeError::NotLeader(LeaderEpoch(3)))
    );
    let refused = check(&story, 4, v1).expect_err("node 2 has said nothing");
    assert_eq!(
        refused.to_string(),
        "Invalid upgrade of kraft.version to KRAFT_VERSION_1 because not all of the voters support it"
    );
    assert_eq!(upgrade(&mut story, 4), []);
    let tell = |story: &mut Story, voter| {
        story.request(Request::UpdateVoter(UpdateVoterRequest {
            current_leader_epoch: LeaderEpoch(4),
            voter,
        }));
    };
    let mut old = voter(2);
    old.supported_kraft_versions = (0, 0);
    tell(&mut story, old);
    assert_eq!(check(&story, 4, v1), Err(UpgradeError::Unsupported(v1)));
    tell(&mut story, voter(2));
    assert_eq!(check(&story, 4, v1), Ok(true));
    assert_eq!(upgrade(&mut story, 3), [], "of an epoch that is over");
    assert_eq!(story.quorum.kraft_version(), v0);

    let effects = upgrade(&mut story, 4);
    let Effect::AppendControlRecords { records, .. } = &effects[0] else {
        panic!("{effects:?}");
    };
    assert!(
        matches!(&records[0], ControlRecord::KRaftVersion(record) if record.kraft_version == 1)
    );
    assert_eq!(
        records[1..],
        [ControlRecord::Voters(voters(&[1, 2]).to_record())]
    );
    assert_eq!(story.quorum.kraft_version(), v1);
    assert_eq!(check(&story, 4, v1), Ok(false));
    assert_eq!(
        check(&story, 4, v0)
            .expect_err("there is no way back")
            .to_string(),
        "Invalid upgrade of kraft.version from version KRAFT_VERSION_1 to KRAFT_VERSION_0"
    );
    assert_eq!(upgrade(&mut story, 4), []);

    // From here on voters are dynamic, and can change once the upgrade is committed.
    catch_up(&mut story, 5);
    story.request(add(5, true));
    assert_eq!(change_error(&story), ErrorCode::RequestTimedOut);
    story.flush();
    catch_up(&mut story, 2);
    catch_up(&mut story, 5);
    story.request(add(5, true));
    story.response(5, supports(Some((0, 1))));
    assert_eq!(story.quorum.voters(), &voters(&[1, 2, 5]));
}
