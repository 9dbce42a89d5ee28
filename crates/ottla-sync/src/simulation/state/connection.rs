//! The two ends of a simulated connection and their packets in flight.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::task::Waker;

use parking_lot::Mutex;

/// The arrival time of a packet that a cut link holds back.
pub(crate) const HELD: u64 = u64::MAX;

pub(crate) struct Connection {
    /// The connecting and the accepting side.
    pub(crate) parties: [Party; 2],
    pub(crate) ends: Mutex<[End; 2]>,
}

/// One side of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Party {
    pub(crate) address: SocketAddr,
    pub(crate) host: u32,
    pub(crate) machine: u32,
}

/// Data received by one side, and data in flight to it.
#[derive(Default)]
pub(crate) struct End {
    pub(crate) packets: VecDeque<(u64, Packet)>,
    pub(crate) received: VecDeque<u8>,
    /// Bytes received or in flight.
    pub(crate) buffered: usize,
    pub(crate) last_arrival: u64,
    /// The other side has shut down its write side.
    pub(crate) has_ended: bool,
    pub(crate) is_reset: bool,
    pub(crate) is_closed: bool,
    pub(crate) readers: Vec<Waker>,
    /// Waiters of the other side for room here.
    pub(crate) writers: Vec<Waker>,
}

pub(crate) enum Packet {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// Wakers and the time to call them.
pub(crate) struct Delivery {
    pub(crate) at: u64,
    pub(crate) wakers: Vec<Waker>,
}

impl End {
    /// Takes the packets that have arrived.
    pub(crate) fn settle(&mut self, now: u64) {
        while self.packets.front().is_some_and(|(at, _)| *at <= now) {
            match self.packets.pop_front() {
                // Without a copy if everything before was read, as it mostly is.
                Some((_, Packet::Bytes(bytes))) if self.received.is_empty() => {
                    self.received = bytes.into();
                }
                Some((_, Packet::Bytes(bytes))) => self.received.extend(bytes),
                Some((_, Packet::End)) => self.has_ended = true,
                Some((_, Packet::Reset)) => self.is_reset = true,
                None => {}
            }
        }
    }

    pub(crate) fn is_readable(&self) -> bool {
        !self.received.is_empty() || self.has_ended || self.is_reset
    }

    pub(crate) fn send(&mut self, at: u64, packet: Packet) -> Delivery {
        let at = match self.packets.back() {
            // Packets sent after a held one wait for it.
            Some((HELD, _)) => HELD,
            _ => at.max(self.last_arrival),
        };
        if at != HELD {
            self.last_arrival = at;
        }
        if let Packet::Reset = packet {
            // Waiters for room learn of it too.
            self.readers.append(&mut self.writers);
        }
        self.packets.push_back((at, packet));
        let wakers = match at {
            HELD => Vec::new(),
            _ => std::mem::take(&mut self.readers),
        };
        Delivery { at, wakers }
    }
}

impl Connection {
    pub(crate) fn new(parties: [Party; 2]) -> Connection {
        Connection {
            parties,
            ends: Mutex::default(),
        }
    }
}
