//! Sessions of brokers on the active controller, renewed by registrations and heartbeats. A broker
//! that is silent for `broker.session.timeout.ms` is fenced. A broker whose process is known to
//! have ended is fenced at once.
//!
//! Sessions are not in the metadata log: a new active controller starts a full session for every
//! broker, as in Kafka. A broker in the controller's own process sends no heartbeats, and its
//! session does not expire. Times are milliseconds of a monotonic clock of the caller.
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

/// Used by one thread only. The cells allow decisions to update sessions through a shared
/// reference.
#[derive(Debug)]
pub struct BrokerSessions {
    timeout_ms: u64,
    own_broker: Option<BrokerId>,
    heard: RefCell<BTreeMap<BrokerId, Heard>>,
    /// For each broker in controlled shutdown, the inclusive metadata offset that all other brokers
    /// must reach before it may stop.
    shutdown_offsets: RefCell<BTreeMap<BrokerId, Offset>>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at_ms: u64,
    /// The broker's metadata offset, inclusive.
    metadata_offset: Offset,
    /// Whether the process appears to have ended, which ends the session at once.
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

    /// Registers a broker and starts its session. `next_offset` is the offset of the next record.
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

    /// Handles a heartbeat, which renews the session.
    pub fn heartbeat(
        &self,
        context: &ControllerContext<'_>,
        request: &BrokerHeartbeatRequest,
        now_ms: u64,
    ) -> Decision<BrokerHeartbeatResponse> {
        // The broker epoch is the offset of the first record of its registration batch. A broker
        // that has reached that offset has its registration and, because they are in the same
        // batch, the partition changes that come with it.
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
            // The broker leads nothing and sends no more heartbeats. Kafka's controller keeps the
            // session, so a broker that is restarted at once has to wait for its end.
            self.heard.borrow_mut().remove(&id);
        } else if decision.response.error_code == ErrorCode::None.code() {
            self.touch(id, Offset(request.current_metadata_offset), now_ms);
        }
        decision
    }

    /// Called when this controller becomes active. Starts a full session for every broker.
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

    /// Ends the session of this registration of the broker, if it is still the current one, because
    /// its process is gone. A later heartbeat starts another session.
    pub fn on_process_gone(&self, image: &MetadataImage, broker: BrokerId, epoch: BrokerEpoch) {
        if image.cluster.broker_epoch(broker) == epoch
            && let Some(heard) = self.heard.borrow_mut().get_mut(&broker)
        {
            heard.is_gone = true;
        }
    }

    /// Extends all sessions by the time during which the thread could not process heartbeats, for
    /// example because a disk hung.
    pub fn on_held_up(&self, held_up_ms: u64, now_ms: u64) {
        // The time of normal rounds is not added, or sessions would never expire on a busy
        // controller.
        if held_up_ms < self.timeout_ms / 8 {
            return;
        }
        for heard in self.heard.borrow_mut().values_mut() {
            heard.at_ms = (heard.at_ms + held_up_ms).min(now_ms);
        }
    }

    /// Whether the broker's session is valid. The broker in this process registers at its start,
    /// and any earlier process with its id has ended.
    fn is_valid(&self, broker: BrokerId, now_ms: u64) -> bool {
        Some(broker) != self.own_broker
            && self
                .heard
                .borrow()
                .get(&broker)
                .is_some_and(|heard| !heard.is_silent(self.timeout_ms, now_ms))
    }

    /// The controlled shutdown has ended or starts again.
    fn end_shutdown(&self, broker: BrokerId) {
        self.shutdown_offsets.borrow_mut().remove(&broker);
    }

    /// Whether every other active broker has reached the metadata offset of the elections that
    /// replace the broker. That offset is taken at the first call.
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

    /// The active brokers whose session has expired or whose process is gone. The session of an
    /// active broker without one starts now.
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

    /// How often the sessions must be checked; `None` if no session can expire.
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
    fn a_lost_broker_has_no_session_until_its_next_heartbeat() {
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
    fn a_held_up_controller_extends_valid_sessions() {
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
    fn a_heartbeat_starts_a_new_session_timeout() {
        let sessions = BrokerSessions::new(40, None);
        assert!(!sessions.is_valid(BrokerId(1), 0));
        sessions.touch(BrokerId(1), Offset(7), 0);
        assert!(sessions.is_valid(BrokerId(1), 39));
        assert!(!sessions.is_valid(BrokerId(1), 40));
    }
}
