//! Where records without a key go: they stay with a partition for a batch's worth of bytes and then move
//! to another, the less is waiting for a partition the sooner to it
//! (`org.apache.kafka.clients.producer.internals.BuiltInPartitioner`, KIP-794).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// The partition of the moment; changes with every move, also where the same partition comes up again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice(u64);

impl Choice {
    fn new(moves: u32, partition: u32) -> Choice {
        Choice(u64::from(moves) << 32 | u64::from(partition))
    }

    pub(super) fn partition(self) -> usize {
        self.0 as u32 as usize
    }
}

#[derive(Debug)]
pub(super) struct Sticky {
    choice: AtomicU64,
    produced_bytes: AtomicUsize,
    /// From which the next partition is drawn; nothing draws from all alike.
    load: Mutex<Option<Load>>,
}

/// Partitions with the running sums of their weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Load {
    partitions: Vec<usize>,
    cumulative: Vec<u64>,
}

impl Load {
    /// The longer the queue of a partition, the less often it is drawn. `available` has partitions with
    /// the lengths of their queues; `partitions` says how many there are in all. Nothing where all are
    /// alike.
    pub(super) fn of(available: &[(usize, usize)], partitions: usize) -> Option<Load> {
        let longest = available.iter().map(|(_, length)| *length).max()?;
        let all_equal = available.iter().all(|(_, length)| *length == longest);
        if partitions < 2 || all_equal && available.len() == partitions {
            return None;
        }
        let mut sum = 0;
        let weights = available.iter().map(|(_, length)| {
            sum += (longest + 1 - length) as u64;
            sum
        });
        Some(Load {
            cumulative: weights.collect(),
            partitions: available.iter().map(|(partition, _)| *partition).collect(),
        })
    }

    fn draw(&self, random: u64) -> usize {
        let drawn = random % self.cumulative.last().copied().unwrap_or(1);
        self.partitions[self.cumulative.partition_point(|sum| *sum <= drawn)]
    }
}

impl Sticky {
    pub(super) fn new(partitions: usize, random: u64) -> Sticky {
        let first = (random % partitions.max(1) as u64) as u32;
        Sticky {
            choice: AtomicU64::new(Choice::new(0, first).0),
            produced_bytes: AtomicUsize::new(0),
            load: Mutex::new(None),
        }
    }

    pub(super) fn choice(&self) -> Choice {
        Choice(self.choice.load(Ordering::Acquire))
    }

    /// Bytes went to the choice, said under the lock of its partition. Moves on once that is a batch's
    /// worth, and `may_move` says that no batch would stay half full; twice as much moves in any case.
    #[inline]
    pub(super) fn on_produced(
        &self,
        choice: Choice,
        bytes: usize,
        batch_size: usize,
        may_move: bool,
        partitions: usize,
        random: impl FnOnce() -> u64,
    ) {
        let produced = self.produced_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if produced >= batch_size && may_move || produced >= 2 * batch_size {
            let random = random();
            let next = match &*self.load.lock() {
                Some(load) => load.draw(random),
                None => (random % partitions.max(1) as u64) as usize,
            };
            self.produced_bytes.store(0, Ordering::Relaxed);
            let moves = (choice.0 >> 32) as u32;
            let next = Choice::new(moves.wrapping_add(1), next as u32);
            self.choice.store(next.0, Ordering::Release);
        }
    }

    pub(super) fn set_load(&self, load: Option<Load>) {
        *self.load.lock() = load;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of Kafka's own test of its partitioner (`BuiltInPartitionerTest.adaptivePartitionsTest`).
    #[test]
    fn weights_are_the_inverse_of_the_queues() {
        let queues: Vec<(usize, usize)> = [5, 0, 3, 0, 1].into_iter().enumerate().collect();
        let load = Load::of(&queues, 5).unwrap();
        assert_eq!(load.cumulative, [1, 7, 10, 16, 21]);
        let mut drawn = [0; 5];
        for random in 0..21 {
            drawn[load.draw(random)] += 1;
        }
        assert_eq!(drawn, [1, 6, 3, 6, 5]);
        assert_eq!(Load::of(&[(0, 2), (1, 2)], 2), None, "all alike");
        // A partition that is left out is never drawn.
        let without = Load::of(&[(0, 2), (2, 2)], 3).unwrap();
        assert_eq!([without.draw(0), without.draw(1)], [0, 2]);
    }

    #[test]
    fn it_moves_after_a_batch_and_not_before() {
        let sticky = Sticky::new(4, 1);
        let choice = sticky.choice();
        assert_eq!(choice.partition(), 1);
        sticky.on_produced(choice, 60, 100, true, 4, || 3);
        assert_eq!(sticky.choice(), choice);
        // Enough, but a batch would stay half full.
        sticky.on_produced(choice, 60, 100, false, 4, || 3);
        assert_eq!(sticky.choice(), choice);
        sticky.on_produced(choice, 1, 100, true, 4, || 3);
        assert_eq!(sticky.choice().partition(), 3);
        sticky.on_produced(sticky.choice(), 200, 100, false, 4, || 3);
        assert_ne!(
            sticky.choice(),
            choice,
            "the same partition is another choice"
        );
    }
}
