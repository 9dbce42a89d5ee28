//! Changes of brokers' settings, on their way from the broker that is asked to the controller, be that here or elsewhere.
//!
//! Whether a broker can take a setting while it runs is known to that broker alone: the controller looks at the names of
//! a broker's settings, and at its own. So the broker that is asked judges them first, refuses what it cannot take, and
//! hands on the rest. It judges by the metadata that is in force here; what the controller decides is what counts.
//!
//! Kafka: `ConfigAdminManager.preprocess`, `copyWithoutPreprocessed`, `reassembleIncrementalResponse`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_controller::ControllerContext;
use ottla_metadata::ConfigResourceType;
use ottla_protocol::messages::alter_configs_request::AlterableConfig;
use ottla_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::incremental_alter_configs_request::AlterableConfig as IncrementalConfig;
use ottla_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as IncrementalResourceResponse;
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
    ($function:ident, $judge:ident, $after:ident, $refusal:ident, $request:ty => $response:ty) => {
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
            let own = node.context.broker_id().0.to_string();
            for resource in &request.resources {
                let is_own = resource.resource_type == ConfigResourceType::Broker.code()
                    && *resource.resource_name == *own;
                let is_refused = || refused.iter().any(|it| *it.resource_name == *own);
                if !is_own || is_refused() {
                    continue;
                }
                let mut settings = node.context.config().dynamic_settings().clone();
                $after(&mut settings, &resource.configs);
                if let Err(reason) = check_certificates(node, settings).await {
                    refused.push($refusal {
                        error_code: ErrorCode::InvalidRequest.code(),
                        error_message: Some(reason.into()),
                        resource_type: resource.resource_type,
                        resource_name: resource.resource_name.clone(),
                        ..Default::default()
                    });
                }
            }
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

judged_and_forwarded!(incremental_alter_configs, judge_incremental_alter_configs, change, IncrementalResourceResponse, IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse);
judged_and_forwarded!(alter_configs, judge_alter_configs, replace, AlterConfigsResourceResponse, AlterConfigsRequest => AlterConfigsResponse);

/// The settings after a request that changes some. Only keys and whole values matter here.
fn change(settings: &mut BTreeMap<String, String>, changes: &[IncrementalConfig]) {
    const SET: i8 = 0;
    for change in changes {
        match &change.value {
            Some(value) if change.config_operation == SET => {
                settings.insert(change.name.to_string(), value.to_string());
            }
            _ => {
                settings.remove(&*change.name);
            }
        }
    }
}

/// The settings after a request that says all of them.
fn replace(settings: &mut BTreeMap<String, String>, all: &[AlterableConfig]) {
    settings.clear();
    for setting in all {
        if let Some(value) = &setting.value {
            settings.insert(setting.name.to_string(), value.to_string());
        }
    }
}

/// Whether what this broker's listeners show and trust over TLS may become what the settings name. Reads files, on a
/// thread that may wait. The message is for the client; Kafka: `SslFactory.validateReconfiguration`.
async fn check_certificates(node: &Node, settings: BTreeMap<String, String>) -> Result<(), String> {
    let context = Arc::clone(&node.context);
    if context.tls.all().is_empty() {
        return Ok(());
    }
    let check = move || {
        let config = context.config();
        let (next, _) = config.with_dynamic(config.dynamic_default_settings(), &settings);
        context.tls.check(&next)
    };
    match ottla_sync::task::spawn_blocking(check).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!(
            "Validation of dynamic config update of SSLFactory failed: {error}"
        )),
        Err(error) => Err(format!("the certificates could not be read: {error}")),
    }
}

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
        client: Default::default(),
        mutation_quota: None,
        random: &mut || ottla_sync::random::random("own settings"),
    })
}
