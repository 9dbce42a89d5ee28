//! Seeds of the simulated cluster: new ones each time, one twice, and those that find the planted bugs.
//!
//! `OTTLA_SIM_SECONDS=600 cargo test -p ottla-testkit --test simulation new_seeds` tries more of them;
//! `cargo xtask sim --seed N` repeats one. The planted bugs need the feature `planted-bugs`; `OTTLA_SIM_BUG=Coordinator` plants those
//! with that in their names.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ottla_testkit::simulation::{self, Outcome};

/// How long new seeds are tried.
const SECONDS: u64 = 15;
/// A machine on which nothing gets on still tries some.
const LEAST_SEEDS: u64 = 8;

#[test]
fn new_seeds_find_nothing() {
    let seconds = std::env::var("OTTLA_SIM_SECONDS").ok();
    let seconds = seconds.map_or(SECONDS, |seconds| seconds.parse().expect("seconds"));
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let first = since_epoch.expect("after 1970").as_secs() * 1_000;
    let (began, mut total, mut seed) = (Instant::now(), Outcome::default(), first);
    while began.elapsed() < Duration::from_secs(seconds) || seed < first + LEAST_SEEDS {
        let outcome = simulation::run(seed);
        assert_eq!(
            outcome.finding, None,
            "cargo xtask sim --seed {seed} says how"
        );
        total.add(&outcome);
        seed += 1;
    }
    let seeds = seed - first;
    println!("{seeds} seeds from {first} on: {total:?}");
    // A simulation in which nothing happens finds nothing either.
    assert!(total.crashes > seeds && total.leader_epochs as u64 > seeds);
    assert!(total.lost_directories > 0);
    assert!(total.acknowledged_batches as u64 > 50 * seeds);
    // Some seeds have groups, and a few may have none.
    assert!(seeds < 20 || total.moved_batches as u64 > 2 * seeds);
    assert!(seeds < 20 || total.assignments as u64 > 2 * seeds);
}

#[test]
fn the_same_seed_is_the_same_run_to_the_byte() {
    let (outcome, history) = simulation::replay(7);
    assert!(history.len() > 1_000);
    assert_eq!((outcome.clone(), history), simulation::replay(7));
    assert_eq!(
        outcome,
        simulation::run(7),
        "whether anybody reads it or not"
    );
    assert_ne!(outcome, simulation::run(8));
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use ottla_controller::planted::Bug as Controller;
    use ottla_coordinator::planted::Bug as Coordinator;
    use ottla_raft::planted::Bug as Quorum;
    use ottla_replica::planted::Bug as Replica;
    use ottla_testkit::simulation;
    use ottla_testkit::simulation::planted::{Bug as Shell, Planted, plant};

    /// The bug, the checkers that are meant for it, and within how many seeds one of them finds it first. In which seeds that
    /// is, any change of what is decided shuffles anew; so these are more than ten times as many as it takes on average.
    const BUGS: &[(Planted, &[&str], u64)] = &[
        (
            Planted::Quorum(Quorum::VoteForAnyLog),
            &["metadata-leaders"],
            80,
        ),
        (
            Planted::Quorum(Quorum::LeadOnAfterRestart),
            &["metadata-leaders"],
            80,
        ),
        (
            Planted::Quorum(Quorum::FollowerDoesNotFlush),
            &["metadata-leaders"],
            160,
        ),
        (
            Planted::Quorum(Quorum::NoTruncation),
            &["metadata-committed"],
            50,
        ),
        (
            Planted::Controller(Controller::AlwaysElectUncleanly),
            &["acknowledged"],
            150,
        ),
        (
            Planted::Controller(Controller::TakeIsrOfAnyEpoch),
            &["acknowledged", "committed-records"],
            800,
        ),
        (
            Planted::Controller(Controller::RepeatProducerIds),
            &["idempotence"],
            20,
        ),
        (
            Planted::Replica(Replica::AcknowledgeWhenWritten),
            &["acknowledged"],
            50,
        ),
        (
            Planted::Replica(Replica::KeepDivergingRecords),
            &["log-matching"],
            280,
        ),
        (
            Planted::Replica(Replica::TrustFetchOffset),
            &["log-matching"],
            50,
        ),
        (
            Planted::Replica(Replica::LowerHighWatermark),
            &["high-watermarks"],
            50,
        ),
        (
            Planted::Shell(Shell::ReadPastHighWatermark),
            &["consumers"],
            25,
        ),
        (
            Planted::Shell(Shell::CommitWhatIsWritten),
            &["committed-records"],
            160,
        ),
        (Planted::Shell(Shell::TakeEveryBatch), &["idempotence"], 25),
        (
            Planted::Shell(Shell::AnswerBeforeCommit),
            &["metadata-committed"],
            25,
        ),
        (
            Planted::Shell(Shell::ServeBeforeRegistration),
            &["partition-leaders"],
            120,
        ),
        (Planted::Shell(Shell::GiveUpFetching), &["convergence"], 160),
        (
            Planted::Shell(Shell::ReadPastLastStableOffset),
            &["aborted-records"],
            40,
        ),
        (
            Planted::Shell(Shell::CountCommitsAsAborts),
            &["missed-records"],
            40,
        ),
        (
            Planted::Shell(Shell::AnswerBeforeReplication),
            &["atomic-transactions", "missed-records"],
            200,
        ),
        (
            Planted::Coordinator(Coordinator::CompleteWithoutMarkers),
            &["missed-records", "aborted-records"],
            400,
        ),
        (
            Planted::Coordinator(Coordinator::CommitOffsetsOfAborted),
            &["atomic-transactions"],
            400,
        ),
        (
            Planted::Coordinator(Coordinator::TakeAnyProducerEpoch),
            &["fenced-producers"],
            120,
        ),
        (
            Planted::Coordinator(Coordinator::AssignWhatOthersHave),
            &["partition-owners"],
            40,
        ),
        (
            Planted::Coordinator(Coordinator::RevokeAtOnce),
            &["partition-owners"],
            40,
        ),
        (
            Planted::Coordinator(Coordinator::TakeCommitsOfFormerMembers),
            &["committed-offsets"],
            1200,
        ),
    ];

    #[test]
    fn bugs_are_found() {
        let only = std::env::var("OTTLA_SIM_BUG").unwrap_or_default();
        let mut missed = Vec::new();
        for &(bug, checkers, within) in BUGS {
            if !format!("{bug:?}").contains(&only) {
                continue;
            }
            plant(Some(bug));
            let found = (0..within).find_map(|seed| {
                let finding = simulation::run(seed).finding?;
                let (checker, _) = finding.split_once(": ")?;
                checkers.contains(&checker).then_some((seed, finding))
            });
            plant(None);
            match found {
                Some((seed, finding)) => println!("{bug:?}: seed {seed}: {finding}"),
                None => missed.push((bug, checkers, within)),
            }
        }
        assert_eq!(missed, []);
    }
}
