//! The reaction of each role to each event: the table in `transitions.txt`.
//! `OTTLA_WRITE_TRANSCRIPTS` rewrites the table; the difference must then be reviewed.

use std::fmt::Write;

use super::*;

type Make = fn() -> Story;
type Do = fn(&mut Story);

const ROLES: &[(&str, Make)] = &[
    ("unattached", Story::of_three),
    ("unattached, voted for 3 in epoch 4", || {
        let mut story = Story::of_three();
        story.request(vote(3, 4, log_end(10, 3), false));
        story
    }),
    ("prospective", || Story::of_three().into_prospective()),
    ("candidate", || Story::of_three().into_candidate()),
    ("leader", || Story::of_three().into_leader()),
    ("active leader", || Story::of_three().into_active_leader()),
    ("follower of 2", || Story::of_three().into_follower()),
    ("follower of 2 that has fetched", || {
        let mut story = Story::of_three().into_follower();
        story.response(2, fetched(2, 4, FetchData::Empty, None));
        story
    }),
    ("resigned", || Story::of_three().into_resigned()),
    ("observer that follows 2", || {
        Story::begin(options(7, &[2, 3])).into_follower()
    }),
];

const EVENTS: &[(&str, Do)] = &[
    ("time passes", |story| drop(story.after(5_000).to_vec())),
    ("pre-vote for 3 in the same epoch", |story| {
        let epoch = story.quorum.epoch().value();
        story.request(vote(3, epoch, log_end(20, 3), true));
    }),
    ("pre-vote for 3 with a shorter log", |story| {
        let epoch = story.quorum.epoch().value();
        story.request(vote(3, epoch, log_end(5, 3), true));
    }),
    ("vote for 2 in the same epoch", |story| {
        let epoch = story.quorum.epoch().value();
        story.request(vote(2, epoch, log_end(20, epoch - 1), false));
    }),
    ("vote for 3 in the next epoch", |story| {
        let epoch = story.quorum.epoch().value() + 1;
        story.request(vote(3, epoch, log_end(20, epoch - 1), false));
    }),
    ("vote for 3 in the next epoch with a shorter log", |story| {
        let epoch = story.quorum.epoch().value() + 1;
        story.request(vote(3, epoch, log_end(5, 3), false));
    }),
    ("vote in an earlier epoch", |story| {
        let epoch = story.quorum.epoch().value() - 1;
        story.request(vote(3, epoch, log_end(20, 1), false));
    }),
    ("2 begins the next epoch", |story| {
        let epoch = story.quorum.epoch().value() + 1;
        story.request(begin(2, epoch));
    }),
    ("3 begins the same epoch", |story| {
        let epoch = story.quorum.epoch().value();
        story.request(begin(3, epoch));
    }),
    ("2 ends the same epoch, 1 succeeds", |story| {
        let epoch = story.quorum.epoch().value();
        story.request(end(2, epoch, &[1, 3]));
    }),
    ("3 fetches", |story| {
        let (end, epoch) = (story.quorum.log_end(), story.quorum.epoch().value());
        story.request(fetch(3, end, epoch));
    }),
    ("the controller resigns", |story| {
        let epoch = story.quorum.epoch();
        story.step(Event::ResignRequested { epoch });
    }),
    ("the node stops", |story| {
        story.step(Event::ShutdownRequested { timeout_ms: 5_000 });
    }),
];

#[test]
fn every_role_and_every_event() {
    let mut table = String::new();
    for (role, make) in ROLES {
        let _ = writeln!(table, "{role}");
        for (event, act) in EVENTS {
            let mut story = make();
            act(&mut story);
            let quorum = &story.quorum;
            let _ = writeln!(
                table,
                "  {event} -> {} in epoch {}",
                role_name(quorum),
                quorum.epoch()
            );
            for effect in &story.effects {
                let _ = writeln!(table, "      {}", sentence(effect));
            }
        }
    }
    if std::env::var_os("OTTLA_WRITE_TRANSCRIPTS").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/quorum/tests/transitions.txt"
        );
        std::fs::write(path, &table).expect("is written");
    }
    for (found, expected) in table.lines().zip(include_str!("transitions.txt").lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(table, include_str!("transitions.txt"));
}

#[test]
fn states_have_the_names_of_kafka() {
    for ((role, make), expected) in ROLES.iter().zip([
        "unattached",
        "unattached-voted",
        "prospective",
        "candidate",
        "leader",
        "leader",
        "follower",
        "follower",
        "unattached",
        "observer",
    ]) {
        assert_eq!(make().quorum.state_name(), expected, "{role}");
    }
    let mut voted = ROLES[1].1();
    voted.after(5_000);
    assert_eq!(voted.quorum.state_name(), "prospective-voted");
}

fn role_name(quorum: &Quorum) -> String {
    let leader = quorum.leader().map(|leader| format!(" of {leader}"));
    match quorum.role() {
        Role::Follower => format!("follower{}", leader.unwrap_or_default()),
        Role::Leader { is_active: true } => "active leader".to_owned(),
        Role::Leader { is_active: false } => "leader".to_owned(),
        role => format!("{role:?}").to_lowercase(),
    }
}

fn sentence(effect: &Effect) -> String {
    let id = |id: Option<BrokerId>| id.map_or("none".to_owned(), |id| id.to_string());
    match effect {
        Effect::PersistElectionState(election) => format!(
            "persist epoch {}, led by {}, voted for {}",
            election.epoch,
            id(election.leader),
            id(election.voted.map(|voted| voted.id)),
        ),
        Effect::StartEpoch {
            epoch,
            start_offset,
            records,
        } => format!(
            "start epoch {epoch} at {start_offset} with {} records",
            records.len()
        ),
        Effect::Send { to, request, .. } => format!("ask {}: {}", to.id, ask(request)),
        Effect::Respond { response, .. } => format!("answer {}", answer(response)),
        Effect::ChangeLeader { leader, epoch } => {
            format!("leader of epoch {epoch} is {}", id(*leader))
        }
        other => format!("{other:?}"),
    }
}

fn ask(request: &Request) -> String {
    match request {
        Request::Vote(vote) if vote.pre_vote => format!("pre-vote in epoch {}", vote.epoch),
        Request::Vote(vote) => format!("vote in epoch {}", vote.epoch),
        Request::BeginQuorumEpoch(begin) => format!("begin epoch {}", begin.epoch),
        Request::EndQuorumEpoch(end) => format!(
            "end epoch {}, successors {:?}",
            end.epoch,
            end.preferred_successors
                .iter()
                .map(|key| key.id.value())
                .collect::<Vec<_>>()
        ),
        Request::Fetch(fetch) => format!(
            "fetch from {} in epoch {}",
            fetch.log_end.offset, fetch.current_leader_epoch
        ),
        other => format!("{other:?}"),
    }
}

fn answer(response: &Response) -> String {
    match response {
        Response::Vote(vote) => match (vote.error, vote.is_granted) {
            (ErrorCode::None, true) => "vote granted".to_owned(),
            (ErrorCode::None, false) => "vote refused".to_owned(),
            (error, _) => error.name().to_owned(),
        },
        Response::BeginQuorumEpoch(answer) | Response::EndQuorumEpoch(answer) => {
            answer.error.name().to_owned()
        }
        Response::Fetch(fetch) => format!("{} {:?}", fetch.error.name(), fetch.data),
        other => format!("{other:?}"),
    }
}
