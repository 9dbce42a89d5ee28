use ottla_protocol::metadata_records::*;
use ottla_types::{LeaderEpoch, Offset, Timestamp, Uuid};

use super::*;
use crate::{ConfigResourceType, LocalReplica, MetadataVersion};

const TOPIC: Uuid = Uuid::from_u128(7);
const DIRECTORY: Uuid = Uuid::from_u128(100);

fn at(last_offset: i64) -> Provenance {
    Provenance {
        last_contained_offset: Offset(last_offset),
        last_contained_epoch: LeaderEpoch(1),
        last_contained_log_time: Timestamp(100),
    }
}

fn features() -> MetadataRecord {
    MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: "metadata.version".into(),
        feature_level: 30,
        ..Default::default()
    })
}

fn broker(id: i32, epoch: i64) -> MetadataRecord {
    MetadataRecord::RegisterBroker(RegisterBrokerRecord {
        broker_id: id,
        broker_epoch: epoch,
        incarnation_id: Uuid::from_u128(50),
        end_points: vec![register_broker_record::BrokerEndpoint {
            name: "PLAINTEXT".into(),
            host: "localhost".into(),
            port: 9092,
            ..Default::default()
        }],
        features: vec![register_broker_record::BrokerFeature {
            name: "metadata.version".into(),
            min_supported_version: 7,
            max_supported_version: 30,
            ..Default::default()
        }],
        rack: Some("rack1".into()),
        fenced: true,
        log_dirs: vec![DIRECTORY],
        cordoned_log_dirs: Some(vec![]),
        ..Default::default()
    })
}

fn topic(name: &'static str, id: Uuid) -> MetadataRecord {
    MetadataRecord::Topic(TopicRecord {
        name: name.into(),
        topic_id: id,
        ..Default::default()
    })
}

fn partition(id: Uuid, index: i32, replicas: &[i32]) -> MetadataRecord {
    MetadataRecord::Partition(PartitionRecord {
        partition_id: index,
        topic_id: id,
        replicas: replicas.to_vec(),
        isr: replicas.to_vec(),
        leader: replicas[0],
        leader_epoch: 0,
        partition_epoch: 0,
        directories: vec![DIRECTORY; replicas.len()],
        ..Default::default()
    })
}

fn config(
    kind: ConfigResourceType,
    resource: &'static str,
    name: &'static str,
    value: Option<&'static str>,
) -> MetadataRecord {
    MetadataRecord::Config(ConfigRecord {
        resource_type: kind.code(),
        resource_name: resource.into(),
        name: name.into(),
        value: value.map(Into::into),
        ..Default::default()
    })
}

fn topic_config(name: &'static str, value: Option<&'static str>) -> MetadataRecord {
    config(ConfigResourceType::Topic, "orders", name, value)
}

fn apply(image: &MetadataImage, records: &[MetadataRecord]) -> (MetadataImage, MetadataDelta) {
    let offset = image.provenance.last_contained_offset.value() + records.len() as i64;
    image.apply(records, at(offset)).unwrap()
}

fn base() -> MetadataImage {
    apply(
        &MetadataImage::empty(),
        &[
            features(),
            broker(1, 5),
            topic("orders", TOPIC),
            topic_config("retention.ms", Some("1000")),
            partition(TOPIC, 0, &[1]),
            partition(TOPIC, 1, &[1, 2]),
        ],
    )
    .0
}

#[test]
fn topics_and_brokers_can_be_looked_up() {
    let image = base();
    assert_eq!(image.provenance, at(5));
    assert_eq!(image.metadata_version(), MetadataVersion::DEFAULT);
    let topic = image.topics.by_name("orders").unwrap();
    assert_eq!((topic.id, topic.partition_count()), (TOPIC, 2));
    assert_eq!(image.topics.by_id(TOPIC), Some(topic));
    assert_eq!(image.topics.by_name("nothing"), None);
    let partition = image.topics.partition("orders", PartitionIndex(1)).unwrap();
    assert_eq!(partition.replicas[..], [BrokerId(1), BrokerId(2)]);
    assert_eq!(image.topics.partition("orders", PartitionIndex(2)), None);
    let broker = image.cluster.broker(BrokerId(1)).unwrap();
    assert_eq!(
        broker.listener("PLAINTEXT").map(|endpoint| endpoint.port),
        Some(9092)
    );
    assert_eq!(image.cluster.unfenced_brokers().count(), 0);
    let resource = ConfigResource::topic("orders");
    assert_eq!(
        image
            .configs
            .value(&resource, "retention.ms")
            .map(|value| &**value),
        Some("1000")
    );
}

#[test]
fn an_image_is_immutable() {
    let before = base();
    let copy = before.clone();
    let (after, delta) = apply(
        &before,
        &[
            MetadataRecord::PartitionChange(PartitionChangeRecord {
                topic_id: TOPIC,
                partition_id: 1,
                isr: Some(vec![1]),
                ..Default::default()
            }),
            topic_config("retention.ms", None),
            MetadataRecord::UnfenceBroker(UnfenceBrokerRecord {
                id: 1,
                epoch: 5,
                ..Default::default()
            }),
        ],
    );
    assert_eq!(before, copy);
    assert_eq!(delta.before, before);
    assert_eq!(delta.after, after);
    assert_eq!(
        after
            .topics
            .partition("orders", PartitionIndex(1))
            .unwrap()
            .isr[..],
        [BrokerId(1)]
    );
    assert!(after.configs.is_empty());
    assert!(after.cluster.is_broker_active(BrokerId(1)));

    assert_eq!(
        delta.topics.changed[&TOPIC]
            .iter()
            .copied()
            .collect::<Vec<_>>(),
        [PartitionIndex(1)]
    );
    assert!(delta.topics.created.is_empty() && delta.topics.deleted.is_empty());
    assert_eq!(
        delta.configs.iter().cloned().collect::<Vec<_>>(),
        [ConfigResource::topic("orders")]
    );
    assert_eq!(
        delta.brokers.iter().copied().collect::<Vec<_>>(),
        [BrokerId(1)]
    );
    assert!(!delta.features && !delta.producer_ids);

    let mut between = MetadataDelta::between(before, after);
    assert_eq!(between.topics, delta.topics);
    between.topics = delta.topics.clone();
    assert_eq!(between, delta);
}

#[test]
fn the_delta_lists_the_local_changes_of_a_broker() {
    let before = base();
    let (_, created) = MetadataImage::empty()
        .apply(&base().to_records(), at(9))
        .unwrap();
    let changes = created.local_changes(BrokerId(1));
    assert_eq!(changes.leaders.len(), 2);
    assert!(changes.deleted.is_empty() && changes.followers.is_empty());
    let changes = created.local_changes(BrokerId(2));
    assert_eq!(changes.followers.len(), 1);
    assert!(created.local_changes(BrokerId(3)).is_empty());

    let moved = PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id: 1,
        replicas: Some(vec![1, 3]),
        directories: Some(vec![DIRECTORY; 2]),
        isr: Some(vec![1]),
        ..Default::default()
    };
    let (after, delta) = apply(&before, &[MetadataRecord::PartitionChange(moved)]);
    let gone = delta.local_changes(BrokerId(2)).deleted;
    assert_eq!(gone.len(), 1);
    let LocalReplica {
        topic,
        partition,
        registration,
        ..
    } = &gone[0];
    assert_eq!((&**topic, partition), ("orders", &PartitionIndex(1)));
    assert_eq!(registration.replicas[..], [BrokerId(1), BrokerId(2)]);
    assert_eq!(delta.local_changes(BrokerId(3)).followers.len(), 1);
    assert_eq!(
        delta.local_changes(BrokerId(1)).leaders.len(),
        1,
        "the partition epoch was raised"
    );

    let remove = RemoveTopicRecord {
        topic_id: TOPIC,
        ..Default::default()
    };
    let (_, delta) = apply(&after, &[MetadataRecord::RemoveTopic(remove)]);
    assert_eq!(delta.local_changes(BrokerId(1)).deleted.len(), 2);
    assert_eq!(delta.local_changes(BrokerId(2)).deleted.len(), 0);
}

#[test]
fn a_deleted_topic_loses_its_settings() {
    let remove = MetadataRecord::RemoveTopic(RemoveTopicRecord {
        topic_id: TOPIC,
        ..Default::default()
    });
    let (image, delta) = apply(&base(), std::slice::from_ref(&remove));
    assert!(image.topics.is_empty() && image.configs.is_empty());
    assert_eq!(delta.topics.deleted[&TOPIC].partition_count(), 2);
    assert_eq!(delta.configs.len(), 1);

    // Deleted and created again with another id, in one batch.
    let again = Uuid::from_u128(8);
    let (image, delta) = apply(
        &base(),
        &[remove, topic("orders", again), partition(again, 0, &[1])],
    );
    assert_eq!(image.topics.by_name("orders").unwrap().id, again);
    assert_eq!(image.topics.by_id(TOPIC), None);
    assert_eq!(image.topics.len(), 1);
    assert_eq!(delta.topics.created.len(), 1);
    assert_eq!(delta.topics.deleted.len(), 1);

    // Created and deleted in one batch, which leaves no trace.
    let remove_again = MetadataRecord::RemoveTopic(RemoveTopicRecord {
        topic_id: again,
        ..Default::default()
    });
    let (image, delta) = apply(
        &base(),
        &[
            topic("brief", again),
            partition(again, 0, &[1]),
            remove_again,
        ],
    );
    assert_eq!(image.topics, base().topics);
    assert!(delta.topics.is_empty());
}

#[test]
fn a_snapshot_round_trips_in_the_order_of_kafka() {
    let records = vec![
        features(),
        MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: "group.version".into(),
            feature_level: 1,
            ..Default::default()
        }),
        broker(1, 5),
        broker(2, 6),
        MetadataRecord::RegisterController(RegisterControllerRecord {
            controller_id: 3,
            ..Default::default()
        }),
        topic("orders", TOPIC),
        partition(TOPIC, 0, &[1]),
        partition(TOPIC, 1, &[2, 1]),
        topic_config("an.unknown.setting", Some("x")),
        topic_config("retention.ms", Some("1000")),
        config(
            ConfigResourceType::Broker,
            "",
            "log.retention.ms",
            Some("5"),
        ),
        MetadataRecord::ClientQuota(ClientQuotaRecord {
            entity: vec![client_quota_record::EntityData {
                entity_type: "user".into(),
                ..Default::default()
            }],
            key: "producer_byte_rate".into(),
            value: 10.5,
            ..Default::default()
        }),
        MetadataRecord::ProducerIds(ProducerIdsRecord {
            broker_id: -1,
            broker_epoch: -1,
            next_producer_id: 3000,
            ..Default::default()
        }),
        MetadataRecord::AccessControlEntry(AccessControlEntryRecord {
            id: Uuid::from_u128(1),
            principal: "User:a".into(),
            ..Default::default()
        }),
        MetadataRecord::UserScramCredential(UserScramCredentialRecord {
            name: "alice".into(),
            mechanism: 1,
            ..Default::default()
        }),
        MetadataRecord::DelegationToken(DelegationTokenRecord {
            token_id: "token".into(),
            ..Default::default()
        }),
    ];
    let (image, _) = MetadataImage::empty().apply(&records, at(30)).unwrap();
    assert_eq!(image.to_records(), records);
    let (again, _) = MetadataImage::empty()
        .apply(&image.to_records(), at(30))
        .unwrap();
    assert_eq!(again, image);
}

#[test]
fn older_levels_omit_unsupported_fields() {
    let mut records = base().to_records();
    records[0] = MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: "metadata.version".into(),
        feature_level: 15,
        ..Default::default()
    });
    let (image, _) = MetadataImage::empty().apply(&records, at(30)).unwrap();
    let version = image.metadata_version();
    for record in image.to_records() {
        let bytes = record
            .encode_version(version.record_version(&record))
            .unwrap();
        let (read, written_version) = MetadataRecord::decode_versioned(&bytes).unwrap();
        match (read, written_version) {
            (MetadataRecord::RegisterBroker(record), 2) => assert!(record.log_dirs.is_empty()),
            (MetadataRecord::Partition(record), 0) => assert!(record.directories.is_empty()),
            (_, 0) => {}
            (record, version) => panic!("{} in version {version}", record.name()),
        }
    }
}

#[test]
fn clear_elr_clears_one_topic_or_all() {
    let with_elr = |id, index| {
        MetadataRecord::PartitionChange(PartitionChangeRecord {
            topic_id: id,
            partition_id: index,
            eligible_leader_replicas: Some(vec![2]),
            ..Default::default()
        })
    };
    let other = Uuid::from_u128(8);
    let (image, _) = apply(
        &base(),
        &[
            topic("other", other),
            partition(other, 0, &[1]),
            with_elr(TOPIC, 1),
            with_elr(other, 0),
        ],
    );
    let clear = |name: &'static str| {
        MetadataRecord::ClearElr(ClearElrRecord {
            topic_name: name.into(),
            ..Default::default()
        })
    };
    let elr_count = |image: &MetadataImage| -> usize {
        image
            .topics
            .iter()
            .flat_map(|topic| topic.partitions())
            .map(|(_, partition)| partition.elr().len())
            .sum()
    };
    assert_eq!(elr_count(&image), 2);
    let (one, delta) = apply(&image, &[clear("orders")]);
    assert_eq!(elr_count(&one), 1);
    assert_eq!(delta.topics.changed.len(), 1);
    assert_eq!(elr_count(&apply(&image, &[clear("")]).0), 0);
    assert_eq!(
        image.apply(&[clear("nothing")], at(99)).unwrap_err(),
        ReplayError::UnknownTopicName("nothing".to_owned())
    );
}

#[test]
fn records_without_their_object_are_errors() {
    let error = |record: MetadataRecord| base().apply(&[record], at(10)).unwrap_err();
    let unknown = Uuid::from_u128(99);
    assert_eq!(
        error(partition(unknown, 0, &[1])),
        ReplayError::UnknownTopic(unknown)
    );
    assert_eq!(
        error(MetadataRecord::PartitionChange(PartitionChangeRecord {
            topic_id: TOPIC,
            partition_id: 5,
            ..Default::default()
        })),
        ReplayError::UnknownPartition {
            topic_id: TOPIC,
            partition: 5
        }
    );
    assert_eq!(
        error(MetadataRecord::FenceBroker(FenceBrokerRecord {
            id: 1,
            epoch: 4,
            ..Default::default()
        })),
        ReplayError::BrokerEpochMismatch {
            broker: BrokerId(1),
            registered: BrokerEpoch(5),
            given: BrokerEpoch(4),
        }
    );
    assert_eq!(
        error(MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: "metadata.version".into(),
            feature_level: 34,
            ..Default::default()
        })),
        ReplayError::UnknownMetadataVersion(34)
    );
    assert_eq!(
        error(MetadataRecord::BeginTransaction(
            BeginTransactionRecord::default()
        )),
        ReplayError::TransactionMarker
    );
    assert!(matches!(
        error(MetadataRecord::BrokerRegistrationChange(
            BrokerRegistrationChangeRecord {
                broker_id: 1,
                broker_epoch: 5,
                fenced: 2,
                ..Default::default()
            }
        )),
        ReplayError::InvalidBrokerChange {
            field: "fenced",
            value: 2,
            ..
        }
    ));
}
