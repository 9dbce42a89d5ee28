//! The identity of a non-transactional producer.

use ottla_protocol::messages::InitProducerIdRequest;
use ottla_types::{ProducerEpoch, ProducerId};

use crate::client::Client;
use crate::error::ClientError;
use crate::producer::sequences::Identity;

/// Requests the identity of a non-transactional producer.
pub(super) async fn init_producer_id(client: &Client) -> Result<Identity, ClientError> {
    client
        .retrying("InitProducerId", async || {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: i32::MAX,
                ..Default::default()
            };
            let response = client.any_node().await?.send(&request).await?;
            ClientError::check_code("a producer id", response.error_code)?;
            Ok(Identity {
                id: ProducerId(response.producer_id),
                epoch: ProducerEpoch(response.producer_epoch),
            })
        })
        .await
}
