//! Seeds of simulated clusters: a fixed set, new seeds for a configurable time, one seed run twice,
//! and seeds that detect the planted bugs.
//!
//! The first of the new seeds is printed, and so is the command that repeats a seed that finds
//! something. `OTTLA_SIM_SECONDS=600 cargo test -p ottla-simulation new_seeds -- --nocapture` runs
//! new seeds for ten minutes. The planted bugs need the feature `planted-bugs`.
//! `OTTLA_SIM_BUG=Coordinator` selects those with that text in their names, and
//! `OTTLA_SIM_FROM=1000` sets the first seed.

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
    let outcome = ottla_simulation::run(seed);
    assert_eq!(
        outcome.finding, None,
        "seed {seed}; `cargo xtask sim --seed {seed}` replays it"
    );
    total.add(&outcome);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let seed = number("OTTLA_SIM_FROM").unwrap_or(7);
    let (one, other) = (ottla_simulation::hash(seed), ottla_simulation::hash(seed));
    assert_eq!(one, other, "two runs of seed {seed} differ");
    assert_ne!(one, ottla_simulation::hash(seed + 1));
    let (_, told) = ottla_simulation::tell(seed, std::io::sink);
    assert_eq!(
        one, told,
        "seed {seed} is another run when its log is written"
    );
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, OnceLock};

    use ottla_controller::planted::Bug as Controller;
    use ottla_coordinator::planted::Bug as Coordinator;
    use ottla_raft::planted::Bug as Quorum;
    use ottla_replica::planted::Bug as Replica;
    use ottla_simulation::planted::{Planted, plant};

    use super::number;

    /// Each bug with the number of seeds within which it must be found. The seeds that find it
    /// change with every change of the scheduling.
    #[rustfmt::skip]
    const CASES: &[(Planted, u64)] = &[
        (Planted::Quorum(Quorum::NoTruncation), 20),
        (Planted::Controller(Controller::AlwaysElectUncleanly), 12),
        (Planted::Controller(Controller::RepeatProducerIds), 12),
        (Planted::Replica(Replica::AcknowledgeWhenWritten), 16),
        (Planted::Coordinator(Coordinator::TakeAnyProducerEpoch), 12),
        (Planted::Coordinator(Coordinator::AssignWhatOthersHave), 24),
        (Planted::Coordinator(Coordinator::RevokeAtOnce), 24),
        (Planted::Coordinator(Coordinator::TakeCommitsOfFormerMembers), 24),
        (Planted::Coordinator(Coordinator::ReleaseWhatOthersHold), 24),
        (Planted::Coordinator(Coordinator::DeliverWithoutLimit), 24),
        (Planted::Coordinator(Coordinator::CommitOffsetsOfAborted), 24),
        (Planted::Shell("read_committed reads what is not decided"), 12),
        (Planted::Shell("a commit counts as an abort"), 12),
        (Planted::Shell("nobody looks at sequence numbers"), 16),
        (Planted::Shell("a follower gives up a leader that failed once"), 12),
        (Planted::Shell("a coordinator answers before replication"), 24),
        (Planted::Coordinator(Coordinator::CompleteWithoutMarkers), 24),
        (Planted::Coordinator(Coordinator::ForgetGaps), 24),
        (Planted::Controller(Controller::TakeIsrOfAnyEpoch), 24),
        (Planted::Shell("a consumer reads what is not committed"), 24),
        (Planted::Shell("the controller acts before its records are committed"), 24),
        (Planted::Shell("a broker serves before it is registered"), 24),
        (Planted::Quorum(Quorum::VoteForAnyLog), 40),
        (Planted::Quorum(Quorum::LeadOnAfterRestart), 24),
        (Planted::Replica(Replica::TrustFetchOffset), 40),
        (Planted::Replica(Replica::KeepDivergingRecords), 40),
    ];

    /// The number of seeds from `from` until one finds something with the bug but not without it,
    /// and the finding of that seed. `sound` is filled with which seeds find nothing without a bug,
    /// so that each is run once for all bugs.
    fn find(
        bug: Planted,
        within: u64,
        from: u64,
        sound: &[OnceLock<bool>],
    ) -> Option<(u64, String)> {
        (0..within).zip(sound).find_map(|(before, sound)| {
            plant(Some(bug));
            let finding = ottla_simulation::run(from + before).finding;
            plant(None);
            let finding = finding?;
            let without = || ottla_simulation::run(from + before).finding;
            let is_sound = sound.get_or_init(|| without().is_none());
            is_sound.then_some((before + 1, finding))
        })
    }

    #[test]
    fn planted_bugs_are_found() {
        let only = std::env::var("OTTLA_SIM_BUG").unwrap_or_default();
        let from = number("OTTLA_SIM_FROM").unwrap_or_default();
        let is_meant = |(bug, _): &&(Planted, u64)| format!("{bug:?}").contains(&only);
        let cases: Vec<_> = CASES.iter().filter(is_meant).collect();
        let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let most = CASES.iter().map(|(_, within)| *within as usize).max();
        let sound = vec![OnceLock::new(); most.unwrap_or_default()];
        let look = || {
            while let Some((bug, within)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                match find(*bug, *within, from, &sound) {
                    Some((seeds, finding)) => println!("{bug:?}: {seeds} seeds: {finding}"),
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
