//! The partitions with followers that this broker leads, by the brokers that have their replicas, so
//! that a change of a broker's registration is passed on by looking at these partitions only instead
//! of all partitions of this broker. A leader without followers proposes no ISR, and needs nobody's
//! registration.
//!
//! Contains the leaderships of the metadata, whether or not the log could be opened. Does not
//! contain the replicas of each partition, which are in the metadata: after a start that repeats
//! the metadata, it may list partitions for brokers that no longer have them. Changed and read
//! under the lock of metadata changes.
//!
//! Kafka's leaders look a follower's broker up when they need it (`Partition.isBrokerIsrEligible`).
//! The model is the controller's `BrokersToIsrs`.

use std::collections::BTreeSet;

use ottla_metadata::{LocalReplica, LocalReplicaChanges, MetadataImage};
use ottla_sync::collections::HashMap;
use ottla_types::{BrokerId, PartitionIndex, TopicId};

/// A partition with followers that this broker leads.
pub(super) type Led = (TopicId, PartitionIndex);

#[derive(Debug, Default)]
pub(super) struct Leaderships {
    /// The partitions by each broker with a replica, the leader among them. Has no brokers without
    /// partitions.
    by_broker: HashMap<BrokerId, BTreeSet<Led>>,
}

impl Leaderships {
    /// `before` is the image before the changes.
    pub(super) fn on_changed(&mut self, before: &MetadataImage, changes: &LocalReplicaChanges) {
        for replica in &changes.deleted {
            self.remove(led(replica), &replica.registration.replicas);
        }
        for replica in changes.followers.iter().chain(&changes.leaders) {
            let topic = before.topics.by_id(replica.topic_id);
            if let Some(known) = topic.and_then(|topic| topic.partition(replica.partition)) {
                self.remove(led(replica), &known.replicas);
            }
        }
        let with_followers = |replica: &&LocalReplica| replica.registration.replicas.len() > 1;
        for replica in changes.leaders.iter().filter(with_followers) {
            for &broker in replica.registration.replicas.iter() {
                let of_broker = self.by_broker.entry(broker).or_default();
                of_broker.insert(led(replica));
            }
        }
    }

    /// The partitions with a replica on one of the brokers.
    pub(super) fn with_replicas_on<'a>(
        &self,
        brokers: impl IntoIterator<Item = &'a BrokerId>,
    ) -> BTreeSet<Led> {
        let of_brokers = brokers.into_iter().filter_map(|it| self.by_broker.get(it));
        of_brokers.flatten().copied().collect()
    }

    fn remove(&mut self, led: Led, replicas: &[BrokerId]) {
        for broker in replicas {
            let Some(of_broker) = self.by_broker.get_mut(broker) else {
                continue;
            };
            of_broker.remove(&led);
            if of_broker.is_empty() {
                self.by_broker.remove(broker);
            }
        }
    }
}

fn led(replica: &LocalReplica) -> Led {
    (replica.topic_id, replica.partition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_metadata::Provenance;
    use ottla_protocol::metadata_records::{
        MetadataRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord,
    };

    const THIS: BrokerId = BrokerId(1);
    const TOPIC: TopicId = TopicId::from_u128(7);

    fn partition(partition_id: i32, replicas: &[i32]) -> MetadataRecord {
        MetadataRecord::Partition(PartitionRecord {
            topic_id: TOPIC,
            partition_id,
            leader: replicas[0],
            isr: replicas.to_vec(),
            replicas: replicas.to_vec(),
            directories: vec![TopicId::from_u128(9); replicas.len()],
            ..Default::default()
        })
    }

    fn change(partition_id: i32) -> PartitionChangeRecord {
        PartitionChangeRecord {
            topic_id: TOPIC,
            partition_id,
            ..Default::default()
        }
    }

    /// Leaderships that follow the metadata.
    #[derive(Default)]
    struct Followed {
        image: MetadataImage,
        leaderships: Leaderships,
    }

    impl Followed {
        fn apply(&mut self, records: &[MetadataRecord]) {
            let applied = self.image.apply(records, Provenance::EMPTY);
            let (image, delta) = applied.expect("good records");
            let changes = delta.local_changes(THIS);
            self.leaderships.on_changed(&delta.before, &changes);
            self.image = image;
        }

        fn on(&self, brokers: &[i32]) -> Vec<i32> {
            let brokers: Vec<BrokerId> = brokers.iter().copied().map(BrokerId).collect();
            let found = self.leaderships.with_replicas_on(&brokers);
            found.into_iter().map(|(_, index)| index.0).collect()
        }
    }

    #[test]
    fn led_partitions_are_found_by_the_brokers_of_their_replicas() {
        let mut followed = Followed::default();
        followed.apply(&[
            MetadataRecord::Topic(TopicRecord {
                name: "orders".into(),
                topic_id: TOPIC,
                ..Default::default()
            }),
            partition(0, &[1, 2]),
            partition(1, &[1, 3]),
            partition(2, &[2, 1]),
            partition(3, &[1]),
        ]);
        assert_eq!(followed.on(&[1]), [0, 1], "the last has no followers");
        assert_eq!(followed.on(&[2]), [0]);
        assert_eq!(followed.on(&[2, 3]), [0, 1]);
        assert_eq!(followed.on(&[1, 2, 3]), [0, 1], "each once");
        assert_eq!(followed.on(&[4]), Vec::<i32>::new());

        followed.apply(&[
            MetadataRecord::PartitionChange(PartitionChangeRecord {
                replicas: Some(vec![1, 4]),
                isr: Some(vec![1]),
                directories: Some(vec![TopicId::from_u128(9); 2]),
                ..change(0)
            }),
            MetadataRecord::PartitionChange(PartitionChangeRecord {
                leader: 3,
                ..change(1)
            }),
            MetadataRecord::PartitionChange(PartitionChangeRecord {
                leader: 1,
                ..change(2)
            }),
        ]);
        assert_eq!(followed.on(&[2]), [2], "it is led here now");
        assert_eq!(followed.on(&[3]), Vec::<i32>::new(), "it is led elsewhere");
        assert_eq!(followed.on(&[4]), [0], "it has other replicas");

        followed.apply(&[MetadataRecord::RemoveTopic(RemoveTopicRecord {
            topic_id: TOPIC,
            ..Default::default()
        })]);
        assert_eq!(followed.on(&[1, 2, 3, 4]), Vec::<i32>::new());
        assert!(followed.leaderships.by_broker.is_empty());
    }
}
