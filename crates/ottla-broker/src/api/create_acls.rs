//! CreateAcls: without an authorizer there is nobody who would ask for them; a controller elsewhere may have one, and
//! decides. Kafka: `AclApis.handleCreateAcls`.

use std::sync::Arc;

use ottla_protocol::messages::create_acls_response::AclCreationResult;
use ottla_protocol::messages::{CreateAclsRequest, CreateAclsResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let (error, message) = match broker.node.controller_elsewhere(context) {
        Some(channel) => match channel.forward(context, &request).await {
            Ok(response) => return response,
            Err(error) => (error, None),
        },
        None => (
            ErrorCode::SecurityDisabled,
            Some("No Authorizer is configured.".into()),
        ),
    };
    let refused = AclCreationResult {
        error_code: error.code(),
        error_message: message,
        ..Default::default()
    };
    CreateAclsResponse {
        results: vec![refused; request.creations.len()],
        ..Default::default()
    }
}
