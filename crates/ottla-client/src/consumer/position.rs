//! The position of a consumer in a partition, and its buffered records.
//!
//! Pure. If a partition is known to have more records, the next piece is fetched while the previous
//! one is being returned, so that a consumer that lags does not wait for each. Up to twice
//! `max.partition.fetch.bytes` of a partition can therefore be buffered. Errors are reported in
//! order: an error of the later piece is dropped, and met again when the first piece has been
//! returned.

use std::ops::Range;
use std::time::Instant;

use ottla_records::BatchError;

use super::fetched::HeldFetch;
use super::records::{CompletedFetch, ConsumerRecord, FetchedBatch};

#[derive(Default)]
pub(super) struct Position {
    /// The offset of the next record to return; `None` until it is determined.
    pub(super) next: Option<i64>,
    /// The leader epoch of the last returned record; -1 if unknown.
    pub(super) leader_epoch: i32,
    /// The data that was fetched from `next` on.
    fetched: Option<HeldFetch>,
    /// The data that was fetched from the end of `fetched` on.
    ahead: Option<HeldFetch>,
    /// The last offset of the batch that could not be read last, if it is known.
    unreadable: Option<i64>,
    pub(super) is_fetching: bool,
    pub(super) is_paused: bool,
    /// Changes when the position is set other than by returning records, so that responses to older
    /// requests are recognized.
    pub(super) generation: u64,
    /// From the last response; `None` before it.
    pub(super) high_watermark: Option<i64>,
    pub(super) last_stable_offset: Option<i64>,
    pub(super) log_start_offset: Option<i64>,
    /// The preferred read replica of the leader's response, and when that expires.
    pub(super) read_replica: Option<(i32, Instant)>,
}

impl Position {
    pub(super) fn new(generation: u64) -> Position {
        Position {
            leader_epoch: -1,
            generation,
            ..Position::default()
        }
    }

    /// The number of records after the position, as of the leader's last response.
    pub(super) fn lag(&self, read_committed: bool) -> Option<i64> {
        Some((self.end(read_committed)? - self.next?).max(0))
    }

    /// The number of records in the log before the position, as of the last response.
    pub(super) fn lead(&self) -> Option<i64> {
        Some((self.next? - self.log_start_offset?).max(0))
    }

    fn end(&self, read_committed: bool) -> Option<i64> {
        match read_committed {
            true => self.last_stable_offset,
            false => self.high_watermark,
        }
    }

    /// Whether there are buffered records.
    pub(super) fn holds_some(&self) -> bool {
        self.fetched.is_some()
    }

    /// The offset of the next fetch, after all buffered records.
    pub(super) fn fetch_offset(&self) -> Option<i64> {
        let last = self.ahead.as_ref().or(self.fetched.as_ref());
        last.map(|held| held.fetch.end_offset()).or(self.next)
    }

    /// Whether there are records at `fetch_offset`, as of the leader's last response.
    pub(super) fn goes_on(&self, read_committed: bool) -> Option<bool> {
        Some(self.end(read_committed)? > self.fetch_offset()?)
    }

    /// The offset to fetch now, if any. Buffered records prevent a fetch, unless there is space for
    /// one more piece and the leader has enough records after them to answer at once, judged by the
    /// size of the last piece.
    pub(super) fn wanted(&self, read_committed: bool, fetch_min_bytes: i32) -> Option<i64> {
        let is_wanted = match (&self.fetched, &self.ahead) {
            (None, _) => true,
            (Some(held), None) => self.end(read_committed).is_some_and(|end| {
                held.fetch.expected_bytes_behind(end) >= f64::from(fetch_min_bytes.max(1))
            }),
            (Some(_), Some(_)) => false,
        };
        self.fetch_offset().filter(|_| is_wanted)
    }

    /// Whether a response to a fetch of this offset still applies to this position.
    pub(super) fn is_asked_by(&self, generation: u64, offset: i64) -> bool {
        self.generation == generation && self.fetch_offset() == Some(offset)
    }

    /// Buffers data that was fetched from `fetch_offset` on.
    pub(super) fn hold(&mut self, held: HeldFetch) {
        match self.fetched {
            None => self.fetched = Some(held),
            Some(_) => self.ahead = Some(held),
        }
    }

    /// The preferred read replica could not be reached: fetches go to the leader again. Returns
    /// whether `node` was that replica.
    pub(super) fn forget_replica(&mut self, node: i32) -> bool {
        self.read_replica
            .take_if(|(replica, _)| *replica == node)
            .is_some()
    }

    /// A prefetch failed. It is repeated when the buffered records have been returned.
    pub(super) fn on_ahead_refused(&mut self) {
        self.high_watermark = None;
        self.last_stable_offset = None;
    }

    /// The next record of the current piece; `None` at its end.
    pub(super) fn next_record(&mut self) -> Result<Option<ConsumerRecord>, BatchError> {
        let record = self.hand_out(CompletedFetch::next_record)?;
        if let Some(record) = &record {
            self.leader_epoch = record.leader_epoch;
        }
        Ok(record)
    }

    /// As [`Position::next_record`] for a batch.
    pub(super) fn next_batch(&mut self) -> Result<Option<FetchedBatch>, BatchError> {
        let mut unreadable = None;
        let batch = self.hand_out(|fetch| {
            let batch = fetch.next_batch();
            if batch.is_err() {
                unreadable = fetch.skip_unreadable();
            }
            batch
        });
        self.unreadable = unreadable;
        let batch = batch?;
        if let Some(batch) = &batch {
            self.leader_epoch = batch.leader_epoch;
        }
        Ok(batch)
    }

    /// The offsets from the position to the end of the batch that [`Position::next_batch`] could not
    /// read last.
    pub(super) fn unreadable(&self) -> Option<Range<i64>> {
        let offsets = self.next?..self.unreadable?.checked_add(1)?;
        (!offsets.is_empty()).then_some(offsets)
    }

    /// At the end of a piece the next one follows. A piece that cannot be read is fetched again,
    /// together with the one after it.
    fn hand_out<T>(
        &mut self,
        read: impl FnOnce(&mut CompletedFetch) -> Result<Option<T>, BatchError>,
    ) -> Result<Option<T>, BatchError> {
        let Some(held) = &mut self.fetched else {
            return Ok(None);
        };
        let taken = read(&mut held.fetch);
        match &taken {
            Ok(Some(_)) => self.next = Some(held.fetch.next_offset()),
            Ok(None) => {
                self.next = Some(held.fetch.next_offset().max(held.fetch.end_offset()));
                self.fetched = self.ahead.take();
            }
            Err(_) => {
                self.fetched = None;
                self.ahead = None;
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests;
