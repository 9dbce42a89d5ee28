//! `storage`: Kafka's `kafka-storage.sh`.

mod scram_records;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use ottla_config::BrokerConfig;
use ottla_metadata::{FEATURES, Feature, MetadataVersion};
use ottla_storage::format::{FormatOptions, InitialController, InitialQuorum, format};
use ottla_storage::random_uuid;
use ottla_types::BrokerId;

use super::read_properties;
use crate::node_properties;

/// Format the directories of a node, or show their state.
#[derive(Args, Debug)]
pub struct StorageArgs {
    #[command(subcommand)]
    command: StorageCommand,
}

#[derive(Subcommand, Debug)]
enum StorageCommand {
    /// Show the state of a node's directories.
    Info(ConfigArgs),
    /// Format the directories of a node before its first start.
    Format(FormatArgs),
    /// Print the feature levels that go with a release.
    VersionMapping(VersionMappingArgs),
    /// Print the dependencies of feature levels.
    FeatureDependencies(FeatureDependenciesArgs),
    /// Print a random id, for --cluster-id.
    RandomUuid,
}

#[derive(Args, Debug)]
struct ConfigArgs {
    /// The node's configuration file.
    #[arg(long, short = 'c', value_name = "FILE")]
    config: String,
    /// A setting that overrides the file; repeatable.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

#[derive(Args, Debug)]
struct FormatArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The cluster ID, the same on every node; generate one with `ottla storage random-uuid`.
    #[arg(long, short = 't', value_name = "ID")]
    cluster_id: String,
    /// An initial SCRAM credential, such as SCRAM-SHA-256=[name=alice,password=secret]; repeatable.
    #[arg(long, short = 'S', value_name = "CREDENTIAL")]
    add_scram: Vec<String>,
    /// Skip directories that are already formatted.
    #[arg(long, short = 'g')]
    ignore_formatted: bool,
    /// The release whose feature levels the cluster starts with.
    #[arg(long, short = 'r', value_name = "VERSION")]
    release_version: Option<String>,
    /// The level of a feature; repeatable.
    #[arg(long, short = 'f', value_name = "FEATURE=LEVEL")]
    feature: Vec<String>,
    /// This node forms a quorum on its own.
    #[arg(long, short = 's', conflicts_with_all = ["no_initial_controllers", "initial_controllers"])]
    standalone: bool,
    /// This node joins an existing quorum.
    #[arg(long, short = 'N', conflicts_with = "initial_controllers")]
    no_initial_controllers: bool,
    /// The initial quorum: id@host:port:directory-id, separated by commas.
    #[arg(long, short = 'I', value_name = "CONTROLLERS")]
    initial_controllers: Option<String>,
}

#[derive(Args, Debug)]
struct VersionMappingArgs {
    /// The release; by default that of a directory that is formatted without one.
    #[arg(long, short = 'r', value_name = "VERSION")]
    release_version: Option<String>,
}

#[derive(Args, Debug)]
struct FeatureDependenciesArgs {
    /// The level of a feature; repeatable.
    #[arg(long, short = 'f', value_name = "FEATURE=LEVEL", required = true)]
    feature: Vec<String>,
}

pub fn run(args: StorageArgs) -> ExitCode {
    let result = match &args.command {
        StorageCommand::Info(args) => info(args),
        StorageCommand::Format(args) => format_directories(args),
        StorageCommand::VersionMapping(args) => {
            print_version_mapping(args.release_version.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        StorageCommand::FeatureDependencies(args) => {
            feature_dependencies(&args.feature).map(|()| ExitCode::SUCCESS)
        }
        StorageCommand::RandomUuid => {
            println!("{}", random_uuid());
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

pub(super) use scram_records::parse as scram_record;

fn load_config(args: &ConfigArgs) -> anyhow::Result<BrokerConfig> {
    let mut properties = read_properties(&args.config)?;
    node_properties::override_with(&mut properties, &args.overrides).map_err(anyhow::Error::msg)?;
    node_properties::complete_without_logins(&mut properties).map_err(anyhow::Error::msg)?;
    let (config, warnings) = BrokerConfig::from_properties(&properties)?;
    for warning in warnings {
        eprintln!("WARN {warning}");
    }
    Ok(config)
}

fn info(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = load_config(args)?;
    let mut directories = config.log_dirs.clone();
    directories.push(config.metadata_log_dir.clone());
    directories.sort_unstable();
    directories.dedup();
    let mut found = Vec::new();
    let mut problems = Vec::new();
    let mut first: Option<BTreeMap<String, String>> = None;
    for directory in &directories {
        let path = Path::new(directory);
        if !path.is_dir() {
            let problem = if path.exists() {
                "is not a directory"
            } else {
                "does not exist"
            };
            problems.push(format!("{directory} {problem}"));
            continue;
        }
        found.push(directory);
        let file = path.join("meta.properties");
        if !file.exists() {
            problems.push(format!("{directory} is not formatted."));
            continue;
        }
        let properties = match super::load_properties(&file.to_string_lossy()) {
            Ok(properties) => properties,
            Err(error) => {
                problems.push(format!("Error loading {}: {error}", file.display()));
                continue;
            }
        };
        let Some(first) = &first else {
            first = Some(properties);
            continue;
        };
        if first.get("cluster.id") != properties.get("cluster.id") {
            problems.push("Mismatched cluster IDs between storage directories.".into());
        } else if first.get("node.id") != properties.get("node.id") {
            problems.push("Mismatched node IDs between storage directories.".into());
        }
    }
    if first
        .as_ref()
        .is_some_and(|properties| properties.get("version").is_none_or(|it| it == "0"))
    {
        problems.push(
            "The configuration is for KRaft, but the directories were formatted for ZooKeeper, which \
             Kafka 4 does not have."
                .into(),
        );
    }
    if !found.is_empty() {
        println!(
            "Found log {}:",
            if found.len() == 1 {
                "directory"
            } else {
                "directories"
            }
        );
        for directory in found {
            println!("  {directory}");
        }
        println!();
    }
    if let Some(properties) = first {
        let pairs: Vec<String> = properties
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        println!("Found metadata: {{{}}}\n", pairs.join(", "));
    }
    if problems.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "Found {}:",
        if problems.len() == 1 {
            "problem"
        } else {
            "problems"
        }
    );
    for problem in problems {
        println!("  {problem}");
    }
    println!();
    Ok(ExitCode::FAILURE)
}

fn format_directories(args: &FormatArgs) -> anyhow::Result<ExitCode> {
    let config = load_config(&args.config)?;
    let scram_records = args
        .add_scram
        .iter()
        .map(|argument| scram_records::parse(argument))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let metadata_version = match &args.release_version {
        Some(text) => parse_release(text)?,
        None => MetadataVersion::DEFAULT,
    };
    let feature_levels = args
        .feature
        .iter()
        .map(|feature| parse_feature(feature))
        .collect::<anyhow::Result<BTreeMap<String, i16>>>()?;
    let is_static = !config.controller_quorum_voters.is_empty();
    if is_static && (args.standalone || args.initial_controllers.is_some()) {
        bail!(
            "You cannot specify controller.quorum.voters and format the node with \
             --initial-controllers or --standalone. If you want to use dynamic quorum, please remove \
             controller.quorum.voters and specify controller.quorum.bootstrap.servers instead."
        );
    }
    let quorum = if is_static {
        InitialQuorum::Static
    } else if let Some(controllers) = &args.initial_controllers {
        let controllers = controllers.split(',').map(parse_controller);
        InitialQuorum::Controllers(controllers.collect::<anyhow::Result<Vec<_>>>()?)
    } else if args.standalone {
        if !config.process_roles.controller {
            bail!("You can only use --standalone on a controller.");
        }
        InitialQuorum::Standalone
    } else if args.no_initial_controllers || !config.process_roles.controller {
        InitialQuorum::None
    } else {
        bail!(
            "Because controller.quorum.voters is not set on this controller, you must specify one of \
             the following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    };
    let report = format(
        &config,
        &FormatOptions {
            cluster_id: args.cluster_id.clone(),
            quorum,
            metadata_version,
            feature_levels,
            scram_records,
            ignore_formatted: args.ignore_formatted,
        },
    )?;
    if report.formatted.is_empty() {
        println!("All of the log directories are already formatted.");
    }
    for (directory, what) in report.formatted {
        println!(
            "Formatting {what} {} with metadata.version {metadata_version}.",
            directory.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn parse_release(text: &str) -> anyhow::Result<MetadataVersion> {
    MetadataVersion::from_version_string(text).with_context(|| {
        let known: Vec<String> = MetadataVersion::all()
            .map(|version| version.to_string())
            .collect();
        format!(
            "Unknown metadata.version '{text}'. Supported metadata.version are: {}",
            known.join(", ")
        )
    })
}

pub(super) fn parse_feature(text: &str) -> anyhow::Result<(String, i16)> {
    let Some((name, level)) = text.split_once('=') else {
        bail!("Can't parse feature=level string {text}: equals sign not found.");
    };
    let level = level.trim();
    let number = level.parse().with_context(|| {
        format!("Can't parse feature=level string {text}: unable to parse {level} as a short.")
    })?;
    Ok((name.trim().to_owned(), number))
}

/// Parses `id@host:port:directory-id`; a host with colons is in brackets.
fn parse_controller(text: &str) -> anyhow::Result<InitialController> {
    let wrong = || format!("--initial-controllers: {text} is not id@host:port:directory-id");
    let (rest, directory_id) = text.trim().rsplit_once(':').with_context(wrong)?;
    let (id, host, port) = ottla_config::parse_voter(rest).with_context(wrong)?;
    let directory_id = directory_id.parse().with_context(wrong)?;
    Ok(InitialController {
        id: BrokerId(id),
        host,
        port,
        directory_id,
    })
}

/// Prints the feature levels of a release, by default that of a directory that is formatted.
pub(super) fn print_version_mapping(release: Option<&str>) -> anyhow::Result<()> {
    let default = MetadataVersion::DEFAULT.to_string();
    let text = release.unwrap_or(&default);
    let version = parse_release(text)?;
    println!("metadata.version={} ({text})", version.feature_level());
    for feature in FEATURES {
        println!("{}={}", feature.name, feature.default_level(version));
    }
    Ok(())
}

/// Prints the dependencies of feature levels.
pub(super) fn feature_dependencies(features: &[String]) -> anyhow::Result<()> {
    for text in features {
        let Some((name, level)) = text.split_once('=') else {
            bail!(
                "Invalid feature format: {text}. Expected format: 'feature=version' (e.g. \
                 'group.version=1')"
            );
        };
        let (name, level) = (name.trim(), level.trim());
        let Ok(number) = level.parse::<i16>() else {
            bail!("Invalid version format: {level} for feature {name}");
        };
        if name == MetadataVersion::FEATURE_NAME {
            let Some(version) = MetadataVersion::from_feature_level(number) else {
                bail!("Unknown metadata.version {number}");
            };
            println!("{name}={number} ({version}) has no dependencies.");
            continue;
        }
        let Some(feature) = Feature::from_name(name) else {
            bail!("Unknown feature: {name}")
        };
        let Some(level) = feature.level(number) else {
            bail!("Feature level {number} is not supported for feature {name}");
        };
        if level.dependencies.is_empty() {
            println!("{name}={number} has no dependencies.");
            continue;
        }
        println!("{name}={number} requires:");
        for (dependency, level) in level.dependencies {
            match MetadataVersion::from_feature_level(*level) {
                Some(version) if *dependency == MetadataVersion::FEATURE_NAME => {
                    println!("    {dependency}={level} ({version})");
                }
                _ => println!("    {dependency}={level}"),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_and_features_are_parsed() {
        let controller = parse_controller("3@host:9093:JEXY6aqzQY-32P5TStzaFg").unwrap();
        assert_eq!((controller.id.value(), controller.port), (3, 9093));
        assert!(parse_controller("3@host:9093").is_err());
        assert_eq!(
            parse_feature("group.version = 1").unwrap(),
            ("group.version".to_owned(), 1)
        );
        assert!(parse_feature("group.version").is_err());
        assert!(parse_release("2.8").is_err());
    }
}
