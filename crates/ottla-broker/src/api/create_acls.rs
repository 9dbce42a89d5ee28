//! CreateAcls (KIP-140): forwarded to the controller. Kafka: `AclApis.handleCreateAcls`.

use std::sync::Arc;

use ottla_protocol::messages::create_acls_response::AclCreationResult;
use ottla_protocol::messages::{CreateAclsRequest, CreateAclsResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;
use crate::authorization::denial_message;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let asked = request.creations.len();
    // A controller on another node may have an authorizer.
    let is_decided_here = broker.node.controller_elsewhere(context).is_none();
    let (error, message) = match is_decided_here && !broker.authorizer.is_configured() {
        true => (
            ErrorCode::SecurityDisabled,
            Some("No Authorizer is configured.".into()),
        ),
        false => match broker.forward(context, request).await {
            Ok(response) => return response,
            Err(error) => (error, denial_message(context, error)),
        },
    };
    let refused = AclCreationResult {
        error_code: error.code(),
        error_message: message,
        ..Default::default()
    };
    CreateAclsResponse {
        results: vec![refused; asked],
        ..Default::default()
    }
}
