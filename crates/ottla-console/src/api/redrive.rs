//! Sending records again, to another topic: those of a dead-letter topic, once their reason is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use ottla_client::{FetchedBatch, ProducerRecord};
use ottla_records::{RecordHeader, RecordView};
use serde::Deserialize;

use super::produce::producer;
use super::topics::current_partitions;
use crate::audit::AuditNote;
use crate::console::Visitor;
use crate::extract::{Body, Path};
use crate::problem::Problem;
use crate::records::events::{Failure, Sender, events};
use crate::records::filter::{Filter, FilterQuery};
use crate::records::scan::{Next, Scan};
use crate::records::selection::{Range, SelectionQuery};

/// Records that are named one by one.
const MOST_NAMED: usize = 1000;
const MOST_MATCHING: u64 = 1_000_000;
const PROGRESS: Duration = Duration::from_millis(250);
/// Sent records whose result is awaited.
const IN_FLIGHT: usize = 10_000;

#[derive(Deserialize)]
pub(super) struct Redrive {
    to: String,
    records: Option<Vec<NamedRecord>>,
    matching: Option<Matching>,
    /// Send to the partition with the same number, instead of the key's.
    #[serde(default)]
    keep_partition: bool,
    #[serde(default = "yes")]
    keep_timestamp: bool,
    #[serde(default)]
    preview: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct NamedRecord {
    partition: i32,
    offset: i64,
}

#[derive(Deserialize)]
struct Matching {
    #[serde(flatten)]
    selection: SelectionQuery,
    #[serde(flatten)]
    filter: FilterQuery,
    limit: Option<u64>,
}

/// What is sent, and how.
struct Plan {
    to: String,
    /// Those that were named; all that match without.
    named: Option<BTreeSet<(i32, i64)>>,
    limit: u64,
    keep_partition: bool,
    keep_timestamp: bool,
}

pub(super) async fn redrive(
    visitor: Visitor,
    Path(topic): Path<String>,
    Body(redrive): Body<Redrive>,
) -> Result<Response, Problem> {
    if redrive.preview {
        visitor.note.is_preview();
    }
    visitor.note.names(format!("to {}", redrive.to));
    let source = current_partitions(&visitor, &topic).await?.len();
    let target = current_partitions(&visitor, &redrive.to).await?.len();
    if redrive.keep_partition && target < source {
        return Err(Problem::invalid(
            "keep_partition",
            format!(
                "topic {} has {target} partitions and {topic} has {source}; let the keys choose",
                redrive.to
            ),
        ));
    }
    let (ranges, filter, is_committed, named, limit) = match (redrive.records, redrive.matching) {
        (Some(records), None) => {
            let named = named(&records)?;
            let ranges = ranges_of(&named);
            if let Some(missing) = ranges.keys().find(|it| **it as usize >= source) {
                return Err(Problem::invalid(
                    "records",
                    format!("topic {topic} has no partition {missing}"),
                ));
            }
            (ranges, Filter::default(), false, Some(named), u64::MAX)
        }
        (None, Some(matching)) => {
            let filter = matching.filter.parse()?;
            let ranges = matching.selection.resolve(&visitor, &topic).await?;
            let limit = matching
                .limit
                .unwrap_or(MOST_MATCHING)
                .clamp(1, MOST_MATCHING);
            (
                ranges,
                filter,
                matching.selection.is_committed(),
                None,
                limit,
            )
        }
        _ => {
            return Err(Problem::invalid(
                "records",
                "give either records or matching",
            ));
        }
    };
    let scan = Scan::of_exactly(&visitor, &topic, ranges, filter, is_committed)?;
    let plan = Plan {
        to: redrive.to,
        named,
        limit,
        keep_partition: redrive.keep_partition,
        keep_timestamp: redrive.keep_timestamp,
    };
    let visit = visitor.visit.clone();
    events(visit, |sender| async move {
        match redrive.preview {
            true => count(scan, &plan, &sender).await,
            false => send(scan, &plan, &visitor, &sender).await,
        }
    })
}

fn named(records: &[NamedRecord]) -> Result<BTreeSet<(i32, i64)>, Problem> {
    if records.is_empty() || records.len() > MOST_NAMED {
        let detail = format!(
            "{} records; name 1 to {MOST_NAMED}, or give matching",
            records.len()
        );
        return Err(Problem::invalid("records", detail));
    }
    if let Some(wrong) = records.iter().find(|it| it.partition < 0 || it.offset < 0) {
        let detail = format!(
            "partition {}, offset {}: give numbers, 0 or more",
            wrong.partition, wrong.offset
        );
        return Err(Problem::invalid("records", detail));
    }
    Ok(records.iter().map(|it| (it.partition, it.offset)).collect())
}

/// The part of each partition in which named records are.
fn ranges_of(named: &BTreeSet<(i32, i64)>) -> BTreeMap<i32, Range> {
    let mut ranges: BTreeMap<i32, Range> = BTreeMap::new();
    for (partition, offset) in named {
        let range = ranges.entry(*partition).or_insert(Range {
            start: *offset,
            end: *offset,
        });
        range.end = offset.saturating_add(1);
    }
    ranges
}

impl Plan {
    fn wants(&self, batch: &FetchedBatch, record: &RecordView<'_>) -> bool {
        let named = self.named.as_ref();
        named.is_none_or(|it| it.contains(&(batch.partition, record.offset.0)))
    }

    fn converted(&self, batch: &FetchedBatch, record: &RecordView<'_>) -> ProducerRecord {
        let copied = |bytes: Option<&[u8]>| bytes.map(Bytes::copy_from_slice);
        let headers = record.headers.iter();
        let header = |(key, value): (&[u8], Option<&[u8]>)| {
            RecordHeader::new(Bytes::copy_from_slice(key), copied(value))
        };
        ProducerRecord {
            topic: self.to.clone(),
            partition: self.keep_partition.then_some(batch.partition),
            key: copied(record.key),
            value: copied(record.value),
            headers: headers.map(header).collect(),
            timestamp: Some(record.timestamp.0).filter(|it| self.keep_timestamp && *it >= 0),
        }
    }
}

/// How many records the cluster has acknowledged. The audit log has it however the stream ends.
struct Sent {
    count: u64,
    note: AuditNote,
    to: String,
}

impl Drop for Sent {
    fn drop(&mut self) {
        let Sent { count, note, to } = self;
        note.later(&format!("{count} records were sent to {to}"));
    }
}

/// Counts what would be sent.
async fn count(mut scan: Scan, plan: &Plan, sender: &Sender) -> Result<(), Failure> {
    let mut told = Instant::now();
    let mut found = 0;
    while !scan.is_done() {
        let next = scan
            .step(|batch, record| {
                found += u64::from(plan.wants(batch, record));
                match found < plan.limit {
                    true => Next::More,
                    false => Next::Stop,
                }
            })
            .await?;
        if next == Next::Stop {
            break;
        }
        if told.elapsed() >= PROGRESS {
            let mut progress = scan.progress();
            progress.matched = found;
            sender.send("progress", &progress).await?;
            told = Instant::now();
        }
    }
    let mut done = scan.progress();
    done.matched = found;
    done.sent = Some(0);
    sender.send("done", &done).await?;
    Ok(())
}

async fn send(
    mut scan: Scan,
    plan: &Plan,
    visitor: &Visitor,
    sender: &Sender,
) -> Result<(), Failure> {
    let mut sent = Sent {
        count: 0,
        note: visitor.note.clone(),
        to: plan.to.clone(),
    };
    let result = send_all(&mut scan, plan, visitor, sender, &mut sent.count).await;
    visitor.view.outdate();
    let found = match result {
        Ok(found) => found,
        Err(Failure::Problem(problem)) => {
            // Those that were sent stay sent.
            let mut progress = scan.progress();
            progress.sent = Some(sent.count);
            sender.send("progress", &progress).await?;
            return Err(Failure::Problem(problem));
        }
        Err(Failure::Gone) => return Err(Failure::Gone),
    };
    let mut done = scan.progress();
    done.matched = found;
    done.sent = Some(sent.count);
    sender.send("done", &done).await?;
    Ok(())
}

/// Returns how many records were found. `sent` counts those that the cluster has acknowledged.
async fn send_all(
    scan: &mut Scan,
    plan: &Plan,
    visitor: &Visitor,
    sender: &Sender,
    sent: &mut u64,
) -> Result<u64, Failure> {
    let producer = producer(visitor)?;
    let mut in_flight = FuturesOrdered::new();
    let mut told = Instant::now();
    let mut found = 0;
    while !scan.is_done() {
        let mut records = Vec::new();
        let next = scan
            .step(|batch, record| {
                if plan.wants(batch, record) {
                    records.push(plan.converted(batch, record));
                    found += 1;
                }
                match found < plan.limit {
                    true => Next::More,
                    false => Next::Stop,
                }
            })
            .await?;
        for record in records {
            in_flight.push_back(producer.send_ref(record.as_ref()).await?.wait());
        }
        while in_flight.len() > IN_FLIGHT
            && let Some(result) = in_flight.next().await
        {
            let _: ottla_client::RecordMetadata = result?;
            *sent += 1;
        }
        if next == Next::Stop {
            break;
        }
        if told.elapsed() >= PROGRESS {
            let mut progress = scan.progress();
            progress.matched = found;
            progress.sent = Some(*sent);
            sender.send("progress", &progress).await?;
            told = Instant::now();
        }
    }
    while let Some(result) = in_flight.next().await {
        result?;
        *sent += 1;
    }
    producer.close_within(Duration::from_secs(1)).await;
    Ok(found)
}
