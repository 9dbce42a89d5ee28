//! Prints the records of a topic from a time on, without a group, and ends where the topic ended at the
//! start. The time is in milliseconds since 1970:
//! `cargo run -p ottla-client --example read_from_a_time -- 127.0.0.1:9092 TOPIC $(date -d '1 hour ago' +%s000)`.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{Client, Consumer, properties};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().unwrap_or("127.0.0.1:9092".into());
    let topic = arguments.next().unwrap_or("example".into());
    let time: i64 = arguments.next().unwrap_or("0".into()).parse()?;
    let settings = BTreeMap::from([("bootstrap.servers".to_owned(), bootstrap)]);
    let (client, config) = properties::consumer(&settings)?;
    let mut consumer = Consumer::new(Client::connect(client).await?, config);

    let found = consumer.partitions_for(&topic).await?;
    let partitions: Vec<(String, i32)> = found
        .iter()
        .map(|info| (topic.clone(), info.partition))
        .collect();
    consumer.assign(&partitions);
    let ends = consumer.end_offsets(&partitions).await?;
    let times = partitions.into_iter().map(|it| (it, time)).collect();
    for (partition, first) in consumer.offsets_for_times(&times).await? {
        // If all records are older, there is nothing to read.
        let start = first.map_or(ends[&partition], |first| first.offset);
        consumer.seek(&partition, start);
    }

    let is_read = |consumer: &Consumer| {
        let mut ends = ends.iter();
        ends.all(|(partition, end)| consumer.position(partition) >= Some(*end))
    };
    while !is_read(&consumer) {
        for record in consumer.poll(Duration::from_secs(1)).await? {
            let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
            println!(
                "{}-{} {}: {value}",
                record.topic, record.partition, record.offset
            );
        }
    }
    consumer.close().await?;
    Ok(())
}
