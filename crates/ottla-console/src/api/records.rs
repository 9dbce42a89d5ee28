//! Records: pages, live tails and searches as event streams, one record, and files.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use ottla_client::FetchedBatch;
use ottla_records::RecordView;
use serde::Deserialize;

use crate::console::Visitor;
use crate::extract::{Path, Query};
use crate::problem::Problem;
use crate::records::decode::{Format, Record};
use crate::records::events::{Failure, Sender, download, events};
use crate::records::export::Line;
use crate::records::filter::FilterQuery;
use crate::records::scan::{Next, Scan};
use crate::records::selection::{Range, SelectionQuery, from_offsets};
use crate::registry::DecodedRecord;
use crate::visit::Visit;

/// Records in one event, and their size.
const RECORDS_PER_EVENT: usize = 200;
const BYTES_PER_EVENT: usize = 256 << 10;
const PROGRESS: Duration = Duration::from_millis(250);

const DEFAULT_LIMIT: u64 = 100;
const MAX_LIMIT: u64 = 10_000;
const EXPORT_LIMIT: u64 = 1_000_000;
/// The text of a record in a file is counted as memory if it is larger.
const LARGE_TEXT: usize = 4 << 20;
const DEFAULT_BYTES: usize = 2048;
const MAX_BYTES: usize = 64 << 10;
/// Of each part of a record that is shown alone.
const WHOLE_BYTES: usize = 16 << 20;
/// Such a record is in memory as digits, of two bytes for each of it, and as the text of its answer.
const WHOLE_COPIES: usize = 4;
/// Records a second of a live tail.
const DEFAULT_RATE: u32 = 50;
const MAX_RATE: u32 = 500;
/// How long one record is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
pub(super) struct StreamQuery {
    #[serde(default)]
    follow: bool,
    limit: Option<u64>,
    rate: Option<u32>,
    max_bytes: Option<usize>,
    #[serde(default)]
    format: Format,
}

pub(super) async fn stream(
    visitor: Visitor,
    Path(topic): Path<String>,
    Query(query): Query<StreamQuery>,
    Query(selection): Query<SelectionQuery>,
    Query(filter): Query<FilterQuery>,
) -> Result<Response, Problem> {
    let filter = filter.parse()?;
    let ranges = selection.resolve(&visitor, &topic).await?;
    let visit = visitor.visit.clone();
    let scan = Scan::new(
        &visit,
        &topic,
        ranges,
        filter,
        selection.is_committed(),
        query.follow,
    )?
    .leaving_out_large_batches();
    let owner = visit.clone();
    events(visit, |sender| async move {
        match query.follow {
            true => follow(scan, &query, &sender).await,
            false => page(scan, &query, &owner, &sender).await,
        }
    })
}

/// The records that wait to be sent.
#[derive(Default)]
struct Pending {
    records: Vec<Record>,
    bytes: usize,
}

impl Pending {
    fn push(&mut self, record: Record) {
        self.bytes += record.size();
        self.records.push(record);
    }

    /// Sends what waits, in events of bounded size.
    async fn flush(&mut self, sender: &Sender) -> Result<(), Failure> {
        let mut bytes = 0;
        let mut event = Vec::new();
        self.bytes = 0;
        for record in self.records.drain(..) {
            bytes += record.size();
            event.push(record);
            if event.len() >= RECORDS_PER_EVENT || bytes >= BYTES_PER_EVENT {
                sender.send("records", &event).await?;
                event.clear();
                bytes = 0;
            }
        }
        if !event.is_empty() {
            sender.send("records", &event).await?;
        }
        Ok(())
    }
}

impl StreamQuery {
    fn show(
        &self,
        batch: &FetchedBatch,
        record: &RecordView<'_>,
        decoded: &DecodedRecord,
    ) -> Record {
        let max_bytes = self.max_bytes.unwrap_or(DEFAULT_BYTES).min(MAX_BYTES);
        Record::new(batch, record, decoded, self.format, max_bytes)
    }
}

async fn page(
    mut scan: Scan,
    query: &StreamQuery,
    visit: &Visit,
    sender: &Sender,
) -> Result<(), Failure> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    sender.send("progress", &scan.progress()).await?;
    let mut reported = Instant::now();
    let mut pending = Pending::default();
    let mut found = 0;
    while !scan.is_done() {
        let next = scan
            .step(&mut |batch, record, decoded| {
                pending.push(query.show(batch, record, decoded));
                found += 1;
                if found >= limit {
                    Next::Stop
                } else if pending.bytes >= BYTES_PER_EVENT {
                    Next::Pause
                } else {
                    Next::More
                }
            })
            .await?;
        pending.flush(sender).await?;
        if next == Next::Stop {
            break;
        }
        if reported.elapsed() >= PROGRESS {
            sender.send("progress", &scan.progress()).await?;
            reported = Instant::now();
        }
    }
    let mut done = scan.progress();
    done.next = from_offsets(scan.left(), visit);
    sender.send("done", &done).await?;
    Ok(())
}

async fn follow(mut scan: Scan, query: &StreamQuery, sender: &Sender) -> Result<(), Failure> {
    let rate = f64::from(query.rate.unwrap_or(DEFAULT_RATE).clamp(1, MAX_RATE));
    sender.send("progress", &scan.progress()).await?;
    let mut reported = Instant::now();
    let mut pending = Pending::default();
    let mut skipped = 0;
    // As many as are shown in a second may come at once.
    let (mut allowed, mut refilled) = (rate, Instant::now());
    loop {
        scan.step(&mut |batch, record, decoded| {
            if allowed >= 1.0 && pending.bytes < BYTES_PER_EVENT {
                allowed -= 1.0;
                pending.push(query.show(batch, record, decoded));
            } else {
                skipped += 1;
            }
            Next::More
        })
        .await?;
        allowed = (allowed + refilled.elapsed().as_secs_f64() * rate).min(rate);
        refilled = Instant::now();
        pending.flush(sender).await?;
        if reported.elapsed() >= PROGRESS {
            let mut progress = scan.progress();
            progress.skipped = skipped;
            sender.send("progress", &progress).await?;
            reported = Instant::now();
        }
    }
}

#[derive(Deserialize)]
pub(super) struct OneQuery {
    #[serde(default)]
    format: Format,
}

pub(super) async fn one(
    visitor: Visitor,
    Path((topic, partition, offset)): Path<(String, i32, i64)>,
    Query(query): Query<OneQuery>,
) -> Result<Response, Problem> {
    let missing = || {
        Problem::not_found(format!(
            "{topic}-{partition} has no record at offset {offset}: it was deleted or compacted, or is a control record"
        ))
    };
    // One place of those for streams, because the record can be large.
    let _place = visitor.stream()?;
    if super::topics::current_partitions(&visitor, &topic)
        .await?
        .len()
        <= partition.max(0) as usize
        || partition < 0
    {
        return Err(missing());
    }
    let range = Range {
        start: offset,
        end: offset.saturating_add(1),
    };
    let ranges = BTreeMap::from([(partition, range)]);
    let key = (topic.clone(), partition);
    let admin = &visitor.admin;
    let end = admin
        .list_offset(
            &topic,
            partition,
            ottla_client::admin::OffsetSpec::Latest,
            false,
        )
        .await?;
    if offset < 0 || offset >= end.offset {
        return Err(missing());
    }
    let mut scan = Scan::new(&visitor, &key.0, ranges, Default::default(), false, false)?;
    let mut found = None;
    let began = Instant::now();
    while found.is_none() && !scan.is_done() {
        scan.step(&mut |batch, record, decoded| {
            if record.offset.0 == offset {
                let bytes = record.size_in_bytes.min(2 * WHOLE_BYTES) * WHOLE_COPIES;
                let room = visitor.budget.reserve(bytes);
                found = Some(room.map(|room| {
                    let shown = Record::new(batch, record, decoded, query.format, WHOLE_BYTES);
                    (shown, room)
                }));
            }
            Next::Stop
        })
        .await?;
        if found.is_none() && began.elapsed() > PATIENCE {
            return Err(Problem::timed_out(format!(
                "{topic}-{partition} did not answer in time; its leader may be away"
            )));
        }
    }
    // The guard reserves the memory of the answer.
    let (shown, _room) = found.ok_or_else(missing)??;
    Ok(Json(shown).into_response())
}

#[derive(Deserialize)]
pub(super) struct ExportQuery {
    #[serde(default, rename = "as")]
    kind: Kind,
    limit: Option<u64>,
    /// Whether keys and values are as they are in the topic, although they can be decoded, or can be formulas in a
    /// spreadsheet.
    #[serde(default)]
    raw: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Jsonl,
    Csv,
}

const CSV_TITLE: &str = "partition,offset,timestamp,key,value,headers,base64\r\n";

pub(super) async fn export(
    visitor: Visitor,
    Path(topic): Path<String>,
    Query(query): Query<ExportQuery>,
    Query(selection): Query<SelectionQuery>,
    Query(filter): Query<FilterQuery>,
) -> Result<Response, Problem> {
    let filter = filter.parse()?;
    let ranges = selection.resolve(&visitor, &topic).await?;
    let visit = visitor.visit.clone();
    let mut scan = Scan::new(
        &visit,
        &topic,
        ranges,
        filter,
        selection.is_committed(),
        false,
    )?;
    let limit = query.limit.unwrap_or(EXPORT_LIMIT).clamp(1, EXPORT_LIMIT);
    let budget = visit.budget.clone();
    let (content_type, extension) = match query.kind {
        Kind::Jsonl => ("application/x-ndjson", "jsonl"),
        Kind::Csv => ("text/csv; charset=utf-8", "csv"),
    };
    // Topic names have no other characters; whatever comes is no part of a header.
    let is_safe = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
    let name: String = topic.chars().filter(is_safe).collect();
    let body = download(visit, |sender| async move {
        let mut text = Vec::new();
        let undecoded = DecodedRecord::default();
        if let Kind::Csv = query.kind {
            text.extend_from_slice(CSV_TITLE.as_bytes());
        }
        let mut found = 0;
        while !scan.is_done() {
            let next = scan
                .step(&mut |batch, record, decoded| {
                    let decoded = if query.raw { &undecoded } else { decoded };
                    let line = Line::new(&topic, batch.partition, record, decoded);
                    write(&mut text, &query, &line);
                    found += 1;
                    if found >= limit {
                        Next::Stop
                    } else if text.len() >= BYTES_PER_EVENT {
                        Next::Pause
                    } else {
                        Next::More
                    }
                })
                .await?;
            if !text.is_empty() {
                let is_large = text.len() > LARGE_TEXT;
                let room = is_large.then(|| budget.reserve(text.len()));
                let _room = room.transpose()?;
                sender
                    .send_bytes(Bytes::from(std::mem::take(&mut text)))
                    .await?;
            }
            if next == Next::Stop {
                break;
            }
        }
        if !text.is_empty() {
            sender.send_bytes(text.into()).await?;
        }
        Ok(())
    })?;
    let headers = [
        (header::CONTENT_TYPE, content_type.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}.{extension}\""),
        ),
    ];
    Ok((headers, body).into_response())
}

fn write(text: &mut Vec<u8>, query: &ExportQuery, line: &Line<'_>) {
    match query.kind {
        Kind::Jsonl => {
            // Texts and numbers can always be written to memory.
            let _ = serde_json::to_writer(&mut *text, line);
            text.push(b'\n');
        }
        Kind::Csv => line.write_csv(text, query.raw),
    }
}
