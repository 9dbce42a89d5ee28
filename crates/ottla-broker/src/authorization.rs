//! Authorisation checks for handlers, according to the table of rights.

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
    /// Checks the right that the whole request needs, if its row has one.
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
            // A retriable error for nodes. Kafka returns it for `AuthorizerNotReadyException`.
            false => Err(ErrorCode::UnknownServerError),
        }
    }

    /// The cluster's authorised operations; 0 if the client may not describe the cluster.
    pub(crate) fn cluster_authorized_operations(&self, context: &RequestContext) -> i32 {
        match self.authorize_cluster(context, Operation::Describe) {
            Ok(()) => {
                let authorizer = &self.authorizer;
                authorizer.authorized_operations(context, ResourceType::Cluster, CLUSTER_NAME)
            }
            Err(_) => 0,
        }
    }

    /// Whether the client may perform the operation on all topics of the cluster, or on this one.
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

    /// Whether the client may change the settings of a resource. Kafka:
    /// `ControllerApis.authorizeAlterResource`.
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
            // The controller rejects unknown types.
            None => Ok(()),
        }
    }
}

/// The cluster right that the whole request needs.
fn right_of_request(context: &RequestContext) -> Option<&'static Right> {
    let rights = rights(context.api_key, Endpoint::of(context.listener()));
    let of_request = |right: &&Right| right.denied == Denied::Request;
    rights.unwrap_or_default().iter().find(of_request)
}

/// The message for a client whose whole request [`Broker::authorize`] has denied; `None` for other
/// errors. Kafka: `AuthHelper.authorizeClusterOperation`, which includes all details of the
/// request.
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

/// The elements that a request names more than once. The controller rejects these for every client.
pub(crate) fn repeated<T: Ord + Clone>(asked: impl Iterator<Item = T>) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    asked.filter(|it| !seen.insert(it.clone())).collect()
}
