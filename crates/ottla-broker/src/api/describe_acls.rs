//! DescribeAcls: without an authorizer there are none to describe. Kafka: `AclApis.handleDescribeAcls`.

use std::sync::Arc;

use ottla_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    _request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    DescribeAclsResponse {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some("No Authorizer is configured on the broker".into()),
        ..Default::default()
    }
}
