//! Changes of brokers' settings, on their way from the broker that is asked to the controller, be that here or elsewhere.
//!
//! Whether a broker can take a setting while it runs is known to that broker alone: the controller looks at the names of
//! a broker's settings, and at its own. So the broker that is asked judges them first, refuses what it cannot take, and
//! hands on the rest. It judges by the metadata that is in force here; what the controller decides is what counts.
//!
//! Kafka: `ConfigAdminManager.preprocess`, `copyWithoutPreprocessed`, `reassembleIncrementalResponse`.

use bytestring::ByteString;
use ottla_controller::ControllerContext;
use ottla_metadata::ConfigResourceType;
use ottla_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use ottla_types::ErrorCode;

use crate::node::Node;

#[cfg(test)]
mod tests;

/// The two requests have the same shape and no type in common.
macro_rules! judged_and_forwarded {
    ($function:ident, $judge:ident, $request:ty => $response:ty) => {
        pub async fn $function(
            node: &Node,
            mut request: $request,
            hand_on: impl AsyncFnOnce($request) -> Result<$response, ErrorCode>,
        ) -> Result<$response, ErrorCode> {
            let judgement = judge(node, |context| {
                ottla_controller::$judge(context, &request).response
            });
            let is_refused = |kind: i8, error_code: i16| {
                kind == ConfigResourceType::Broker.code() && error_code != ErrorCode::None.code()
            };
            let mut refused = judgement.responses;
            refused.retain(|resource| is_refused(resource.resource_type, resource.error_code));
            if refused.is_empty() {
                return hand_on(request).await;
            }
            let asked_for: Vec<(i8, ByteString)> = request
                .resources
                .iter()
                .map(|resource| (resource.resource_type, resource.resource_name.clone()))
                .collect();
            request.resources.retain(|resource| {
                !refused.iter().any(|refused| {
                    refused.resource_type == resource.resource_type
                        && refused.resource_name == resource.resource_name
                })
            });
            let mut response = match request.resources.is_empty() {
                true => <$response>::default(),
                false => hand_on(request).await?,
            };
            response.responses.extend(refused);
            // As they were asked for.
            response.responses.sort_by_key(|resource| {
                asked_for.iter().position(|(kind, name)| {
                    *kind == resource.resource_type && *name == resource.resource_name
                })
            });
            Ok(response)
        }
    };
}

judged_and_forwarded!(incremental_alter_configs, judge_incremental_alter_configs, IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse);
judged_and_forwarded!(alter_configs, judge_alter_configs, AlterConfigsRequest => AlterConfigsResponse);

/// What this node would answer if it had to decide.
fn judge<T>(node: &Node, decide: impl FnOnce(&ControllerContext<'_>) -> T) -> T {
    let kraft_version = node.controller().map_or(0, |controller| {
        controller.status().kraft_version.feature_level()
    });
    let (image, config) = (
        node.context.metadata().clone(),
        node.context.config().clone(),
    );
    decide(&ControllerContext {
        image: &image,
        config: &config,
        kraft_version,
        // No setting of a broker depends on it.
        kraft_version_upgrade: &|_| Ok(false),
        random: &mut || ottla_sync::random::random("own settings"),
    })
}
