//! Free space on the brokers that receive replicas, and how much they have received.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ottla_client::{Admin, ClientError};

use crate::directories::directories;
use crate::targets::Partition;

/// The minimum interval between two descriptions of log directories.
const REFRESHED_EVERY: Duration = Duration::from_secs(10);

#[derive(Default, Debug)]
pub(crate) struct Room {
    looked: Option<Instant>,
    /// The free bytes after all moves in progress; `None` if the broker does not report them.
    free: BTreeMap<i32, Option<u64>>,
    /// What moves in progress have copied, in bytes. A move that ends is removed.
    pub(crate) copied: BTreeMap<Partition, u64>,
}

impl Room {
    /// Describes the log directories of these brokers again if it is time. `moving` are the moves
    /// in progress, with the brokers that receive them, and their sizes.
    pub(crate) async fn refresh(
        &mut self,
        admin: &Admin,
        brokers: impl Iterator<Item = i32>,
        moving: &BTreeMap<Partition, (Vec<i32>, u64)>,
    ) -> Result<(), ClientError> {
        if self.looked.is_some_and(|it| it.elapsed() < REFRESHED_EVERY) {
            return Ok(());
        }
        let described = directories(admin, brokers).await?;
        self.looked = Some(Instant::now());
        self.free = described
            .iter()
            .map(|(broker, it)| (*broker, it.free_bytes()))
            .collect();
        self.copied.clear();
        let replicas: BTreeMap<i32, _> = described
            .iter()
            .map(|(id, it)| (*id, it.replicas()))
            .collect();
        for ((topic, partition), (added, size)) in moving {
            for broker in added {
                let there = replicas
                    .get(broker)
                    .and_then(|it| it.get(&(topic.as_str(), *partition)));
                let copied = there.map_or(0, |(copied, _)| *copied).min(*size);
                *self.copied.entry((topic.clone(), *partition)).or_default() += copied;
                self.take(*broker, size - copied);
            }
        }
        Ok(())
    }

    fn take(&mut self, broker: i32, bytes: u64) {
        if let Some(Some(free)) = self.free.get_mut(&broker) {
            *free = free.saturating_sub(bytes);
        }
    }

    /// Reserves room for a replica on each of these brokers; or returns the broker that has too
    /// little, and its free bytes.
    pub(crate) fn take_for(&mut self, brokers: &[i32], bytes: u64) -> Result<(), (i32, u64)> {
        for broker in brokers {
            // New records, indexes and snapshots need space as well.
            let needed = bytes.saturating_add(bytes / 20);
            if let Some(Some(free)) = self.free.get(broker)
                && *free < needed
            {
                return Err((*broker, *free));
            }
        }
        brokers.iter().for_each(|broker| self.take(*broker, bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_once() {
        let mut room = Room {
            free: BTreeMap::from([(1, Some(250)), (2, None)]),
            ..Room::default()
        };
        assert_eq!(room.take_for(&[1, 2], 100), Ok(()));
        assert_eq!(room.take_for(&[2, 1], 100), Ok(()));
        assert_eq!(room.take_for(&[2, 1], 100), Err((1, 50)));
        assert_eq!(room.take_for(&[2, 3], u64::MAX), Ok(()));
    }
}
