//! `configs`: Kafka's `kafka-configs.sh`.

mod dead_letters;
mod entity_type;
mod quotas;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::bail;
use clap::{ArgGroup, Args};
use ottla_client::admin::{ConfigOperation, ConfigResourceType};
use ottla_client::{Admin, ClientError};
use ottla_config::ConfigSource;

use entity_type::EntityType;

use super::{admin_client, block_on, java_exceptions, load_properties};

/// Show and change the settings of topics, brokers, groups and client metrics subscriptions, the quotas of
/// users, clients and addresses, and the SCRAM credentials of users.
///
/// An entity is named by --entity-type and --entity-name, or shorter by --topic, --user and so on.
/// Quotas are producer_byte_rate, consumer_byte_rate, request_percentage and
/// controller_mutation_rate; for addresses connection_creation_rate. A credential has the form
/// SCRAM-SHA-256=[iterations=8192,password=secret].
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
#[command(group = ArgGroup::new("servers").required(true))]
pub struct ConfigsArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS", group = "servers")]
    bootstrap_server: Option<String>,
    /// Controllers to connect to first, instead of brokers.
    #[arg(long, value_name = "SERVERS", group = "servers")]
    bootstrap_controller: Option<String>,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// Show settings.
    #[arg(long, group = "action")]
    describe: bool,
    /// Change settings.
    #[arg(long, group = "action")]
    alter: bool,
    /// Show all settings, not only those changed while the cluster runs.
    #[arg(long)]
    all: bool,
    /// topics, brokers, broker-loggers, groups, client-metrics, users, clients or ips; users and clients can
    /// be given together.
    #[arg(long, value_name = "TYPE")]
    entity_type: Vec<String>,
    /// The name of the entity.
    #[arg(long, value_name = "NAME")]
    entity_name: Vec<String>,
    /// The defaults for entities of this type without a value of their own.
    #[arg(long, action = clap::ArgAction::Count)]
    entity_default: u8,
    /// Settings to set: key=value, separated by commas; values with commas in [brackets].
    #[arg(
        long,
        value_name = "SETTINGS",
        requires = "alter",
        conflicts_with = "add_config_file"
    )]
    add_config: Option<String>,
    /// Properties file with settings to set.
    #[arg(long, value_name = "FILE", requires = "alter")]
    add_config_file: Option<String>,
    /// Names of settings to remove, separated by commas.
    #[arg(long, value_name = "NAMES", requires = "alter", value_delimiter = ',')]
    delete_config: Vec<String>,
    /// A topic.
    #[arg(long)]
    topic: Option<String>,
    /// A broker, by its id.
    #[arg(long, value_name = "ID")]
    broker: Option<String>,
    /// All brokers.
    #[arg(long)]
    broker_defaults: bool,
    /// The loggers of a broker, by its id.
    #[arg(long, value_name = "ID")]
    broker_logger: Option<String>,
    /// A group.
    #[arg(long)]
    group: Option<String>,
    /// A client metrics subscription.
    #[arg(long, value_name = "NAME")]
    client_metrics: Option<String>,
    /// A client.
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// All clients.
    #[arg(long)]
    client_defaults: bool,
    /// A user.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// All users.
    #[arg(long)]
    user_defaults: bool,
    /// An address.
    #[arg(long, value_name = "NAME")]
    ip: Option<String>,
    /// All addresses.
    #[arg(long)]
    ip_defaults: bool,
}

pub fn run(args: ConfigsArgs) -> ExitCode {
    block_on(async {
        match act(&args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                match error.downcast_ref::<ClientError>() {
                    Some(client_error) => {
                        let line: Vec<String> = std::env::args().skip(2).collect();
                        eprintln!(
                            "Error while executing config command with args '{}'",
                            without_passwords(&line.join(" "))
                        );
                        eprintln!("{}", java_exceptions::shown(client_error));
                    }
                    None => eprintln!("{error:#}"),
                }
                ExitCode::FAILURE
            }
        }
    })
}

/// The command line without passwords, so that it can be shown.
fn without_passwords(line: &str) -> String {
    let mut parts = line.split("password=");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([']', ' ']).unwrap_or(part.len());
        shown += "password=***";
        shown += &part[end..];
    }
    shown
}

async fn act(args: &ConfigsArgs) -> anyhow::Result<()> {
    let subjects = subjects(args, std::env::args())?;
    let operations = if args.alter {
        operations(args)?
    } else {
        BTreeMap::new()
    };
    let (kind, entity) = subjects.first().cloned().expect("one at least is given");
    let changes_quotas = kind.has_quotas() && args.alter;
    let quota_change = changes_quotas.then(|| quotas::Change::new(&subjects, &operations));
    let quota_change = quota_change.transpose()?;
    let admin = admin_client::connect_to_either(
        args.bootstrap_server.as_deref(),
        args.bootstrap_controller.as_deref(),
        args.command_config.as_deref(),
        "ottla-configs",
    )
    .await?;
    if !args.alter {
        return if kind.has_quotas() {
            quotas::describe(&admin, &subjects).await
        } else {
            describe(&admin, kind, entity, args.all).await
        };
    }
    let entity = entity.unwrap_or_default();
    let queue = dead_letters::queue(kind, &operations);
    match quota_change {
        Some(change) => quotas::alter(&admin, &subjects, change).await?,
        None => alter(&admin, kind, &entity, operations).await?,
    }
    if let Some(queue) = queue {
        dead_letters::check(&admin, &queue).await;
    }
    match entity.as_str() {
        "" => println!(
            "Completed updating default config for {} in the cluster.",
            kind.name()
        ),
        entity => println!(
            "Completed updating config for {} {entity}.",
            kind.singular()
        ),
    }
    Ok(())
}

/// The selected entities: types with a name each; an empty name means the default, and `None` all
/// entities. There is more than one only for the clients of a user.
fn subjects(
    args: &ConfigsArgs,
    command_line: impl Iterator<Item = String>,
) -> anyhow::Result<Vec<(EntityType, Option<String>)>> {
    let default = |is_given: bool| is_given.then(String::new);
    let short: Vec<(EntityType, String)> = [
        (EntityType::Topics, args.topic.clone()),
        (EntityType::Clients, args.client.clone()),
        (EntityType::Users, args.user.clone()),
        (EntityType::Brokers, args.broker.clone()),
        (EntityType::BrokerLoggers, args.broker_logger.clone()),
        (EntityType::Ips, args.ip.clone()),
        (EntityType::ClientMetrics, args.client_metrics.clone()),
        (EntityType::Groups, args.group.clone()),
        (EntityType::Clients, default(args.client_defaults)),
        (EntityType::Users, default(args.user_defaults)),
        (EntityType::Brokers, default(args.broker_defaults)),
        (EntityType::Ips, default(args.ip_defaults)),
    ]
    .into_iter()
    .filter_map(|(kind, name)| Some((kind, name?)))
    .collect();
    let uses_long =
        !args.entity_type.is_empty() || !args.entity_name.is_empty() || args.entity_default > 0;
    if uses_long && !short.is_empty() {
        bail!(
            "--entity-{{type,name,default}} should not be used in conjunction with specific entity flags"
        );
    }
    let subjects: Vec<(EntityType, Option<String>)> = if short.is_empty() {
        let kinds = args
            .entity_type
            .iter()
            .map(|kind| EntityType::from_name(kind));
        let kinds = kinds.collect::<anyhow::Result<Vec<EntityType>>>()?;
        let names = names_in_order(args, command_line);
        if names.len() > kinds.len() {
            bail!("More entity names specified than entity types");
        }
        let names = names.into_iter().map(Some).chain(std::iter::repeat(None));
        kinds.into_iter().zip(names).collect()
    } else {
        let given = short.into_iter();
        given.map(|(kind, name)| (kind, Some(name))).collect()
    };
    check_subjects(args, &subjects)?;
    Ok(subjects)
}

/// The entity flags in command-line order, including --entity-default: the first name belongs to
/// the first type.
fn names_in_order(args: &ConfigsArgs, command_line: impl Iterator<Item = String>) -> Vec<String> {
    if args.entity_default == 0 {
        return args.entity_name.clone();
    }
    let mut names = args.entity_name.iter();
    command_line
        .filter_map(|word| match word.split('=').next() {
            Some(flag) if flag.starts_with("--entity-n") => names.next().cloned(),
            Some(flag) if flag.starts_with("--entity-d") => Some(String::new()),
            _ => None,
        })
        .collect()
}

fn check_subjects(
    args: &ConfigsArgs,
    subjects: &[(EntityType, Option<String>)],
) -> anyhow::Result<()> {
    match subjects {
        [] => bail!("At least one entity type must be specified"),
        [_] => {}
        [(first, _), (second, _)] if first == second => {
            bail!("Duplicate entity type(s) specified: {}", first.name())
        }
        [(EntityType::Users, _), (EntityType::Clients, _)]
        | [(EntityType::Clients, _), (EntityType::Users, _)] => {}
        _ => bail!("Only 'users' and 'clients' entity types may be specified together"),
    }
    for (kind, name) in subjects {
        let may_be_default = kind.has_quotas() || *kind == EntityType::Brokers;
        if name.as_deref() == Some("") && !may_be_default {
            bail!(
                "--entity-default must not be specified with {}",
                kind.name()
            );
        }
        let is_broker = matches!(kind, EntityType::Brokers | EntityType::BrokerLoggers);
        if let Some(id) = name.as_deref().filter(|name| is_broker && !name.is_empty())
            && id.parse::<i32>().is_err()
        {
            bail!(
                "The entity name for {} must be a valid integer broker id, but it is: {id}",
                kind.name()
            );
        }
        if name.is_none() && args.alter {
            bail!(
                "An entity name must be specified with --alter of {}",
                kind.name()
            );
        }
        if name.is_none() && *kind == EntityType::BrokerLoggers {
            bail!(
                "An entity name must be specified with --describe of {}",
                kind.name()
            );
        }
        if *kind == EntityType::Ips
            && let Some(address) = name.as_deref().filter(|name| !name.is_empty())
            && std::net::ToSocketAddrs::to_socket_addrs(&(address, 0)).is_err()
        {
            bail!(
                "The entity name for ips must be a valid IP or resolvable host, but it is: {address}"
            );
        }
    }
    Ok(())
}

fn operations(args: &ConfigsArgs) -> anyhow::Result<BTreeMap<String, ConfigOperation>> {
    let mut operations = BTreeMap::new();
    for key in &args.delete_config {
        operations.insert(key.trim().to_owned(), ConfigOperation::Delete);
    }
    let added = match (&args.add_config, &args.add_config_file) {
        (Some(text), _) => parse_settings(text)?,
        (None, Some(path)) => load_properties(path)?,
        (None, None) if operations.is_empty() => bail!(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified \
             with --alter"
        ),
        (None, None) => BTreeMap::new(),
    };
    for (key, value) in added {
        let is_valid =
            |character: char| character.is_ascii_alphanumeric() || "$._-".contains(character);
        if !key.chars().all(is_valid) {
            bail!("Invalid character found for config key: {key}");
        }
        operations.insert(key, ConfigOperation::Set(value));
    }
    Ok(operations)
}

/// Parses `k1=v1,k2=[v1,v2],k3=`.
fn parse_settings(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut settings = BTreeMap::new();
    for pair in split_outside_brackets(text) {
        let Some((key, value)) = pair.split_once('=') else {
            bail!(
                "requirement failed: Invalid entity config: all configs to be added must be in the \
                 format \"key=val\" or  \"key=[val1,val2]\" to group values which contain commas."
            );
        };
        settings.insert(
            key.trim().to_owned(),
            value.replace(['[', ']'], "").trim().to_owned(),
        );
    }
    Ok(settings)
}

fn split_outside_brackets(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_inside = false;
    for character in text.chars() {
        match character {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ => {}
        }
        match character {
            ',' if !is_inside => parts.push(String::new()),
            other => parts.last_mut().expect("there is one").push(other),
        }
    }
    parts
}

async fn alter(
    admin: &Admin,
    kind: EntityType,
    entity: &str,
    operations: BTreeMap<String, ConfigOperation>,
) -> anyhow::Result<()> {
    if kind == EntityType::BrokerLoggers {
        let loggers = admin
            .describe_configs(kind.resource(), entity, false)
            .await?;
        let unknown: Vec<&str> = operations
            .keys()
            .filter(|name| loggers.iter().all(|logger| *logger.name != ***name))
            .map(String::as_str)
            .collect();
        if !unknown.is_empty() {
            bail!("Invalid broker logger(s): {}", unknown.join(","));
        }
    }
    admin
        .alter_configs(kind.resource(), entity, &operations, false)
        .await?;
    Ok(())
}

async fn describe(
    admin: &Admin,
    kind: EntityType,
    entity: Option<String>,
    all: bool,
) -> anyhow::Result<()> {
    if let Some(name) = entity.as_deref()
        && !all
        && !name.is_empty()
        && !existing(admin, kind).await?.contains(name)
    {
        println!(
            "The {} '{name}' doesn't exist and doesn't have dynamic config.",
            kind.singular()
        );
        return Ok(());
    }
    let entities = match entity {
        Some(name) => vec![name],
        None => {
            let mut entities: Vec<String> = existing(admin, kind).await?.into_iter().collect();
            if kind == EntityType::Brokers {
                entities.push(String::new());
            }
            entities
        }
    };
    for entity in entities {
        match entity.as_str() {
            "" => println!("Default configs for {} in the cluster are:", kind.name()),
            name => {
                let which = if all { "All" } else { "Dynamic" };
                println!("{which} configs for {} {name} are:", kind.singular());
            }
        }
        let mut configs = admin
            .describe_configs(kind.resource(), &entity, true)
            .await?;
        configs.sort_by(|left, right| left.name.cmp(&right.name));
        let source = kind.dynamic_source(&entity).filter(|_| !all);
        let wanted = configs
            .iter()
            .filter(|config| source.is_none_or(|source| config.config_source == source.code()));
        for config in wanted {
            let synonyms: Vec<String> = config
                .synonyms
                .iter()
                .map(|synonym| {
                    let source = ConfigSource::from_code(synonym.source).name();
                    let value = synonym.value.as_deref().unwrap_or("null");
                    format!("{source}:{}={value}", &*synonym.name)
                })
                .collect();
            println!(
                "  {}={} sensitive={} synonyms={{{}}}",
                &*config.name,
                config.value.as_deref().unwrap_or("null"),
                config.is_sensitive,
                synonyms.join(", ")
            );
        }
    }
    Ok(())
}

/// The names of all entities of a type.
async fn existing(admin: &Admin, kind: EntityType) -> anyhow::Result<BTreeSet<String>> {
    Ok(match kind {
        EntityType::Users | EntityType::Clients | EntityType::Ips => BTreeSet::new(),
        EntityType::Topics => admin.list_topics(true).await?.into_iter().collect(),
        EntityType::Brokers | EntityType::BrokerLoggers => {
            let metadata = admin.client().refresh_metadata(Some(&[]), false).await?;
            metadata.brokers.keys().map(ToString::to_string).collect()
        }
        EntityType::ClientMetrics => admin
            .list_config_resources(ConfigResourceType::ClientMetrics)
            .await?
            .into_iter()
            .collect(),
        EntityType::Groups => {
            let groups = admin.list_groups(&[], &[]).await?;
            let mut names: BTreeSet<String> = groups.into_iter().map(|it| it.group_id).collect();
            // Groups can have settings before they have members; older brokers do not support this
            // request.
            if let Ok(more) = admin.list_config_resources(ConfigResourceType::Group).await {
                names.extend(more);
            }
            names
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_split_outside_brackets() {
        let settings = parse_settings("a=1,b=[x,y],c=").unwrap();
        assert_eq!(settings["a"], "1");
        assert_eq!(settings["b"], "x,y");
        assert_eq!(settings["c"], "");
        assert!(parse_settings("a").is_err());
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(
            without_passwords("--add-config SCRAM-SHA-256=[iterations=4096,password=a,b] --user x"),
            "--add-config SCRAM-SHA-256=[iterations=4096,password=***] --user x"
        );
    }

    #[test]
    fn entities_are_listed_in_the_order_of_their_types() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: ConfigsArgs,
        }
        let subjects_of = |flags: &str| {
            let line = format!("configs --bootstrap-server x:1 --describe {flags}");
            let words = line.split_whitespace().map(str::to_owned);
            let args = Line::try_parse_from(words.clone()).expect(flags).args;
            subjects(&args, words)
        };
        let (users, clients) = (EntityType::Users, EntityType::Clients);
        assert_eq!(
            subjects_of(
                "--entity-type users --entity-default --entity-type clients --entity-name c"
            )
            .unwrap(),
            [(users, Some(String::new())), (clients, Some("c".into()))]
        );
        assert_eq!(
            subjects_of("--entity-type users --entity-type clients").unwrap(),
            [(users, None), (clients, None)]
        );
        assert_eq!(
            subjects_of("--user u --client-defaults").unwrap(),
            [(users, Some("u".into())), (clients, Some(String::new()))]
        );
        for (flags, says) in [
            (
                "--entity-type users --entity-type users",
                "Duplicate entity type",
            ),
            (
                "--entity-type users --entity-type ips",
                "may be specified together",
            ),
            (
                "--entity-type topics --entity-default",
                "must not be specified",
            ),
            (
                "--entity-type brokers --entity-name x",
                "valid integer broker id",
            ),
            (
                "--entity-type brokers --user u",
                "should not be used in conjunction",
            ),
            ("--entity-type people", "Invalid entity type people"),
        ] {
            let error = subjects_of(flags).unwrap_err().to_string();
            assert!(error.contains(says), "{flags}: {error}");
        }
    }

    #[test]
    fn entity_types_are_singular() {
        assert_eq!(EntityType::Topics.singular(), "topic");
        assert_eq!(EntityType::ClientMetrics.singular(), "client-metric");
        assert_eq!(EntityType::Users.singular(), "user");
        assert!(EntityType::from_name("people").is_err());
    }
}
