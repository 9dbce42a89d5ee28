//! The seeds of each test run, and the planted defects they find.
//!
//! `OTTLA_REPLICA_SEEDS=5000 cargo test -p ottla-replica simulation` runs more seeds; a failing
//! seed is printed, and `OTTLA_REPLICA_SEED=n` repeats it and prints the events.

use super::cluster::{Flushes, Report, run};
use super::model_controller::Elections;
use crate::planted::{Bug, plant};

/// Number of seeds per test run.
const SEEDS: u64 = 120;
/// Number of seeds within which each planted defect is found.
const SEEDS_FOR_BUGS: u64 = 2_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_record_is_lost_and_replicas_converge() {
    let one = number("OTTLA_REPLICA_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("OTTLA_REPLICA_SEEDS").unwrap_or(SEEDS),
    };
    let count = seeds.end - seeds.start;
    let mut sum = (0, 0, 0, 0);
    for seed in seeds {
        let report = run(seed, Elections::Clean, Flushes::Never, one.is_some());
        assert_eq!(report.finding, None, "seed {seed}");
        sum.0 += report.committed;
        sum.1 += report.acknowledged;
        sum.2 += report.leader_epochs;
        sum.3 += report.isr_changes;
    }
    println!(
        "{count} seeds: {} records committed, {} acknowledged, {} leader epochs, {} changes of ISR",
        sum.0, sum.1, sum.2, sum.3
    );
    // A simulation in which nothing happens proves nothing.
    assert!(sum.0 as u64 > 50 * count && sum.2 as u64 > 3 * count);
}

#[test]
fn after_unclean_elections_the_replicas_are_the_same() {
    let one = number("OTTLA_REPLICA_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("OTTLA_REPLICA_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let report = run(seed, Elections::Unclean, Flushes::Never, one.is_some());
        assert_eq!(report.finding, None, "seed {seed}");
    }
}

#[test]
fn flushed_records_survive_a_failure_of_all_replicas() {
    let one = number("OTTLA_REPLICA_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("OTTLA_REPLICA_SEEDS").unwrap_or(SEEDS),
    };
    let count = seeds.end - seeds.start;
    let mut committed = 0;
    for seed in seeds {
        let report = run(seed, Elections::Clean, Flushes::EachRecord, one.is_some());
        assert_eq!(report.finding, None, "seed {seed}");
        committed += report.committed;
    }
    println!("{count} seeds: {committed} records committed");
    assert!(committed as u64 > 50 * count);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let reports: Vec<Report> = [7, 7, 8]
        .map(|seed| run(seed, Elections::Clean, Flushes::Never, false))
        .into();
    assert_eq!(reports[0], reports[1]);
    assert_ne!(reports[0].fingerprint, reports[2].fingerprint);
}

/// The first seed that finds a planted defect, and its finding. A failed assertion counts too.
fn first_finding(bug: Bug) -> Option<(u64, String)> {
    plant(Some(bug));
    let flushes = match bug {
        Bug::FetchBeforeFlush => Flushes::EachRecord,
        _ => Flushes::Never,
    };
    let found = (0..SEEDS_FOR_BUGS).find_map(|seed| {
        let report = std::panic::catch_unwind(|| run(seed, Elections::Clean, flushes, false));
        let finding = report.map_or(Some("an assertion fails".to_owned()), |r| r.finding);
        Some((seed, finding?))
    });
    plant(None);
    found
}

/// Each within `SEEDS_FOR_BUGS` seeds.
#[test]
fn planted_bugs_are_found() {
    let bugs = [
        Bug::CommittedIsrForHighWatermark,
        Bug::ForgetPendingOnSameEpoch,
        Bug::ShrinkBeforeItIsCommitted,
        Bug::ForgetPendingOnInvalidVersion,
        Bug::JoinBelowLeaderEpochStart,
        Bug::IgnoreBrokerEpoch,
        Bug::AcknowledgeWhenWritten,
        Bug::AdvanceUnderMinIsr,
        Bug::KeepDivergingRecords,
        Bug::TakeStaleAnswers,
        Bug::TakeAnswersByOffset,
        Bug::TrustFetchOffset,
        Bug::FetchBeforeFlush,
        Bug::LowerHighWatermark,
    ];
    let findings = std::thread::scope(|scope| {
        let searches = bugs.map(|bug| (bug, scope.spawn(move || first_finding(bug))));
        searches.map(|(bug, search)| (bug, search.join().expect("the search itself")))
    });
    let mut missed = Vec::new();
    for (bug, finding) in findings {
        match finding {
            Some((seed, finding)) => println!("{bug:?}: seed {seed}: {finding}"),
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, []);
}
