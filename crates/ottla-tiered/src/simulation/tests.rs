//! The seeds of each test run, and the planted bugs that they find.
//!
//! `OTTLA_TIERED_SEEDS=5000 cargo test -p ottla-tiered simulation` runs more seeds; a failing seed
//! is printed, and `OTTLA_TIERED_SEED=n` repeats it and prints the events.

use super::cluster::{Elections, run};
use crate::planted::{Bug, plant};

const SEEDS: u64 = 60;
const SEEDS_FOR_BUGS: u64 = 500;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn run_all(elections: Elections) {
    let one = number("OTTLA_TIERED_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("OTTLA_TIERED_SEEDS").unwrap_or(SEEDS),
    };
    let count = seeds.end - seeds.start;
    let mut sum = [0; 6];
    let mut findings = Vec::new();
    for seed in seeds {
        let report = run(seed, elections, one.is_some());
        if let Some(finding) = report.finding {
            findings.push(format!("seed {seed}: {finding}"));
        }
        let counted = [
            report.records,
            report.uploads,
            report.deletions,
            report.elections as usize,
            report.rebuilt_followers,
            report.remote_reads,
        ];
        for (sum, counted) in sum.iter_mut().zip(counted) {
            *sum += counted;
        }
    }
    assert_eq!(findings, [""; 0]);
    let [records, uploads, deletions, leaders, rebuilt, reads] = sum;
    println!(
        "{count} seeds: {records} records, {uploads} uploads, {deletions} deletions, {leaders} \
         leaders, {rebuilt} followers from remote storage, {reads} remote reads"
    );
    // A simulation in which nothing happens proves nothing.
    assert!(uploads as u64 > 20 * count && leaders as u64 > 5 * count);
    assert!(deletions as u64 > 5 * count && rebuilt as u64 * 5 > count);
}

#[test]
fn every_record_is_readable_and_nothing_is_left_over() {
    run_all(Elections::Clean);
}

#[test]
fn after_unclean_elections_the_log_of_the_leader_counts() {
    run_all(Elections::Unclean);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let reports = [7, 7, 8].map(|seed| run(seed, Elections::Clean, false));
    assert_eq!(reports[0], reports[1]);
    assert_ne!(reports[0].fingerprint, reports[2].fingerprint);
}

/// The first seed that finds a planted bug, and its finding. A failed assertion counts too.
fn first_finding(bug: Bug) -> Option<(u64, String)> {
    plant(Some(bug));
    let found = (0..SEEDS_FOR_BUGS).find_map(|seed| {
        let elections = match bug {
            Bug::IgnoreLineage => Elections::Unclean,
            _ => Elections::Clean,
        };
        let report = std::panic::catch_unwind(|| run(seed, elections, false));
        let finding = report.map_or(Some("an assertion fails".to_owned()), |r| r.finding);
        Some((seed, finding?))
    });
    plant(None);
    found
}

#[test]
fn planted_bugs_are_found() {
    let bugs = [
        Bug::IgnoreLineage,
        Bug::CopyUncommitted,
        Bug::CountBegunUploads,
        Bug::UploadBeforeAnnouncing,
        Bug::KeepObjects,
        Bug::FinishFailedDeletions,
        Bug::ExpireWithoutMovingStart,
        Bug::ForgetBegunDeletions,
        Bug::IgnoreRemoteEnd,
        Bug::CopyFromLocalEnd,
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
