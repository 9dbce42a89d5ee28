//! Finds the records of a partition to restore: the log up to the first record that is newer than
//! the time, without control records and without records of transactions that were not committed by
//! then.
//!
//! Markers follow the records of their transaction, so a partition is read once to find them and to
//! count, and a second time to write. The restored records are also counted per segment: an
//! interrupted restore continues in the segment that it had reached.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use ottla_records::control::ControlRecordType;
use ottla_records::legacy::AnyBatch;
use ottla_records::{CompressionType, Record, RecordBatch};

use super::reader::{PartitionReader, SegmentStart, TakenBatch};

/// The most that one batch may decompress to.
const MAX_BATCH_BYTES: usize = 512 * 1024 * 1024;

/// The findings about a partition.
#[derive(Default, Debug)]
pub struct Scan {
    /// Milliseconds since 1970.
    pub(super) to_time: i64,
    /// The first offset that remote storage has.
    pub first_offset: Option<i64>,
    /// Exclusive.
    pub end_offset: i64,
    /// Whether a record that is newer than the time comes next. Otherwise remote storage ends there.
    pub is_cut: bool,
    /// The time of that record.
    pub next_time: Option<i64>,
    /// Records that are restored.
    pub records: u64,
    /// Records of transactions that were aborted.
    pub aborted: u64,
    /// Records of transactions that were open.
    pub open: u64,
    /// Read from the store.
    pub bytes: u64,
    pub segments: usize,
    /// The smallest and the largest timestamp of the batches.
    pub times: Option<(i64, i64)>,
    /// Of the first batch.
    pub compression: Option<CompressionType>,
    /// First and last offset of records that are no longer in the store.
    pub missing: Vec<(i64, i64)>,
    /// By producer ID, the offsets (inclusive) between which its transactional records are left out,
    /// in order.
    pub(super) left_out: BTreeMap<i64, Vec<(i64, i64)>>,
    pub(super) ongoing: BTreeMap<i64, Ongoing>,
    /// The segments that were read, and how many records of each are restored.
    pub(super) segment_records: Vec<(SegmentStart, u64)>,
}

/// A transaction without a marker so far.
#[derive(Debug)]
pub(super) struct Ongoing {
    first_offset: i64,
    records: u64,
    /// The same by position in `segment_records`.
    by_segment: BTreeMap<usize, u64>,
}

impl Scan {
    /// Reads a partition from its start to the time, or to its end.
    pub async fn run(reader: &mut PartitionReader<'_>, to_time: i64) -> anyhow::Result<Scan> {
        let mut scan = Scan {
            to_time,
            ..Scan::default()
        };
        while let Some(taken) = reader.next().await? {
            if !scan.add(&taken)? {
                scan.is_cut = true;
                break;
            }
        }
        // A transaction that is open at the end was not committed at the time.
        for (producer, ongoing) in std::mem::take(&mut scan.ongoing) {
            scan.open += ongoing.records;
            scan.leave_out(producer, ongoing.first_offset, scan.end_offset);
        }
        scan.bytes = reader.bytes;
        scan.segments = reader.segments_read + usize::from(scan.is_cut);
        scan.missing = std::mem::take(&mut reader.missing);
        Ok(scan)
    }

    /// Adds one batch. False if it has a record that is newer than the time.
    fn add(&mut self, taken: &TakenBatch) -> anyhow::Result<bool> {
        let last_read = self.segment_records.last();
        if last_read.is_none_or(|(start, _)| start.segment != taken.segment) {
            let start = SegmentStart {
                segment: taken.segment,
                next_offset: taken.from,
            };
            self.segment_records.push((start, 0));
        }
        let last = taken.batch.last_offset().0;
        let mut count = 0;
        let mut cut = None;
        for record in all_records(&taken.batch)? {
            let offset = record.offset.0;
            if offset < taken.from {
                continue;
            }
            if record.timestamp.0 > self.to_time {
                cut = Some(offset);
                self.next_time = Some(record.timestamp.0);
                break;
            }
            count += 1;
            self.first_offset.get_or_insert(offset);
            let time = record.timestamp.0;
            let (oldest, newest) = self.times.unwrap_or((time, time));
            self.times = Some((oldest.min(time), newest.max(time)));
        }
        self.end_offset = cut.unwrap_or(last.saturating_add(1));
        if count > 0 {
            self.count(&taken.batch, count)?;
        }
        Ok(cut.is_none())
    }

    fn count(&mut self, batch: &AnyBatch, count: u64) -> anyhow::Result<()> {
        // `add` has put the segment in.
        let segment = self.segment_records.len() - 1;
        let AnyBatch::Current(batch) = batch else {
            self.restore(segment, count);
            return Ok(());
        };
        let header = &batch.header;
        let producer = header.producer_id.0;
        if header.is_control() {
            let kind = marker(batch)?;
            let commits = kind == Some(ControlRecordType::Commit);
            if !commits && kind != Some(ControlRecordType::Abort) {
                return Ok(());
            }
            let Some(ongoing) = self.ongoing.remove(&producer) else {
                return Ok(());
            };
            if commits {
                for (segment, count) in ongoing.by_segment {
                    self.restore(segment, count);
                }
            } else {
                self.aborted += ongoing.records;
                let last = header.last_offset().0;
                self.leave_out(producer, ongoing.first_offset, last);
            }
            return Ok(());
        }
        self.compression = self.compression.or(header.compression_type().ok());
        if header.is_transactional() {
            let ongoing = self.ongoing.entry(producer).or_insert(Ongoing {
                first_offset: header.base_offset.0,
                records: 0,
                by_segment: BTreeMap::new(),
            });
            ongoing.records += count;
            *ongoing.by_segment.entry(segment).or_default() += count;
        } else {
            self.restore(segment, count);
        }
        Ok(())
    }

    /// Counts records that are restored.
    fn restore(&mut self, segment: usize, count: u64) {
        self.records += count;
        self.segment_records[segment].1 += count;
    }

    /// The position at which a restore continues after `written` records: the segment with the last
    /// written record, and the number of records before that segment. `None` if nothing was
    /// written.
    pub fn resume_after(&self, written: u64) -> Option<(SegmentStart, u64)> {
        let mut before = 0;
        for (start, count) in &self.segment_records {
            if written <= before {
                break;
            }
            if written <= before + count {
                return Some((*start, before));
            }
            before += count;
        }
        None
    }

    /// Whether these offsets were missing too when the partition was read first. A reader that began
    /// later does not know the first of them.
    pub fn has_missed(&self, missing: &[(i64, i64)]) -> bool {
        let is_known = |last: i64| self.missing.iter().any(|(_, it)| *it == last);
        missing.iter().all(|(_, last)| is_known(*last))
    }

    fn leave_out(&mut self, producer: i64, first: i64, last: i64) {
        let ranges = self.left_out.entry(producer).or_default();
        ranges.push((first, last));
    }

    fn is_left_out(&self, producer: i64, offset: i64) -> bool {
        self.left_out.get(&producer).is_some_and(|ranges| {
            let after = ranges.partition_point(|(first, _)| *first <= offset);
            after > 0 && offset <= ranges[after - 1].1
        })
    }

    /// The records of a batch that are restored, when the partition is read again.
    pub fn restored(&self, taken: &TakenBatch) -> anyhow::Result<Vec<Record>> {
        if let AnyBatch::Current(batch) = &taken.batch {
            let header = &batch.header;
            let is_left_out = header.is_transactional()
                && self.is_left_out(header.producer_id.0, header.base_offset.0);
            if header.is_control() || is_left_out {
                return Ok(Vec::new());
            }
        }
        let mut records = all_records(&taken.batch)?;
        records.retain(|record| record.offset.0 >= taken.from && record.offset.0 < self.end_offset);
        Ok(records)
    }
}

fn all_records(batch: &AnyBatch) -> anyhow::Result<Vec<Record>> {
    let records = batch.records(MAX_BATCH_BYTES);
    records.map_err(|error| {
        anyhow!(
            "the batch that ends at offset {}: {error}",
            batch.last_offset()
        )
    })
}

fn marker(batch: &RecordBatch) -> anyhow::Result<Option<ControlRecordType>> {
    let name = || format!("the control batch at offset {}", batch.header.base_offset);
    let mut records = batch.records(MAX_BATCH_BYTES).with_context(name)?;
    let Some(record) = records.next().transpose().with_context(name)? else {
        return Ok(None);
    };
    let key = record.key.unwrap_or_default();
    ControlRecordType::parse_key(&key).with_context(name)
}
