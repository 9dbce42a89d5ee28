//! The inbox's own file, compiled with loom's primitives, under every interleaving that loom
//! explores.

mod primitives {
    pub use loom::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    pub struct Lock<T>(loom::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub fn new(value: T) -> Self {
            Lock(loom::sync::Mutex::new(value))
        }

        pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
            work(&mut self.0.lock().expect("no holder panics"))
        }
    }
}

// Intended: the same file once with the primitives of the standard library and once with loom's.
#[allow(dead_code, clippy::duplicate_mod)]
#[path = "../inbox.rs"]
mod inbox;

use inbox::{Inbox, RunToken};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// A partition whose replica is the list of events it was stepped with. loom reports concurrent
/// access to it.
struct Partition {
    inbox: Inbox<u32>,
    stepped: UnsafeCell<Vec<u32>>,
    /// Number of notifications about room.
    room_notifications: AtomicUsize,
}

impl Partition {
    fn new() -> Arc<Self> {
        Partition::with_bound(usize::MAX)
    }

    fn with_bound(bound_bytes: usize) -> Arc<Self> {
        Arc::new(Partition {
            inbox: Inbox::new(bound_bytes),
            stepped: UnsafeCell::new(Vec::new()),
            room_notifications: AtomicUsize::new(0),
        })
    }

    fn push(&self, event: u32) {
        if let Some(token) = self.inbox.push(event, 1) {
            self.run(token);
        }
    }

    fn run(&self, mut token: RunToken) {
        loop {
            self.inbox.look(&mut token);
            self.drain(&mut token, usize::MAX);
            if token.take_room_made() {
                self.room_notifications.fetch_add(1, Ordering::SeqCst);
            }
            match self.inbox.release(token) {
                Some(still_mine) => token = still_mine,
                None => return,
            }
        }
    }

    fn drain(&self, token: &mut RunToken, budget: usize) {
        for _ in 0..budget {
            let Some(event) = self.inbox.pop(token) else {
                return;
            };
            // SAFETY: the token is held; that it excludes others is what loom checks here.
            self.stepped
                .with_mut(|stepped| unsafe { (*stepped).push(event) });
        }
    }

    /// The stepped events, after all threads have ended.
    fn stepped(&self) -> Vec<u32> {
        // SAFETY: all threads were joined.
        self.stepped.with(|stepped| unsafe { (*stepped).clone() })
    }
}

#[test]
fn every_event_is_stepped_once_and_in_the_order_of_its_thread() {
    loom::model(|| {
        let partition = Partition::new();
        let other = {
            let partition = Arc::clone(&partition);
            thread::spawn(move || {
                partition.push(10);
                partition.push(11);
            })
        };
        partition.push(20);
        other.join().expect("joins");
        let stepped = partition.stepped();
        let of = |tens: u32| -> Vec<u32> {
            stepped.iter().copied().filter(|e| e / 10 == tens).collect()
        };
        assert_eq!(of(1), [10, 11]);
        assert_eq!(of(2), [20]);
        assert_eq!(stepped.len(), 3);
    });
}

#[test]
fn a_reserved_place_keeps_its_turn_and_blocks_no_entry() {
    loom::model(|| {
        let partition = Partition::new();
        let place = partition.inbox.reserve(1);
        let filler = {
            let partition = Arc::clone(&partition);
            thread::spawn(move || {
                if let Some(token) = partition.inbox.fill(place, 1) {
                    partition.run(token);
                }
            })
        };
        partition.push(2);
        partition.push(3);
        filler.join().expect("joins");
        assert_eq!(partition.stepped(), [1, 2, 3]);
    });
}

#[test]
fn an_abandoned_place_blocks_no_entry() {
    loom::model(|| {
        let partition = Partition::new();
        let place = partition.inbox.reserve(1);
        let giving_up = {
            let partition = Arc::clone(&partition);
            thread::spawn(move || {
                if let Some(token) = partition.inbox.abandon(place) {
                    partition.run(token);
                }
            })
        };
        partition.push(2);
        giving_up.join().expect("joins");
        assert_eq!(partition.stepped(), [2]);
    });
}

#[test]
fn a_holder_out_of_budget_hands_the_token_on() {
    loom::model(|| {
        let partition = Partition::new();
        let other = {
            let partition = Arc::clone(&partition);
            thread::spawn(move || partition.push(1))
        };
        let mut handed_on = None;
        if let Some(mut token) = partition.inbox.push(2, 1) {
            partition.inbox.look(&mut token);
            partition.drain(&mut token, 1);
            let partition = Arc::clone(&partition);
            handed_on = Some(thread::spawn(move || partition.run(token)));
        }
        other.join().expect("joins");
        if let Some(handed_on) = handed_on {
            handed_on.join().expect("joins");
        }
        let mut stepped = partition.stepped();
        stepped.sort();
        assert_eq!(stepped, [1, 2]);
    });
}

#[test]
fn a_thread_that_waits_for_room_is_notified() {
    loom::model(|| {
        let partition = Partition::with_bound(1);
        let waiting = {
            let partition = Arc::clone(&partition);
            thread::spawn(move || {
                if let Some(token) = partition.inbox.push(1, 2) {
                    partition.run(token);
                }
                // As in `Partition::has_room`: subscribe, check, then wait for the notification.
                let notified = partition.room_notifications.load(Ordering::SeqCst);
                partition.inbox.is_over_bound().then_some(notified)
            })
        };
        partition.push(2);
        let slept_since = waiting.join().expect("joins");
        if let Some(notified) = slept_since {
            let notified_now = partition.room_notifications.load(Ordering::SeqCst);
            assert!(notified_now > notified, "it sleeps, and the queue is empty");
        }
    });
}
