//! A simulated connection: two pipes of packets that arrive in order, each at its time.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker};

use super::state::connection::{Connection, Delivery, HELD, Packet};
use super::world::{Timer, World};

fn remember(wakers: &mut Vec<Waker>, context: &Context<'_>) {
    if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
        wakers.push(context.waker().clone());
    }
}

impl Connection {
    /// The arrival time of a packet that `side` sends now.
    fn arrival(&self, world: &World, side: usize) -> u64 {
        let now = world.now();
        let (from, to) = (self.parties[side].machine, self.parties[1 - side].machine);
        world.with(|state| match state.network.is_cut(from, to) {
            true => HELD,
            false => now + state.network.delay_nanos(),
        })
    }

    fn send(&self, world: &World, side: usize, packet: Packet) {
        let at = self.arrival(world, side);
        let delivery = self.ends.lock()[1 - side].send(at, packet);
        world.deliver(delivery);
    }

    /// Whether there are bytes, the end, or an error to read.
    pub(crate) fn poll_readable(
        &self,
        world: &World,
        side: usize,
        context: &Context<'_>,
    ) -> Poll<()> {
        let now = world.now();
        let mut ends = self.ends.lock();
        let end = &mut ends[side];
        end.settle(now);
        if end.is_readable() {
            return Poll::Ready(());
        }
        match end.packets.front() {
            Some((at, _)) if *at != HELD => {
                let (at, waker) = (*at, context.waker().clone());
                drop(ends);
                world.add_timer(at, Timer::Task(waker));
            }
            _ => remember(&mut end.readers, context),
        }
        Poll::Pending
    }

    /// Whether the end of the other side has arrived, even if bytes before it are not read yet.
    pub(crate) fn is_closed_by_peer(&self, world: &World, side: usize) -> bool {
        let now = world.now();
        let mut ends = self.ends.lock();
        let end = &mut ends[side];
        end.settle(now);
        end.has_ended || end.is_reset
    }

    /// Reads the bytes that have arrived; 0 means the end.
    pub(crate) fn try_read(
        &self,
        world: &World,
        side: usize,
        limit: usize,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let now = world.now();
        let (count, writers) = {
            let mut ends = self.ends.lock();
            let end = &mut ends[side];
            end.settle(now);
            if end.is_reset {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if end.received.is_empty() && !end.has_ended {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let there = end.received.len().min(limit);
            let count = world.with(|state| state.network.part_of(there));
            let (front, back) = end.received.as_slices();
            let of_front = count.min(front.len());
            take(&front[..of_front]);
            take(&back[..count - of_front]);
            end.received.drain(..count);
            end.buffered -= count;
            (count, std::mem::take(&mut end.writers))
        };
        writers.into_iter().for_each(Waker::wake);
        Ok(count)
    }

    pub(crate) fn poll_writable(
        &self,
        world: &World,
        side: usize,
        context: &Context<'_>,
    ) -> Poll<()> {
        let now = world.now();
        let window = world.with(|state| state.network.window_bytes());
        let mut ends = self.ends.lock();
        ends[side].settle(now);
        let is_reset = ends[side].is_reset;
        let other = &mut ends[1 - side];
        if is_reset || other.buffered < window {
            return Poll::Ready(());
        }
        remember(&mut other.writers, context);
        Poll::Pending
    }

    /// The number of bytes that can be written now; more than that if a write would report the
    /// broken connection.
    pub(crate) fn room(&self, world: &World, side: usize) -> usize {
        let now = world.now();
        let window = world.with(|state| state.network.window_bytes());
        let mut ends = self.ends.lock();
        ends[side].settle(now);
        match ends[side].is_reset {
            true => usize::MAX,
            false => window.saturating_sub(ends[1 - side].buffered),
        }
    }

    /// Writes as much as there is room for.
    pub(crate) fn try_write(
        &self,
        world: &World,
        side: usize,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let now = world.now();
        let room = self.room(world, side);
        let is_closed = {
            let mut ends = self.ends.lock();
            ends[side].settle(now);
            if ends[side].is_reset {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            ends[1 - side].is_closed
        };
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        if is_closed && world.with(|state| state.answers_for(&self.parties[1 - side])) {
            // The machine at the other end does not know the connection.
            self.reset(world, side);
            return Ok(wanted);
        }
        if world.with(|state| state.network.is_reset_drawn()) {
            (0..2).for_each(|side| self.reset(world, side));
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let may = wanted.min(room);
        if may == 0 && wanted > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = world.with(|state| state.network.part_of(may));
        let mut bytes = Vec::with_capacity(count);
        for slice in slices {
            let part = slice.len().min(count - bytes.len());
            bytes.extend_from_slice(&slice[..part]);
        }
        self.ends.lock()[1 - side].buffered += count;
        self.send(world, side, Packet::Bytes(bytes));
        Ok(count)
    }

    /// Breaks the connection for one side.
    pub(super) fn reset(&self, world: &World, side: usize) {
        self.send(world, 1 - side, Packet::Reset);
    }

    /// Shuts down the write side.
    pub(crate) fn end(&self, world: &World, side: usize) {
        self.send(world, side, Packet::End);
    }

    /// Closes a side. The other side learns of it unless the machine has lost power.
    pub(crate) fn close(&self, world: &World, side: usize) {
        let (was_closed, has_unread, writers) = {
            let mut ends = self.ends.lock();
            let end = &mut ends[side];
            let was_closed = std::mem::replace(&mut end.is_closed, true);
            (
                was_closed,
                end.buffered > 0,
                std::mem::take(&mut end.writers),
            )
        };
        if was_closed || world.with(|state| state.is_silent(&self.parties[side])) {
            return;
        }
        let packet = match has_unread {
            true => Packet::Reset,
            false => Packet::End,
        };
        self.send(world, side, packet);
        writers.into_iter().for_each(Waker::wake);
    }

    /// Sends the held packets over restored links.
    pub(super) fn send_again(&self, world: &World) {
        for side in 0..2 {
            let at = self.arrival(world, side);
            let delivery = {
                let mut ends = self.ends.lock();
                let end = &mut ends[1 - side];
                let held = end.packets.iter_mut().filter(|(at, _)| *at == HELD);
                let count = held
                    .map(|packet| packet.0 = at.max(end.last_arrival))
                    .count();
                if count == 0 || at == HELD {
                    continue;
                }
                end.last_arrival = at.max(end.last_arrival);
                Delivery {
                    at: end.last_arrival,
                    wakers: std::mem::take(&mut end.readers),
                }
            };
            world.deliver(delivery);
        }
    }
}
