//! The record batches in the log of a segment, and whether they fit its description.

use bytes::{Bytes, BytesMut};
use ottla_records::{BatchPrefix, RecordBatch};
use ottla_tiered::RemoteSegment;
use ottla_types::LeaderEpoch;

/// The maximum number of problems of one segment that are listed. Others are counted.
const MAX_PROBLEMS: usize = 5;

/// Splits the log of a segment, read piece by piece, into its batches. Holds at most one batch and
/// one piece.
pub struct BatchSplitter {
    segment_size: u64,
    rest: BytesMut,
    /// Of the first byte of `rest` in the log.
    position: u64,
}

impl BatchSplitter {
    pub fn new(segment: &RemoteSegment) -> BatchSplitter {
        BatchSplitter {
            segment_size: u64::try_from(segment.segment_size_bytes).unwrap_or(0),
            rest: BytesMut::new(),
            position: 0,
        }
    }

    /// The next bytes of the log.
    pub fn push(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
    }

    /// Where the next batch begins in the log.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The number of bytes after the last batch that was taken.
    pub fn rest(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next batch, if all of it was pushed. After an error, the end of the batch cannot be
    /// found, and so no later batch either.
    pub fn take_batch(&mut self) -> Result<Option<(BatchPrefix, Bytes)>, String> {
        if self.rest.len() < BatchPrefix::SIZE {
            return Ok(None);
        }
        let prefix = BatchPrefix::parse(&self.rest).map_err(|error| error.to_string())?;
        let size = prefix.size_in_bytes();
        if self.position + size as u64 > self.segment_size {
            return Err(format!(
                "a batch of {size} bytes goes beyond the segment's end"
            ));
        }
        if self.rest.len() < size {
            return Ok(None);
        }
        self.position += size as u64;
        Ok(Some((prefix, self.rest.split_to(size).freeze())))
    }
}

/// Compares the batches of a log, read piece by piece, with the description of the segment.
pub struct BatchCheck<'a> {
    segment: &'a RemoteSegment,
    batches: BatchSplitter,
    /// The bytes that were pushed.
    bytes: u64,
    /// The positions at which batches begin.
    starts: Vec<u64>,
    /// The position of the current batch in the log.
    position: u64,
    last_offset: Option<i64>,
    last_epoch: LeaderEpoch,
    max_timestamp: i64,
    legacy: usize,
    problems: Vec<String>,
    problem_count: usize,
    /// After a batch whose end cannot be found, nothing more is.
    is_lost: bool,
}

/// The findings about the log of a segment.
pub struct BatchFindings {
    pub bytes: u64,
    /// The positions at which batches begin, in order.
    pub starts: Vec<u64>,
    pub problems: Vec<String>,
    /// Unusual facts that are no damage.
    pub notes: Vec<String>,
}

impl<'a> BatchCheck<'a> {
    pub fn new(segment: &'a RemoteSegment) -> BatchCheck<'a> {
        BatchCheck {
            segment,
            batches: BatchSplitter::new(segment),
            bytes: 0,
            starts: Vec::new(),
            position: 0,
            last_offset: None,
            last_epoch: LeaderEpoch::UNKNOWN,
            max_timestamp: -1,
            legacy: 0,
            problems: Vec::new(),
            problem_count: 0,
            is_lost: false,
        }
    }

    /// The next bytes of the log.
    pub fn push(&mut self, piece: &Bytes) {
        self.bytes += piece.len() as u64;
        if self.is_lost {
            return;
        }
        self.batches.push(piece);
        loop {
            self.position = self.batches.position();
            match self.batches.take_batch() {
                Ok(Some((prefix, bytes))) => self.take(prefix, bytes),
                Ok(None) => return,
                Err(error) => {
                    self.problem(error);
                    self.is_lost = true;
                    return;
                }
            }
        }
    }

    fn take(&mut self, prefix: BatchPrefix, mut bytes: Bytes) {
        self.starts.push(self.position);
        if prefix.magic < 2 {
            self.legacy += 1;
            self.last_offset = Some(prefix.base_offset.0);
        } else {
            match RecordBatch::read(&mut bytes) {
                Ok(batch) => self.check(&batch),
                Err(error) => self.problem(error.to_string()),
            }
        }
    }

    /// The findings, after all bytes were pushed.
    pub fn finish(mut self) -> BatchFindings {
        let rest = self.batches.rest();
        if rest > 0 && !self.is_lost {
            self.problem(format!("{rest} bytes at the end are no whole batch"));
        }
        let segment = self.segment;
        let mut notes = Vec::new();
        match self.last_offset {
            None if !self.is_lost => self.problem("it has no batch".to_owned()),
            Some(last) if last < segment.end_offset.0 && !self.is_lost => notes.push(format!(
                "the records end at offset {last}, and the segment at {}",
                segment.end_offset
            )),
            _ => {}
        }
        if self.max_timestamp > segment.max_timestamp.0 {
            self.problem(format!(
                "the largest timestamp is {}, and the description says {}",
                self.max_timestamp, segment.max_timestamp
            ));
        }
        if self.legacy > 0 {
            let count = self.legacy;
            notes.push(format!(
                "{count} messages of a format before 2 have no checksum that is looked at"
            ));
        }
        let untold = self.problem_count - self.problems.len();
        if untold > 0 {
            self.problems.push(format!("and {untold} more"));
        }
        BatchFindings {
            bytes: self.bytes,
            starts: self.starts,
            problems: self.problems,
            notes,
        }
    }

    fn check(&mut self, batch: &RecordBatch) {
        let header = &batch.header;
        let (base, last) = (header.base_offset, header.last_offset());
        if let Err(error) = batch.verify_crc() {
            self.problem(format!("the batch of offsets {base} to {last}: {error}"));
            return;
        }
        if base < self.segment.start_offset || last > self.segment.end_offset {
            self.problem(format!(
                "the batch of offsets {base} to {last} is outside the segment's {} to {}",
                self.segment.start_offset, self.segment.end_offset
            ));
        }
        if self.last_offset.is_some_and(|before| base.0 <= before) {
            self.problem(format!(
                "the batch of offsets {base} to {last} comes after a later one"
            ));
        }
        let epoch = header.partition_leader_epoch;
        let epochs = &self.segment.segment_leader_epochs;
        let is_known = epochs.get(epoch).is_some_and(|it| it.start_offset <= base);
        if !is_known || epoch < self.last_epoch {
            self.problem(format!(
                "the batch of offsets {base} to {last} has leader epoch {epoch}, which the \
                 description does not have there"
            ));
        }
        self.last_offset = Some(last.0);
        self.last_epoch = epoch;
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp.0);
    }

    fn problem(&mut self, problem: String) {
        self.problem_count += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems
                .push(format!("at byte {}: {problem}", self.position));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::remote_log::tests::segment;
    use super::*;
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_tiered::{LeaderEpochs, RemoteLogSegmentState};
    use ottla_types::{Offset, Timestamp};

    pub fn batch(base: i64, count: i32, epoch: i32) -> Vec<u8> {
        let mut builder = RecordBatchBuilder::new(Compression::None)
            .base_offset(Offset(base))
            .partition_leader_epoch(LeaderEpoch(epoch));
        for _ in 0..count {
            builder.append(Timestamp(1005), None, Some(b"value"), &[]);
        }
        builder.build().to_bytes().to_vec()
    }

    fn checked(log: &[u8], change: impl Fn(&mut RemoteSegment)) -> BatchFindings {
        let mut described = segment(1, 10, 19, RemoteLogSegmentState::CopySegmentFinished);
        described.segment_leader_epochs = LeaderEpochs::from([(2, 10), (4, 15)]);
        described.segment_size_bytes = log.len() as i32;
        change(&mut described);
        let mut check = BatchCheck::new(&described);
        for piece in log.chunks(50) {
            check.push(&Bytes::copy_from_slice(piece));
        }
        check.finish()
    }

    #[test]
    fn valid_batches_are_found_with_their_positions() {
        let log = [batch(10, 5, 2), batch(15, 5, 4)].concat();
        let found = checked(&log, |_| {});
        assert_eq!(found.problems, Vec::<String>::new());
        assert!(found.notes.is_empty());
        assert_eq!(found.bytes, log.len() as u64);
        assert_eq!(found.starts, [0, log.len() as u64 / 2]);
    }

    #[test]
    fn problems_are_reported_with_their_position() {
        let log = [batch(10, 5, 2), batch(15, 5, 4)].concat();
        let half = log.len() / 2;
        let problem = |log: &[u8], change: &dyn Fn(&mut RemoteSegment)| {
            checked(log, change).problems.join("; ")
        };
        let mut damaged = log.clone();
        damaged[half + 70] ^= 1;
        let text = problem(&damaged, &|_| {});
        assert!(
            text.starts_with(&format!("at byte {half}: the batch of offsets 15 to 19: ")),
            "{text}"
        );
        let text = problem(&log, &|it| it.end_offset = Offset(18));
        assert!(text.contains("is outside the segment's 10 to 18"), "{text}");
        let text = problem(&log, &|it| {
            it.segment_leader_epochs = LeaderEpochs::from([(2, 10)])
        });
        assert!(text.contains("has leader epoch 4"), "{text}");
        let text = problem(&log, &|it| it.max_timestamp = Timestamp(3));
        assert!(text.contains("the largest timestamp is 1005"), "{text}");
        let text = problem(&log[..log.len() - 3], &|it| it.segment_size_bytes += 3);
        assert!(text.contains("are no whole batch"), "{text}");
        let text = problem(&[7; 100], &|_| {});
        assert!(text.starts_with("at byte 0: "), "{text}");
        let found = checked(&log[..half], |_| {});
        assert_eq!(
            found.notes,
            ["the records end at offset 14, and the segment at 19"]
        );
    }
}
