//! The number of members per name, for assignors, protocols and regular expressions. Cheap to
//! clone.

use bytestring::ByteString;
use rpds::RedBlackTreeMapSync;

/// Invariant: no count is 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Counts(RedBlackTreeMapSync<ByteString, usize>);

impl Default for Counts {
    fn default() -> Self {
        Counts(RedBlackTreeMapSync::new_sync())
    }
}

impl Counts {
    pub(super) fn get(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(super) fn len(&self) -> usize {
        self.0.size()
    }

    /// In the order of the names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ByteString, usize)> {
        self.0.iter().map(|(name, count)| (name, *count))
    }

    pub(super) fn add(&mut self, name: &ByteString) {
        self.0.insert_mut(name.clone(), self.get(name) + 1);
    }

    pub(super) fn remove(&mut self, name: &str) {
        match self.0.get_key_value(name) {
            Some((_, 1)) => drop(self.0.remove_mut(name)),
            Some((key, count)) => {
                let (key, count) = (key.clone(), count - 1);
                self.0.insert_mut(key, count);
            }
            None => {}
        }
    }
}
