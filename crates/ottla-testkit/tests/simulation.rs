//! Seeds of the simulated cluster: new ones each time, one twice, and those that find the planted bugs.
//!
//! `OTTLA_SIM_SECONDS=600 cargo test -p ottla-testkit --test simulation new_seeds` tries more of them;
//! `cargo xtask sim --seed N` repeats one. The planted bugs need the feature `planted-bugs`; `OTTLA_SIM_BUG=Coordinator` plants those
//! with that in their names, and `OTTLA_SIM_FROM=1000` begins to look for them there, to see how many seeds it takes.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ottla_testkit::simulation::{self, Outcome};

/// How long new seeds are tried.
const SECONDS: u64 = 15;
/// A machine on which nothing gets on still tries some, and of each kind.
const LEAST_SEEDS: u64 = 8;

#[test]
fn new_seeds_find_nothing() {
    let seconds = std::env::var("OTTLA_SIM_SECONDS").ok();
    let seconds = seconds.map_or(SECONDS, |seconds| seconds.parse().expect("seconds"));
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let first = since_epoch.expect("after 1970").as_secs() * 1_000;
    let (began, mut total, mut seed) = (Instant::now(), Outcome::default(), first);
    let is_enough = |total: &Outcome, seeds: u64| {
        let has_all_kinds = total.with_movers >= 2 && total.with_sharers >= 2;
        seeds >= LEAST_SEEDS && has_all_kinds && total.lost_directories > 0
    };
    while began.elapsed() < Duration::from_secs(seconds) || !is_enough(&total, seed - first) {
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
    assert!(total.moved_batches as u64 > total.with_movers);
    assert!(total.assignments as u64 > total.with_movers);
    assert!(total.shared_records as u64 > 10 * total.with_sharers);
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
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ottla_controller::planted::Bug as Controller;
    use ottla_coordinator::planted::Bug as Coordinator;
    use ottla_raft::planted::Bug as Quorum;
    use ottla_replica::planted::Bug as Replica;
    use ottla_testkit::simulation::planted::{Bug as Shell, Planted, plant};
    use ottla_testkit::simulation::{self, Groups};

    /// A bug, and what shows it.
    struct Case {
        bug: Planted,
        /// Where it can show at all, if not everywhere.
        groups: Option<Groups>,
        /// Those that are meant for it.
        checkers: &'static [&'static str],
        /// Within how many seeds of that kind one of them finds it first. In which seeds that is, any change of what is
        /// decided shuffles anew; so these are more than ten times as many as it takes on average.
        within: usize,
    }

    const fn case(
        bug: Planted,
        groups: Option<Groups>,
        checkers: &'static [&'static str],
        within: usize,
    ) -> Case {
        Case {
            bug,
            groups,
            checkers,
            within,
        }
    }

    const ANY: Option<Groups> = None;
    const MOVERS: Option<Groups> = Some(Groups::Movers);
    const SHARERS: Option<Groups> = Some(Groups::Sharers);

    const CASES: &[Case] = &[
        case(
            Planted::Quorum(Quorum::VoteForAnyLog),
            ANY,
            &["metadata-leaders"],
            80,
        ),
        case(
            Planted::Quorum(Quorum::LeadOnAfterRestart),
            ANY,
            &["metadata-leaders"],
            80,
        ),
        case(
            Planted::Quorum(Quorum::FollowerDoesNotFlush),
            ANY,
            &["metadata-leaders"],
            160,
        ),
        case(
            Planted::Quorum(Quorum::NoTruncation),
            ANY,
            &["metadata-committed"],
            50,
        ),
        case(
            Planted::Controller(Controller::AlwaysElectUncleanly),
            ANY,
            &["acknowledged"],
            150,
        ),
        case(
            Planted::Controller(Controller::TakeIsrOfAnyEpoch),
            ANY,
            &["acknowledged", "committed-records"],
            800,
        ),
        case(
            Planted::Controller(Controller::RepeatProducerIds),
            ANY,
            &["idempotence"],
            20,
        ),
        case(
            Planted::Replica(Replica::AcknowledgeWhenWritten),
            ANY,
            &["acknowledged"],
            50,
        ),
        case(
            Planted::Replica(Replica::KeepDivergingRecords),
            ANY,
            &["log-matching"],
            280,
        ),
        case(
            Planted::Replica(Replica::TrustFetchOffset),
            ANY,
            &["log-matching"],
            50,
        ),
        case(
            Planted::Replica(Replica::LowerHighWatermark),
            ANY,
            &["high-watermarks"],
            50,
        ),
        case(
            Planted::Shell(Shell::ReadPastHighWatermark),
            ANY,
            &["consumers"],
            25,
        ),
        case(
            Planted::Shell(Shell::CommitWhatIsWritten),
            ANY,
            &["committed-records"],
            160,
        ),
        case(
            Planted::Shell(Shell::TakeEveryBatch),
            ANY,
            &["idempotence"],
            25,
        ),
        case(
            Planted::Shell(Shell::AnswerBeforeCommit),
            ANY,
            &["metadata-committed"],
            25,
        ),
        case(
            Planted::Shell(Shell::ServeBeforeRegistration),
            ANY,
            &["partition-leaders"],
            120,
        ),
        case(
            Planted::Shell(Shell::GiveUpFetching),
            ANY,
            &["convergence"],
            160,
        ),
        case(
            Planted::Shell(Shell::ReadPastLastStableOffset),
            MOVERS,
            &["aborted-records"],
            20,
        ),
        case(
            Planted::Shell(Shell::CountCommitsAsAborts),
            MOVERS,
            &["missed-records"],
            20,
        ),
        case(
            Planted::Shell(Shell::AnswerBeforeReplication),
            MOVERS,
            &["atomic-transactions", "missed-records"],
            100,
        ),
        case(
            Planted::Coordinator(Coordinator::CompleteWithoutMarkers),
            MOVERS,
            &["missed-records", "aborted-records"],
            400,
        ),
        case(
            Planted::Coordinator(Coordinator::CommitOffsetsOfAborted),
            MOVERS,
            &["atomic-transactions"],
            200,
        ),
        case(
            Planted::Coordinator(Coordinator::TakeAnyProducerEpoch),
            MOVERS,
            &["fenced-producers"],
            80,
        ),
        case(
            Planted::Coordinator(Coordinator::AssignWhatOthersHave),
            MOVERS,
            &["partition-owners"],
            20,
        ),
        case(
            Planted::Coordinator(Coordinator::RevokeAtOnce),
            MOVERS,
            &["partition-owners"],
            40,
        ),
        case(
            Planted::Coordinator(Coordinator::TakeCommitsOfFormerMembers),
            MOVERS,
            &["committed-offsets"],
            1400,
        ),
        case(
            Planted::Coordinator(Coordinator::ReleaseWhatOthersHold),
            SHARERS,
            &["share-locks"],
            60,
        ),
        case(
            Planted::Coordinator(Coordinator::ForgetGaps),
            SHARERS,
            &["share-deliveries"],
            100,
        ),
        case(
            Planted::Coordinator(Coordinator::DeliverWithoutLimit),
            SHARERS,
            &["share-delivery-counts"],
            40,
        ),
    ];

    /// How many seeds from this one on it takes, the last of them, and what that finds.
    fn find(case: &Case, from: u64) -> Option<(usize, u64, String)> {
        plant(Some(case.bug));
        let is_fit = |seed: &u64| {
            case.groups
                .is_none_or(|it| it == simulation::groups_of(*seed))
        };
        let mut seeds = (from..).filter(is_fit).take(case.within).enumerate();
        let found = seeds.find_map(|(before, seed)| {
            let finding = simulation::run(seed).finding?;
            let (checker, _) = finding.split_once(": ")?;
            let is_meant = case.checkers.contains(&checker);
            is_meant.then_some((before + 1, seed, finding))
        });
        plant(None);
        found
    }

    #[test]
    fn bugs_are_found() {
        let only = std::env::var("OTTLA_SIM_BUG").unwrap_or_default();
        let from = std::env::var("OTTLA_SIM_FROM").ok();
        let from = from.map_or(0, |from| from.parse().expect("a seed"));
        let is_meant = |case: &&Case| format!("{:?}", case.bug).contains(&only);
        let cases: Vec<&Case> = CASES.iter().filter(is_meant).collect();
        let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let look = || {
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                match find(case, from) {
                    Some((seeds, seed, finding)) => {
                        println!("{:?}: {seeds} seeds, {seed}: {finding}", case.bug);
                    }
                    None => missed.lock().expect("nobody panics").push(case.bug),
                }
            }
        };
        // A bug is planted on one thread.
        std::thread::scope(|scope| {
            scope.spawn(look);
            scope.spawn(look);
        });
        assert_eq!(missed.into_inner().expect("nobody panics"), []);
    }
}
