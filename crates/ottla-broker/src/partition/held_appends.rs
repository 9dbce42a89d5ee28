//! Holding the appends of a partition back, so that its log does not grow for a moment.
//!
//! Whoever has to be sure that nothing is appended, and has to wait for others meanwhile, cannot keep the run token
//! for that: it would keep acknowledgements from timing out, and a thread with it. So the partition sets appends aside
//! in the order in which they came, and goes on with everything else. What is set aside counts for the bound of the
//! inbox, beyond which connections are not read; and whoever holds appends has a deadline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Partition, PartitionEvent, PendingAppend};
use crate::Broker;

/// The appends that are set aside. Only the holder of the run token touches them.
#[derive(Debug, Default)]
pub(super) struct HeldAppends {
    pub(super) is_holding: bool,
    appends: VecDeque<PendingAppend>,
}

impl HeldAppends {
    pub(super) fn push(&mut self, append: PendingAppend) {
        self.appends.push_back(append);
    }

    /// The next one whose time has come.
    pub(super) fn pop(&mut self) -> Option<PendingAppend> {
        match self.is_holding {
            true => None,
            false => self.appends.pop_front(),
        }
    }
}

/// As long as this is kept, nothing is appended.
pub(super) struct AppendHold {
    broker: Arc<Broker>,
    partition: Arc<Partition>,
    since: Instant,
}

impl AppendHold {
    pub(super) fn lasts(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for AppendHold {
    fn drop(&mut self) {
        self.partition
            .put(&self.broker, PartitionEvent::LetAppendsGo);
    }
}

impl Partition {
    /// Holds appends back. When this returns, what was appended before is in the log.
    pub(super) async fn hold_appends(self: &Arc<Self>, broker: &Arc<Broker>) -> AppendHold {
        // Before the first wait, so that what is begun is ended whatever becomes of the caller.
        let hold = AppendHold {
            broker: Arc::clone(broker),
            partition: Arc::clone(self),
            since: Instant::now(),
        };
        let (sender, in_force) = oneshot::channel();
        self.put(broker, PartitionEvent::HoldAppends(sender));
        in_force
            .await
            .expect("what is put into an inbox is worked off");
        hold
    }
}
