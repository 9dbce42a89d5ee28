//! What is wrong with the network.

use std::collections::BTreeSet;

use super::random::Random;

#[derive(Clone, Default, Debug)]
pub(crate) struct Network {
    /// From, to: nothing arrives.
    pub cut: BTreeSet<(i32, i32)>,
    /// Of a thousand messages.
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

impl Network {
    pub(crate) fn faulty(random: &mut Random) -> Network {
        Network {
            cut: BTreeSet::new(),
            lost: random.below(40),
            doubled: random.below(40),
            late: random.below(30),
        }
    }

    /// After how many milliseconds each copy of a message arrives. Each goes its own way, so they overtake each other.
    pub(crate) fn delays(&self, from: i32, to: i32, random: &mut Random) -> Vec<u64> {
        if self.cut.contains(&(from, to)) || random.per_mille(self.lost) {
            return Vec::new();
        }
        let copies = if random.per_mille(self.doubled) { 2 } else { 1 };
        (0..copies)
            .map(|_| match random.per_mille(self.late) {
                true => 100 + random.below(4_000),
                false => 1 + random.below(12),
            })
            .collect()
    }
}
