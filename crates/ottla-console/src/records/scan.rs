//! Reads the records of a topic that a filter finds.
//!
//! A scan has its own consumer, which fetches ahead while records are judged. Batches whose bytes
//! cannot match are skipped as a whole. The records of other batches are decoded, if there is a
//! schema registry, and judged while they are borrowed from the fetched batches; only matching
//! records are copied. The memory for fetched batches is reserved from the console's budget.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::{ClientError, Consumer, ConsumerConfig, FetchedBatch, OffsetReset};
use ottla_records::{BatchError, RecordView};
use ottla_types::ErrorCode;
use serde::Serialize;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::events::WAITING_BYTES;
use super::filter::{Filter, Verdict};
use super::selection::Range;
use crate::budget::{Budget, Reservation};
use crate::problem::Problem;
use crate::registry::{DECODING_BYTES, DecodedRecord, Registry};
use crate::view::Partition;
use crate::visit::Visit;

/// The memory for fetched data: of a response, and of the partitions together.
const FETCH_BYTES: i32 = 8 << 20;
const BUFFERED_BYTES: usize = 32 << 20;
/// The bytes taken from it at once, decompressed: as many as in a response.
const POLLED_BYTES: usize = FETCH_BYTES as usize;
/// The least of a partition in a response, and the most for a live tail and for a search. A larger batch is returned
/// nevertheless.
const LEAST_BYTES: usize = 16 << 10;
const FOLLOWED_BYTES: usize = 1 << 20;
const SEARCHED_BYTES: usize = 4 << 20;
/// The size of a batch that is read, decompressed, and of one for which more memory is reserved.
const BATCH_BYTES: usize = 4 << 20;
const LARGE_BATCH_BYTES: usize = 64 << 20;
/// Records that are taken from it at once, at least one batch.
const RECORDS_PER_STEP: usize = 50_000;
/// The time for which records are judged in one step. Then other tasks have a turn, and a stopped
/// search ends.
const TURN: Duration = Duration::from_millis(10);
/// The clock is read after this many records, unless a single one can take long.
const RECORDS_PER_LOOK: u64 = 128;
/// How long a step waits for records.
const WAIT: Duration = Duration::from_millis(250);
/// Partitions that are named in an error.
const MOST_NAMED: usize = 20;
/// A scan fails if it gets no record for this time although there are some.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Scan {
    consumer: Consumer,
    topic: String,
    filter: Filter,
    registry: Option<Arc<Registry>>,
    ranges: BTreeMap<i32, Range>,
    /// The next offset of each partition, after all judged records.
    positions: BTreeMap<i32, i64>,
    is_following: bool,
    /// Fetched, and not judged to their ends.
    pending: VecDeque<FetchedBatch>,
    /// Whether the first of them is judged in part.
    is_first_begun: bool,
    began: Instant,
    /// How long the scan has waited for records since it got the last ones.
    silence: Duration,
    scanned: u64,
    scanned_bytes: u64,
    matched: u64,
    unjudged: u64,
    budget: Budget,
    /// For batches above [`BATCH_BYTES`], once there was one.
    large_batches: Option<Reservation>,
    /// Whether batches are left out that are larger, or for which there is no memory.
    leaves_out_large: bool,
    _reservation: Reservation,
}

/// How far a scan is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Progress {
    pub(crate) scanned: u64,
    scanned_bytes: u64,
    pub(crate) matched: u64,
    /// Records of which it takes too long, or too much memory, to find out whether they match; also
    /// those of batches that are too large.
    unjudged: u64,
    /// Matches of a live tail that were not sent.
    pub(crate) skipped: u64,
    /// Records that a redrive has sent.
    pub(crate) sent: Option<u64>,
    /// 0 to 1, of the offsets.
    fraction: Option<f64>,
    records_per_second: f64,
    bytes_per_second: f64,
    elapsed_ms: u64,
    /// The `from` of the next page.
    pub(crate) next: Option<String>,
}

/// The decision of the receiver of a match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    More,
    /// This record was the last one of this step; the next step continues after it. Not for a live
    /// tail.
    Pause,
    /// This record was the last one.
    Stop,
}

/// Receives a match. No type parameter, because each caller would get its own copy of the scan.
pub(crate) type Take<'a> =
    dyn FnMut(&FetchedBatch, &RecordView<'_>, &DecodedRecord) -> Next + Send + 'a;

/// The time of a step. It begins with the first record that is judged: a step judges at least one.
#[derive(Default)]
struct Turn {
    began: Option<Instant>,
}

impl Turn {
    fn is_over(&mut self) -> bool {
        self.began.get_or_insert_with(Instant::now).elapsed() >= TURN
    }
}

/// How far the judging of a batch has come.
struct Judged {
    is_finished: bool,
    next: Next,
}

impl Judged {
    const ALL: Judged = Judged {
        is_finished: true,
        next: Next::More,
    };

    /// Some records of the batch may be left.
    fn part(next: Next) -> Judged {
        Judged {
            is_finished: false,
            next,
        }
    }
}

impl Scan {
    pub(crate) fn new(
        visit: &Visit,
        topic: &str,
        ranges: BTreeMap<i32, Range>,
        filter: Filter,
        read_committed: bool,
        is_following: bool,
    ) -> Result<Scan, Problem> {
        let per_partition = BUFFERED_BYTES / 2 / ranges.len().max(1);
        let most = match is_following {
            true => FOLLOWED_BYTES,
            false => SEARCHED_BYTES,
        };
        let per_partition = per_partition.clamp(LEAST_BYTES, most);
        let registry = visit.registry.clone();
        let decoding = registry.as_ref().map_or(0, |_| DECODING_BYTES);
        let fetched = per_partition * ranges.len() + POLLED_BYTES + BATCH_BYTES;
        let reservation = visit.budget.reserve(fetched + WAITING_BYTES + decoding)?;
        let config = ConsumerConfig {
            auto_commit: false,
            // The log was truncated: the remaining records are read.
            offset_reset: OffsetReset::Earliest,
            read_committed,
            fetch_max_bytes: FETCH_BYTES,
            max_partition_fetch_bytes: per_partition as i32,
            max_batch_bytes: BATCH_BYTES,
            max_poll_records: RECORDS_PER_STEP,
            allow_auto_create_topics: false,
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(visit.client().clone(), config);
        let is_wanted = |range: &Range| is_following || range.start < range.end;
        let wanted = ranges.iter().filter(|(_, range)| is_wanted(range));
        let wanted: Vec<(Partition, i64)> = wanted
            .map(|(partition, range)| ((topic.to_owned(), *partition), range.start))
            .collect();
        let assigned: Vec<Partition> = wanted.iter().map(|(it, _)| it.clone()).collect();
        consumer.assign(&assigned);
        for (partition, start) in &wanted {
            consumer.seek(partition, *start);
        }
        Ok(Scan {
            consumer,
            topic: topic.to_owned(),
            filter,
            registry,
            positions: ranges
                .iter()
                .map(|(it, range)| (*it, range.start))
                .collect(),
            ranges,
            is_following,
            pending: VecDeque::new(),
            is_first_begun: false,
            began: Instant::now(),
            silence: Duration::ZERO,
            scanned: 0,
            scanned_bytes: 0,
            matched: 0,
            unjudged: 0,
            budget: visit.budget.clone(),
            large_batches: None,
            leaves_out_large: false,
            _reservation: reservation,
        })
    }

    /// Leaves out batches that are too large, and counts their records as not judged. Without it, they are
    /// an error.
    pub(crate) fn leaving_out_large_batches(mut self) -> Scan {
        self.leaves_out_large = true;
        self
    }

    /// As [`Scan::new`], of these ranges and nothing else: a log that was cut meanwhile is an error.
    pub(crate) fn of_exactly(
        visit: &Visit,
        topic: &str,
        ranges: BTreeMap<i32, Range>,
        filter: Filter,
        read_committed: bool,
    ) -> Result<Scan, Problem> {
        let mut scan = Scan::new(visit, topic, ranges, filter, read_committed, false)?;
        scan.consumer.set_offset_reset(OffsetReset::None);
        Ok(scan)
    }

    /// Whether everything was read.
    pub(crate) fn is_done(&self) -> bool {
        !self.is_following && self.unfinished().next().is_none()
    }

    /// Partitions that are not at the end of their range.
    fn unfinished(&self) -> impl Iterator<Item = i32> {
        let ranges = self.ranges.iter();
        ranges
            .filter(|(partition, range)| self.positions[*partition] < range.end)
            .map(|(partition, _)| *partition)
    }

    /// The next offset of each partition, after all judged records.
    pub(crate) fn positions(&self) -> &BTreeMap<i32, i64> {
        &self.positions
    }

    /// Judges the next records, and calls `take` for each match, with its decoded values. Returns
    /// the last decision of `take`. Waits a short time if there are no records.
    ///
    /// Reading and judging can use a whole processor. So in a runtime with several threads, they
    /// run without blocking the tasks of their thread. In a broker's process, the console has one
    /// thread.
    pub(crate) async fn step(&mut self, take: &mut Take<'_>) -> Result<Next, Problem> {
        // A search that was stopped ends here.
        tokio::task::yield_now().await;
        let runtime = Handle::current();
        let is_alone = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        match is_alone || self.is_following {
            true => self.step_here(take).await,
            false => tokio::task::block_in_place(|| runtime.block_on(self.step_here(take))),
        }
    }

    async fn step_here(&mut self, take: &mut Take<'_>) -> Result<Next, Problem> {
        if self.pending.is_empty() {
            let began = Instant::now();
            let batches = self.poll().await?;
            match batches.is_empty() {
                true => self.silence += began.elapsed(),
                false => self.silence = Duration::ZERO,
            }
            self.pending.extend(batches);
        }
        let mut turn = Turn::default();
        while let Some(batch) = self.pending.pop_front() {
            let judged = self.judge(&batch, &mut turn, take).await?;
            self.is_first_begun = !judged.is_finished && judged.next != Next::Stop;
            if self.is_first_begun {
                self.pending.push_front(batch);
            }
            if !judged.is_finished || !self.pending.is_empty() && turn.is_over() {
                return Ok(judged.next);
            }
        }
        if !self.is_following {
            self.finish_partitions();
            if !self.is_done() && self.silence > PATIENCE {
                return Err(self.stuck());
            }
        }
        Ok(Next::More)
    }

    async fn poll(&mut self) -> Result<Vec<FetchedBatch>, Problem> {
        match self.consumer.poll_batches(WAIT).await {
            Err(ClientError::Records { partition, error }) => {
                self.on_unreadable(partition, error)?;
                Ok(Vec::new())
            }
            polled => self.within_memory(polled?),
        }
    }

    /// Batches that are not compressed can be large as well. They are in memory already, so those for which none
    /// can be reserved are dropped.
    fn within_memory(
        &mut self,
        mut batches: Vec<FetchedBatch>,
    ) -> Result<Vec<FetchedBatch>, Problem> {
        let is_large = |it: &FetchedBatch| it.bytes().len() > BATCH_BYTES;
        if self.large_batches.is_some() || !batches.iter().any(is_large) {
            return Ok(batches);
        }
        match self.reserve_large_batches() {
            Ok(()) => return Ok(batches),
            Err(refused) if !self.leaves_out_large => return Err(refused),
            Err(_) => {}
        }
        let left_out = batches.iter().filter(|it| is_large(it));
        let left_out = left_out.filter(|it| it.base_offset() < self.end_of(it.partition));
        let records: usize = left_out.map(FetchedBatch::record_count).sum();
        self.unjudged += records as u64;
        batches.retain(|it| !is_large(it));
        Ok(batches)
    }

    fn reserve_large_batches(&mut self) -> Result<(), Problem> {
        let reservation = self.budget.reserve(LARGE_BATCH_BYTES)?;
        self.consumer.set_max_batch_bytes(LARGE_BATCH_BYTES);
        self.large_batches = Some(reservation);
        Ok(())
    }

    /// The end of a partition's range, exclusive.
    fn end_of(&self, partition: i32) -> i64 {
        match self.is_following {
            true => i64::MAX,
            false => self.ranges.get(&partition).map_or(0, |it| it.end),
        }
    }

    /// A few bytes can decompress to very many. A batch that is larger than what is reserved is read if
    /// that much can be reserved, and otherwise left out.
    fn on_unreadable(&mut self, name: String, error: BatchError) -> Result<(), Problem> {
        let limit = match &error {
            BatchError::DecompressedTooLarge { limit, .. } => Some(*limit),
            _ => None,
        };
        let refused = match (limit, self.large_batches.is_some()) {
            // It was fetched before the limit was raised, and is fetched again.
            (Some(BATCH_BYTES), true) => return Ok(()),
            (Some(BATCH_BYTES), false) => match self.reserve_large_batches() {
                Ok(()) => return Ok(()),
                Err(problem) => problem,
            },
            _ => Problem::from(ClientError::Records {
                partition: name.clone(),
                error,
            }),
        };
        if limit.is_none() || !self.leaves_out_large {
            return Err(refused);
        }
        let mut ranges = self.ranges.iter();
        let range = ranges.find(|(it, _)| format!("{}-{it}", self.topic) == name);
        let skipped = range.and_then(|(it, range)| {
            let partition = (self.topic.clone(), *it);
            let offsets = self.consumer.skip_unreadable_batch(&partition)?;
            // The batch can end after the range.
            let end = match self.is_following {
                true => offsets.end,
                false => offsets.end.min(range.end),
            };
            Some((end - offsets.start).max(0) as u64)
        });
        let Some(skipped) = skipped else {
            return Err(refused);
        };
        self.unjudged += skipped;
        // The partition answers, although it has given no records.
        self.silence = Duration::ZERO;
        Ok(())
    }

    /// Judges the records of a batch from the position on.
    async fn judge(
        &mut self,
        batch: &FetchedBatch,
        turn: &mut Turn,
        take: &mut Take<'_>,
    ) -> Result<Judged, Problem> {
        let partition = batch.partition;
        // Before the position are records that were judged before a pause; or the log was cut or
        // replaced, and what remains is read again from its start.
        let position = self.positions.get(&partition).copied();
        let start = match self.is_following && !self.is_first_begun {
            true => i64::MIN,
            false => position.unwrap_or(i64::MIN),
        };
        let range = start..self.end_of(partition);
        let is_within = batch.is_whole()
            && range.contains(&batch.base_offset())
            && range.contains(&batch.last_offset());
        if is_within && self.registry.is_none() && !self.filter.may_be_in(batch.bytes()) {
            self.scanned += batch.record_count() as u64;
            self.scanned_bytes += batch.bytes().len() as u64;
        } else {
            let mut position = position;
            let judged = self
                .judge_records(batch, &range, turn, &mut position, take)
                .await;
            if let Some(position) = position {
                self.positions.insert(partition, position);
            }
            let judged = judged?;
            if !judged.is_finished {
                return Ok(judged);
            }
        }
        let next = (batch.last_offset() + 1).min(range.end);
        let position = self.positions.entry(partition).or_insert(next);
        *position = next.max(*position);
        Ok(Judged::ALL)
    }

    /// `position` becomes the offset after the last judged record.
    async fn judge_records(
        &mut self,
        batch: &FetchedBatch,
        range: &std::ops::Range<i64>,
        turn: &mut Turn,
        position: &mut Option<i64>,
        take: &mut Take<'_>,
    ) -> Result<Judged, Problem> {
        let is_slow = self.filter.has_expressions() || self.registry.is_some();
        let mut judged = 0_u64;
        for record in batch.iter() {
            let record = record.map_err(|error| {
                let partition = format!("{}-{}", self.topic, batch.partition);
                Problem::from(ClientError::Records { partition, error })
            })?;
            if record.offset.0 >= range.end {
                break;
            }
            if record.offset.0 < range.start {
                continue;
            }
            if (is_slow || judged.is_multiple_of(RECORDS_PER_LOOK)) && turn.is_over() {
                return Ok(Judged::part(Next::More));
            }
            judged += 1;
            self.scanned += 1;
            self.scanned_bytes += record.size_in_bytes as u64;
            *position = Some(record.offset.0 + 1);
            let decoded = match &self.registry {
                Some(registry) => registry.decode(&self.topic, &record).await,
                None => DecodedRecord::default(),
            };
            let verdict = self
                .filter
                .judge(&self.topic, batch.partition, &record, &decoded);
            match verdict {
                Verdict::Matches => {
                    self.matched += 1;
                    let next = take(batch, &record, &decoded);
                    if next != Next::More {
                        return Ok(Judged::part(next));
                    }
                }
                Verdict::Differs => {}
                Verdict::GivenUp => self.unjudged += 1,
            }
        }
        Ok(Judged::ALL)
    }

    /// Advances positions over offsets without records, and stops fetching partitions that are read
    /// to their end. All that was fetched must be judged before.
    fn finish_partitions(&mut self) {
        let mut finished = Vec::new();
        for (partition, range) in &self.ranges {
            let key = (self.topic.clone(), *partition);
            if let Some(next) = self.consumer.position(&key) {
                let position = self.positions.entry(*partition).or_insert(next);
                *position = next.min(range.end).max(*position);
            }
            if self.positions[partition] >= range.end {
                finished.push(key);
            }
        }
        self.consumer.pause(&finished);
    }

    fn stuck(&self) -> Problem {
        let stuck = self.unfinished().take(MOST_NAMED).map(|it| it.to_string());
        let mut stuck: Vec<String> = stuck.collect();
        let more = self.unfinished().skip(MOST_NAMED).count();
        if more > 0 {
            stuck.push(format!("{more} more"));
        }
        Problem::from(ClientError::broker(
            format!("topic {}, partitions {}", self.topic, stuck.join(", ")),
            ErrorCode::RequestTimedOut.code(),
            Some(format!(
                "no records came for {} s; their leaders may be away",
                PATIENCE.as_secs()
            )),
        ))
    }

    pub(crate) fn progress(&self) -> Progress {
        let elapsed = self.began.elapsed();
        let seconds = elapsed.as_secs_f64().max(0.001);
        let ranges = self.ranges.iter();
        let (read, all) = ranges.fold((0, 0), |(read, all), (partition, range)| {
            let position = self.positions[partition];
            (read + position - range.start, all + range.end - range.start)
        });
        let fraction = match all {
            0 => 1.0,
            all => (read as f64 / all as f64).min(1.0),
        };
        Progress {
            scanned: self.scanned,
            scanned_bytes: self.scanned_bytes,
            matched: self.matched,
            unjudged: self.unjudged,
            skipped: 0,
            sent: None,
            fraction: (!self.is_following).then_some(fraction),
            records_per_second: self.scanned as f64 / seconds,
            bytes_per_second: self.scanned_bytes as f64 / seconds,
            elapsed_ms: elapsed.as_millis() as u64,
            next: None,
        }
    }

    /// The next offset of each partition that is not read to its end.
    pub(crate) fn left(&self) -> BTreeMap<i32, i64> {
        let left = self.unfinished();
        left.map(|it| (it, self.positions[&it])).collect()
    }
}
