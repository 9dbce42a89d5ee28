//! `ottla.audit.topic`: the decisions of the authorizer are records of a topic.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ottla_protocol::messages::MetadataRequest;
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::metadata_records::{AccessControlEntryRecord, MetadataRecord};
use ottla_security::{Operation, PatternType, PermissionType, ResourceType};
use ottla_types::{ErrorCode, Uuid};
use serde_json::Value;

use super::TestBroker;
use super::client::Client;
use super::dead_letters::letters;
use crate::Endpoint;

const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

async fn start(super_users: &str, events: &str) -> TestBroker {
    let settings = [
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", super_users),
        ("ottla.audit.topic", "audit"),
        ("ottla.audit.events", events),
    ];
    TestBroker::start_with(&settings).await
}

/// The decisions in the topic, when it has this many.
async fn decisions(broker: &TestBroker, count: usize) -> Vec<Value> {
    let mut client = broker.connect().await;
    let records = letters(&mut client, "audit", count).await;
    let values = records.iter().map(|record| {
        let value = record.value.as_deref().expect("a value");
        serde_json::from_slice(value).expect("JSON")
    });
    values.collect()
}

async fn describe(client: &mut Client, topic: &'static str) -> ErrorCode {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(topic.into()),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let response = client.ask(12, &request).await;
    ErrorCode::from_code(response.topics[0].error_code)
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_are_written_to_the_topic_also_the_last_before_a_stop() {
    let broker = start("User:admin", "denied").await;
    let all_topics = AccessControlEntryRecord {
        id: Uuid::from_u128(1),
        resource_type: ResourceType::Topic.code(),
        resource_name: "*".into(),
        pattern_type: PatternType::Literal.code(),
        principal: "User:ANONYMOUS".into(),
        host: "127.0.0.1".into(),
        operation: Operation::All.code(),
        permission_type: PermissionType::Allow.code(),
        ..Default::default()
    };
    broker
        .write(vec![MetadataRecord::AccessControlEntry(all_topics)])
        .await;
    let address = broker.address(Endpoint::Broker);
    let mut stranger = Client::connect_from(STRANGER, address).await;
    let denied = ErrorCode::TopicAuthorizationFailed;
    assert_eq!(describe(&mut stranger, "secret").await, denied);

    let first = &decisions(&broker, 1).await[0];
    assert_eq!(first["principal"], "User:ANONYMOUS");
    assert_eq!(first["host"], "127.0.0.2");
    assert_eq!(first["operation"], "DESCRIBE");
    assert_eq!(first["resourceName"], "secret");
    assert_eq!(first["request"], "Metadata");
    assert_eq!(first["allowed"], false);
    let to_allow = first["toAllow"].as_str().expect("a command");
    assert!(to_allow.starts_with("ottla acls --add "), "{to_allow}");
    assert!(to_allow.contains("--topic secret"), "{to_allow}");

    assert_eq!(describe(&mut stranger, "second").await, denied);
    let broker = broker.restart().await;
    let after_restart = decisions(&broker, 2).await;
    assert_eq!(after_restart[1]["resourceName"], "second");
    let lost: Vec<_> = broker.broker().authorizer.lost_decisions().collect();
    assert_eq!(lost, [("topic", 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_and_reading_the_topic_causes_no_decisions_in_it() {
    let broker = start("User:ANONYMOUS", "allowed,denied").await;
    broker.create_topic("orders", 1, &[]).await;
    let mut client = broker.connect().await;
    assert_eq!(describe(&mut client, "orders").await, ErrorCode::None);
    let found = decisions(&broker, 1).await;
    assert_eq!(found[0]["resourceName"], "orders");
    assert_eq!(found[0]["allowed"], true);
    // The writes of several rounds, and the reads of this test, are decisions too.
    for round in 2..5 {
        assert_eq!(describe(&mut client, "orders").await, ErrorCode::None);
        let found = decisions(&broker, round).await;
        assert!(
            found.iter().all(|it| it["resourceName"] == "orders"),
            "{found:?}"
        );
    }
    // They come to an end: their number stays the same for longer than a decision waits to be written.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut before = 0;
    loop {
        let now = decisions(&broker, 1).await.len();
        if now == before {
            break;
        }
        assert!(Instant::now() < deadline, "{now} decisions");
        before = now;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
