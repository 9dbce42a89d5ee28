//! The sticky partitioner for records without a key: they stay with one partition for a batch's
//! worth of bytes and then switch to another one, with a preference for partitions with short
//! queues (`org.apache.kafka.clients.producer.internals.BuiltInPartitioner`, KIP-794).

use ottla_sync::atomic::{AtomicU64, Ordering};

use ottla_sync::Mutex;

/// The current partition. Changes with every switch, even to the same partition.
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

/// The bytes sent to a partition since it was chosen. Stored with the partition, under its lock.
#[derive(Debug, Default)]
pub(super) struct Produced {
    choice: Option<Choice>,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Sticky {
    /// Changed only under the lock of the partition that it refers to.
    choice: AtomicU64,
    /// The weights for the next choice; `None` for equal weights.
    load: Mutex<Option<Load>>,
}

/// Partitions with the cumulative sums of their weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Load {
    partitions: Vec<usize>,
    cumulative: Vec<u64>,
}

impl Load {
    /// The weights of partitions: the longer the queue, the smaller the weight. `available` has
    /// partitions with the lengths of their queues, `partitions` is the total number. `None` if all
    /// weights are equal.
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

    /// Counts bytes for the current choice, under the lock of its partition. Switches when they
    /// reach a batch's worth and `may_move` says that no batch would stay half full; twice as much
    /// switches in any case.
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

    /// The tables of Kafka's own test (`BuiltInPartitionerTest.adaptivePartitionsTest`).
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
        // A partition that is not available is never chosen.
        let without = Load::of(&[(0, 2), (2, 2)], 3).unwrap();
        assert_eq!([without.draw(0), without.draw(1)], [0, 2]);
    }

    #[test]
    fn it_switches_the_partition_only_after_a_batch() {
        let sticky = Sticky::new(4, 1);
        let mut produced = Produced::default();
        let mut produce = |bytes, may_move| {
            let choice = sticky.choice();
            sticky.on_produced(choice, &mut produced, bytes, 100, || may_move, 4);
            sticky.choice() != choice
        };
        assert!(!produce(60, true));
        // Enough bytes, but a batch would stay half full.
        assert!(!produce(60, false));
        assert!(produce(1, true));
        // The count restarts with each choice, even of the same partition.
        assert!(!produce(199, false));
        assert!(produce(1, false));
    }
}
