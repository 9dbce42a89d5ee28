//! Which brokers were heard of lately, as the active controller sees it: by their registrations and heartbeats. Who is
//! silent for `broker.session.timeout.ms` is fenced.
//!
//! Not part of the log: a new active controller gives every broker a whole session anew, as Kafka's does. A broker
//! in the controller's own process sends no heartbeats, and is never silent.
//!
//! In Kafka: `BrokerHeartbeatManager`, `BrokerHeartbeatTracker`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ottla_metadata::MetadataImage;
use ottla_types::{BrokerId, Offset};

/// Asked and told by one thread, by decisions that see the controller otherwise unchanged.
#[derive(Debug)]
pub struct BrokerSessions {
    timeout: Duration,
    own_broker: Option<BrokerId>,
    heard: RefCell<BTreeMap<BrokerId, Heard>>,
    /// Up to where the others have to have seen the log before a broker that stops may go, inclusive.
    shutdown_offsets: RefCell<BTreeMap<BrokerId, Offset>>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Instant,
    /// What the broker has seen of the metadata log, inclusive.
    metadata_offset: Offset,
}

impl BrokerSessions {
    pub fn new(timeout_ms: i32, own_broker: Option<BrokerId>) -> BrokerSessions {
        BrokerSessions {
            timeout: Duration::from_millis(u64::try_from(timeout_ms).unwrap_or_default().max(1)),
            own_broker,
            heard: RefCell::default(),
            shutdown_offsets: RefCell::default(),
        }
    }

    /// The controller has just become active: everybody has a whole session.
    pub fn begin(&self, image: &MetadataImage) {
        let heard = Heard {
            at: Instant::now(),
            metadata_offset: Offset(-1),
        };
        self.shutdown_offsets.borrow_mut().clear();
        *self.heard.borrow_mut() = image
            .cluster
            .brokers()
            .filter(|broker| !broker.fenced && Some(broker.id) != self.own_broker)
            .map(|broker| (broker.id, heard))
            .collect();
    }

    pub fn touch(&self, broker: BrokerId, metadata_offset: Offset) {
        let heard = Heard {
            at: Instant::now(),
            metadata_offset,
        };
        self.heard.borrow_mut().insert(broker, heard);
    }

    /// Nobody could be heard for so long, because the thread that hears was held up, as by a disk that hung. That is
    /// nobody's silence.
    pub fn on_held_up(&self, held_up: Duration) {
        // What each round takes is not: with it, a busy controller would never take anybody for silent.
        if held_up < self.timeout / 8 {
            return;
        }
        let now = Instant::now();
        for heard in self.heard.borrow_mut().values_mut() {
            heard.at = (heard.at + held_up).min(now);
        }
    }

    /// Whether a broker was heard of within its session. The one in this process registers when it starts, and
    /// whoever was registered as it before is gone.
    pub fn is_valid(&self, broker: BrokerId) -> bool {
        Some(broker) != self.own_broker
            && self
                .heard
                .borrow()
                .get(&broker)
                .is_some_and(|heard| heard.at.elapsed() < self.timeout)
    }

    /// The broker goes on, or begins anew.
    pub fn end_shutdown(&self, broker: BrokerId) {
        self.shutdown_offsets.borrow_mut().remove(&broker);
    }

    /// Whether every other active broker has seen who leads in the place of one that stops: what was decided when
    /// this was asked first.
    pub fn may_finish_shutdown(&self, broker: BrokerId, image: &MetadataImage) -> bool {
        let offset = *self
            .shutdown_offsets
            .borrow_mut()
            .entry(broker)
            .or_insert(image.provenance.last_contained_offset);
        let heard = self.heard.borrow();
        let is_other = |id: BrokerId| id != broker && Some(id) != self.own_broker;
        image
            .cluster
            .brokers()
            .filter(|other| !other.fenced && is_other(other.id))
            .all(|other| {
                heard
                    .get(&other.id)
                    .is_some_and(|heard| heard.metadata_offset >= offset)
            })
    }

    /// The active brokers that have been silent for too long. Who is active and was never heard of has a whole
    /// session from the first look on.
    pub fn silent(&self, image: &MetadataImage) -> Vec<BrokerId> {
        let mut heard = self.heard.borrow_mut();
        let now = Instant::now();
        image
            .cluster
            .brokers()
            .filter(|broker| !broker.fenced && Some(broker.id) != self.own_broker)
            .filter(|broker| {
                let heard = heard.entry(broker.id).or_insert(Heard {
                    at: now,
                    metadata_offset: Offset(-1),
                });
                now.saturating_duration_since(heard.at) >= self.timeout
            })
            .map(|broker| broker.id)
            .collect()
    }

    /// How often to look who is silent, while there is anybody who may be.
    pub fn look_every(&self, image: &MetadataImage) -> Option<Duration> {
        let mut others = image
            .cluster
            .brokers()
            .filter(|broker| !broker.fenced && Some(broker.id) != self.own_broker);
        others
            .next()
            .map(|_| (self.timeout / 8).max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_of_this_process_may_register_again_at_once() {
        let sessions = BrokerSessions::new(9000, Some(BrokerId(1)));
        sessions.touch(BrokerId(1), Offset(7));
        assert!(!sessions.is_valid(BrokerId(1)));
    }

    #[test]
    fn the_time_in_which_nobody_could_be_heard_counts_against_nobody() {
        let sessions = BrokerSessions::new(80, None);
        sessions.touch(BrokerId(1), Offset(7));
        std::thread::sleep(Duration::from_millis(90));
        assert!(!sessions.is_valid(BrokerId(1)));
        sessions.on_held_up(Duration::from_millis(9));
        assert!(!sessions.is_valid(BrokerId(1)), "it was not held up");
        sessions.on_held_up(Duration::from_millis(90));
        assert!(sessions.is_valid(BrokerId(1)));
        std::thread::sleep(Duration::from_millis(90));
        assert!(!sessions.is_valid(BrokerId(1)));
    }

    #[test]
    fn a_session_lasts_from_one_heartbeat_to_the_next() {
        let sessions = BrokerSessions::new(40, None);
        assert!(!sessions.is_valid(BrokerId(1)));
        sessions.touch(BrokerId(1), Offset(7));
        assert!(sessions.is_valid(BrokerId(1)));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!sessions.is_valid(BrokerId(1)));
    }
}
