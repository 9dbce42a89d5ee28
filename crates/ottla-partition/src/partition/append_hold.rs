//! Who holds the appends of a partition back (`held_appends`), and for how long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::oneshot;

use super::Partition;
use super::event::PartitionEvent;
use super::host::PartitionHost;

/// As long as this is kept, nothing is appended.
pub struct AppendHold {
    host: Arc<PartitionHost>,
    partition: Arc<Partition>,
    since: Instant,
}

impl AppendHold {
    /// For one who has seen to it that the partition holds them.
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
    /// Holds appends back. When this returns, what was appended before is in the log.
    pub async fn hold_appends(self: &Arc<Self>, host: &Arc<PartitionHost>) -> AppendHold {
        // Before the first wait, so that what is begun is ended whatever becomes of the caller.
        let hold = AppendHold::new(self, host);
        let (sender, in_force) = oneshot::channel();
        self.put(host, PartitionEvent::HoldAppends(sender));
        in_force
            .await
            .expect("what is put into an inbox is worked off");
        hold
    }
}
