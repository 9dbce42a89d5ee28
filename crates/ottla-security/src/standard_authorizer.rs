//! The authorisation decision: super users, then ACLs, then the default.
//!
//! Kafka: `StandardAuthorizerData`, and `Authorizer.authorizeByResourceType` for the decision about
//! any resource of a type.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytestring::ByteString;

use crate::acl::Acl;
use crate::acl_index::{AclIndex, Verdict};
use crate::names::{Operation, PatternType, ResourceType, WILDCARD};
use crate::principal::{InvalidPrincipal, Principal};

/// The principals that may do everything: the setting `super.users`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SuperUsers(Arc<BTreeSet<String>>);

/// An element of `super.users` that is not a principal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidSuperUsers(pub InvalidPrincipal);

impl fmt::Display for InvalidSuperUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = &self.0.0;
        write!(
            f,
            "{part} is not a principal; give principals as User:name, separated by semicolons"
        )
    }
}

impl SuperUsers {
    /// Parses `User:alice;User:bob`.
    pub fn parse(text: &str) -> Result<SuperUsers, InvalidSuperUsers> {
        let mut users = BTreeSet::new();
        for part in text.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            Principal::parse(part).map_err(InvalidSuperUsers)?;
            users.insert(part.to_owned());
        }
        Ok(SuperUsers(Arc::new(users)))
    }

    pub fn contains(&self, principal: &str) -> bool {
        self.0.contains(principal)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The client of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client<'a> {
    /// `User:alice`.
    pub principal: &'a str,
    /// In the spelling of [`host_address`](crate::host_address).
    pub host: &'a str,
}

/// The operation and the resource that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action<'a> {
    pub operation: Operation,
    pub resource_type: ResourceType,
    pub name: &'a str,
}

/// The rule that allows or denies. Prints in the format of Kafka's audit lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    SuperUser,
    Acl(Acl),
    /// The resource has no ACL, and `allow.everyone.if.no.acl.found` is set.
    DefaultAllow,
    DefaultDeny,
}

impl Rule {
    pub fn is_allowed(&self) -> bool {
        match self {
            Rule::SuperUser | Rule::DefaultAllow => true,
            Rule::Acl(acl) => acl.is_allow(),
            Rule::DefaultDeny => false,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::SuperUser => f.write_str("SuperUser"),
            Rule::Acl(acl) => write!(f, "MatchingAcl(acl={acl})"),
            Rule::DefaultAllow => f.write_str("DefaultAllow"),
            Rule::DefaultDeny => f.write_str("DefaultDeny"),
        }
    }
}

/// A decision and its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    pub rule: Rule,
    /// The ACLs that match the client, the resource and the operation, including the one that
    /// decides.
    pub matching: Vec<Acl>,
}

impl Explanation {
    /// The ACLs that match besides the one that decides.
    pub fn others(&self) -> impl Iterator<Item = &Acl> {
        let is_decisive = |acl: &Acl| matches!(&self.rule, Rule::Acl(it) if it == acl);
        self.matching.iter().filter(move |acl| !is_decisive(acl))
    }
}

/// Authorises requests by ACLs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StandardAuthorizer {
    pub super_users: SuperUsers,
    pub allow_everyone_if_no_acl_found: bool,
    pub acls: AclIndex,
}

impl StandardAuthorizer {
    pub fn is_allowed(&self, client: Client<'_>, action: Action<'_>) -> bool {
        if self.super_users.contains(client.principal) {
            return true;
        }
        match self.verdict(client, action) {
            Verdict::Allowed => true,
            Verdict::Denied | Verdict::Undecided => false,
            Verdict::NoAcls => self.allow_everyone_if_no_acl_found,
        }
    }

    fn verdict(&self, client: Client<'_>, action: Action<'_>) -> Verdict {
        self.acls.verdict(
            client.principal,
            client.host,
            action.operation,
            action.resource_type,
            action.name,
        )
    }

    /// The same decision with its reason. Allocates.
    pub fn explain(&self, client: Client<'_>, action: Action<'_>) -> Explanation {
        let deciding = self.acls.deciding(
            client.principal,
            client.host,
            action.operation,
            action.resource_type,
            action.name,
        );
        let denying = deciding.iter().find(|acl| !acl.is_allow());
        // Kafka reports the last ALLOW that it has found.
        let decisive = denying.or(deciding.last());
        let is_super_user = self.super_users.contains(client.principal);
        let rule = match (decisive, self.verdict(client, action)) {
            _ if is_super_user => Rule::SuperUser,
            (Some(acl), _) => Rule::Acl((*acl).clone()),
            (None, Verdict::NoAcls) if self.allow_everyone_if_no_acl_found => Rule::DefaultAllow,
            (None, _) => Rule::DefaultDeny,
        };
        Explanation {
            rule,
            matching: deciding.into_iter().cloned().collect(),
        }
    }

    /// The ACLs that would match the same client at another address.
    pub fn other_host_acls(&self, client: Client<'_>, action: Action<'_>) -> Vec<Acl> {
        let found = self.acls.other_host_acls(
            client.principal,
            client.host,
            action.operation,
            action.resource_type,
            action.name,
        );
        found.into_iter().cloned().collect()
    }

    /// Whether there is any resource of this type on which the client may perform the operation.
    /// Takes time in proportion to the number of patterns.
    pub fn is_allowed_by_resource_type(
        &self,
        client: Client<'_>,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool {
        // Kafka first authorises an arbitrary name: a super user is allowed despite any DENY, and
        // without ACLs the default applies.
        let some_resource = Action {
            operation,
            resource_type,
            name: "hardcode",
        };
        if self.is_allowed(client, some_resource) {
            return true;
        }
        let mut denied_names: BTreeSet<&str> = BTreeSet::new();
        let mut denied_prefixes: BTreeSet<&str> = BTreeSet::new();
        let mut allowed: Vec<(&ByteString, PatternType)> = Vec::new();
        let mut is_any_allowed = false;
        let acls = self
            .acls
            .of_client(client.principal, client.host, resource_type);
        // Operations imply no others here, as in Kafka.
        for acl in acls.filter(|it| it.operation == operation || it.operation == Operation::All) {
            let (name, pattern_type) = (&acl.pattern.name, acl.pattern.pattern_type);
            let is_wildcard = pattern_type == PatternType::Literal && name == WILDCARD;
            match (acl.is_allow(), is_wildcard, pattern_type) {
                (false, true, _) => return false,
                (false, false, PatternType::Literal) => drop(denied_names.insert(name)),
                (false, false, _) => drop(denied_prefixes.insert(name)),
                (true, true, _) => is_any_allowed = true,
                (true, false, _) => allowed.push((name, pattern_type)),
            }
        }
        let is_denied = |name: &str, pattern_type| {
            let is_name_denied =
                pattern_type == PatternType::Literal && denied_names.contains(name);
            let mut ends = name.char_indices().map(|(at, char)| at + char.len_utf8());
            is_name_denied || ends.any(|end| denied_prefixes.contains(&name[..end]))
        };
        is_any_allowed
            || allowed
                .iter()
                .any(|(name, pattern_type)| !is_denied(name, *pattern_type))
    }
}

#[cfg(test)]
mod tests;
