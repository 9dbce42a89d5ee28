//! An index of the ACLs of a cluster by resource.
//!
//! A decision looks up the principal with the name of the resource, with `*`, and with each existing
//! length of a prefix. It therefore takes a few lookups, whatever the number of ACLs. Hosts, and the
//! ACLs for an explanation, are in maps by pattern and principal that most decisions do not touch.
//! A clone shares everything with its original, so that the next state of the index is built while
//! the current one is used.
//!
//! Kafka: `AclCache`, `StandardAuthorizerData.checkSection`.

use bytestring::ByteString;

use crate::acl::Acl;
use crate::host_range::{HostRange, address_of};
use crate::name_map::NameMap;
use crate::names::{Operation, PatternType, ResourceType, WILDCARD};
use crate::pair_map::{Hashed, PairMap};

/// All ACLs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AclIndex {
    by_type: [OfType; ResourceType::ALL.len()],
    len: usize,
}

/// The ACLs of one resource type.
#[derive(Clone, Debug, Default)]
struct OfType {
    literal: NameMap<OfPattern>,
    /// The ACLs of `*`, which are LITERAL.
    wildcard: OfPattern,
    prefixed: NameMap<OfPattern>,
    /// The lengths of prefixes and the number of patterns with each length, in descending order.
    prefix_lengths: Vec<(usize, usize)>,
    /// The decisions of the same ACLs by pattern and principal; of LITERAL ones, `*` among them.
    literal_access: PairMap<Access>,
    prefixed_access: PairMap<Access>,
    /// The number of ACLs of `User:*`.
    everybody_len: usize,
}

/// What a principal may do by its ACLs with the same pattern.
#[derive(Clone, Copy, Debug, Default)]
struct Access {
    any_host: Operations,
    /// Whether there are ACLs for some hosts as well.
    has_hosts: bool,
}

/// The ACLs with the same pattern.
#[derive(Clone, Debug, Default)]
struct OfPattern {
    /// The ACLs of `User:*`.
    of_everybody: OfPrincipal,
    by_principal: NameMap<OfPrincipal>,
    len: usize,
}

/// The ACLs of one principal with the same pattern.
#[derive(Clone, Debug, Default)]
struct OfPrincipal {
    any_host: Operations,
    /// By address, sorted.
    by_host: Vec<(ByteString, Operations)>,
    by_range: Vec<(HostRange, Operations)>,
    /// The ACLs from which the above is computed.
    acls: Vec<Acl>,
}

/// The operations that ACLs allow and deny, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Operations {
    allowed: u16,
    denied: u16,
}

/// Every operation has a bit.
const _: () = assert!(Operation::ALL.len() <= u16::BITS as usize);

/// The decision of the ACLs of a resource about an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Denied,
    Allowed,
    /// The resource has ACLs, but none of them matches.
    Undecided,
    NoAcls,
}

impl AclIndex {
    pub fn insert(&mut self, acl: Acl) {
        self.len += 1;
        self.of_type_mut(&acl).insert(acl);
    }

    /// Removes one ACL that is equal to this one.
    pub fn remove(&mut self, acl: &Acl) {
        if self.of_type_mut(acl).remove(acl) {
            self.len -= 1;
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn of_type_mut(&mut self, acl: &Acl) -> &mut OfType {
        &mut self.by_type[acl.pattern.resource_type as usize]
    }

    pub(crate) fn verdict(
        &self,
        principal: &str,
        host: &str,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> Verdict {
        let of_type = &self.by_type[resource_type as usize];
        let bit = bit_of(operation);
        let Operations { allowed, denied } = of_type.operations(principal, host, name);
        if denied & bit != 0 {
            return Verdict::Denied;
        }
        if allowed & bit != 0 {
            return Verdict::Allowed;
        }
        match of_type.about(name).next() {
            Some(_) => Verdict::Undecided,
            None => Verdict::NoAcls,
        }
    }

    /// The ACLs that match an operation, in Kafka's search order.
    pub(crate) fn deciding<'a>(
        &'a self,
        principal: &str,
        host: &str,
        operation: Operation,
        resource_type: ResourceType,
        name: &'a str,
    ) -> Vec<&'a Acl> {
        self.of_principal(principal, operation, resource_type, name, |acl| {
            acl.is_about(principal, host)
        })
    }

    /// The ACLs that would match the operation from another address, in the same order.
    pub(crate) fn other_host_acls<'a>(
        &'a self,
        principal: &str,
        host: &str,
        operation: Operation,
        resource_type: ResourceType,
        name: &'a str,
    ) -> Vec<&'a Acl> {
        self.of_principal(principal, operation, resource_type, name, |acl| {
            !acl.is_about(principal, host)
        })
    }

    /// The ACLs that match an operation of a principal from any address, and the condition.
    fn of_principal<'a>(
        &'a self,
        principal: &str,
        operation: Operation,
        resource_type: ResourceType,
        name: &'a str,
        is_wanted: impl Fn(&Acl) -> bool,
    ) -> Vec<&'a Acl> {
        let of_type = &self.by_type[resource_type as usize];
        let mut found: Vec<&Acl> = of_type
            .about(name)
            .flat_map(|pattern| pattern.of_principal(principal))
            .flat_map(|of_principal| &of_principal.acls)
            .filter(|acl| is_wanted(acl) && acl.covers(operation))
            .collect();
        let is_wildcard = |acl: &Acl| {
            acl.pattern.name == WILDCARD && acl.pattern.pattern_type == PatternType::Literal
        };
        found.sort_by(|a, b| is_wildcard(a).cmp(&is_wildcard(b)).then_with(|| a.cmp(b)));
        found
    }

    /// The ACLs of a resource type that apply to the principal and host, in no particular order.
    pub(crate) fn of_client<'a>(
        &'a self,
        principal: &'a str,
        host: &'a str,
        resource_type: ResourceType,
    ) -> impl Iterator<Item = &'a Acl> {
        let of_type = &self.by_type[resource_type as usize];
        let named = of_type.literal.values().chain(of_type.prefixed.values());
        let patterns = named.chain([&of_type.wildcard]);
        patterns
            .flat_map(move |pattern| pattern.of_principal(principal))
            .flat_map(|of_principal| &of_principal.acls)
            .filter(move |acl| acl.is_about(principal, host))
    }
}

impl OfType {
    /// What all ACLs together decide about a client and a resource.
    fn operations(&self, principal: &str, host: &str, name: &str) -> Operations {
        let own = self.operations_of(principal, host, name);
        match self.everybody_len {
            0 => own,
            _ => own.and(self.operations_of(EVERYBODY, host, name)),
        }
    }

    /// What the ACLs of one principal decide.
    fn operations_of(&self, principal: &str, host: &str, name: &str) -> Operations {
        let key = Hashed::new(principal);
        let mut all = Operations::default();
        if name != WILDCARD
            && let Some(access) = self.literal_access.get(name, key)
        {
            all = all.and(access.operations(principal, host, || self.literal.get(name)));
        }
        for (length, _) in &self.prefix_lengths {
            // `None` if the name is shorter, or if the length is not at a character boundary.
            if let Some(prefix) = name.get(..*length)
                && let Some(access) = self.prefixed_access.get(prefix, key)
            {
                all = all.and(access.operations(principal, host, || self.prefixed.get(prefix)));
            }
        }
        if self.wildcard.len > 0
            && let Some(access) = self.literal_access.get(WILDCARD, key)
        {
            all = all.and(access.operations(principal, host, || Some(&self.wildcard)));
        }
        all
    }

    /// The patterns with ACLs that match a name.
    fn about<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a OfPattern> {
        let literal = match name {
            WILDCARD => None,
            _ => self.literal.get(name),
        };
        let lengths = self.prefix_lengths.iter();
        let prefixed = lengths.filter_map(move |(length, _)| {
            // `None` if the name is shorter, or if the length is not at a character boundary.
            let prefix = name.get(..*length)?;
            self.prefixed.get(prefix)
        });
        let wildcard = Some(&self.wildcard).filter(|wildcard| wildcard.len > 0);
        literal.into_iter().chain(prefixed).chain(wildcard)
    }

    fn insert(&mut self, acl: Acl) {
        let (pattern, principal) = (Pattern::of(&acl), acl.principal.clone());
        self.everybody_len += usize::from(principal == EVERYBODY);
        self.insert_into(&pattern, acl);
        self.update_access(&pattern, &principal);
    }

    fn insert_into(&mut self, pattern: &Pattern, acl: Acl) {
        let Pattern { name, is_literal } = pattern;
        if *is_literal && name == WILDCARD {
            return self.wildcard.insert(acl);
        }
        let patterns = match *is_literal {
            true => &mut self.literal,
            false => &mut self.prefixed,
        };
        if let Some(pattern) = patterns.get_mut(name) {
            return pattern.insert(acl);
        }
        let mut pattern = OfPattern::default();
        pattern.insert(acl);
        patterns.insert_new(name.clone(), pattern);
        if !is_literal {
            self.on_prefix_added(name.len());
        }
    }

    /// Returns whether the ACL existed.
    fn remove(&mut self, acl: &Acl) -> bool {
        let pattern = Pattern::of(acl);
        let is_removed = self.remove_from(&pattern, acl);
        if is_removed {
            self.everybody_len -= usize::from(acl.principal == EVERYBODY);
            self.update_access(&pattern, &acl.principal);
        }
        is_removed
    }

    fn remove_from(&mut self, pattern: &Pattern, acl: &Acl) -> bool {
        let Pattern { name, is_literal } = pattern;
        if *is_literal && name == WILDCARD {
            return self.wildcard.remove(acl);
        }
        let patterns = match *is_literal {
            true => &mut self.literal,
            false => &mut self.prefixed,
        };
        let Some(pattern) = patterns.get_mut(name) else {
            return false;
        };
        let is_removed = pattern.remove(acl);
        if pattern.len == 0 {
            patterns.remove(name);
            if !is_literal {
                self.on_prefix_removed(name.len());
            }
        }
        is_removed
    }

    /// Computes the access of a principal anew, after a change of its ACLs with the pattern.
    fn update_access(&mut self, pattern: &Pattern, principal: &str) {
        let Pattern { name, is_literal } = pattern;
        let (of_pattern, access) = match *is_literal {
            true if name == WILDCARD => (Some(&self.wildcard), &mut self.literal_access),
            true => (self.literal.get(name), &mut self.literal_access),
            false => (self.prefixed.get(name), &mut self.prefixed_access),
        };
        let own = of_pattern.and_then(|of_pattern| of_pattern.of(principal));
        access.set(name, Hashed::new(principal), own.map(OfPrincipal::access));
    }

    fn on_prefix_added(&mut self, length: usize) {
        let lengths = &mut self.prefix_lengths;
        match lengths.binary_search_by(|(other, _)| length.cmp(other)) {
            Ok(found) => lengths[found].1 += 1,
            Err(place) => lengths.insert(place, (length, 1)),
        }
    }

    fn on_prefix_removed(&mut self, length: usize) {
        self.prefix_lengths.retain_mut(|(other, patterns)| {
            *patterns -= usize::from(*other == length);
            *patterns > 0
        });
    }
}

/// The key of an ACL in the index. Any pattern that is not LITERAL counts as a prefix, as in Kafka.
struct Pattern {
    name: ByteString,
    is_literal: bool,
}

impl Pattern {
    fn of(acl: &Acl) -> Pattern {
        Pattern {
            name: acl.pattern.name.clone(),
            is_literal: acl.pattern.pattern_type == PatternType::Literal,
        }
    }
}

impl OfPattern {
    /// The ACLs with exactly this principal, if there are some.
    fn of(&self, principal: &str) -> Option<&OfPrincipal> {
        let own = match principal {
            EVERYBODY => Some(&self.of_everybody),
            _ => self.by_principal.get(principal),
        };
        own.filter(|own| !own.acls.is_empty())
    }

    fn of_principal(&self, principal: &str) -> impl Iterator<Item = &OfPrincipal> {
        let own = self.by_principal.get(principal);
        own.into_iter().chain([&self.of_everybody])
    }

    fn insert(&mut self, acl: Acl) {
        self.len += 1;
        if acl.principal == EVERYBODY {
            return self.of_everybody.insert(acl);
        }
        if let Some(own) = self.by_principal.get_mut(&acl.principal) {
            return own.insert(acl);
        }
        let mut own = OfPrincipal::default();
        let principal = acl.principal.clone();
        own.insert(acl);
        self.by_principal.insert_new(principal, own);
    }

    /// Returns whether the ACL existed.
    fn remove(&mut self, acl: &Acl) -> bool {
        let own = match &*acl.principal {
            EVERYBODY => Some(&mut self.of_everybody),
            principal => self.by_principal.get_mut(principal),
        };
        let Some(own) = own else {
            return false;
        };
        let is_removed = own.remove(acl);
        if own.acls.is_empty() {
            self.by_principal.remove(&acl.principal);
        }
        self.len -= usize::from(is_removed);
        is_removed
    }
}

const EVERYBODY: &str = "User:*";

impl Access {
    /// `pattern` finds the ACLs with the pattern, for those of hosts.
    fn operations<'a>(
        self,
        principal: &str,
        host: &str,
        pattern: impl FnOnce() -> Option<&'a OfPattern>,
    ) -> Operations {
        if !self.has_hosts {
            return self.any_host;
        }
        let own = pattern().and_then(|pattern| pattern.of(principal));
        own.map_or(self.any_host, |own| own.operations(host))
    }
}

impl OfPrincipal {
    fn access(&self) -> Access {
        Access {
            any_host: self.any_host,
            has_hosts: !self.by_host.is_empty() || !self.by_range.is_empty(),
        }
    }

    fn operations(&self, host: &str) -> Operations {
        let named = match self.host(host) {
            Ok(found) => self.by_host[found].1.and(self.any_host),
            Err(_) => self.any_host,
        };
        if self.by_range.is_empty() {
            return named;
        }
        let Some(address) = address_of(host) else {
            return named;
        };
        let ranges = self.by_range.iter();
        ranges
            .filter(|(range, _)| range.contains(address))
            .fold(named, |all, (_, operations)| all.and(*operations))
    }

    fn host(&self, host: &str) -> Result<usize, usize> {
        self.by_host
            .binary_search_by(|(other, _)| (**other).cmp(host))
    }

    fn insert(&mut self, acl: Acl) {
        self.add(&acl);
        if self.acls.is_empty() {
            // Most principals have one ACL with a pattern. A vector would take memory for four.
            self.acls.reserve_exact(1);
        }
        self.acls.push(acl);
    }

    fn add(&mut self, acl: &Acl) {
        let operations = Operations::of(acl);
        if acl.host == WILDCARD {
            self.any_host = self.any_host.and(operations);
            return;
        }
        if let Some(range) = acl.host_range() {
            return self.by_range.push((range, operations));
        }
        match self.host(&acl.host) {
            Ok(found) => self.by_host[found].1 = self.by_host[found].1.and(operations),
            Err(place) => self.by_host.insert(place, (acl.host.clone(), operations)),
        }
    }

    /// Returns whether the ACL existed.
    fn remove(&mut self, acl: &Acl) -> bool {
        let Some(found) = self.acls.iter().position(|other| other == acl) else {
            return false;
        };
        let mut acls = std::mem::take(self).acls;
        acls.swap_remove(found);
        for acl in &acls {
            self.add(acl);
        }
        self.acls = acls;
        true
    }
}

fn bit_of(operation: Operation) -> u16 {
    1_u16 << operation.code()
}

impl Operations {
    /// The operations that one ACL decides, including implied ones.
    fn of(acl: &Acl) -> Operations {
        let covered = Operation::ALL
            .iter()
            .filter(|operation| acl.covers(**operation));
        let bits = covered.fold(0, |bits, operation| bits | bit_of(*operation));
        match acl.is_allow() {
            true => Operations {
                allowed: bits,
                denied: 0,
            },
            false => Operations {
                allowed: 0,
                denied: bits,
            },
        }
    }

    fn and(self, other: Operations) -> Operations {
        Operations {
            allowed: self.allowed | other.allowed,
            denied: self.denied | other.denied,
        }
    }
}
