//! One replica on a simulated disk, run by the product's own code: inbox, log, cleaner and
//! maintenance, with clients, a controller and another replica around it; killed at any point, with
//! and without power loss.
//!
//! A failing seed is printed; `OTTLA_SEED=17 cargo test -p ottla-partition simulated --
//! --nocapture` repeats it and prints the events, and `OTTLA_SECONDS=60` tries new seeds for a
//! minute.
//!
//! Not simulated here: the network, fetch sessions, and directory moves.

use std::path::Path;
use std::time::{Duration, Instant};

use ottla_log::checkpoint::FAILED_FSYNC_FILE;
use ottla_sync::fs::{Disk, Faults, PowerLoss};
use ottla_sync::simulation::{Config, Host, Report, run, stream};
use ottla_sync::thread;

#[macro_use]
mod tell;

mod broker;
mod checks;
mod clients;
mod cluster;
mod running;

use broker::{Life, Stop};
use cluster::{Cluster, Setup, Tally};
use running::DATA;
use tell::number;

/// Several lives of the broker on one disk, and a last one without faults, in which everything must
/// complete.
fn lives(setup: Setup) -> Tally {
    let mut random = stream("lives");
    let disk = Disk::new(setup.seed, "disk");
    let cluster = Cluster::new(setup);
    let formatting = Host::new("format").with_disk(&disk);
    formatting
        .spawn("main", broker::format)
        .join()
        .expect("formats");
    formatting.kill();
    let lives = 4;
    for life in 0..=lives {
        let is_last = life == lives;
        let faults = match random.below(3) {
            _ if is_last => Faults::default(),
            0 if setup.has_losses => Faults {
                writes_fail_one_in: 400,
                syncs_fail_one_in: 60,
                short_writes_one_in: 10,
                ..Faults::default()
            },
            1 => Faults {
                delay: Some(Duration::ZERO..Duration::from_millis(2)),
                uncached_one_in: 3,
                ..Faults::default()
            },
            _ => Faults::default(),
        };
        tell!("life {life}, {faults:?}");
        let is_faulty = faults.syncs_fail_one_in > 0;
        disk.set_faults("/", faults);
        let host = Host::new("broker").with_disk(&disk);
        let run = Life {
            cluster: cluster.clone(),
            lasts: Duration::from_millis(50 + random.below(250)),
            closes: random.one_in(3) || is_last,
            is_last,
        };
        let main = host.spawn("main", move || run.live());
        let controller = {
            let (cluster, host) = (cluster.clone(), host.clone());
            let mut random = stream(&format!("controller {life}"));
            thread::spawn(move || {
                while host.is_alive() && !is_last {
                    thread::sleep(Duration::from_millis(5 + random.below(40)));
                    if host.is_alive() {
                        cluster.with(|state| state.act(&mut random));
                    }
                }
            })
        };
        if !is_last && !random.one_in(3) {
            host.kill_in(random.below(60_000));
        }
        let ended = main.join();
        host.kill();
        controller.join().expect("the controller ends");
        // A kill may come between a failed fsync and the file that tells the next start of it.
        let is_told = disk
            .content(&Path::new(DATA).join(FAILED_FSYNC_FILE))
            .is_some();
        let is_unknown = is_faulty && !is_told && !matches!(ended, Ok(Stop::Closed));
        let has_lost_power = !is_last && setup.has_losses && (is_unknown || random.one_in(2));
        cluster.with(|state| {
            let tally = &mut state.tally;
            match ended {
                Ok(Stop::Closed) => tally.stops += 1,
                Ok(Stop::Failed) => tally.failures += 1,
                Ok(Stop::Over) | Err(_) => tally.kills += 1,
            }
            tally.losses += u64::from(has_lost_power);
            tell!("{ended:?}, loss of power: {has_lost_power}");
            state.has_lost_power |= has_lost_power;
            if !is_last {
                state.on_broker_down();
            }
        });
        if has_lost_power {
            disk.lose_power(PowerLoss::Journalled);
        }
    }
    cluster.with(|state| state.tally)
}

fn run_seed(seed: u64, records: bool) -> Report<Tally> {
    let mut random = ottla_sync::simulation::Random::named(seed, "setup");
    let has_losses = random.one_in(2);
    let setup = Setup {
        seed,
        is_compacted: random.one_in(2),
        has_losses,
        has_unclean_elections: random.one_in(2),
    };
    let config = Config {
        records,
        ..Config::new(seed).with_step_limit(20_000_000)
    };
    tell!("{setup:?}, {:?}", config.policy);
    run(config, move || lives(setup))
}

impl Tally {
    fn all(&self) -> [u64; 15] {
        [
            self.committed,
            self.acknowledged,
            self.elections,
            self.truncations,
            self.unclean_elections,
            self.kills,
            self.losses,
            self.stops,
            self.failures,
            self.rolls,
            self.cleanings,
            self.transactions,
            self.refused_transactions,
            self.aborted,
            self.holes,
        ]
    }
}

#[test]
fn a_replica_survives_kills_and_losses_of_power() {
    if let Some(seed) = number("OTTLA_SEED") {
        let report = run_seed(seed, false);
        println!("{} switch points, {:?}", report.steps, report.simulated);
        println!("{:?}", report.unwrap());
        return;
    }
    let seconds = Duration::from_secs(number("OTTLA_SECONDS").unwrap_or(6));
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = since_epoch.expect("a clock").as_millis() as u64 * 1_000;
    let (started, mut seeds, mut steps) = (Instant::now(), 0, 0);
    let (mut all, mut simulated) = ([0; 15], Duration::ZERO);
    while started.elapsed() < seconds {
        let report = run_seed(first + seeds, false);
        seeds += 1;
        steps += report.steps;
        simulated += report.simulated;
        let tally = report.unwrap();
        assert!(
            tally.committed > 0 && tally.elections > 0 && tally.rolls > 0,
            "seed {}: a run in which nothing happened: {tally:?}",
            first + seeds - 1
        );
        let sums = all.iter().zip(tally.all());
        all = std::array::from_fn(|at| sums.clone().nth(at).map_or(0, |(sum, more)| sum + more));
    }
    println!("{seeds} seeds from {first}, {steps} switch points, {simulated:?} simulated: {all:?}");
    // Holes are rare.
    let least = all[..14].iter().min();
    assert!(
        seeds < 50 || least > Some(&0),
        "something never happened: {all:?}"
    );
}

#[test]
fn a_seed_is_one_run() {
    for seed in 0..4 {
        let (first, second) = (run_seed(seed, true), run_seed(seed, true));
        let mut lines = first.trace.lines().zip(second.trace.lines()).enumerate();
        let differ = lines.find(|(_, (first, second))| first != second);
        assert_eq!(differ, None, "seed {seed}");
        assert_eq!(
            (first.hash, first.steps),
            (second.hash, second.steps),
            "seed {seed}"
        );
    }
}

/// Each of these planted defects is found within this many seeds.
#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_found() {
    for (bug, within) in [
        ("a cleaning goes on over a truncation", 1_000),
        ("a truncation leaves the cleaner's checkpoint", 1_000),
        ("a truncation leaves the recovery point's checkpoint", 1_000),
        ("an answer is for all batches that wait", 400),
        ("a wake-up of the inbox is lost", 20),
    ] {
        ottla_sync::planted::plant(Some(bug));
        let found = (0..within).find_map(|seed| Some((seed, run_seed(seed, false).result.err()?)));
        ottla_sync::planted::plant(None);
        let (seed, failure) = found.unwrap_or_else(|| panic!("{bug}: not found"));
        let failure = failure.to_string();
        println!(
            "{bug}: seed {seed}, {}",
            failure.lines().next().unwrap_or_default()
        );
    }
}
