//! Produces lines: `cargo run -p ottla-client --example produce -- 127.0.0.1:9092 TOPIC < FILE`.

use std::collections::BTreeMap;
use std::io::BufRead;

use ottla_client::{Client, Producer, RecordRef, properties};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().unwrap_or("127.0.0.1:9092".into());
    let topic = arguments.next().unwrap_or("example".into());
    let settings = BTreeMap::from([
        ("bootstrap.servers".to_owned(), bootstrap),
        ("compression.type".to_owned(), "lz4".to_owned()),
    ]);
    let (client, config) = properties::producer(&settings)?;
    let producer = Producer::new(Client::connect(client).await?, config)?;
    let mut last = None;
    for line in std::io::stdin().lock().lines() {
        // The record is encoded before the call returns, so it can borrow the line.
        last = Some(
            producer
                .send_ref(RecordRef::new(&topic, line?.as_bytes()))
                .await?,
        );
    }
    if let Some(delivery) = last {
        producer.flush().await;
        let metadata = delivery.wait().await?;
        println!(
            "the last one is at {topic}-{} offset {}",
            metadata.partition, metadata.offset
        );
    }
    for metric in producer.metrics() {
        if metric.group == "producer-metrics" {
            println!("{} {}", metric.name, metric.value);
        }
    }
    producer.close().await;
    Ok(())
}
