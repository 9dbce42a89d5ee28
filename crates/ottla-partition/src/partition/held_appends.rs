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

use super::event::PartitionEvent;

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
