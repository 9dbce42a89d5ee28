//! Where a consumer stands in a partition, and what it holds of it.
//!
//! Pure. Of a partition that is known to go on, the next piece is fetched while the last is handed out, so that a consumer
//! that is behind does not wait for each; so twice `max.partition.fetch.bytes` of a partition may be held. What is behind
//! is never ahead of what is told of it: an error of the later piece is left to be met again once the first is handed out.

use std::time::Instant;

use ottla_records::BatchError;

use super::fetched::HeldFetch;
use super::records::{CompletedFetch, ConsumerRecord, FetchedBatch};

#[derive(Default)]
pub(super) struct Position {
    /// The offset of the next record to hand out; nothing until it has been found out.
    pub(super) next: Option<i64>,
    /// Of the last record handed out, -1 where it is not known.
    pub(super) leader_epoch: i32,
    /// What has been fetched from `next` on.
    fetched: Option<HeldFetch>,
    /// What has been fetched from the end of `fetched` on.
    ahead: Option<HeldFetch>,
    pub(super) is_fetching: bool,
    pub(super) is_paused: bool,
    /// Changes when the position does otherwise than by handing out records, so that answers to older
    /// questions are told.
    pub(super) generation: u64,
    /// As the last answer said; nothing before it.
    pub(super) high_watermark: Option<i64>,
    pub(super) last_stable_offset: Option<i64>,
    pub(super) log_start_offset: Option<i64>,
    /// The replica that the leader said is nearer, and until when that is believed.
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

    /// How many records are ahead, as of the last answer of the leader.
    pub(super) fn lag(&self, read_committed: bool) -> Option<i64> {
        Some((self.end(read_committed)? - self.next?).max(0))
    }

    /// How many records the log had before this place, as of the last answer.
    pub(super) fn lead(&self) -> Option<i64> {
        Some((self.next? - self.log_start_offset?).max(0))
    }

    fn end(&self, read_committed: bool) -> Option<i64> {
        match read_committed {
            true => self.last_stable_offset,
            false => self.high_watermark,
        }
    }

    /// Something of it is waiting to be handed out.
    pub(super) fn holds_some(&self) -> bool {
        self.fetched.is_some()
    }

    /// Where a fetch goes on: behind all that is held.
    pub(super) fn fetch_offset(&self) -> Option<i64> {
        let last = self.ahead.as_ref().or(self.fetched.as_ref());
        last.map(|held| held.fetch.end_offset()).or(self.next)
    }

    /// Whether there is something at `fetch_offset`, as of the last answer of the leader.
    pub(super) fn goes_on(&self, read_committed: bool) -> Option<bool> {
        Some(self.end(read_committed)? > self.fetch_offset()?)
    }

    /// The offset to ask for now, if any: what is held keeps it from being asked for, unless there is room for one more
    /// piece and the leader has, by the size of the last one, enough behind it to answer at once.
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

    /// Whether an answer to a question about this offset says something of this position still.
    pub(super) fn is_asked_by(&self, generation: u64, offset: i64) -> bool {
        self.generation == generation && self.fetch_offset() == Some(offset)
    }

    /// Takes in what was fetched from `fetch_offset` on.
    pub(super) fn hold(&mut self, held: HeldFetch) {
        match self.fetched {
            None => self.fetched = Some(held),
            Some(_) => self.ahead = Some(held),
        }
    }

    /// That replica, if it is the one that was said to be nearer, could not be asked: the leader is asked again.
    pub(super) fn forget_replica(&mut self, node: i32) -> bool {
        self.read_replica
            .take_if(|(replica, _)| *replica == node)
            .is_some()
    }

    /// What is behind all that is held could not be had: it is asked for again once that is handed out.
    pub(super) fn on_ahead_refused(&mut self) {
        self.high_watermark = None;
        self.last_stable_offset = None;
    }

    /// The next record of the piece that is being handed out; nothing at its end.
    pub(super) fn next_record(&mut self) -> Result<Option<ConsumerRecord>, BatchError> {
        let record = self.hand_out(CompletedFetch::next_record)?;
        if let Some(record) = &record {
            self.leader_epoch = record.leader_epoch;
        }
        Ok(record)
    }

    /// As [`Position::next_record`], a batch.
    pub(super) fn next_batch(&mut self) -> Result<Option<FetchedBatch>, BatchError> {
        let batch = self.hand_out(CompletedFetch::next_batch)?;
        if let Some(batch) = &batch {
            self.leader_epoch = batch.leader_epoch;
        }
        Ok(batch)
    }

    /// At the end of a piece the next one takes its place. One that cannot be read is fetched again, with what is
    /// behind it.
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
