//! The response to ApiVersions 5 for a client that expects another node or cluster (KIP-1242).

use ottla_protocol::messages::ApiVersionsRequest;
use ottla_types::ErrorCode;

use super::TestBroker;
use super::produce_and_fetch::api_versions;

#[tokio::test]
async fn a_client_learns_that_it_reached_another_node() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let cluster_id = broker.running.broker().cluster_id();
    let node_id = broker.config.node_id;
    for (cluster_id, node_id, expected) in [
        (None, -1, ErrorCode::None),
        (Some(cluster_id.clone()), node_id, ErrorCode::None),
        (
            Some(cluster_id.clone()),
            node_id + 1,
            ErrorCode::RebootstrapRequired,
        ),
        (
            Some("other".into()),
            node_id,
            ErrorCode::RebootstrapRequired,
        ),
        (Some(cluster_id), -1, ErrorCode::InvalidRequest),
        (None, node_id, ErrorCode::InvalidRequest),
    ] {
        let request = ApiVersionsRequest {
            cluster_id,
            node_id,
            ..api_versions()
        };
        let response = client.ask(5, &request).await;
        let error = ErrorCode::from_code(response.error_code);
        assert_eq!(error, expected, "{request:?}");
        assert_eq!(response.api_keys.is_empty(), expected != ErrorCode::None);
    }
}
