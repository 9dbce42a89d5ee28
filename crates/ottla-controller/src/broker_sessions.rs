//! Which brokers were heard of lately, as the active controller sees it: by their registrations and heartbeats. Who is
//! silent for `broker.session.timeout.ms` is fenced, and so is at once whose process is known to have ended.
//!
//! Not part of the log: a new active controller gives every broker a whole session anew, as Kafka's does. A broker
//! in the controller's own process sends no heartbeats, and is never silent. Times are milliseconds of a clock of the
//! caller's that never goes back.
//!
//! In Kafka: `BrokerHeartbeatManager`, `BrokerHeartbeatTracker`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ottla_metadata::MetadataImage;
use ottla_protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
    BrokerRegistrationResponse,
};
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, Offset};

use crate::brokers::{heartbeat, register_broker};
use crate::{ControllerContext, Decision};

/// Asked and told by one thread, by decisions that see the controller otherwise unchanged.
#[derive(Debug)]
pub struct BrokerSessions {
    timeout_ms: u64,
    own_broker: Option<BrokerId>,
    heard: RefCell<BTreeMap<BrokerId, Heard>>,
    /// Up to where the others have to have seen the log before a broker that stops may go, inclusive.
    shutdown_offsets: RefCell<BTreeMap<BrokerId, Offset>>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at_ms: u64,
    /// What the broker has seen of the metadata log, inclusive.
    metadata_offset: Offset,
    /// Its process has ended, as far as can be seen: the session is over whatever the time.
    is_gone: bool,
}

impl Heard {
    fn is_silent(&self, timeout_ms: u64, now_ms: u64) -> bool {
        self.is_gone || now_ms.saturating_sub(self.at_ms) >= timeout_ms
    }
}

impl BrokerSessions {
    pub fn new(timeout_ms: i32, own_broker: Option<BrokerId>) -> BrokerSessions {
        BrokerSessions {
            timeout_ms: u64::try_from(timeout_ms).unwrap_or_default().max(1),
            own_broker,
            heard: RefCell::default(),
            shutdown_offsets: RefCell::default(),
        }
    }

    /// Registers a broker, whose session begins. `next_offset` is where the next record will stand.
    pub fn register(
        &self,
        context: &ControllerContext<'_>,
        request: &BrokerRegistrationRequest,
        cluster_id: &str,
        next_offset: Offset,
        now_ms: u64,
    ) -> Decision<BrokerRegistrationResponse> {
        let new_epoch = BrokerEpoch(next_offset.value());
        let id = BrokerId(request.broker_id);
        let is_known = self.is_valid(id, now_ms);
        let decision = register_broker(context, request, cluster_id, new_epoch, is_known);
        if decision.response.error_code == ErrorCode::None.code() {
            self.touch(id, Offset(-1), now_ms);
        }
        decision
    }

    /// Acts on a heartbeat, with which the session goes on.
    pub fn heartbeat(
        &self,
        context: &ControllerContext<'_>,
        request: &BrokerHeartbeatRequest,
        now_ms: u64,
    ) -> Decision<BrokerHeartbeatResponse> {
        // A broker's epoch is the offset from which its registration was written, so that whoever has
        // seen the epoch's offset has seen the registration, as far as it matters: partition changes of
        // the same batch come with it.
        let register_offset = Offset(request.broker_epoch);
        let id = BrokerId(request.broker_id);
        let is_stopping = context
            .image
            .cluster
            .broker(id)
            .is_some_and(|broker| broker.in_controlled_shutdown);
        let may_finish_shutdown = if is_stopping {
            self.may_finish_shutdown(id, context.image)
        } else {
            self.end_shutdown(id);
            true
        };
        let decision = heartbeat(context, request, register_offset, may_finish_shutdown);
        if decision.response.should_shut_down {
            // It leads nothing and sends no more heartbeats. Kafka's controller keeps its session, for which a broker
            // that is started again at once then waits.
            self.heard.borrow_mut().remove(&id);
        } else if decision.response.error_code == ErrorCode::None.code() {
            self.touch(id, Offset(request.current_metadata_offset), now_ms);
        }
        decision
    }

    /// The controller has just become active: everybody has a whole session.
    pub fn begin(&self, image: &MetadataImage, now_ms: u64) {
        let heard = Heard {
            at_ms: now_ms,
            metadata_offset: Offset(-1),
            is_gone: false,
        };
        self.shutdown_offsets.borrow_mut().clear();
        *self.heard.borrow_mut() = image
            .cluster
            .brokers()
            .filter(|broker| !broker.fenced && Some(broker.id) != self.own_broker)
            .map(|broker| (broker.id, heard))
            .collect();
    }

    fn touch(&self, broker: BrokerId, metadata_offset: Offset, now_ms: u64) {
        let heard = Heard {
            at_ms: now_ms,
            metadata_offset,
            is_gone: false,
        };
        self.heard.borrow_mut().insert(broker, heard);
    }

    /// Ends the session of that registration of a broker, if it is still the one that counts: its process is gone. A heartbeat
    /// all the same begins another session.
    pub fn on_process_gone(&self, image: &MetadataImage, broker: BrokerId, epoch: BrokerEpoch) {
        if image.cluster.broker_epoch(broker) == epoch
            && let Some(heard) = self.heard.borrow_mut().get_mut(&broker)
        {
            heard.is_gone = true;
        }
    }

    /// Nobody could be heard for so long, because the thread that hears was held up, as by a disk that hung. That is
    /// nobody's silence.
    pub fn on_held_up(&self, held_up_ms: u64, now_ms: u64) {
        // What each round takes is not: with it, a busy controller would never take anybody for silent.
        if held_up_ms < self.timeout_ms / 8 {
            return;
        }
        for heard in self.heard.borrow_mut().values_mut() {
            heard.at_ms = (heard.at_ms + held_up_ms).min(now_ms);
        }
    }

    /// Whether a broker was heard of within its session. The one in this process registers when it starts, and
    /// whoever was registered as it before is gone.
    fn is_valid(&self, broker: BrokerId, now_ms: u64) -> bool {
        Some(broker) != self.own_broker
            && self
                .heard
                .borrow()
                .get(&broker)
                .is_some_and(|heard| !heard.is_silent(self.timeout_ms, now_ms))
    }

    /// The broker goes on, or begins anew.
    fn end_shutdown(&self, broker: BrokerId) {
        self.shutdown_offsets.borrow_mut().remove(&broker);
    }

    /// Whether every other active broker has seen who leads in the place of one that stops: what was decided when
    /// this was asked first.
    fn may_finish_shutdown(&self, broker: BrokerId, image: &MetadataImage) -> bool {
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

    /// The active brokers that have been silent for too long, or are gone. Who is active and was never heard of has a whole
    /// session from the first look on.
    pub fn silent(&self, image: &MetadataImage, now_ms: u64) -> Vec<BrokerId> {
        let mut heard = self.heard.borrow_mut();
        image
            .cluster
            .brokers()
            .filter(|broker| !broker.fenced && Some(broker.id) != self.own_broker)
            .filter(|broker| {
                let heard = heard.entry(broker.id).or_insert(Heard {
                    at_ms: now_ms,
                    metadata_offset: Offset(-1),
                    is_gone: false,
                });
                heard.is_silent(self.timeout_ms, now_ms)
            })
            .map(|broker| broker.id)
            .collect()
    }

    /// How often to look who is silent, while there is anybody who may be.
    pub fn look_every_ms(&self, image: &MetadataImage) -> Option<u64> {
        let mut others = image
            .cluster
            .brokers()
            .filter(|broker| !broker.fenced && Some(broker.id) != self.own_broker);
        others.next().map(|_| (self.timeout_ms / 8).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Cluster;

    #[test]
    fn a_process_that_is_gone_is_silent_until_it_is_heard_again() {
        let (sessions, image) = (
            BrokerSessions::new(9000, None),
            Cluster::with_brokers(&[1, 2]).image,
        );
        let gone = BrokerId(2);
        sessions.begin(&image, 0);
        let earlier = BrokerEpoch(7);
        sessions.on_process_gone(&image, gone, earlier);
        assert_eq!(sessions.silent(&image, 1), [], "another life of it runs");
        sessions.on_process_gone(&image, gone, image.cluster.broker_epoch(gone));
        assert_eq!(sessions.silent(&image, 1), [gone]);
        assert!(!sessions.is_valid(gone, 1), "it may register again at once");
        sessions.touch(gone, Offset(7), 2);
        assert_eq!(sessions.silent(&image, 3), []);
    }

    #[test]
    fn the_broker_of_this_process_may_register_again_at_once() {
        let sessions = BrokerSessions::new(9000, Some(BrokerId(1)));
        sessions.touch(BrokerId(1), Offset(7), 100);
        assert!(!sessions.is_valid(BrokerId(1), 100));
    }

    #[test]
    fn the_time_in_which_nobody_could_be_heard_counts_against_nobody() {
        let sessions = BrokerSessions::new(80, None);
        sessions.touch(BrokerId(1), Offset(7), 0);
        assert!(!sessions.is_valid(BrokerId(1), 90));
        sessions.on_held_up(9, 90);
        assert!(!sessions.is_valid(BrokerId(1), 90), "it was not held up");
        sessions.on_held_up(90, 90);
        assert!(sessions.is_valid(BrokerId(1), 90));
        assert!(!sessions.is_valid(BrokerId(1), 180));
    }

    #[test]
    fn a_session_lasts_from_one_heartbeat_to_the_next() {
        let sessions = BrokerSessions::new(40, None);
        assert!(!sessions.is_valid(BrokerId(1), 0));
        sessions.touch(BrokerId(1), Offset(7), 0);
        assert!(sessions.is_valid(BrokerId(1), 39));
        assert!(!sessions.is_valid(BrokerId(1), 40));
    }
}
