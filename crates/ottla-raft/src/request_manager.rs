//! Which node may be sent a request: one at a time per node, none during the backoff after a
//! failure.
//!
//! A response counts only while its request is awaited; a change of role forgets all requests. So
//! late or repeated responses are ignored.
//!
//! Kafka: `RequestManager`.

use std::collections::BTreeMap;

use ottla_types::BrokerId;

use crate::Node;

#[derive(Clone, Debug)]
pub(crate) struct RequestManager {
    connections: BTreeMap<BrokerId, Connection>,
    /// With IDs from -2 downwards: the node at the address is unknown until it responds.
    bootstrap_servers: Vec<Node>,
    retry_backoff_ms: u64,
    request_timeout_ms: u64,
    next_correlation_id: u64,
}

/// A node without an entry is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Connection {
    AwaitingResponse { correlation_id: u64, sent_ms: u64 },
    BackingOff { failed_ms: u64 },
}

impl RequestManager {
    pub fn new(
        bootstrap_servers: Vec<Node>,
        retry_backoff_ms: u64,
        request_timeout_ms: u64,
    ) -> RequestManager {
        RequestManager {
            connections: BTreeMap::new(),
            bootstrap_servers,
            retry_backoff_ms,
            request_timeout_ms,
            next_correlation_id: 0,
        }
    }

    /// Records a request that is sent now, and numbers it.
    pub fn on_request_sent(&mut self, node: BrokerId, now_ms: u64) -> u64 {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        self.connections.insert(
            node,
            Connection::AwaitingResponse {
                correlation_id,
                sent_ms: now_ms,
            },
        );
        correlation_id
    }

    pub fn is_response_expected(&self, node: BrokerId, expected: u64) -> bool {
        matches!(
            self.connections.get(&node),
            Some(Connection::AwaitingResponse { correlation_id, .. }) if *correlation_id == expected
        )
    }

    /// A response was handled; after a failure the node backs off.
    pub fn on_response_result(
        &mut self,
        node: BrokerId,
        correlation_id: u64,
        success: bool,
        now_ms: u64,
    ) {
        // Handling it may have forgotten all requests.
        if !self.is_response_expected(node, correlation_id) {
            return;
        }
        if success {
            self.reset(node);
        } else {
            self.connections
                .insert(node, Connection::BackingOff { failed_ms: now_ms });
        }
    }

    pub fn reset(&mut self, node: BrokerId) {
        self.connections.remove(&node);
    }

    pub fn reset_all(&mut self) {
        self.connections.clear();
    }

    pub fn has_request_timed_out(&self, node: BrokerId, now_ms: u64) -> bool {
        self.connections
            .get(&node)
            .is_some_and(|connection| self.is_timed_out(connection, now_ms))
    }

    pub fn is_backing_off(&self, node: BrokerId, now_ms: u64) -> bool {
        self.remaining_backoff_ms(node, now_ms) > 0
    }

    pub fn is_ready(&mut self, node: BrokerId, now_ms: u64) -> bool {
        let Some(connection) = self.connections.get(&node) else {
            return true;
        };
        let is_ready =
            self.is_timed_out(connection, now_ms) || self.is_backoff_complete(connection, now_ms);
        if is_ready {
            self.reset(node);
        }
        is_ready
    }

    pub fn remaining_request_ms(&self, node: BrokerId, now_ms: u64) -> u64 {
        match self.connections.get(&node) {
            Some(Connection::AwaitingResponse { sent_ms, .. }) => {
                (sent_ms + self.request_timeout_ms).saturating_sub(now_ms)
            }
            _ => 0,
        }
    }

    pub fn remaining_backoff_ms(&self, node: BrokerId, now_ms: u64) -> u64 {
        match self.connections.get(&node) {
            Some(Connection::BackingOff { failed_ms }) => {
                (failed_ms + self.retry_backoff_ms).saturating_sub(now_ms)
            }
            _ => 0,
        }
    }

    /// Whether any request is awaited. At most one Fetch is in flight, so that the same offsets are
    /// never appended twice.
    pub fn has_any_inflight_request(&mut self, now_ms: u64) -> bool {
        self.forget_finished(now_ms);
        self.connections
            .values()
            .any(|connection| matches!(connection, Connection::AwaitingResponse { .. }))
    }

    /// A ready bootstrap server for a Fetch, searching from `start` (random) on.
    pub fn find_ready_bootstrap_server(&mut self, start: u64, now_ms: u64) -> Option<Node> {
        if self.bootstrap_servers.is_empty() || self.has_any_inflight_request(now_ms) {
            return None;
        }
        let count = self.bootstrap_servers.len();
        let start = (start % count as u64) as usize;
        // Expired requests and backoffs are removed already: the remaining nodes are not ready.
        (0..count)
            .map(|index| &self.bootstrap_servers[(start + index) % count])
            .find(|node| !self.connections.contains_key(&node.id))
            .cloned()
    }

    pub fn backoff_before_available_bootstrap_server_ms(&mut self, now_ms: u64) -> u64 {
        self.forget_finished(now_ms);
        let mut least_ms = self.retry_backoff_ms;
        for (&node, connection) in &self.connections {
            match connection {
                Connection::AwaitingResponse { .. } => {
                    return self.remaining_request_ms(node, now_ms);
                }
                Connection::BackingOff { .. } => {
                    least_ms = least_ms.min(self.remaining_backoff_ms(node, now_ms));
                }
            }
        }
        let is_any_ready = self
            .bootstrap_servers
            .iter()
            .any(|node| !self.connections.contains_key(&node.id));
        if is_any_ready { 0 } else { least_ms }
    }

    fn forget_finished(&mut self, now_ms: u64) {
        let finished: Vec<BrokerId> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                self.is_timed_out(connection, now_ms)
                    || self.is_backoff_complete(connection, now_ms)
            })
            .map(|(&node, _)| node)
            .collect();
        for node in finished {
            self.reset(node);
        }
    }

    fn is_timed_out(&self, connection: &Connection, now_ms: u64) -> bool {
        matches!(connection, Connection::AwaitingResponse { sent_ms, .. }
            if now_ms >= sent_ms + self.request_timeout_ms)
    }

    fn is_backoff_complete(&self, connection: &Connection, now_ms: u64) -> bool {
        matches!(connection, Connection::BackingOff { failed_ms }
            if now_ms >= failed_ms + self.retry_backoff_ms)
    }
}

#[cfg(test)]
mod tests {
    use bytestring::ByteString;

    use super::*;

    const BOOTSTRAP: BrokerId = BrokerId(-2);

    fn manager() -> RequestManager {
        let node = |id| Node {
            id: BrokerId(id),
            host: ByteString::from_static("localhost"),
            port: 9093,
        };
        RequestManager::new(vec![node(-2), node(-3)], 20, 2000)
    }

    #[test]
    fn only_the_awaited_response_is_accepted_and_only_once() {
        let mut manager = manager();
        let first = manager.on_request_sent(BOOTSTRAP, 0);
        assert!(manager.is_response_expected(BOOTSTRAP, first));
        assert!(!manager.is_ready(BOOTSTRAP, 1999));
        assert!(manager.is_ready(BOOTSTRAP, 2000));
        assert!(!manager.is_response_expected(BOOTSTRAP, first));
        let second = manager.on_request_sent(BOOTSTRAP, 2000);
        assert!(!manager.is_response_expected(BOOTSTRAP, first));
        manager.on_response_result(BOOTSTRAP, second, true, 2001);
        assert!(!manager.is_response_expected(BOOTSTRAP, second));
        assert!(manager.is_ready(BOOTSTRAP, 2001));
    }

    #[test]
    fn after_a_failure_another_server_is_tried() {
        let mut manager = manager();
        let sent = manager.on_request_sent(BOOTSTRAP, 100);
        assert_eq!(manager.find_ready_bootstrap_server(1, 100), None);
        assert_eq!(
            manager.backoff_before_available_bootstrap_server_ms(600),
            1500
        );
        manager.on_response_result(BOOTSTRAP, sent, false, 600);
        assert!(manager.is_backing_off(BOOTSTRAP, 619));
        let other = manager
            .find_ready_bootstrap_server(2, 600)
            .expect("is ready");
        assert_eq!(other.id, BrokerId(-3));
        let sent = manager.on_request_sent(other.id, 605);
        manager.on_response_result(other.id, sent, false, 610);
        assert_eq!(manager.backoff_before_available_bootstrap_server_ms(612), 8);
        assert_eq!(manager.backoff_before_available_bootstrap_server_ms(620), 0);
        assert!(!manager.is_backing_off(BOOTSTRAP, 620));
    }
}
