//! A value per core, so that counting never takes a cache line from another core.
//!
//! A thread is assigned a shard when it first counts, and keeps it. Threads that share a shard
//! still count correctly, because shards are atomic; they only contend for the cache line.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// One `T` per core.
#[derive(Debug)]
pub struct Sharded<T> {
    /// As many as there are [`cores`].
    shards: Box<[CachePadded<T>]>,
}

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Sharded {
            shards: (0..cores()).map(|_| CachePadded::default()).collect(),
        }
    }
}

impl<T> Sharded<T> {
    /// The shard of the calling thread.
    pub fn of_this_thread(&self) -> &T {
        &self.shards[place_of_this_thread()]
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.shards.iter().map(|shard| &**shard)
    }
}

/// The cores that this process may use. They are counted once: the standard library reads a dozen files of the control
/// groups for it, and counters are also made on threads that serve sockets.
fn cores() -> usize {
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *CORES
}

/// The index of the calling thread's shard. Below the number of shards, so that no division is needed
/// for each of the dozen counters of a request.
fn place_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    PLACE.with(|place| {
        if place.get() == usize::MAX {
            place.set(NEXT.fetch_add(1, Ordering::Relaxed) % cores());
        }
        place.get()
    })
}

/// Counters that every core adds to and a reader sums up.
#[derive(Debug)]
pub struct Counters<const N: usize>(Sharded<[AtomicU64; N]>);

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Counters(Sharded {
            shards: (0..cores())
                .map(|_| CachePadded::new([const { AtomicU64::new(0) }; N]))
                .collect(),
        })
    }
}

impl<const N: usize> Counters<N> {
    pub fn add(&self, index: usize, count: u64) {
        self.0.of_this_thread()[index].fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self, index: usize) -> u64 {
        self.0
            .iter()
            .map(|shard| shard[index].load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_cores_have_shards_too() {
        let counters: Counters<1> = Counters::default();
        let threads = 3 * cores() + 1;
        ottla_sync::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| counters.add(0, 1));
            }
        });
        assert_eq!(counters.get(0), threads as u64);
    }

    #[test]
    fn what_all_threads_count_adds_up() {
        let counters: Counters<2> = Counters::default();
        ottla_sync::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counters.add(1, 3);
                    }
                });
            }
        });
        assert_eq!([counters.get(0), counters.get(1)], [0, 24_000]);
    }
}
