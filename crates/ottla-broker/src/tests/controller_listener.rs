//! The controller listener, as `--bootstrap-controller` uses it (KIP-919).

use ottla_protocol::ApiKey;
use ottla_protocol::messages::*;
use ottla_types::ErrorCode;

use super::client::Client;
use super::produce_and_fetch::{api_versions, fetch_from};
use super::{TestBroker, creation};
use crate::{Endpoint, served_apis};

async fn controller_of(broker: &TestBroker) -> Client {
    Client::connect(broker.address(Endpoint::Controller)).await
}

#[tokio::test]
async fn it_advertises_the_apis_of_a_controller() {
    let broker = TestBroker::start().await;
    let response = controller_of(&broker).await.ask(4, &api_versions()).await;
    let advertised: Vec<i16> = response.api_keys.iter().map(|api| api.api_key).collect();
    let served: Vec<i16> = served_apis(Endpoint::Controller)
        .iter()
        .map(|(key, _)| key.code())
        .collect();
    assert_eq!(advertised, served);
    for (key, is_served) in [
        (ApiKey::CreateTopics, true),
        (ApiKey::DescribeQuorum, true),
        (ApiKey::Metadata, false),
        (ApiKey::Produce, false),
        (ApiKey::Vote, true),
        (ApiKey::UpdateRaftVoter, true),
    ] {
        assert_eq!(advertised.contains(&key.code()), is_served, "{key}");
    }
}

#[tokio::test]
async fn it_describes_only_controllers() {
    let broker = TestBroker::start().await;
    let mut client = controller_of(&broker).await;
    let request = |endpoint_type| DescribeClusterRequest {
        endpoint_type,
        ..Default::default()
    };
    let cluster = client.ask(2, &request(2)).await;
    assert_eq!((cluster.error_code, cluster.endpoint_type), (0, 2));
    assert_eq!(cluster.controller_id, 1);
    assert_eq!(cluster.brokers.len(), 1);
    let port = broker.address(Endpoint::Controller).port();
    assert_eq!(cluster.brokers[0].port, i32::from(port));
    let refused = client.ask(2, &request(1)).await;
    assert_eq!(refused.error_code, ErrorCode::MismatchedEndpointType.code());
    let unknown = client.ask(2, &request(7)).await;
    assert_eq!(
        unknown.error_code,
        ErrorCode::UnsupportedEndpointType.code()
    );
    // Version 0 has no endpoint type, and means brokers.
    let oldest = client.ask(0, &request(1)).await;
    assert_eq!(oldest.error_code, ErrorCode::InvalidRequest.code());
}

#[tokio::test]
async fn it_creates_topics_and_refuses_records() {
    let broker = TestBroker::start().await;
    let mut client = controller_of(&broker).await;
    let creation = creation("orders", 1, 1);
    let created = client.ask(7, &creation).await;
    assert_eq!(created.topics[0].error_code, 0);
    broker.partition("orders", 0);
    client.send(9, &ProduceRequest::default()).await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn voters_of_another_quorum_are_refused() {
    let broker = TestBroker::start().await;
    let mut client = controller_of(&broker).await;
    let expected = ErrorCode::InconsistentClusterId.code();
    let other: Option<bytestring::ByteString> = Some("another".into());
    macro_rules! refusal {
        ($request:ident, $version:literal) => {{
            let request = $request {
                cluster_id: other.clone(),
                ..Default::default()
            };
            let response = client.ask($version, &request).await;
            assert_eq!(response.error_code, expected, stringify!($request));
        }};
    }
    refusal!(FetchRequest, 18);
    refusal!(FetchSnapshotRequest, 1);
    refusal!(VoteRequest, 2);
    refusal!(BeginQuorumEpochRequest, 1);
    refusal!(EndQuorumEpochRequest, 1);
    refusal!(UpdateRaftVoterRequest, 0);
    refusal!(AddRaftVoterRequest, 1);
    refusal!(RemoveRaftVoterRequest, 0);
}

/// Kafka's `metadata-quorum add-controller` and `remove-controller` name no cluster.
#[tokio::test]
async fn voter_changes_without_a_cluster_id_are_accepted() {
    let broker = TestBroker::start().await;
    let mut client = controller_of(&broker).await;
    // An invalid voter is detected only after the cluster ID was checked.
    let add = AddRaftVoterRequest {
        cluster_id: None,
        voter_id: -1,
        ..Default::default()
    };
    let added = client.ask(1, &add).await;
    assert_eq!(added.error_code, ErrorCode::InvalidRequest.code());
    let message = "Add voter request didn't include a valid voter";
    assert_eq!(added.error_message.as_deref(), Some(message));
    let remove = RemoveRaftVoterRequest {
        cluster_id: None,
        voter_id: -1,
        ..Default::default()
    };
    let removed = client.ask(0, &remove).await;
    assert_eq!(removed.error_code, ErrorCode::InvalidRequest.code());
    let message = "Remove voter request didn't include a valid voter";
    assert_eq!(removed.error_message.as_deref(), Some(message));
}

#[tokio::test]
async fn requests_for_other_partitions_are_refused() {
    let broker = TestBroker::start().await;
    let mut client = controller_of(&broker).await;
    let expected = ErrorCode::InvalidRequest.code();
    let fetched = client.ask(18, &fetch_from("orders", 0, 0)).await;
    assert_eq!(fetched.error_code, expected);
    let voted = client.ask(2, &VoteRequest::default()).await;
    assert_eq!(voted.error_code, expected);
    let ended = client.ask(1, &EndQuorumEpochRequest::default()).await;
    assert_eq!(ended.error_code, expected);
}
