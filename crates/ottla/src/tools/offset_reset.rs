//! Determines the new offsets of a group without members, for the tools of all group types.
//!
//! Kafka: `OffsetsUtils`.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use ottla_client::Admin;
use ottla_client::admin::{CommittedOffset, OffsetSpec};
use ottla_types::{ErrorCode, iso_duration_ms};

use super::local_time::now_ms;
use super::{UsageError, read_text};

pub(super) type Partition = (String, i32);

/// The new offsets: at most one of these options.
#[derive(Args, Debug)]
#[group(id = "scenario", multiple = false)]
pub(super) struct ResetScenario {
    /// To an offset.
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
    to_offset: Option<i64>,
    /// To the offsets in a file that --export printed.
    #[arg(long, value_name = "FILE")]
    pub(super) from_file: Option<String>,
    /// To the first record at or after a time: YYYY-MM-DDThh:mm:ss.sss.
    #[arg(long, value_name = "TIME")]
    to_datetime: Option<String>,
    /// To the first record not older than this duration: PnDTnHnMnS.
    #[arg(long, value_name = "DURATION")]
    by_duration: Option<String>,
    /// To the first record.
    #[arg(long)]
    to_earliest: bool,
    /// After the last record.
    #[arg(long)]
    to_latest: bool,
    /// To the current offsets.
    #[arg(long)]
    to_current: bool,
    /// By this number of offsets; a negative number moves backwards.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    shift_by: Option<i64>,
}

impl ResetScenario {
    /// The new offsets of a group's partitions. `is_single`: the given file, if any, has no group
    /// column; `committed` returns the group's committed offsets.
    pub(super) async fn new_offsets(
        &self,
        admin: &Admin,
        group: &str,
        is_single: bool,
        partitions: &[Partition],
        committed: impl AsyncFnOnce() -> anyhow::Result<BTreeMap<Partition, CommittedOffset>>,
    ) -> anyhow::Result<BTreeMap<Partition, i64>> {
        check_exist(admin, partitions).await?;
        let all = |offset: i64| partitions.iter().map(|it| (it.clone(), offset)).collect();
        if let Some(offset) = self.to_offset {
            return within_log(admin, all(offset)).await;
        }
        if self.to_earliest {
            return offsets(admin, partitions, OffsetSpec::Earliest).await;
        }
        if self.to_latest {
            return offsets(admin, partitions, OffsetSpec::Latest).await;
        }
        if let Some(shift) = self.shift_by {
            let committed = committed().await?;
            let mut wanted = BTreeMap::new();
            for partition in partitions {
                let Some(current) = committed.get(partition) else {
                    bail!(UsageError(format!(
                        "Cannot shift offset for partition {}-{} since there is no current committed offset",
                        partition.0, partition.1
                    )));
                };
                wanted.insert(partition.clone(), current.offset.saturating_add(shift));
            }
            return within_log(admin, wanted).await;
        }
        if let Some(text) = &self.to_datetime {
            return by_time(admin, partitions, parse_datetime(text)?).await;
        }
        if let Some(text) = &self.by_duration {
            let time = now_ms().saturating_sub(parse_duration(text)?);
            return by_time(admin, partitions, time).await;
        }
        if let Some(path) = &self.from_file {
            return from_file(admin, path, group, is_single).await;
        }
        if self.to_current {
            let committed = committed().await?;
            let (with, without): (Vec<&Partition>, Vec<&Partition>) = partitions
                .iter()
                .partition(|partition| committed.contains_key(*partition));
            let without: Vec<Partition> = without.into_iter().cloned().collect();
            let mut result = offsets(admin, &without, OffsetSpec::Latest).await?;
            result.extend(
                with.into_iter()
                    .map(|it| (it.clone(), committed[it].offset)),
            );
            return Ok(result);
        }
        bail!(UsageError(
            "--reset-offsets needs one of --to-offset, --shift-by, --to-datetime, --by-duration, \
         --to-earliest, --to-latest, --to-current and --from-file"
                .into()
        ))
    }
}

/// Parses `topic:0,1,2`.
pub(super) fn parse_partitions(text: &str) -> anyhow::Result<Vec<Partition>> {
    let invalid = || {
        UsageError(format!(
            "Invalid topic arg '{text}', expected topic name and partitions"
        ))
    };
    let (topic, numbers) = text.split_once(':').ok_or_else(invalid)?;
    if topic.is_empty() || numbers.is_empty() || numbers.contains(':') {
        bail!(invalid());
    }
    let parse = |number: &str| match number.parse::<i32>() {
        Ok(partition) if partition >= 0 => Ok((topic.to_owned(), partition)),
        _ => {
            let message = format!("Invalid partition '{number}' specified in topic arg '{text}'");
            Err(UsageError(message).into())
        }
    };
    numbers.split(',').map(parse).collect()
}

/// The partitions selected by `topic` and `topic:0,1,2`.
pub(super) async fn named_partitions(
    admin: &Admin,
    topics: &[String],
) -> anyhow::Result<Vec<Partition>> {
    let mut partitions = Vec::new();
    for topic in topics {
        if topic.contains(':') {
            partitions.extend(parse_partitions(topic)?);
        } else {
            let described = admin.describe_topics(std::slice::from_ref(topic)).await;
            let described = match described {
                Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {
                    bail!("topic {topic} does not exist; `ottla topics --list` lists the topics");
                }
                described => described?,
            };
            for described in described {
                let numbers = described.partitions.iter();
                partitions.extend(numbers.map(|it| (described.name.clone(), it.partition)));
            }
        }
    }
    Ok(partitions)
}

pub(super) async fn check_exist(admin: &Admin, partitions: &[Partition]) -> anyhow::Result<()> {
    let mut names: Vec<String> = partitions.iter().map(|(topic, _)| topic.clone()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(());
    }
    let metadata = admin.client().refresh_metadata(Some(&names), false).await?;
    let missing: Vec<String> = partitions
        .iter()
        .filter(|(topic, partition)| metadata.partition(topic, *partition).is_none())
        .map(|(topic, partition)| format!("{topic}-{partition}"))
        .collect();
    if !missing.is_empty() {
        // Not a usage error in Kafka's tools either: treated like an exception from a broker.
        bail!("The partitions \"{}\" do not exist", missing.join(","));
    }
    Ok(())
}

pub(super) async fn offsets(
    admin: &Admin,
    partitions: &[Partition],
    spec: OffsetSpec,
) -> anyhow::Result<BTreeMap<Partition, i64>> {
    let listed = admin.list_offsets(partitions, spec, false).await;
    listed
        .into_iter()
        .map(|(key, listed)| Ok((key, listed?.offset)))
        .collect()
}

/// Clamps offsets to the range of the log.
async fn within_log(
    admin: &Admin,
    wanted: BTreeMap<Partition, i64>,
) -> anyhow::Result<BTreeMap<Partition, i64>> {
    let partitions: Vec<Partition> = wanted.keys().cloned().collect();
    let starts = offsets(admin, &partitions, OffsetSpec::Earliest).await?;
    let ends = offsets(admin, &partitions, OffsetSpec::Latest).await?;
    let mut result = BTreeMap::new();
    for ((topic, partition), offset) in wanted {
        let key = (topic, partition);
        let (start, end) = (starts[&key], ends[&key]);
        let name = format!("{}-{}", key.0, key.1);
        let within = if offset > end {
            eprintln!(
                "New offset ({offset}) is higher than latest offset for topic partition {name}. \
                 Value will be set to {end}"
            );
            end
        } else if offset < start {
            eprintln!(
                "New offset ({offset}) is lower than earliest offset for topic partition {name}. \
                 Value will be set to {start}"
            );
            start
        } else {
            offset
        };
        result.insert(key, within);
    }
    Ok(result)
}

/// The offset of the first record at or after a time, or the log end offset if there is none.
pub(super) async fn by_time(
    admin: &Admin,
    partitions: &[Partition],
    timestamp: i64,
) -> anyhow::Result<BTreeMap<Partition, i64>> {
    let mut result = offsets(admin, partitions, OffsetSpec::Timestamp(timestamp.max(0))).await?;
    let empty: Vec<Partition> = result
        .iter()
        .filter(|(_, offset)| **offset < 0)
        .map(|(key, _)| key.clone())
        .collect();
    for (topic, partition) in &empty {
        println!(
            "\nWarn: Partition {partition} from topic {topic} is empty. Falling back to latest known offset."
        );
    }
    result.extend(offsets(admin, &empty, OffsetSpec::Latest).await?);
    Ok(result)
}

async fn from_file(
    admin: &Admin,
    path: &str,
    group: &str,
    is_single: bool,
) -> anyhow::Result<BTreeMap<Partition, i64>> {
    let text = read_text(path)?;
    let mut wanted = BTreeMap::new();
    for (index, line) in text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .enumerate()
    {
        let fields: Vec<&str> = line
            .split(',')
            .map(|field| field.trim().trim_matches('"'))
            .collect();
        let (of, topic, partition, offset) = match fields.as_slice() {
            [topic, partition, offset] if is_single => (group, topic, partition, offset),
            [of, topic, partition, offset] => (*of, topic, partition, offset),
            _ => bail!(
                "{path} line {}: {line} is not topic,partition,offset",
                index + 1
            ),
        };
        if of != group {
            continue;
        }
        let (Ok(partition), Ok(offset)) = (partition.parse(), offset.parse()) else {
            bail!(
                "{path} line {}: {line} is not topic,partition,offset",
                index + 1
            );
        };
        wanted.insert(((*topic).to_owned(), partition), offset);
    }
    if wanted.is_empty() {
        println!("\nError: No reset plan for group {group} found");
        return Ok(wanted);
    }
    let partitions: Vec<Partition> = wanted.keys().cloned().collect();
    check_exist(admin, &partitions).await?;
    within_log(admin, wanted).await
}

/// In the format that `--from-file` reads, with a group column if several groups were selected.
pub(super) fn print_csv(results: &BTreeMap<String, BTreeMap<Partition, i64>>, is_single: bool) {
    for (group, offsets) in results {
        for ((topic, partition), offset) in offsets {
            if is_single {
                println!("{topic},{partition},{offset}")
            } else {
                println!("{group},{topic},{partition},{offset}")
            }
        }
    }
    println!();
}

/// Parses `YYYY-MM-DDThh:mm:ss[.sss]` followed by `Z`, an offset such as `+02:00`, or nothing for
/// UTC, as milliseconds since 1970 (`Utils.getDateTime`).
pub(super) fn parse_datetime(text: &str) -> anyhow::Result<i64> {
    let parsed = text.parse::<Timestamp>();
    let parsed = parsed.or_else(|_| format!("{text}Z").parse::<Timestamp>());
    let wrong = |_| {
        UsageError(format!(
            "{text} is not a time; give YYYY-MM-DDThh:mm:ss.sss, optionally with Z or +hh:mm"
        ))
    };
    Ok(parsed.map_err(wrong)?.as_millisecond())
}

/// Parses `PnDTnHnMnS`, as milliseconds.
pub(super) fn parse_duration(text: &str) -> anyhow::Result<i64> {
    iso_duration_ms(text).ok_or_else(|| {
        let message = format!("{text} is not a duration; give PnDTnHnMnS, such as PT12H");
        UsageError(message).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_parsed() {
        assert_eq!(parse_datetime("1970-01-01T00:00:00.000").unwrap(), 0);
        assert_eq!(
            parse_datetime("2024-02-29T12:34:56.789Z").unwrap(),
            1_709_210_096_789
        );
        assert_eq!(
            parse_datetime("2024-02-29T12:34:56.789+02:00").unwrap(),
            1_709_202_896_789
        );
        for bad in ["2024-02-29", "2024-13-01T00:00:00", "yesterday"] {
            assert!(parse_datetime(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn partitions_are_parsed() {
        assert_eq!(
            parse_partitions("t:0,2").unwrap(),
            [("t".to_owned(), 0), ("t".to_owned(), 2)]
        );
        assert!(parse_partitions("t:x").is_err());
        assert!(parse_partitions("t:").is_err());
    }
}
