//! The slots of connections, and which connection loses its slot.
//!
//! A connection owes a request from the time it is accepted until the head of a request has
//! arrived, and again after the response was sent. If no slot is free, the connection that has owed
//! a request for longest loses its slot to a new one, once it has had the minimum time. So neither
//! incomplete requests nor silent connections block new connections for longer than that, and no
//! response is cut off.
//!
//! Invariant: at most `limit` slots are taken. A slot that was given away stays taken until its
//! connection is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    /// The minimum time for a connection to send a request.
    least: Duration,
    register: Mutex<Register>,
    /// Notified when a slot has become free.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Register {
    taken: usize,
    /// The next key in `owing`.
    next: u64,
    /// The connections that owe a request, oldest first.
    owing: BTreeMap<u64, Owing>,
    /// Slots that were given away and are not free yet.
    leaving: usize,
}

#[derive(Debug)]
struct Owing {
    since: Instant,
    give_away: Arc<Notify>,
}

impl Register {
    fn owe(&mut self, give_away: &Arc<Notify>) -> Standing {
        let number = self.next;
        self.next += 1;
        let owing = Owing {
            since: Instant::now(),
            give_away: Arc::clone(give_away),
        };
        self.owing.insert(number, owing);
        Standing::Owing(number)
    }
}

impl Places {
    pub(super) fn new(limit: usize, least: Duration) -> Places {
        Places {
            limit,
            least,
            register: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// Waits for a slot. Takes it from the connection that has owed a request for longest if
    /// necessary.
    pub(super) async fn take(self: &Arc<Self>) -> Place {
        loop {
            let may_take_at = {
                let mut register = self.register.lock();
                let register = &mut *register;
                if register.taken < self.limit {
                    register.taken += 1;
                    let give_away = Arc::default();
                    return Place {
                        standing: Mutex::new(register.owe(&give_away)),
                        places: Arc::clone(self),
                        give_away,
                    };
                }
                match register.owing.first_entry() {
                    // One slot is enough.
                    _ if register.leaving > 0 => None,
                    Some(oldest) if oldest.get().since.elapsed() >= self.least => {
                        oldest.remove().give_away.notify_one();
                        register.leaving += 1;
                        None
                    }
                    Some(oldest) => Some(oldest.get().since + self.least),
                    None => None,
                }
            };
            match may_take_at {
                Some(at) => tokio::select! {
                    () = self.freed.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => self.freed.notified().await,
            }
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// The connection owes a request. The number is its key in [`Register::owing`].
    Owing(u64),
    /// The head of a request has arrived.
    Answering,
    /// The response is complete, and part of it may still have to be sent.
    Answered,
    /// The connection has lost its slot.
    Leaving,
}

/// The slot of one connection. Freed when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    standing: Mutex<Standing>,
    give_away: Arc<Notify>,
}

impl Place {
    /// The head of a request has arrived.
    pub(super) fn on_request(&self) {
        let mut standing = self.standing.lock();
        *standing = match *standing {
            Standing::Owing(number) => match self.places.register.lock().owing.remove(&number) {
                Some(_) => Standing::Answering,
                None => Standing::Leaving,
            },
            Standing::Leaving => Standing::Leaving,
            Standing::Answering | Standing::Answered => Standing::Answering,
        };
    }

    pub(super) fn on_answered(&self) {
        let mut standing = self.standing.lock();
        if *standing == Standing::Answering {
            *standing = Standing::Answered;
        }
    }

    /// Everything written so far was sent.
    pub(super) fn on_flushed(&self) {
        let mut standing = self.standing.lock();
        if *standing == Standing::Answered {
            *standing = self.places.register.lock().owe(&self.give_away);
            // A waiter that saw only connections with requests does not know about this one yet.
            self.places.freed.notify_one();
        }
    }

    /// Returns when the slot was given away.
    pub(super) async fn given_away(&self) {
        self.give_away.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut register = self.places.register.lock();
        register.taken -= 1;
        let has_left = match *self.standing.get_mut() {
            Standing::Owing(number) => register.owing.remove(&number).is_none(),
            standing => standing == Standing::Leaving,
        };
        register.leaving -= usize::from(has_left);
        drop(register);
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_let_in(places: &Arc<Places>) -> Option<Place> {
        let patience = Duration::from_secs(60);
        tokio::time::timeout(patience, places.take()).await.ok()
    }

    async fn is_let_in_after(places: &Arc<Places>, time: Duration) -> bool {
        tokio::time::timeout(time, places.take()).await.is_ok()
    }

    /// Ends like a connection that has lost its slot.
    fn hold(place: Place) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { place.given_away().await })
    }

    #[tokio::test]
    async fn the_oldest_incomplete_request_is_evicted() {
        let places = Arc::new(Places::new(3, Duration::from_millis(10)));
        let asking = places.take().await;
        asking.on_request();
        let [first, second] = [hold(places.take().await), hold(places.take().await)];
        let third = is_let_in(&places).await.expect("the first gives way");
        assert!(first.is_finished() && !second.is_finished());
        third.on_request();
        let fourth = is_let_in(&places).await.expect("the second gives way");
        assert!(second.is_finished());
        fourth.on_request();
        let a_while = Duration::from_millis(300);
        let is_let_in_early = is_let_in_after(&places, a_while).await;
        assert!(!is_let_in_early, "all are being answered");

        // A response that is not fully sent is still a response; after that the connection counts
        // as new.
        asking.on_flushed();
        asking.on_answered();
        assert!(!is_let_in_after(&places, a_while).await);
        asking.on_flushed();
        let asking = hold(asking);
        assert!(is_let_in(&places).await.is_some());
        assert!(asking.is_finished());
        drop((third, fourth));
        let register = places.register.lock();
        assert_eq!(register.taken, 0);
        assert!(register.owing.is_empty() && register.leaving == 0);
    }

    #[tokio::test]
    async fn a_connection_is_kept_for_the_minimum_time() {
        const LEAST: Duration = Duration::from_secs(6);
        let places = Arc::new(Places::new(1, LEAST));
        let held = hold(places.take().await);
        assert!(!is_let_in_after(&places, LEAST / 2).await);
        assert!(!held.is_finished());
        let began = Instant::now();
        let _next = places.take().await;
        assert!(held.is_finished());
        // The time counts from the start of the connection, not from that of the wait.
        assert!(began.elapsed() < LEAST);
    }
}
