//! A member acquires records that were read from the log.
//!
//! Whole batches of the log are acquired, so that the member can acknowledge them as such. The
//! limit on the number of records is therefore a soft one; batches are split only if the member
//! asks for a strict limit. Records that are in flight and available are acquired again. Records
//! with many deliveries are delivered in ever smaller parts, and one by one at their last delivery,
//! so that one bad record does not use up the deliveries of its neighbours. Source:
//! `SharePartition.acquire`.

use ottla_types::Offset;

use super::aborted::{AbortedTransaction, FetchedBatch, aborted_batches};
use super::in_flight::{InFlightBatch, InFlightState, MemberId, RecordState};
use super::partition::SharePartition;
use super::settings::SharePartitionSettings;

/// The meaning of the limit on the number of records (KIP-1206).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AcquireMode {
    /// Whole batches, until there are at least that many records.
    #[default]
    BatchOptimized,
    /// Never more records than requested.
    RecordLimit,
}

impl AcquireMode {
    pub const fn from_id(id: i8) -> Option<AcquireMode> {
        match id {
            0 => Some(AcquireMode::BatchOptimized),
            1 => Some(AcquireMode::RecordLimit),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct AcquireRequest<'a> {
    pub member: &'a MemberId,
    pub mode: AcquireMode,
    /// The minimum number of records in each acquired batch of the response.
    pub batch_size: i32,
    pub max_records: i32,
    /// The offset at which the log was read. The log may have no record there any more.
    pub fetch_offset: Offset,
    /// The batches that were read, in order.
    pub batches: &'a [FetchedBatch],
    /// With the isolation level read_committed: the aborted transactions in the range. Otherwise
    /// empty.
    pub aborted_transactions: &'a [AbortedTransaction],
    pub now_ms: u64,
}

/// Records that a member has acquired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcquiredBatch {
    pub first_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    pub delivery_count: i16,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AcquiredRecords {
    /// In the order of their offsets.
    pub batches: Vec<AcquiredBatch>,
    pub records: i64,
}

impl AcquiredRecords {
    fn add(&mut self, first_offset: i64, last_offset: i64, delivery_count: i32) {
        self.records += last_offset - first_offset + 1;
        self.batches.push(AcquiredBatch {
            first_offset: Offset(first_offset),
            last_offset: Offset(last_offset),
            delivery_count: i16::try_from(delivery_count).unwrap_or(i16::MAX),
        });
    }
}

/// The remaining part of a request.
struct Acquiring<'a> {
    request: AcquireRequest<'a>,
    /// The first offset of the batches that were read.
    base_offset: i64,
    /// The last offset that can be acquired, inclusive.
    last_offset: i64,
    max_records: i64,
    deadline_ms: u64,
    acquired: AcquiredRecords,
}

impl Acquiring<'_> {
    fn remaining(&self) -> i64 {
        self.max_records - self.acquired.records
    }

    fn has_strict_limit(&self) -> bool {
        self.request.mode == AcquireMode::RecordLimit
    }
}

impl SharePartition {
    /// Acquires records for the member, from the records that were read.
    pub fn acquire(&mut self, request: AcquireRequest<'_>) -> AcquiredRecords {
        let (Some(first), Some(last)) = (request.batches.first(), request.batches.last()) else {
            return AcquiredRecords::default();
        };
        if request.max_records <= 0 || last.last_offset.0 < self.start_offset {
            return AcquiredRecords::default();
        }
        let (last_offset, max_records) = self.limits(&request, last.last_offset.0);
        if max_records <= 0 {
            return AcquiredRecords::default();
        }
        let base_offset = first.base_offset.0;
        self.archive_compacted(request.fetch_offset.0, base_offset);
        let mut acquiring = Acquiring {
            request,
            base_offset,
            last_offset,
            max_records,
            deadline_ms: self.lock_deadline_ms(request.now_ms),
            acquired: AcquiredRecords::default(),
        };
        self.acquire_range(&mut acquiring);
        let acquired = self.without_aborted(acquiring.acquired, &request);
        // Records that are missing or aborted are settled. No member will acknowledge them, and if
        // they occupied all locks, nothing could be acquired any more.
        self.advance_start_offset();
        acquired
    }

    /// The last offset and the number of records that can be acquired, given the number of locked
    /// ones.
    fn limits(&self, request: &AcquireRequest<'_>, last_offset: i64) -> (i64, i64) {
        let wanted = i64::from(request.max_records);
        let fetch_offset = request.fetch_offset.0;
        let room = i64::from(self.settings.partition_max_record_locks) - self.in_flight_records();
        if wanted.min(room) > 0 || fetch_offset > self.end_offset {
            return (last_offset, wanted.min(room));
        }
        // There is no space for new records, but some records in between are available again.
        let in_between = self.end_offset - fetch_offset + 1;
        (last_offset.min(self.end_offset), wanted.min(in_between))
    }

    fn acquire_range(&mut self, acquiring: &mut Acquiring<'_>) {
        let read_from = acquiring.base_offset;
        let from = match self.floor(read_from) {
            Some(batch) if batch.last_offset >= read_from => batch.first_offset,
            // The first batch of the log may start before the start offset.
            _ => read_from.max(self.start_offset),
        };
        let keys = self.keys(read_from.min(from), acquiring.last_offset);
        let Some(last_key) = keys.last().copied() else {
            self.acquire_new(acquiring, from, acquiring.last_offset);
            return;
        };
        let last_in_flight = self.in_flight[&last_key].last_offset;
        let mut is_throttled = false;
        let mut gap_start = from;
        for key in keys {
            if acquiring.remaining() <= 0 {
                break;
            }
            if self.active_gap().is_some() {
                if gap_start < key {
                    self.acquire_new(acquiring, gap_start, key - 1);
                }
                gap_start = self.in_flight[&key].last_offset + 1;
                if acquiring.remaining() <= 0 {
                    break;
                }
            }
            is_throttled = self.acquire_again(acquiring, key);
            if is_throttled {
                break;
            }
        }
        if !is_throttled && acquiring.remaining() > 0 && last_in_flight < acquiring.last_offset {
            self.acquire_new(acquiring, last_in_flight + 1, acquiring.last_offset);
        }
        match acquiring.acquired.batches.last() {
            Some(last) => self.close_gap_before(last.last_offset.0 + 1),
            // All records are known, and the log has none that the read did not return.
            None => self.close_gap_before(acquiring.last_offset + 1),
        }
    }

    // Records already in flight

    /// Returns whether nothing more can be acquired.
    fn acquire_again(&mut self, acquiring: &mut Acquiring<'_>, key: i64) -> bool {
        let settings = self.settings;
        let (first, last) = (acquiring.base_offset, acquiring.last_offset);
        let batch = self.batch_mut(key);
        let is_cut = !batch.is_within(first, last)
            || (acquiring.has_strict_limit() && batch.len() > acquiring.remaining());
        let is_throttled =
            deliveries(batch, first, last) >= Some(settings.throttle_delivery_count());
        if is_throttled && acquiring.acquired.records > 0 {
            return true;
        }
        if let Some(state) = batch.whole() {
            if !state.is_acquirable() {
                return false;
            }
            if !is_cut && !is_throttled {
                let member = MemberId::clone(acquiring.request.member);
                for (first, last, state) in batch.runs_mut() {
                    state.acquire(MemberId::clone(&member), acquiring.deadline_ms);
                    acquiring.acquired.add(first, last, state.delivery_count());
                }
                return false;
            }
        }
        let given = acquire_some(batch, acquiring, &settings);
        is_throttled && given > 0
    }

    // Records not yet in flight

    fn acquire_new(&mut self, acquiring: &mut Acquiring<'_>, first: i64, last: i64) {
        let first_offset = if self.in_flight.is_empty() {
            // The batch of the log may start before records that are settled and forgotten.
            first.max(self.end_offset)
        } else {
            first
        };
        let limit = acquiring.remaining();
        let mut last_offset = last;
        if first_offset > last_offset || limit <= 0 {
            return;
        }
        if limit < last_offset - first_offset + 1 {
            let wanted = first_offset + limit - 1;
            last_offset = end_of_batch_with(acquiring.request.batches, wanted);
            if self.active_gap().is_some() {
                // Records after the gap have a known state.
                last_offset = last_offset.min(last);
            }
        }
        let acquired_up_to = if acquiring.has_strict_limit() {
            last_offset.min(first_offset + limit - 1)
        } else {
            last_offset
        };
        if acquired_up_to < last_offset {
            self.insert_cut(acquiring, first_offset, acquired_up_to, last_offset);
        } else {
            self.insert_whole(acquiring, first_offset, last_offset);
        }
        if self.in_flight.keys().next() == Some(&first_offset) {
            self.start_offset = self.start_offset.max(first_offset);
        }
        self.end_offset = self.end_offset.max(last_offset);
        self.close_gap_before(acquired_up_to + 1);
    }

    /// Acquires the first part of a batch. The rest stays available.
    fn insert_cut(&mut self, acquiring: &mut Acquiring<'_>, first: i64, given: i64, last: i64) {
        let waiting = InFlightState::persisted(RecordState::Available, 0);
        let mut batch = InFlightBatch::new(first, last, waiting);
        let member = acquiring.request.member;
        for state in &mut batch.split()[..=(given - first) as usize] {
            state.acquire(MemberId::clone(member), acquiring.deadline_ms);
        }
        self.in_flight.insert(first, batch);
        self.looks_for_available = true;
        acquiring.acquired.add(first, given, 1);
    }

    /// Acquires batches of about the requested size that start where batches of the log start.
    fn insert_whole(&mut self, acquiring: &mut Acquiring<'_>, first: i64, last: i64) {
        let batch_size = i64::from(acquiring.request.batch_size.max(1));
        let mut batch_first = first;
        if !acquiring.has_strict_limit() && last - first + 1 > batch_size {
            for batch in acquiring.request.batches {
                let base_offset = batch.base_offset.0;
                if base_offset > last {
                    break;
                }
                if base_offset - batch_first >= batch_size {
                    self.insert_acquired(acquiring, batch_first, base_offset - 1);
                    batch_first = base_offset;
                }
            }
        }
        self.insert_acquired(acquiring, batch_first, last);
    }

    fn insert_acquired(&mut self, acquiring: &mut Acquiring<'_>, first: i64, last: i64) {
        let member = MemberId::clone(acquiring.request.member);
        let state = InFlightState::acquired(member, acquiring.deadline_ms);
        self.in_flight
            .insert(first, InFlightBatch::new(first, last, state));
        acquiring.acquired.add(first, last, 1);
    }

    // What must not be seen

    fn without_aborted(
        &mut self,
        acquired: AcquiredRecords,
        request: &AcquireRequest<'_>,
    ) -> AcquiredRecords {
        if request.aborted_transactions.is_empty() || acquired.batches.is_empty() {
            return acquired;
        }
        let aborted = aborted_batches(request.batches, request.aborted_transactions);
        for batch in &aborted {
            self.archive_aborted(batch.base_offset.0, batch.last_offset.0);
        }
        let mut visible = AcquiredRecords::default();
        for batch in &acquired.batches {
            let delivery_count = i32::from(batch.delivery_count);
            let mut first = batch.first_offset.0;
            let last = batch.last_offset.0;
            for hidden in &aborted {
                let (hidden_first, hidden_last) = (hidden.base_offset.0, hidden.last_offset.0);
                if hidden_last < first || hidden_first > last {
                    continue;
                }
                if hidden_first > first {
                    visible.add(first, hidden_first - 1, delivery_count);
                }
                first = hidden_last + 1;
            }
            if first <= last {
                visible.add(first, last, delivery_count);
            }
        }
        visible
    }
}

/// The highest delivery count of the available records in the range; `None` if none is available.
fn deliveries(batch: &InFlightBatch, first_offset: i64, last_offset: i64) -> Option<i32> {
    let is_whole = batch.whole().is_some();
    let in_range = batch.runs().filter(|(first, last, state)| {
        state.is_acquirable() && (is_whole || (*first >= first_offset && *last <= last_offset))
    });
    in_range.map(|(_, _, state)| state.delivery_count()).max()
}

/// Acquires single records of a batch. Returns their number.
fn acquire_some(
    batch: &mut InFlightBatch,
    acquiring: &mut Acquiring<'_>,
    settings: &SharePartitionSettings,
) -> i64 {
    let (first_offset, last_offset) = (acquiring.base_offset, acquiring.last_offset);
    let batch_len = batch.len();
    let delivery_count_limit = settings.delivery_count_limit;
    let isolates_last_delivery = delivery_count_limit > 2;
    let limit = acquiring.has_strict_limit().then(|| acquiring.remaining());
    let mut throttled_limit = None;
    // First and last offset of consecutive records with the same delivery count.
    let mut run: Option<(i64, i64, i32)> = None;
    let mut given = 0;
    batch.split();
    for (offset, _, state) in batch.runs_mut() {
        if offset < first_offset || !state.is_acquirable() {
            continue;
        }
        if offset > last_offset {
            break;
        }
        let is_last_delivery =
            isolates_last_delivery && state.delivery_count() == delivery_count_limit - 1;
        if is_last_delivery && given > 0 {
            break;
        }
        let excess = state.delivery_count() - settings.throttle_delivery_count();
        if excess >= 0 && throttled_limit.is_none() {
            // Halved with each delivery.
            let shift = u32::try_from(excess + 1).unwrap_or(u32::MAX);
            throttled_limit = Some(batch_len.checked_shr(shift).unwrap_or(0).max(1));
        }
        state.acquire(
            MemberId::clone(acquiring.request.member),
            acquiring.deadline_ms,
        );
        given += 1;
        let delivery_count = state.delivery_count();
        run = match run {
            Some((first, last, count)) if last + 1 == offset && count == delivery_count => {
                Some((first, offset, count))
            }
            Some((first, last, count)) => {
                acquiring.acquired.add(first, last, count);
                Some((offset, offset, delivery_count))
            }
            None => Some((offset, offset, delivery_count)),
        };
        if is_last_delivery || limit == Some(given) || throttled_limit == Some(given) {
            break;
        }
    }
    if let Some((first, last, count)) = run {
        acquiring.acquired.add(first, last, count);
    }
    given
}

/// The last offset of the batch that contains `offset`; `offset` itself if none does.
fn end_of_batch_with(batches: &[FetchedBatch], offset: i64) -> i64 {
    let after = batches.partition_point(|batch| batch.base_offset.0 <= offset);
    let batch = after.checked_sub(1).and_then(|index| batches.get(index));
    batch.map_or(offset, |batch| batch.last_offset.0.max(offset))
}
