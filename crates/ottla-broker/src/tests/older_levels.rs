//! A directory that is finalized at an older `metadata.version` stays readable for a Kafka of that
//! level: everything that the controller writes uses record versions of that level, and no feature
//! is finalized higher.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bytes::Bytes;
use ottla_config::{BrokerConfig, single_node_properties};
use ottla_metadata::MetadataVersion;
use ottla_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use ottla_protocol::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use ottla_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use ottla_protocol::messages::delete_topics_request::DeleteTopicState;
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use ottla_protocol::messages::*;
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_records::RecordBatch;
use ottla_types::{ErrorCode, Uuid};

use super::client::Client;
use crate::{Broker, RunningBroker};
use ottla_storage::format::{FormatOptions, InitialQuorum, format};

const TOPIC: &str = "orders";

fn config(data: &Path) -> BrokerConfig {
    let dirs = ["first", "second"].map(|name| data.join(name).display().to_string());
    let mut properties = single_node_properties(&dirs.join(","), "127.0.0.1:0", "127.0.0.1:0");
    let metadata = data.join("metadata").display().to_string();
    properties.set("metadata.log.dir", &metadata);
    properties.set("offsets.topic.num.partitions", "2");
    // At this level, cordoned directories are unknown.
    properties.set("cordoned.log.dirs", &dirs[1]);
    // Snapshots are written too.
    properties.set("metadata.log.max.record.bytes.between.snapshots", "500");
    BrokerConfig::from_properties(&properties)
        .expect("good settings")
        .0
}

async fn start(data: &Path) -> (RunningBroker, Client) {
    let running = Broker::start(config(data))
        .await
        .expect("the broker starts");
    let client = Client::connect(running.listeners()[0].local_addr).await;
    (running, client)
}

fn set_config(
    resource_type: i8,
    name: &'static str,
    key: &'static str,
    value: &'static str,
) -> IncrementalAlterConfigsRequest {
    IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type,
            resource_name: name.into(),
            configs: vec![AlterableConfig {
                name: key.into(),
                config_operation: 0,
                value: Some(value.into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Sends every request that makes the controller write records.
async fn use_everything(client: &mut Client, data: &Path) {
    let topic = |name: &'static str| CreatableTopic {
        name: name.into(),
        num_partitions: 2,
        replication_factor: 1,
        configs: vec![CreatableTopicConfig {
            name: "retention.ms".into(),
            value: Some("1000000".into()),
            ..Default::default()
        }],
        ..Default::default()
    };
    let created = CreateTopicsRequest {
        topics: vec![topic(TOPIC), topic("to-be-deleted")],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let created = client.ask(7, &created).await;
    assert!(created.topics.iter().all(|topic| topic.error_code == 0));
    let grown = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: TOPIC.into(),
            count: 3,
            assignments: None,
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    assert_eq!(client.ask(3, &grown).await.results[0].error_code, 0);
    let deleted = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some("to-be-deleted".into()),
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    assert_eq!(client.ask(6, &deleted).await.responses[0].error_code, 0);
    for request in [
        set_config(2, TOPIC, "segment.ms", "600000"),
        set_config(2, TOPIC, "min.insync.replicas", "1"),
        set_config(4, "", "log.retention.ms", "600000"),
        set_config(4, "1", "message.max.bytes", "600000"),
    ] {
        let answer = client.ask(1, &request).await;
        assert_eq!(answer.responses[0].error_code, 0, "{request:?}");
    }
    let cordoned = set_config(4, "1", "cordoned.log.dirs", "");
    let refused = client.ask(1, &cordoned).await;
    assert_eq!(
        refused.responses[0].error_code,
        ErrorCode::InvalidConfig.code()
    );
    let ids = InitProducerIdRequest {
        transactional_id: None,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    assert_eq!(client.ask(4, &ids).await.error_code, 0);
    let offsets = FindCoordinatorRequest {
        key_type: 0,
        coordinator_keys: vec!["group".into()],
        ..Default::default()
    };
    client.ask(4, &offsets).await;
    let moved = AlterReplicaLogDirsRequest {
        dirs: ["first", "second"]
            .map(|dir| AlterReplicaLogDir {
                path: data.join(dir).display().to_string().into(),
                topics: vec![AlterReplicaLogDirTopic {
                    name: TOPIC.into(),
                    partitions: vec![0, 1, 2],
                    ..Default::default()
                }],
                ..Default::default()
            })
            .to_vec(),
        ..Default::default()
    };
    client.ask(2, &moved).await;
    let elected = ElectLeadersRequest {
        election_type: 0,
        topic_partitions: None,
        timeout_ms: 10_000,
        ..Default::default()
    };
    assert_eq!(client.ask(2, &elected).await.error_code, 0);
    let reassigned = AlterPartitionReassignmentsRequest {
        timeout_ms: 10_000,
        topics: vec![ReassignableTopic {
            name: TOPIC.into(),
            partitions: vec![ReassignablePartition {
                partition_index: 0,
                replicas: Some(vec![1]),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    assert_eq!(client.ask(0, &reassigned).await.error_code, 0);
    let quota = AlterClientQuotasRequest {
        entries: vec![alter_client_quotas_request::EntryData {
            entity: vec![alter_client_quotas_request::EntityData {
                entity_type: "user".into(),
                entity_name: None,
                ..Default::default()
            }],
            ops: vec![alter_client_quotas_request::OpData {
                key: "producer_byte_rate".into(),
                value: 1.0,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    assert_eq!(client.ask(1, &quota).await.entries[0].error_code, 0);
    let credential = |name: &'static str| AlterUserScramCredentialsRequest {
        upsertions: vec![
            alter_user_scram_credentials_request::ScramCredentialUpsertion {
                name: name.into(),
                mechanism: 1,
                iterations: 4096,
                salt: Bytes::from_static(b"salt"),
                salted_password: Bytes::from_static(b"salted"),
                ..Default::default()
            },
        ],
        ..Default::default()
    };
    for user in ["bob", "eve"] {
        let answer = client.ask(0, &credential(user)).await;
        assert_eq!(answer.results[0].error_code, 0);
    }
    let deleted = AlterUserScramCredentialsRequest {
        deletions: vec![
            alter_user_scram_credentials_request::ScramCredentialDeletion {
                name: "eve".into(),
                mechanism: 1,
                ..Default::default()
            },
        ],
        ..Default::default()
    };
    assert_eq!(client.ask(0, &deleted).await.results[0].error_code, 0);
}

/// The names of all records in the log and its snapshots, with their versions, and the highest
/// finalized level of each feature.
fn written(data: &Path) -> (BTreeMap<&'static str, BTreeSet<i16>>, BTreeMap<String, i16>) {
    let mut records = BTreeMap::<_, BTreeSet<i16>>::new();
    let mut levels = BTreeMap::new();
    for entry in fs::read_dir(data.join("metadata/__cluster_metadata-0")).expect("the log") {
        let path = entry.expect("an entry").path();
        let is_log = path
            .extension()
            .is_some_and(|it| it == "log" || it == "checkpoint");
        if !is_log {
            continue;
        }
        for batch in RecordBatch::read_all(fs::read(path).expect("is read").into()) {
            let batch = batch.expect("a batch");
            if batch.header.attributes.is_control() {
                continue;
            }
            for record in batch.records(1024 * 1024).expect("records") {
                let value = record.expect("a record").value.expect("a value");
                let (record, version) =
                    MetadataRecord::decode_versioned(&value).expect("a metadata record");
                records.entry(record.name()).or_default().insert(version);
                if let MetadataRecord::FeatureLevel(feature) = record {
                    let level = levels.entry(feature.name.to_string()).or_insert(0);
                    *level = feature.feature_level.max(*level);
                }
            }
        }
    }
    (records, levels)
}

async fn records_are_of_level(release: &str, partition: i16, expected_levels: &[(&str, i16)]) {
    let data = tempfile::tempdir().expect("a directory");
    let options = FormatOptions {
        cluster_id: Uuid::from_u128(77).to_string(),
        quorum: InitialQuorum::Standalone,
        metadata_version: MetadataVersion::from_version_string(release).expect("a level"),
        feature_levels: BTreeMap::new(),
        scram_records: Vec::new(),
        ignore_formatted: false,
    };
    format(&config(data.path()), &options).expect("formats");
    let (running, mut client) = start(data.path()).await;
    use_everything(&mut client, data.path()).await;
    running.stop().await;
    // A restart: fenced, registered again, unfenced.
    let (running, _) = start(data.path()).await;
    running.stop().await;

    let (records, levels) = written(data.path());
    let versions = |name: &str| match name {
        "RegisterBrokerRecord" => vec![3],
        "PartitionRecord" | "PartitionChangeRecord" => vec![partition],
        // The lowest version with a controlled shutdown, and no cordoned directory.
        "BrokerRegistrationChangeRecord" => vec![0, 1],
        _ => vec![0],
    };
    for (name, found) in &records {
        let allowed = versions(name);
        assert!(
            found.iter().all(|version| allowed.contains(version)),
            "{name} at {release} in versions {found:?}"
        );
    }
    // Everything that a single broker causes to be written. A record that is missing here was not
    // tested.
    let names: Vec<_> = records.into_keys().collect();
    assert_eq!(
        names,
        [
            "BeginTransactionRecord",
            "BrokerRegistrationChangeRecord",
            "ClientQuotaRecord",
            "ConfigRecord",
            "EndTransactionRecord",
            "FeatureLevelRecord",
            "PartitionChangeRecord",
            "PartitionRecord",
            "ProducerIdsRecord",
            "RegisterBrokerRecord",
            "RegisterControllerRecord",
            "RemoveTopicRecord",
            "RemoveUserScramCredentialRecord",
            "TopicRecord",
            "UserScramCredentialRecord"
        ]
    );
    let levels: Vec<_> = levels
        .iter()
        .map(|(name, level)| (&**name, *level))
        .collect();
    assert_eq!(levels, expected_levels);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_at_3_9_gets_records_readable_by_3_9() {
    records_are_of_level("3.9-IV0", 1, &[("metadata.version", 21)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_at_4_0_gets_records_readable_by_4_0() {
    records_are_of_level(
        "4.0-IV3",
        2,
        &[
            ("group.version", 1),
            ("metadata.version", 25),
            ("transaction.version", 2),
        ],
    )
    .await;
}
