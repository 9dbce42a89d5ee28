//! DeleteAcls: without an authorizer there is nobody who would ask for them. Kafka: `AclApis.handleDeleteAcls`.

use std::sync::Arc;

use ottla_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use ottla_protocol::messages::{DeleteAclsRequest, DeleteAclsResponse};
use ottla_types::ErrorCode;

use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
    let refused = DeleteAclsFilterResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some("No Authorizer is configured.".into()),
        ..Default::default()
    };
    DeleteAclsResponse {
        filter_results: vec![refused; request.filters.len()],
        ..Default::default()
    }
}
