//! `get-offsets`: Kafka's `kafka-get-offsets.sh`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use ottla_client::admin::OffsetSpec;

use super::admin_client::Brokers;
use super::topic_filter::TopicFilter;
use super::{block_on, java_exceptions};

/// Print an offset of each partition: topic:partition:offset.
#[derive(Args, Debug)]
pub struct GetOffsetsArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// Partitions by patterns, separated by commas: a regular expression for the topic, then after a
    /// colon a number, a range such as 0-3 (the end not included), 5- or -3.
    #[arg(long, value_name = "PATTERNS")]
    topic_partitions: Option<String>,
    /// Topics by a regular expression; all if neither this nor --topic-partitions is given.
    #[arg(long)]
    topic: Option<String>,
    /// Partition numbers, separated by commas.
    #[arg(long, value_name = "NUMBERS")]
    partitions: Option<String>,
    /// Which offset: milliseconds since 1970 for the first record from then on, or -1 or latest, -2 or
    /// earliest, -3 or max-timestamp, -4 or earliest-local, -5 or latest-tiered, -6 or
    /// earliest-pending-upload.
    #[arg(long, default_value = "latest", allow_hyphen_values = true)]
    time: String,
    /// Exclude internal topics.
    #[arg(long)]
    exclude_internal_topics: bool,
}

pub fn run(args: GetOffsetsArgs) -> ExitCode {
    block_on(async {
        match print_offsets(&args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("Error occurred: {error}");
                ExitCode::FAILURE
            }
        }
    })
}

async fn print_offsets(args: &GetOffsetsArgs) -> anyhow::Result<()> {
    let rules = match &args.topic_partitions {
        Some(_) if args.topic.is_some() || args.partitions.is_some() => {
            bail!("--topic-partitions cannot be used with --topic or --partitions")
        }
        Some(patterns) => patterns
            .split(',')
            .map(Rule::parse)
            .collect::<anyhow::Result<Vec<_>>>()?,
        None => vec![Rule {
            topic: TopicFilter::new(args.topic.as_deref().unwrap_or(".*"))?,
            partitions: match args.partitions.as_deref() {
                None | Some("") => Partitions::Range(0, i32::MAX),
                Some(text) => {
                    let numbers = text.split(',').map(|number| number.parse::<i32>());
                    let numbers = numbers.collect::<Result<Vec<_>, _>>().with_context(|| {
                        format!(
                            "--partitions expects a comma separated list of numeric partition ids, \
                             but received: {text}"
                        )
                    })?;
                    Partitions::Set(numbers)
                }
            },
        }],
    };
    let spec = parse_spec(&args.time)?;
    let admin = args.brokers.connect("GetOffsetShell", None).await?;
    let metadata = admin.client().refresh_metadata(None, false).await?;
    let mut partitions = Vec::new();
    for topic in metadata.topics.values() {
        if args.exclude_internal_topics && topic.is_internal {
            continue;
        }
        for partition in &topic.partitions {
            if rules
                .iter()
                .any(|rule| rule.allows(&topic.name, partition.partition))
            {
                partitions.push((topic.name.clone(), partition.partition));
            }
        }
    }
    if partitions.is_empty() {
        bail!("Could not match any topic-partitions with the specified filters");
    }
    let mut lines = Vec::new();
    for ((topic, partition), listed) in admin.list_offsets(&partitions, spec, false).await {
        match listed {
            Ok(listed) if listed.offset >= 0 => {
                lines.push((
                    format!("{topic}-{partition}"),
                    format!("{topic}:{partition}:{}", listed.offset),
                ));
            }
            Ok(_) => {}
            Err(error) => eprintln!(
                "Skip getting offsets for topic-partition {topic}-{partition} due to error: {}",
                java_exceptions::shown(&error)
            ),
        }
    }
    // Kafka sorts by directory name, so 10 comes before 2.
    lines.sort_unstable();
    for (_, line) in lines {
        println!("{line}");
    }
    Ok(())
}

fn parse_spec(time: &str) -> anyhow::Result<OffsetSpec> {
    Ok(match time {
        "latest" => OffsetSpec::Latest,
        "earliest" => OffsetSpec::Earliest,
        "max-timestamp" => OffsetSpec::MaxTimestamp,
        "earliest-local" => OffsetSpec::EarliestLocal,
        "latest-tiered" => OffsetSpec::LatestTiered,
        "earliest-pending-upload" => OffsetSpec::EarliestPendingUpload,
        other => OffsetSpec::from_timestamp(other.parse().with_context(|| {
            format!(
                "Malformed time argument {other}. Please use -1 or latest / -2 or earliest / -3 or \
                 max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or \
                 earliest-pending-upload, or a specified long format timestamp"
            )
        })?),
    })
}

/// Selects partitions of topics.
struct Rule {
    topic: TopicFilter,
    partitions: Partitions,
}

enum Partitions {
    Set(Vec<i32>),
    /// From the first, inclusive, to the second, exclusive.
    Range(i32, i32),
}

impl Rule {
    fn parse(text: &str) -> anyhow::Result<Rule> {
        let invalid = || format!("Invalid rule specification: {text}");
        let (topic, partitions) = text.split_once(':').unwrap_or((text, ""));
        let number = |text: &str, default: i32| match text {
            "" => Ok(default),
            text => text.parse::<i32>().with_context(invalid),
        };
        let partitions = match partitions.split_once('-') {
            None if partitions.is_empty() => Partitions::Range(0, i32::MAX),
            None => Partitions::Set(vec![number(partitions, 0)?]),
            Some((from, to)) => Partitions::Range(number(from, 0)?, number(to, i32::MAX)?),
        };
        let topic = TopicFilter::new(if topic.is_empty() { ".*" } else { topic })?;
        Ok(Rule { topic, partitions })
    }

    fn allows(&self, topic: &str, partition: i32) -> bool {
        let partition_allowed = match &self.partitions {
            Partitions::Set(numbers) => numbers.contains(&partition),
            Partitions::Range(from, to) => (*from..*to).contains(&partition),
        };
        partition_allowed && self.topic.is_allowed(topic, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_and_partition_rules_are_parsed() {
        let allows = |rule: &str, topic: &str, partition| {
            Rule::parse(rule).unwrap().allows(topic, partition)
        };
        assert!(allows("orders", "orders", 9));
        assert!(allows("orders:1", "orders", 1) && !allows("orders:1", "orders", 2));
        assert!(allows("o.*:0-2", "orders", 1) && !allows("o.*:0-2", "orders", 2));
        assert!(allows(":3-", "x", 5) && !allows(":3-", "x", 2));
        assert!(allows(":-3", "x", 2) && !allows(":-3", "x", 3));
        assert!(Rule::parse("orders:x").is_err());
    }

    #[test]
    fn timestamps_are_parsed() {
        assert_eq!(parse_spec("-2").unwrap(), OffsetSpec::Earliest);
        assert_eq!(
            parse_spec("max-timestamp").unwrap(),
            OffsetSpec::MaxTimestamp
        );
        assert_eq!(
            parse_spec("1700000000000").unwrap(),
            OffsetSpec::Timestamp(1_700_000_000_000)
        );
        assert!(parse_spec("soon").is_err());
    }
}
