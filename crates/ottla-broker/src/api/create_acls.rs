//! CreateAcls: without an authorizer there is nobody who would ask for them. Kafka: `AclApis.handleCreateAcls`.

use std::sync::Arc;

use ottla_protocol::messages::create_acls_response::AclCreationResult;
use ottla_protocol::messages::{CreateAclsRequest, CreateAclsResponse};
use ottla_types::ErrorCode;

use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let refused = AclCreationResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some("No Authorizer is configured.".into()),
        ..Default::default()
    };
    CreateAclsResponse {
        results: vec![refused; request.creations.len()],
        ..Default::default()
    }
}
