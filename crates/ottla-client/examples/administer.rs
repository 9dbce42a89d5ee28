//! Creates a topic unless it exists, and prints how far a group is behind in it:
//! `cargo run -p ottla-client --example administer -- 127.0.0.1:9092 TOPIC GROUP`.

use std::collections::BTreeMap;

use ottla_client::admin::{NewTopic, OffsetSpec};
use ottla_client::{Admin, Client, ClientError, ErrorCode, properties};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().unwrap_or("127.0.0.1:9092".into());
    let topic = arguments.next().unwrap_or("example".into());
    let group = arguments.next().unwrap_or("example".into());
    let settings = BTreeMap::from([("bootstrap.servers".to_owned(), bootstrap)]);
    let admin = Admin::new(Client::connect(properties::admin(&settings)?).await?);

    let one_day = ("retention.ms".to_owned(), "86400000".to_owned());
    let new = NewTopic {
        name: topic.clone(),
        configs: BTreeMap::from([one_day]),
        ..NewTopic::default()
    };
    for created in admin.create_topics(&[new], false).await? {
        match ErrorCode::from_code(created.error_code) {
            ErrorCode::None => println!("created {topic}"),
            ErrorCode::TopicAlreadyExists => println!("{topic} exists"),
            _ => ClientError::check(&topic, created.error_code, created.error_message.as_ref())?,
        }
    }

    let committed = admin.committed_offsets(&group).await?;
    let partitions: Vec<(String, i32)> = committed
        .keys()
        .filter(|(name, _)| *name == topic)
        .cloned()
        .collect();
    let ends = admin.list_offsets(&partitions, OffsetSpec::Latest, false);
    for (partition, end) in ends.await {
        let behind = end?.offset - committed[&partition].offset;
        println!("{group}: {behind} records of {topic}-{} left", partition.1);
    }
    Ok(())
}
