//! The acquired records of one partition in one response, read batch by batch as they are returned.
//! Pure.
//!
//! A response contains the acquired offsets as ranges and, separately, the records in whole
//! batches. Acquired offsets without a record, as left by compaction and transactions, are
//! acknowledged as gaps. Those in a batch that cannot be read are rejected, because no other member
//! can read it either. Ranges are never expanded to single offsets, because their length is
//! determined by the sender.
//!
//! In Kafka: `org.apache.kafka.clients.consumer.internals.ShareCompletedFetch`.

use std::collections::VecDeque;

use ottla_protocol::messages::share_fetch_response::AcquiredRecords;
use ottla_records::BatchError;

use super::acknowledgements::{AcknowledgeType, Batch, GAP};
use crate::consumer::{CompletedFetch, ConsumerRecord};

pub(super) struct Acquired {
    fetch: CompletedFetch,
    ranges: Ranges,
}

/// The content of one batch.
#[derive(Default, Debug)]
pub(super) struct Piece {
    /// Each with its delivery count, including this delivery.
    pub(super) records: Vec<(ConsumerRecord, i16)>,
    /// The acknowledgements of acquired offsets without a record here.
    pub(super) said: Vec<Batch>,
    /// The batch could not be read, and its offsets are rejected.
    pub(super) error: Option<BatchError>,
}

impl Acquired {
    pub(super) fn new(fetch: CompletedFetch, ranges: Ranges) -> Acquired {
        Acquired { fetch, ranges }
    }

    /// Whether all acquired offsets have been handled.
    pub(super) fn is_done(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn next_piece(&mut self) -> Piece {
        let mut piece = Piece::default();
        match self.fetch.next_batch() {
            Ok(None) => self.ranges.say_up_to(i64::MAX, GAP, &mut piece.said),
            Ok(Some(mut batch)) => {
                while let Some(read) = batch.next_record() {
                    let record = match read {
                        Ok((record, _)) => record,
                        Err(error) => {
                            self.reject(batch.last_offset(), error, &mut piece);
                            break;
                        }
                    };
                    let before = record.offset.saturating_sub(1);
                    self.ranges.say_up_to(before, GAP, &mut piece.said);
                    if let Some(delivery_count) = self.ranges.take(record.offset) {
                        piece.records.push((record, delivery_count));
                    }
                }
            }
            Err(error) => {
                let last_offset = self.fetch.skip_unreadable().unwrap_or(i64::MAX);
                self.reject(last_offset, error, &mut piece);
            }
        }
        piece
    }

    fn reject(&mut self, last_offset: i64, error: BatchError, piece: &mut Piece) {
        let kind = AcknowledgeType::Reject as i8;
        self.ranges.say_up_to(last_offset, kind, &mut piece.said);
        piece.error = Some(error);
    }
}

/// Acquired offsets that have not been handled, in order.
#[derive(Debug)]
pub(super) struct Ranges(VecDeque<Range>);

/// Both ends are inclusive.
#[derive(Clone, Copy, Debug)]
struct Range {
    first_offset: i64,
    last_offset: i64,
    delivery_count: i16,
}

impl Ranges {
    /// Validates the ranges. The error is a message.
    pub(super) fn read(acquired: &[AcquiredRecords]) -> Result<Ranges, String> {
        let mut from = 0;
        let mut ranges = VecDeque::with_capacity(acquired.len());
        for it in acquired {
            let (first_offset, last_offset) = (it.first_offset, it.last_offset);
            if first_offset < from || last_offset < first_offset || last_offset == i64::MAX {
                return Err(format!(
                    "offsets {first_offset} to {last_offset} are not a range that begins at {from} or later"
                ));
            }
            from = last_offset + 1;
            ranges.push_back(Range {
                first_offset,
                last_offset,
                delivery_count: it.delivery_count,
            });
        }
        Ok(Ranges(ranges))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Acknowledges all offsets up to this one, inclusive, with the same type.
    fn say_up_to(&mut self, offset: i64, kind: i8, said: &mut Vec<Batch>) {
        while let Some(range) = self.0.front_mut() {
            if range.first_offset > offset {
                return;
            }
            let last_offset = range.last_offset.min(offset);
            said.push(Batch {
                first_offset: range.first_offset,
                last_offset,
                kind,
            });
            self.drop_up_to(last_offset);
        }
    }

    /// Takes the offset and returns its delivery count, if it is the next one.
    fn take(&mut self, offset: i64) -> Option<i16> {
        let range = *self.0.front()?;
        if range.first_offset != offset {
            return None;
        }
        self.drop_up_to(offset);
        Some(range.delivery_count)
    }

    /// Removes the offsets up to this one from the first range.
    fn drop_up_to(&mut self, offset: i64) {
        if let Some(range) = self.0.front_mut() {
            range.first_offset = offset + 1;
        }
        self.0
            .pop_front_if(|range| range.first_offset > range.last_offset);
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::{Offset, Timestamp};

    use super::*;

    const REJECT: i8 = AcknowledgeType::Reject as i8;

    fn batch(base_offset: i64, count: i64) -> Bytes {
        let mut builder =
            RecordBatchBuilder::new(Compression::None).base_offset(Offset(base_offset));
        for _ in 0..count {
            builder.append(Timestamp(1), None, Some(b"value"), &[]);
        }
        builder.build_in_place()
    }

    /// The batch with one byte of its last value changed.
    fn damaged(batch: &Bytes) -> Bytes {
        let mut bytes = BytesMut::from(&batch[..]);
        let place = bytes.len() - 2;
        bytes[place] ^= 1;
        bytes.freeze()
    }

    fn ranges(ranges: &[(i64, i64, i16)]) -> Result<Ranges, String> {
        let ranges: Vec<AcquiredRecords> = ranges
            .iter()
            .map(
                |&(first_offset, last_offset, delivery_count)| AcquiredRecords {
                    first_offset,
                    last_offset,
                    delivery_count,
                    ..Default::default()
                },
            )
            .collect();
        Ranges::read(&ranges)
    }

    fn acquired(parts: &[Bytes], of: &[(i64, i64, i16)]) -> Acquired {
        let bytes = Bytes::from(parts.concat());
        let fetch = CompletedFetch::new("t".into(), 0, bytes, of[0].0, Vec::new(), true);
        Acquired::new(fetch, ranges(of).expect("ranges"))
    }

    fn offsets(piece: &Piece) -> Vec<(i64, i16)> {
        let records = piece.records.iter();
        records.map(|(it, count)| (it.offset, *count)).collect()
    }

    fn said(piece: &Piece) -> Vec<(i64, i64, i8)> {
        let said = piece.said.iter();
        said.map(|it| (it.first_offset, it.last_offset, it.kind))
            .collect()
    }

    #[test]
    fn only_acquired_records_of_a_batch_are_returned() {
        let mut acquired = acquired(&[batch(0, 4), batch(6, 2)], &[(1, 2, 1), (3, 7, 2)]);
        let first = acquired.next_piece();
        assert_eq!(offsets(&first), [(1, 1), (2, 1), (3, 2)]);
        assert_eq!(said(&first), []);
        let second = acquired.next_piece();
        assert_eq!(offsets(&second), [(6, 2), (7, 2)]);
        assert_eq!(said(&second), [(4, 5, GAP)]);
        assert!(acquired.is_done());
    }

    #[test]
    fn offsets_without_records_are_a_gap_of_any_length() {
        let mut acquired = acquired(&[batch(5, 1)], &[(5, 1 << 60, 1)]);
        assert_eq!(offsets(&acquired.next_piece()), [(5, 1)]);
        let rest = acquired.next_piece();
        assert_eq!(said(&rest), [(6, 1 << 60, GAP)]);
        assert!(acquired.is_done());
    }

    #[test]
    fn an_unreadable_batch_is_rejected_alone() {
        let mut acquired = acquired(
            &[batch(0, 2), damaged(&batch(2, 2)), batch(4, 1)],
            &[(0, 4, 1)],
        );
        assert_eq!(acquired.next_piece().records.len(), 2);
        let unreadable = acquired.next_piece();
        assert!(unreadable.records.is_empty() && unreadable.error.is_some());
        assert_eq!(said(&unreadable), [(2, 3, REJECT)]);
        assert_eq!(offsets(&acquired.next_piece()), [(4, 1)]);
        assert!(acquired.is_done());
    }

    #[test]
    fn an_unknown_codec_is_rejected() {
        let mut bytes = BytesMut::from(&batch(0, 2)[..]);
        // The low bits of the attributes, in the byte before the last offset delta.
        bytes[22] |= 7;
        let unknown = bytes.freeze();
        let fetch = CompletedFetch::new("t".into(), 0, unknown, 0, Vec::new(), false);
        let mut acquired = Acquired::new(fetch, ranges(&[(0, 1, 1)]).expect("ranges"));
        let unreadable = acquired.next_piece();
        assert!(unreadable.error.is_some(), "{unreadable:?}");
        assert_eq!(said(&unreadable), [(0, 1, REJECT)]);
        assert!(acquired.is_done());
    }

    #[test]
    fn a_batch_cannot_claim_offsets_of_the_next_batch() {
        let mut bytes = BytesMut::from(&batch(0, 2)[..]);
        // The last offset delta, which the checksum covers.
        bytes[23..27].copy_from_slice(&1_000_i32.to_be_bytes());
        let mut acquired = acquired(&[bytes.freeze(), batch(2, 1)], &[(0, 2, 1)]);
        let unreadable = acquired.next_piece();
        assert_eq!(said(&unreadable), [(0, 1, REJECT)]);
        assert_eq!(offsets(&acquired.next_piece()), [(2, 1)]);
    }

    #[test]
    fn all_offsets_after_invalid_bytes_are_rejected() {
        let garbage = Bytes::from_static(&[0xff; 80]);
        let mut acquired = acquired(&[batch(0, 1), garbage], &[(0, 9, 1)]);
        assert_eq!(offsets(&acquired.next_piece()), [(0, 1)]);
        let unreadable = acquired.next_piece();
        assert!(unreadable.error.is_some());
        assert_eq!(said(&unreadable), [(1, 9, REJECT)]);
        assert!(acquired.is_done());
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for wrong in [
            [(0, 4, 1), (4, 5, 1)],
            [(3, 2, 1), (4, 5, 1)],
            [(-1, 2, 1), (4, 5, 1)],
            [(4, 5, 1), (0, 1, 1)],
            [(0, 1, 1), (2, i64::MAX, 1)],
        ] {
            ranges(&wrong).expect_err("no ranges");
        }
        let error = ranges(&[(0, 4, 1), (4, 5, 1)]).expect_err("an overlap");
        assert_eq!(
            error,
            "offsets 4 to 5 are not a range that begins at 5 or later"
        );
    }
}
