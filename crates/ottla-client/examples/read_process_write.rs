//! Reads a topic, turns each value into upper case, and writes it to another topic, each record exactly
//! once, until Ctrl-C: `cargo run -p ottla-client --example read_process_write -- 127.0.0.1:9092 IN OUT`.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{
    Client, ClientError, CommitOffset, Consumer, ConsumerRecord, Producer, RecordRef, properties,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().unwrap_or("127.0.0.1:9092".into());
    let source = arguments.next().unwrap_or("in".into());
    let target = arguments.next().unwrap_or("out".into());
    let settings = |more: &[(&str, &str)]| {
        let mut settings = BTreeMap::from([("bootstrap.servers".to_owned(), bootstrap.clone())]);
        settings.extend(
            more.iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
        );
        settings
    };
    let (client, config) = properties::consumer(&settings(&[
        ("group.id", "read-process-write"),
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "read_committed"),
        // The producer's transactions commit the offsets.
        ("enable.auto.commit", "false"),
    ]))?;
    let mut consumer = Consumer::new(Client::connect(client).await?, config);
    consumer.subscribe(std::slice::from_ref(&source))?;
    let (client, config) =
        properties::producer(&settings(&[("transactional.id", "read-process-write")]))?;
    let producer = Producer::new(Client::connect(client).await?, config)?;
    producer.init_transactions().await?;
    // Created once: a Ctrl-C during the processing of records takes effect at the next poll.
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let records = tokio::select! {
            records = consumer.poll(Duration::from_secs(1)) => records?,
            _ = &mut interrupted => break,
        };
        if records.is_empty() {
            continue;
        }
        producer.begin_transaction()?;
        match write(&producer, &consumer, &records, &target).await {
            Ok(()) => println!("{} records", records.len()),
            Err(error) => {
                println!("again: {error}");
                // An error here means that another instance has taken over.
                producer.abort_transaction().await?;
                for record in records.iter().rev() {
                    consumer.seek(&(record.topic.to_string(), record.partition), record.offset);
                }
            }
        }
    }
    consumer.close().await?;
    producer.close().await;
    Ok(())
}

async fn write(
    producer: &Producer,
    consumer: &Consumer,
    records: &[ConsumerRecord],
    target: &str,
) -> Result<(), ClientError> {
    let mut offsets = BTreeMap::new();
    for record in records {
        let value = record
            .value
            .as_deref()
            .unwrap_or_default()
            .to_ascii_uppercase();
        let written = RecordRef {
            key: record.key.as_deref(),
            ..RecordRef::new(target, &value)
        };
        producer.send_ref(written).await?;
        let partition = (record.topic.to_string(), record.partition);
        offsets.insert(partition, CommitOffset::new(record.offset + 1));
    }
    let group = consumer.group_metadata();
    producer
        .send_offsets_to_transaction(&offsets, &group)
        .await?;
    producer.commit_transaction().await
}
