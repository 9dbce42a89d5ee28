//! The topic that a restore writes to: new, or begun by the same restore before.
//!
//! The end offset of each partition is the progress of a restore, because it writes without
//! transactions, in order, from offset 0. The last written record must be the record of the source.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use ottla_client::admin::{ConfigResourceType, NewTopic, OffsetSpec};
use ottla_client::{Admin, ClientError, Consumer, ConsumerConfig, ConsumerRecord};
use ottla_config::ConfigSource;
use ottla_records::Record;

/// How long to wait for the last record of a partition.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings that keep old records from expiring, while they are written and until consumers have
/// read them.
const NEEDED: [(&str, &str); 6] = [
    ("cleanup.policy", "delete"),
    ("message.timestamp.after.max.ms", "9223372036854775807"),
    ("message.timestamp.before.max.ms", "9223372036854775807"),
    ("message.timestamp.type", "CreateTime"),
    ("retention.bytes", "-1"),
    ("retention.ms", "-1"),
];

/// Settings that name replicas, or that only make sense for the source.
const NOT_COPIED: [&str; 4] = [
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
];

/// The settings of the new topic, from the settings of the source and the command line.
pub fn configs(
    source: &BTreeMap<String, String>,
    given: &BTreeMap<String, String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    if let Some((key, needed)) = NEEDED.iter().find(|(key, _)| given.contains_key(*key)) {
        bail!(
            "--topic-config {key}: a restore needs {key}={needed}, so that old records are kept as \
             they are; change it when the restore has ended"
        );
    }
    let copied = source.iter();
    let copied = copied.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()));
    let needed = NEEDED.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut configs = BTreeMap::new();
    configs.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
    configs.extend(
        given
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    configs.extend(needed);
    Ok(configs)
}

/// The flags of `ottla configs --alter` that give the new topic the source's values of the settings
/// that the restore had to override.
pub fn flags_to_end_with(source: &BTreeMap<String, String>) -> String {
    let keys = NEEDED.map(|(key, _)| key);
    let add: Vec<String> = keys
        .iter()
        .filter_map(|key| Some(format!("{key}={}", source.get(*key)?)))
        .collect();
    let delete: Vec<&str> = keys
        .into_iter()
        .filter(|key| !source.contains_key(*key))
        .collect();
    let mut flags = Vec::new();
    if !add.is_empty() {
        flags.push(format!("--add-config {}", add.join(",")));
    }
    if !delete.is_empty() {
        flags.push(format!("--delete-config {}", delete.join(",")));
    }
    flags.join(" ")
}

/// The settings that were made for a topic itself.
pub async fn own_configs(
    admin: &Admin,
    topic: &str,
) -> Result<BTreeMap<String, String>, ClientError> {
    let described = admin.describe_configs(ConfigResourceType::Topic, topic, false);
    let own = described.await?.into_iter();
    let own = own.filter(|config| config.config_source == ConfigSource::Topic.code());
    Ok(own
        .filter_map(|config| Some((config.name.to_string(), config.value?.to_string())))
        .collect())
}

/// Creates the topic, or only has the cluster check that it could.
pub async fn create(admin: &Admin, topic: NewTopic, validate_only: bool) -> anyhow::Result<()> {
    let what = format!("creating topic {}", topic.name);
    for result in admin.create_topics(&[topic], validate_only).await? {
        ClientError::check(
            what.as_str(),
            result.error_code,
            result.error_message.as_ref(),
        )?;
    }
    Ok(())
}

/// The progress of an interrupted restore in a partition.
pub struct RestoreProgress {
    /// The number of written records.
    pub count: u64,
    /// The last written record.
    pub last: Option<ConsumerRecord>,
}

/// Inspects a topic that exists already. Refuses a topic that no restore can have created.
pub async fn begun(
    admin: &Admin,
    topic: &str,
    partitions: i32,
) -> anyhow::Result<BTreeMap<i32, RestoreProgress>> {
    let way_out = "give another name with --as, or delete it";
    let own = own_configs(admin, topic).await?;
    for (key, needed) in NEEDED {
        ensure!(
            own.get(key).is_some_and(|value| value == needed),
            "topic {topic} exists, and no restore created it: its {key} is not {needed}; {way_out}"
        );
    }
    let metadata = admin.client().refresh_metadata(None, false).await?;
    let count = metadata
        .topics
        .get(topic)
        .map_or(0, |it| it.partitions.len());
    ensure!(
        i32::try_from(count) == Ok(partitions),
        "topic {topic} exists and has {count} partitions, and the restore {partitions}; {way_out}"
    );
    let all: Vec<(String, i32)> = (0..partitions).map(|it| (topic.to_owned(), it)).collect();
    let mut found = BTreeMap::new();
    for (_, index) in &all {
        let start = offset(admin, topic, *index, OffsetSpec::Earliest).await?;
        ensure!(
            start == 0,
            "topic {topic} exists, and partition {index} of it begins at offset {start}, so records \
             were deleted from it; {way_out}"
        );
        let count = offset(admin, topic, *index, OffsetSpec::Latest).await?;
        let count = u64::try_from(count).unwrap_or(0);
        found.insert(*index, RestoreProgress { count, last: None });
    }
    read_last_records(admin, topic, &mut found).await?;
    Ok(found)
}

/// The offset of a partition.
pub async fn offset(
    admin: &Admin,
    topic: &str,
    partition: i32,
    spec: OffsetSpec,
) -> Result<i64, ClientError> {
    let listed = admin.list_offset(topic, partition, spec, false).await?;
    Ok(listed.offset)
}

async fn read_last_records(
    admin: &Admin,
    topic: &str,
    found: &mut BTreeMap<i32, RestoreProgress>,
) -> anyhow::Result<()> {
    let config = ConsumerConfig {
        auto_commit: false,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(admin.client().clone(), config);
    let filled = found.iter().filter(|(_, begun)| begun.count > 0);
    let filled: Vec<(String, i32)> = filled.map(|(it, _)| (topic.to_owned(), *it)).collect();
    let mut left = filled.len();
    consumer.assign(&filled);
    for partition in &filled {
        let last = found[&partition.1].count as i64 - 1;
        consumer.seek(partition, last);
    }
    let began = Instant::now();
    while left > 0 {
        ensure!(
            began.elapsed() < PATIENCE,
            "{left} partitions of {topic} gave no record for {} s; are their leaders there?",
            PATIENCE.as_secs()
        );
        for record in consumer.poll(Duration::from_millis(500)).await? {
            if let Some(begun) = found.get_mut(&record.partition)
                && begun.last.is_none()
            {
                begun.last = Some(record);
                left -= 1;
            }
        }
    }
    Ok(())
}

/// Whether a record of the new topic is this one of the source.
pub fn is_same(written: &ConsumerRecord, record: &Record) -> bool {
    written.key == record.key
        && written.value == record.value
        && written.headers == record.headers
        && written.timestamp == record.timestamp.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn the_new_topic_has_the_settings_of_the_source_without_expiry() {
        let source = map(&[
            ("retention.ms", "1000"),
            ("segment.bytes", "1048576"),
            ("remote.log.copy.disable", "true"),
        ]);
        let given = map(&[("segment.bytes", "2097152"), ("min.insync.replicas", "2")]);
        let configs = configs(&source, &given).unwrap();
        assert_eq!(configs["retention.ms"], "-1");
        assert_eq!(configs["segment.bytes"], "2097152");
        assert_eq!(configs["min.insync.replicas"], "2");
        assert!(!configs.contains_key("remote.log.copy.disable"));
        assert_eq!(
            flags_to_end_with(&source),
            "--add-config retention.ms=1000 --delete-config cleanup.policy,\
             message.timestamp.after.max.ms,message.timestamp.before.max.ms,message.timestamp.type,\
             retention.bytes"
        );
    }

    #[test]
    fn a_setting_that_would_expire_records_is_refused() {
        let refused = configs(&map(&[]), &map(&[("retention.ms", "5")])).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "--topic-config retention.ms: a restore needs retention.ms=-1, so that old records are \
             kept as they are; change it when the restore has ended"
        );
    }
}
