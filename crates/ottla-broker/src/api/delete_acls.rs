//! DeleteAcls: without an authorizer there is nobody who would ask for them; a controller elsewhere may have one, and
//! decides. Kafka: `AclApis.handleDeleteAcls`.

use std::sync::Arc;

use ottla_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use ottla_protocol::messages::{DeleteAclsRequest, DeleteAclsResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
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
    let refused = DeleteAclsFilterResult {
        error_code: error.code(),
        error_message: message,
        ..Default::default()
    };
    DeleteAclsResponse {
        filter_results: vec![refused; request.filters.len()],
        ..Default::default()
    }
}
