//! The inbox of a partition and its run token: how one thread at a time steps a replica while nobody
//! waits for anybody.
//!
//! Whoever has an event puts it into the queue and then raises `signals`. The one who raises it from 0
//! holds the run token: it drains the queue, steps the replica, and lets go by subtracting exactly the
//! signals it had seen before it drained. Everybody else leaves the event and goes on.
//!
//! Why no event is stranded:
//! 1. The holder reads `signals` = n, then drains.
//! 2. Somebody queues an event after the drain and raises `signals` to n + 1: it is not 0, so they go on.
//! 3. The holder subtracts n, finds 1 left, and so still holds the token: it drains again.
//!
//! A place may be reserved before its event is known (recompression, transaction verification): it keeps
//! its turn in the queue, and what is queued behind it waits. Filling it raises `signals` like any other
//! event, so whoever fills it finds the token free, or its holder about to look again.
//!
//! The queue is behind a lock that is held for the push or pop of one entry and never while anything else
//! is done; `signals` decides who works. The file names its primitives through `super::primitives`, so
//! that the tests run the very same code under loom.

use std::collections::VecDeque;

use super::primitives::{AtomicUsize, Lock, Ordering};

#[derive(Debug)]
pub struct Inbox<E> {
    queue: Lock<Queue<E>>,
    /// Entries queued or filled, less those that a holder of the token has accounted for. 0: the token
    /// is free.
    signals: AtomicUsize,
    /// Bytes of the entries in the queue.
    bytes: AtomicUsize,
    /// From here on, connections that have put something in stop being read.
    bound_bytes: usize,
}

#[derive(Debug)]
struct Queue<E> {
    entries: VecDeque<Entry<E>>,
    /// The number of the entry at the front. Numbers are never used again.
    front: u64,
}

#[derive(Debug)]
struct Entry<E> {
    state: State<E>,
    bytes: usize,
}

#[derive(Debug)]
enum State<E> {
    Reserved,
    Filled(E),
    Abandoned,
}

/// A turn in the queue whose event is not known yet. Has to be filled or abandoned: what is behind it
/// waits.
#[derive(Debug)]
#[must_use]
pub struct Place(u64);

/// The right to step the replica. Has to be given back through [`Inbox::release`].
#[derive(Debug)]
#[must_use]
pub struct RunToken {
    /// The signals that the holder accounts for when it lets go.
    seen: usize,
    /// What was popped has brought the queue from above its bound to below it, and whoever waits for
    /// that was not told yet.
    has_made_room: bool,
}

impl RunToken {
    fn new(seen: usize) -> Self {
        RunToken {
            seen,
            has_made_room: false,
        }
    }

    /// Whether those who wait for room have to be told of it. To be asked after each drain: the queue may
    /// have grown beyond its bound and shrunk again within one.
    pub fn take_room_made(&mut self) -> bool {
        std::mem::take(&mut self.has_made_room)
    }
}

impl<E> Inbox<E> {
    pub fn new(bound_bytes: usize) -> Self {
        Inbox {
            queue: Lock::new(Queue {
                entries: VecDeque::new(),
                front: 0,
            }),
            signals: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            bound_bytes,
        }
    }

    /// Queues an event. With the token the caller has to run the partition.
    pub fn push(&self, event: E, bytes: usize) -> Option<RunToken> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.queue.with(|queue| {
            queue.entries.push_back(Entry {
                state: State::Filled(event),
                bytes,
            })
        });
        self.signal()
    }

    /// Takes a turn in the queue for an event that comes later.
    pub fn reserve(&self, bytes: usize) -> Place {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.queue.with(|queue| {
            let number = queue.front + queue.entries.len() as u64;
            queue.entries.push_back(Entry {
                state: State::Reserved,
                bytes,
            });
            Place(number)
        })
    }

    /// Puts the event into its place. With the token the caller has to run the partition.
    pub fn fill(&self, place: Place, event: E) -> Option<RunToken> {
        self.set(place, State::Filled(event))
    }

    /// Gives a place up, so that what is behind it can go on.
    pub fn abandon(&self, place: Place) -> Option<RunToken> {
        self.set(place, State::Abandoned)
    }

    fn set(&self, place: Place, state: State<E>) -> Option<RunToken> {
        self.queue.with(|queue| {
            // A reserved entry is never popped, so the place is still in the queue.
            let index = (place.0 - queue.front) as usize;
            queue.entries[index].state = state;
        });
        self.signal()
    }

    fn signal(&self) -> Option<RunToken> {
        let before = self.signals.fetch_add(1, Ordering::AcqRel);
        (before == 0).then_some(RunToken::new(1))
    }

    /// Notes which signals the coming drain answers. Called by the holder before each drain.
    pub fn look(&self, token: &mut RunToken) {
        token.seen = self.signals.load(Ordering::Acquire);
    }

    /// The next event whose turn it is. Only the holder may ask.
    pub fn pop(&self, token: &mut RunToken) -> Option<E> {
        self.queue.with(|queue| {
            loop {
                if let State::Reserved = queue.entries.front()?.state {
                    return None;
                }
                let entry = queue.entries.pop_front()?;
                queue.front += 1;
                self.uncount(token, entry.bytes);
                if let State::Filled(event) = entry.state {
                    return Some(event);
                }
            }
        })
    }

    /// Goes on counting an event that was popped and that its holder sets aside: what waits outside of the queue
    /// is bounded with what waits in it.
    pub fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was set aside is set aside no more.
    pub fn uncount(&self, token: &mut RunToken, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let after = before - bytes;
        token.has_made_room |= before > self.bound_bytes && after <= self.bound_bytes;
    }

    /// Lets go of the token; or gives it back where something was signalled since `look`, and then the
    /// holder has to drain again.
    pub fn release(&self, token: RunToken) -> Option<RunToken> {
        let before = self.signals.fetch_sub(token.seen, Ordering::AcqRel);
        let is_lost = ottla_sync::planted::has("a wake-up of the inbox is lost");
        (before != token.seen && !is_lost).then_some(RunToken::new(0))
    }

    /// Whether connections should stop adding to it.
    pub fn is_over_bound(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.bound_bytes
    }
}
