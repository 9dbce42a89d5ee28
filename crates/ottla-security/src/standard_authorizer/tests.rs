use proptest::prelude::*;

use super::*;
use crate::acl::Pattern;
use crate::names::PermissionType;

fn acl(text: &str) -> Acl {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [
        permission,
        principal,
        host,
        operation,
        resource,
        pattern,
        name,
    ] = parts[..]
    else {
        panic!("{text}");
    };
    Acl {
        pattern: Pattern {
            resource_type: named(ResourceType::ALL, resource, |it| it.name()),
            name: name.into(),
            pattern_type: named(PatternType::ALL, pattern, |it| it.name()),
        },
        principal: format!("User:{principal}").into(),
        host: host.into(),
        operation: named(Operation::ALL, operation, |it| it.name()),
        permission_type: named(PermissionType::ALL, permission, |it| it.name()),
    }
}

fn named<T: Copy>(all: &[T], name: &str, name_of: impl Fn(&T) -> &'static str) -> T {
    let found = all.iter().find(|it| name_of(it) == name);
    *found.unwrap_or_else(|| panic!("{name}"))
}

fn authorizer(acls: &[&str]) -> StandardAuthorizer {
    let mut authorizer = StandardAuthorizer::default();
    for text in acls {
        authorizer.acls.insert(acl(text));
    }
    authorizer
}

const ALICE: Client<'_> = Client {
    principal: "User:alice",
    host: "127.0.0.1",
};

fn topic(operation: Operation, name: &str) -> Action<'_> {
    Action {
        operation,
        resource_type: ResourceType::Topic,
        name,
    }
}

#[test]
fn without_acls_only_super_users_are_allowed() {
    let mut authorizer = authorizer(&[]);
    let read = topic(Operation::Read, "foo");
    assert!(!authorizer.is_allowed(ALICE, read));
    assert_eq!(authorizer.explain(ALICE, read).rule, Rule::DefaultDeny);
    authorizer.allow_everyone_if_no_acl_found = true;
    assert!(authorizer.is_allowed(ALICE, read));
    assert_eq!(authorizer.explain(ALICE, read).rule, Rule::DefaultAllow);
    // Any ACL of the resource ends that, for any principal.
    authorizer
        .acls
        .insert(acl("ALLOW bob * WRITE TOPIC PREFIXED fo"));
    assert!(!authorizer.is_allowed(ALICE, read));
    assert!(authorizer.is_allowed(ALICE, topic(Operation::Read, "bar")));
    authorizer.super_users = SuperUsers::parse(" User:alice ;; User:carol").unwrap();
    authorizer
        .acls
        .insert(acl("DENY alice * ALL TOPIC LITERAL *"));
    assert!(authorizer.is_allowed(ALICE, read));
    assert_eq!(authorizer.explain(ALICE, read).rule, Rule::SuperUser);
}

#[test]
fn super_users_are_principals() {
    assert_eq!(
        SuperUsers::parse("User:alice;bob").unwrap_err().to_string(),
        "bob is not a principal; give principals as User:name, separated by semicolons"
    );
}

#[test]
fn a_deny_wins_over_every_allow() {
    let authorizer = authorizer(&[
        "ALLOW alice * READ TOPIC LITERAL foo",
        "ALLOW * * ALL TOPIC LITERAL *",
        "DENY * 127.0.0.1 READ TOPIC PREFIXED f",
    ]);
    assert!(!authorizer.is_allowed(ALICE, topic(Operation::Read, "foo")));
    let elsewhere = Client {
        host: "0:0:0:0:0:0:0:1",
        ..ALICE
    };
    assert!(authorizer.is_allowed(elsewhere, topic(Operation::Read, "foo")));
    assert_eq!(
        authorizer.other_host_acls(elsewhere, topic(Operation::Read, "foo")),
        [acl("DENY * 127.0.0.1 READ TOPIC PREFIXED f")]
    );
    // A DENY implies no other operation.
    assert!(authorizer.is_allowed(ALICE, topic(Operation::Describe, "foo")));
    let explained = authorizer.explain(ALICE, topic(Operation::Read, "foo"));
    assert_eq!(explained.matching.len(), 3);
    assert_eq!(
        explained.rule.to_string(),
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=f, patternType=PREFIXED, \
         principal=User:*, host=127.0.0.1, operation=READ, permissionType=DENY])"
    );
}

#[test]
fn an_allow_implies_describing() {
    for (granted, implied) in [
        (Operation::Read, Operation::Describe),
        (Operation::Write, Operation::Describe),
        (Operation::Delete, Operation::Describe),
        (Operation::Alter, Operation::Describe),
        (Operation::AlterConfigs, Operation::DescribeConfigs),
    ] {
        let authorizer = authorizer(&[&format!("ALLOW alice * {granted} TOPIC LITERAL foo")]);
        for operation in ResourceType::Topic.operations() {
            let is_granted = *operation == granted || *operation == implied;
            let is_allowed = authorizer.is_allowed(ALICE, topic(*operation, "foo"));
            assert_eq!(is_allowed, is_granted, "{granted} and {operation}");
        }
    }
}

#[test]
fn some_resource_of_a_type_is_allowed() {
    for (acls, is_allowed) in [
        (&[] as &[&str], false),
        (&["ALLOW alice * WRITE TOPIC LITERAL foo"], true),
        (&["ALLOW alice * ALL TOPIC PREFIXED foo"], true),
        (&["ALLOW alice 1.2.3.4 WRITE TOPIC LITERAL foo"], false),
        (&["ALLOW alice * READ TOPIC LITERAL foo"], false),
        (&["ALLOW alice * WRITE GROUP LITERAL foo"], false),
        (
            &[
                "ALLOW alice * WRITE TOPIC LITERAL foo",
                "DENY * * WRITE TOPIC PREFIXED f",
            ],
            false,
        ),
        (
            &[
                "ALLOW alice * WRITE TOPIC PREFIXED foo",
                "DENY * * WRITE TOPIC LITERAL foo",
            ],
            true,
        ),
        (
            &[
                "ALLOW alice * WRITE TOPIC PREFIXED foo",
                "DENY * * WRITE TOPIC PREFIXED foo",
            ],
            false,
        ),
        (
            &[
                "ALLOW alice * WRITE TOPIC LITERAL foo",
                "DENY * * ALL TOPIC LITERAL *",
            ],
            false,
        ),
    ] {
        let authorizer = authorizer(acls);
        let found =
            authorizer.is_allowed_by_resource_type(ALICE, Operation::Write, ResourceType::Topic);
        assert_eq!(found, is_allowed, "{acls:?}");
    }
}

#[test]
fn a_decision_allocates_nothing() {
    let mut authorizer = authorizer(&["ALLOW alice * READ TOPIC PREFIXED team-7"]);
    authorizer.super_users = SuperUsers::parse("User:admin").unwrap();
    for i in 0..1000 {
        let text = format!("DENY bob{i} 10.0.0.{i} ALL TOPIC PREFIXED team-{i}");
        authorizer.acls.insert(acl(&text));
    }
    let info = allocation_counter::measure(|| {
        assert!(authorizer.is_allowed(ALICE, topic(Operation::Read, "team-7.orders")));
        assert!(!authorizer.is_allowed(ALICE, topic(Operation::Write, "team-7.orders")));
    });
    assert_eq!(info.count_total, 0);
}

/// The rules of Kafka's documentation, applied to every ACL.
fn naive(
    acls: &[Acl],
    allow_everyone: bool,
    client: Client<'_>,
    action: Action<'_>,
) -> (bool, usize) {
    let about: Vec<&Acl> = acls
        .iter()
        .filter(|acl| {
            let pattern = &acl.pattern;
            pattern.resource_type == action.resource_type
                && match pattern.pattern_type {
                    PatternType::Literal => pattern.name == action.name || pattern.name == WILDCARD,
                    _ => action.name.starts_with(&*pattern.name),
                }
        })
        .collect();
    let deciding: Vec<&&Acl> = about
        .iter()
        .filter(|acl| {
            let is_principal = acl.principal == client.principal || acl.principal == "User:*";
            let is_in_range = acl.host == "10.0.0.0/8" && client.host.starts_with("10.");
            let is_host = acl.host == client.host || acl.host == "*" || is_in_range;
            let is_allow = acl.permission_type == PermissionType::Allow;
            let implied: &[Operation] = match (is_allow, action.operation) {
                (true, Operation::Describe) => &[
                    Operation::Read,
                    Operation::Write,
                    Operation::Delete,
                    Operation::Alter,
                ],
                (true, Operation::DescribeConfigs) => &[Operation::AlterConfigs],
                _ => &[],
            };
            let is_operation = acl.operation == action.operation
                || acl.operation == Operation::All
                || implied.contains(&acl.operation);
            is_principal && is_host && is_operation
        })
        .collect();
    let is_denied = deciding
        .iter()
        .any(|acl| acl.permission_type == PermissionType::Deny);
    let is_allowed = match (deciding.is_empty(), about.is_empty()) {
        (false, _) => !is_denied,
        (true, is_alone) => is_alone && allow_everyone,
    };
    (is_allowed, deciding.len())
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        "[ab]{1,4}",
        "a[bü]{0,3}",
        Just("hardcode".to_owned()),
    ]
}

fn any_principal() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["User:a", "User:b", "User:*", "Group:a"][..])
}

fn any_host() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["*", "127.0.0.1", "0:0:0:0:0:0:0:1", "10.0.0.0/8"][..])
}

fn any_acl() -> impl Strategy<Value = Acl> {
    let types = &[ResourceType::Topic, ResourceType::Group][..];
    let patterns = &[PatternType::Literal, PatternType::Prefixed][..];
    let permissions = &[
        PermissionType::Allow,
        PermissionType::Allow,
        PermissionType::Deny,
    ][..];
    (
        prop::sample::select(types),
        any_name(),
        prop::sample::select(patterns),
        any_principal(),
        any_host(),
        prop::sample::select(&Operation::ALL[2..12]),
        prop::sample::select(permissions),
    )
        .prop_map(
            |(resource_type, name, pattern_type, principal, host, operation, permission_type)| {
                Acl {
                    pattern: Pattern {
                        resource_type,
                        name: name.into(),
                        pattern_type,
                    },
                    principal: principal.into(),
                    host: host.into(),
                    operation,
                    permission_type,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// After any sequence of additions and removals, the index decides like a search through all
    /// ACLs.
    #[test]
    fn the_index_decides_as_a_look_at_every_acl(
        added in prop::collection::vec(any_acl(), 0..24),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        names in prop::collection::vec(any_name(), 1..6),
        allow_everyone in any::<bool>(),
    ) {
        let mut authorizer = StandardAuthorizer {
            allow_everyone_if_no_acl_found: allow_everyone,
            ..Default::default()
        };
        let mut acls = Vec::new();
        for acl in added {
            authorizer.acls.insert(acl.clone());
            acls.push(acl);
        }
        let full = authorizer.clone();
        let before = acls.clone();
        for index in removed.iter().filter(|_| !before.is_empty()) {
            let acl = index.get(&before);
            authorizer.acls.remove(acl);
            if let Some(found) = acls.iter().position(|other| other == acl) {
                acls.swap_remove(found);
            }
        }
        for (authorizer, acls) in [(&full, &before), (&authorizer, &acls)] {
            prop_assert_eq!(authorizer.acls.len(), acls.len());
            for principal in ["User:a", "User:c"] {
                for host in ["127.0.0.1", "10.0.0.1"] {
                    let client = Client { principal, host };
                    for operation in ResourceType::Topic.operations() {
                        for name in &names {
                            let action = topic(*operation, name);
                            let expected = naive(acls, allow_everyone, client, action);
                            let explained = authorizer.explain(client, action);
                            let found = (authorizer.is_allowed(client, action), explained.matching.len());
                            prop_assert_eq!(found, expected, "{:?} {:?}", client, action);
                            prop_assert_eq!(explained.rule.is_allowed(), expected.0);
                        }
                    }
                }
            }
        }
    }
}
