//! `acls`: Kafka's `kafka-acls.sh`; `acls explain`, which explains why an operation is allowed or
//! denied; and `acls unused`, which finds ACLs that decide nothing.
//!
//! Kafka: `AclCommand`. Sets that Kafka prints in hash order are printed sorted.

mod audit;
mod authorizer_settings;
mod dry_run;
mod explain;
mod node_settings;
mod rules;
mod seen;
mod unused;

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::{ArgGroup, Args, Subcommand};
use ottla_client::admin::EndpointType;
use ottla_client::{Admin, ClientError};
use ottla_protocol::messages::create_acls_request::AclCreation;
use ottla_protocol::messages::delete_acls_request::DeleteAclsFilter;
use ottla_security::{Operation, PatternType, PermissionType, Principal, ResourceType, WILDCARD};

use super::{UsageError, admin_client, block_on, java_exceptions, message_of};
use audit::AuditArgs;
use explain::ExplainArgs;
pub use explain::UNKNOWN;
use rules::{
    Entry, Resources, Target, cluster, described, filter, operation, shown_entries, shown_entry,
    shown_target,
};
use unused::UnusedArgs;

/// Add, remove and list ACLs, explain their decisions, or find unused ones.
///
/// Give one of --add, --remove and --list.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group = ArgGroup::new("action").required(true))]
pub struct AclsArgs {
    #[command(subcommand)]
    command: Option<AclsCommand>,
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS", conflicts_with = "bootstrap_controller")]
    bootstrap_server: Option<String>,
    /// Controllers to connect to first, instead of brokers.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_controller: Option<String>,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// Add ACLs.
    #[arg(long, group = "action")]
    add: bool,
    /// Remove ACLs.
    #[arg(long, group = "action")]
    remove: bool,
    /// List the ACLs of resources, or all.
    #[arg(long, group = "action", conflicts_with_all = ["producer", "consumer", "allow_host", "allow_principal", "deny_host", "deny_principal"])]
    list: bool,
    #[command(flatten)]
    resources: Resources,
    /// The pattern type of resource names: literal or prefixed; to list and remove also any and
    /// match.
    #[arg(long, value_name = "TYPE", default_value = "LITERAL", value_parser = pattern_type)]
    resource_pattern_type: PatternType,
    /// An operation, such as Read; All by default. Repeatable.
    #[arg(long, value_name = "OPERATION", conflicts_with_all = ["producer", "consumer"])]
    operation: Vec<String>,
    /// A principal to allow, as User:name; User:* means everyone. Repeatable.
    #[arg(long, value_name = "PRINCIPAL")]
    allow_principal: Vec<String>,
    /// A principal to deny; denials take precedence. Repeatable.
    #[arg(long, value_name = "PRINCIPAL", conflicts_with_all = ["producer", "consumer"])]
    deny_principal: Vec<String>,
    /// An address from which to allow it; any by default. Repeatable.
    #[arg(long, value_name = "ADDRESS")]
    allow_host: Vec<String>,
    /// An address from which to deny it; any by default. Repeatable.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["producer", "consumer"])]
    deny_host: Vec<String>,
    /// List only the ACLs of this principal. Repeatable.
    #[arg(long, value_name = "PRINCIPAL", requires = "list")]
    principal: Vec<String>,
    /// The permissions of a producer: Write, Describe and Create on the topic.
    #[arg(long, requires = "topic")]
    producer: bool,
    /// The permissions of a consumer: Read and Describe on the topic, Read on the group.
    #[arg(long, requires = "topic", requires = "group")]
    consumer: bool,
    /// With --producer: also the permission of an idempotent producer on the cluster.
    #[arg(long, requires = "producer")]
    idempotent: bool,
    /// Remove without asking for confirmation.
    #[arg(long)]
    force: bool,
    /// With --add or --remove: change nothing, and print the rules and permissions that would change,
    /// and which clients would lose what they used, according to the decisions of the brokers.
    #[arg(long, conflicts_with_all = ["list", "force"])]
    dry_run: bool,
    // Only with --dry-run.
    #[command(flatten)]
    audit: AuditArgs,
}

#[derive(Subcommand, Debug)]
enum AclsCommand {
    /// Show whether an operation is allowed, the rule that decides, and other matching rules.
    ///
    /// If the brokers write their decisions to a topic or files, also when the principal used it last.
    ///
    /// Exit status: 0 if every given operation is allowed, 1 if any is denied, 2 if the command
    /// fails.
    Explain(Box<ExplainArgs>),
    /// Show the rules that decided no request that the brokers wrote to a topic or files.
    ///
    /// The brokers need ottla.audit.topic or ottla.audit.file, and ottla.audit.events=allowed,denied.
    Unused(UnusedArgs),
}

pub fn run(args: AclsArgs) -> ExitCode {
    block_on(async {
        let prefix = "Error while executing ACL command: ";
        match &args.command {
            Some(AclsCommand::Explain(args)) => return explain::run(args).await,
            Some(AclsCommand::Unused(args)) => return unused::run(args).await,
            None => {}
        }
        match act(&args).await {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) if error.is::<UsageError>() => eprintln!("{error}"),
            Err(error) => println!("{prefix}{}", exception_of(&error)),
        }
        ExitCode::FAILURE
    })
}

/// Formats an error as Java shows the cause of a failed future: an error of the cluster has its
/// class.
fn exception_of(error: &anyhow::Error) -> String {
    match error.downcast_ref::<ClientError>() {
        Some(cluster) if cluster.code().is_some() => java_exceptions::shown(cluster),
        _ => message_of(error),
    }
}

async fn act(args: &AclsArgs) -> anyhow::Result<()> {
    let targets = targets(args);
    let changes = match args.list {
        true => BTreeMap::new(),
        false => changes(args, &targets)?,
    };
    let principals = principals(&args.principal)?;
    if args.audit.is_given() && !args.dry_run {
        let message = "--audit-file, --audit-topic and --since need --dry-run";
        bail!(UsageError(message.to_owned()));
    }
    let admin = admin_client::connect_to_either(
        args.bootstrap_server.as_deref(),
        args.bootstrap_controller.as_deref(),
        args.command_config.as_deref(),
        "ottla-acls",
    )
    .await?;
    if args.dry_run {
        let nodes = match args.bootstrap_controller {
            Some(_) => EndpointType::Controller,
            None => EndpointType::Broker,
        };
        dry_run::run(&admin, nodes, &changes, args.remove, &args.audit).await
    } else if args.add {
        add(&admin, changes).await
    } else if args.remove {
        remove(&admin, changes, args.force).await
    } else {
        list(&admin, &targets, &principals).await
    }
}

fn targets(args: &AclsArgs) -> BTreeSet<Target> {
    let pattern_type = args.resource_pattern_type;
    let named = args.resources.named();
    let mut targets: BTreeSet<Target> = named
        .map(|(resource_type, name)| (resource_type, name.to_owned(), pattern_type))
        .collect();
    if pattern_type == PatternType::Literal && (args.resources.cluster || args.idempotent) {
        targets.insert(cluster());
    }
    targets
}

/// The ACLs to add or remove. Without entries: everything about the resource.
fn changes(
    args: &AclsArgs,
    targets: &BTreeSet<Target>,
) -> anyhow::Result<BTreeMap<Target, BTreeSet<Entry>>> {
    if targets.is_empty() {
        let message = "You must provide at least one resource: --topic <topic> or --cluster or --group \
                       <group> or --delegation-token <Delegation Token ID>";
        bail!(UsageError(message.to_owned()));
    }
    if args.consumer
        && !args.producer
        && (args.resources.cluster || !args.resources.transactional_id.is_empty())
    {
        let message = "With --consumer you must specify a --topic and a --group and no --cluster or \
                       --transactional-id option should be specified.";
        bail!(UsageError(message.to_owned()));
    }
    let mut changes: BTreeMap<Target, BTreeSet<Entry>> = BTreeMap::new();
    let mut put = |target: &Target, operations: &[Operation]| -> anyhow::Result<()> {
        let entries = entries(args, operations)?;
        changes.entry(target.clone()).or_default().extend(entries);
        Ok(())
    };
    use Operation::*;
    for target in targets {
        match target.0 {
            _ if !args.producer && !args.consumer => put(target, &operations(args)?)?,
            ResourceType::Topic => {
                if args.producer {
                    put(target, &[Write, Describe, Create])?;
                }
                if args.consumer {
                    put(target, &[Read, Describe])?;
                }
            }
            ResourceType::TransactionalId if args.producer => put(target, &[Write, Describe])?,
            ResourceType::Group if args.consumer => put(target, &[Read])?,
            _ => {}
        }
    }
    if args.idempotent {
        put(&cluster(), &[IdempotentWrite])?;
    }
    for ((resource_type, _, _), entries) in &changes {
        let mut known = resource_type.operations().to_vec();
        known.push(All);
        if entries.iter().any(|entry| !known.contains(&entry.2)) {
            let known: Vec<&str> = known.iter().map(|operation| operation.name()).collect();
            let known = known.join(", ");
            bail!(UsageError(format!(
                "ResourceType {resource_type} only supports operations [{known}]"
            )));
        }
    }
    if args.add {
        let pattern_type = args.resource_pattern_type;
        if !matches!(pattern_type, PatternType::Literal | PatternType::Prefixed) {
            bail!(UsageError(format!(
                "A '--resource-pattern-type' value of '{pattern_type}' is not valid when adding acls."
            )));
        }
        if changes.values().any(BTreeSet::is_empty) {
            let message = "You must specify one of: --allow-principal, --deny-principal when trying \
                           to add ACLs.";
            bail!(UsageError(message.to_owned()));
        }
    }
    Ok(changes)
}

fn entries(args: &AclsArgs, operations: &[Operation]) -> anyhow::Result<BTreeSet<Entry>> {
    let mut entries = BTreeSet::new();
    for (principals_given, hosts, permission_type) in [
        (
            &args.allow_principal,
            &args.allow_host,
            PermissionType::Allow,
        ),
        (&args.deny_principal, &args.deny_host, PermissionType::Deny),
    ] {
        let any = [WILDCARD.to_owned()];
        let hosts = if hosts.is_empty() { &any } else { &hosts[..] };
        for principal in principals(principals_given)? {
            for host in hosts {
                for operation in operations {
                    let host = host.trim().to_owned();
                    entries.insert((principal.clone(), host, *operation, permission_type));
                }
            }
        }
    }
    Ok(entries)
}

fn principals(texts: &[String]) -> anyhow::Result<Vec<String>> {
    let parsed = texts.iter().map(|text| Principal::parse(text.trim()));
    parsed
        .map(|principal| Ok(principal.map_err(|error| anyhow!("{error}"))?.to_string()))
        .collect()
}

fn operations(args: &AclsArgs) -> anyhow::Result<Vec<Operation>> {
    match args.operation.is_empty() {
        true => Ok(vec![Operation::All]),
        false => args.operation.iter().map(|name| operation(name)).collect(),
    }
}

fn pattern_type(text: &str) -> Result<PatternType, String> {
    let wanted = text.to_ascii_uppercase();
    let mut all = PatternType::ALL[1..].iter();
    let found = all.find(|pattern_type| pattern_type.name() == wanted);
    found
        .copied()
        .ok_or_else(|| format!("Unknown resource-pattern-type: {text}"))
}

async fn add(admin: &Admin, changes: BTreeMap<Target, BTreeSet<Entry>>) -> anyhow::Result<()> {
    for (target, entries) in &changes {
        let existing = described(admin, &filter(Some(target), None)).await?;
        let existing = existing.get(target);
        let (there, missing): (Vec<&Entry>, Vec<&Entry>) = entries
            .iter()
            .partition(|entry| existing.is_some_and(|existing| existing.contains(*entry)));
        let shown = shown_target(target);
        for entry in there {
            let entry = shown_entry(entry);
            println!("Acl (pattern={shown}, entry={entry}) already exists.");
        }
        if missing.is_empty() {
            continue;
        }
        let lines = shown_entries(missing.iter().copied());
        println!("Adding ACLs for resource `{shown}`: \n {lines}\n");
        let creations: Vec<AclCreation> = missing
            .into_iter()
            .map(
                |(principal, host, operation, permission_type)| AclCreation {
                    resource_type: target.0.code(),
                    resource_name: target.1.clone().into(),
                    resource_pattern_type: target.2.code(),
                    principal: principal.clone().into(),
                    host: host.clone().into(),
                    operation: operation.code(),
                    permission_type: permission_type.code(),
                    ..Default::default()
                },
            )
            .collect();
        admin.create_acls(&creations).await?;
    }
    Ok(())
}

async fn remove(
    admin: &Admin,
    changes: BTreeMap<Target, BTreeSet<Entry>>,
    is_forced: bool,
) -> anyhow::Result<()> {
    for (target, entries) in &changes {
        let shown = shown_target(target);
        let (question, filters) = match entries.is_empty() {
            true => (
                format!(
                    "Are you sure you want to delete all ACLs for resource filter `{shown}`? (y/n)"
                ),
                vec![filter(Some(target), None)],
            ),
            false => (
                format!(
                    "Are you sure you want to remove ACLs: \n {}\n from resource filter `{shown}`? (y/n)",
                    shown_entries(entries)
                ),
                entries
                    .iter()
                    .map(|entry| filter(Some(target), Some(entry)))
                    .collect(),
            ),
        };
        if is_forced || is_confirmed(&question)? {
            admin.delete_acls(&filters).await?;
        }
    }
    Ok(())
}

fn is_confirmed(question: &str) -> anyhow::Result<bool> {
    println!("{question}");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer
        .trim_end_matches(['\r', '\n'])
        .eq_ignore_ascii_case("y"))
}

async fn list(
    admin: &Admin,
    targets: &BTreeSet<Target>,
    principals: &[String],
) -> anyhow::Result<()> {
    let mut found: BTreeMap<Target, BTreeSet<Entry>> = BTreeMap::new();
    let mut filters: Vec<DeleteAclsFilter> = targets
        .iter()
        .map(|target| filter(Some(target), None))
        .collect();
    if filters.is_empty() {
        filters.push(filter(None, None));
    }
    for filter in &filters {
        for (target, entries) in described(admin, filter).await? {
            found.entry(target).or_default().extend(entries);
        }
    }
    let print = |wanted: &dyn Fn(&&Entry) -> bool| {
        for (target, entries) in &found {
            let mut entries = entries.iter().filter(wanted).peekable();
            if entries.peek().is_some() {
                let (shown, lines) = (shown_target(target), shown_entries(entries));
                println!("Current ACLs for resource `{shown}`:\n{lines}\n");
            }
        }
    };
    if principals.is_empty() {
        print(&|_| true);
    }
    for principal in principals {
        println!("ACLs for principal `{principal}`");
        print(&|entry| entry.0 == *principal);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AclsArgs,
    }

    fn parsed(line: &str) -> AclsArgs {
        let words = ["acls", "--bootstrap-server", "x:1"];
        let words = words.into_iter().chain(line.split_whitespace());
        let parsed = Line::try_parse_from(words);
        parsed
            .unwrap_or_else(|error| panic!("{line}: {error}"))
            .args
    }

    fn changed(line: &str) -> Result<Vec<String>, String> {
        let args = parsed(line);
        let changes = changes(&args, &targets(&args)).map_err(|error| error.to_string())?;
        let lines = changes.iter().flat_map(|(target, entries)| {
            let shown = |entry| format!("{} {}", shown_target(target), shown_entry(entry));
            entries.iter().map(shown).collect::<Vec<_>>()
        });
        Ok(lines.collect())
    }

    #[test]
    fn consumers_and_producers_get_the_acls_of_kafka() {
        let changes = changed(
            "--add --allow-principal User:a --producer --consumer --idempotent --topic t --group g",
        );
        let of = |resource: &str, operation: &str| {
            format!(
                "ResourcePattern(resourceType={resource}, patternType=LITERAL) (principal=User:a, \
                 host=*, operation={operation}, permissionType=ALLOW)"
            )
        };
        let expected = [
            of("TOPIC, name=t", "READ"),
            of("TOPIC, name=t", "WRITE"),
            of("TOPIC, name=t", "CREATE"),
            of("TOPIC, name=t", "DESCRIBE"),
            of("GROUP, name=g", "READ"),
            of("CLUSTER, name=kafka-cluster", "IDEMPOTENT_WRITE"),
        ];
        assert_eq!(changes.unwrap(), expected);
    }

    #[test]
    fn invalid_arguments_are_refused_with_the_messages_of_kafka() {
        for (line, error) in [
            (
                "--add --allow-principal User:a",
                "You must provide at least one resource: --topic <topic> or --cluster or --group \
                 <group> or --delegation-token <Delegation Token ID>",
            ),
            (
                "--add --topic t",
                "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.",
            ),
            (
                "--add --topic t --allow-principal User:a --resource-pattern-type match",
                "A '--resource-pattern-type' value of 'MATCH' is not valid when adding acls.",
            ),
            (
                "--add --group g --allow-principal User:a --operation Write",
                "ResourceType GROUP only supports operations [READ, DESCRIBE, DELETE, \
                 DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL]",
            ),
        ] {
            assert_eq!(changed(line), Err(error.to_owned()), "{line}");
        }
    }
}
