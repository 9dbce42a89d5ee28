//! The logs in use by partitions, in the order of their names.
#![allow(
    clippy::mutable_key_type,
    reason = "the name, by which they are ordered, never changes"
)]

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_log::LogReader;
use ottla_types::TopicPartition;

use super::log_dir::LogDir;

/// In use by a partition, which owns the log.
pub(super) struct Hosted {
    pub(super) reader: LogReader,
    pub(super) dir: Arc<LogDir>,
}

/// A set and not a map: the readers know their names, and there are very many.
#[derive(Default, Debug)]
pub(super) struct HostedLogs {
    logs: BTreeSet<Hosted>,
    changes: u64,
}

impl HostedLogs {
    /// How often a log was added, removed or exchanged.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn get(&self, topic_partition: &TopicPartition) -> Option<&Hosted> {
        self.logs.get(topic_partition)
    }

    pub(super) fn contains_key(&self, topic_partition: &TopicPartition) -> bool {
        self.logs.contains(topic_partition)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Hosted> + Clone {
        self.logs.iter()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &Hosted)> + Clone {
        self.logs
            .iter()
            .map(|log| (log.reader.topic_partition(), log))
    }

    pub(super) fn insert(&mut self, log: Hosted) {
        self.changes += 1;
        self.logs.replace(log);
    }

    pub(super) fn remove(&mut self, topic_partition: &TopicPartition) -> Option<Hosted> {
        self.changes += 1;
        self.logs.take(topic_partition)
    }

    /// Puts a log in the place of `old`. Returns false, without an effect, if that is not there.
    pub(super) fn exchange(&mut self, old: &LogReader, log: Hosted) -> bool {
        let current = self.get(log.reader.topic_partition());
        let is_there = current.is_some_and(|current| current.reader.is_of_same_log(old));
        if is_there {
            self.insert(log);
        }
        is_there
    }
}

impl Borrow<TopicPartition> for Hosted {
    fn borrow(&self) -> &TopicPartition {
        self.reader.topic_partition()
    }
}

impl Ord for Hosted {
    fn cmp(&self, other: &Hosted) -> Ordering {
        let (this, other) = (&self.reader, &other.reader);
        this.topic_partition().cmp(other.topic_partition())
    }
}

impl PartialOrd for Hosted {
    fn partial_cmp(&self, other: &Hosted) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Hosted {
    fn eq(&self, other: &Hosted) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Hosted {}

impl std::fmt::Debug for Hosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hosted({})", self.reader.topic_partition())
    }
}
