//! Seeds of simulated clusters: a fixed set, new seeds for a configurable time, one seed run twice,
//! and seeds that detect the planted bugs.
//!
//! The first of the new seeds is printed, and so is the command that repeats a seed that finds
//! something. `OTTLA_SIM_SECONDS=600 cargo test -p ottla-simulation new_seeds -- --nocapture` runs
//! new seeds for ten minutes. The planted bugs need the feature `planted-bugs`.
//! `OTTLA_SIM_BUG=Coordinator` selects those with that text in their names, and
//! `OTTLA_SIM_FROM=1000` sets the first seed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ottla_simulation::Outcome;

/// The seeds of each run, from 1 on.
const SEEDS: u64 = 8;
/// For how long each run tries new seeds by default; `OTTLA_SIM_SECONDS` overrides it.
const SECONDS: u64 = 60;

#[test]
fn seeds_find_nothing() {
    let (mut total, mut seeds) = (Outcome::default(), 0);
    for seed in 1..=SEEDS {
        run(seed, &mut total);
        seeds += 1;
    }
    println!("{seeds} seeds from 1 on: {total:#?}");
    assert!(total.kills > seeds && total.cuts > seeds);
    assert!(total.leader_epochs > 8 * seeds && total.metadata_epochs > seeds);
    assert!(total.segments > 20 * seeds);
    assert!(total.committed_transactions > 10 * seeds);
    assert!(total.polled > total.committed_transactions);
    assert!(total.given > seeds && total.commits > seeds);
    assert!(total.refused_commits > 0 && total.moved > seeds && total.locked > seeds);
    assert!(total.stories >= seeds / 4);
    assert_eq!(total.leaks, 0);
}

#[test]
fn new_seeds_find_nothing() {
    let time = Duration::from_secs(number("OTTLA_SIM_SECONDS").unwrap_or(SECONDS));
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let first = since_epoch.expect("after 1970").as_secs() * 1_000;
    println!("new seeds from {first} on, for {time:?}");
    let (began, mut total, mut seeds) = (Instant::now(), Outcome::default(), 0);
    while began.elapsed() < time {
        run(first + seeds, &mut total);
        seeds += 1;
    }
    println!("{seeds} new seeds from {first} on: {total:#?}");
    // A simulation in which nothing happens would find nothing either. On a slow machine there may
    // be only one seed.
    assert!(seeds == 0 || total.kills + total.clean_stops + total.cuts > seeds);
    assert!(total.leader_epochs >= 4 * seeds && total.metadata_epochs >= seeds);
    assert!(total.segments >= 10 * seeds);
    assert!(total.committed_transactions >= seeds && total.polled >= seeds);
}

/// Runs a seed, which must find nothing.
fn run(seed: u64, total: &mut Outcome) {
    let outcome = outcome_of(seed);
    assert_eq!(
        outcome.finding, None,
        "seed {seed}; `cargo xtask sim --seed {seed}` replays it"
    );
    total.add(&outcome);
}

/// The outcome of a seed without a planted bug.
fn outcome_of(seed: u64) -> Outcome {
    hashed(seed).0
}

/// The outcome of a seed without a planted bug, and the hash of all scheduling decisions. Tests that
/// need the same seed run it once.
fn hashed(seed: u64) -> (Outcome, u64) {
    type Run = Arc<OnceLock<(Outcome, u64)>>;
    static RUNS: Mutex<BTreeMap<u64, Run>> = Mutex::new(BTreeMap::new());
    let run = {
        let mut runs = RUNS.lock().expect("no holder panics");
        Arc::clone(runs.entry(seed).or_default())
    };
    run.get_or_init(|| ottla_simulation::hashed(seed)).clone()
}

#[test]
fn the_same_seed_is_the_same_run() {
    let seed = number("OTTLA_SIM_FROM").unwrap_or(7);
    let one = hashed(seed);
    // A second run, which must not depend on its log either.
    let other = ottla_simulation::tell(seed, std::io::sink);
    assert_eq!(one, other, "two runs of seed {seed} differ");
    assert_ne!(one.1, hashed(seed + 1).1);
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ottla_controller::planted::Bug as Controller;
    use ottla_coordinator::planted::Bug as Coordinator;
    use ottla_raft::planted::Bug as Quorum;
    use ottla_replica::planted::Bug as Replica;
    use ottla_simulation::planted::{Planted, plant};

    use super::{number, outcome_of};

    /// Each bug with the number of seeds within which it must be found, from 0 on, and the one of them
    /// that is tried first. The seeds that find a bug change with every change of the scheduling. A
    /// seed that no longer finds it costs one run; the test prints the seed that does.
    #[rustfmt::skip]
    const CASES: &[(Planted, u64, u64)] = &[
        (Planted::Quorum(Quorum::NoTruncation), 20, 0),
        (Planted::Controller(Controller::AlwaysElectUncleanly), 12, 2),
        (Planted::Controller(Controller::RepeatProducerIds), 12, 0),
        (Planted::Replica(Replica::AcknowledgeWhenWritten), 16, 2),
        (Planted::Coordinator(Coordinator::TakeAnyProducerEpoch), 12, 0),
        (Planted::Coordinator(Coordinator::AssignWhatOthersHave), 24, 2),
        (Planted::Coordinator(Coordinator::RevokeAtOnce), 24, 2),
        (Planted::Coordinator(Coordinator::TakeCommitsOfFormerMembers), 24, 2),
        (Planted::Coordinator(Coordinator::ReleaseWhatOthersHold), 24, 2),
        (Planted::Coordinator(Coordinator::DeliverWithoutLimit), 24, 2),
        (Planted::Coordinator(Coordinator::CommitOffsetsOfAborted), 24, 2),
        (Planted::Shell("read_committed reads what is not decided"), 12, 0),
        (Planted::Shell("a commit counts as an abort"), 12, 0),
        (Planted::Shell("nobody looks at sequence numbers"), 16, 8),
        (Planted::Shell("a follower gives up a leader that failed once"), 12, 0),
        (Planted::Shell("a coordinator answers before replication"), 24, 2),
        (Planted::Coordinator(Coordinator::CompleteWithoutMarkers), 24, 2),
        (Planted::Coordinator(Coordinator::ForgetGaps), 24, 2),
        (Planted::Controller(Controller::TakeIsrOfAnyEpoch), 24, 2),
        (Planted::Shell("a consumer reads what is not committed"), 24, 3),
        (Planted::Shell("the controller acts before its records are committed"), 24, 10),
        (Planted::Shell("a broker serves before it is registered"), 24, 0),
        (Planted::Quorum(Quorum::VoteForAnyLog), 40, 1),
        (Planted::Quorum(Quorum::LeadOnAfterRestart), 24, 0),
        (Planted::Replica(Replica::TrustFetchOffset), 40, 5),
        (Planted::Replica(Replica::KeepDivergingRecords), 40, 2),
    ];

    /// The seeds in the order in which they are tried.
    fn order(within: u64, first: u64) -> impl Iterator<Item = u64> {
        std::iter::once(first).chain((0..within).filter(move |seed| *seed != first))
    }

    /// The first seed that finds something with the bug but not without it, and the finding.
    fn find(bug: Planted, mut seeds: impl Iterator<Item = u64>) -> Option<(u64, String)> {
        seeds.find_map(|seed| {
            plant(Some(bug));
            let finding = ottla_simulation::run(seed).finding;
            plant(None);
            let finding = finding?;
            let is_sound = outcome_of(seed).finding.is_none();
            is_sound.then_some((seed, finding))
        })
    }

    #[test]
    fn each_seed_is_tried_once() {
        for (bug, within, first) in CASES {
            let mut seeds: Vec<u64> = order(*within, *first).collect();
            assert_eq!(seeds[0], *first, "{bug:?}");
            seeds.sort_unstable();
            assert!(seeds.into_iter().eq(0..*within), "{bug:?}");
        }
    }

    #[test]
    fn planted_bugs_are_found() {
        let only = std::env::var("OTTLA_SIM_BUG").unwrap_or_default();
        let from = number("OTTLA_SIM_FROM");
        let is_meant = |(bug, ..): &&(Planted, u64, u64)| format!("{bug:?}").contains(&only);
        let cases: Vec<_> = CASES.iter().filter(is_meant).collect();
        let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let look = || {
            while let Some((bug, within, first)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                let found = match from {
                    None => find(*bug, order(*within, *first)),
                    Some(from) => find(*bug, from..from + within),
                };
                match found {
                    Some((seed, finding)) => println!("{bug:?}: seed {seed}: {finding}"),
                    None => missed.lock().expect("no thread panics").push(*bug),
                }
            }
        };
        // Bugs are planted per thread.
        std::thread::scope(|scope| {
            scope.spawn(look);
            scope.spawn(look);
        });
        assert_eq!(missed.into_inner().expect("no thread panics"), []);
    }
}
