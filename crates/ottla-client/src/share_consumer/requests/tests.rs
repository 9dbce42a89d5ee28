use ottla_protocol::messages::share_acknowledge_response::{self, ShareAcknowledgeTopicResponse};
use ottla_protocol::messages::share_fetch_response::{
    LeaderIdAndEpoch, NodeEndpoint, ShareFetchableTopicResponse,
};
use ottla_protocol::messages::{ShareAcknowledgeResponse, ShareFetchResponse};

use super::*;
use crate::config::ClientConfig;
use crate::share_consumer::ShareConsumerConfig;

/// The response to a fetch from partition 0, with an error, the leader and its epoch.
fn fetch_refused(error: ErrorCode, leader_id: i32, leader_epoch: i32) -> Answer {
    let partition = PartitionData {
        error_code: error.code(),
        current_leader: LeaderIdAndEpoch {
            leader_id,
            leader_epoch,
            ..Default::default()
        },
        ..Default::default()
    };
    Answer::Fetch(ShareFetchResponse {
        responses: vec![ShareFetchableTopicResponse {
            partitions: vec![partition],
            ..Default::default()
        }],
        node_endpoints: vec![NodeEndpoint {
            node_id: leader_id,
            host: "other".into(),
            port: 9092,
            ..Default::default()
        }],
        ..Default::default()
    })
}

/// The same for acknowledgements.
fn acknowledgements_refused(error: ErrorCode, leader_id: i32, leader_epoch: i32) -> Answer {
    let partition = share_acknowledge_response::PartitionData {
        error_code: error.code(),
        current_leader: share_acknowledge_response::LeaderIdAndEpoch {
            leader_id,
            leader_epoch,
            ..Default::default()
        },
        ..Default::default()
    };
    Answer::Acknowledge(ShareAcknowledgeResponse {
        responses: vec![ShareAcknowledgeTopicResponse {
            partitions: vec![partition],
            ..Default::default()
        }],
        node_endpoints: vec![share_acknowledge_response::NodeEndpoint {
            node_id: leader_id,
            host: "other".into(),
            port: 9092,
            ..Default::default()
        }],
        ..Default::default()
    })
}

/// Otherwise the partition waits for `retry.backoff.ms` and for the metadata (KIP-951).
#[tokio::test]
async fn the_leader_that_a_refusal_names_is_asked_next() {
    let client = Client::unconnected(ClientConfig {
        // Longer than any machine takes for what does not wait.
        retry_backoff: Duration::from_secs(120),
        ..ClientConfig::new("127.0.0.1:1").expect("an address")
    });
    let moved = ErrorCode::NotLeaderOrFollower;
    for (error, leader, leader_epoch, is_news) in [
        (moved, 2, 6, true),
        (ErrorCode::FencedLeaderEpoch, 2, 6, true),
        // The broker lags behind, or knows no leader.
        (moved, 1, 5, false),
        (moved, 2, 4, false),
        (moved, -1, -1, false),
        // The fields count only for the two errors.
        (ErrorCode::CoordinatorNotAvailable, 2, 6, false),
    ] {
        for refused in [fetch_refused, acknowledgements_refused] {
            // Its topic has the ID of zeros, as in the responses.
            client.set_metadata(Metadata::of_topic("t", 1, 5));
            let group = ShareConsumerConfig {
                group_id: "g".to_owned(),
                ..Default::default()
            };
            let mut consumer = ShareConsumer::new(client.clone(), group).expect("a group");
            let refused = refused(error, leader, leader_epoch);
            let is_fetch = matches!(refused, Answer::Fetch(_));
            consumer.on_answered(Answered {
                node: 1,
                said: vec![SentAcknowledgements {
                    partition: (Uuid::ZERO, 0),
                    batches: Vec::new(),
                    renewed: Vec::new(),
                }],
                result: Ok(refused),
            });
            let case = format!("{error:?} in epoch {leader_epoch}, fetch: {is_fetch}");
            let metadata = client.metadata();
            let known = metadata.leader("t", 0).map(BrokerNode::address);
            let expected = if is_news { "other:9092" } else { "host-1:9092" };
            assert_eq!(known.as_deref(), Some(expected), "{case}");
            assert_eq!(consumer.is_stale, !is_news, "{case}");
            // The other partitions of the broker that has refused it do not wait either.
            let is_free = consumer.nodes[&1].is_free(ottla_sync::time::now());
            assert_eq!(is_free, is_news || !is_fetch, "{case}");
        }
    }
}
