//! Holding the appends of a partition back, so that its log does not grow for a moment: what producers want written,
//! and what a leader has answered to a follower.
//!
//! Whoever has to be sure that nothing is appended, and has to wait for others meanwhile, cannot keep the run token
//! for that: it would keep acknowledgements from timing out, and a thread with it. So the partition sets appends aside
//! in the order in which they came, and goes on with everything else. What is set aside counts for the bound of the
//! inbox, beyond which connections are not read; and whoever holds appends for long has a deadline, or lets them go.
//! A move between directories does it before it puts the copy in place, and a new log until the id of its topic is on disk
//! (`topic_id_file`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::oneshot;

use super::{Partition, PartitionEvent};
use crate::partition::host::PartitionHost;

/// The appends that are set aside. Only the holder of the run token touches them.
#[derive(Default)]
pub(super) struct HeldAppends {
    /// How many hold them back.
    holds: usize,
    appends: VecDeque<PartitionEvent>,
}

impl HeldAppends {
    pub(super) fn is_holding(&self) -> bool {
        self.holds > 0
    }

    pub(super) fn hold(&mut self) {
        self.holds += 1;
    }

    /// Begins to hold, for the holder of the run token.
    pub(super) fn begin(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
    ) -> AppendHold {
        self.hold();
        AppendHold::new(partition, host)
    }

    pub(super) fn let_go(&mut self) {
        // None is left where the log was lost.
        self.holds = self.holds.saturating_sub(1);
    }

    /// Nobody can hold back what has nowhere to go.
    pub(super) fn let_all_go(&mut self) {
        self.holds = 0;
    }

    pub(super) fn push(&mut self, append: PartitionEvent) {
        self.appends.push_back(append);
    }

    /// The next one whose time has come.
    pub(super) fn pop(&mut self) -> Option<PartitionEvent> {
        match self.is_holding() {
            true => None,
            false => self.appends.pop_front(),
        }
    }
}

/// As long as this is kept, nothing is appended.
pub struct AppendHold {
    host: Arc<PartitionHost>,
    partition: Arc<Partition>,
    since: Instant,
}

impl AppendHold {
    fn new(partition: &Arc<Partition>, host: &Arc<PartitionHost>) -> AppendHold {
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
