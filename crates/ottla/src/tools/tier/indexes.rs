//! Whether a segment's indexes fit its log.
//!
//! Kafka: `OffsetIndex`, `TimeIndex`, `TransactionIndex`, `ProducerStateManager`.

use bytes::{Buf, Bytes};
use ottla_tiered::{LeaderEpochs, RemoteSegment};
use ottla_tiered_storage::IndexType;

/// Relative offset (i32), position (i32).
const OFFSET_ENTRY: usize = 8;
/// Timestamp (i64), relative offset (i32).
const TIME_ENTRY: usize = 12;
/// Version (i16), producer ID, first offset, last offset, last stable offset (i64 each).
const TRANSACTION_ENTRY: usize = 34;
/// Version (i16), CRC-32C (u32) of the following bytes.
const SNAPSHOT_HEADER: usize = 6;

/// The first thing that is wrong with an index. `starts` are the positions at which the batches of
/// the log begin, if it was read.
pub fn problem(
    index: IndexType,
    bytes: &Bytes,
    segment: &RemoteSegment,
    starts: Option<&[u64]>,
) -> Option<String> {
    let found = match index {
        IndexType::Offset => offset_index(bytes, segment, starts),
        IndexType::Timestamp => time_index(bytes, segment),
        IndexType::Transaction => transaction_index(bytes, segment),
        IndexType::ProducerSnapshot => producer_snapshot(bytes),
        IndexType::LeaderEpoch => leader_epochs(bytes, segment),
    };
    found.map(|problem| format!("{}: {problem}", index.name()))
}

fn offset_index(bytes: &Bytes, segment: &RemoteSegment, starts: Option<&[u64]>) -> Option<String> {
    if !bytes.len().is_multiple_of(OFFSET_ENTRY) {
        return Some(format!("{} bytes are no whole entries", bytes.len()));
    }
    let mut before = (-1, -1);
    for mut entry in bytes.chunks(OFFSET_ENTRY) {
        let (offset, position) = (entry.get_i32(), entry.get_i32());
        let place = format!("the entry of relative offset {offset} and position {position}");
        if offset <= before.0 || position <= before.1 {
            return Some(format!("{place} is not after the one before it"));
        }
        if segment.start_offset.0 + i64::from(offset) > segment.end_offset.0 {
            return Some(format!("{place} is beyond the end of the segment"));
        }
        let begins = |starts: &[u64]| starts.binary_search(&(position as u64)).is_ok();
        if starts.is_some_and(|starts| !begins(starts)) {
            return Some(format!("{place} is not where a batch begins"));
        }
        before = (offset, position);
    }
    None
}

fn time_index(bytes: &Bytes, segment: &RemoteSegment) -> Option<String> {
    if !bytes.len().is_multiple_of(TIME_ENTRY) {
        return Some(format!("{} bytes are no whole entries", bytes.len()));
    }
    let mut before = (i64::MIN, -1);
    for mut entry in bytes.chunks(TIME_ENTRY) {
        let (timestamp, offset) = (entry.get_i64(), entry.get_i32());
        let place = format!("the entry of timestamp {timestamp} and relative offset {offset}");
        if timestamp <= before.0 || offset < before.1 {
            return Some(format!("{place} is not after the one before it"));
        }
        if segment.start_offset.0 + i64::from(offset) > segment.end_offset.0 {
            return Some(format!("{place} is beyond the end of the segment"));
        }
        before = (timestamp, offset);
    }
    None
}

fn transaction_index(bytes: &Bytes, segment: &RemoteSegment) -> Option<String> {
    if !bytes.len().is_multiple_of(TRANSACTION_ENTRY) {
        return Some(format!("{} bytes are no whole entries", bytes.len()));
    }
    for mut entry in bytes.chunks(TRANSACTION_ENTRY) {
        let version = entry.get_i16();
        if version != 0 {
            return Some(format!(
                "an entry has version {version}; version 0 is known"
            ));
        }
        let (_producer, first, last) = (entry.get_i64(), entry.get_i64(), entry.get_i64());
        if first > last || last > segment.end_offset.0 {
            return Some(format!(
                "a transaction of offsets {first} to {last} does not fit"
            ));
        }
    }
    None
}

fn producer_snapshot(bytes: &Bytes) -> Option<String> {
    if bytes.is_empty() {
        return None;
    }
    if bytes.len() < SNAPSHOT_HEADER {
        return Some(format!("{} bytes are no snapshot", bytes.len()));
    }
    let mut header = bytes.slice(..SNAPSHOT_HEADER);
    let (version, crc) = (header.get_i16(), header.get_u32());
    if version != 1 {
        return Some(format!("it has version {version}; version 1 is known"));
    }
    let computed = crc_fast::checksum(
        crc_fast::CrcAlgorithm::Crc32Iscsi,
        &bytes[SNAPSHOT_HEADER..],
    );
    (computed != u64::from(crc)).then(|| "its checksum does not match its bytes".to_owned())
}

/// The leader epochs of the log up to the end of the segment must include the epochs of the
/// segment.
fn leader_epochs(bytes: &Bytes, segment: &RemoteSegment) -> Option<String> {
    let of_log = match LeaderEpochs::from_checkpoint(bytes) {
        Ok(epochs) => epochs,
        Err(error) => return Some(error.to_string()),
    };
    if let Some(latest) = of_log.latest()
        && latest.start_offset > segment.end_offset
    {
        return Some(format!("epoch {} begins after the segment", latest.epoch));
    }
    let first = segment.segment_leader_epochs.earliest()?.epoch;
    for entry in segment.segment_leader_epochs.entries() {
        let fits = of_log.get(entry.epoch).is_some_and(|it| {
            // The segment's first epoch may have begun before it.
            it.start_offset == entry.start_offset
                || (entry.epoch == first && it.start_offset < entry.start_offset)
        });
        if !fits {
            return Some(format!(
                "it does not have epoch {} at offset {} of the description",
                entry.epoch, entry.start_offset
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::remote_log::tests::segment;
    use super::*;
    use ottla_tiered::RemoteLogSegmentState;

    fn found(index: IndexType, bytes: &[u8], starts: Option<&[u64]>) -> String {
        let segment = segment(1, 100, 199, RemoteLogSegmentState::CopySegmentFinished);
        let bytes = Bytes::copy_from_slice(bytes);
        problem(index, &bytes, &segment, starts).unwrap_or_default()
    }

    fn entries(entries: &[(i32, i32)]) -> Vec<u8> {
        let bytes = entries
            .iter()
            .map(|(offset, position)| [offset.to_be_bytes(), position.to_be_bytes()].concat());
        bytes.collect::<Vec<_>>().concat()
    }

    #[test]
    fn an_offset_index_points_at_batches_of_its_segment() {
        let good = entries(&[(9, 0), (20, 500)]);
        assert_eq!(found(IndexType::Offset, &good, Some(&[0, 500, 700])), "");
        assert_eq!(found(IndexType::Offset, &[], None), "");
        let text = found(IndexType::Offset, &good, Some(&[0, 400]));
        assert!(
            text.contains("position 500 is not where a batch begins"),
            "{text}"
        );
        let text = found(IndexType::Offset, &entries(&[(9, 0), (9, 1)]), None);
        assert!(text.contains("is not after the one before it"), "{text}");
        let text = found(IndexType::Offset, &entries(&[(100, 1)]), None);
        assert!(text.contains("beyond the end of the segment"), "{text}");
        let text = found(IndexType::Offset, &good[1..], None);
        assert_eq!(text, "offset index: 15 bytes are no whole entries");
    }

    #[test]
    fn other_indexes_are_checked_too() {
        let time = [5i64.to_be_bytes().as_slice(), &3i32.to_be_bytes()].concat();
        assert_eq!(found(IndexType::Timestamp, &time, None), "");
        let twice = [time.clone(), time].concat();
        assert!(found(IndexType::Timestamp, &twice, None).contains("is not after"));
        assert!(found(IndexType::Transaction, &[0, 1], None).contains("no whole entries"));
        assert!(found(IndexType::Transaction, &[9; 34], None).contains("has version 2313"));

        let content = [1, 2, 3];
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &content) as u32;
        let snapshot = [&[0, 1], crc.to_be_bytes().as_slice(), &content].concat();
        assert_eq!(found(IndexType::ProducerSnapshot, &snapshot, None), "");
        let damaged = [&snapshot[..6], &[1, 2, 4]].concat();
        assert_eq!(
            found(IndexType::ProducerSnapshot, &damaged, None),
            "producer snapshot: its checksum does not match its bytes"
        );

        assert_eq!(
            found(IndexType::LeaderEpoch, b"0\n2\n1 0\n2 50\n", None),
            ""
        );
        let text = found(IndexType::LeaderEpoch, b"0\n1\n1 0\n", None);
        assert!(
            text.contains("does not have epoch 2 at offset 100"),
            "{text}"
        );
        let text = found(IndexType::LeaderEpoch, b"0\n2\n2 50\n3 400\n", None);
        assert!(text.contains("epoch 3 begins after the segment"), "{text}");
    }
}
