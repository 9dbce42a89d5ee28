//! Changes of broker settings, validated by this broker before they are sent to the controller.
//!
//! Only the broker itself knows whether it can apply a setting at runtime: the controller checks
//! the names of broker settings, and applies the values to itself only. So the broker that receives
//! the request validates changes of its own settings first, refuses those that it cannot apply, and
//! forwards the rest. It validates them on the metadata that is published here; the controller
//! makes the final decision.
//!
//! Kafka: `ConfigAdminManager.preprocess`, `copyWithoutPreprocessed`, `reassembleIncrementalResponse`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_config::{BrokerConfig, broker_config};
use ottla_context::NodeTls;
use ottla_controller::{ControllerContext, append_to_list, subtract_from_list};
use ottla_metadata::ConfigResourceType;
use ottla_net::{BoundAt, BoundListener, check_kerberos};
use ottla_protocol::messages::alter_configs_request::AlterableConfig;
use ottla_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::incremental_alter_configs_request::AlterableConfig as IncrementalConfig;
use ottla_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as IncrementalResourceResponse;
use ottla_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use ottla_sync::collections::{HashMap, HashSet};
use ottla_types::ErrorCode;

use crate::node::Node;

#[cfg(test)]
mod tests;

/// The two requests have the same shape and no common type.
macro_rules! judged_and_forwarded {
    ($function:ident, $judge:ident, $after:ident, $refusal:ident, $request:ty => $response:ty) => {
        pub async fn $function(
            node: &Node,
            mut request: $request,
            hand_on: impl AsyncFnOnce($request) -> Result<$response, ErrorCode>,
        ) -> Result<$response, ErrorCode> {
            let judged = request.clone();
            let judgement = judge(node, move |context| {
                ottla_controller::$judge(context, &judged).response
            })
            .await?;
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
                if let Err(reason) = check_listeners(node, settings).await {
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
            let mut places: HashMap<(i8, ByteString), usize> = HashMap::default();
            for (place, resource) in request.resources.iter().enumerate() {
                let key = (resource.resource_type, resource.resource_name.clone());
                places.entry(key).or_insert(place);
            }
            let refused_keys: HashSet<(i8, ByteString)> = refused
                .iter()
                .map(|resource| (resource.resource_type, resource.resource_name.clone()))
                .collect();
            request.resources.retain(|resource| {
                let key = (resource.resource_type, resource.resource_name.clone());
                !refused_keys.contains(&key)
            });
            let mut response = match request.resources.is_empty() {
                true => <$response>::default(),
                false => hand_on(request).await?,
            };
            response.responses.extend(refused);
            // In the order of the request.
            response.responses.sort_by_cached_key(|resource| {
                let key = (resource.resource_type, resource.resource_name.clone());
                places.get(&key).copied()
            });
            Ok(response)
        }
    };
}

judged_and_forwarded!(incremental_alter_configs, judge_incremental_alter_configs, change, IncrementalResourceResponse, IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse);
judged_and_forwarded!(alter_configs, judge_alter_configs, replace, AlterConfigsResourceResponse, AlterConfigsRequest => AlterConfigsResponse);

/// The settings after an incremental change, which was found to be valid.
fn change(settings: &mut BTreeMap<String, String>, changes: &[IncrementalConfig]) {
    const SET: i8 = 0;
    const APPEND: i8 = 2;
    const SUBTRACT: i8 = 3;
    for change in changes {
        let name = change.name.to_string();
        let current = || {
            let default = broker_config(&name).and_then(|def| def.default_text());
            let current = settings.get(&name).map(String::as_str);
            current.or(default).unwrap_or_default()
        };
        let changed = match (change.config_operation, change.value.as_deref()) {
            (SET, Some(value)) => value.to_owned(),
            (APPEND, Some(operand)) => append_to_list(current(), operand),
            (SUBTRACT, Some(operand)) => subtract_from_list(current(), operand),
            _ => {
                settings.remove(&name);
                continue;
            }
        };
        settings.insert(name, changed);
    }
}

/// The settings after a request that replaces all of them.
fn replace(settings: &mut BTreeMap<String, String>, all: &[AlterableConfig]) {
    settings.clear();
    for setting in all {
        if let Some(value) = &setting.value {
            settings.insert(setting.name.to_string(), value.to_string());
        }
    }
}

/// Checks whether this broker can switch to the key and trust stores in the settings, and open the
/// listeners that they add. Reads files and binds sockets on a blocking thread. The error is a
/// message for the client, and contains nothing that a variable stands for. Kafka:
/// `SslFactory.validateReconfiguration`; it binds new listeners only after the change is stored.
async fn check_listeners(node: &Node, settings: BTreeMap<String, String>) -> Result<(), String> {
    let context = Arc::clone(&node.context);
    let check = move || {
        let config = context.config().clone();
        let (next, _) = config.with_dynamic(config.dynamic_default_settings(), &settings);
        let checked = context.tls.check(&next).map_err(|error| {
            format!("Validation of dynamic config update of SSLFactory failed: {error}")
        });
        let checked = checked.and_then(|()| check_new_listeners(&config, &next));
        checked.map_err(|message| next.message_for_clients(message))
    };
    let checked = ottla_sync::task::spawn_blocking(check).await;
    checked.unwrap_or_else(|error| Err(format!("the listeners could not be checked: {error}")))
}

/// Loads the stores of the listeners that only `next` has, and binds these listeners for a moment.
/// Checks the Kerberos keys of listeners that did not have Kerberos before, or had it for another
/// service: a setting without a listener's prefix also changes existing listeners.
fn check_new_listeners(config: &BrokerConfig, next: &BrokerConfig) -> Result<(), String> {
    let known = config.sasl.kerberos_services();
    let services = next.sasl.kerberos_services();
    check_kerberos(next, |name| {
        let mut of_listener = services.iter().filter(|(it, _)| *it == name);
        of_listener.any(|service| !known.contains(service))
    })?;
    let has = |config: &BrokerConfig, name: &str| config.listeners.iter().any(|it| it.name == name);
    for listener in &next.listeners {
        if has(config, &listener.name) {
            continue;
        }
        NodeTls::check_listener(next, &listener.name).map_err(|error| error.to_string())?;
        // The port of a listener that is removed by the same change becomes free.
        let mut removed = config.listeners.iter().filter(|it| !has(next, &it.name));
        if removed.all(|it| it.port != listener.port || it.port == 0) {
            BoundListener::bind(next, listener, BoundAt::Runtime)?;
        }
    }
    Ok(())
}

/// Runs a controller decision against the metadata of this node, on a blocking thread: the values of
/// variables are in files.
async fn judge<T: Send + 'static>(
    node: &Node,
    decide: impl FnOnce(&ControllerContext<'_>) -> T + Send + 'static,
) -> Result<T, ErrorCode> {
    let kraft_version = node.controller().map_or(0, |controller| {
        controller.status().kraft_version.feature_level()
    });
    let (image, config) = (
        node.context.metadata().clone(),
        node.context.config().clone(),
    );
    let judging = ottla_sync::task::spawn_blocking(move || {
        decide(&ControllerContext {
            image: &image,
            config: &config,
            kraft_version,
            // No broker setting depends on it.
            kraft_version_upgrade: &|_| Ok(false),
            client: Default::default(),
            mutation_quota: None,
            random: &mut || ottla_sync::random::random("own settings"),
        })
    });
    // A panic was reported where it happened.
    judging.await.map_err(|_| ErrorCode::UnknownServerError)
}
