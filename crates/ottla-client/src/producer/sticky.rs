//! Where records without a key go: they stay with a partition for a batch's worth of bytes and then move
//! to another, the less is waiting for a partition the sooner to it
//! (`org.apache.kafka.clients.producer.internals.BuiltInPartitioner`, KIP-794).

use ottla_sync::atomic::{AtomicU64, Ordering};

use ottla_sync::Mutex;

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

/// What went to a partition since it was chosen; kept with the partition, under its lock.
#[derive(Debug, Default)]
pub(super) struct Produced {
    choice: Option<Choice>,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Sticky {
    /// Changed only under the lock of the partition that it stands for.
    choice: AtomicU64,
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
        produced: &mut Produced,
        bytes: usize,
        batch_size: usize,
        may_move: impl FnOnce() -> bool,
        partitions: usize,
    ) {
        if produced.choice != Some(choice) {
            *produced = Produced {
                choice: Some(choice),
                bytes: 0,
            };
        }
        produced.bytes += bytes;
        if produced.bytes >= batch_size && (produced.bytes >= 2 * batch_size || may_move()) {
            self.move_on(
                choice,
                partitions,
                ottla_sync::random::random("sticky partitions"),
            );
        }
    }

    fn move_on(&self, choice: Choice, partitions: usize, random: u64) {
        let next = match &*self.load.lock() {
            Some(load) => load.draw(random),
            None => (random % partitions.max(1) as u64) as usize,
        };
        let moves = (choice.0 >> 32) as u32;
        let next = Choice::new(moves.wrapping_add(1), next as u32);
        self.choice.store(next.0, Ordering::Release);
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
        let mut produced = Produced::default();
        let mut produce = |bytes, may_move| {
            let choice = sticky.choice();
            sticky.on_produced(choice, &mut produced, bytes, 100, || may_move, 4);
            sticky.choice() != choice
        };
        assert!(!produce(60, true));
        // Enough, but a batch would stay half full.
        assert!(!produce(60, false));
        assert!(produce(1, true));
        // The count begins anew with each choice, be it the same partition.
        assert!(!produce(199, false));
        assert!(produce(1, false));
    }
}
