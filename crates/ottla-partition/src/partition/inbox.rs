//! The inbox of a partition and its run token: one thread at a time steps the replica, and no
//! thread waits for another.
//!
//! A thread puts an event into the queue and then increments `signals`. The thread that increments
//! it from 0 holds the run token: it drains the queue, steps the replica, and releases the token by
//! subtracting exactly the signals it had read before draining. Other threads enqueue and return.
//!
//! Why no event is stranded:
//! 1. The holder reads `signals` = n, then drains.
//! 2. Another thread enqueues an event after the drain and increments `signals` to n + 1. It was
//!    not 0, so the thread returns.
//! 3. The holder subtracts n, finds 1 left, and therefore keeps the token and drains again.
//!
//! A slot can be reserved before its event is known (recompression, transaction verification). It
//! keeps its position in the queue, and later entries wait. Filling it increments `signals` like
//! any other event, so the filling thread either takes the token or its holder is about to drain
//! again.
//!
//! The queue has a lock that is held only for the push or pop of one entry; `signals` decides which
//! thread works. The file uses its primitives through `super::primitives`, so that the tests run
//! the same code under loom.

use std::collections::VecDeque;

use super::primitives::{AtomicUsize, Lock, Ordering};

#[derive(Debug)]
pub struct Inbox<E> {
    queue: Lock<Queue<E>>,
    /// Entries queued or filled, minus those that a token holder has accounted for. 0: the token is
    /// free.
    signals: AtomicUsize,
    /// Bytes of the entries in the queue.
    bytes: AtomicUsize,
    /// Above this size, connections that added to the inbox are not read.
    bound_bytes: usize,
}

#[derive(Debug)]
struct Queue<E> {
    entries: VecDeque<Entry<E>>,
    /// The number of the front entry. Numbers are never reused.
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

impl<E> Queue<E> {
    fn push(&mut self, state: State<E>, bytes: usize) {
        // Most partitions only have one event at a time, and an entry is large.
        if self.entries.capacity() == 0 {
            self.entries.reserve_exact(1);
        }
        self.entries.push_back(Entry { state, bytes });
    }
}

/// A reserved position in the queue. It must be filled or abandoned, because later entries wait.
#[derive(Debug)]
#[must_use]
pub struct InboxSlot(u64);

/// The right to step the replica. It must be returned through [`Inbox::release`].
#[derive(Debug)]
#[must_use]
pub struct RunToken {
    /// The signals that the holder subtracts on release.
    seen: usize,
    /// A pop brought the queue below its bound, and the waiting connections have not been notified.
    has_made_room: bool,
}

impl RunToken {
    fn new(seen: usize) -> Self {
        RunToken {
            seen,
            has_made_room: false,
        }
    }

    /// Whether connections that wait for room must be notified. To be called after each drain: the
    /// queue may have exceeded its bound and shrunk again within one.
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

    /// Queues an event. A caller that receives the token must run the partition.
    pub fn push(&self, event: E, bytes: usize) -> Option<RunToken> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.queue
            .with(|queue| queue.push(State::Filled(event), bytes));
        self.signal()
    }

    /// Reserves a position in the queue for a later event.
    pub fn reserve(&self, bytes: usize) -> InboxSlot {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.queue.with(|queue| {
            let number = queue.front + queue.entries.len() as u64;
            queue.push(State::Reserved, bytes);
            InboxSlot(number)
        })
    }

    /// Fills a reserved slot. A caller that receives the token must run the partition.
    pub fn fill(&self, slot: InboxSlot, event: E) -> Option<RunToken> {
        self.set(slot, State::Filled(event))
    }

    /// Abandons a reserved slot, so that later entries can be processed.
    pub fn abandon(&self, slot: InboxSlot) -> Option<RunToken> {
        self.set(slot, State::Abandoned)
    }

    fn set(&self, slot: InboxSlot, state: State<E>) -> Option<RunToken> {
        self.queue.with(|queue| {
            // A reserved entry is never popped, so the slot is still in the queue.
            let index = (slot.0 - queue.front) as usize;
            queue.entries[index].state = state;
        });
        self.signal()
    }

    fn signal(&self) -> Option<RunToken> {
        let before = self.signals.fetch_add(1, Ordering::AcqRel);
        (before == 0).then_some(RunToken::new(1))
    }

    /// Reads the signals that the coming drain answers. Called by the holder before each drain.
    pub fn look(&self, token: &mut RunToken) {
        token.seen = self.signals.load(Ordering::Acquire);
    }

    /// The next event, unless the front slot is reserved. Only for the token holder.
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

    /// Counts an event that was popped and set aside: held events share the bound of the queue.
    pub fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Ends the count of an event that was set aside.
    pub fn uncount(&self, token: &mut RunToken, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let after = before - bytes;
        token.has_made_room |= before > self.bound_bytes && after <= self.bound_bytes;
    }

    /// Releases the token. Returns it if there were signals since `look`; the holder must then
    /// drain again.
    pub fn release(&self, token: RunToken) -> Option<RunToken> {
        let before = self.signals.fetch_sub(token.seen, Ordering::AcqRel);
        let is_lost = ottla_sync::planted::has("a wake-up of the inbox is lost");
        (before != token.seen && !is_lost).then_some(RunToken::new(0))
    }

    /// Gives the memory of an empty queue back.
    pub fn free_room(&self) {
        self.queue.with(|queue| {
            if queue.entries.is_empty() {
                queue.entries = VecDeque::new();
            }
        });
    }

    /// Whether connections should stop adding events.
    pub fn is_over_bound(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.bound_bytes
    }
}
