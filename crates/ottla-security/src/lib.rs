//! Who asks, what they may do, and how much of it: logins, principals, ACLs and the decision about one request, client
//! quotas.
//!
//! Owns: the names of Kafka's access control, the ACLs of a cluster in an index that decides in constant time, and the
//! rules by which they decide; the limits of clients and what they have used of them. Never touches: a clock, a socket, a
//! file, a log. The ACLs come from the metadata log's records, and the answer is a value; who logs it stands outside.
//!
//! Invariants:
//! 1. A DENY that matches wins over every ALLOW.
//! 2. Only a super user is allowed what no ACL allows, unless `allow.everyone.if.no.acl.found` is set and no ACL is
//!    about the resource.
//! 3. Nobody is let in whose mechanism the listener has not enabled, and no login tells whether a user exists.
//! 4. A decision allocates nothing, and takes the same time with ten ACLs and a hundred thousand.
//!
//! Kafka does the same in `org.apache.kafka.metadata.authorizer`, `org.apache.kafka.common.acl` and
//! `org.apache.kafka.common.security.authenticator`.

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type
    )
)]

mod principal;

mod names;

mod acl;

mod acl_filter;

mod name_map;

mod acl_index;

mod standard_authorizer;

mod sasl_authenticator;

mod delegation_token;

pub mod quota;

pub use acl::{Acl, Pattern};
pub use acl_filter::AclFilter;
pub use acl_index::AclIndex;
pub use delegation_token::{is_token_expired, token_login};
pub use names::{CLUSTER_NAME, Operation, PatternType, PermissionType, ResourceType, WILDCARD};
pub use principal::{InvalidPrincipal, Principal, host_address};
pub use sasl_authenticator::{
    Moment, OAuthIdentity, Outcome, Reply, SaslAuthenticator, SaslCredentials, Session,
    TokenCredential,
};
pub use standard_authorizer::{
    Action, Client, Explanation, InvalidSuperUsers, Rule, StandardAuthorizer, SuperUsers,
};
