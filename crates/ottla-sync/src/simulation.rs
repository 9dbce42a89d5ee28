//! Runs code written against this crate under a seed.
//!
//! [`run`] creates a world in which each thread is a coroutine. One thread of the system runs them
//! all, and at each switch point (taking or releasing a lock, a message, an atomic operation, a
//! disk or network call) the seed chooses which runnable thread continues. So a seed is one exact
//! interleaving: [`Report::hash`] identifies runs, and [`Config::records`] records all switch
//! points.
//!
//! # Killing a host
//!
//! [`Host::kill`] ends the threads of a host where they are suspended. Their stacks are unwound by
//! a panic that starts there, so that memory is freed. `Drop` implementations run and may change
//! memory; the simulated disk and network refuse their calls, no switch happens, and the host's
//! tasks are dropped last. If the product catches this panic with `catch_unwind`, it continues at
//! the thread's next switch point. If a `Drop` waits for another thread of its host, that thread is
//! unwound first. The rule for product code is Rust's general rule: a `Drop` must not panic. A
//! `Drop` that takes a lock held by its own stack would deadlock in the product; here the process
//! is aborted.
//!
//! # What is not simulated
//!
//! Memory orderings weaker than sequential consistency (use loom), preemption between two switch
//! points, and the standard library's own locks, which must not be held across a switch point: a
//! `std::sync` lock held by one coroutine would block all of them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub(crate) mod connection;
pub(crate) mod executor;
mod failure;
pub(crate) mod host;
mod hot;
pub(crate) mod join;
mod journal;
pub(crate) mod network;
mod policy;
pub(crate) mod random;
pub(crate) mod state;
pub(crate) mod trace;
pub(crate) mod world;

pub use failure::{Failure, Waiting};
pub use host::{Host, host_name, now, stream};
pub use network::Network;
pub use policy::Policy;
pub use random::Random;
pub use state::host::HostClock;
pub use state::network::LinkFaults;

use journal::OpenRun;
use policy::Chooser;
use state::host::HostState;
use world::World;

/// The parameters of a run. Everything that differs between two runs of the same code is here.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub seed: u64,
    pub policy: Policy,
    /// The run fails after this many switch points.
    pub step_limit: u64,
    /// Whether [`Report::trace`] is recorded.
    pub records: bool,
}

impl Config {
    /// With a policy drawn from the seed.
    pub fn new(seed: u64) -> Config {
        Config {
            seed,
            policy: Policy::drawn(seed),
            step_limit: 100_000_000,
            records: false,
        }
    }

    pub fn with_policy(self, policy: Policy) -> Config {
        Config { policy, ..self }
    }

    pub fn with_step_limit(self, step_limit: u64) -> Config {
        Config { step_limit, ..self }
    }

    pub fn recorded(self) -> Config {
        Config {
            records: true,
            ..self
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Report<T> {
    pub seed: u64,
    pub result: Result<T, Failure>,
    /// A hash of everything the scheduler saw and chose.
    pub hash: u64,
    pub steps: u64,
    /// How often a suspended or new thread was resumed.
    pub switches: u64,
    pub simulated: Duration,
    /// One line per switch point, if recorded.
    pub trace: String,
}

impl<T> Report<T> {
    /// The result, or a panic with the failing seed and the failure.
    #[track_caller]
    pub fn unwrap(self) -> T {
        match self.result {
            Ok(value) => value,
            Err(failure) => panic!("seed {}: {failure}", self.seed),
        }
    }
}

/// Runs `body` as the first thread of a simulated world. The run ends with it or with the first
/// failure; all other threads are then killed.
pub fn run<T: 'static>(config: Config, body: impl FnOnce() -> T + 'static) -> Report<T> {
    let _open = OpenRun::begin(config.seed);
    failure::catch_panic_messages();
    let chooser = Chooser::new(config.policy, config.seed);
    let world = World::enter(config.seed, chooser, config.step_limit, config.records);
    world.with(|state| state.hosts.push(HostState::new("world", 0, 0)));
    let result = Rc::new(RefCell::new(None));
    let ended = result.clone();
    let first = move || {
        *ended.borrow_mut() = Some(body());
        world::world().with(|state| state.is_over = true);
    };
    world.spawn(0, "main", Box::new(first));
    world.run();
    let (steps, hash) = world.steps_and_hash();
    let simulated = Duration::from_nanos(world.now());
    // The world is dropped last, because hosts share it.
    let hosts = world.with(|state| state.hosts.len() as u32);
    (0..hosts).rev().for_each(|host| world.kill(host));
    let (failure, switches, trace) = world.with(|state| {
        let lines = state.trace.iter().map(|entry| format!("{entry}\n"));
        (state.failure.take(), state.switches, lines.collect())
    });
    world.leave();
    let value = result.borrow_mut().take();
    Report {
        seed: config.seed,
        result: match (failure, value) {
            (Some(failure), _) => Err(failure),
            (None, value) => Ok(value.expect("the first thread has ended")),
        },
        hash,
        steps,
        switches,
        simulated,
        trace,
    }
}

/// Runs seeds until one fails. Returns the number of runs and the report of the failed one.
pub fn search<T: 'static, B: FnOnce() -> T + 'static>(
    seeds: impl IntoIterator<Item = u64>,
    config: impl Fn(u64) -> Config,
    body: impl Fn() -> B,
) -> (u64, Option<Report<T>>) {
    let mut count = 0;
    for seed in seeds {
        count += 1;
        let report = run(config(seed), body());
        if report.result.is_err() {
            return (count, Some(report));
        }
    }
    (count, None)
}
