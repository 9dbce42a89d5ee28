//! The filter of DescribeAcls and DeleteAcls.
//!
//! Kafka: `AclBindingFilter`, `ResourcePatternFilter`, `AccessControlEntryFilter`.

use bytestring::ByteString;

use crate::acl::{Acl, Pattern};
use crate::names::{Operation, PatternType, PermissionType, ResourceType, WILDCARD};

/// Matches ACLs; `None` and `Any` match everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclFilter {
    pub resource_type: ResourceType,
    pub name: Option<ByteString>,
    /// `Match` also matches the ACLs that apply to a resource of that name.
    pub pattern_type: PatternType,
    pub principal: Option<ByteString>,
    pub host: Option<ByteString>,
    pub operation: Operation,
    pub permission_type: PermissionType,
}

impl AclFilter {
    pub fn matches(&self, acl: &Acl) -> bool {
        let is_wanted = |wanted: &Option<ByteString>, value: &ByteString| {
            wanted.as_ref().is_none_or(|wanted| wanted == value)
        };
        self.matches_pattern(&acl.pattern)
            && is_wanted(&self.principal, &acl.principal)
            && is_wanted(&self.host, &acl.host)
            && (self.operation == Operation::Any || self.operation == acl.operation)
            && (self.permission_type == PermissionType::Any
                || self.permission_type == acl.permission_type)
    }

    fn matches_pattern(&self, pattern: &Pattern) -> bool {
        if self.resource_type != ResourceType::Any && self.resource_type != pattern.resource_type {
            return false;
        }
        let is_of_type = match self.pattern_type {
            PatternType::Any | PatternType::Match => true,
            other => other == pattern.pattern_type,
        };
        let Some(name) = &self.name else {
            return is_of_type;
        };
        is_of_type
            && match (self.pattern_type, pattern.pattern_type) {
                (PatternType::Match, PatternType::Literal) => {
                    *name == pattern.name || pattern.name == WILDCARD
                }
                (PatternType::Match, PatternType::Prefixed) => name.starts_with(&*pattern.name),
                _ => *name == pattern.name,
            }
    }

    pub fn is_pattern_unknown(&self) -> bool {
        self.resource_type == ResourceType::Unknown || self.pattern_type == PatternType::Unknown
    }

    pub fn is_entry_unknown(&self) -> bool {
        self.operation == Operation::Unknown || self.permission_type == PermissionType::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_matches_names_by_its_pattern_type() {
        let acls = [
            ("a", PatternType::Literal),
            ("ab", PatternType::Literal),
            ("*", PatternType::Literal),
            ("a", PatternType::Prefixed),
            ("b", PatternType::Prefixed),
        ]
        .map(|(name, pattern_type)| Acl {
            pattern: Pattern {
                resource_type: ResourceType::Topic,
                name: name.into(),
                pattern_type,
            },
            principal: "User:a".into(),
            host: WILDCARD.into(),
            operation: Operation::Read,
            permission_type: PermissionType::Allow,
        });
        let found = |pattern_type, name: Option<&str>| {
            let filter = AclFilter {
                resource_type: ResourceType::Topic,
                name: name.map(ByteString::from),
                pattern_type,
                principal: None,
                host: None,
                operation: Operation::Any,
                permission_type: PermissionType::Any,
            };
            let found = |acl: &Acl| filter.matches(acl);
            acls.each_ref().map(found)
        };
        let (no, yes) = (false, true);
        assert_eq!(
            found(PatternType::Literal, Some("a")),
            [yes, no, no, no, no]
        );
        assert_eq!(
            found(PatternType::Prefixed, Some("a")),
            [no, no, no, yes, no]
        );
        assert_eq!(found(PatternType::Any, Some("a")), [yes, no, no, yes, no]);
        assert_eq!(
            found(PatternType::Match, Some("ab")),
            [no, yes, yes, yes, no]
        );
        assert_eq!(found(PatternType::Prefixed, None), [no, no, no, yes, yes]);
        assert_eq!(found(PatternType::Match, None), [yes; 5]);
    }
}
