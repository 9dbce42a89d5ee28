//! The network between simulated hosts: addresses, listeners, links and faults.
//!
//! All hosts of one name are processes of one machine, which has one address and resolves by that
//! name. Data on a connection arrives in order, after a random delay. A cut link holds data back
//! until it is restored, like TCP with retransmissions; a caller that cannot wait needs a timeout.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use super::state::State;
use super::state::connection::{Connection, Delivery, Party};
use super::state::network::{Backlog, LinkFaults, Route, address_of};
use super::world::{self, Timer, World};

fn machine_of(address: IpAddr, own: u32) -> Option<u32> {
    let address = address.to_canonical();
    if address.is_loopback() || address.is_unspecified() {
        return Some(own);
    }
    match address {
        IpAddr::V4(address) if address.octets()[0] == 10 => {
            let [_, a, b, c] = address.octets();
            u32::from_be_bytes([0, a, b, c]).checked_sub(1)
        }
        _ => None,
    }
}

impl State {
    fn machine(&self, host: u32) -> u32 {
        self.hosts[host as usize].machine
    }

    /// Whether a process runs there; if not, whether the machine is on.
    fn is_answering(&self, machine: u32) -> bool {
        let of_machine = self.hosts.iter().rev().find(|host| host.machine == machine);
        of_machine.is_some_and(|host| host.is_alive || !host.loses_power)
    }

    /// Whether a party's process is gone without having closed its connections.
    pub(crate) fn is_silent(&self, party: &Party) -> bool {
        let host = &self.hosts[party.host as usize];
        !host.is_alive && host.loses_power
    }

    /// Whether the machine of a dead party would answer a packet for it.
    pub(crate) fn answers_for(&self, party: &Party) -> bool {
        self.is_answering(party.machine)
    }
}

impl World {
    /// The delay of a packet that is sent now.
    pub(crate) fn link_delay(&self) -> Duration {
        Duration::from_nanos(self.with(|state| state.network.delay_nanos()))
    }

    pub(crate) fn resolve(&self, name: &str) -> Option<IpAddr> {
        let own = self.host();
        self.with(|state| {
            if let Ok(address) = name.parse() {
                return Some(address);
            }
            let named = state.hosts.iter().find(|host| host.name == name);
            match named {
                Some(host) => Some(address_of(host.machine)),
                None => (name == "localhost").then(|| address_of(state.machine(own))),
            }
        })
    }

    /// Binds a socket of the caller's host, which does not listen yet. `None` if the port is in use.
    pub(crate) fn bind(&self, address: SocketAddr, limit: usize) -> Option<Arc<Backlog>> {
        let host = self.host();
        self.with(|state| {
            let machine = state.machine(host);
            let port = match address.port() {
                0 => state.network.ephemeral_port(),
                port => port,
            };
            let backlog = Arc::new(Backlog {
                address: SocketAddr::new(address.ip(), port),
                host,
                limit,
                waiting: Mutex::default(),
            });
            let place = (machine, port);
            if state.network.listeners.contains_key(&place) {
                return None;
            }
            state.network.listeners.insert(place, backlog.clone());
            Some(backlog)
        })
    }

    pub(crate) fn unlisten(&self, backlog: &Backlog) {
        self.with(|state| {
            let place = (state.machine(backlog.host), backlog.address.port());
            let listeners = &mut state.network.listeners;
            // Another host of the machine may have bound the port by now.
            if listeners
                .get(&place)
                .is_some_and(|there| there.host == backlog.host)
            {
                listeners.remove(&place);
            }
        });
    }

    pub(crate) fn route(&self, to: SocketAddr) -> Route {
        let host = self.host();
        self.with(|state| {
            let own = state.machine(host);
            let Some(machine) = machine_of(to.ip(), own) else {
                return Route::Silence;
            };
            let network = &state.network;
            if network.is_cut(own, machine) || network.is_cut(machine, own) {
                return Route::Silence;
            }
            match network.listeners.get(&(machine, to.port())) {
                Some(backlog) => {
                    let waiting = backlog.waiting.lock();
                    match waiting.is_listening {
                        false => Route::Refused,
                        true if waiting.connections.len() >= backlog.limit => Route::Silence,
                        true => Route::Listener(backlog.clone()),
                    }
                }
                None if state.is_answering(machine) => Route::Refused,
                None => Route::Silence,
            }
        })
    }

    /// Connects the caller's host to a listener, which finds the connection in its backlog.
    pub(crate) fn connect(&self, backlog: &Backlog) -> Arc<Connection> {
        let host = self.host();
        let connection = self.with(|state| {
            let port = state.network.ephemeral_port();
            let machine = state.machine(host);
            let caller = Party {
                address: SocketAddr::new(address_of(machine), port),
                host,
                machine,
            };
            let listening = state.machine(backlog.host);
            let called = Party {
                address: SocketAddr::new(address_of(listening), backlog.address.port()),
                host: backlog.host,
                machine: listening,
            };
            let connection = Arc::new(Connection::new([caller, called]));
            let connections = &mut state.network.connections;
            connections.retain(|connection| connection.strong_count() > 0);
            connections.push(Arc::downgrade(&connection));
            connection
        });
        let wakers = {
            let mut waiting = backlog.waiting.lock();
            let address = connection.parties[0].address;
            waiting.connections.push_back((connection.clone(), address));
            std::mem::take(&mut waiting.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
        connection
    }

    /// Removes the listeners and connections of a killed host.
    pub(super) fn disconnect(&self, host: u32) {
        let backlogs: Vec<Arc<Backlog>> = self.with(|state| {
            let listeners = state.network.listeners.values();
            let of_host = listeners.filter(|backlog| backlog.host == host);
            of_host.cloned().collect()
        });
        for backlog in backlogs {
            self.unlisten(&backlog);
            let waiting = std::mem::take(&mut *backlog.waiting.lock());
            for (connection, _) in waiting.connections {
                connection.close(self, 1);
            }
        }
        for connection in self.connections() {
            for side in 0..2 {
                if connection.parties[side].host == host {
                    connection.close(self, side);
                }
            }
        }
    }

    fn connections(&self) -> Vec<Arc<Connection>> {
        self.with(|state| {
            let connections = state.network.connections.iter();
            connections.filter_map(Weak::upgrade).collect()
        })
    }

    /// Schedules wakers for the arrival of data.
    pub(super) fn deliver(&self, delivery: Delivery) {
        for waker in delivery.wakers {
            self.add_timer(delivery.at, Timer::Task(waker));
        }
    }
}

/// The network of the caller's simulation.
#[derive(Clone, Copy, Debug)]
pub struct Network(());

impl Network {
    pub fn of_this_simulation() -> Network {
        Network(())
    }

    fn state<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        world::world().with(work)
    }

    pub fn set_faults(&self, faults: LinkFaults) {
        self.state(|state| state.network.faults = faults);
    }

    /// Cuts the link from one machine to another, by host names.
    pub fn cut(&self, from: &str, to: &str) {
        self.state(|state| {
            let pair = state.pair(from, to);
            state.network.cut.insert(pair);
        });
    }

    /// Cuts a machine off from all others.
    pub fn isolate(&self, name: &str) {
        self.state(|state| {
            let machines: BTreeSet<u32> = state.hosts.iter().map(|host| host.machine).collect();
            let own = state.machine_named(name);
            for other in machines.into_iter().filter(|other| *other != own) {
                state.network.cut.extend([(own, other), (other, own)]);
            }
        });
    }

    /// Restores all links: data held back is sent.
    pub fn heal(&self) {
        self.state(|state| state.network.cut.clear());
        let world = world::world();
        for connection in world.connections() {
            connection.send_again(&world);
        }
    }

    /// Breaks all connections between two machines.
    pub fn reset(&self, one: &str, other: &str) {
        let world = world::world();
        let (one, other) = self.state(|state| state.pair(one, other));
        for connection in world.connections() {
            let machines = [0, 1].map(|side| connection.parties[side].machine);
            if machines == [one, other] || machines == [other, one] {
                (0..2).for_each(|side| connection.reset(&world, side));
            }
        }
    }
}

impl State {
    fn machine_named(&self, name: &str) -> u32 {
        let named = self.hosts.iter().find(|host| host.name == name);
        named.expect("a host has this name").machine
    }

    fn pair(&self, one: &str, other: &str) -> (u32, u32) {
        (self.machine_named(one), self.machine_named(other))
    }
}
