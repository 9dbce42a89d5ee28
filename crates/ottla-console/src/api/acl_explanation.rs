//! Why a principal may do something, or may not, as in `ottla acls explain`.
//!
//! The decision is made by the brokers' own code, with the ACLs and settings that the cluster
//! reports, so it also holds for Apache Kafka. Kafka hides the relevant settings besides the ACLs;
//! a note then says so.

use std::net::IpAddr;

use axum::Json;
use futures_util::future::join_all;
use ottla_client::ClientError;
use ottla_client::admin::{ConfigResourceType, DescribedConfigs, EndpointType};
use ottla_security::{
    Action, CLUSTER_NAME, Client, Decision, Operation, Principal, ResourceType, Rule,
    StandardAuthorizer, SuperUsers, WILDCARD, host_address,
};
use ottla_types::ErrorCode;
use serde::{Deserialize, Serialize};

use super::security::{Acl, all_acls, found};
use crate::console::Visitor;
use crate::extract::Query;
use crate::problem::Problem;

const CLASS: &str = "authorizer.class.name";
const SUPER_USERS: &str = "super.users";
const ALLOW_EVERYONE: &str = "allow.everyone.if.no.acl.found";
const STANDARD: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

#[derive(Deserialize)]
pub(super) struct Question {
    principal: String,
    #[serde(default)]
    host: String,
    resource_type: String,
    #[serde(default)]
    resource_name: String,
    /// All of the resource without it.
    #[serde(default)]
    operation: String,
}

#[derive(Serialize)]
pub(super) struct Answer {
    items: Vec<Explained>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Explained {
    operation: String,
    is_allowed: bool,
    because: &'static str,
    /// The one that decides.
    acl: Option<Acl>,
    also_matching: Vec<Acl>,
    /// They would match at another address.
    elsewhere: Vec<Acl>,
    remark: Option<&'static str>,
    /// Commands, without the flags of the connection.
    to_allow: Vec<String>,
}

/// A question whose words are known.
struct Parsed {
    principal: Principal,
    host: String,
    resource_type: ResourceType,
    name: String,
    operations: Vec<Operation>,
}

pub(super) async fn explain(
    visitor: Visitor,
    Query(question): Query<Question>,
) -> Result<Json<Answer>, Problem> {
    let question = question.parse()?;
    let acls = match all_acls(&visitor).await {
        Ok(acls) => Some(acls),
        Err(error) if error.code() == Some(ErrorCode::SecurityDisabled) => None,
        Err(error) => return Err(error.into()),
    };
    let Some(acls) = acls else {
        let actions = question.actions();
        let items = actions.map(|it| explained(&Decision::without_authorizer(it)));
        return Ok(Json(Answer {
            items: items.collect(),
            notes: Vec::new(),
        }));
    };
    let settings = settings(&visitor).await?;
    let mut authorizer = StandardAuthorizer {
        super_users: settings.super_users,
        allow_everyone_if_no_acl_found: settings.allow_everyone_if_no_acl_found,
        ..StandardAuthorizer::default()
    };
    for acl in acls {
        authorizer.acls.insert(acl);
    }
    let client = Client {
        principal: question.principal.as_str(),
        host: &question.host,
    };
    let actions = question.actions();
    let items = actions.map(|it| explained(&authorizer.decide(client, it)));
    Ok(Json(Answer {
        items: items.collect(),
        notes: settings.notes,
    }))
}

impl Question {
    fn parse(&self) -> Result<Parsed, Problem> {
        let text = self.principal.trim();
        let principal = Principal::parse(text).map_err(|_| {
            Problem::invalid(
                "principal",
                format!("principal={text}: give a type and a name, as in User:alice"),
            )
        })?;
        let host = match self.host.trim() {
            "" | WILDCARD => WILDCARD.to_owned(),
            text => host_address(text.parse::<IpAddr>().map_err(|_| {
                Problem::invalid(
                    "host",
                    format!("host={text}: give an IP address; ACLs know no host names"),
                )
            })?),
        };
        let types = &ResourceType::ALL[2..];
        let resource_type = found("resource_type", &self.resource_type, types, |it| it.name())?;
        let name = match resource_type {
            ResourceType::Cluster => CLUSTER_NAME,
            _ if self.resource_name.is_empty() => {
                return Err(Problem::invalid(
                    "resource_name",
                    "resource_name is empty; give the name of the resource",
                ));
            }
            _ => self.resource_name.as_str(),
        };
        let known = resource_type.operations();
        let operations = match &*self.operation {
            "" | "all" => known.to_vec(),
            one => vec![found("operation", one, known, |it| it.name())?],
        };
        Ok(Parsed {
            principal,
            host,
            resource_type,
            name: name.to_owned(),
            operations,
        })
    }
}

impl Parsed {
    fn actions(&self) -> impl Iterator<Item = Action<'_>> {
        self.operations.iter().map(|operation| Action {
            operation: *operation,
            resource_type: self.resource_type,
            name: &self.name,
        })
    }
}

fn explained(decision: &Decision<'_>) -> Explained {
    let rule = decision.explanation.as_ref().map(|it| &it.rule);
    Explained {
        operation: decision.action.operation.name().to_lowercase(),
        is_allowed: decision.is_allowed(),
        because: match rule {
            None => "the cluster has no authorizer",
            Some(Rule::SuperUser) => "it is in super.users",
            Some(Rule::Acl(acl)) if acl.is_allow() => "an ACL allows it",
            Some(Rule::Acl(_)) => "an ACL denies it",
            Some(Rule::DefaultAllow) => {
                "no ACL names the resource, and allow.everyone.if.no.acl.found is true"
            }
            Some(Rule::DefaultDeny) => "no ACL allows it",
        },
        acl: match rule {
            Some(Rule::Acl(acl)) => Some(acl.into()),
            _ => None,
        },
        also_matching: decision.also_matching().map(Acl::from).collect(),
        elsewhere: decision.other_hosts.iter().map(Acl::from).collect(),
        remark: decision.remark,
        to_allow: decision
            .remedies
            .iter()
            .map(|flags| format!("ottla acls {flags}"))
            .collect(),
    }
}

/// The settings that decide besides the ACLs.
#[derive(Debug, Default)]
struct Settings {
    super_users: SuperUsers,
    allow_everyone_if_no_acl_found: bool,
    /// Remarks about the origin of the decision.
    notes: Vec<String>,
}

/// A setting as a broker reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Reported {
    NotSet,
    Hidden,
    Value(String),
}

/// The three settings of a broker: [`CLASS`], [`SUPER_USERS`] and [`ALLOW_EVERYONE`].
type OfBroker = [Reported; 3];

async fn settings(visitor: &Visitor) -> Result<Settings, Problem> {
    let admin = &visitor.admin;
    let cluster = admin.describe_cluster(EndpointType::Broker, false).await?;
    let mut ids: Vec<i32> = cluster.brokers.iter().map(|it| it.broker_id).collect();
    ids.sort_unstable();
    let described = ids.into_iter().map(|id| async move {
        let name = id.to_string();
        let kind = ConfigResourceType::Broker;
        (id, admin.describe_configs(kind, &name, false).await)
    });
    let mut reported = Vec::new();
    let mut notes = Vec::new();
    for (id, configs) in join_all(described).await {
        match configs {
            Ok(configs) => reported.push((id, of_broker(&configs))),
            Err(error) => notes.push(not_reported(id, &error)),
        }
    }
    let mut settings = combined(&reported);
    settings.notes.splice(0..0, notes);
    Ok(settings)
}

fn not_reported(id: i32, error: &ClientError) -> String {
    format!("broker {id} does not report its settings: {error}")
}

fn of_broker(configs: &DescribedConfigs) -> OfBroker {
    [CLASS, SUPER_USERS, ALLOW_EVERYONE].map(|name| {
        let found = configs.iter().find(|it| *it.name == *name);
        match found.map(|it| (&it.value, it.is_sensitive)) {
            None | Some((None, false)) => Reported::NotSet,
            Some((None, true)) => Reported::Hidden,
            Some((Some(value), _)) => Reported::Value(value.to_string()),
        }
    })
}

/// The settings of the first broker, with a note for each that differs or is hidden.
fn combined(reported: &[(i32, OfBroker)]) -> Settings {
    let mut settings = Settings::default();
    let Some(((first, of_first), others)) = reported.split_first() else {
        return settings;
    };
    let names = [CLASS, SUPER_USERS, ALLOW_EVERYONE];
    for (id, of_other) in others {
        for ((name, one), other) in names.iter().zip(of_first).zip(of_other) {
            if one != other {
                settings.notes.push(format!(
                    "{name} of broker {id} differs from that of broker {first}, which this is about"
                ));
            }
        }
    }
    let [class, super_users, allow_everyone] = of_first;
    if let Reported::Value(class) = class
        && class != STANDARD
        && !class.is_empty()
    {
        settings.notes.push(format!(
            "broker {first} authorizes with {class}, which may decide otherwise"
        ));
    }
    match super_users {
        Reported::NotSet => {}
        Reported::Hidden => settings.notes.push(format!(
            "broker {first} sets {SUPER_USERS} and hides the value; the principals in it may do everything"
        )),
        Reported::Value(users) => match SuperUsers::parse(users) {
            Ok(users) => settings.super_users = users,
            Err(error) => settings.notes.push(format!("{SUPER_USERS}: {error}")),
        },
    }
    match allow_everyone {
        Reported::NotSet => {}
        Reported::Hidden => settings.notes.push(format!(
            "broker {first} sets {ALLOW_EVERYONE} and hides the value; it is taken as false"
        )),
        Reported::Value(value) => {
            settings.allow_everyone_if_no_acl_found = value.trim().eq_ignore_ascii_case("true");
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(principal: &str, host: &str, resource: (&str, &str), operation: &str) -> Question {
        Question {
            principal: principal.into(),
            host: host.into(),
            resource_type: resource.0.into(),
            resource_name: resource.1.into(),
            operation: operation.into(),
        }
    }

    #[test]
    fn a_question_is_about_one_operation_or_all() {
        let topic = ("topic", "orders");
        let one = question("User:a", "::1", topic, "read").parse().unwrap();
        assert_eq!(one.operations, [Operation::Read]);
        assert_eq!(one.host, "0:0:0:0:0:0:0:1");
        let all = question(" User:a", "", ("cluster", ""), "").parse();
        let all = all.unwrap();
        assert_eq!((&*all.name, &*all.host), (CLUSTER_NAME, WILDCARD));
        assert_eq!(all.operations, ResourceType::Cluster.operations());
        assert_eq!(all.actions().count(), all.operations.len());
        for (wrong, says) in [
            (question("alice", "", topic, ""), "User:alice"),
            (question("User:a", "here", topic, ""), "an IP address"),
            (question("User:a", "", ("table", "t"), ""), "give topic"),
            (question("User:a", "", ("topic", ""), ""), "is empty"),
            (question("User:a", "", topic, "create_tokens"), "give read"),
        ] {
            let problem = wrong.parse().err().unwrap();
            assert_eq!(problem.status(), 422);
            assert!(problem.detail().contains(says), "{}", problem.detail());
        }
    }

    #[test]
    fn hidden_and_differing_settings_of_brokers_are_noted() {
        let value = |text: &str| Reported::Value(text.into());
        let (class, users) = (value(STANDARD), value("User:root"));
        let shown = combined(&[(1, [class.clone(), users.clone(), value("true")])]);
        assert!(shown.super_users.contains("User:root") && shown.notes.is_empty());
        assert!(shown.allow_everyone_if_no_acl_found);
        let hidden = combined(&[
            (
                1,
                [value("com.example.Own"), Reported::Hidden, Reported::Hidden],
            ),
            (2, [class, users, Reported::Hidden]),
        ]);
        assert!(hidden.super_users.is_empty() && !hidden.allow_everyone_if_no_acl_found);
        let says = [
            "authorizer.class.name of broker 2 differs",
            "super.users of broker 2 differs",
            "broker 1 authorizes with com.example.Own",
            "hides the value; the principals in it may do everything",
            "hides the value; it is taken as false",
        ];
        assert_eq!(hidden.notes.len(), says.len(), "{:?}", hidden.notes);
        for (note, says) in hidden.notes.iter().zip(says) {
            assert!(note.contains(says), "{note}");
        }
    }

    #[test]
    fn a_denial_has_its_reason_and_the_way_out() {
        let client = Client {
            principal: "User:a",
            host: WILDCARD,
        };
        let action = Action {
            operation: Operation::Read,
            resource_type: ResourceType::Topic,
            name: "t",
        };
        let decision = StandardAuthorizer::default().decide(client, action);
        let denied = explained(&decision);
        assert!(!denied.is_allowed && denied.acl.is_none());
        assert_eq!(
            (&*denied.operation, denied.because),
            ("read", "no ACL allows it")
        );
        assert_eq!(
            denied.to_allow,
            ["ottla acls --add --allow-principal User:a --operation Read --topic t"]
        );
        let open = explained(&Decision::without_authorizer(action));
        assert!(open.is_allowed && open.to_allow.is_empty());
    }
}
