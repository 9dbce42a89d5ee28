use ottla_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as IncrementalResource, AlterableConfig as IncrementalConfig,
};
use ottla_protocol::metadata_records::{PartitionRecord, TopicRecord};
use ottla_types::{PartitionIndex, Uuid};

use super::*;
use crate::test_support::Cluster;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

fn cluster() -> Cluster {
    let mut cluster = Cluster::single_node();
    cluster.apply(&[
        MetadataRecord::Topic(TopicRecord {
            name: "orders".into(),
            topic_id: Uuid::from_u128(1001),
            ..Default::default()
        }),
        record(TOPIC, "orders", "retention.ms", Some("1000")),
        record(TOPIC, "orders", "cleanup.policy", Some("delete")),
    ]);
    cluster
}

fn record(
    resource_type: i8,
    resource: &'static str,
    name: &'static str,
    value: Option<&'static str>,
) -> MetadataRecord {
    MetadataRecord::Config(ConfigRecord {
        resource_type,
        resource_name: resource.into(),
        name: name.into(),
        value: value.map(Into::into),
        ..Default::default()
    })
}

type Change = (&'static str, i8, Option<&'static str>);

fn incremental(
    cluster: &mut Cluster,
    resource_type: i8,
    name: &'static str,
    changes: &[Change],
) -> Decision<IncrementalAlterConfigsResponse> {
    let request = one_resource(resource_type, name, changes);
    judge_incremental_alter_configs(&cluster.context(), &request)
}

fn one_resource(
    resource_type: i8,
    name: &'static str,
    changes: &[Change],
) -> IncrementalAlterConfigsRequest {
    let configs = changes.iter();
    IncrementalAlterConfigsRequest {
        resources: vec![IncrementalResource {
            resource_type,
            resource_name: name.into(),
            configs: configs
                .map(|&(name, config_operation, value)| IncrementalConfig {
                    name: name.into(),
                    config_operation,
                    value: value.map(Into::into),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The requests come from the broker itself, through its listener or through a remote controller.
#[test]
fn a_controller_accepts_settings_of_every_registered_broker() {
    let mut cluster = Cluster::with_brokers(&[1, 2]);
    let rate = "leader.replication.throttled.rate";
    let mut change = |broker| {
        let request = one_resource(BROKER, broker, &[(rate, SET, Some("1000"))]);
        let decision = incremental_alter_configs(&cluster.context(), &request);
        let code = decision.response.responses[0].error_code;
        (ErrorCode::from_code(code), decision.records)
    };
    for broker in ["1", "2"] {
        let stored = record(BROKER, broker, rate, Some("1000"));
        assert_eq!(change(broker), (ErrorCode::None, vec![stored]));
    }
    assert_eq!(change("7"), (ErrorCode::BrokerIdNotRegistered, vec![]));
    assert_eq!(change("x"), (ErrorCode::InvalidRequest, vec![]));
}

fn records(resource_type: i8, name: &'static str, changes: &[Change]) -> Vec<MetadataRecord> {
    let decision = incremental(&mut cluster(), resource_type, name, changes);
    let response = &decision.response.responses[0];
    assert_eq!((response.error_code, &response.error_message), (0, &None));
    decision.records
}

fn error(resource_type: i8, name: &'static str, changes: &[Change]) -> (ErrorCode, String) {
    let decision = incremental(&mut cluster(), resource_type, name, changes);
    assert_eq!(decision.records, []);
    let response = &decision.response.responses[0];
    assert_eq!(
        (response.resource_type, &*response.resource_name),
        (resource_type, name)
    );
    (
        ErrorCode::from_code(response.error_code),
        response
            .error_message
            .as_ref()
            .map(|message| message.to_string())
            .unwrap_or_default(),
    )
}

#[test]
fn the_operations_set_delete_append_and_subtract() {
    assert_eq!(
        records(
            TOPIC,
            "orders",
            &[
                ("retention.ms", SET, Some("5")),
                ("segment.ms", SET, Some("7"))
            ]
        ),
        [
            record(TOPIC, "orders", "retention.ms", Some("5")),
            record(TOPIC, "orders", "segment.ms", Some("7")),
        ]
    );
    assert_eq!(
        records(TOPIC, "orders", &[("retention.ms", DELETE, None)]),
        [record(TOPIC, "orders", "retention.ms", None)]
    );
    assert_eq!(
        records(
            TOPIC,
            "orders",
            &[("cleanup.policy", APPEND, Some("compact,delete"))]
        ),
        [record(
            TOPIC,
            "orders",
            "cleanup.policy",
            Some("delete,compact")
        )]
    );
    assert_eq!(
        records(
            TOPIC,
            "orders",
            &[("leader.replication.throttled.replicas", APPEND, Some("0:1"))]
        ),
        [record(
            TOPIC,
            "orders",
            "leader.replication.throttled.replicas",
            Some("0:1")
        )],
    );
    assert_eq!(
        records(
            TOPIC,
            "orders",
            &[("cleanup.policy", SUBTRACT, Some("delete,nothing"))]
        ),
        [record(TOPIC, "orders", "cleanup.policy", Some(""))]
    );
}

#[test]
fn unchanged_values_are_written_for_brokers_only() {
    assert_eq!(
        records(TOPIC, "orders", &[("retention.ms", SET, Some("1000"))]),
        []
    );
    assert_eq!(
        records(TOPIC, "orders", &[("segment.ms", DELETE, None)]),
        []
    );
    assert_eq!(
        records(BROKER, "1", &[("log.retention.ms", DELETE, None)]),
        [record(BROKER, "1", "log.retention.ms", None)]
    );
}

#[test]
fn every_resource_type_is_supported() {
    assert_eq!(
        records(BROKER, "", &[("log.retention.ms", SET, Some("9"))]),
        [record(BROKER, "", "log.retention.ms", Some("9"))]
    );
    assert_eq!(
        records(
            GROUP,
            "g",
            &[("consumer.session.timeout.ms", SET, Some("50000"))]
        ),
        [record(
            GROUP,
            "g",
            "consumer.session.timeout.ms",
            Some("50000")
        )]
    );
    assert_eq!(
        records(CLIENT_METRICS, "m", &[("interval.ms", SET, Some("1000"))]),
        [record(CLIENT_METRICS, "m", "interval.ms", Some("1000"))]
    );
}

#[test]
fn invalid_values_are_refused() {
    for (resource, name, changes, code, message) in [
        (
            TOPIC,
            "orders",
            ("no.such", SET, Some("1")),
            ErrorCode::InvalidConfig,
            "Unknown topic config name: no.such",
        ),
        (
            TOPIC,
            "nothing",
            ("retention.ms", SET, Some("1")),
            ErrorCode::UnknownTopicOrPartition,
            "The topic 'nothing' does not exist.",
        ),
        (
            TOPIC,
            "",
            ("retention.ms", SET, Some("1")),
            ErrorCode::InvalidRequest,
            "Default topic resources are not allowed.",
        ),
        (
            TOPIC,
            "orders",
            ("retention.ms", APPEND, Some("1")),
            ErrorCode::InvalidConfig,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            TOPIC,
            "orders",
            ("retention.ms", SET, None),
            ErrorCode::InvalidRequest,
            "Null value not supported for : retention.ms",
        ),
        (
            TOPIC,
            "orders",
            ("retention.ms", 9, Some("1")),
            ErrorCode::InvalidRequest,
            "Unknown operations type 9",
        ),
        (
            BROKER,
            "2",
            ("log.retention.ms", SET, Some("1")),
            ErrorCode::InvalidRequest,
            "Unexpected broker id, expected 1, but received 2",
        ),
        (
            BROKER,
            "x",
            ("log.retention.ms", SET, Some("1")),
            ErrorCode::InvalidRequest,
            "Node id must be an integer, but it is: x",
        ),
        (
            GROUP,
            "",
            ("consumer.session.timeout.ms", SET, Some("50000")),
            ErrorCode::InvalidRequest,
            "Default group resources are not allowed.",
        ),
        (
            GROUP,
            "g",
            ("no.such", SET, Some("1")),
            ErrorCode::InvalidConfig,
            "Unknown group config name: no.such",
        ),
        (
            GROUP,
            "g",
            ("consumer.session.timeout.ms", SET, Some("1")),
            ErrorCode::InvalidConfig,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            GROUP,
            "g",
            ("errors.deadletterqueue.topic.name", SET, Some("__dlq")),
            ErrorCode::InvalidConfig,
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
        (
            CLIENT_METRICS,
            "",
            ("interval.ms", SET, Some("1000")),
            ErrorCode::InvalidRequest,
            "Subscription name can't be empty",
        ),
        (
            CLIENT_METRICS,
            "m",
            ("interval.ms", SET, Some("1")),
            ErrorCode::InvalidRequest,
            "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            CLIENT_METRICS,
            "m",
            ("match", SET, Some("color=red")),
            ErrorCode::InvalidConfig,
            "Illegal client matching pattern: color=red",
        ),
        (
            CLIENT_METRICS,
            "m",
            ("match", SET, Some("client_id=(((")),
            ErrorCode::InvalidConfig,
            "Illegal client matching pattern: client_id=(((",
        ),
        (
            64,
            "x",
            ("a", SET, Some("1")),
            ErrorCode::InvalidRequest,
            "Unknown resource type 64",
        ),
        (
            8,
            "1",
            ("root", SET, Some("INFO")),
            ErrorCode::InvalidRequest,
            "Unknown resource type 8",
        ),
    ] {
        assert_eq!(
            error(resource, name, &[changes]),
            (code, message.to_owned())
        );
    }
    let (code, _) = error(BROKER, "1", &[("log.dirs", SET, Some("/elsewhere"))]);
    assert_eq!(
        code,
        ErrorCode::InvalidRequest,
        "a setting that cannot change while the broker runs"
    );
    assert_eq!(
        error(
            TOPIC,
            "orders",
            &[
                ("retention.ms", SET, Some("1")),
                ("retention.ms", SET, Some("2"))
            ]
        ),
        (
            ErrorCode::InvalidRequest,
            "Error due to duplicate config keys".to_owned()
        )
    );
}

#[test]
fn a_duplicate_resource_fails_alone() {
    let resource = |name: &'static str, value: &'static str| IncrementalResource {
        resource_type: GROUP,
        resource_name: name.into(),
        configs: vec![IncrementalConfig {
            name: "consumer.session.timeout.ms".into(),
            value: Some(value.into()),
            ..Default::default()
        }],
        ..Default::default()
    };
    let decision = incremental_alter_configs(
        &cluster().context(),
        &IncrementalAlterConfigsRequest {
            resources: vec![
                resource("a", "50000"),
                resource("b", "50000"),
                resource("a", "51000"),
            ],
            ..Default::default()
        },
    );
    assert_eq!(
        decision.records,
        [record(
            GROUP,
            "b",
            "consumer.session.timeout.ms",
            Some("50000")
        )]
    );
    let codes: Vec<_> = decision
        .response
        .responses
        .iter()
        .map(|response| response.error_code)
        .collect();
    let invalid = ErrorCode::InvalidRequest.code();
    assert_eq!(codes, [invalid, 0, invalid]);
}

#[test]
fn altering_replaces_all_settings() {
    let request = AlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: TOPIC,
            resource_name: "orders".into(),
            configs: vec![AlterableConfig {
                name: "segment.ms".into(),
                value: Some("7".into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let decision = alter_configs(&cluster().context(), &request);
    assert_eq!(
        decision.records,
        [
            record(TOPIC, "orders", "cleanup.policy", None),
            record(TOPIC, "orders", "retention.ms", None),
            record(TOPIC, "orders", "segment.ms", Some("7")),
        ]
    );
    let only_validated = AlterConfigsRequest {
        validate_only: true,
        ..request
    };
    let decision = alter_configs(&cluster().context(), &only_validated);
    assert_eq!(decision.records, []);
    assert_eq!(decision.response.responses[0].error_code, 0);
}

#[test]
fn with_elr_the_cluster_has_a_minimum_isr() {
    let mut cluster = cluster().with_feature("eligible.leader.replicas.version", 1);
    let mut decide = |resource, name, change| incremental(&mut cluster, resource, name, &[change]);
    let clear = |topic: &'static str| {
        MetadataRecord::ClearElr(ClearElrRecord {
            topic_name: topic.into(),
            ..Default::default()
        })
    };
    let set = ("min.insync.replicas", SET, Some("2"));
    assert_eq!(
        decide(TOPIC, "orders", set).records,
        [
            record(TOPIC, "orders", "min.insync.replicas", Some("2")),
            clear("orders")
        ]
    );
    assert_eq!(
        decide(BROKER, "", set).records,
        [
            record(BROKER, "", "min.insync.replicas", Some("2")),
            clear("")
        ]
    );
    assert_eq!(decide(BROKER, "1", set).records, []);
    assert_eq!(
        decide(BROKER, "", ("min.insync.replicas", DELETE, None)).records,
        []
    );
}

/// With an empty ISR nothing is committed, so eligible leaders stay eligible.
#[test]
fn a_changed_minimum_isr_keeps_the_elr_of_a_partition_without_isr() {
    let mut cluster = cluster().with_feature("eligible.leader.replicas.version", 1);
    let topic_id = Uuid::from_u128(1001);
    let partition = |index, isr: &[i32], elr: &[i32], last_known: &[i32]| {
        MetadataRecord::Partition(PartitionRecord {
            topic_id,
            partition_id: index,
            replicas: vec![1, 2, 3],
            isr: isr.to_vec(),
            leader: isr.first().copied().unwrap_or(-1),
            eligible_leader_replicas: Some(elr.to_vec()),
            last_known_elr: Some(last_known.to_vec()),
            directories: vec![Uuid::from_u128(100); 3],
            ..Default::default()
        })
    };
    cluster.apply(&[
        partition(0, &[1], &[2], &[]),
        partition(1, &[], &[2, 3], &[1]),
        partition(2, &[], &[], &[3]),
    ]);
    let set = ("min.insync.replicas", SET, Some("1"));
    for (resource, name) in [(TOPIC, "orders"), (BROKER, "")] {
        let decision = incremental(&mut cluster, resource, name, &[set]);
        cluster.apply(&decision.records);
        let found = [0, 1, 2].map(|index| {
            let topics = &cluster.image.topics;
            let partition = topics.partition("orders", PartitionIndex(index)).unwrap();
            let (elr, last_known) = (partition.elr(), partition.last_known_elr());
            [&partition.isr[..], elr, last_known]
                .map(|ids| ids.iter().map(|id| id.value()).collect::<Vec<_>>())
        });
        assert_eq!(found[0], [vec![1], vec![], vec![]]);
        assert_eq!(found[1], [vec![2, 3], vec![], vec![1]]);
        assert_eq!(found[2], [vec![], vec![], vec![3]]);
    }
}
