//! `groups`: Kafka's `kafka-groups.sh`.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use ottla_client::admin::GroupListing;

use super::admin_client::Brokers;
use super::consumer_groups::table::Table;
use super::{block_on, report_on_stdout};

/// List the groups of all types.
#[derive(Args, Debug)]
pub struct GroupsArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// List the groups.
    #[arg(long, required = true)]
    list: bool,
    /// Only groups of this type: classic, consumer, share or streams.
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["consumer", "share", "streams"])]
    group_type: Option<String>,
    /// Only groups with this type of protocol: consumer, connect and so on.
    #[arg(long, value_name = "PROTOCOL", conflicts_with_all = ["consumer", "share", "streams"])]
    protocol: Option<String>,
    /// Only groups of consumers, including classic and simple ones.
    #[arg(long, conflicts_with_all = ["share", "streams"])]
    consumer: bool,
    /// Only share groups.
    #[arg(long, conflicts_with = "streams")]
    share: bool,
    /// Only streams groups.
    #[arg(long)]
    streams: bool,
}

/// The type in the capitalisation of Kafka's tools.
fn type_name(group_type: &str) -> &'static str {
    match group_type.to_ascii_lowercase().as_str() {
        "classic" => "Classic",
        "consumer" => "Consumer",
        "share" => "Share",
        "streams" => "Streams",
        "" => "",
        _ => "Unknown",
    }
}

pub fn run(args: GroupsArgs) -> ExitCode {
    let wanted_type = match args.group_type.as_deref().map(type_name) {
        Some("" | "Unknown") => {
            eprintln!(
                "--group-type must be a valid group type: classic, consumer, share or streams, and not {}.",
                args.group_type.unwrap_or_default()
            );
            return ExitCode::FAILURE;
        }
        wanted => wanted,
    };
    block_on(async {
        report_on_stdout(
            "Error while executing groups command : ",
            list(&args, wanted_type).await,
        )
    })
}

async fn list(args: &GroupsArgs, wanted_type: Option<&str>) -> anyhow::Result<()> {
    if !args.list {
        bail!("Command must include exactly one action: --list.");
    }
    let admin = args.brokers.connect("ottla-groups", None).await?;
    let mut groups = admin.list_groups(&[], &[]).await?;
    groups.retain(|group| is_wanted(args, wanted_type, group));
    let widest = groups
        .iter()
        .flat_map(|group| [group.group_id.len(), group.protocol_type.len()])
        .fold(20, usize::max);
    let mut table = Table::<GroupListing>::new();
    table.fixed("GROUP", widest, |group| group.group_id.clone());
    table.fixed("TYPE", widest, |group| type_name(&group.group_type));
    table.fixed("PROTOCOL", widest, |group| group.protocol_type.clone());
    table.pad_last();
    for (index, line) in table.lines(&groups).iter().enumerate() {
        // Kafka's tool prints a blank after each cell, and none after the last title.
        println!("{line}{}", if index == 0 { "" } else { " " });
    }
    Ok(())
}

fn is_wanted(args: &GroupsArgs, wanted_type: Option<&str>, group: &GroupListing) -> bool {
    let kind = type_name(&group.group_type);
    let has_protocol = |wanted: &String| group.protocol_type == *wanted;
    match (wanted_type, &args.protocol) {
        (Some(wanted), protocol) => kind == wanted && protocol.as_ref().is_none_or(has_protocol),
        (None, Some(protocol)) => has_protocol(protocol),
        (None, None) if args.consumer => {
            matches!(group.protocol_type.as_str(), "consumer" | "") || kind == "Consumer"
        }
        (None, None) if args.share => kind == "Share",
        (None, None) if args.streams => kind == "Streams",
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: GroupsArgs,
    }

    #[test]
    fn filters_match_kafka() {
        let group = |id: &str, kind: &str, protocol: &str| GroupListing {
            group_id: id.into(),
            group_type: kind.into(),
            protocol_type: protocol.into(),
            state: String::new(),
        };
        let groups = [
            group("classic", "classic", "consumer"),
            group("simple", "classic", ""),
            group("connect", "classic", "connect"),
            group("new", "consumer", "consumer"),
            group("share", "share", "share"),
        ];
        let chosen = |flags: &[&str], wanted: Option<&str>| -> Vec<&str> {
            let line = ["groups", "--bootstrap-server", "x:1", "--list"];
            let args = Line::parse_from(line.iter().chain(flags)).args;
            let kept = groups
                .iter()
                .filter(|group| is_wanted(&args, wanted, group));
            kept.map(|group| group.group_id.as_str()).collect()
        };
        assert_eq!(chosen(&[], None).len(), 5);
        assert_eq!(chosen(&["--consumer"], None), ["classic", "simple", "new"]);
        assert_eq!(chosen(&["--share"], None), ["share"]);
        assert_eq!(chosen(&["--protocol", "connect"], None), ["connect"]);
        assert_eq!(
            chosen(&["--protocol", "consumer"], Some("Classic")),
            ["classic"]
        );
    }
}
