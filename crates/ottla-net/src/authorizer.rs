//! The one place that decides whether a request may do what it asks for.
//!
//! Every handler asks here before it touches a resource. The ACLs follow the metadata image; the decision itself is
//! `ottla-security`'s. Without `authorizer.class.name` everything is allowed, as in Kafka. Until the ACLs are loaded, only
//! super users are.
//!
//! Kafka: `AuthHelper`, `StandardAuthorizer`, `AclPublisher`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_security::{AclIndex, Action, Operation, ResourceType, StandardAuthorizer, SuperUsers};
use ottla_sync::{ArcSwap, Mutex};

use crate::audit::Audit;
use crate::request_context::RequestContext;

/// Whether the table of authorisation says that a request asks for this operation on this type of resource.
pub type IsInTable = fn(&RequestContext, Operation, ResourceType) -> bool;

/// Decides on requests.
#[derive(Debug)]
pub struct Authorizer {
    /// `None` where everything is allowed.
    configured: Option<Configured>,
    /// Checked with each question in builds with assertions, so that the table is true.
    is_in_table: IsInTable,
}

#[derive(Debug)]
struct Configured {
    /// What decides. Replaced whole.
    current: ArcSwap<StandardAuthorizer>,
    allow_everyone_if_no_acl_found: bool,
    /// Whether what is in force follows the deltas. Held while the next authorizer is made.
    is_following: Mutex<bool>,
    /// Whether the ACLs of the cluster are in force, and not only the super users.
    is_loaded: AtomicBool,
    audit: Audit,
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
            }
        });
        Authorizer {
            configured,
            is_in_table,
        }
    }

    /// Allows everything.
    pub fn allow_all() -> Authorizer {
        Authorizer {
            configured: None,
            is_in_table: |_, _, _| true,
        }
    }

    /// Writes the audit file, where there is to be one, until the node stops.
    pub async fn write_audit_file(self: Arc<Self>, context: Arc<NodeContext>) {
        if let Some(configured) = &self.configured {
            configured.audit.write_file(&context).await;
        }
    }

    pub fn is_configured(&self) -> bool {
        self.configured.is_some()
    }

    /// Whether a denial means what it says. Before the ACLs are loaded it says only that the client is no super user.
    pub fn is_ready(&self) -> bool {
        let configured = self.configured.as_ref();
        configured.is_none_or(|configured| configured.is_loaded.load(Ordering::Acquire))
    }

    /// Puts all ACLs of an image in force, for the time before the first delta.
    pub fn load(&self, image: &MetadataImage) {
        if let Some(configured) = &self.configured {
            let is_following = configured.is_following.lock();
            if !*is_following {
                configured.load(image);
            }
        }
    }

    /// Puts the ACLs of a delta in force. The first one says nothing about what was loaded before it, and replaces that.
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

    /// Whether the client may do this to that resource.
    pub fn is_allowed(
        &self,
        context: &RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> bool {
        self.decide(context, operation, resource_type, name, true)
    }

    /// The same for what is not asked for by name, or may be allowed otherwise: a denial is no news.
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
        let (audit, api_key) = (&configured.audit, context.api_key);
        match is_allowed {
            true => audit.on_allowed(&current, client, action, api_key),
            false if is_ready => audit.on_denied(&current, client, action, api_key, is_asked),
            // Nobody has decided that: the ACLs are not known yet.
            false => {}
        }
        is_allowed
    }

    /// Whether there is any resource of the type that the client may do this to.
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

    /// The operations that the client may do to a resource, as the bit field that DescribeGroups,
    /// Metadata and DescribeCluster answer with.
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
