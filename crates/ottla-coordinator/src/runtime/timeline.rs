//! A value with its uncommitted changes, so that readers see the committed value while decisions
//! use the latest one.
//!
//! Every change belongs to a write. When the write is committed, its undo entry is dropped; when it
//! fails, the entry restores the old value. Undo entries are ordered by write, oldest first. Kafka:
//! `TimelineHashMap` and `SnapshotRegistry`.

use super::outcome::WriteId;

/// One slot of a map, which may be empty, with its latest and its committed value.
#[derive(Debug)]
pub(crate) struct Timeline<V> {
    latest: Option<V>,
    /// The value that each uncommitted write replaced.
    undo: Vec<(WriteId, Option<V>)>,
}

impl<V> Default for Timeline<V> {
    fn default() -> Self {
        Self {
            latest: None,
            undo: Vec::new(),
        }
    }
}

impl<V> Timeline<V> {
    /// A value that was loaded from the log.
    pub(crate) fn of_committed(value: V) -> Self {
        Self {
            latest: Some(value),
            undo: Vec::new(),
        }
    }

    /// The value after all writes, committed or not.
    pub(crate) fn latest(&self) -> Option<&V> {
        self.latest.as_ref()
    }

    pub(crate) fn latest_mut(&mut self) -> Option<&mut V> {
        self.latest.as_mut()
    }

    /// The value after the committed writes.
    pub(crate) fn committed(&self) -> Option<&V> {
        match self.undo.first() {
            Some((_, replaced)) => replaced.as_ref(),
            None => self.latest.as_ref(),
        }
    }

    /// Sets or removes the value as part of `write`, which must not be older than previous writes.
    pub(crate) fn set(&mut self, write: WriteId, value: Option<V>) {
        debug_assert!(self.undo.last().is_none_or(|(last, _)| *last <= write));
        let replaced = std::mem::replace(&mut self.latest, value);
        self.undo.push((write, replaced));
    }

    /// Sets or removes the value as committed. Only for loading, when nothing is uncommitted.
    pub(crate) fn set_committed(&mut self, value: Option<V>) -> Option<V> {
        debug_assert!(self.undo.is_empty());
        std::mem::replace(&mut self.latest, value)
    }

    /// Commits all writes up to and including `write`.
    pub(crate) fn commit(&mut self, write: WriteId) {
        let committed = self.undo.partition_point(|(id, _)| *id <= write);
        self.undo.drain(..committed);
    }

    /// Rolls back `write` and all later ones. Returns the value that is lost.
    pub(crate) fn revert(&mut self, write: WriteId) -> Option<V> {
        let kept = self.undo.partition_point(|(id, _)| *id < write);
        if kept == self.undo.len() {
            return None;
        }
        let (_, restored) = self.undo.drain(kept..).next()?;
        std::mem::replace(&mut self.latest, restored)
    }

    /// The latest value, and all values that uncommitted writes replaced.
    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        let replaced = self.undo.into_iter().filter_map(|(_, value)| value);
        self.latest.into_iter().chain(replaced)
    }

    /// Whether there is neither a value nor a change that could restore one, so that the slot can
    /// be dropped.
    pub(crate) fn is_vacant(&self) -> bool {
        self.latest.is_none() && self.undo.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::WriteId;
    use super::Timeline;

    fn state(slot: &Timeline<i32>) -> (Option<i32>, Option<i32>) {
        (slot.latest().copied(), slot.committed().copied())
    }

    #[test]
    fn readers_see_the_committed_value_until_the_write_is_committed() {
        let mut slot = Timeline::default();
        slot.set(WriteId(1), Some(10));
        slot.set(WriteId(2), Some(20));
        slot.set(WriteId(3), None);
        assert_eq!(state(&slot), (None, None));
        slot.commit(WriteId(1));
        assert_eq!(state(&slot), (None, Some(10)));
        slot.commit(WriteId(2));
        assert_eq!(state(&slot), (None, Some(20)));
        assert!(!slot.is_vacant());
        slot.commit(WriteId(3));
        assert_eq!(state(&slot), (None, None));
        assert!(slot.is_vacant());
    }

    #[test]
    fn a_failed_write_takes_itself_and_all_later_ones_back() {
        let mut slot = Timeline::of_committed(1);
        slot.set(WriteId(5), Some(2));
        slot.set(WriteId(6), Some(3));
        slot.set(WriteId(6), Some(4));
        slot.set(WriteId(7), Some(5));
        assert_eq!(slot.revert(WriteId(6)), Some(5));
        assert_eq!(state(&slot), (Some(2), Some(1)));
        assert_eq!(slot.revert(WriteId(6)), None);
        assert_eq!(slot.revert(WriteId(5)), Some(2));
        assert_eq!(state(&slot), (Some(1), Some(1)));
    }
}
