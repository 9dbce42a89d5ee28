//! DeleteAcls (KIP-140): forwarded to the controller. Kafka: `AclApis.handleDeleteAcls`.

use std::sync::Arc;

use ottla_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use ottla_protocol::messages::{DeleteAclsRequest, DeleteAclsResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;
use crate::authorization::denial_message;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
    let asked = request.filters.len();
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
    let refused = DeleteAclsFilterResult {
        error_code: error.code(),
        error_message: message,
        ..Default::default()
    };
    DeleteAclsResponse {
        filter_results: vec![refused; asked],
        ..Default::default()
    }
}
