//! The places that connections have, and who has to give one up.
//!
//! A connection owes a request from when it is let in until the head of one is there, and again from when the answer
//! has gone out. Where no place is free, the one that has owed for longest loses its place to who comes, once it has
//! had the least time that everybody is given. So half requests, however many, and connections that say nothing keep
//! nobody out for longer than that; and nothing that is being answered is cut off.
//!
//! Invariant: at most `limit` places are taken, and one that is given away is taken until its connection is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    /// What everybody is given to come up with a request.
    least: Duration,
    register: Mutex<Register>,
    /// A place has become free.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Register {
    taken: usize,
    /// The next number in `owing`.
    next: u64,
    /// Those that owe a request, in the order in which they began to.
    owing: BTreeMap<u64, Owing>,
    /// Places that are given away, and not free yet.
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

    /// Waits for a place, and takes it from whoever has owed a request for longest.
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
                    // One place is all that is asked for.
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

/// What a connection is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// With its number in [`Register::owing`].
    Owing(u64),
    /// The head of a request is there.
    Answering,
    /// All of the answer is made, and a part may still have to go out.
    Answered,
    /// It has lost its place.
    Leaving,
}

/// The place of one connection, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    standing: Mutex<Standing>,
    give_away: Arc<Notify>,
}

impl Place {
    /// The head of a request is there.
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

    /// Nothing is left to be sent of what has been written.
    pub(super) fn on_flushed(&self) {
        let mut standing = self.standing.lock();
        if *standing == Standing::Answered {
            *standing = self.places.register.lock().owe(&self.give_away);
            // Who waits for a place while everybody is being answered does not know of this one.
            self.places.freed.notify_one();
        }
    }

    /// Returns when the place is another's.
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

    const SOON: Duration = Duration::from_millis(300);

    async fn is_let_in(places: &Arc<Places>) -> Option<Place> {
        tokio::time::timeout(SOON, places.take()).await.ok()
    }

    /// Ends as its connection does when it has lost its place.
    fn hold(place: Place) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { place.given_away().await })
    }

    #[tokio::test]
    async fn who_has_owed_a_request_for_longest_gives_way() {
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
        assert!(is_let_in(&places).await.is_none(), "all are being answered");

        // What is written and not gone is still an answer; after that the connection is as good as a new one.
        asking.on_flushed();
        asking.on_answered();
        assert!(is_let_in(&places).await.is_none());
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
    async fn everybody_has_the_least_time() {
        let places = Arc::new(Places::new(1, SOON * 2));
        let held = hold(places.take().await);
        assert!(is_let_in(&places).await.is_none());
        assert!(!held.is_finished());
        let began = Instant::now();
        let _next = places.take().await;
        assert!(held.is_finished());
        assert!(began.elapsed() < SOON * 2);
    }
}
