//! Hash tables whose order the seed determines if the caller is a simulated thread.

use std::hash::BuildHasher;

use foldhash::fast::{FixedState, FoldHasher};

use crate::simulation::world;

pub type HashMap<K, V, S = RandomState> = hashbrown::HashMap<K, V, S>;
pub type HashSet<T, S = RandomState> = hashbrown::HashSet<T, S>;

/// Each table has a different hash function.
#[derive(Clone, Debug)]
pub struct RandomState(FixedState);

impl Default for RandomState {
    fn default() -> RandomState {
        let seed = match world::is_simulated() {
            true => world::with_world(|world| world.random_u64("order of a table")),
            false => rand::random(),
        };
        RandomState(FixedState::with_seed(seed))
    }
}

impl BuildHasher for RandomState {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> FoldHasher<'static> {
        self.0.build_hasher()
    }
}
