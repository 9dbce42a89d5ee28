//! The JSON files of `reassign-partitions`: the topics to move, and the target replicas of each
//! partition.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use serde_json::{Value, json};

use crate::tools::read_text;

/// A partition by topic name and number.
pub(in crate::tools) type Partition = (String, i32);

/// A replica: broker and partition. Ordered like the replicas in the output of Kafka's tool.
pub(in crate::tools) type Replica = (i32, Partition);

/// Means that the broker chooses the log directory.
const ANY_LOG_DIR: &str = "any";

/// The requested assignment.
#[derive(PartialEq, Eq, Default, Debug)]
pub(in crate::tools) struct Assignment {
    /// In the order of the file, which may contain a partition twice.
    pub(in crate::tools) partitions: Vec<(Partition, Vec<i32>)>,
    /// The replicas for which the file names a log directory.
    pub(in crate::tools) log_dirs: BTreeMap<Replica, String>,
}

impl Assignment {
    /// The partitions, if the file is valid for execution.
    pub(in crate::tools) fn checked(&self) -> anyhow::Result<BTreeMap<Partition, Vec<i32>>> {
        if self.partitions.is_empty() {
            bail!("Partition reassignment list cannot be empty");
        }
        if self
            .partitions
            .iter()
            .any(|(_, replicas)| replicas.is_empty())
        {
            bail!("Partition replica list cannot be empty");
        }
        let names: Vec<String> = self.partitions.iter().map(|(it, _)| shown(it)).collect();
        let duplicates = duplicates(&names);
        if !duplicates.is_empty() {
            bail!(
                "Partition reassignment contains duplicate topic partitions: {}",
                duplicates.join(",")
            );
        }
        let with_twice = |(partition, replicas): &(Partition, Vec<i32>)| {
            let twice: Vec<String> = self::duplicates(replicas)
                .iter()
                .map(ToString::to_string)
                .collect();
            (!twice.is_empty()).then(|| {
                let partition = shown(partition);
                format!(
                    "{partition} contains multiple entries for {}",
                    twice.join(",")
                )
            })
        };
        let repeated: Vec<String> = self.partitions.iter().filter_map(with_twice).collect();
        if !repeated.is_empty() {
            bail!(
                "Partition replica lists may not contain duplicate entries: {}",
                repeated.join(". ")
            );
        }
        Ok(self.partitions.iter().cloned().collect())
    }
}

/// Reads `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}`.
pub(super) fn read_assignment(path: &str) -> anyhow::Result<Assignment> {
    parse_assignment(&read_text(path)?)
}

/// Reads `{"version":1,"topics":[{"topic":"t"}]}`.
pub(super) fn read_topics(path: &str) -> anyhow::Result<Vec<String>> {
    parse_topics(&read_text(path)?)
}

fn parse(text: &str) -> anyhow::Result<Value> {
    let Ok(file) = serde_json::from_str::<Value>(text) else {
        bail!("The input string is not a valid JSON");
    };
    match file.get("version") {
        None => Ok(file),
        Some(version) if version.as_i64() == Some(1) => Ok(file),
        Some(version) => bail!("Not supported version field value {version}"),
    }
}

/// The elements of an array; empty if the file does not contain it.
fn entries<'a>(file: &'a Value, field: &str) -> anyhow::Result<&'a [Value]> {
    match file.get(field) {
        None => Ok(&[]),
        Some(list) => match list.as_array() {
            Some(entries) => Ok(entries),
            None => bail!("\"{field}\" is not a list"),
        },
    }
}

fn parse_topics(text: &str) -> anyhow::Result<Vec<String>> {
    let name = |entry: &Value| match entry["topic"].as_str() {
        Some(topic) => Ok(topic.to_owned()),
        None => bail!("the entry {entry} names no topic; write {{\"topic\": \"t\"}}"),
    };
    entries(&parse(text)?, "topics")?.iter().map(name).collect()
}

pub(in crate::tools) fn parse_assignment(text: &str) -> anyhow::Result<Assignment> {
    let mut assignment = Assignment::default();
    for entry in entries(&parse(text)?, "partitions")? {
        let number = |value: &Value| value.as_i64().and_then(|it| i32::try_from(it).ok());
        let numbers = |value: &Value| value.as_array()?.iter().map(number).collect();
        let (Some(topic), Some(partition), Some(replicas)) = (
            entry["topic"].as_str(),
            number(&entry["partition"]),
            numbers(&entry["replicas"]),
        ) else {
            bail!(
                "the entry {entry} is not a partition with its replicas; write {{\"topic\": \"t\", \
                 \"partition\": 0, \"replicas\": [1]}}"
            );
        };
        let replicas: Vec<i32> = replicas;
        let key = (topic.to_owned(), partition);
        if let Some(log_dirs) = entry.get("log_dirs") {
            let paths = log_dirs.as_array().and_then(|paths| {
                let paths = paths.iter().map(|path| path.as_str().map(str::to_owned));
                paths.collect::<Option<Vec<String>>>()
            });
            let Some(paths) = paths else {
                bail!("the \"log_dirs\" of {entry} are not a list of paths; write [\"any\"]");
            };
            if paths.len() != replicas.len() {
                bail!(
                    "Size of replicas list {replicas:?} is different from size of log dirs list [{}] for \
                     partition {}",
                    paths.join(", "),
                    shown(&key)
                );
            }
            for (broker, path) in replicas.iter().zip(paths) {
                if path != ANY_LOG_DIR {
                    assignment.log_dirs.insert((*broker, key.clone()), path);
                }
            }
        }
        assignment.partitions.push((key, replicas));
    }
    Ok(assignment)
}

/// An assignment in the format that the tool prints and reads.
pub(in crate::tools) fn to_json(
    partitions: &BTreeMap<Partition, Vec<i32>>,
    log_dirs: &BTreeMap<Replica, String>,
) -> Value {
    let entries = partitions.iter().map(|(partition, replicas)| {
        let directory = |broker: &i32| match log_dirs.get(&(*broker, partition.clone())) {
            Some(path) => path.clone(),
            None => ANY_LOG_DIR.to_owned(),
        };
        json!({
            "topic": partition.0,
            "partition": partition.1,
            "replicas": replicas,
            "log_dirs": replicas.iter().map(directory).collect::<Vec<String>>(),
        })
    });
    json!({ "version": 1, "partitions": entries.collect::<Vec<Value>>() })
}

/// Formats `t-0`.
pub(in crate::tools) fn shown((topic, partition): &Partition) -> String {
    format!("{topic}-{partition}")
}

/// Formats `t-0-1`; the last number is the broker.
pub(super) fn shown_replica((broker, partition): &Replica) -> String {
    format!("{}-{broker}", shown(partition))
}

/// The elements that occur more than once.
pub(super) fn duplicates<T: Ord + Clone>(items: &[T]) -> Vec<T> {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&T> = items.iter().filter(|item| !seen.insert(*item)).collect();
    twice.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_assignments_round_trip() {
        let partitions = BTreeMap::from([(("t".to_owned(), 0), vec![1, 2])]);
        let log_dirs = BTreeMap::from([((2, ("t".to_owned(), 0)), "/b".to_owned())]);
        let text = to_json(&partitions, &log_dirs).to_string();
        assert_eq!(
            text,
            r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/b"]}]}"#
        );
        let read = parse_assignment(&text).unwrap();
        assert_eq!(read.checked().unwrap(), partitions);
        assert_eq!(read.log_dirs, log_dirs);
        assert_eq!(
            parse_topics(r#"{"topics":[{"topic":"a"},{"topic":"b"}]}"#).unwrap(),
            ["a", "b"]
        );
    }

    #[test]
    fn invalid_files_are_refused_with_a_reason() {
        let one = |replicas: &str| {
            format!(r#"{{"partitions":[{{"topic":"t","partition":0,"replicas":{replicas}}}]}}"#)
        };
        let two = r#"{"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]}"#;
        for (text, says) in [
            ("{".to_owned(), "not a valid JSON"),
            (
                r#"{"version":2}"#.to_owned(),
                "Not supported version field value 2",
            ),
            (r#"{"partitions":7}"#.to_owned(), "is not a list"),
            ("{}".to_owned(), "list cannot be empty"),
            (one("[]"), "Partition replica list cannot be empty"),
            (one("[1,1]"), "t-0 contains multiple entries for 1"),
            (one(r#"["a"]"#), "not a partition with its replicas"),
            (
                one(r#"[1],"log_dirs":[]"#),
                "Size of replicas list [1] is different",
            ),
            (two.to_owned(), "duplicate topic partitions: t-0"),
        ] {
            let result = parse_assignment(&text).and_then(|it| it.checked());
            let error = result.expect_err(&text).to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(parse_topics(r#"{"topics":[{}]}"#).is_err());
    }
}
