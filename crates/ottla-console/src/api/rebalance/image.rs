//! A snapshot of the cluster as the planner sees it.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use ottla_rebalance::{Broker, Image, LogDir, Partition, Replica};

use crate::view::{Snapshot, Topic};

/// Topic, partition and broker to the index of the log directory and the size of the replica.
type Places<'a> = BTreeMap<(&'a str, i32, i32), (usize, u64)>;

pub(super) fn image(snapshot: &Snapshot) -> Image {
    let places = places(snapshot);
    let topics = snapshot.topics.values();
    let partitions: Vec<Partition> = topics
        .flat_map(|topic| partitions(topic, &places))
        .collect();
    let named = partitions.iter().flat_map(|it| &it.replicas);
    let registered = snapshot.brokers.iter().map(|it| it.id);
    let ids: BTreeSet<i32> = named.map(|it| it.broker).chain(registered).collect();
    let broker = |id: i32| {
        let registered = snapshot.brokers.iter().find(|it| it.id == id);
        let dirs = registered.and_then(|it| it.log_dirs.as_deref());
        Broker {
            id,
            rack: registered.and_then(|it| it.rack.clone()),
            is_alive: registered.is_some_and(|it| !it.is_fenced),
            log_dirs: dirs.unwrap_or_default().iter().map(log_dir).collect(),
        }
    };
    Image {
        brokers: ids.into_iter().map(broker).collect(),
        partitions,
    }
}

fn places(snapshot: &Snapshot) -> Places<'_> {
    let mut places = BTreeMap::new();
    for broker in &snapshot.brokers {
        for (index, dir) in broker.log_dirs.iter().flatten().enumerate() {
            for topic in &dir.topics {
                for it in topic.partitions.iter().filter(|it| !it.is_future_key) {
                    let size = u64::try_from(it.partition_size).unwrap_or(0);
                    let key = (&*topic.name, it.partition_index, broker.id);
                    places.insert(key, (index, size));
                }
            }
        }
    }
    places
}

fn log_dir(dir: &DescribeLogDirsResult) -> LogDir {
    let sizes = u64::try_from(dir.total_bytes).ok();
    let sizes = sizes.zip(u64::try_from(dir.usable_bytes).ok());
    LogDir {
        total_bytes: sizes.map(|(total, _)| total),
        used_bytes: sizes.map_or(0, |(total, usable)| total.saturating_sub(usable)),
        accepts_replicas: dir.error_code == 0 && !dir.is_cordoned,
    }
}

fn partitions(topic: &Topic, places: &Places<'_>) -> Vec<Partition> {
    let partitions = topic.info.partitions.iter().map(|it| {
        let place = |broker: i32| {
            let key = (topic.info.name.as_str(), it.partition, broker);
            places.get(&key).copied()
        };
        let replicas = it.replicas.iter().map(|broker| Replica {
            broker: *broker,
            log_dir: place(*broker).map(|(dir, _)| dir),
            is_in_sync: it.isr.contains(broker),
        });
        let sizes = it.replicas.iter().filter_map(|broker| place(*broker));
        Partition {
            topic: topic.info.name.clone(),
            number: it.partition,
            replicas: replicas.collect(),
            leader: Some(it.leader).filter(|it| *it >= 0),
            size_bytes: sizes.map(|(_, size)| size).max().unwrap_or(0),
            bytes_in: 0,
            is_movable: true,
        }
    });
    partitions.collect()
}
