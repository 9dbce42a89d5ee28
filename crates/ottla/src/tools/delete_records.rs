//! `delete-records`: Kafka's `kafka-delete-records.sh`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::admin_client::Brokers;
use super::{block_on, java_exceptions, report_on_stderr, topic_partitions_file};

/// Delete the records of partitions before an offset.
///
/// The file names the offsets: {"partitions": [{"topic": "t", "partition": 0, "offset": 7}],
/// "version": 1}; the offset -1 means the end of the partition.
#[derive(Args, Debug)]
pub struct DeleteRecordsArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// JSON file with the offset of each partition.
    #[arg(long, value_name = "FILE")]
    offset_json_file: String,
}

pub fn run(args: DeleteRecordsArgs) -> ExitCode {
    block_on(async { report_on_stderr(delete(&args).await) })
}

async fn delete(args: &DeleteRecordsArgs) -> anyhow::Result<()> {
    let path = &args.offset_json_file;
    let mut offsets = BTreeMap::new();
    let mut duplicates = Vec::new();
    for entry in topic_partitions_file::read(path)? {
        let offset = entry.number(path, "offset")?;
        let name = format!("{}-{}", entry.topic, entry.partition);
        if offsets
            .insert((entry.topic, entry.partition), offset)
            .is_some()
        {
            duplicates.push(name);
        }
    }
    if !duplicates.is_empty() {
        bail!(
            "Offset json file contains duplicate topic partitions: {}",
            duplicates.join(",")
        );
    }
    let admin = args.brokers.connect("ottla-delete-records", None).await?;
    let topics: BTreeSet<String> = offsets.keys().map(|(topic, _)| topic.clone()).collect();
    let topics: Vec<String> = topics.into_iter().collect();
    let client = admin.client();
    let metadata = client.refresh_metadata(Some(&topics), false).await?;
    for topic in topics
        .iter()
        .filter(|it| !metadata.topics.contains_key(*it))
    {
        // As Kafka's tool, it tries again until the timeout.
        let patience = client.config().default_api_timeout.as_millis();
        eprintln!("WARN topic {topic} does not exist; waiting for it for up to {patience} ms");
    }
    println!("Executing records delete operation");
    let results = admin.delete_records(&offsets).await?;
    println!("Records delete operation completed:");
    for ((topic, partition), result) in results {
        match result {
            Ok(low_watermark) => {
                println!("partition: {topic}-{partition}\tlow_watermark: {low_watermark}");
            }
            Err(error) => println!(
                "partition: {topic}-{partition}\terror: {}",
                java_exceptions::shown(&error)
            ),
        }
    }
    Ok(())
}
