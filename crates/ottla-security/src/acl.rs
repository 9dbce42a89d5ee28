//! One ACL: a principal, a host, an operation, a resource pattern, and ALLOW or DENY.
//!
//! Kafka: `StandardAcl`, `ResourcePattern`, `AccessControlEntry`.

use std::cmp::Ordering;
use std::fmt;

use bytestring::ByteString;
use ottla_protocol::metadata_records::AccessControlEntryRecord;
use ottla_types::Uuid;

use crate::host_range::{HostRange, address_of};
use crate::names::{Operation, PatternType, PermissionType, ResourceType, WILDCARD};

/// The resources that an ACL applies to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    pub resource_type: ResourceType,
    pub name: ByteString,
    pub pattern_type: PatternType,
}

/// An ACL without its ID. Sorts in the order in which Kafka searches: by resource type, by name in
/// descending order so that longer prefixes come first, then by the rest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Acl {
    pub pattern: Pattern,
    /// `User:alice`; `User:*` means everybody.
    pub principal: ByteString,
    /// An address in the spelling of [`host_address`](crate::host_address), or a
    /// [range](HostRange) of them; `*` means any.
    pub host: ByteString,
    pub operation: Operation,
    pub permission_type: PermissionType,
}

impl Acl {
    pub fn from_record(record: &AccessControlEntryRecord) -> Acl {
        Acl {
            pattern: Pattern {
                resource_type: ResourceType::from_code(record.resource_type),
                name: record.resource_name.clone(),
                pattern_type: PatternType::from_code(record.pattern_type),
            },
            principal: record.principal.clone(),
            host: record.host.clone(),
            operation: Operation::from_code(record.operation),
            permission_type: PermissionType::from_code(record.permission_type),
        }
    }

    pub fn to_record(&self, id: Uuid) -> AccessControlEntryRecord {
        AccessControlEntryRecord {
            id,
            resource_type: self.pattern.resource_type.code(),
            resource_name: self.pattern.name.clone(),
            pattern_type: self.pattern.pattern_type.code(),
            principal: self.principal.clone(),
            host: self.host.clone(),
            operation: self.operation.code(),
            permission_type: self.permission_type.code(),
            ..Default::default()
        }
    }

    /// Whether the ACL applies to a request by `principal` from `host`.
    pub(crate) fn is_about(&self, principal: &str, host: &str) -> bool {
        (self.principal == principal || self.principal == "User:*")
            && (self.host == WILDCARD || self.host == host || self.is_in_range(host))
    }

    fn is_in_range(&self, host: &str) -> bool {
        self.host_range()
            .is_some_and(|range| address_of(host).is_some_and(|it| range.contains(it)))
    }

    /// `None` if the host is an address or any, or is meant as a range but is none.
    pub(crate) fn host_range(&self) -> Option<HostRange> {
        match HostRange::is_one(&self.host) {
            true => HostRange::parse(&self.host).ok(),
            false => None,
        }
    }

    /// Whether the ACL decides about the operation. Anything but ALLOW counts as DENY, as in Kafka.
    pub(crate) fn covers(&self, operation: Operation) -> bool {
        match self.is_allow() {
            true => self.operation.grants(operation),
            false => self.operation == Operation::All || self.operation == operation,
        }
    }

    pub fn is_allow(&self) -> bool {
        self.permission_type == PermissionType::Allow
    }
}

impl Ord for Acl {
    fn cmp(&self, other: &Acl) -> Ordering {
        let (own, others) = (&self.pattern, &other.pattern);
        own.resource_type
            .cmp(&others.resource_type)
            .then_with(|| others.name.cmp(&own.name))
            .then_with(|| own.pattern_type.cmp(&others.pattern_type))
            .then_with(|| self.operation.cmp(&other.operation))
            .then_with(|| self.principal.cmp(&other.principal))
            .then_with(|| self.host.cmp(&other.host))
            .then_with(|| self.permission_type.cmp(&other.permission_type))
    }
}

impl PartialOrd for Acl {
    fn partial_cmp(&self, other: &Acl) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As Java prints the record. Audit lines contain this.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pattern {
            resource_type,
            name,
            pattern_type,
        } = &self.pattern;
        write!(
            f,
            "StandardAcl[resourceType={resource_type}, resourceName={name}, \
             patternType={pattern_type}, principal={}, host={}, operation={}, permissionType={}]",
            self.principal, self.host, self.operation, self.permission_type
        )
    }
}
