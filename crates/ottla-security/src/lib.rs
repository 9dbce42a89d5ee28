//! Access control: logins, principals, ACLs, the authorisation of a request, and client quotas.
//!
//! This crate owns the names of Kafka's access control, an index of the ACLs of a cluster that
//! decides in constant time, the rules of the decision, and the limits of clients and their usage.
//! It never touches a clock, a socket, a file or a log. The ACLs come from the records of the
//! metadata log, and a decision is a value; the caller logs it.
//!
//! Invariants:
//! 1. A matching DENY takes precedence over every ALLOW.
//! 2. Without a matching ALLOW, only a super user is authorised, unless
//!    `allow.everyone.if.no.acl.found` is set and the resource has no ACL.
//! 3. Only enabled mechanisms of the listener can be used, and no login reveals whether a user
//!    exists.
//! 4. A decision allocates nothing, and takes the same time with ten ACLs and with a hundred
//!    thousand.
//!
//! Kafka: `org.apache.kafka.metadata.authorizer`, `org.apache.kafka.common.acl`,
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

mod host_range;

mod acl;

mod acl_filter;

mod name_map;

mod pair_map;

mod acl_index;

mod standard_authorizer;

mod printable;

mod acl_flags;

mod decision;

mod sasl_authenticator;

mod delegation_token;

pub mod quota;

pub use acl::{Acl, Pattern};
pub use acl_filter::AclFilter;
pub use acl_flags::{flags_to_allow, flags_to_remove};
pub use acl_index::AclIndex;
pub use decision::Decision;
pub use delegation_token::{is_token_expired, token_login};
pub use host_range::HostRange;
pub use names::{CLUSTER_NAME, Operation, PatternType, PermissionType, ResourceType, WILDCARD};
pub use principal::{InvalidPrincipal, Principal, host_address};
pub use printable::escaped;
pub use sasl_authenticator::{
    KerberosAnswer, Moment, OAuthIdentity, Outcome, Reply, SaslAuthenticator, SaslCredentials,
    Session, TokenCredential,
};
pub use standard_authorizer::{
    Action, Client, Explanation, InvalidSuperUsers, Rule, StandardAuthorizer, SuperUsers,
};
