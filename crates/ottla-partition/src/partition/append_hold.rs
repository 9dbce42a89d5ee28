//! A hold on the appends of a partition (`held_appends`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::oneshot;

use super::Partition;
use super::event::PartitionEvent;
use super::host::PartitionHost;

/// Appends are held while this exists.
pub struct AppendHold {
    host: Arc<PartitionHost>,
    partition: Arc<Partition>,
    since: Instant,
}

impl AppendHold {
    /// The caller must have put the hold in force.
    pub(super) fn new(partition: &Arc<Partition>, host: &Arc<PartitionHost>) -> AppendHold {
        AppendHold {
            host: Arc::clone(host),
            partition: Arc::clone(partition),
            since: ottla_sync::time::now(),
        }
    }

    pub(crate) fn lasts(&self) -> Duration {
        ottla_sync::time::now() - self.since
    }
}

impl Drop for AppendHold {
    fn drop(&mut self) {
        self.partition.put(&self.host, PartitionEvent::LetAppendsGo);
    }
}

impl Partition {
    /// Holds appends. When this returns, earlier appends are in the log.
    pub async fn hold_appends(self: &Arc<Self>, host: &Arc<PartitionHost>) -> AppendHold {
        // Created before the first await, so that the hold is released if the caller is cancelled.
        let hold = AppendHold::new(self, host);
        let (sender, in_force) = oneshot::channel();
        self.put(host, PartitionEvent::HoldAppends(sender));
        in_force.await.expect("an event in the inbox is processed");
        hold
    }
}
