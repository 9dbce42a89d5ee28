//! The settings of the nodes' authorizer, as far as the nodes report them.
//!
//! Apache Kafka lists `super.users` and `allow.everyone.if.no.acl.found` only if they are set, and
//! hides their values: its table of settings does not contain them, and it treats unknown settings
//! as secrets. Ottla reports the values.

use anyhow::anyhow;
use clap::Args;
use ottla_client::admin::DescribedConfigs;
use ottla_security::SuperUsers;

use super::node_settings::{NodeSettings, Reported, reported};

const CLASS: &str = "authorizer.class.name";
const SUPER_USERS: &str = "super.users";
const ALLOW_EVERYONE: &str = "allow.everyone.if.no.acl.found";
const STANDARD: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

/// Settings given on the command line, for nodes that hide theirs.
#[derive(Args, Debug, Default)]
pub(super) struct GivenSettings {
    /// The nodes' super.users, if they hide the value (as Apache Kafka does).
    #[arg(long, value_name = "PRINCIPALS")]
    super_users: Option<String>,
    /// Decide as with allow.everyone.if.no.acl.found=true, if the nodes hide the value.
    #[arg(long)]
    allow_everyone_if_no_acl_found: bool,
}

/// The settings that affect a decision besides the ACLs.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct AuthorizerSettings {
    /// False if nodes authorize nothing, so that everything is allowed.
    pub(super) has_authorizer: bool,
    pub(super) super_users: SuperUsers,
    pub(super) allow_everyone_if_no_acl_found: bool,
    /// Notes for the user about the origin of these settings.
    pub(super) notes: Vec<String>,
}

/// The three settings of a node.
#[derive(Clone, PartialEq, Debug)]
struct OfNode {
    class: Reported,
    super_users: Reported,
    allow_everyone: Reported,
}

/// The settings of these nodes.
pub(super) fn of(
    nodes: &NodeSettings,
    given: Option<&GivenSettings>,
) -> anyhow::Result<AuthorizerSettings> {
    let of_nodes = nodes.reported.iter();
    let of_nodes: Vec<(i32, OfNode)> = of_nodes
        .map(|(id, configs)| (*id, of_node(configs)))
        .collect();
    let mut settings = combine(&of_nodes, given)?;
    settings.notes.splice(0..0, nodes.notes.iter().cloned());
    Ok(settings)
}

/// Whether a node may allow everybody to use a resource without ACLs. Unknown of a node that does not
/// report its settings.
pub(super) fn may_allow_everyone(nodes: &NodeSettings) -> bool {
    let mut of_nodes = nodes.reported.iter();
    nodes.reported.is_empty()
        || !nodes.notes.is_empty()
        || of_nodes.any(|(_, configs)| match reported(configs, ALLOW_EVERYONE) {
            Reported::NotSet => false,
            Reported::Hidden => true,
            Reported::Value(value) => is_true(&value),
        })
}

fn is_true(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("true")
}

fn of_node(configs: &DescribedConfigs) -> OfNode {
    OfNode {
        class: reported(configs, CLASS),
        super_users: reported(configs, SUPER_USERS),
        allow_everyone: reported(configs, ALLOW_EVERYONE),
    }
}

/// The settings of the first node, with a note for each that differs or is hidden.
fn combine(
    reported: &[(i32, OfNode)],
    given: Option<&GivenSettings>,
) -> anyhow::Result<AuthorizerSettings> {
    let given_users = given.and_then(|given| given.super_users.as_ref());
    let is_everyone_given = given.is_some_and(|given| given.allow_everyone_if_no_acl_found);
    let mut settings = AuthorizerSettings {
        has_authorizer: true,
        ..AuthorizerSettings::default()
    };
    let notes = &mut settings.notes;
    let mut super_users = String::new();
    if let Some((first, of_first)) = reported.first() {
        for (id, of_node) in &reported[1..] {
            for (name, one, other) in [
                (CLASS, &of_first.class, &of_node.class),
                (SUPER_USERS, &of_first.super_users, &of_node.super_users),
                (
                    ALLOW_EVERYONE,
                    &of_first.allow_everyone,
                    &of_node.allow_everyone,
                ),
            ] {
                if one != other {
                    notes.push(format!(
                        "{name} of node {id} differs from that of node {first}, which this is about"
                    ));
                }
            }
        }
        match &of_first.class {
            Reported::Value(class) if class.is_empty() => settings.has_authorizer = false,
            Reported::Value(class) if class != STANDARD => notes.push(format!(
                "node {first} authorizes with {class}, which may decide otherwise"
            )),
            _ => {}
        }
        let hidden = |name: &str, flag: &str, otherwise: &str| {
            let advice = match given {
                Some(_) => format!("give {flag}"),
                None => otherwise.to_owned(),
            };
            format!("node {first} sets {name} and hides the value; {advice}")
        };
        match (&of_first.super_users, given_users) {
            (Reported::Value(users), _) => super_users.clone_from(users),
            (Reported::Hidden, None) => notes.push(hidden(
                SUPER_USERS,
                "--super-users",
                "nothing changes for the principals in it",
            )),
            _ => {}
        }
        match (&of_first.allow_everyone, is_everyone_given) {
            (Reported::Value(value), _) => {
                settings.allow_everyone_if_no_acl_found = is_true(value);
            }
            (Reported::Hidden, false) => notes.push(hidden(
                ALLOW_EVERYONE,
                "--allow-everyone-if-no-acl-found if it is true",
                "it is taken as false",
            )),
            _ => {}
        }
    }
    if let Some(given) = given_users {
        super_users.clone_from(given);
    }
    settings.allow_everyone_if_no_acl_found |= is_everyone_given;
    let parsed = SuperUsers::parse(&super_users);
    settings.super_users = parsed.map_err(|error| anyhow!("{SUPER_USERS}: {error}"))?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;

    use super::*;

    fn value(text: &str) -> Reported {
        Reported::Value(text.to_owned())
    }

    fn node(super_users: Reported, allow_everyone: Reported) -> OfNode {
        OfNode {
            class: value(STANDARD),
            super_users,
            allow_everyone,
        }
    }

    #[test]
    fn everybody_may_be_allowed_if_one_node_says_so_or_hides_it() {
        let nodes = |values: &[(Option<&str>, bool)]| {
            let of_nodes = values.iter().map(|(value, is_sensitive)| {
                let setting = DescribeConfigsResourceResult {
                    name: ALLOW_EVERYONE.into(),
                    value: value.map(Into::into),
                    is_sensitive: *is_sensitive,
                    ..Default::default()
                };
                (1, vec![setting])
            });
            may_allow_everyone(&NodeSettings {
                reported: of_nodes.collect(),
                notes: Vec::new(),
            })
        };
        let (set, hidden) = ((Some("true"), false), (None, true));
        let not_set = [(Some("false"), false), (None, false)];
        assert!(!nodes(&not_set));
        assert!(nodes(&[not_set[0], set]) && nodes(&[not_set[0], hidden]));
        // Nothing is known.
        assert!(nodes(&[]));
        let missing = NodeSettings {
            reported: vec![(1, Vec::new())],
            notes: vec!["node 2 does not report its settings".to_owned()],
        };
        assert!(may_allow_everyone(&missing));
    }

    #[test]
    fn reported_settings_are_used() {
        let reported = [(1, node(value("User:admin"), value("true")))];
        let settings = combine(&reported, Some(&GivenSettings::default())).unwrap();
        assert!(settings.has_authorizer && settings.allow_everyone_if_no_acl_found);
        assert!(settings.super_users.contains("User:admin"));
        assert_eq!(settings.notes, [""; 0]);
    }

    #[test]
    fn hidden_settings_must_be_given() {
        let reported = [(1, node(Reported::Hidden, Reported::Hidden))];
        let settings = combine(&reported, Some(&GivenSettings::default())).unwrap();
        assert_eq!(
            settings.notes,
            [
                "node 1 sets super.users and hides the value; give --super-users",
                "node 1 sets allow.everyone.if.no.acl.found and hides the value; give \
                 --allow-everyone-if-no-acl-found if it is true",
            ]
        );
        let settings = combine(&reported, None).unwrap();
        assert_eq!(
            settings.notes[0],
            "node 1 sets super.users and hides the value; nothing changes for the principals in it"
        );
        let given = GivenSettings {
            super_users: Some("User:root".to_owned()),
            allow_everyone_if_no_acl_found: true,
        };
        let settings = combine(&reported, Some(&given)).unwrap();
        assert!(settings.super_users.contains("User:root"));
        assert!(settings.allow_everyone_if_no_acl_found);
        assert_eq!(settings.notes, [""; 0]);
    }

    #[test]
    fn nodes_with_different_settings_are_named() {
        let mut other = node(Reported::NotSet, Reported::NotSet);
        other.class = value("com.example.Authorizer");
        let reported = [(1, other), (2, node(Reported::NotSet, Reported::NotSet))];
        let settings = combine(&reported, Some(&GivenSettings::default())).unwrap();
        assert_eq!(
            settings.notes,
            [
                "authorizer.class.name of node 2 differs from that of node 1, which this is about",
                "node 1 authorizes with com.example.Authorizer, which may decide otherwise",
            ]
        );
        let mut none = node(Reported::NotSet, Reported::NotSet);
        none.class = value("");
        let settings = combine(&[(1, none)], None).unwrap();
        assert!(!settings.has_authorizer);
    }
}
