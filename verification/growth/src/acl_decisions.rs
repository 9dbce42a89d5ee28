//! Decisions of the authorizer: half of the ACLs are LITERAL and half PREFIXED, for as many
//! principals.

use std::hint::black_box;
use std::time::Duration;

use ottla_security::{
    Acl, Action, Client, Operation, Pattern, PatternType, PermissionType, ResourceType,
    StandardAuthorizer, SuperUsers,
};

use crate::measure::{Row, best_of};

pub const OF_ONE_CLIENT: Row = Row {
    name: "acl-decision",
    operation: "the authorization of a request, whose client has made others before",
    counted: "ACLs",
    smallest: 1000,
    measure: of_one_client,
};

pub const OF_ANY_CLIENT: Row = Row {
    name: "acl-decision-of-any-client",
    operation: "the same, with another client each time, so that little of the index is in the processor's caches",
    counted: "ACLs",
    smallest: 1000,
    measure: of_any_client,
};

const DECISIONS: u32 = 300_000;
/// A prime, so that the clients follow each other in no order of the index.
const STRIDE: u64 = 7919;
const MEMBERS_OF_TEAM: u64 = 10;

fn principal(number: u64) -> String {
    let team = number / MEMBERS_OF_TEAM;
    format!("User:member-{number}-of-team-{team}")
}

fn topic(number: u64) -> String {
    let team = number / MEMBERS_OF_TEAM;
    format!("team-{team}.topic-{number}")
}

fn authorizer(acls: u64) -> StandardAuthorizer {
    let mut authorizer = StandardAuthorizer {
        super_users: SuperUsers::parse("User:admin;User:broker").expect("super users"),
        ..Default::default()
    };
    for number in 0..acls {
        let (name, pattern_type) = match number % 2 {
            0 => (topic(number), PatternType::Literal),
            _ => (
                format!("team-{}.", number / MEMBERS_OF_TEAM),
                PatternType::Prefixed,
            ),
        };
        authorizer.acls.insert(Acl {
            pattern: Pattern {
                resource_type: ResourceType::Topic,
                name: name.into(),
                pattern_type,
            },
            principal: principal(number).into(),
            host: "*".into(),
            operation: Operation::Write,
            permission_type: PermissionType::Allow,
        });
    }
    authorizer
}

fn is_allowed(authorizer: &StandardAuthorizer, principal: &str, topic: &str) -> bool {
    let client = Client {
        principal,
        host: "10.1.2.3",
    };
    let action = Action {
        operation: Operation::Write,
        resource_type: ResourceType::Topic,
        name: topic,
    };
    authorizer.is_allowed(black_box(client), black_box(action))
}

fn of_one_client(acls: u64) -> Duration {
    let authorizer = authorizer(acls);
    let (principal, topic) = (principal(acls / 2), topic(acls / 2));
    assert!(is_allowed(&authorizer, &principal, &topic));
    best_of(DECISIONS, || {
        for _ in 0..DECISIONS {
            black_box(is_allowed(&authorizer, &principal, &topic));
        }
    })
}

fn of_any_client(acls: u64) -> Duration {
    let authorizer = authorizer(acls);
    // In memory in the order of their use: a broker has just read the request that it decides about.
    let requests: Vec<(String, String)> = (0..acls)
        .map(|number| number * STRIDE % acls)
        .map(|number| (principal(number), topic(number)))
        .collect();
    let mut requests = requests.iter().cycle();
    best_of(DECISIONS, || {
        for (principal, topic) in requests.by_ref().take(DECISIONS as usize) {
            black_box(is_allowed(&authorizer, principal, topic));
        }
    })
}
