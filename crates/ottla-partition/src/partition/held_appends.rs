//! Holding the appends of a partition, so that its log does not grow for a while: appends of
//! producers and records from the leader.
//!
//! An operation that must exclude appends while it waits cannot keep the run token:
//! acknowledgements could not time out, and a thread would be blocked. So the partition sets
//! appends aside in their order and processes all other events. Held appends count towards the
//! inbox's bound, above which connections are not read; a long hold has a deadline or is released.
//! A directory move holds appends, and all responses of the leader, before it swaps the copy in; a
//! new log holds appends until its topic ID is on disk (`topic_id_file`).

use std::collections::VecDeque;

use super::event::PartitionEvent;

/// The held appends. Only the holder of the run token touches them.
///
/// `None` while there are neither holds nor appends: a new log holds its first appends, and few hold
/// any later.
#[derive(Default)]
pub(super) struct HeldAppends(Option<Box<Held>>);

#[derive(Default)]
struct Held {
    /// Number of active holds.
    holds: usize,
    appends: VecDeque<PartitionEvent>,
}

impl HeldAppends {
    pub(super) fn is_holding(&self) -> bool {
        self.holds() > 0
    }

    /// The number of active holds.
    pub(super) fn holds(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.holds)
    }

    pub(super) fn hold(&mut self) {
        self.0.get_or_insert_default().holds += 1;
    }

    pub(super) fn let_go(&mut self) {
        // All holds are gone if the log was lost.
        if let Some(held) = &mut self.0 {
            held.holds = held.holds.saturating_sub(1);
        }
    }

    /// Ends all holds, because the log was lost.
    pub(super) fn let_all_go(&mut self) {
        if let Some(held) = &mut self.0 {
            held.holds = 0;
        }
    }

    pub(super) fn push(&mut self, append: PartitionEvent) {
        self.0.get_or_insert_default().appends.push_back(append);
    }

    /// The next append, unless a hold is active.
    pub(super) fn pop(&mut self) -> Option<PartitionEvent> {
        let held = self.0.as_mut().filter(|held| held.holds == 0)?;
        let next = held.appends.pop_front();
        if held.appends.is_empty() {
            self.0 = None;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_go_on_in_their_order_after_the_last_hold() {
        let mut held = HeldAppends::default();
        held.hold();
        held.hold();
        // Any two events that differ.
        held.push(PartitionEvent::Flushed);
        held.push(PartitionEvent::FlushDue);
        held.let_go();
        assert!(held.is_holding() && held.pop().is_none());
        held.let_go();
        assert!(matches!(held.pop(), Some(PartitionEvent::Flushed)));
        assert!(matches!(held.pop(), Some(PartitionEvent::FlushDue)));
        assert!(held.pop().is_none());
    }

    /// A hold ends when its owner drops it, also after the log was lost. That must not end a hold on
    /// the next log.
    #[test]
    fn the_end_of_a_hold_on_a_lost_log_changes_nothing() {
        let mut held = HeldAppends::default();
        held.hold();
        held.let_all_go();
        assert!(!held.is_holding());
        held.let_go();
        held.hold();
        assert!(held.is_holding());
    }
}
