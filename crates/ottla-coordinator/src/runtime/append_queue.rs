//! The queue of writes to the log: waiting writes, the batch that is being appended, and batches
//! that are appended and not committed.
//!
//! Writes are appended in the order of the decisions, one batch at a time. The next batch is handed
//! out when the append of the previous one has completed, so a write that the log refuses never has
//! a successor in the log that was decided on top of it. Writes decided during an append share the
//! next batch, as with Kafka's adaptive `group.coordinator.append.linger.ms`, except for
//! transactional ones, whose batches belong to one producer. No append waits for the commit of a
//! batch; only replies do.
//!
//! Invariants: at most one batch is being appended; `uncommitted` is ordered by write and by
//! offset, and each of its batches has one deadline in `delays`, as does the batch that is being
//! appended.

use std::collections::VecDeque;

use bytes::Bytes;
use ottla_types::{ErrorCode, Offset};

use super::outcome::{EncodeRecord, TimerChange, Write, WriteId, WriteKind};
use super::timer_queue::TimerQueue;

/// The maximum overhead of a record in a batch besides key and value: seven variable-length
/// numbers.
const RECORD_OVERHEAD_BYTES: usize = 35;
/// The size of a batch without records. The shell, which builds batches, checks this value.
pub const BATCH_HEADER_BYTES: usize = 61;
/// The maximum size of a batch that several decisions share: Kafka's default for its largest
/// buffer.
const SHARED_BATCH_BYTES: usize = 1024 * 1024;

/// A write in its encoded form.
#[derive(Debug)]
pub struct PendingWrite {
    pub id: WriteId,
    pub kind: WriteKind,
    /// The key and value of each record.
    pub records: Vec<(Bytes, Option<Bytes>)>,
    /// An upper bound of the records' size in a batch before compression.
    size: usize,
}

impl PendingWrite {
    /// # Errors
    /// `UnknownServerError` for a string that is too long for its field, which no request can
    /// contain.
    pub(super) fn encode<R: EncodeRecord>(write: &Write<R>) -> Result<Self, ErrorCode> {
        let mut records = Vec::with_capacity(write.records.len());
        let mut size = 0;
        for record in &write.records {
            let (key, value) = record.encode().map_err(|_| ErrorCode::UnknownServerError)?;
            size += RECORD_OVERHEAD_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len);
            records.push((key, value));
        }
        Ok(PendingWrite {
            id: write.id,
            kind: write.kind,
            records,
            size,
        })
    }

    /// The maximum size of a batch with this write alone, before compression.
    pub(super) fn batch_bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.size
    }
}

/// The writes of one batch: a single transactional one, or plain ones.
#[derive(Debug)]
pub struct OutboundBatch {
    /// Never empty.
    writes: Vec<PendingWrite>,
}

impl OutboundBatch {
    pub fn writes(&self) -> &[PendingWrite] {
        &self.writes
    }

    /// Identifies the batch in `on_written`.
    pub fn first(&self) -> WriteId {
        self.writes[0].id
    }

    pub fn kind(&self) -> WriteKind {
        self.writes[0].kind
    }

    fn span(&self) -> BatchSpan {
        let of_write = |write: &PendingWrite| match write.kind {
            // The marker.
            WriteKind::EndTransaction { .. } => 1,
            WriteKind::Plain | WriteKind::Transactional { .. } => write.records.len(),
        };
        BatchSpan {
            first: self.first(),
            last: self.writes[self.writes.len() - 1].id,
            records: self.writes.iter().map(of_write).sum::<usize>() as i64,
        }
    }
}

/// The extent of a batch that is being appended or is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BatchSpan {
    pub(super) first: WriteId,
    /// Inclusive.
    pub(super) last: WriteId,
    pub(super) records: i64,
}

#[derive(Debug, Default)]
pub(super) struct AppendQueue {
    waiting: VecDeque<PendingWrite>,
    appending: Option<BatchSpan>,
    /// Batches in the log of the leader, each with its exclusive end offset.
    uncommitted: VecDeque<(BatchSpan, Offset)>,
    /// When the waiting requests of a batch time out, by the first write of the batch.
    delays: TimerQueue<WriteId>,
}

impl AppendQueue {
    pub(super) fn push(&mut self, write: PendingWrite) {
        self.waiting.push_back(write);
    }

    /// Drops the writes that were decided on top of a refused one.
    pub(super) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Whether writes wait and none is being appended.
    pub(super) fn has_next_batch(&self) -> bool {
        self.appending.is_none() && !self.waiting.is_empty()
    }

    /// The next batch, if none is being appended. It counts as being appended from here on.
    pub(super) fn next_batch(
        &mut self,
        max_message_bytes: usize,
        (now_ms, commit_timeout_ms): (u64, u64),
    ) -> Option<OutboundBatch> {
        if !self.has_next_batch() {
            return None;
        }
        let limit = max_message_bytes.min(SHARED_BATCH_BYTES);
        let mut size = BATCH_HEADER_BYTES;
        let shared = self.waiting.iter().take_while(|write| {
            size += write.size;
            write.kind == WriteKind::Plain && size <= limit
        });
        let count = shared.count().max(1);
        let batch = OutboundBatch {
            writes: self.waiting.drain(..count).collect(),
        };
        let span = batch.span();
        self.appending = Some(span);
        self.await_settlement(span.first, now_ms, commit_timeout_ms);
        Some(batch)
    }

    /// The append of the batch that starts with `first` has completed or failed.
    pub(super) fn end_append(&mut self, first: WriteId) -> BatchSpan {
        let batch = self.appending.take().expect("the log answers once");
        assert_eq!(
            batch.first, first,
            "the result is for the batch in progress"
        );
        self.delays.apply(TimerChange::Cancel { key: first }, 0);
        batch
    }

    /// The batch was appended up to `end`.
    pub(super) fn await_commit(
        &mut self,
        batch: BatchSpan,
        end: Offset,
        (now_ms, commit_timeout_ms): (u64, u64),
    ) {
        self.uncommitted.push_back((batch, end));
        self.await_settlement(batch.first, now_ms, commit_timeout_ms);
    }

    /// The newest write that has become committed.
    pub(super) fn on_high_watermark(&mut self, high_watermark: Offset) -> Option<WriteId> {
        let mut newest = None;
        while let Some((batch, _)) = self
            .uncommitted
            .pop_front_if(|(_, end)| *end <= high_watermark)
        {
            let key = batch.first;
            self.delays.apply(TimerChange::Cancel { key }, 0);
            newest = Some(batch.last);
        }
        newest
    }

    /// The high watermark that the next commit needs.
    pub(super) fn awaited_end(&self) -> Option<Offset> {
        self.uncommitted.front().map(|(_, end)| *end)
    }

    /// The first and last write of a batch that takes too long. Requests that arrive later time out
    /// when the same time has passed again.
    pub(super) fn take_delayed(
        &mut self,
        now_ms: u64,
        commit_timeout_ms: u64,
    ) -> Option<(WriteId, WriteId)> {
        let first = self.delays.pop_due(now_ms)?;
        self.await_settlement(first, now_ms, commit_timeout_ms);
        let found = self
            .uncommitted
            .binary_search_by_key(&first, |(batch, _)| batch.first);
        let batch = match found {
            Ok(index) => self.uncommitted[index].0,
            Err(_) => self.appending.expect("it is appended or being appended"),
        };
        Some((batch.first, batch.last))
    }

    pub(super) fn next_delay_ms(&self) -> Option<u64> {
        self.delays.next_deadline_ms()
    }

    fn await_settlement(&mut self, first: WriteId, now_ms: u64, after_ms: u64) {
        let key = first;
        self.delays
            .apply(TimerChange::Set { key, after_ms }, now_ms);
    }
}
