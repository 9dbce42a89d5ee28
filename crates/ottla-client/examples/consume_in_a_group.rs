//! Shares a topic with the other members of a group, until Ctrl-C:
//! `cargo run -p ottla-client --example consume_in_a_group -- 127.0.0.1:9092 TOPIC GROUP`.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{Client, Consumer, RebalanceListener, properties};

struct Telling;

impl RebalanceListener for Telling {
    fn on_partitions_assigned(&mut self, partitions: &[(String, i32)]) {
        println!("assigned {partitions:?}");
    }

    fn on_partitions_revoked(&mut self, partitions: &[(String, i32)]) {
        println!("revoked {partitions:?}");
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().unwrap_or("127.0.0.1:9092".into());
    let topic = arguments.next().unwrap_or("example".into());
    let group = arguments.next().unwrap_or("example".into());
    let settings = BTreeMap::from([
        ("bootstrap.servers".to_owned(), bootstrap),
        ("group.id".to_owned(), group),
        ("auto.offset.reset".to_owned(), "earliest".to_owned()),
        (
            "partition.assignment.strategy".to_owned(),
            "cooperative-sticky".to_owned(),
        ),
    ]);
    let (client, config) = properties::consumer(&settings)?;
    let mut consumer = Consumer::new(Client::connect(client).await?, config);
    consumer.subscribe_with_listener(&[topic], Box::new(Telling))?;
    // Created once: a Ctrl-C during the processing of records takes effect at the next poll.
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let batches = tokio::select! {
            batches = consumer.poll_batches(Duration::from_secs(1)) => batches?,
            _ = &mut interrupted => break,
        };
        for batch in &batches {
            for record in batch.iter() {
                let record = record?;
                let value = String::from_utf8_lossy(record.value.unwrap_or_default());
                println!(
                    "{}-{} {}: {value}",
                    batch.topic, batch.partition, record.offset
                );
            }
        }
    }
    // Commits the returned records and leaves, so that the other members do not wait for this
    // member to expire.
    consumer.close().await?;
    Ok(())
}
