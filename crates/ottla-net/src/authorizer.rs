//! Decides whether a request is authorised.
//!
//! Every handler asks here before it accesses a resource. The ACLs follow the metadata image;
//! `ottla-security` makes the decision. Without `authorizer.class.name` everything is allowed, as
//! in Kafka. Until the ACLs are loaded, only super users are authorised.
//!
//! Kafka: `AuthHelper`, `StandardAuthorizer`, `AclPublisher`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_metrics::sharded::Counters;
use ottla_security::{AclIndex, Action, Operation, ResourceType, StandardAuthorizer, SuperUsers};
use ottla_sync::{ArcSwap, Mutex};

use crate::audit::{Audit, AuditTopic};
use crate::request_context::RequestContext;

/// Whether the authorisation table lists this operation on this resource type for the request.
pub type IsInTable = fn(&RequestContext, Operation, ResourceType) -> bool;

/// The authorizer of a node.
#[derive(Debug)]
pub struct Authorizer {
    /// `None` if everything is allowed.
    configured: Option<Configured>,
    /// Checked on each decision in builds with debug assertions, so that the documented table stays
    /// correct.
    is_in_table: IsInTable,
}

#[derive(Debug)]
struct Configured {
    /// The authorizer in use. Replaced as a whole.
    current: ArcSwap<StandardAuthorizer>,
    allow_everyone_if_no_acl_found: bool,
    /// Whether the first delta has been applied. The lock is held while the next authorizer is
    /// built.
    is_following: Mutex<bool>,
    /// Whether the ACLs of the cluster are in use, and not only the super users.
    is_loaded: AtomicBool,
    audit: Audit,
    /// How often it has decided: at 0 to deny, at 1 to allow.
    decisions: Counters<2>,
}

/// How often an authorizer has decided since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Decisions {
    pub allowed: u64,
    pub denied: u64,
}

impl Authorizer {
    pub fn new(config: &BrokerConfig, is_in_table: IsInTable) -> Authorizer {
        let configured = config.has_authorizer().then(|| {
            // The configuration was checked when it was read.
            let super_users = SuperUsers::parse(&config.super_users).unwrap_or_default();
            let before_the_acls = StandardAuthorizer {
                super_users,
                allow_everyone_if_no_acl_found: false,
                acls: AclIndex::default(),
            };
            Configured {
                current: ArcSwap::from_pointee(before_the_acls),
                allow_everyone_if_no_acl_found: config.allow_everyone_if_no_acl_found,
                is_following: Mutex::default(),
                is_loaded: AtomicBool::new(false),
                audit: Audit::new(config),
                decisions: Counters::default(),
            }
        });
        Authorizer {
            configured,
            is_in_table,
        }
    }

    /// An authorizer that allows everything.
    pub fn allow_all() -> Authorizer {
        Authorizer {
            configured: None,
            is_in_table: |_, _, _| true,
        }
    }

    /// Writes the audit file, if it is configured, until the node stops.
    pub async fn write_audit_file(self: Arc<Self>, context: Arc<NodeContext>) {
        if let Some(configured) = &self.configured {
            configured.audit.write_file(&context).await;
        }
    }

    /// The decisions that wait for `ottla.audit.topic`, if it is configured.
    pub fn audit_topic(&self) -> Option<&Arc<AuditTopic>> {
        self.configured.as_ref()?.audit.topic()
    }

    /// How many decisions are missing in the audit file and in the topic, as far as they are
    /// configured.
    pub fn lost_decisions(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let queues = self.configured.iter().flat_map(|it| it.audit.queues());
        queues.map(|(name, queue)| (name, queue.lost()))
    }

    pub fn is_configured(&self) -> bool {
        self.configured.is_some()
    }

    /// As Kafka counts: also for resources that the client did not name.
    pub fn decisions(&self) -> Decisions {
        let counted = self.configured.as_ref().map(|it| Decisions {
            allowed: it.decisions.get(1),
            denied: it.decisions.get(0),
        });
        counted.unwrap_or_default()
    }

    /// Whether a denial is definite. Before the ACLs are loaded, it only means that the client is
    /// not a super user.
    pub fn is_ready(&self) -> bool {
        let configured = self.configured.as_ref();
        configured.is_none_or(|configured| configured.is_loaded.load(Ordering::Acquire))
    }

    /// Loads all ACLs of an image. For the time before the first delta.
    pub fn load(&self, image: &MetadataImage) {
        if let Some(configured) = &self.configured {
            let is_following = configured.is_following.lock();
            if !*is_following {
                configured.load(image);
            }
        }
    }

    /// Applies the ACL changes of a delta. The first delta is not relative to the image that was
    /// loaded before, so it reloads all ACLs.
    pub fn follow(&self, delta: &MetadataDelta) {
        let Some(configured) = &self.configured else {
            return;
        };
        let mut is_following = configured.is_following.lock();
        if !std::mem::replace(&mut *is_following, true) {
            return configured.load(&delta.after);
        }
        if delta.acls.is_empty() {
            return;
        }
        let mut next = StandardAuthorizer::clone(&configured.current.load());
        for id in &delta.acls {
            if let Some(gone) = delta.before.kept.acls.get(*id) {
                next.acls.remove(&gone);
            }
            if let Some(added) = delta.after.kept.acls.get(*id) {
                next.acls.insert(added);
            }
        }
        configured.current.store(next.into());
    }

    /// Whether the client may perform this operation on this resource. Logs a denial.
    pub fn is_allowed(
        &self,
        context: &RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> bool {
        self.decide(context, operation, resource_type, name, true)
    }

    /// Like [`is_allowed`](Self::is_allowed), for resources that the client did not name, or
    /// operations that may be allowed by another rule: a denial is not logged.
    pub fn is_allowed_quietly(
        &self,
        context: &RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> bool {
        self.decide(context, operation, resource_type, name, false)
    }

    fn decide(
        &self,
        context: &RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
        is_asked: bool,
    ) -> bool {
        debug_assert!(
            (self.is_in_table)(context, operation, resource_type),
            "the table of authorisation has no {operation} of {resource_type} for {}",
            context.api_key
        );
        let Some(configured) = &self.configured else {
            return true;
        };
        let is_ready = configured.is_loaded.load(Ordering::Acquire);
        let current = configured.current.load();
        let client = context.identity.client();
        let action = Action {
            operation,
            resource_type,
            name,
        };
        let is_allowed = current.is_allowed(client, action);
        if is_allowed || is_ready {
            configured.decisions.add(usize::from(is_allowed), 1);
        }
        let (audit, api_key) = (&configured.audit, context.api_key);
        match is_allowed {
            true => audit.on_allowed(&current, client, action, api_key),
            false if is_ready => audit.on_denied(&current, client, action, api_key, is_asked),
            // Not a decision: the ACLs are not known yet.
            false => {}
        }
        is_allowed
    }

    /// Whether there is any resource of this type on which the client may perform this operation.
    pub fn is_allowed_by_resource_type(
        &self,
        context: &RequestContext,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool {
        debug_assert!((self.is_in_table)(context, operation, resource_type));
        self.configured.as_ref().is_none_or(|configured| {
            let client = context.identity.client();
            let current = configured.current.load();
            current.is_allowed_by_resource_type(client, operation, resource_type)
        })
    }

    /// The operations that the client may perform on the resource, as the bit field in the
    /// responses of DescribeGroups, Metadata and DescribeCluster.
    pub fn authorized_operations(
        &self,
        context: &RequestContext,
        resource_type: ResourceType,
        name: &str,
    ) -> i32 {
        let current = self.configured.as_ref().map(|it| it.current.load());
        let client = context.identity.client();
        let is_allowed = |operation: &&Operation| {
            let action = Action {
                operation: **operation,
                resource_type,
                name,
            };
            let decided = current.as_ref().map(|it| it.is_allowed(client, action));
            decided.unwrap_or(true)
        };
        let operations = resource_type.operations().iter().filter(is_allowed);
        operations.fold(0, |field, operation| field | operation.bit())
    }
}

impl Configured {
    fn load(&self, image: &MetadataImage) {
        let mut acls = AclIndex::default();
        for (_, acl) in image.kept.acls.acls() {
            acls.insert(acl);
        }
        let super_users = self.current.load().super_users.clone();
        self.current.store(
            StandardAuthorizer {
                super_users,
                allow_everyone_if_no_acl_found: self.allow_everyone_if_no_acl_found,
                acls,
            }
            .into(),
        );
        self.is_loaded.store(true, Ordering::Release);
    }
}
