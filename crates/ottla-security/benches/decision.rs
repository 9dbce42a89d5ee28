//! The time of one decision by the number of ACLs: up to 100,000, half LITERAL and half PREFIXED,
//! for as many principals. The first column repeats one client; the second cycles through all of
//! them, so that little of the index is in the processor's caches.

#![allow(clippy::disallowed_methods)]

use std::hint::black_box;

use ottla_security::{
    Acl, Action, Client, Operation, Pattern, PatternType, PermissionType, ResourceType,
    StandardAuthorizer, SuperUsers,
};

fn authorizer(acls: usize) -> StandardAuthorizer {
    let mut authorizer = StandardAuthorizer {
        super_users: SuperUsers::parse("User:admin;User:broker").unwrap(),
        ..Default::default()
    };
    for i in 0..acls {
        let team = i / 10;
        let (name, pattern_type) = match i % 2 {
            0 => (format!("team-{team}.topic-{i}"), PatternType::Literal),
            _ => (format!("team-{team}."), PatternType::Prefixed),
        };
        authorizer.acls.insert(Acl {
            pattern: Pattern {
                resource_type: ResourceType::Topic,
                name: name.into(),
                pattern_type,
            },
            principal: format!("User:member-{i}-of-team-{team}").into(),
            host: "*".into(),
            operation: Operation::Write,
            permission_type: PermissionType::Allow,
        });
    }
    authorizer
}

/// CPU time of this process in nanoseconds, so that a busy machine does not distort the result.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    let first = text.split_whitespace().next().expect("a number");
    first.parse().expect("a number")
}

/// The minimum of several rounds.
fn ns_per_call(mut call: impl FnMut()) -> f64 {
    const CALLS: u64 = 300_000;
    let round = |_| {
        let before = cpu_ns();
        for _ in 0..CALLS {
            call();
        }
        (cpu_ns() - before) as f64 / CALLS as f64
    };
    (0..10).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    println!("nanoseconds of CPU for a decision");
    println!("{:>10} {:>12} {:>12}", "ACLs", "one client", "any client");
    for acls in [0, 10, 10_000, 100_000] {
        let authorizer = authorizer(acls);
        // Many principals and names, so that the caches contain what they would in a cluster.
        let requests: Vec<(String, String)> = (0..acls.max(1))
            .map(|i| {
                let team = i / 10;
                (
                    format!("User:member-{i}-of-team-{team}"),
                    format!("team-{team}.topic-{i}"),
                )
            })
            .collect();
        let ask = |(principal, name): &(String, String)| {
            let client = Client {
                principal,
                host: "10.1.2.3",
            };
            let action = Action {
                operation: Operation::Write,
                resource_type: ResourceType::Topic,
                name,
            };
            black_box(authorizer.is_allowed(black_box(client), black_box(action)));
        };
        let request = &requests[requests.len() / 2];
        let one = ns_per_call(|| ask(request));
        let mut next = 0;
        let any = ns_per_call(|| {
            next = (next + 7919) % requests.len();
            ask(&requests[next]);
        });
        println!("{acls:>10} {one:>12.0} {any:>12.0}");
    }
}
