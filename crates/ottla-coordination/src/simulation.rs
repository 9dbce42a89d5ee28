//! The coordinator runtime with groups, transactions and share group state on simulated threads:
//! each client has its own thread, and the partitions' logs are on a simulated disk, while leaders
//! and in-sync replicas change.
//!
//! Invariants:
//! - A response implies that the change is in the log below the high watermark.
//! - The state in memory never goes back, and equals the state loaded from the log.
//! - No share group state is pruned that is needed.
//! - No transactional ID stays pending after its append was refused.
//! - No share partition is open while its partition is led elsewhere.
//! - Every request is answered.
//!
//! A failing seed is printed; `OTTLA_SEED=17 cargo test -p ottla-coordination simulation --
//! --nocapture` repeats it, and `OTTLA_SECONDS=60` tries new seeds for a minute.

mod broker;
mod clients;

use std::sync::Arc;
use std::time::Duration;

use ottla_sync::fs::{Disk, Faults};
use ottla_sync::simulation::{Config, Host, Random, Report, run, stream};
use ottla_sync::{task, thread};

use broker::SimulatedBroker;
use clients::Producer;

const GROUPS: u64 = 5;
const PRODUCERS: u64 = 3;
pub const SHARE_GROUPS: u64 = 3;

/// Counts events, so that a run in which nothing happens fails.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    pub commits: u64,
    pub transactions: u64,
    pub share_writes: u64,
    pub opened: u64,
    /// Transaction requests refused because the ISR was too small.
    pub refused: u64,
    pub elections: u64,
    pub losses_of_leaders: u64,
    pub shrinks: u64,
    /// Runs in which share group state was pruned.
    pub pruned: u64,
}

impl Tally {
    fn fields(&mut self) -> [&mut u64; 9] {
        [
            &mut self.commits,
            &mut self.transactions,
            &mut self.share_writes,
            &mut self.opened,
            &mut self.refused,
            &mut self.elections,
            &mut self.losses_of_leaders,
            &mut self.shrinks,
            &mut self.pruned,
        ]
    }

    fn add(&mut self, other: &Tally) {
        let mut other = *other;
        for (sum, more) in self.fields().into_iter().zip(other.fields()) {
            *sum += *more;
        }
    }

    fn has_everything(&self) -> bool {
        let mut tally = *self;
        tally.fields().into_iter().all(|count| *count > 0)
    }
}

pub fn share_group(number: u64) -> String {
    format!("share-{number}")
}

fn group(number: u64) -> String {
    format!("group-{number}")
}

fn transactional_id(number: u64) -> String {
    format!("transactional-{number}")
}

/// The coordinators' state when no operation is in progress.
async fn settled(broker: &Arc<SimulatedBroker>) -> Vec<String> {
    let mut all = Vec::new();
    for number in 0..GROUPS {
        all.push(clients::settled_offset(broker, group(number)).await);
    }
    for number in 0..PRODUCERS {
        all.push(clients::settled_transaction(broker, transactional_id(number)).await);
    }
    for number in 0..SHARE_GROUPS {
        all.push(clients::settled_share_state(broker, share_group(number)).await);
    }
    all
}

/// One thread per client, like the workers of connections.
fn start_clients(broker: &Arc<SimulatedBroker>) -> Vec<thread::JoinHandle<()>> {
    fn client<F: Future<Output = ()> + Send + 'static>(work: F) -> thread::JoinHandle<()> {
        thread::spawn(move || task::Handle::current().block_on(work))
    }
    let random = |name: &str, number: u64| stream(&format!("{name} {number}"));
    let groups = (0..GROUPS).map(|number| {
        let random = random("group", number);
        client(clients::commit_offsets(
            Arc::clone(broker),
            group(number),
            random,
        ))
    });
    let producers = (0..PRODUCERS).map(|number| {
        let random = random("producer", number);
        let producer = Producer::new(Arc::clone(broker), transactional_id(number), random);
        client(producer.run())
    });
    let share_groups = (0..SHARE_GROUPS).flat_map(|number| {
        // The last group is written rarely.
        let one_in = if number + 1 == SHARE_GROUPS { 30 } else { 2 };
        let (writes, opens) = (random("share", number), random("open", number));
        let id = share_group(number);
        [
            client(clients::write_share_state(
                Arc::clone(broker),
                id.clone(),
                one_in,
                writes,
            )),
            client(clients::open_share_partitions(
                Arc::clone(broker),
                id,
                opens,
            )),
        ]
    });
    groups.chain(producers).chain(share_groups).collect()
}

fn live(disk: Disk) -> Tally {
    let mut random = stream("life");
    let broker = SimulatedBroker::start();
    let slow = Faults {
        // Appends take time, so other threads find the run token taken.
        delay: Some(Duration::ZERO..Duration::from_micros(500)),
        uncached_one_in: 3,
        ..Faults::default()
    };
    let faults = match random.one_in(2) {
        true => slow,
        false => Faults::default(),
    };
    disk.set_faults("/", faults.clone());
    let (following, followed) = (stream("follower"), Arc::clone(&broker));
    let follower = thread::spawn(move || followed.follow(following));
    let clients = start_clients(&broker);
    let (filling, filled) = (stream("full disk"), Arc::clone(&broker));
    let full = disk.clone();
    let filler = thread::spawn(move || fill_now_and_then(&filled, &full, &faults, filling));
    broker.govern(random);
    broker.end();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    filler.join().unwrap();
    check_loaded_again(&broker, &disk);
    broker.end_following();
    follower.join().unwrap();
    let mut tally = *broker.tally.lock();
    let share_state = broker.partition(crate::share_groups::SHARE_STATE_TOPIC);
    tally.pruned = u64::from(share_state.reader().log_start_offset().0 > 0);
    tally
}

/// Fills the disk for short times, in which appends are refused.
fn fill_now_and_then(broker: &SimulatedBroker, disk: &Disk, faults: &Faults, mut random: Random) {
    while !broker.is_over() {
        // Not at the beginning, when the files of new logs are written.
        thread::sleep(Duration::from_millis(30 + random.below(150)));
        for _ in 0..random.below(20) {
            let is_full = true;
            disk.set_faults(
                "/",
                Faults {
                    is_full,
                    ..faults.clone()
                },
            );
            thread::sleep(Duration::from_micros(random.below(300)));
            disk.set_faults("/", faults.clone());
            thread::sleep(Duration::from_micros(random.below(300)));
        }
    }
}

/// The state loaded from the log equals the state in memory, even if no file handle was left at
/// first.
fn check_loaded_again(broker: &Arc<SimulatedBroker>, disk: &Disk) {
    let settle = || task::Handle::current().block_on(broker::in_time(settled(broker)));
    // Operations that clients abandoned are complete by then.
    thread::sleep(Duration::from_secs(1));
    let before = settle();
    if stream("no handles").one_in(2) {
        broker.close_files();
        disk.set_max_handles(0);
        broker.elect_again();
        thread::sleep(Duration::from_millis(1_500));
        disk.set_max_handles(u32::MAX);
    } else {
        broker.elect_again();
    }
    assert_eq!(before, settle(), "memory and log differ");
}

fn run_seed(seed: u64) -> Report<Tally> {
    run(Config::new(seed).with_step_limit(20_000_000), move || {
        let disk = Disk::new(seed, "disk");
        let host = Host::new("broker").with_disk(&disk);
        let main = host.spawn("main", move || live(disk));
        main.join().unwrap()
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// From the clock: different in every run.
fn new_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_millis() as u64 * 1_000
}

#[test]
fn new_seeds_find_nothing() {
    if let Some(seed) = number("OTTLA_SEED") {
        println!("{:?}", run_seed(seed).unwrap());
        return;
    }
    let seconds = Duration::from_secs(number("OTTLA_SECONDS").unwrap_or(6));
    let (first, started) = (new_seed(), std::time::Instant::now());
    let (mut seeds, mut steps, mut simulated) = (0, 0, Duration::ZERO);
    let mut all = Tally::default();
    while started.elapsed() < seconds {
        let report = run_seed(first + seeds);
        seeds += 1;
        steps += report.steps;
        simulated += report.simulated;
        all.add(&report.unwrap());
    }
    println!("{seeds} seeds from {first}, {steps} switch points, {simulated:?} simulated: {all:?}");
    assert!(
        seeds < 30 || all.has_everything(),
        "a run in which something never happened: {all:?}"
    );
}

#[test]
fn a_seed_is_one_run() {
    for seed in 0..3 {
        assert_eq!(run_seed(seed).hash, run_seed(seed).hash, "seed {seed}");
    }
}

/// Each of these defects once existed. The limits are above the worst of ten runs.
#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_found() {
    use crate::planted::{Bug, plant};
    for (bug, most, checker) in [
        (Bug::AnswerForAppendsInTwoSteps, 400, "appended"),
        (Bug::RefuseAppendsInTwoSteps, 400, ""),
        (Bug::AppendUnderMinIsr, 50, "stays pending"),
        (Bug::LookBeforeTheLock, 400, "led here no longer"),
    ] {
        plant(Some(bug));
        let found = (0..most).find_map(|seed| Some((seed, run_seed(seed).result.err()?)));
        plant(None);
        let Some((seed, failure)) = found else {
            panic!("{bug:?} is not found within {most} seeds");
        };
        println!("{bug:?}: found by seed {seed}: {failure}");
        assert!(
            failure.to_string().contains(checker),
            "it is something else"
        );
    }
}
