//! The cluster at one moment.

use std::collections::BTreeMap;

use ottla_client::TopicInfo;
use ottla_client::admin::{GroupListing, QuorumDescription};
use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use serde::Serialize;

pub(crate) type Partition = (String, i32);

/// A part that could not be read, because it is denied or not supported, is `None` or empty.
pub(crate) struct Snapshot {
    /// Milliseconds since 1970.
    pub(crate) at: i64,
    pub(crate) cluster_id: Option<String>,
    pub(crate) brokers: Vec<Broker>,
    pub(crate) topics: BTreeMap<String, Topic>,
    pub(crate) groups: Option<BTreeMap<String, Group>>,
    pub(crate) quorum: Option<QuorumDescription>,
    /// Why the metadata quorum does not answer. `None` if it does, if it is denied or not supported.
    pub(crate) quorum_failure: Option<String>,
    pub(crate) features: Vec<Feature>,
}

pub(crate) struct Broker {
    pub(crate) id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
    pub(crate) rack: Option<String>,
    /// Registered, and not running.
    pub(crate) is_fenced: bool,
    pub(crate) log_dirs: Option<Vec<DescribeLogDirsResult>>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Feature {
    pub(crate) name: String,
    pub(crate) level: i16,
}

pub(crate) struct Topic {
    pub(crate) info: TopicInfo,
    /// By the index in `info.partitions`.
    pub(crate) offsets: Vec<LogOffsets>,
    /// Of all replicas.
    pub(crate) bytes: Option<i64>,
    /// Of the leader's replica, by the index in `info.partitions`.
    pub(crate) leader_bytes: Vec<Option<i64>>,
    pub(crate) settings: Option<TopicSettings>,
    pub(crate) records_per_second: Option<f64>,
    /// What groups read, as far as they commit it.
    pub(crate) records_out_per_second: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LogOffsets {
    pub(crate) start: Option<i64>,
    pub(crate) end: Option<i64>,
}

/// The settings of a topic that the lists show. -1 means no limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TopicSettings {
    pub(crate) retention_ms: Option<i64>,
    pub(crate) retention_bytes: Option<i64>,
    pub(crate) cleanup_policy: Option<String>,
    pub(crate) min_insync_replicas: Option<i64>,
}

pub(crate) struct Group {
    pub(crate) listing: GroupListing,
    /// The committed offset and the lag of each partition.
    pub(crate) offsets: BTreeMap<Partition, (i64, Option<i64>)>,
}

/// The memory of a text, a list or an entry of a map besides its contents.
const ENTRY: usize = 64;

impl Snapshot {
    /// Whether the user may see log directories. Old versions of the request have no error, and show none without the right.
    pub(crate) fn shows_log_dirs(&self) -> bool {
        let dirs = self.brokers.iter().flat_map(|it| &it.log_dirs);
        dirs.flatten().next().is_some()
    }

    /// Its approximate memory.
    pub(crate) fn bytes(&self) -> usize {
        let topics = self.topics.iter().map(|(name, topic)| {
            let partitions = topic.info.partitions.iter().map(|it| {
                let replicas = it.replicas.len() + it.isr.len();
                3 * ENTRY + replicas * size_of::<i32>()
            });
            4 * ENTRY + 2 * name.len() + size_of::<Topic>() + partitions.sum::<usize>()
        });
        let dirs = self.brokers.iter().flat_map(|it| &it.log_dirs).flatten();
        let sizes = dirs
            .flat_map(|it| &it.topics)
            .map(|it| 2 * ENTRY + it.name.len() + size_of_val(it.partitions.as_slice()));
        let groups = self.groups.iter().flatten().map(|(name, group)| {
            let offsets = group
                .offsets
                .keys()
                .map(|(topic, _)| 2 * ENTRY + topic.len());
            4 * ENTRY + 2 * name.len() + offsets.sum::<usize>()
        });
        topics.sum::<usize>() + sizes.sum::<usize>() + groups.sum::<usize>()
    }
}

impl Topic {
    /// The sum of the distances between start and end offsets, if all are known.
    pub(crate) fn records(&self) -> Option<i64> {
        let known = |it: &LogOffsets| Some(it.end? - it.start?);
        self.offsets.iter().map(known).sum()
    }

    pub(crate) fn end_sum(&self) -> Option<i64> {
        self.offsets.iter().map(|it| it.end).sum()
    }

    pub(crate) fn offline(&self) -> usize {
        let partitions = self.info.partitions.iter();
        partitions.filter(|it| it.leader < 0).count()
    }

    pub(crate) fn under_replicated(&self) -> usize {
        let partitions = self.info.partitions.iter();
        partitions
            .filter(|it| it.leader >= 0 && it.isr.len() < it.replicas.len())
            .count()
    }

    /// The partitions that refuse `acks=all`.
    pub(crate) fn under_min_isr(&self) -> usize {
        let settings = self.settings.as_ref();
        let Some(least) = settings.and_then(|it| it.min_insync_replicas) else {
            return 0;
        };
        let partitions = self.info.partitions.iter();
        partitions
            .filter(|it| it.leader >= 0 && (it.isr.len() as i64) < least)
            .count()
    }
}

impl Group {
    /// The sum of the known lags; `None` if there is none.
    pub(crate) fn lag(&self) -> Option<i64> {
        sum_of_known(self.offsets.values().map(|(_, lag)| *lag))
    }

    pub(crate) fn lag_of(&self, topic: &str) -> Option<i64> {
        let of_topic = self.offsets.iter().filter(|((it, _), _)| it == topic);
        sum_of_known(of_topic.map(|(_, (_, lag))| *lag))
    }

    pub(crate) fn topics(&self) -> Vec<&str> {
        let mut topics: Vec<&str> = self.offsets.keys().map(|(topic, _)| &**topic).collect();
        topics.dedup();
        topics
    }

    /// Kafka's name of the type. Brokers before 3.8 do not send it, and have classic groups only.
    pub(crate) fn kind(&self) -> &str {
        match &*self.listing.group_type {
            "" => "classic",
            kind => kind,
        }
    }
}

/// The number of offsets after a committed one. Any client can commit any offset.
pub(crate) fn lag_behind(end: i64, committed: i64) -> i64 {
    end.saturating_sub(committed).max(0)
}

/// `None` if none is known.
pub(crate) fn sum_of_known(values: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    values.flatten().fold(None, |sum: Option<i64>, value| {
        Some(sum.unwrap_or(0).saturating_add(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_of_any_committed_offset_is_a_number() {
        assert_eq!((lag_behind(7, 3), lag_behind(7, 9)), (4, 0));
        assert_eq!(lag_behind(7, i64::MIN), i64::MAX);
        assert_eq!(lag_behind(7, i64::MAX), 0);
        let lags = [Some(i64::MAX), None, Some(5)];
        assert_eq!(sum_of_known(lags.into_iter()), Some(i64::MAX));
        assert_eq!(sum_of_known([None, None].into_iter()), None);
    }
}
