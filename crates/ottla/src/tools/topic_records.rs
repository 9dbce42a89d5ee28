//! The records of a topic between given offsets, read without a group.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::bail;
use ottla_client::{
    Admin, Client, ClientError, Consumer, ConsumerConfig, ConsumerRecord, OffsetReset,
};

use super::offset_reset::Partition;

/// How long the partitions may return no record before their end is reached.
const PATIENCE: Duration = Duration::from_secs(30);

/// The partitions of a topic.
pub(super) async fn partitions(admin: &Admin, topic: &str) -> Result<Vec<Partition>, ClientError> {
    let described = admin.describe_topics(&[topic.to_owned()]).await?;
    let partitions = described.iter().flat_map(|topic| {
        let numbers = topic.partitions.iter();
        numbers.map(|it| (topic.name.clone(), it.partition))
    });
    Ok(partitions.collect())
}

/// Passes on the records of each partition between two offsets, the second exclusive. Records that
/// were appended later may follow.
pub(super) async fn read(
    client: &Client,
    ranges: &BTreeMap<Partition, Range<i64>>,
    mut take: impl FnMut(&ConsumerRecord),
) -> anyhow::Result<()> {
    let filled = ranges.iter().filter(|(_, range)| !range.is_empty());
    let mut left: BTreeMap<&Partition, i64> = filled.map(|(it, range)| (it, range.end)).collect();
    if left.is_empty() {
        return Ok(());
    }
    let config = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        auto_commit: false,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(client.clone(), config);
    let wanted: Vec<Partition> = left.keys().map(|partition| (*partition).clone()).collect();
    consumer.assign(&wanted);
    for partition in &wanted {
        consumer.seek(partition, ranges[partition].start);
    }
    let mut last_record = Instant::now();
    while !left.is_empty() {
        let records = consumer.poll(Duration::from_millis(500)).await?;
        if !records.is_empty() {
            last_record = Instant::now();
        }
        records.iter().for_each(&mut take);
        left.retain(|partition, end| {
            let position = consumer.position(partition);
            position.is_none_or(|position| position < *end)
        });
        if last_record.elapsed() > PATIENCE {
            let stuck = left
                .keys()
                .map(|(topic, number)| format!("{topic}-{number}"));
            bail!(
                "{} gave no record for {} s before their end; are their leaders there?",
                stuck.collect::<Vec<_>>().join(", "),
                PATIENCE.as_secs()
            );
        }
    }
    Ok(())
}

/// What to do if the user may not read a topic.
pub(super) fn way_to_read(topic: &str) -> String {
    format!(
        "this user may not read the topic {topic}; as another one: ottla acls --add --allow-principal \
         User:NAME --operation Read --topic {topic} --bootstrap-server SERVERS"
    )
}
