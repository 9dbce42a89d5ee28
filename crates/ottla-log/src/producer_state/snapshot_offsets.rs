//! The offsets of a log's producer snapshots.

use ottla_types::Offset;

/// Ascending and distinct. Not a `BTreeSet`: most logs have one snapshot, and a node of it has room
/// for eleven. Snapshots are added at the end.
#[derive(Clone, Default, Debug)]
pub(super) struct SnapshotOffsets(Vec<Offset>);

impl SnapshotOffsets {
    pub(super) fn contains(&self, offset: Offset) -> bool {
        self.0.binary_search(&offset).is_ok()
    }

    pub(super) fn last(&self) -> Option<Offset> {
        self.0.last().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Offset> {
        self.0.iter().copied()
    }

    pub(super) fn insert(&mut self, offset: Offset) {
        let Err(place) = self.0.binary_search(&offset) else {
            return;
        };
        if self.0.capacity() == 0 {
            self.0.reserve_exact(1);
        }
        self.0.insert(place, offset);
    }

    pub(super) fn remove(&mut self, offset: Offset) {
        if let Ok(place) = self.0.binary_search(&offset) {
            self.0.remove(place);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl FromIterator<Offset> for SnapshotOffsets {
    fn from_iter<I: IntoIterator<Item = Offset>>(offsets: I) -> Self {
        let mut all = Vec::from_iter(offsets);
        all.sort_unstable();
        all.dedup();
        SnapshotOffsets(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(offsets: &SnapshotOffsets) -> Vec<i64> {
        offsets.iter().map(|offset| offset.0).collect()
    }

    #[test]
    fn offsets_are_ascending_and_distinct() {
        let mut offsets: SnapshotOffsets = [7, 3, 7, 5].map(Offset).into_iter().collect();
        assert_eq!(all(&offsets), [3, 5, 7]);
        for added in [9, 5, 1] {
            offsets.insert(Offset(added));
        }
        assert_eq!(all(&offsets), [1, 3, 5, 7, 9]);
        assert_eq!(offsets.last(), Some(Offset(9)));
        offsets.remove(Offset(5));
        offsets.remove(Offset(6));
        assert_eq!(all(&offsets), [1, 3, 7, 9]);
        assert!(offsets.contains(Offset(7)) && !offsets.contains(Offset(5)));
        offsets.clear();
        assert_eq!((all(&offsets), offsets.last()), (Vec::new(), None));
    }

    #[test]
    fn one_offset_takes_the_room_of_one() {
        let mut offsets = SnapshotOffsets::default();
        offsets.insert(Offset(4));
        assert_eq!(offsets.0.capacity(), 1);
    }
}
