//! The batches of a partition in remote storage, each offset once and in order.
//!
//! Segments can overlap after a change of leader, and may hold records that an unclean election cut
//! off. Offsets and leader epochs reveal both. A segment that is no longer in the store is skipped,
//! and its offsets are reported unless another segment has them.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use futures_util::StreamExt;
use ottla_records::legacy::AnyBatch;
use ottla_tiered::{LeaderEpochs, RemoteLogSegmentMetadata, RemotePartition, RemoteSegment};
use ottla_tiered_storage::{
    RemoteStorageError, RemoteStorageErrorKind, RemoteStorageManager, SegmentStream,
};

use super::super::batches::BatchSplitter;

/// Bounds the bytes that all readers take from the store.
pub struct Throttle {
    bytes_per_second: Option<u64>,
    /// When the bytes that were taken so far have had their time.
    free_at: std::sync::Mutex<Instant>,
}

impl Throttle {
    /// Without a rate there is no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Throttle {
        Throttle {
            bytes_per_second,
            free_at: std::sync::Mutex::new(Instant::now()),
        }
    }

    /// Waits until the bytes taken before have had their time.
    async fn take(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else {
            return;
        };
        let wait = self.reserve(bytes, rate.max(1), Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    fn reserve(&self, bytes: usize, rate: u64, now: Instant) -> Duration {
        let mut free_at = self.free_at.lock().expect("no holder panics");
        let begin = (*free_at).max(now);
        *free_at = begin + Duration::from_secs_f64(bytes as f64 / rate as f64);
        begin.duration_since(now)
    }
}

/// A batch whose records before `from` were in an earlier batch.
pub struct TakenBatch {
    pub batch: AnyBatch,
    pub from: i64,
    /// The position of its segment in [`Source::segments`].
    pub segment: usize,
}

/// Where reading can begin instead of at the first segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentStart {
    /// The position of the segment in [`Source::segments`].
    pub segment: usize,
    /// All offsets before it were in earlier segments.
    pub next_offset: i64,
}

/// The source of a read: a partition, its segments by their start, and its leader epochs.
pub struct Source<'a> {
    pub store: &'a dyn RemoteStorageManager,
    pub partition: &'a RemotePartition,
    pub segments: &'a [RemoteSegment],
    pub history: &'a LeaderEpochs,
    pub throttle: &'a Throttle,
}

/// Reads a partition from its first remote segment on, or from a later one.
pub struct PartitionReader<'a> {
    source: &'a Source<'a>,
    next_segment: usize,
    open: Option<OpenSegment<'a>>,
    /// The first offset that was not returned yet.
    next_offset: i64,
    /// All offsets before it were returned, are missing, or were never there. None before the first.
    covered_to: Option<i64>,
    /// The end (exclusive) of the segments that are not in the store.
    expected_to: i64,
    pub bytes: u64,
    pub segments_read: usize,
    /// First and last offset of records that are no longer in the store.
    pub missing: Vec<(i64, i64)>,
}

struct OpenSegment<'a> {
    segment: &'a RemoteSegment,
    stream: SegmentStream,
    batches: BatchSplitter,
    has_begun: bool,
    has_returned: bool,
    /// It has records of another history, which are left out.
    is_of_two_histories: bool,
}

impl<'a> PartitionReader<'a> {
    pub fn new(source: &'a Source<'a>) -> PartitionReader<'a> {
        PartitionReader {
            source,
            next_segment: 0,
            open: None,
            next_offset: 0,
            covered_to: None,
            expected_to: 0,
            bytes: 0,
            segments_read: 0,
            missing: Vec::new(),
        }
    }

    /// Begins at a segment that another reader of the same source has come to.
    pub fn resume(source: &'a Source<'a>, start: SegmentStart) -> PartitionReader<'a> {
        PartitionReader {
            next_segment: start.segment,
            next_offset: start.next_offset,
            ..PartitionReader::new(source)
        }
    }

    /// The next batch; `None` after the last batch in the store.
    pub async fn next(&mut self) -> anyhow::Result<Option<TakenBatch>> {
        loop {
            let Some(open) = &mut self.open else {
                if self.open_next().await? {
                    continue;
                }
                self.note_missing_before(self.expected_to);
                return Ok(None);
            };
            let (partition, segment) = (self.source.partition, open.segment);
            let name = || name_of(partition, segment);
            if let Some(batch) = open.take_batch().with_context(name)? {
                if let Some(taken) = self.take(batch) {
                    return Ok(Some(taken));
                }
                continue;
            }
            match open.stream.next().await {
                Some(Ok(piece)) => {
                    open.has_begun = true;
                    open.batches.push(&piece);
                    self.bytes += piece.len() as u64;
                    self.source.throttle.take(piece.len()).await;
                }
                Some(Err(error)) if !open.has_begun && is_gone(&error) => {
                    self.open = None;
                    self.pass_over(segment);
                }
                Some(Err(error)) => return Err(error).with_context(name),
                None => {
                    let rest = open.batches.rest();
                    ensure!(
                        rest == 0,
                        "{}: {rest} bytes at the end are no whole batch",
                        name()
                    );
                    let is_whole = !open.is_of_two_histories;
                    let end = segment.end_offset.0.saturating_add(1);
                    self.open = None;
                    self.segments_read += 1;
                    if is_whole {
                        self.covered_to = Some(self.covered_to.map_or(end, |it| it.max(end)));
                    }
                }
            }
        }
    }

    /// Opens the next segment with offsets that were not returned. False if there is none.
    async fn open_next(&mut self) -> anyhow::Result<bool> {
        while let Some(segment) = self.source.segments.get(self.next_segment) {
            self.next_segment += 1;
            if segment.end_offset.0 < self.next_offset {
                continue;
            }
            let metadata = RemoteLogSegmentMetadata {
                partition: self.source.partition.clone(),
                segment: segment.clone(),
            };
            match self
                .source
                .store
                .fetch_log_segment(&metadata, 0, None)
                .await
            {
                Ok(stream) => {
                    self.open = Some(OpenSegment {
                        segment,
                        stream,
                        batches: BatchSplitter::new(segment),
                        has_begun: false,
                        has_returned: false,
                        is_of_two_histories: false,
                    });
                    return Ok(true);
                }
                Err(error) if is_gone(&error) => self.pass_over(segment),
                Err(error) => {
                    return Err(error).with_context(|| name_of(self.source.partition, segment));
                }
            }
        }
        Ok(false)
    }

    fn pass_over(&mut self, segment: &RemoteSegment) {
        self.covered_to.get_or_insert(segment.start_offset.0);
        let end = segment.end_offset.0.saturating_add(1);
        self.expected_to = self.expected_to.max(end);
    }

    fn note_missing_before(&mut self, offset: i64) {
        if let Some(covered) = self.covered_to
            && covered < offset
        {
            self.missing.push((covered, offset - 1));
            self.covered_to = Some(offset);
        }
    }

    /// The batch of the open segment, if it belongs to the log and is not a repetition.
    fn take(&mut self, batch: AnyBatch) -> Option<TakenBatch> {
        let open = self.open.as_mut()?;
        if let AnyBatch::Current(current) = &batch {
            let of_log = self.source.history.epoch_for(current.header.base_offset);
            if of_log.is_some_and(|epoch| epoch != current.header.partition_leader_epoch) {
                open.is_of_two_histories = true;
                return None;
            }
        }
        let last = batch.last_offset().0;
        if last < self.next_offset {
            return None;
        }
        let is_first = !std::mem::replace(&mut open.has_returned, true);
        let start = open.segment.start_offset.0;
        if is_first {
            self.note_missing_before(start);
        }
        let from = std::mem::replace(&mut self.next_offset, last.saturating_add(1));
        self.covered_to = Some(self.covered_to.unwrap_or(start).max(self.next_offset));
        Some(TakenBatch {
            batch,
            from,
            // The open segment.
            segment: self.next_segment - 1,
        })
    }
}

impl OpenSegment<'_> {
    /// Takes a whole batch off the bytes that were read.
    fn take_batch(&mut self) -> anyhow::Result<Option<AnyBatch>> {
        let at = self.batches.position();
        let wrong = |error: &dyn std::fmt::Display| anyhow!("at byte {at}: {error}");
        let Some((_, mut bytes)) = self.batches.take_batch().map_err(|error| wrong(&error))? else {
            return Ok(None);
        };
        let batch = AnyBatch::read(&mut bytes).map_err(|error| wrong(&error))?;
        batch.verify_crc().map_err(|error| wrong(&error))?;
        Ok(Some(batch))
    }
}

fn is_gone(error: &RemoteStorageError) -> bool {
    error.kind == RemoteStorageErrorKind::NotFound
}

fn name_of(partition: &RemotePartition, segment: &RemoteSegment) -> String {
    format!(
        "{}-{} offsets {} to {} segment {}",
        partition.topic, partition.partition, segment.start_offset, segment.end_offset, segment.id
    )
}

#[cfg(test)]
mod tests {
    use super::super::scan::Scan;
    use super::super::test_store::{TestStore, data, marker, transactional};
    use super::*;
    use ottla_records::control::ControlRecordType::{Abort, Commit};

    /// The returned offsets, and the missing ranges.
    async fn read(store: &TestStore) -> (Vec<i64>, Vec<(i64, i64)>) {
        let throttle = Throttle::new(None);
        let history = store.history();
        let source = store.source(&history, &throttle);
        let mut reader = PartitionReader::new(&source);
        let mut offsets = Vec::new();
        while let Some(taken) = reader.next().await.unwrap() {
            let records = taken.batch.records(1 << 20).unwrap();
            let offsets_of_batch = records.iter().map(|record| record.offset.0);
            offsets.extend(offsets_of_batch.filter(|offset| *offset >= taken.from));
        }
        (offsets, reader.missing)
    }

    #[tokio::test]
    async fn each_offset_of_overlapping_segments_is_read_once() {
        let mut store = TestStore::new();
        store.add(0, 9, &[(0, 0)], &[data(0, 5, 0), data(5, 5, 0)]);
        // Epoch 1 wrote 10 to 19, and epoch 2 began at 12 without its end.
        store.add(
            8,
            19,
            &[(0, 8), (1, 10)],
            &[data(8, 2, 0), data(10, 2, 1), data(12, 8, 1)],
        );
        store.add(
            10,
            15,
            &[(1, 10), (2, 12)],
            &[data(10, 2, 1), data(12, 4, 2)],
        );
        let (offsets, missing) = read(&store).await;
        assert_eq!(offsets, (0..16).collect::<Vec<_>>());
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[tokio::test]
    async fn missing_records_are_reported_once() {
        let mut store = TestStore::new();
        for start in [0, 10, 20, 30] {
            store.add(start, start + 9, &[(0, start)], &[data(start, 10, 0)]);
        }
        store.remove(0);
        store.remove(2);
        let (offsets, missing) = read(&store).await;
        assert_eq!(offsets, (10..20).chain(30..40).collect::<Vec<_>>());
        assert_eq!(missing, [(0, 9), (20, 29)]);
        store.remove(3);
        assert_eq!(read(&store).await.1, [(0, 9), (20, 39)]);
    }

    #[tokio::test]
    async fn a_segment_that_goes_between_the_two_reads_is_noticed() {
        let mut store = TestStore::new();
        for start in [0, 10, 20, 30] {
            store.add(start, start + 9, &[(0, start)], &[data(start, 10, 0)]);
        }
        store.remove(1);
        let scan = {
            let throttle = Throttle::new(None);
            let history = store.history();
            let source = store.source(&history, &throttle);
            let mut reader = PartitionReader::new(&source);
            Scan::run(&mut reader, i64::MAX).await.unwrap()
        };
        let missing = read(&store).await.1;
        assert!(scan.has_missed(&missing), "{missing:?}");
        store.remove(2);
        let missing = read(&store).await.1;
        assert!(!scan.has_missed(&missing), "{missing:?}");
    }

    #[tokio::test]
    async fn a_changed_byte_is_an_error_that_names_the_segment() {
        let mut store = TestStore::new();
        store.add(0, 9, &[(0, 0)], &[data(0, 5, 0), data(5, 5, 0)]);
        store.damage(0, 70);
        let throttle = Throttle::new(None);
        let history = store.history();
        let source = store.source(&history, &throttle);
        let error = PartitionReader::new(&source).next().await.err().unwrap();
        let text = format!("{error:#}");
        assert!(text.starts_with("t-0 offsets 0 to 9 segment "), "{text}");
        assert!(text.contains("at byte 0: the stored checksum"), "{text}");
    }

    #[tokio::test]
    async fn only_committed_records_up_to_the_time_are_restored() {
        let mut store = TestStore::new();
        // The records of `data` have their offsets plus 1000 as timestamps.
        store.add(
            0,
            9,
            &[(0, 0)],
            &[
                transactional(0, 2, 7),
                data(2, 1, 0),
                marker(3, 7, Abort),
                transactional(4, 2, 7),
                transactional(6, 2, 8),
                marker(8, 7, Commit),
                data(9, 1, 0),
            ],
        );
        store.add(
            10,
            19,
            &[(0, 10)],
            &[data(10, 4, 0), marker(14, 8, Commit), data(15, 5, 0)],
        );
        let throttle = Throttle::new(None);
        let history = store.history();
        let source = store.source(&history, &throttle);
        // Before the marker of producer 8.
        for (to_time, expected, end) in [
            (1012, vec![2, 4, 5, 9, 10, 11, 12], 13),
            (1016, vec![2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 15, 16], 17),
        ] {
            let mut reader = PartitionReader::new(&source);
            let scan = Scan::run(&mut reader, to_time).await.unwrap();
            assert_eq!((scan.end_offset, scan.is_cut), (end, true));
            assert_eq!(scan.records, expected.len() as u64);
            assert_eq!(scan.aborted, 2);
            let mut reader = PartitionReader::new(&source);
            let mut offsets = Vec::new();
            while let Some(taken) = reader.next().await.unwrap() {
                let records = scan.restored(&taken).unwrap();
                offsets.extend(records.iter().map(|record| record.offset.0));
            }
            assert_eq!(offsets, expected);
            // Only the second segment has the commit marker of producer 8.
            let in_first = expected.iter().filter(|offset| **offset < 10).count();
            for there in 0..=expected.len() {
                let resumed = scan.resume_after(there as u64);
                if there <= in_first {
                    assert_eq!(resumed.map_or(0, |(_, before)| before), 0, "{there}");
                    continue;
                }
                let (start, before) = resumed.unwrap();
                assert_eq!(before, in_first as u64);
                let mut reader = PartitionReader::resume(&source, start);
                let mut offsets = Vec::new();
                while let Some(taken) = reader.next().await.unwrap() {
                    let records = scan.restored(&taken).unwrap();
                    offsets.extend(records.iter().map(|record| record.offset.0));
                }
                assert_eq!(offsets, expected[in_first..]);
                assert_eq!(reader.segments_read, 1);
            }
        }
        let mut reader = PartitionReader::new(&source);
        let scan = Scan::run(&mut reader, i64::MAX).await.unwrap();
        assert_eq!((scan.end_offset, scan.is_cut, scan.open), (20, false, 0));
    }

    #[tokio::test]
    async fn a_restore_continues_in_an_overlapping_segment() {
        let mut store = TestStore::new();
        store.add(0, 9, &[(0, 0)], &[data(0, 5, 0), data(5, 5, 0)]);
        store.add(5, 14, &[(0, 5)], &[data(5, 10, 0)]);
        let throttle = Throttle::new(None);
        let history = store.history();
        let source = store.source(&history, &throttle);
        let mut reader = PartitionReader::new(&source);
        let scan = Scan::run(&mut reader, i64::MAX).await.unwrap();
        assert_eq!((scan.records, scan.resume_after(0)), (15, None));
        let (start, before) = scan.resume_after(12).unwrap();
        assert_eq!(before, 10);
        let taken = PartitionReader::resume(&source, start)
            .next()
            .await
            .unwrap();
        let records = scan.restored(&taken.unwrap()).unwrap();
        let offsets = records.iter().map(|record| record.offset.0);
        assert_eq!(offsets.collect::<Vec<_>>(), (10..15).collect::<Vec<_>>());
    }

    #[test]
    fn a_throttle_limits_the_rate() {
        let throttle = Throttle::new(Some(1000));
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(throttle.reserve(500, 1000, now), Duration::ZERO);
        assert_eq!(
            throttle.reserve(2000, 1000, now),
            Duration::from_millis(500)
        );
        assert_eq!(throttle.reserve(1, 1000, now), Duration::from_millis(2500));
    }
}
