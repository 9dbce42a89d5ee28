//! A simulated host: clocks, tasks, disk, and whether it is alive.

use std::time::Duration;

use super::disk::Disk;
use super::executor::Executor;
use crate::simulation::random::Random;

/// The differences between a host's clocks and the simulation's time.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    /// The monotonic clock at the start of the simulation.
    pub uptime: Duration,
    /// The wall clock at the start of the simulation, since the Unix epoch.
    pub wall: Duration,
    /// How fast both clocks run, in parts per million; negative if slow.
    pub drift_ppm: i64,
}

impl Default for HostClock {
    /// January 1st, 2026, on a host that has been up for a day.
    fn default() -> Self {
        HostClock {
            uptime: Duration::from_secs(24 * 3600),
            wall: Duration::from_secs(1_767_225_600),
            drift_ppm: 0,
        }
    }
}

impl HostClock {
    /// Nanoseconds of this clock since the simulation began, at a simulated time.
    pub(crate) fn elapsed(&self, now: u64) -> u64 {
        // Up to weeks the product fits 64 bits; this is called at every clock read.
        let drift = match i64::try_from(now)
            .ok()
            .and_then(|now| now.checked_mul(self.drift_ppm))
        {
            Some(product) => i128::from(product / 1_000_000),
            None => i128::from(now) * i128::from(self.drift_ppm) / 1_000_000,
        };
        (i128::from(now) + drift).max(0) as u64
    }

    /// The simulated time in which this clock advances by `duration`.
    pub(crate) fn real(&self, duration: Duration) -> u64 {
        let nanos = duration.as_nanos().min(u128::from(u64::MAX / 4)) as u64;
        let rate = 1_000_000 + self.drift_ppm;
        match (nanos.checked_mul(1_000_000), u64::try_from(rate)) {
            (Some(product), Ok(rate)) => product / rate,
            _ => (i128::from(nanos) * 1_000_000 / i128::from(rate)) as u64,
        }
    }
}

pub(crate) struct HostState {
    pub(crate) name: String,
    pub(crate) is_alive: bool,
    pub(crate) clock: HostClock,
    pub(crate) executor: Executor,
    pub(crate) disk: Option<Disk>,
    /// All processes of one name run on one machine.
    pub(crate) machine: u32,
    /// A machine without power does not close its connections.
    pub(crate) loses_power: bool,
    /// The streams of random numbers by consumer. There are few, and the first are used most.
    pub(crate) streams: Vec<(&'static str, Random)>,
    /// The number of this process among the processes of its name.
    pub(crate) incarnation: u64,
}

impl HostState {
    pub(crate) fn new(name: &str, machine: u32, incarnation: u64) -> HostState {
        HostState {
            name: name.to_owned(),
            is_alive: true,
            clock: HostClock::default(),
            executor: Executor::new(2),
            disk: None,
            machine,
            loses_power: false,
            streams: Vec::new(),
            incarnation,
        }
    }
}
