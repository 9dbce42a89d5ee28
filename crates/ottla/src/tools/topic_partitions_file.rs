//! JSON files that list partitions, read by `delete-records` and `leader-election`:
//! `{"version":1,"partitions":[{"topic":"t","partition":0,…}]}`.

use anyhow::{Context, bail};
use serde_json::Value;

use super::read_text;

/// An entry, with an additional field that depends on the tool.
pub(super) struct Entry {
    pub(super) topic: String,
    pub(super) partition: i32,
    value: Value,
}

impl Entry {
    /// A numeric field of the entry.
    pub(super) fn number(&self, path: &str, field: &str) -> anyhow::Result<i64> {
        self.value[field].as_i64().with_context(|| {
            format!(
                "{path}: the entry {} has no number \"{field}\"; write {{\"topic\": \"t\", \"partition\": \
                 0, \"{field}\": 1}}",
                self.value
            )
        })
    }
}

/// Parses the entries of a file.
pub(super) fn read(path: &str) -> anyhow::Result<Vec<Entry>> {
    parse(path, &read_text(path)?)
}

fn parse(path: &str, text: &str) -> anyhow::Result<Vec<Entry>> {
    let Ok(file) = serde_json::from_str::<Value>(text) else {
        bail!("The input string is not a valid JSON: {path}");
    };
    match file.get("version") {
        None => {}
        Some(version) if version.as_i64() == Some(1) => {}
        Some(version) => bail!("Not supported version field value {version} in {path}; write 1"),
    }
    let Some(partitions) = file.get("partitions") else {
        bail!("Missing partitions field in {path}; write {{\"partitions\": […], \"version\": 1}}");
    };
    let Some(partitions) = partitions.as_array() else {
        bail!(
            "{path}: \"partitions\" is not a list; write {{\"partitions\": […], \"version\": 1}}"
        );
    };
    partitions
        .iter()
        .map(|entry| {
            let topic = entry["topic"].as_str();
            let partition = entry["partition"]
                .as_i64()
                .and_then(|it| i32::try_from(it).ok());
            match (topic, partition) {
                (Some(topic), Some(partition)) => Ok(Entry {
                    topic: topic.to_owned(),
                    partition,
                    value: entry.clone(),
                }),
                _ => bail!(
                    "{path}: the entry {entry} names no partition; write {{\"topic\": \"t\", \
                     \"partition\": 0}}"
                ),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_parsed_or_refused_with_a_reason() {
        let good = r#"{"partitions":[{"topic":"t","partition":1,"offset":5}],"version":1}"#;
        let entries = parse("f", good).unwrap();
        assert_eq!((entries[0].topic.as_str(), entries[0].partition), ("t", 1));
        assert_eq!(entries[0].number("f", "offset").unwrap(), 5);
        assert!(entries[0].number("f", "other").is_err());
        for (bad, says) in [
            ("{", "not a valid JSON"),
            ("{}", "Missing partitions field"),
            (
                r#"{"version":2,"partitions":[]}"#,
                "Not supported version field value 2",
            ),
            (r#"{"partitions":7}"#, "not a list"),
            (r#"{"partitions":[{"topic":"t"}]}"#, "names no partition"),
        ] {
            let error = parse("f", bad).err().expect(bad).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
