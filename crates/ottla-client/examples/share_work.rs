//! Works off the records of a topic together with the other members of a share group, until Ctrl-C. A
//! record that contains `later` is delivered again:
//! `cargo run -p ottla-client --example share_work -- 127.0.0.1:9092 TOPIC GROUP`.
//!
//! A new share group starts at the end of its topic, unless its setting `share.auto.offset.reset` is
//! `earliest`.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{AcknowledgeType, Client, ShareConsumer, properties};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().unwrap_or("127.0.0.1:9092".into());
    let topic = arguments.next().unwrap_or("example".into());
    let group = arguments.next().unwrap_or("example".into());
    let settings = BTreeMap::from([
        ("bootstrap.servers".to_owned(), bootstrap),
        ("group.id".to_owned(), group),
        (
            "share.acknowledgement.mode".to_owned(),
            "explicit".to_owned(),
        ),
    ]);
    let (client, config) = properties::share_consumer(&settings)?;
    let mut consumer = ShareConsumer::new(Client::connect(client).await?, config)?;
    consumer.subscribe(&[topic]);
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let jobs = tokio::select! {
            jobs = consumer.poll(Duration::from_secs(1)) => jobs?,
            _ = &mut interrupted => break,
        };
        for job in &jobs {
            let value = job.record.value.as_deref().unwrap_or_default();
            let value = String::from_utf8_lossy(value);
            println!("{value} (delivery {})", job.delivery_count);
            let became = match value.contains("later") {
                true => AcknowledgeType::Release,
                false => AcknowledgeType::Accept,
            };
            consumer.acknowledge(job, became)?;
        }
    }
    // Sends the last acknowledgements, and leaves.
    consumer.close().await?;
    Ok(())
}
