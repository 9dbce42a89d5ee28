//! Sends records again, to another topic: records of a dead-letter topic, after the cause of their
//! failure is removed.
//!
//! A preview returns the ranges of offsets with the records that it has counted, and a token. A
//! redrive takes the token, which can be used once, and sends the records in the ranges of the
//! preview. If the redrive ends early, it returns the remaining ranges with a new token.

mod plan;
mod promise;
mod request;
mod sending;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use axum::response::Response;
use ottla_client::admin::OffsetSpec;
use serde::Serialize;

use super::produce::{BUFFER_MEMORY, producer};
use super::topics::{current_partitions, current_topic};
use crate::console::Visitor;
use crate::extract::{Body, Path};
use crate::problem::Problem;
use crate::records::events::{Failure, Sender, events};
use crate::records::filter::Filter;
use crate::records::ranges::{self, PartitionRange, Ranges};
use crate::records::scan::{Next, Progress, Scan};
use crate::records::selection::Range;
use crate::view::Partition;
use plan::Plan;
use request::{NamedRecord, Redrive};
use sending::Sending;

/// Records that are named one by one.
const MOST_NAMED: usize = 1000;
const MOST_MATCHING: u64 = 1_000_000;
const PROGRESS: Duration = Duration::from_millis(250);

/// How a redrive or its preview ended.
#[derive(Serialize)]
struct Outcome {
    #[serde(flatten)]
    progress: Progress,
    topic_id: String,
    /// Confirms it. `None` if nothing is left, or if the console lacks memory.
    token: Option<String>,
    /// Where the records are that were not sent.
    ranges: Vec<PartitionRange>,
    /// The ranges of the records that may have been sent, and their number.
    unknown: Vec<PartitionRange>,
    unknown_records: u64,
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
    // Offsets mean nothing in a later topic of the same name.
    if redrive.ranges.is_some() && redrive.topic_id.is_none() {
        return Err(Problem::invalid(
            "topic_id",
            "topic_id is missing; give that of the preview, which ranges belong to",
        ));
    }
    let what = promise::what(&topic, &redrive)?;
    let named = redrive.records.as_deref().map(named).transpose()?;
    let given = redrive.ranges.as_deref().map(ranges::parsed).transpose()?;
    let asked = match (&named, given) {
        (Some(named), Some(given)) => Some(ranges::common(named, &given)),
        (Some(named), None) => Some(named.clone()),
        (None, given) => given,
    };
    let confirmed = match redrive.preview {
        true => None,
        false => Some(promise::check(&visitor, &redrive, &what, asked.as_ref())?),
    };
    let found = current_topic(&visitor, &topic).await?;
    found.check_id(&topic, redrive.topic_id.as_deref())?;
    let previewed = confirmed.as_ref().map(|(_, preview)| &*preview.topic_id);
    found.check_id(&topic, previewed)?;
    let source = found.partitions.len();
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
    let is_recount = redrive.preview && redrive.ranges.is_some();
    let (ranges, filter, is_committed, limit) = match (named, redrive.matching) {
        (Some(named), None) => {
            let ranges = asked.unwrap_or(named);
            let ranges = in_log(&visitor, &topic, source, ranges, false, is_recount).await?;
            (ranges, Filter::default(), false, u64::MAX)
        }
        (None, Some(matching)) => {
            let filter = matching.filter.parse()?;
            let is_committed = matching.selection.is_committed();
            let ranges = match asked {
                Some(asked) => {
                    in_log(&visitor, &topic, source, asked, is_committed, is_recount).await?
                }
                None if redrive.preview => {
                    ranges::of_each(&matching.selection.resolve(&visitor, &topic).await?)
                }
                // Records written since the preview would be sent too, although they were not
                // counted.
                None => {
                    return Err(Problem::invalid(
                        "ranges",
                        "ranges is missing; give the ranges from the preview",
                    ));
                }
            };
            let limit = matching.limit.unwrap_or(MOST_MATCHING);
            (ranges, filter, is_committed, limit.clamp(1, MOST_MATCHING))
        }
        _ => {
            return Err(Problem::invalid(
                "records",
                "give either records or matching",
            ));
        }
    };
    let hulls = ranges::hulls(&ranges);
    let scan = Scan::of_exactly(&visitor, &topic, hulls, filter, is_committed)?;
    let reservation = match redrive.preview {
        true => None,
        false => Some(visitor.budget.reserve(BUFFER_MEMORY)?),
    };
    let plan = Plan {
        what,
        topic_id: found.topic_id,
        to: redrive.to,
        ranges,
        limit,
        keep_partition: redrive.keep_partition,
        keep_timestamp: redrive.keep_timestamp,
    };
    let visit = visitor.visit.clone();
    // From here on, the same request sends nothing.
    let taken = confirmed
        .map(|(token, _)| Ok::<_, Problem>((promise::take(&visit, &token)?, token)))
        .transpose()?;
    let started = events(visit.clone(), |sender| async move {
        let _reservation = reservation;
        match redrive.preview {
            true => count(scan, &plan, &visitor, &sender).await,
            false => send(scan, &plan, &visitor, &sender).await,
        }
    });
    if started.is_err()
        && let Some((promise, token)) = taken
    {
        // There was no place for the stream, so nothing was sent.
        visit.redrives.put_back(token, promise);
    }
    started
}

/// Refuses ranges that the log does not hold, or no longer. A preview of ranges counts those parts
/// that it holds.
async fn in_log(
    visitor: &Visitor,
    topic: &str,
    partitions: usize,
    ranges: Ranges,
    is_committed: bool,
    is_recount: bool,
) -> Result<Ranges, Problem> {
    if let Some(missing) = ranges.keys().find(|it| **it as usize >= partitions) {
        return Err(Problem::invalid(
            "records",
            format!("topic {topic} has no partition {missing}"),
        ));
    }
    let keys: Vec<Partition> = ranges.keys().map(|it| (topic.to_owned(), *it)).collect();
    let (starts, ends) = futures_util::future::join(
        visitor
            .admin
            .list_offsets(&keys, OffsetSpec::Earliest, false),
        visitor
            .admin
            .list_offsets(&keys, OffsetSpec::Latest, is_committed),
    )
    .await;
    let mut log = BTreeMap::new();
    for (key, ranges) in keys.iter().zip(ranges.values()) {
        let (start, end) = (starts[key].clone()?.offset, ends[key].clone()?.offset);
        log.insert(key.1, Range { start, end });
        let outside = ranges.iter().find(|it| it.start < start || it.end > end);
        if let Some(range) = outside.filter(|_| !is_recount) {
            return Err(Problem::conflict(format!(
                "{topic}-{} now holds offsets {start} to {end} (exclusive), and not all from {} to {}; count \
                 again",
                key.1, range.start, range.end
            )));
        }
    }
    Ok(ranges::common(&ranges, &ranges::of_each(&log)))
}

/// The places of records that are named one by one.
fn named(records: &[NamedRecord]) -> Result<Ranges, Problem> {
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
    let places: BTreeSet<(i32, i64)> = records.iter().map(|it| (it.partition, it.offset)).collect();
    let mut ranges = Ranges::new();
    for (partition, offset) in places {
        ranges.entry(partition).or_default().push(Range {
            start: offset,
            end: offset.saturating_add(1),
        });
    }
    Ok(ranges)
}

/// Counts what would be sent.
async fn count(
    mut scan: Scan,
    plan: &Plan,
    visitor: &Visitor,
    sender: &Sender,
) -> Result<(), Failure> {
    let mut reported = Instant::now();
    let mut found = 0;
    while !scan.is_done() {
        let next = scan
            .step(&mut |batch, record, _decoded| {
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
        if reported.elapsed() >= PROGRESS {
            let mut progress = scan.progress();
            progress.matched = found;
            sender.send("progress", &progress).await?;
            reported = Instant::now();
        }
    }
    let mut progress = scan.progress();
    progress.matched = found;
    progress.sent = Some(0);
    let read = scan.positions().iter().map(|(partition, position)| {
        let range = Range {
            start: 0,
            end: *position,
        };
        (*partition, vec![range])
    });
    let read: Ranges = read.collect();
    let counted = ranges::common(&plan.ranges, &read);
    let done = Outcome {
        progress,
        topic_id: plan.topic_id.clone(),
        token: promise::keep(visitor, plan, &[&counted]),
        ranges: ranges::listed(&counted),
        unknown: Vec::new(),
        unknown_records: 0,
    };
    sender.send("done", &done).await?;
    Ok(())
}

async fn send(scan: Scan, plan: &Plan, visitor: &Visitor, sender: &Sender) -> Result<(), Failure> {
    let producer = producer(visitor)?;
    let mut sending = Sending::new(plan, scan, visitor.note.clone());
    let mut reported = Instant::now();
    while sending.step(&producer).await {
        if reported.elapsed() >= PROGRESS {
            sender.send("progress", &progress(&sending)).await?;
            reported = Instant::now();
        }
    }
    let finished = sending.finish().await;
    producer.close_within(Duration::from_secs(1)).await;
    visitor.view.outdate();
    let (unknown_records, unknown) = sending.unknown();
    let unsent = sending.unsent();
    let token = match &finished {
        Ok(()) => None,
        Err(_) => promise::keep(visitor, plan, &[&unsent, &unknown]),
    };
    let outcome = Outcome {
        progress: progress(&sending),
        topic_id: plan.topic_id.clone(),
        token,
        ranges: ranges::listed(&unsent),
        unknown: ranges::listed(&unknown),
        unknown_records,
    };
    match finished {
        Ok(()) => sender.send("done", &outcome).await?,
        Err(problem) => {
            // Sent records stay sent.
            sender.send("progress", &outcome).await?;
            return Err(Failure::Problem(problem));
        }
    }
    Ok(())
}

fn progress(sending: &Sending<'_>) -> Progress {
    let mut progress = sending.scan().progress();
    progress.matched = sending.found();
    progress.sent = Some(sending.sent());
    progress
}
