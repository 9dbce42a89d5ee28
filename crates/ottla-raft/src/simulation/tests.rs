use super::world::{FAULTS_MS, Outcome, Setup, run};
use crate::planted::{Bug, plant};

/// Seeds of every test run; `OTTLA_RAFT_SEEDS=from..to` runs others.
const SEEDS: std::ops::Range<u64> = 0..24;

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("OTTLA_RAFT_SEEDS") else {
        return SEEDS;
    };
    let (from, to) = text.split_once("..").expect("from..to");
    from.parse().expect("a seed")..to.parse().expect("a seed")
}

#[test]
fn a_quorum_keeps_its_invariants_under_faults_and_converges() {
    let mut total = Outcome::default();
    let (mut raised, mut raised_in_trouble) = (0, 0);
    for seed in seeds() {
        let outcome = run(Setup::of(seed)).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(outcome.committed > 50, "seed {seed}: {outcome:?}");
        total.events += outcome.events;
        total.committed += outcome.committed;
        total.epochs += outcome.epochs;
        total.crashes += outcome.crashes;
        total.voter_changes += outcome.voter_changes;
        raised += u64::from(outcome.raised_at_ms > 0);
        raised_in_trouble += u64::from((1..FAULTS_MS).contains(&outcome.raised_at_ms));
        total.truncations += outcome.truncations;
        total.snapshots_installed += outcome.snapshots_installed;
    }
    println!(
        "{total:?}, kraft.version raised {raised} times, {raised_in_trouble} of them in trouble"
    );
    // Otherwise the run would prove nothing.
    assert!(total.crashes > 0 && total.epochs > 0 && total.voter_changes > 0);
    assert!(raised > 0);
    assert!(total.truncations > 0 && total.snapshots_installed > 0);
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(Setup::of(7)), run(Setup::of(7)));
}

/// The number of seeds within which the checkers find a planted defect.
fn finds(bug: Bug, within: u64) {
    plant(Some(bug));
    let found = (0..within).find_map(|seed| {
        let outcome = std::panic::catch_unwind(|| run(Setup::of(seed)));
        match outcome {
            Ok(Ok(_)) => None,
            Ok(Err(failure)) => Some(failure),
            Err(_) => Some(format!("seed {seed}: a panic")),
        }
    });
    plant(None);
    let failure = found.unwrap_or_else(|| panic!("{bug:?} is not found within {within} seeds"));
    // `OTTLA_RAFT_HISTORY` prints the preceding events.
    let shown = match std::env::var_os("OTTLA_RAFT_HISTORY") {
        Some(_) => usize::MAX,
        None => 1,
    };
    for line in failure.lines().take(shown) {
        println!("{bug:?}: {line}");
    }
}

macro_rules! planted {
    ($($name:ident: $bug:ident within $seeds:literal,)*) => {
        $(
            #[test]
            fn $name() {
                finds(Bug::$bug, $seeds);
            }
        )*
    };
}

planted! {
    finds_a_vote_that_is_not_persisted: VoteIsNotPersisted within 10,
    finds_a_candidacy_that_is_not_persisted: CandidateIsNotPersisted within 20,
    finds_votes_for_any_log: VoteForAnyLog within 10,
    finds_a_majority_that_is_not_on_disk: CountUnflushed within 10,
    finds_followers_that_do_not_flush: FollowerDoesNotFlush within 10,
    finds_commits_of_earlier_epochs: CommitEarlierEpochs within 10,
    finds_a_leader_that_leads_on: LeadOnAfterRestart within 10,
    finds_logs_that_are_not_cut: NoTruncation within 10,
    finds_voters_that_were_cut_off: VotersSurviveTruncation within 10,
    finds_changes_that_overlap: ChangesOverlap within 40,
}
