//! State shared by the parts of replication: the partitions' host, the connection to the
//! controller, and the end.

use std::sync::Arc;

use ottla_node::Node;
use ottla_sync::watch;

use super::throttle::ReplicationThrottle;
use crate::partition::host::PartitionHost;

#[derive(Debug)]
pub struct ReplicationContext {
    pub(super) host: Arc<PartitionHost>,
    pub(super) node: Arc<Node>,
    /// Traffic from leaders.
    pub(super) follower_throttle: ReplicationThrottle,
    /// Becomes true when fetching must end.
    ended: watch::Sender<bool>,
}

impl ReplicationContext {
    pub(super) fn new(host: Arc<PartitionHost>, node: Arc<Node>) -> ReplicationContext {
        ReplicationContext {
            host,
            node,
            follower_throttle: ReplicationThrottle::default(),
            ended: watch::Sender::new(false),
        }
    }

    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = ended.wait_for(|&ended| ended).await;
    }
}
