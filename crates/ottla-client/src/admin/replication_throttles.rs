//! Replication throttles during reassignments, and their removal.
//!
//! Kafka: `ReassignPartitionsCommand`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;

use super::{Admin, ConfigOperation, ConfigResourceType};
use crate::error::ClientError;
use crate::partitions::Partition;

const LEADER_RATE: &str = "leader.replication.throttled.rate";
const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
const LOG_DIRS_RATE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";
const LEADER_REPLICAS: &str = "leader.replication.throttled.replicas";
const FOLLOWER_REPLICAS: &str = "follower.replication.throttled.replicas";

impl Admin {
    /// Limits replication between brokers to this many bytes per second, for the moves in progress
    /// and the proposed moves. `current` holds the source replicas.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    ///
    /// let partition = ("orders".to_owned(), 0);
    /// let current = BTreeMap::from([(partition.clone(), vec![1, 2, 3])]);
    /// let proposed = BTreeMap::from([(partition, vec![2, 3, 4])]);
    /// let ongoing = admin.list_partition_reassignments().await?;
    /// admin.limit_replication(&ongoing, &current, &proposed, 50_000_000).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn limit_replication(
        &self,
        ongoing: &BTreeMap<Partition, OngoingPartitionReassignment>,
        current: &BTreeMap<Partition, Vec<i32>>,
        proposed: &BTreeMap<Partition, Vec<i32>>,
        bytes_per_second: i64,
    ) -> Result<(), ClientError> {
        let moves = moves(ongoing, current, proposed);
        let followers = throttled(&moves, |it| &it.destinations);
        for (topic, leaders) in throttled(&moves, |it| &it.sources) {
            let followers = followers.get(&topic).cloned().unwrap_or_default();
            let operations = BTreeMap::from([
                (LEADER_REPLICAS.to_owned(), ConfigOperation::Set(leaders)),
                (
                    FOLLOWER_REPLICAS.to_owned(),
                    ConfigOperation::Set(followers),
                ),
            ]);
            self.alter_configs(ConfigResourceType::Topic, &topic, &operations, false)
                .await?;
        }
        let both = |it: &Move| &it.sources | &it.destinations;
        let brokers: BTreeSet<i32> = moves.values().flat_map(both).collect();
        self.set_rates(&brokers, &[LEADER_RATE, FOLLOWER_RATE], bytes_per_second)
            .await
    }

    /// Limits moves between log directories of these brokers to this many bytes per second.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeSet;
    ///
    /// admin.limit_log_dir_moves(&BTreeSet::from([1, 2]), 50_000_000).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn limit_log_dir_moves(
        &self,
        brokers: &BTreeSet<i32>,
        bytes_per_second: i64,
    ) -> Result<(), ClientError> {
        self.set_rates(brokers, &[LOG_DIRS_RATE], bytes_per_second)
            .await
    }

    async fn set_rates(
        &self,
        brokers: &BTreeSet<i32>,
        keys: &[&str],
        bytes_per_second: i64,
    ) -> Result<(), ClientError> {
        let set = |key: &&str| {
            let value = ConfigOperation::Set(bytes_per_second.to_string());
            ((*key).to_owned(), value)
        };
        let operations = keys.iter().map(set).collect();
        for broker in brokers {
            let name = broker.to_string();
            self.alter_configs(ConfigResourceType::Broker, &name, &operations, false)
                .await?;
        }
        Ok(())
    }

    /// Removes the rates of throttles from these brokers.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeSet;
    ///
    /// admin.clear_throttle_rates(&BTreeSet::from([1, 2, 3])).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn clear_throttle_rates(&self, brokers: &BTreeSet<i32>) -> Result<(), ClientError> {
        let rates = deleted(&[LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE]);
        for broker in brokers {
            let name = broker.to_string();
            self.alter_configs(ConfigResourceType::Broker, &name, &rates, false)
                .await?;
        }
        Ok(())
    }

    /// Removes the throttled replicas from these topics.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// admin.clear_throttled_replicas(&["orders"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn clear_throttled_replicas(&self, topics: &[&str]) -> Result<(), ClientError> {
        let replicas = deleted(&[LEADER_REPLICAS, FOLLOWER_REPLICAS]);
        for topic in topics {
            self.alter_configs(ConfigResourceType::Topic, topic, &replicas, false)
                .await?;
        }
        Ok(())
    }

    /// Which of these topics have throttled replicas.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let topics = admin.list_topics(false).await?;
    /// for topic in admin.throttled_topics(&topics).await? {
    ///     println!("{topic} is throttled");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn throttled_topics(&self, topics: &[String]) -> Result<Vec<String>, ClientError> {
        let keys = [LEADER_REPLICAS, FOLLOWER_REPLICAS];
        let described = self.describe_topic_configs(topics, &keys).await?;
        let throttled = described.into_iter().filter(|(_, configs)| {
            let mut values = configs.iter().filter_map(|it| it.value.as_ref());
            values.any(|it| !it.is_empty())
        });
        Ok(throttled.map(|(topic, _)| topic).collect())
    }
}

fn deleted(keys: &[&str]) -> BTreeMap<String, ConfigOperation> {
    let deleted = |key: &&str| ((*key).to_owned(), ConfigOperation::Delete);
    keys.iter().map(deleted).collect()
}

/// The source and target brokers of a partition's move.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Move {
    sources: BTreeSet<i32>,
    destinations: BTreeSet<i32>,
}

/// Every move in progress or requested.
fn moves(
    ongoing: &BTreeMap<Partition, OngoingPartitionReassignment>,
    current: &BTreeMap<Partition, Vec<i32>>,
    proposed: &BTreeMap<Partition, Vec<i32>>,
) -> BTreeMap<Partition, Move> {
    let mut moves = BTreeMap::new();
    for (partition, reassignment) in ongoing {
        let destinations: BTreeSet<i32> = reassignment.adding_replicas.iter().copied().collect();
        let all: BTreeSet<i32> = reassignment.replicas.iter().copied().collect();
        let sources = &all - &destinations;
        moves.insert(
            partition.clone(),
            Move {
                sources,
                destinations,
            },
        );
    }
    for (partition, replicas) in proposed {
        let ongoing: &mut Move = moves.entry(partition.clone()).or_insert_with(|| Move {
            sources: current
                .get(partition)
                .into_iter()
                .flatten()
                .copied()
                .collect(),
            destinations: BTreeSet::new(),
        });
        let wanted: BTreeSet<i32> = replicas.iter().copied().collect();
        ongoing.destinations = &wanted - &ongoing.sources;
    }
    moves
}

/// The throttled replicas by topic: `0:1,0:2`, partition and broker.
fn throttled(
    moves: &BTreeMap<Partition, Move>,
    brokers: impl Fn(&Move) -> &BTreeSet<i32>,
) -> BTreeMap<String, String> {
    let mut by_topic: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ((topic, partition), it) in moves {
        let replicas = by_topic.entry(topic.clone()).or_default();
        replicas.extend(
            brokers(it)
                .iter()
                .map(|broker| format!("{partition}:{broker}")),
        );
    }
    let joined = |replicas: BTreeSet<String>| replicas.into_iter().collect::<Vec<_>>().join(",");
    by_topic
        .into_iter()
        .map(|(topic, replicas)| (topic, joined(replicas)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_throttled_as_leaders_and_new_replicas_as_followers() {
        let key = |partition| ("t".to_owned(), partition);
        let current = BTreeMap::from([(key(0), vec![1, 2]), (key(1), vec![2])]);
        let proposed = BTreeMap::from([(key(0), vec![2, 3]), (key(1), vec![2])]);
        let ongoing = BTreeMap::from([(
            key(7),
            OngoingPartitionReassignment {
                partition_index: 7,
                replicas: vec![4, 5, 6],
                adding_replicas: vec![6],
                ..Default::default()
            },
        )]);
        let moves = moves(&ongoing, &current, &proposed);
        assert_eq!(
            throttled(&moves, |it| &it.sources)["t"],
            "0:1,0:2,1:2,7:4,7:5"
        );
        assert_eq!(throttled(&moves, |it| &it.destinations)["t"], "0:3,7:6");
    }
}
