//! CreateAcls (KIP-140): forwarded to the controller. Kafka: `AclApis.handleCreateAcls`.

use std::sync::Arc;

use ottla_protocol::messages::create_acls_response::AclCreationResult;
use ottla_protocol::messages::{CreateAclsRequest, CreateAclsResponse};

use ottla_net::RequestContext;

use super::controller_requests::forward_about_acls;
use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let asked = request.creations.len();
    let (error, message) = match forward_about_acls(broker, context, request).await {
        Ok(response) => return response,
        Err(refused) => refused,
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
