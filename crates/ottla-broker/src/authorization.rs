//! What handlers ask before they do anything, by the table of rights.

use std::collections::BTreeSet;

use bytestring::ByteString;
use ottla_metadata::ConfigResourceType;
use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_protocol::ApiKey;
use ottla_security::CLUSTER_NAME;
use ottla_types::ErrorCode;

use crate::Broker;
use crate::endpoint::Endpoint;
use crate::rights::{Denied, Right, rights};

impl Broker {
    /// Checks the right that the whole request needs, where its row has one.
    pub(crate) fn authorize(&self, context: &RequestContext) -> Result<(), ErrorCode> {
        match right_of_request(context) {
            Some(right) => self.authorize_cluster(context, right.operation),
            None => Ok(()),
        }
    }

    fn authorize_cluster(
        &self,
        context: &RequestContext,
        operation: Operation,
    ) -> Result<(), ErrorCode> {
        let (authorizer, of_cluster) = (&self.authorizer, ResourceType::Cluster);
        let is_ready = authorizer.is_ready();
        match authorizer.is_allowed(context, operation, of_cluster, CLUSTER_NAME) {
            true => Ok(()),
            false if is_ready => Err(ErrorCode::ClusterAuthorizationFailed),
            // Nodes that are told so ask again. Kafka answers with it for `AuthorizerNotReadyException`.
            false => Err(ErrorCode::UnknownServerError),
        }
    }

    /// Whether the client may see the cluster's authorised operations, and then which they are.
    pub(crate) fn cluster_authorized_operations(&self, context: &RequestContext) -> i32 {
        match self.authorize_cluster(context, Operation::Describe) {
            Ok(()) => {
                let authorizer = &self.authorizer;
                authorizer.authorized_operations(context, ResourceType::Cluster, CLUSTER_NAME)
            }
            Err(_) => 0,
        }
    }

    /// Whether the client may do this to all topics of the cluster, or to this one.
    pub(crate) fn may_do_to_topic(
        &self,
        context: &RequestContext,
        operation: Operation,
        topic: &str,
    ) -> bool {
        let authorizer = &self.authorizer;
        authorizer.is_allowed_quietly(context, operation, ResourceType::Cluster, CLUSTER_NAME)
            || authorizer.is_allowed(context, operation, ResourceType::Topic, topic)
    }

    /// Whether the client may change the settings of a resource. Kafka: `ControllerApis.authorizeAlterResource`.
    pub(crate) fn authorize_alter_configs(
        &self,
        context: &RequestContext,
        resource_type: i8,
        name: &str,
    ) -> Result<(), ErrorCode> {
        let authorizer = &self.authorizer;
        let is_allowed = |of| authorizer.is_allowed(context, Operation::AlterConfigs, of, name);
        match ConfigResourceType::from_code(resource_type) {
            Some(ConfigResourceType::Topic) => match is_allowed(ResourceType::Topic) {
                true => Ok(()),
                false => Err(ErrorCode::TopicAuthorizationFailed),
            },
            Some(ConfigResourceType::Group) => match is_allowed(ResourceType::Group) {
                true => Ok(()),
                false => Err(ErrorCode::GroupAuthorizationFailed),
            },
            Some(ConfigResourceType::BrokerLogger)
                if context.listener().is_controller
                    && context.api_key == ApiKey::IncrementalAlterConfigs =>
            {
                self.authorize_cluster(context, Operation::ClusterAction)
            }
            Some(_) => self.authorize_cluster(context, Operation::AlterConfigs),
            // Refused as what it is.
            None => Ok(()),
        }
    }
}

/// The right over the cluster that the whole request needs.
fn right_of_request(context: &RequestContext) -> Option<&'static Right> {
    let rights = rights(context.api_key, Endpoint::of(context.listener()));
    let of_request = |right: &&Right| right.denied == Denied::Request;
    rights.unwrap_or_default().iter().find(of_request)
}

/// What a client is told whose whole request [`Broker::authorize`] has denied; nothing where `error` is another one.
/// Kafka: `AuthHelper.authorizeClusterOperation`, which describes the request with all that it knows of it.
pub(crate) fn denial_message(context: &RequestContext, error: ErrorCode) -> Option<ByteString> {
    if error != ErrorCode::ClusterAuthorizationFailed {
        return None;
    }
    let operation = right_of_request(context)?.operation;
    let message = format!(
        "Request {} of {} from {} needs {operation} permission.",
        context.api_key.name(),
        context.principal().as_str(),
        context.identity.host(),
    );
    Some(message.into())
}

/// What a request names more than once. The controller refuses that, whoever asks.
pub(crate) fn repeated<T: Ord + Clone>(asked: impl Iterator<Item = T>) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    asked.filter(|it| !seen.insert(it.clone())).collect()
}
