//! `--dry-run`: which rules a change would add or remove, and whose permissions would change.
//!
//! Names that the same patterns match are decided alike, and so are principals and addresses that
//! no rule names. A change is therefore compared for one example of each such class, with the
//! brokers' own decision, before and after.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use ottla_client::Admin;
use ottla_client::admin::EndpointType;
use ottla_security::{
    Acl, AclFilter, Action, Client, Operation, Pattern, PatternType, PermissionType, ResourceType,
    StandardAuthorizer, WILDCARD,
};

use super::audit::{AuditArgs, MAX_DECISIONS};
use super::rules::{
    Entry, Target, acl, acl_filter, acl_in_words, acls, filter, host_in_words, resource_in_words,
};
use super::seen::Seen;
use super::{authorizer_settings, node_settings};

/// Continues a name so that it is none that a rule names.
const UNNAMED: &str = "\u{10ffff}";

pub(super) async fn run(
    admin: &Admin,
    endpoint_type: EndpointType,
    changes: &BTreeMap<Target, BTreeSet<Entry>>,
    removes: bool,
    audit: &AuditArgs,
) -> anyhow::Result<()> {
    let nodes = node_settings::read(admin, endpoint_type).await?;
    let settings = authorizer_settings::of(&nodes, None)?;
    let before = acls(admin, &filter(None, None)).await?;
    let (changed, after) = match removes {
        true => removed(&before, changes),
        false => added(&before, changes),
    };
    let verb = if removes { "remove" } else { "add" };
    for acl in &changed {
        println!("Would {verb}: {}", acl_in_words(acl));
    }
    if changed.is_empty() {
        println!("No rule would change.");
        return Ok(());
    }
    let with = |acls: &[Acl]| {
        let mut authorizer = StandardAuthorizer {
            super_users: settings.super_users.clone(),
            allow_everyone_if_no_acl_found: settings.allow_everyone_if_no_acl_found,
            ..Default::default()
        };
        for acl in acls {
            authorizer.acls.insert(acl.clone());
        }
        authorizer
    };
    let rules = Rules {
        before: with(&before),
        after: with(&after),
        all: before.iter().chain(&changed).cloned().collect(),
        changed,
    };
    let differences = differences(&rules);
    match differences.is_empty() {
        true => println!("\nNo decision would change."),
        false => println!("\nDecisions that would change:"),
    }
    for (who, names) in &differences {
        println!("  {}", who.in_words(names));
    }
    let mut notes = settings.notes;
    if audit.is_given() || differences.keys().any(|who| !who.lost.is_empty()) {
        let audit = audit.read(admin, endpoint_type, &nodes, MAX_DECISIONS);
        let audit = audit.await?;
        match &audit.seen {
            Ok(seen) => {
                let (before, after) = (&rules.before, &rules.after);
                print!(
                    "\n{}",
                    seen.losses_in_words(before, after, Timestamp::now())
                );
                notes.extend(unseen(seen, &rules.changed));
            }
            Err(reason) => notes.push(format!("who uses what would be lost is unknown: {reason}")),
        }
        notes.extend(audit.notes);
    }
    for note in &notes {
        println!("note: {note}");
    }
    println!("\nNothing was changed.");
    Ok(())
}

/// What nobody can see in the decisions.
fn unseen(seen: &Seen, changed: &[Acl]) -> Vec<String> {
    let mut notes = vec![
        "Kafka has no request that lists the connected clients; one that was last seen long ago is \
         probably gone"
            .to_owned(),
    ];
    if let Some(topic) = seen.topic()
        && changed.iter().any(|acl| seen.may_hide_uses_of(acl))
    {
        notes.push(format!(
            "the topic {topic} does not show who reads and writes it itself, such as the brokers"
        ));
    }
    if seen.has_files() {
        notes.push("nothing is known of nodes whose files are not given".to_owned());
    }
    notes
}

/// The ACLs that would be added, and all ACLs after the change.
fn added(before: &[Acl], changes: &BTreeMap<Target, BTreeSet<Entry>>) -> (Vec<Acl>, Vec<Acl>) {
    let wanted = changes.iter().flat_map(|(target, entries)| {
        let of_target = entries.iter().map(move |entry| acl(target, entry));
        of_target.collect::<Vec<_>>()
    });
    let changed: Vec<Acl> = wanted.filter(|acl| !before.contains(acl)).collect();
    let after = before.iter().chain(&changed).cloned().collect();
    (changed, after)
}

/// The ACLs that would be removed, and the ACLs that would remain.
fn removed(before: &[Acl], changes: &BTreeMap<Target, BTreeSet<Entry>>) -> (Vec<Acl>, Vec<Acl>) {
    let filters: Vec<AclFilter> = changes
        .iter()
        .flat_map(|(target, entries)| match entries.is_empty() {
            true => vec![acl_filter(target, None)],
            false => entries
                .iter()
                .map(|entry| acl_filter(target, Some(entry)))
                .collect(),
        })
        .collect();
    let is_removed = |acl: &Acl| filters.iter().any(|filter| filter.matches(acl));
    before.iter().cloned().partition(is_removed)
}

struct Rules {
    before: StandardAuthorizer,
    after: StandardAuthorizer,
    /// Every ACL before or after the change.
    all: Vec<Acl>,
    changed: Vec<Acl>,
}

/// A set of names that are decided alike.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Names {
    One(String),
    /// The names with this prefix that no rule names more precisely.
    Beginning(String),
    /// The names that no rule names.
    Others,
}

impl Names {
    /// A name of the set.
    fn example(&self) -> String {
        match self {
            Names::One(name) => name.clone(),
            Names::Beginning(prefix) => format!("{prefix}{UNNAMED}"),
            Names::Others => UNNAMED.to_owned(),
        }
    }

    fn in_words(&self, resource_type: ResourceType) -> String {
        match self {
            Names::One(name) => resource_in_words(resource_type, name),
            Names::Beginning(prefix) => {
                format!("other {}s that begin with {prefix}", resource_type.title())
            }
            Names::Others => format!("other {}s", resource_type.title()),
        }
    }
}

/// Clients whose decisions change in the same way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct AffectedClient {
    /// `None`: every principal that no rule about the resource names.
    principal: Option<String>,
    /// In words.
    address: String,
    resource_type: ResourceType,
    gained: Vec<Operation>,
    lost: Vec<Operation>,
}

impl AffectedClient {
    fn in_words(&self, names: &[Names]) -> String {
        let operations = |verb: &str, operations: &[Operation]| {
            let titles: Vec<String> = operations.iter().map(|it| it.title()).collect();
            (!titles.is_empty()).then(|| format!("{verb} {}", titles.join(", ")))
        };
        let changes = [
            operations("loses", &self.lost),
            operations("gains", &self.gained),
        ];
        let changes: Vec<String> = changes.into_iter().flatten().collect();
        let names: Vec<String> = names
            .iter()
            .map(|names| names.in_words(self.resource_type))
            .collect();
        let principal = self.principal.as_deref();
        format!(
            "{} {} {} on {}",
            principal.unwrap_or("every principal without a rule of its own"),
            self.address,
            changes.join(" and "),
            names.join(", ")
        )
    }
}

/// The decisions that differ, by client.
fn differences(rules: &Rules) -> BTreeMap<AffectedClient, Vec<Names>> {
    let mut found: BTreeMap<AffectedClient, Vec<Names>> = BTreeMap::new();
    for (resource_type, names) in concerned(rules) {
        let example = names.example();
        let about = AclFilter {
            resource_type,
            name: Some(example.clone().into()),
            pattern_type: PatternType::Match,
            principal: None,
            host: None,
            operation: Operation::Any,
            permission_type: PermissionType::Any,
        };
        let about = rules.all.iter().filter(|acl| about.matches(acl));
        let (mut principals, mut hosts) = (BTreeSet::new(), BTreeSet::new());
        for acl in about {
            principals.insert(&*acl.principal);
            hosts.insert(&*acl.host);
        }
        principals.remove("User:*");
        hosts.remove(WILDCARD);
        let principals = principals.into_iter().map(Some).chain([None]);
        for principal in principals {
            let at = |host: &str| changes_of(rules, principal, host, resource_type, &example);
            let from_anywhere = at(WILDCARD);
            let addresses = hosts.iter().map(|host| (*host, at(host)));
            let exceptions: Vec<_> = addresses
                .filter(|(_, changes)| *changes != from_anywhere)
                .collect();
            let others = if exceptions.is_empty() {
                host_in_words(WILDCARD)
            } else {
                let but: Vec<&str> = exceptions.iter().map(|(host, _)| *host).collect();
                format!("from every address but {}", but.join(", "))
            };
            let addresses = exceptions
                .into_iter()
                .map(|(host, changes)| (host_in_words(host), changes));
            for (address, (gained, lost)) in addresses.chain([(others, from_anywhere)]) {
                if gained.is_empty() && lost.is_empty() {
                    continue;
                }
                let who = AffectedClient {
                    principal: principal.map(str::to_owned),
                    address,
                    resource_type,
                    gained,
                    lost,
                };
                found.entry(who).or_default().push(names.clone());
            }
        }
    }
    found
}

/// The names that the changed rules are about, divided so that each set is decided alike.
fn concerned(rules: &Rules) -> BTreeSet<(ResourceType, Names)> {
    let mut concerned = BTreeSet::new();
    for changed in &rules.changed {
        let pattern = &changed.pattern;
        let resource_type = pattern.resource_type;
        let prefix = match pattern.pattern_type {
            PatternType::Literal if pattern.name == WILDCARD => None,
            PatternType::Literal => {
                concerned.insert((resource_type, Names::One(pattern.name.to_string())));
                continue;
            }
            _ => Some(&*pattern.name),
        };
        if prefix.is_none() {
            concerned.insert((resource_type, Names::Others));
        }
        let of_type = rules.all.iter().map(|acl| &acl.pattern);
        let of_type = of_type.filter(|it| it.resource_type == resource_type);
        let within = of_type.filter(|it| prefix.is_none_or(|prefix| it.name.starts_with(prefix)));
        concerned.extend(within.filter_map(|it| Some((resource_type, names_of(it)?))));
    }
    concerned
}

fn names_of(pattern: &Pattern) -> Option<Names> {
    let name = pattern.name.to_string();
    match pattern.pattern_type {
        PatternType::Literal if pattern.name == WILDCARD => None,
        PatternType::Literal => Some(Names::One(name)),
        _ => Some(Names::Beginning(name)),
    }
}

/// The operations that a client gains and loses.
fn changes_of(
    rules: &Rules,
    principal: Option<&str>,
    host: &str,
    resource_type: ResourceType,
    name: &str,
) -> (Vec<Operation>, Vec<Operation>) {
    let unnamed = format!("User:{UNNAMED}");
    let client = Client {
        principal: principal.unwrap_or(&unnamed),
        host,
    };
    let changed = |from: &StandardAuthorizer, to: &StandardAuthorizer| {
        let operations = resource_type.operations().iter().copied();
        let is_new = |operation: &Operation| {
            let action = Action {
                operation: *operation,
                resource_type,
                name,
            };
            !from.is_allowed(client, action) && to.is_allowed(client, action)
        };
        operations.filter(is_new).collect()
    };
    let (before, after) = (&rules.before, &rules.after);
    (changed(before, after), changed(after, before))
}

#[cfg(test)]
mod tests {
    use ottla_security::SuperUsers;

    use super::*;

    /// `ALLOW User:a * READ LITERAL orders`, about a topic.
    fn rule(text: &str) -> Acl {
        let words: Vec<&str> = text.split(' ').collect();
        let [permission, principal, host, operation, pattern, name] = words[..] else {
            panic!("{text}");
        };
        let named = |all: &[Operation]| {
            let found = all.iter().find(|it| it.name() == operation);
            *found.unwrap_or_else(|| panic!("{operation}"))
        };
        Acl {
            pattern: Pattern {
                resource_type: ResourceType::Topic,
                name: name.to_owned().into(),
                pattern_type: match pattern {
                    "LITERAL" => PatternType::Literal,
                    _ => PatternType::Prefixed,
                },
            },
            principal: principal.to_owned().into(),
            host: host.to_owned().into(),
            operation: named(Operation::ALL),
            permission_type: match permission {
                "ALLOW" => PermissionType::Allow,
                _ => PermissionType::Deny,
            },
        }
    }

    /// The lines about rules that stay and rules that come.
    fn lines(stay: &[&str], come: &[&str], settings: &StandardAuthorizer) -> Vec<String> {
        let stay: Vec<Acl> = stay.iter().map(|text| rule(text)).collect();
        let come: Vec<Acl> = come.iter().map(|text| rule(text)).collect();
        let with = |acls: &[&[Acl]]| {
            let mut authorizer = settings.clone();
            for acl in acls.iter().copied().flatten() {
                authorizer.acls.insert(acl.clone());
            }
            authorizer
        };
        let found = differences(&Rules {
            before: with(&[&stay]),
            after: with(&[&stay, &come]),
            all: stay.iter().chain(&come).cloned().collect(),
            changed: come,
        });
        found
            .iter()
            .map(|(who, names)| who.in_words(names))
            .collect()
    }

    #[test]
    fn a_permission_that_another_rule_grants_is_no_change() {
        let settings = StandardAuthorizer::default();
        assert_eq!(
            lines(
                &["ALLOW User:* * READ PREFIXED or"],
                &["ALLOW User:a * ALL LITERAL orders"],
                &settings
            ),
            [
                "User:a from any address gains Write, Create, Delete, Alter, DescribeConfigs, \
              AlterConfigs on Topic orders"
            ]
        );
        assert_eq!(
            lines(
                &["ALLOW User:* * READ PREFIXED or"],
                &["ALLOW User:a * READ LITERAL orders"],
                &settings
            ),
            [""; 0]
        );
    }

    #[test]
    fn a_denial_counts_only_if_the_operation_was_allowed() {
        let settings = StandardAuthorizer {
            super_users: SuperUsers::parse("User:root").unwrap(),
            ..StandardAuthorizer::default()
        };
        let stay = [
            "ALLOW User:a * READ LITERAL orders",
            "ALLOW User:b 10.0.0.1 WRITE LITERAL orders-eu",
            "ALLOW User:root * READ LITERAL orders",
            "ALLOW User:c * READ LITERAL other",
        ];
        assert_eq!(
            lines(&stay, &["DENY User:* * ALL PREFIXED orders"], &settings),
            [
                "User:a from any address loses Read, Describe on Topic orders",
                "User:b from 10.0.0.1 loses Write, Describe on Topic orders-eu",
            ]
        );
    }

    #[test]
    fn the_first_acl_of_a_resource_disables_the_default() {
        let settings = StandardAuthorizer {
            allow_everyone_if_no_acl_found: true,
            ..StandardAuthorizer::default()
        };
        let found = lines(&[], &["ALLOW User:a * READ PREFIXED o"], &settings);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with(
                "every principal without a rule of its own from any address loses Read, Write, "
            ),
            "{found:?}"
        );
        assert_eq!(
            found[1],
            "User:a from any address loses Write, Create, Delete, Alter, DescribeConfigs, \
             AlterConfigs on other Topics that begin with o"
        );
    }

    #[test]
    fn addresses_with_equal_decisions_are_merged() {
        let settings = StandardAuthorizer::default();
        assert_eq!(
            lines(
                &["DENY User:a 10.0.0.1 READ LITERAL t"],
                &["ALLOW User:a * READ LITERAL *"],
                &settings
            ),
            [
                "User:a from 10.0.0.1 gains Describe on Topic t",
                "User:a from any address gains Read, Describe on other Topics",
                "User:a from every address but 10.0.0.1 gains Read, Describe on Topic t",
            ]
        );
    }
}
