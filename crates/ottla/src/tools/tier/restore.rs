//! `tier restore`: a topic as it was at a time, out of remote storage, written to a new topic.
//!
//! Needs neither the topic nor its local data. Reads everything twice: first to find available
//! records, missing records and committed transactions, then to write. A continued restore reads
//! only the remaining records the second time.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use futures_util::{StreamExt, TryStreamExt, stream};
use ottla_client::admin::{NewTopic, OffsetSpec};
use ottla_client::{
    Admin, ClientError, DeliveredBatch, DeliveryListener, Producer, ProducerConfig, RecordRef,
};
use ottla_records::{Compression, CompressionType};
use ottla_tiered::{LeaderEpochs, RemotePartition, RemoteSegment};
use ottla_tiered_storage::RemoteStorageManager;
use ottla_types::Uuid;

use super::super::admin_client::Brokers;
use super::super::key_values;
use super::super::offset_reset::parse_datetime;
use super::remote_log::{self, RemoteLog};
use crate::tools::sizes;

mod choice;
mod reader;
mod scan;
mod target;
#[cfg(test)]
mod test_store;

use reader::{PartitionReader, Source, Throttle};
use scan::Scan;
use target::RestoreProgress;

#[derive(Args, Debug)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub(super) brokers: Brokers,
    /// A broker's server.properties, whose rsm.config.* settings open the store.
    #[arg(long, value_name = "FILE")]
    pub(super) config: String,
    /// The topic to restore; it may be deleted.
    #[arg(long)]
    topic: String,
    /// ID of the topic, if topics of this name were deleted and created again.
    #[arg(long, value_name = "ID")]
    topic_id: Option<String>,
    /// Restore each partition up to its first record that is newer than this:
    /// YYYY-MM-DDThh:mm:ss.sss, optionally with Z or +hh:mm, or milliseconds since 1970.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to_time: i64,
    /// The new topic; by default the old name with the suffix -restored.
    #[arg(long = "as", value_name = "NEW-TOPIC")]
    new_topic: Option<String>,
    /// Partitions of the new topic, if the old one is deleted and had more than remote storage has.
    #[arg(long)]
    partitions: Option<i32>,
    /// Replicas of each partition; by default those of the old topic.
    #[arg(long, value_name = "REPLICAS")]
    replication_factor: Option<i16>,
    /// A setting of the new topic, which overrides that of the old topic.
    #[arg(long, value_name = "KEY=VALUE")]
    topic_config: Vec<String>,
    /// Restore the available records even if others are missing.
    #[arg(long)]
    accept_missing: bool,
    /// Print what would be restored, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Maximum bytes per second that are read from the store, at least 1024.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1024..))]
    throttle: Option<u64>,
    /// Partitions that are restored at once.
    #[arg(long, value_name = "PARTITIONS", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,
}

/// How often progress is printed.
const PROGRESS: Duration = Duration::from_secs(10);

/// A partition to restore.
struct PartitionPlan {
    partition: RemotePartition,
    segments: Vec<RemoteSegment>,
    history: LeaderEpochs,
    scan: Scan,
}

/// Reports the available records, and writes them unless this is a dry run.
pub async fn restore(
    args: &RestoreArgs,
    store: &dyn RemoteStorageManager,
    admin: &Admin,
) -> anyhow::Result<()> {
    let to_time = args.to_time;
    let given = key_values(&args.topic_config);
    let new_topic = match &args.new_topic {
        Some(name) => name.clone(),
        None => format!("{}-restored", args.topic),
    };
    let log = remote_log::read(admin.client(), Some(&args.topic)).await?;
    let topic_id = choice::topic_id(&log, &args.topic, args.topic_id.as_deref())?;

    // Checks that do not read the segments, which may take hours.
    let chosen = chosen(&log, topic_id, to_time);
    let old = OldTopic::find(admin, &args.topic, topic_id).await?;
    let partitions = old.partitions.max(highest_partition(&chosen) + 1);
    let partitions = args.partitions.unwrap_or(partitions);
    ensure!(
        partitions > 0,
        "remote storage had nothing of topic {} at that time, and the cluster does not have it any \
         more; give a later --to-time",
        args.topic
    );
    ensure!(
        partitions > highest_partition(&chosen),
        "--partitions {partitions}: remote storage has records of partition {}; give at least {}",
        highest_partition(&chosen),
        highest_partition(&chosen) + 1
    );
    let configs = target::configs(&old.configs, &given)?;
    let exists = admin.client().refresh_metadata(None, false).await?;
    let exists = exists.topics.contains_key(&new_topic);
    let (to_create, begun) = if exists {
        let begun = target::begun(admin, &new_topic, partitions).await?;
        (None, begun)
    } else {
        let topic = NewTopic {
            name: new_topic.clone(),
            partitions: Some(partitions),
            replication_factor: args.replication_factor.or(old.replication_factor),
            configs,
            ..NewTopic::default()
        };
        target::create(admin, topic.clone(), true).await?;
        (Some(topic), BTreeMap::new())
    };

    let throttle = Throttle::new(args.throttle);
    let parallel = usize::from(args.parallel);
    let done = AtomicU64::new(0);
    let scans = stream::iter(chosen).map(|mut plan| {
        let (throttle, done) = (&throttle, &done);
        async move {
            let source = Source {
                store,
                partition: &plan.partition,
                segments: &plan.segments,
                history: &plan.history,
                throttle,
            };
            let scan = Scan::run(&mut PartitionReader::new(&source), to_time).await?;
            done.fetch_add(scan.bytes, Ordering::Relaxed);
            plan.scan = scan;
            anyhow::Ok(plan)
        }
    });
    let scans = scans.buffered(parallel).try_collect::<Vec<_>>();
    let progress = || {
        let bytes = sizes::bytes(done.load(Ordering::Relaxed));
        format!("{bytes} read in the partitions that are done")
    };
    let plans = with_progress(scans, progress).await?;

    let mut missing = Vec::new();
    for index in 0..partitions {
        let plan = plans.iter().find(|it| it.partition.partition.0 == index);
        let end = old.end_offset(admin, &args.topic, index).await;
        match plan {
            Some(plan) => {
                println!("{}", choice::summary(index, &plan.scan));
                missing.extend(choice::missing(index, &plan.scan, end));
            }
            None if end == Some(0) => println!("partition {index}: no records"),
            None => missing.push(format!(
                "partition {index}: remote storage has nothing of it"
            )),
        }
    }
    let scans: Vec<&Scan> = plans.iter().map(|plan| &plan.scan).collect();
    println!("{}", choice::total(&scans));
    for line in &missing {
        println!("MISSING {line}");
    }
    for line in &log.unreadable {
        println!("NOTE {line}");
    }
    choice::check_time(&args.topic, &scans)?;

    let is_refused = !missing.is_empty() && !args.accept_missing;
    if args.dry_run {
        println!("{}", end_of_dry_run(is_refused));
        return Ok(());
    }
    ensure!(
        !is_refused,
        "records are missing, so nothing was written; give --accept-missing to restore the available records"
    );
    if let Some(topic) = to_create {
        target::create(admin, topic, false).await?;
    }

    write(
        admin, store, &plans, &new_topic, &begun, &throttle, parallel,
    )
    .await?;
    println!(
        "Retention of {new_topic} is off, because it counts from the times of the records. To give it \
         the settings of {}: ottla configs {} --alter --topic {new_topic} {}",
        args.topic,
        args.brokers.flags(),
        target::flags_to_end_with(&old.configs)
    );
    Ok(())
}

/// The last line of a dry run.
fn end_of_dry_run(is_refused: bool) -> &'static str {
    if is_refused {
        "Nothing was written (--dry-run). Records are missing: without --dry-run, the command refuses, \
         unless --accept-missing is given."
    } else {
        "Nothing was written (--dry-run)."
    }
}

/// The partitions of the topic with the segments that it had at the time.
fn chosen(log: &RemoteLog, topic_id: Uuid, to_time: i64) -> Vec<PartitionPlan> {
    let of_topic = log.partitions.iter();
    let of_topic = of_topic.filter(|(partition, _)| partition.topic_id == topic_id);
    of_topic
        .filter_map(|(partition, remote)| {
            let (segments, history) = choice::segments(remote, to_time)?;
            Some(PartitionPlan {
                partition: partition.clone(),
                segments,
                history,
                scan: Scan::default(),
            })
        })
        .collect()
}

fn highest_partition(plans: &[PartitionPlan]) -> i32 {
    let all = plans.iter().map(|plan| plan.partition.partition.0);
    all.max().unwrap_or(-1)
}

/// The state of the topic that the cluster still has.
#[derive(Default)]
struct OldTopic {
    /// 0 if it is deleted.
    partitions: i32,
    replication_factor: Option<i16>,
    configs: BTreeMap<String, String>,
}

impl OldTopic {
    async fn find(admin: &Admin, name: &str, topic_id: Uuid) -> anyhow::Result<OldTopic> {
        let metadata = admin.client().refresh_metadata(None, false).await?;
        let topic = metadata.topics.get(name);
        let Some(topic) = topic.filter(|topic| topic.topic_id == topic_id) else {
            return Ok(OldTopic::default());
        };
        let replicas = topic.partitions.first().map(|it| it.replicas.len());
        Ok(OldTopic {
            partitions: i32::try_from(topic.partitions.len())?,
            replication_factor: replicas.and_then(|count| i16::try_from(count).ok()),
            configs: target::own_configs(admin, name).await?,
        })
    }

    /// The log end of a partition, if the topic is still there.
    async fn end_offset(&self, admin: &Admin, name: &str, partition: i32) -> Option<i64> {
        if partition >= self.partitions {
            return None;
        }
        let end = target::offset(admin, name, partition, OffsetSpec::Latest).await;
        end.ok()
    }
}

/// Counts written records, and keeps the first failure.
#[derive(Default)]
struct Deliveries {
    records: AtomicU64,
    failure: OnceLock<ClientError>,
}

impl DeliveryListener for Deliveries {
    fn on_delivered(&self, batch: &DeliveredBatch<'_>) {
        match batch.result {
            Ok(_) => {
                let count = u64::from(batch.record_count);
                self.records.fetch_add(count, Ordering::Relaxed);
            }
            Err(error) => {
                let _ = self.failure.set(error.clone());
            }
        }
    }
}

impl Deliveries {
    fn check(&self, topic: &str) -> anyhow::Result<()> {
        match self.failure.get() {
            Some(error) => Err(error.clone()).with_context(|| {
                format!("topic {topic} is not complete; the same command continues the restore")
            }),
            None => Ok(()),
        }
    }
}

async fn write(
    admin: &Admin,
    store: &dyn RemoteStorageManager,
    plans: &[PartitionPlan],
    topic: &str,
    begun: &BTreeMap<i32, RestoreProgress>,
    throttle: &Throttle,
    parallel: usize,
) -> anyhow::Result<()> {
    let is_planned = |index: i32| plans.iter().any(|it| it.partition.partition.0 == index);
    let mut others = begun.iter().filter(|(_, begun)| begun.count > 0);
    if let Some((index, _)) = others.find(|(index, _)| !is_planned(**index)) {
        bail!(
            "topic {topic} exists, and its partition {index} has records that are not in remote \
             storage; give another name with --as, or delete it"
        );
    }
    let total: u64 = plans.iter().map(|plan| plan.scan.records).sum();
    let before: u64 = begun.values().map(|begun| begun.count).sum();
    // The codec of the source; where there are several, of its first batch.
    let codec = plans.iter().find_map(|plan| plan.scan.compression);
    let codec = codec.unwrap_or(CompressionType::None);
    let deliveries = Arc::new(Deliveries::default());
    let producer = Producer::builder(admin.client().clone(), producer_config(codec));
    let producer = producer.listener(deliveries.clone()).start()?;
    let writer = Writer {
        producer: &producer,
        deliveries: &deliveries,
        topic,
    };
    let writing = stream::iter(plans).map(|plan| {
        let writer = &writer;
        let begun = begun.get(&plan.partition.partition.0);
        async move {
            let source = Source {
                store,
                partition: &plan.partition,
                segments: &plan.segments,
                history: &plan.history,
                throttle,
            };
            writer.write_partition(&source, &plan.scan, begun).await
        }
    });
    let writing = writing.buffer_unordered(parallel).try_collect::<Vec<()>>();
    let progress = || {
        let written = before + deliveries.records.load(Ordering::Relaxed);
        format!("{written} of {total} records written")
    };
    with_progress(writing, progress).await?;
    producer.close().await;
    deliveries.check(topic)?;
    for plan in plans {
        let index = plan.partition.partition.0;
        let end = target::offset(admin, topic, index, OffsetSpec::Latest).await?;
        ensure!(
            u64::try_from(end) == Ok(plan.scan.records),
            "partition {index} of {topic} has {end} records instead of {}; did something else write \
             to it? Delete it, and restore again",
            plan.scan.records
        );
    }
    println!(
        "{topic}: {} records written, {before} of an earlier run, {total} in all",
        deliveries.records.load(Ordering::Relaxed)
    );
    Ok(())
}

/// Old records come in large batches, and wait for brokers instead of failing.
fn producer_config(codec: CompressionType) -> ProducerConfig {
    ProducerConfig {
        compression: Compression::from(codec),
        batch_size: 256 * 1024,
        linger: Duration::from_millis(50),
        buffer_memory: 128 * 1024 * 1024,
        max_block: Duration::from_secs(3600),
        max_request_size: 100 * 1024 * 1024,
        delivery_timeout: Duration::from_secs(24 * 3600),
        ..ProducerConfig::default()
    }
}

struct Writer<'a> {
    producer: &'a Producer,
    deliveries: &'a Deliveries,
    topic: &'a str,
}

impl Writer<'_> {
    /// Writes the records of a partition after the records of an earlier run.
    async fn write_partition(
        &self,
        source: &Source<'_>,
        scan: &Scan,
        begun: Option<&RestoreProgress>,
    ) -> anyhow::Result<()> {
        let index = source.partition.partition.0;
        let differs = || {
            format!(
                "topic {} exists, and partition {index} of it does not hold the begin of this \
                 restore; give the same --to-time again, or another name with --as, or delete it",
                self.topic
            )
        };
        let there = begun.map_or(0, |begun| begun.count);
        ensure!(there <= scan.records, differs());
        if there == scan.records && begun.is_none_or(|begun| begun.last.is_none()) {
            return Ok(());
        }
        let (mut reader, mut count) = match scan.resume_after(there) {
            Some((start, before)) => (PartitionReader::resume(source, start), before),
            None => (PartitionReader::new(source), 0),
        };
        while count < scan.records
            && let Some(taken) = reader.next().await?
        {
            if taken.from >= scan.end_offset {
                break;
            }
            // Later records would be written where those of the segment belong.
            ensure!(
                scan.has_missed(&reader.missing),
                "partition {index}: a segment disappeared from remote storage during the restore; \
                 run the command again"
            );
            for record in scan.restored(&taken)? {
                count += 1;
                if count <= there {
                    let last = begun.and_then(|begun| begun.last.as_ref());
                    let is_same = last.is_none_or(|last| target::is_same(last, &record));
                    ensure!(count < there || is_same, differs());
                    continue;
                }
                let record = RecordRef {
                    topic: self.topic,
                    partition: Some(index),
                    key: record.key.as_deref(),
                    value: record.value.as_deref(),
                    headers: &record.headers,
                    timestamp: Some(record.timestamp.0),
                };
                self.producer.send_tagged(record, 0).await?;
            }
            self.deliveries.check(self.topic)?;
        }
        if count != scan.records {
            bail!(
                "partition {index}: remote storage has changed: {count} records instead of {}; run \
                 the command again",
                scan.records
            );
        }
        Ok(())
    }
}

/// Milliseconds since 1970.
fn parse_time(text: &str) -> anyhow::Result<i64> {
    match text.parse() {
        Ok(ms) => Ok(ms),
        Err(_) => parse_datetime(text),
    }
}

/// Prints a line now and then until the work is done.
async fn with_progress<T>(work: impl Future<Output = T>, line: impl Fn() -> String) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(PROGRESS, &mut work).await {
            Ok(done) => return done,
            Err(_) => eprintln!("{}", line()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::end_of_dry_run;

    #[test]
    fn a_dry_run_reports_that_a_restore_would_be_refused() {
        assert!(end_of_dry_run(true).contains("--accept-missing"));
        assert_eq!(end_of_dry_run(false), "Nothing was written (--dry-run).");
    }
}
