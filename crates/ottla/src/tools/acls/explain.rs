//! `acls explain`: whether operations are allowed, by which rule, when they were used last, and which
//! command would allow them.
//!
//! The decision is made by the brokers' own code, with the ACLs and settings that the cluster
//! reports, so it also holds for Apache Kafka.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use ottla_client::admin::EndpointType;
use ottla_client::{Admin, ClientError};
use ottla_protocol::messages::delete_acls_request::DeleteAclsFilter;
use ottla_security::{
    Acl, Action, CLUSTER_NAME, Client, Decision, Operation, PatternType, Principal, ResourceType,
    Rule, StandardAuthorizer, WILDCARD, host_address,
};
use ottla_types::ErrorCode;
use serde_json::{Value, json};

use super::audit::{self, AuditArgs};
use super::authorizer_settings::{self, GivenSettings};
use super::node_settings;
use super::rules::{
    Resources, acl_in_words, acl_to_json, acls, filter, host_in_words, operation, resource_in_words,
};
use super::seen::{self, LastUse, Seen, shown_with_age};
use crate::tools::admin_client;

/// How many decisions are read from the topic if no flag asks for them, so that it takes no time.
const QUICK_DECISIONS: i64 = 100_000;

/// How a user may run this command who may not yet.
const RIGHTS: &str = "the user of this command needs Describe and DescribeConfigs on the cluster; an administrator \
     allows it with `ottla acls --add --allow-principal User:NAME --operation Describe --operation DescribeConfigs \
     --cluster`";

/// Exit status when it cannot be found out.
pub const UNKNOWN: u8 = 2;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("resource").required(true).multiple(true).args(["topic", "group", "cluster", "transactional_id", "delegation_token", "user_principal"]))]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    bootstrap: admin_client::Bootstrap,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// The principal of the request, as User:name.
    #[arg(long)]
    principal: String,
    /// The address of the client; without it, only rules for any address match.
    #[arg(long, value_name = "ADDRESS", value_parser = host)]
    host: Option<String>,
    /// The operation, such as Read; all of the resource by default. Repeatable.
    #[arg(long)]
    operation: Vec<String>,
    #[command(flatten)]
    given: GivenSettings,
    #[command(flatten)]
    resources: Resources,
    #[command(flatten)]
    audit: AuditArgs,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// An address in the spelling of ACLs.
fn host(text: &str) -> Result<String, String> {
    let address: Result<IpAddr, _> = text.trim().parse();
    let address = address.map_err(|_| "not an IP address; ACLs know no host names".to_owned())?;
    Ok(host_address(address))
}

pub(super) async fn run(args: &ExplainArgs) -> ExitCode {
    match explain(args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => failed(&error),
    }
}

/// Prints why it cannot be found out.
pub(super) fn failed(error: &anyhow::Error) -> ExitCode {
    let reason = match error.downcast_ref::<ClientError>() {
        Some(cluster) if cluster.code() == Some(ErrorCode::ClusterAuthorizationFailed) => {
            format!("{cluster}; {RIGHTS}")
        }
        Some(cluster) if cluster.code().is_some() => cluster.to_string(),
        _ => format!("{error:#}"),
    };
    eprintln!("ottla: {reason}");
    ExitCode::from(UNKNOWN)
}

/// Prints the decisions. Returns whether everything is allowed.
async fn explain(args: &ExplainArgs) -> anyhow::Result<bool> {
    let principal = Principal::parse(args.principal.trim());
    let principal = principal
        .map_err(|error| anyhow!("--principal: {error}; write User:{}", args.principal.trim()))?;
    let actions = actions(args)?;
    let client = Client {
        principal: principal.as_str(),
        host: args.host.as_deref().unwrap_or(WILDCARD),
    };
    let admin = args
        .bootstrap
        .connect(args.command_config.as_deref(), "ottla-acls")
        .await?;
    let endpoint_type = args.bootstrap.endpoint_type();
    let nodes = node_settings::read(&admin, endpoint_type).await?;
    let settings = authorizer_settings::of(&nodes, Some(&args.given))?;
    let decisions = if settings.has_authorizer {
        let mut authorizer = StandardAuthorizer {
            super_users: settings.super_users,
            allow_everyone_if_no_acl_found: settings.allow_everyone_if_no_acl_found,
            ..Default::default()
        };
        for acl in concerning(&admin, &actions).await? {
            authorizer.acls.insert(acl);
        }
        let decide = |action| authorizer.decide(client, action);
        actions.into_iter().map(decide).collect()
    } else {
        actions
            .into_iter()
            .map(Decision::without_authorizer)
            .collect()
    };
    let decisions: Vec<Decision<'_>> = decisions;
    let mut notes = settings.notes;
    let mut seen = None;
    let is_asked = args.audit.is_given()
        || endpoint_type == EndpointType::Broker && audit::can_be_written(&nodes);
    if is_asked && settings.has_authorizer && decisions.iter().any(Decision::is_allowed) {
        let max_decisions = match args.audit.is_given() {
            true => audit::MAX_DECISIONS,
            false => QUICK_DECISIONS,
        };
        let audit = args
            .audit
            .read(&admin, endpoint_type, &nodes, max_decisions);
        let audit = audit.await?;
        match audit.seen {
            Ok(of_clients) => {
                notes.push(audit::read_in_words(&of_clients));
                seen = Some(of_clients);
            }
            Err(reason) => notes.push(format!("when it was used last is unknown: {reason}")),
        }
        notes.extend(audit.notes);
    }
    let shown = Shown {
        client,
        decisions: &decisions,
        seen: seen.as_ref(),
        now: Timestamp::now(),
        notes: &notes,
    };
    let text = match args.json {
        true => format!("{:#}\n", to_json(&shown)),
        false => to_text(
            &shown,
            &args.bootstrap.flags(args.command_config.as_deref()),
        ),
    };
    // The reader may have closed the pipe; the exit status still carries the result.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(decisions.iter().all(Decision::is_allowed))
}

/// Every operation on every resource that is asked for.
fn actions(args: &ExplainArgs) -> anyhow::Result<Vec<Action<'_>>> {
    let asked = args.operation.iter().map(|name| operation(name));
    let mut asked: Vec<Operation> = asked.collect::<Result<_, _>>()?;
    if asked.contains(&Operation::All) {
        asked.clear();
    }
    let cluster = args.resources.cluster;
    let cluster = cluster.then_some((ResourceType::Cluster, CLUSTER_NAME));
    let mut actions = Vec::new();
    for (resource_type, name) in args.resources.named().chain(cluster) {
        let known = resource_type.operations();
        let operations = if asked.is_empty() { known } else { &asked };
        for operation in operations {
            if !known.contains(operation) {
                let known: Vec<String> = known.iter().map(|it| it.title()).collect();
                bail!(
                    "there is no {} on a {}; give one of {}",
                    operation.title(),
                    resource_type.title(),
                    known.join(", ")
                );
            }
            actions.push(Action {
                operation: *operation,
                resource_type,
                name,
            });
        }
    }
    Ok(actions)
}

/// The ACLs that can decide the actions.
async fn concerning(admin: &Admin, actions: &[Action<'_>]) -> anyhow::Result<Vec<Acl>> {
    let mut filters: Vec<DeleteAclsFilter> = Vec::new();
    let mut add = |wanted: DeleteAclsFilter| {
        if !filters.contains(&wanted) {
            filters.push(wanted);
        }
    };
    for action in actions {
        let target = (
            action.resource_type,
            action.name.to_owned(),
            PatternType::Match,
        );
        add(filter(Some(&target), None));
        match (action.operation, action.resource_type) {
            (Operation::Create, ResourceType::Topic) => {
                add(filter(Some(&super::rules::cluster()), None));
            }
            (Operation::IdempotentWrite, _) => add(DeleteAclsFilter {
                resource_type_filter: ResourceType::Topic.code(),
                ..filter(None, None)
            }),
            _ => {}
        }
    }
    let mut found: Vec<Acl> = Vec::new();
    for filter in &filters {
        found.extend(acls(admin, filter).await?);
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Why a rule decides as it does.
fn rule_in_words(rule: &Rule) -> String {
    match rule {
        Rule::SuperUser => "it is in super.users".to_owned(),
        Rule::Acl(acl) => acl_in_words(acl),
        Rule::DefaultAllow => {
            "no ACL names the resource, and allow.everyone.if.no.acl.found is true".to_owned()
        }
        Rule::DefaultDeny => "no ACL allows it".to_owned(),
    }
}

/// What is printed.
struct Shown<'a> {
    client: Client<'a>,
    decisions: &'a [Decision<'a>],
    /// What clients did, if it is known.
    seen: Option<&'a Seen>,
    now: Timestamp,
    notes: &'a [String],
}

impl Shown<'_> {
    /// When the client last did what it is allowed to do. `None` if nothing is known.
    fn last_use(&self, decision: &Decision<'_>) -> Option<LastUse> {
        let seen = self.seen?;
        let is_audited = decision.is_allowed() && decision.explanation.is_some();
        is_audited.then(|| seen.last_use(self.client, decision.action))
    }

    /// Since when uses are known.
    fn since(&self) -> String {
        self.seen.map(Seen::since).unwrap_or_default()
    }
}

fn to_text(shown: &Shown<'_>, connection: &str) -> String {
    let client = shown.client;
    let mut text = String::new();
    for decision in shown.decisions {
        let action = decision.action;
        let is = if decision.is_allowed() {
            "allowed"
        } else {
            "denied"
        };
        let _ = writeln!(
            text,
            "{is}: {} on {} for {} {}",
            action.operation.title(),
            resource_in_words(action.resource_type, action.name),
            client.principal,
            host_in_words(client.host)
        );
        let mut line = |label: &str, what: &str| {
            let _ = writeln!(text, "  {label:<14}{what}");
        };
        match &decision.explanation {
            None => line("because", "authorizer.class.name is not set"),
            Some(explanation) => {
                line("because", &rule_in_words(&explanation.rule));
                for acl in explanation.others() {
                    line("also matches", &acl_in_words(acl));
                }
            }
        }
        match shown.last_use(decision) {
            Some(LastUse::At(time)) => line("last used", &shown_with_age(time, shown.now)),
            Some(LastUse::OnCluster(time)) => line(
                "last used",
                &format!(
                    "{} on the cluster, for this topic or another",
                    shown_with_age(time, shown.now)
                ),
            ),
            Some(LastUse::Never) => line("never used", &format!("since {}", shown.since())),
            Some(LastUse::Unknown) => line(
                "last used",
                "unknown: the topic does not show who reads and writes it itself",
            ),
            None => {}
        }
        for acl in &decision.other_hosts {
            line("elsewhere", &acl_in_words(acl));
        }
        if let Some(remark) = &decision.remark {
            line("but", remark);
        }
        for (index, flags) in decision.remedies.iter().enumerate() {
            let label = if index == 0 { "to allow it" } else { "and" };
            line(label, &format!("ottla acls {connection} {flags}"));
        }
    }
    for note in shown.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn to_json(shown: &Shown<'_>) -> Value {
    let client = shown.client;
    let host = |host: &str| (host != WILDCARD).then(|| host.to_owned());
    let acls = |acls: &[Acl]| acls.iter().map(acl_to_json).collect::<Vec<_>>();
    let decision = |decision: &Decision<'_>| {
        let explanation = decision.explanation.as_ref();
        let rule = explanation.map(|explanation| &explanation.rule);
        let (last_used, never_used_since) = match shown.last_use(decision) {
            Some(LastUse::At(time)) => (Some(seen::shown(time)), None),
            Some(LastUse::Never) => (None, Some(shown.since())),
            Some(LastUse::OnCluster(_) | LastUse::Unknown) | None => (None, None),
        };
        json!({
            "principal": client.principal,
            "host": host(client.host),
            "operation": decision.action.operation.name(),
            "resourceType": decision.action.resource_type.name(),
            "resourceName": decision.action.name,
            "allowed": decision.is_allowed(),
            "rule": match rule {
                None => "NoAuthorizer",
                Some(Rule::SuperUser) => "SuperUser",
                Some(Rule::Acl(_)) => "Acl",
                Some(Rule::DefaultAllow) => "DefaultAllow",
                Some(Rule::DefaultDeny) => "DefaultDeny",
            },
            "acl": match rule {
                Some(Rule::Acl(decisive)) => acl_to_json(decisive),
                _ => Value::Null,
            },
            "matching": explanation.map_or_else(Vec::new, |it| acls(&it.matching)),
            "lastUsed": last_used,
            "neverUsedSince": never_used_since,
            "fromOtherHosts": acls(&decision.other_hosts),
            "remark": decision.remark,
            "toAllow": decision.remedies.iter().map(|it| format!("ottla acls {it}")).collect::<Vec<_>>(),
        })
    };
    json!({
        "allowed": shown.decisions.iter().all(Decision::is_allowed),
        "decisions": shown.decisions.iter().map(decision).collect::<Vec<_>>(),
        "notes": shown.notes,
    })
}

#[cfg(test)]
mod tests {
    use ottla_security::{Pattern, PermissionType, SuperUsers};

    use super::super::seen::tests::{line, seen};
    use super::*;

    const CLIENT: Client<'_> = Client {
        principal: "User:a",
        host: WILDCARD,
    };
    const READ: Action<'_> = Action {
        operation: Operation::Read,
        resource_type: ResourceType::Topic,
        name: "t",
    };

    fn acl(permission_type: PermissionType, operation: Operation, host: &str) -> Acl {
        Acl {
            pattern: Pattern {
                resource_type: ResourceType::Topic,
                name: "t".into(),
                pattern_type: PatternType::Literal,
            },
            principal: "User:a".into(),
            host: host.to_owned().into(),
            operation,
            permission_type,
        }
    }

    fn shown<'a>(decisions: &'a [Decision<'a>], seen: Option<&'a Seen>) -> Shown<'a> {
        Shown {
            client: CLIENT,
            decisions,
            seen,
            now: "2026-01-02T00:00:00Z".parse().unwrap(),
            notes: &[],
        }
    }

    fn text(authorizer: &StandardAuthorizer, action: Action<'_>) -> String {
        let decisions = [authorizer.decide(CLIENT, action)];
        to_text(&shown(&decisions, None), "--bootstrap-server x:1")
    }

    #[test]
    fn a_denial_names_the_rules_and_the_way_out() {
        use PermissionType::{Allow, Deny};
        let mut authorizer = StandardAuthorizer::default();
        authorizer.acls.insert(acl(Deny, Operation::Read, WILDCARD));
        authorizer.acls.insert(acl(Allow, Operation::All, WILDCARD));
        authorizer
            .acls
            .insert(acl(Deny, Operation::All, "10.0.0.1"));
        assert_eq!(
            text(&authorizer, READ),
            "denied: Read on Topic t for User:a from any address\n  \
               because       DENY Read on Topic t to User:a from any address\n  \
               also matches  ALLOW All on Topic t to User:a from any address\n  \
               elsewhere     DENY All on Topic t to User:a from 10.0.0.1\n  \
               to allow it   ottla acls --bootstrap-server x:1 --remove --deny-principal User:a \
             --operation Read --topic t\n"
        );
        let write = Action {
            operation: Operation::Write,
            ..READ
        };
        assert_eq!(
            text(&authorizer, write),
            "allowed: Write on Topic t for User:a from any address\n  \
               because       ALLOW All on Topic t to User:a from any address\n  \
               elsewhere     DENY All on Topic t to User:a from 10.0.0.1\n"
        );
        let json = to_json(&shown(&[authorizer.decide(CLIENT, READ)], None));
        assert_eq!(json["allowed"], false);
        let decision = &json["decisions"][0];
        assert_eq!(decision["rule"], "Acl");
        assert_eq!(decision["acl"]["permission"], "DENY");
        assert_eq!(decision["matching"].as_array().unwrap().len(), 2);
        assert_eq!(decision["host"], Value::Null);
    }

    #[test]
    fn without_a_matching_acl_the_settings_decide() {
        let mut authorizer = StandardAuthorizer::default();
        assert_eq!(
            text(&authorizer, READ),
            "denied: Read on Topic t for User:a from any address\n  \
               because       no ACL allows it\n  \
               to allow it   ottla acls --bootstrap-server x:1 --add --allow-principal User:a \
             --operation Read --topic t\n"
        );
        authorizer.allow_everyone_if_no_acl_found = true;
        assert!(text(&authorizer, READ).contains("allow.everyone.if.no.acl.found is true"));
        authorizer.super_users = SuperUsers::parse("User:a").unwrap();
        assert!(text(&authorizer, READ).contains("because       it is in super.users\n"));
    }

    #[test]
    fn a_permission_has_its_last_use() {
        let mut authorizer = StandardAuthorizer::default();
        authorizer.acls.insert(Acl {
            pattern: Pattern {
                resource_type: ResourceType::Topic,
                name: "orders".into(),
                pattern_type: PatternType::Literal,
            },
            ..acl(PermissionType::Allow, Operation::All, WILDCARD)
        });
        let on_orders = |operation| Action {
            operation,
            name: "orders",
            ..READ
        };
        let used = [Operation::Read, Operation::Write, Operation::Delete];
        let decisions = used.map(|operation| authorizer.decide(CLIENT, on_orders(operation)));
        let allowed = Rule::DefaultAllow;
        let lines = line(1, "User:a", "READ", &allowed) + &line(1, "User:b", "WRITE", &allowed);
        let mut seen = seen(lines);
        let text = to_text(&shown(&decisions[..2], Some(&seen)), "");
        assert_eq!(
            text,
            "allowed: Read on Topic orders for User:a from any address\n  \
               because       ALLOW All on Topic orders to User:a from any address\n  \
               last used     2026-01-01T00:00:00.000Z (1 d 0 h ago)\n\
             allowed: Write on Topic orders for User:a from any address\n  \
               because       ALLOW All on Topic orders to User:a from any address\n  \
               never used    since 2026-01-01T00:00:00.000Z\n"
        );
        seen.set_topic("orders");
        let json = to_json(&shown(&decisions, Some(&seen)));
        let times = |index: usize| {
            let decision = &json["decisions"][index];
            [&decision["lastUsed"], &decision["neverUsedSince"]].map(Value::as_str)
        };
        let day = Some("2026-01-01T00:00:00.000Z");
        // The topic does not show who writes it.
        assert_eq!([times(0), times(1)], [[day, None], [None, None]]);
        assert_eq!(times(2), [None, day]);
    }

    #[test]
    fn create_on_the_cluster_allows_creating_topics() {
        let mut authorizer = StandardAuthorizer::default();
        let create = Action {
            operation: Operation::Create,
            ..READ
        };
        assert!(!authorizer.decide(CLIENT, create).is_allowed());
        let mut on_cluster = acl(PermissionType::Allow, Operation::Create, WILDCARD);
        on_cluster.pattern.resource_type = ResourceType::Cluster;
        on_cluster.pattern.name = CLUSTER_NAME.into();
        authorizer.acls.insert(on_cluster);
        assert_eq!(
            text(&authorizer, create),
            "allowed: Create on Topic t for User:a from any address\n  \
               because       ALLOW Create on the cluster to User:a from any address\n  \
               but           a principal that may Create on the cluster may create every topic\n"
        );
    }

    #[test]
    fn hosts_are_normalized_addresses() {
        assert_eq!(host("::1").unwrap(), "0:0:0:0:0:0:0:1");
        assert!(host("localhost").is_err());
    }
}
