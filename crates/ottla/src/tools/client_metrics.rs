//! `client-metrics`: Kafka's `kafka-client-metrics.sh`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use clap::{ArgGroup, Args};
use ottla_client::Admin;
use ottla_client::admin::{ConfigOperation, ConfigResourceType};
use ottla_storage::random_uuid;

use super::admin_client::Brokers;
use super::{block_on, report_on_stdout};

/// Show and change which metrics brokers request from clients (KIP-714).
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
pub struct ClientMetricsArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// Create or change a subscription.
    #[arg(long, group = "action")]
    alter: bool,
    /// Delete a subscription.
    #[arg(long, group = "action", requires = "name")]
    delete: bool,
    /// Show subscriptions.
    #[arg(long, group = "action")]
    describe: bool,
    /// List the names of subscriptions.
    #[arg(long, group = "action", conflicts_with = "name")]
    list: bool,
    /// The name of the subscription.
    #[arg(long)]
    name: Option<String>,
    /// Generate the name.
    #[arg(long, requires = "alter", conflicts_with = "name")]
    generate_name: bool,
    /// Interval at which clients send their metrics; empty for the default.
    #[arg(long, value_name = "MS", requires = "alter")]
    interval: Option<String>,
    /// Selectors of clients, key=value, separated by commas. Keys are client_id,
    /// client_instance_id, client_software_name, client_software_version, client_source_address and
    /// client_source_port; the values are regular expressions.
    #[arg(long = "match", value_name = "SELECTORS", requires = "alter")]
    selectors: Option<String>,
    /// Prefixes of metric names, separated by commas.
    #[arg(long, value_name = "PREFIXES", requires = "alter")]
    metrics: Option<String>,
}

pub fn run(args: ClientMetricsArgs) -> ExitCode {
    if let Err(error) = check(&args) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    block_on(async {
        report_on_stdout(
            "Error while executing client metrics command : ",
            act(&args).await,
        )
    })
}

fn check(args: &ClientMetricsArgs) -> anyhow::Result<()> {
    if args.alter && args.name.is_none() && !args.generate_name {
        bail!("One of --name or --generate-name must be specified with --alter.");
    }
    if let Some(interval) = args.interval.as_deref().filter(|it| !it.is_empty())
        && interval.parse::<i32>().is_err()
    {
        bail!("Invalid interval value {interval}. Enter an integer, or leave empty to reset.");
    }
    Ok(())
}

const KIND: ConfigResourceType = ConfigResourceType::ClientMetrics;

async fn act(args: &ClientMetricsArgs) -> anyhow::Result<()> {
    let admin = args.brokers.connect("ottla-client-metrics", None).await?;
    if args.alter {
        alter(args, &admin).await
    } else if args.delete {
        let name = args.name.clone().unwrap_or_default();
        let operations = settings(&admin, &name)
            .await?
            .into_keys()
            .map(|key| (key, ConfigOperation::Delete))
            .collect();
        admin.alter_configs(KIND, &name, &operations, false).await?;
        println!("Deleted client metrics config for {name}.");
        Ok(())
    } else if args.describe {
        describe(args, &admin).await
    } else {
        let mut names = admin.list_config_resources(KIND).await?;
        names.sort();
        println!("{}", names.join("\n"));
        Ok(())
    }
}

async fn alter(args: &ClientMetricsArgs, admin: &Admin) -> anyhow::Result<()> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => random_uuid().to_string(),
    };
    let mut operations = BTreeMap::new();
    for (key, value) in [
        ("interval.ms", &args.interval),
        ("metrics", &args.metrics),
        ("match", &args.selectors),
    ] {
        let operation = match value.as_deref() {
            Some("") => ConfigOperation::Delete,
            Some(value) => ConfigOperation::Set(value.to_owned()),
            None => continue,
        };
        operations.insert(key.to_owned(), operation);
    }
    admin.alter_configs(KIND, &name, &operations, false).await?;
    println!("Altered client metrics config for {name}.");
    Ok(())
}

async fn describe(args: &ClientMetricsArgs, admin: &Admin) -> anyhow::Result<()> {
    let mut names = admin.list_config_resources(KIND).await?;
    names.sort();
    if let Some(name) = &args.name {
        if !names.contains(name) {
            println!(
                "The client metric resource {name} doesn't exist and doesn't have dynamic config."
            );
            return Ok(());
        }
        names = vec![name.clone()];
    }
    for name in names {
        println!("Client metrics configs for {name} are:");
        for (key, value) in settings(admin, &name).await? {
            println!("  {key}={value}");
        }
    }
    Ok(())
}

async fn settings(admin: &Admin, name: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let described = admin.describe_configs(KIND, name, false).await?;
    Ok(described
        .into_iter()
        .map(|config| {
            let value = config.value.map_or("null".to_owned(), |it| it.to_string());
            (config.name.to_string(), value)
        })
        .collect())
}
