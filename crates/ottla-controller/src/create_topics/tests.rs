use ottla_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopicConfig,
};
use ottla_protocol::metadata_records::PartitionRecord;

use super::*;
use crate::test_support::{Cluster, directory};

fn topic(name: &str) -> CreatableTopic {
    CreatableTopic {
        name: ByteString::from(name),
        num_partitions: -1,
        replication_factor: -1,
        ..Default::default()
    }
}

fn config(name: &'static str, value: Option<&'static str>) -> CreatableTopicConfig {
    CreatableTopicConfig {
        name: name.into(),
        value: value.map(Into::into),
        ..Default::default()
    }
}

fn assignment(partition_index: i32, broker_ids: &[i32]) -> CreatableReplicaAssignment {
    CreatableReplicaAssignment {
        partition_index,
        broker_ids: broker_ids.to_vec(),
        ..Default::default()
    }
}

fn request(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    CreateTopicsRequest {
        topics,
        ..Default::default()
    }
}

fn create(cluster: &mut Cluster, topics: Vec<CreatableTopic>) -> Decision<CreateTopicsResponse> {
    create_topics(&mut cluster.context(), &request(topics))
}

/// The error code and message of the only topic.
fn error_of(cluster: &mut Cluster, topic: CreatableTopic) -> (ErrorCode, String) {
    let decision = create(cluster, vec![topic]);
    assert_eq!(decision.records, []);
    let result = &decision.response.topics[0];
    let message = result
        .error_message
        .as_ref()
        .map(|message| message.to_string());
    (
        ErrorCode::from_code(result.error_code),
        message.unwrap_or_default(),
    )
}

#[test]
fn a_topic_is_written_with_its_settings_and_partitions() {
    let mut cluster = Cluster::single_node();
    let decision = create(
        &mut cluster,
        vec![CreatableTopic {
            num_partitions: 2,
            replication_factor: 1,
            configs: vec![config("retention.ms", Some("1000"))],
            ..topic("orders")
        }],
    );
    let result = &decision.response.topics[0];
    assert_eq!((result.error_code, &result.error_message), (0, &None));
    assert_eq!((result.num_partitions, result.replication_factor), (2, 1));
    let topic_id = result.topic_id;
    let partition = |partition_id| {
        MetadataRecord::Partition(PartitionRecord {
            partition_id,
            topic_id,
            replicas: vec![1],
            isr: vec![1],
            leader: 1,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![directory(1)],
            ..Default::default()
        })
    };
    assert_eq!(
        decision.records,
        [
            MetadataRecord::Topic(TopicRecord {
                name: "orders".into(),
                topic_id,
                ..Default::default()
            }),
            MetadataRecord::Config(ConfigRecord {
                resource_type: 2,
                resource_name: "orders".into(),
                name: "retention.ms".into(),
                value: Some("1000".into()),
                ..Default::default()
            }),
            partition(0),
            partition(1),
        ]
    );
    let configs = result.configs.as_ref().unwrap();
    let find = |name: &str| configs.iter().find(|config| &*config.name == name).unwrap();
    assert_eq!(find("retention.ms").value.as_deref(), Some("1000"));
    assert_eq!(find("retention.ms").config_source, 1);
    assert_eq!(find("segment.bytes").value.as_deref(), Some("1073741824"));
    assert_eq!(find("segment.bytes").config_source, 5);
    assert!(configs.is_sorted_by(|left, right| left.name < right.name));
}

#[test]
fn defaults_come_from_the_configuration() {
    let mut cluster = Cluster::with_brokers(&[1, 2])
        .with_setting("num.partitions", "3")
        .with_setting("default.replication.factor", "2");
    let decision = create(&mut cluster, vec![topic("orders")]);
    let result = &decision.response.topics[0];
    assert_eq!((result.num_partitions, result.replication_factor), (3, 2));
    assert_eq!(decision.records.len(), 4);
}

#[test]
fn validate_only_writes_no_records_and_has_the_same_response() {
    let mut cluster = Cluster::single_node();
    let decision = create_topics(
        &mut cluster.context(),
        &CreateTopicsRequest {
            validate_only: true,
            ..request(vec![topic("orders")])
        },
    );
    assert_eq!(decision.records, []);
    assert_eq!(decision.response.topics[0].error_code, 0);
    assert_eq!(decision.response.topics[0].num_partitions, 1);
}

#[test]
fn invalid_names_are_refused() {
    let mut cluster = Cluster::single_node();
    let records = create(&mut cluster, vec![topic("a.b"), topic("plain")]).records;
    cluster.apply(&records);
    assert_eq!(
        error_of(&mut cluster, topic("plain")),
        (
            ErrorCode::TopicAlreadyExists,
            "Topic 'plain' already exists.".to_owned()
        )
    );
    assert_eq!(
        error_of(&mut cluster, topic("a_b")),
        (
            ErrorCode::InvalidTopicException,
            "Topic 'a_b' collides with existing topic: a.b".to_owned()
        )
    );
    assert_eq!(
        error_of(&mut cluster, topic("a b")).0,
        ErrorCode::InvalidTopicException
    );
    assert_eq!(
        error_of(&mut cluster, topic("__cluster_metadata")),
        (
            ErrorCode::InvalidRequest,
            "Creation of internal topic __cluster_metadata is prohibited.".to_owned()
        )
    );
    // Two new names that collide: the first one succeeds.
    let results = create(&mut cluster, vec![topic("x.y"), topic("x_y")])
        .response
        .topics;
    assert_eq!(results[0].error_code, 0);
    assert_eq!(
        results[1].error_code,
        ErrorCode::InvalidTopicException.code()
    );
}

#[test]
fn a_duplicate_name_is_not_created() {
    let mut cluster = Cluster::single_node();
    let decision = create(
        &mut cluster,
        vec![topic("twice"), topic("once"), topic("twice")],
    );
    assert_eq!(decision.records.len(), 2);
    let results: Vec<_> = decision
        .response
        .topics
        .iter()
        .map(|result| (&*result.name, ErrorCode::from_code(result.error_code)))
        .collect();
    assert_eq!(
        results,
        [
            ("once", ErrorCode::None),
            ("twice", ErrorCode::InvalidRequest)
        ]
    );
}

#[test]
fn invalid_numbers_are_refused() {
    let mut cluster = Cluster::single_node();
    let with = |num_partitions, replication_factor| CreatableTopic {
        num_partitions,
        replication_factor,
        ..topic("orders")
    };
    assert_eq!(
        error_of(&mut cluster, with(0, 1)),
        (
            ErrorCode::InvalidPartitions,
            "Number of partitions was set to an invalid non-positive value.".to_owned()
        )
    );
    assert_eq!(
        error_of(&mut cluster, with(1, 0)),
        (
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.".to_owned()
        )
    );
    assert_eq!(
        error_of(&mut cluster, with(1, 3)),
        (
            ErrorCode::InvalidReplicationFactor,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be \
             reached because only 1 broker(s) are registered or some brokers have all their log \
             directories cordoned."
                .to_owned()
        )
    );
    assert_eq!(
        error_of(&mut cluster, with(10_001, 1)),
        (
            ErrorCode::PolicyViolation,
            "Excessively large number of partitions per request.".to_owned()
        )
    );
}

#[test]
fn invalid_settings_are_refused() {
    let mut cluster = Cluster::single_node();
    let with = |name, value| CreatableTopic {
        configs: vec![config(name, value)],
        ..topic("orders")
    };
    assert_eq!(
        error_of(&mut cluster, with("no.such.key", Some("1"))),
        (
            ErrorCode::InvalidConfig,
            "Unknown topic config name: no.such.key".to_owned()
        )
    );
    assert_eq!(
        error_of(&mut cluster, with("retention.ms", None)),
        (
            ErrorCode::InvalidConfig,
            "Null value not supported for topic configs: retention.ms".to_owned()
        )
    );
    let (code, message) = error_of(&mut cluster, with("retention.ms", Some("soon")));
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(
        message.starts_with("Invalid value soon for configuration retention.ms"),
        "{message}"
    );
}

#[test]
fn manual_assignments() {
    let mut cluster = Cluster::with_brokers(&[1, 2, 3]).fence(3);
    let with = |assignments| CreatableTopic {
        assignments,
        ..topic("orders")
    };
    let decision = create(
        &mut cluster,
        vec![with(vec![assignment(1, &[2, 3]), assignment(0, &[3, 1])])],
    );
    let partitions: Vec<_> = decision
        .records
        .iter()
        .filter_map(|record| match record {
            MetadataRecord::Partition(partition) => Some((
                partition.partition_id,
                partition.replicas.clone(),
                partition.isr.clone(),
                partition.leader,
            )),
            _ => None,
        })
        .collect();
    assert_eq!(
        partitions,
        [(0, vec![3, 1], vec![1], 1), (1, vec![2, 3], vec![2], 2)]
    );

    let mut message = |topic| error_of(&mut cluster, topic);
    assert_eq!(
        message(CreatableTopic {
            replication_factor: 1,
            ..with(vec![assignment(0, &[1])])
        }),
        (
            ErrorCode::InvalidRequest,
            "A manual partition assignment was specified, but replication factor was not set to -1.".to_owned()
        )
    );
    for (assignments, expected) in [
        (
            vec![assignment(0, &[1]), assignment(0, &[1])],
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            vec![assignment(1, &[1])],
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            vec![assignment(0, &[])],
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            vec![assignment(0, &[9])],
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            vec![assignment(0, &[1, 1])],
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            vec![assignment(0, &[1]), assignment(1, &[1, 2])],
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent \
             with previous partitions, which have 1 replica(s).",
        ),
        (
            vec![assignment(0, &[3])],
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in \
             controlled shutdown.",
        ),
    ] {
        assert_eq!(
            message(with(assignments)),
            (ErrorCode::InvalidReplicaAssignment, expected.to_owned())
        );
    }
}
