//! The listeners, links, connections and faults of the simulated network.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use super::connection::Connection;
use crate::simulation::random::Random;

/// The properties of connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkFaults {
    /// The delay of a packet.
    pub delay: Range<Duration>,
    /// Partial reads and writes: one in this many.
    pub short_one_in: u64,
    /// Writes that break the connection: one in this many.
    pub resets_one_in: u64,
    /// Maximum number of unread bytes of a connection.
    pub window_bytes: usize,
}

impl Default for LinkFaults {
    fn default() -> LinkFaults {
        LinkFaults {
            delay: Duration::from_micros(50)..Duration::from_micros(500),
            short_one_in: 0,
            resets_one_in: 0,
            window_bytes: 1 << 18,
        }
    }
}

/// The ports for listeners without a requested port.
const FIRST_EPHEMERAL_PORT: u16 = 32_768;

pub(crate) struct NetworkState {
    random: Random,
    pub(crate) faults: LinkFaults,
    /// Pairs of machines. The first cannot reach the second.
    pub(crate) cut: BTreeSet<(u32, u32)>,
    pub(crate) listeners: BTreeMap<(u32, u16), Arc<Backlog>>,
    pub(crate) connections: Vec<Weak<Connection>>,
    next_port: u16,
}

/// Connections waiting to be accepted.
pub(crate) struct Backlog {
    pub(crate) address: SocketAddr,
    pub(crate) host: u32,
    pub(crate) limit: usize,
    pub(crate) waiting: Mutex<Waiting>,
}

#[derive(Default)]
pub(crate) struct Waiting {
    /// Connections are refused until then.
    pub(crate) is_listening: bool,
    pub(crate) connections: VecDeque<(Arc<Connection>, SocketAddr)>,
    pub(crate) wakers: Vec<Waker>,
}

/// The outcome of a connection attempt.
pub(crate) enum Route {
    Listener(Arc<Backlog>),
    Refused,
    /// No answer.
    Silence,
}

impl NetworkState {
    pub(crate) fn new(seed: u64) -> NetworkState {
        NetworkState {
            random: Random::named(seed, "network"),
            faults: LinkFaults::default(),
            cut: BTreeSet::new(),
            listeners: BTreeMap::new(),
            connections: Vec::new(),
            next_port: FIRST_EPHEMERAL_PORT,
        }
    }

    pub(crate) fn delay_nanos(&mut self) -> u64 {
        let (from, to) = (&self.faults.delay.start, &self.faults.delay.end);
        let span = to.saturating_sub(*from).as_nanos() as u64;
        from.as_nanos() as u64 + self.random.below(span + 1)
    }

    pub(crate) fn is_cut(&self, from: u32, to: u32) -> bool {
        self.cut.contains(&(from, to))
    }

    pub(crate) fn window_bytes(&self) -> usize {
        self.faults.window_bytes
    }

    /// How many of `count` bytes a call transfers.
    pub(crate) fn part_of(&mut self, count: usize) -> usize {
        let one_in = self.faults.short_one_in;
        match count > 1 && one_in > 0 && self.random.one_in(one_in) {
            true => 1 + self.random.index(count - 1),
            false => count,
        }
    }

    pub(crate) fn is_reset_drawn(&mut self) -> bool {
        let one_in = self.faults.resets_one_in;
        one_in > 0 && self.random.one_in(one_in)
    }

    pub(crate) fn ephemeral_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL_PORT);
        port
    }
}

/// The address of a machine.
pub(crate) fn address_of(machine: u32) -> IpAddr {
    let [_, a, b, c] = (machine + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, a, b, c))
}
