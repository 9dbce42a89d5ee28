//! DeleteAcls (KIP-140): forwarded to the controller. Kafka: `AclApis.handleDeleteAcls`.

use std::sync::Arc;

use ottla_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use ottla_protocol::messages::{DeleteAclsRequest, DeleteAclsResponse};

use ottla_net::RequestContext;

use super::controller_requests::forward_about_acls;
use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
    let asked = request.filters.len();
    let (error, message) = match forward_about_acls(broker, context, request).await {
        Ok(response) => return response,
        Err(refused) => refused,
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
