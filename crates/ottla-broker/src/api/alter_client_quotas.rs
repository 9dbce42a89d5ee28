//! AlterClientQuotas (KIP-546): forwarded to the controller. Kafka:
//! `ControllerApis.handleAlterClientQuotas`.

use std::sync::Arc;

use ottla_protocol::messages::alter_client_quotas_response::{EntityData, EntryData};
use ottla_protocol::messages::{AlterClientQuotasRequest, AlterClientQuotasResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse {
    let entities: Vec<Vec<EntityData>> = request
        .entries
        .iter()
        .map(|entry| {
            let parts = entry.entity.iter();
            parts
                .map(|part| EntityData {
                    entity_type: part.entity_type.clone(),
                    entity_name: part.entity_name.clone(),
                    ..Default::default()
                })
                .collect()
        })
        .collect();
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => AlterClientQuotasResponse {
            entries: entities
                .into_iter()
                .map(|entity| EntryData {
                    error_code: error.code(),
                    error_message: None,
                    entity,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        },
    }
}
