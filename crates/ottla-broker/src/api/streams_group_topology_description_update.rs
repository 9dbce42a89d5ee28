//! StreamsGroupTopologyDescriptionUpdate (KIP-1331): a member of a streams group describes its
//! topology. Kafka passes descriptions to a plugin, which is a Java class; without one it answers as
//! here, and asks no member for a description.
//!
//! Kafka: `KafkaApis.handleStreamsGroupTopologyDescriptionUpdate`,
//! `GroupCoordinatorService.streamsGroupTopologyDescriptionUpdate`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_protocol::messages::{
    StreamsGroupTopologyDescriptionUpdateRequest, StreamsGroupTopologyDescriptionUpdateResponse,
};
use ottla_types::ErrorCode;

use crate::Broker;

const NO_PLUGIN: &str = "The broker has no streams group topology description plugin configured.";

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: StreamsGroupTopologyDescriptionUpdateRequest,
) -> StreamsGroupTopologyDescriptionUpdateResponse {
    let authorizer = &broker.authorizer;
    let (read, group) = (Operation::Read, ResourceType::Group);
    if !broker.groups.serves_streams_protocol() {
        refused(ErrorCode::UnsupportedVersion, None)
    } else if !authorizer.is_allowed(context, read, group, &request.group_id) {
        refused(ErrorCode::GroupAuthorizationFailed, None)
    } else {
        refused(ErrorCode::UnsupportedVersion, Some(NO_PLUGIN))
    }
}

/// An error without its own message carries the message of its code.
fn refused(
    error: ErrorCode,
    message: Option<&'static str>,
) -> StreamsGroupTopologyDescriptionUpdateResponse {
    StreamsGroupTopologyDescriptionUpdateResponse {
        error_code: error.code(),
        error_message: Some(ByteString::from_static(
            message.unwrap_or_else(|| error.message()),
        )),
        ..Default::default()
    }
}
