//! Simulated hosts: processes that are started and killed, each with its own clock.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::hot::HOT;
use super::join::JoinState;
use super::random::Random;
use super::state::disk::Disk;
use super::state::executor::Executor;
use super::state::host::{HostClock, HostState};
use super::state::network::address_of;
use super::world::{self, World};

/// The origin of all instants; simulated instants differ from it by the host's clock.
pub(crate) fn origin() -> Instant {
    static ORIGIN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    *ORIGIN
}

impl World {
    /// Calls `work` with the host of the running thread and the simulated time.
    fn on_host<R>(&self, work: impl FnOnce(&mut HostState, u64) -> R) -> R {
        HOT.with(|hot| {
            self.with(|state| {
                let (host, now) = (state.host_of(hot.current.get()), state.now(hot));
                work(&mut state.hosts[host as usize], now)
            })
        })
    }

    pub(crate) fn monotonic(&self) -> Instant {
        self.on_host(|host, now| {
            origin() + host.clock.uptime + Duration::from_nanos(host.clock.elapsed(now))
        })
    }

    pub(crate) fn wall(&self) -> SystemTime {
        self.on_host(|host, now| {
            let passed = Duration::from_nanos(host.clock.elapsed(now));
            SystemTime::UNIX_EPOCH + host.clock.wall + passed
        })
    }

    /// The simulated time at which the host's clock has advanced by `duration`.
    pub(crate) fn deadline_in(&self, duration: Duration) -> u64 {
        self.on_host(|host, now| now.saturating_add(host.clock.real(duration)))
    }

    pub(crate) fn disk(&self) -> Option<Disk> {
        self.on_host(|host, _| host.disk.clone())
    }

    /// The next number of `consumer`'s stream on this host.
    pub(crate) fn random_u64(&self, consumer: &'static str) -> u64 {
        let seed = self.seed;
        self.on_host(|host, _| {
            let mut known = host.streams.iter_mut();
            if let Some((_, random)) = known.find(|(name, _)| *name == consumer) {
                return random.u64();
            }
            let (name, incarnation) = (&host.name, host.incarnation);
            let mut random = Random::named(seed, &format!("{name} {incarnation} {consumer}"));
            let number = random.u64();
            host.streams.push((consumer, random));
            number
        })
    }
}

/// A simulated process. Any simulated thread may hold and use the handle.
#[derive(Clone, Debug)]
pub struct Host {
    index: u32,
    name: Arc<str>,
}

impl Host {
    /// A host without threads. Reusing a name means a restarted process: the same name with
    /// different random numbers.
    pub fn new(name: &str) -> Host {
        let world = world::world();
        let index = world.with(|state| {
            let same_name = state.hosts.iter().filter(|host| host.name == name);
            let (count, first) = (
                same_name.clone().count(),
                same_name.map(|host| host.machine).next(),
            );
            let machines = state.hosts.iter().map(|host| host.machine + 1).max();
            let machine = first.or(machines).unwrap_or_default();
            state
                .hosts
                .push(HostState::new(name, machine, count as u64));
            state.hosts.len() as u32 - 1
        });
        Host {
            index,
            name: name.into(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn with_clock(self, clock: HostClock) -> Host {
        self.state(|host| host.clock = clock);
        self
    }

    /// The number of threads that poll its tasks; 2 by default.
    pub fn with_workers(self, workers: usize) -> Host {
        self.state(|host| host.executor = Executor::new(workers));
        self
    }

    /// The disk for the file calls of its threads; without one they go to the kernel.
    pub fn with_disk(self, disk: &Disk) -> Host {
        let disk = disk.clone();
        self.state(|host| host.disk = Some(disk));
        self
    }

    fn state<R>(&self, work: impl FnOnce(&mut HostState) -> R) -> R {
        world::world().with(|state| work(&mut state.hosts[self.index as usize]))
    }

    /// Starts a thread.
    pub fn spawn<T: 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + 'static,
    ) -> crate::thread::JoinHandle<T> {
        let state = JoinState::new();
        let completion = state.completion();
        assert!(self.is_alive(), "a host that was killed starts no thread");
        let body = Box::new(move || completion.complete(body()));
        world::world().spawn(self.index, name, body);
        crate::thread::JoinHandle::simulated(state)
    }

    /// Its address in the simulated network, shared by all hosts of this name.
    pub fn address(&self) -> IpAddr {
        self.state(|host| address_of(host.machine))
    }

    pub fn is_alive(&self) -> bool {
        self.state(|host| host.is_alive)
    }

    /// Ends its threads and tasks where they are. Files keep their content, as after SIGKILL;
    /// [`Disk::lose_power`] does the rest.
    pub fn kill(&self) {
        if self.is_alive() {
            world::world().kill_now(self.index);
        }
    }

    /// As [`Host::kill`], but the machine does not close its connections either, and answers no
    /// packets until a host of its name is started again. [`Disk::lose_power`] decides what its
    /// disk loses.
    pub fn lose_power(&self) {
        self.state(|host| host.loses_power = true);
        self.kill();
    }

    /// Kills it at the switch point `steps` after this one, in whatever thread that is.
    pub fn kill_in(&self, steps: u64) {
        world::world().kill_in(self.index, steps);
    }
}

/// The simulated time, which differs from every host's clock.
pub fn now() -> Duration {
    Duration::from_nanos(world::world().now())
}

/// The name of the host whose thread is running; empty outside of all hosts.
pub fn host_name() -> String {
    let world = world::world();
    let host = world.host() as usize;
    world.with(|state| {
        state
            .hosts
            .get(host)
            .map_or(String::new(), |host| host.name.clone())
    })
}

/// A stream of random numbers for the test itself.
pub fn stream(name: &str) -> Random {
    Random::named(world::world().seed, name)
}
