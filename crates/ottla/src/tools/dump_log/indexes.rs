//! Offset, time and transaction indexes, and producer snapshots.

use std::path::Path;

use anyhow::{Context, ensure};
use ottla_records::legacy::AnyBatch;

use super::arguments::DumpLogArgs;
use super::segment::{Batches, absolute, base_offset};

/// Maximum size of a batch after decompression.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// A file's fixed-size entries; an incomplete one at the end is ignored.
struct Entries {
    bytes: Vec<u8>,
    size: usize,
}

impl Entries {
    fn read(path: &Path, size: usize) -> anyhow::Result<Entries> {
        let bytes =
            std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(Entries { bytes, size })
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.size)
    }

    fn is_whole(&self) -> bool {
        self.bytes.len().is_multiple_of(self.size)
    }

    /// The checks of a starting broker for an offset index (`OffsetIndex.sanityCheck`).
    fn check_offsets(&self, path: &Path, base: i64) -> anyhow::Result<()> {
        let file = absolute(path);
        if let Some(entry) = self.iter().last() {
            let last = base + i64::from(i32_at(entry, 0));
            ensure!(
                last >= base,
                "Corrupt index found, index file {file} has non-zero size but the last offset is \
                 {last} which is less than the base offset {base}"
            );
        }
        ensure!(
            self.is_whole(),
            "Index file {file} is corrupt, found {} bytes which is neither positive nor a multiple \
             of {}",
            self.bytes.len(),
            self.size
        );
        Ok(())
    }

    /// The checks of a starting broker for a time index (`TimeIndex.sanityCheck`).
    fn check_times(&self, path: &Path, base: i64) -> anyhow::Result<()> {
        let file = absolute(path);
        if let (Some(first), Some(last)) = (self.iter().next(), self.iter().last()) {
            let (first, last_timestamp) = (i64_at(first, 0), i64_at(last, 0));
            let last = base + i64::from(i32_at(last, 8));
            ensure!(
                last_timestamp >= first,
                "Corrupt time index found, time index file ({file}) has non-zero size but the last \
                 timestamp is {last_timestamp} which is less than the first timestamp {first}"
            );
            ensure!(
                last >= base,
                "Corrupt time index found, time index file ({file}) has non-zero size but the last \
                 offset is {last} which is less than the first offset {base}"
            );
        }
        ensure!(
            self.is_whole(),
            "Time index file {file} is corrupt, found {} bytes which is neither positive nor a \
             multiple of {}",
            self.bytes.len(),
            self.size
        );
        Ok(())
    }
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn i16_at(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(super) fn dump_offset_index(
    path: &Path,
    args: &DumpLogArgs,
    complaints: &mut Vec<String>,
) -> anyhow::Result<()> {
    let base = base_offset(path)?;
    let log = path.with_extension("log");
    let entries = Entries::read(path, 8)?;
    if entries.bytes.len() < 8 {
        println!("{} is empty.", path.display());
        return Ok(());
    }
    if args.index_sanity_check {
        entries.check_offsets(path, base)?;
        println!("{} passed sanity check.", path.display());
        return Ok(());
    }
    let mut mismatches = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let offset = base + i64::from(i32_at(entry, 0));
        let position = i32_at(entry, 4);
        // The file is preallocated, so after a crash zeros follow the last entry.
        if offset == base && index > 0 {
            break;
        }
        let at = u64::try_from(position).unwrap_or(u64::MAX / 2);
        let found = match Batches::open(&log, at, None)?.next() {
            Ok(Some((_, batch))) => batch.last_offset().value(),
            Ok(None) | Err(_) => -1,
        };
        if found != offset {
            mismatches.push(format!("  Index offset: {offset}, log offset: {found}"));
        }
        if !args.verify_index_only {
            println!("offset: {offset} position: {position}");
        }
    }
    if !mismatches.is_empty() {
        complaints.push(format!("Mismatches in :{}", absolute(path)));
        complaints.extend(mismatches.into_iter().rev());
    }
    Ok(())
}

pub(super) fn dump_time_index(
    path: &Path,
    args: &DumpLogArgs,
    complaints: &mut Vec<String>,
) -> anyhow::Result<()> {
    let base = base_offset(path)?;
    let log = path.with_extension("log");
    let positions = Entries::read(&path.with_extension("index"), 8)?;
    let entries = Entries::read(path, 12)?;
    if args.index_sanity_check {
        entries.check_times(path, base)?;
        println!("{} passed sanity check.", path.display());
        return Ok(());
    }
    let mut timestamps = Vec::new();
    let mut disordered = Vec::new();
    let mut missing = Vec::new();
    let mut previous = -1;
    for (index, entry) in entries.iter().enumerate() {
        let timestamp = i64_at(entry, 0);
        let offset = base + i64::from(i32_at(entry, 8));
        if offset == base && index > 0 {
            break;
        }
        match batch_at(&log, position_before(&positions, base, offset), offset)? {
            Some(batch) if batch.last_offset().value() == offset => {
                let records = batch.records(MAX_BATCH_BYTES)?;
                let largest = records
                    .iter()
                    .map(|record| record.timestamp.value())
                    .max()
                    .unwrap_or(-1);
                if largest != timestamp {
                    timestamps.push(format!(
                        "  Index timestamp: {timestamp}, log timestamp: {largest}"
                    ));
                }
                if previous >= timestamp {
                    disordered.push(format!(
                        "  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
                    ));
                }
            }
            found => {
                let found = found.map_or(-1, |batch| batch.last_offset().value());
                missing.push(format!(
                    "Indexed offset: {offset}, found log offset: {found}"
                ));
            }
        }
        if !args.verify_index_only {
            println!("timestamp: {timestamp} offset: {offset}");
        }
        previous = timestamp;
    }
    for (title, lines) in [
        ("Found timestamp mismatch in :", timestamps),
        ("Found out of order timestamp in :", disordered),
        ("The following indexed offsets are not found in :", missing),
    ] {
        if !lines.is_empty() {
            complaints.push(format!("{title}{}", absolute(path)));
            complaints.extend(lines);
        }
    }
    Ok(())
}

/// The position of the last offset index entry at or before an offset.
fn position_before(positions: &Entries, base: i64, offset: i64) -> u64 {
    let mut position = 0;
    for (index, entry) in positions.iter().enumerate() {
        let indexed = base + i64::from(i32_at(entry, 0));
        if indexed > offset || (indexed == base && index > 0) {
            break;
        }
        position = u64::try_from(i32_at(entry, 4)).unwrap_or(0);
    }
    position
}

/// The first batch at or after a position whose last offset reaches an offset.
fn batch_at(log: &Path, position: u64, offset: i64) -> anyhow::Result<Option<AnyBatch>> {
    let mut batches = Batches::open(log, position, None)?;
    while let Some((_, batch)) = batches.next()? {
        if batch.last_offset().value() >= offset {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

pub(super) fn dump_transaction_index(path: &Path) -> anyhow::Result<()> {
    for entry in Entries::read(path, 34)?.iter() {
        println!(
            "version: {} producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
            i16_at(entry, 0),
            i64_at(entry, 2),
            i64_at(entry, 10),
            i64_at(entry, 18),
            i64_at(entry, 26),
        );
    }
    Ok(())
}

/// Version, checksum and count, followed by one entry per producer
/// (`ProducerStateManager.readSnapshot`).
pub(super) fn dump_producer_snapshot(path: &Path) -> anyhow::Result<()> {
    const HEADER: usize = 10;
    const ENTRY: usize = 46;
    let bytes =
        std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    if bytes.len() < HEADER {
        eprintln!(
            "Snapshot failed schema validation: {} bytes are too few",
            bytes.len()
        );
        return Ok(());
    }
    let version = i16_at(&bytes, 0);
    if version != 1 {
        eprintln!("Snapshot contained an unknown file version {version}");
        return Ok(());
    }
    let stored = i32_at(&bytes, 2) as u32;
    let computed = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[6..]) as u32;
    if stored != computed {
        eprintln!(
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
        );
        return Ok(());
    }
    let count = i32_at(&bytes, 6);
    let entries = bytes[HEADER..].chunks_exact(ENTRY);
    if usize::try_from(count).ok() != Some(entries.len()) {
        eprintln!(
            "Snapshot failed schema validation: it says {count} producers, {} are there",
            entries.len()
        );
        return Ok(());
    }
    for entry in entries {
        let (last_sequence, last_offset) = (i32_at(entry, 10), i64_at(entry, 14));
        let (offset_delta, timestamp) = (i32_at(entry, 22), i64_at(entry, 26));
        let first_in_transaction = match i64_at(entry, 38) {
            ..0 => "OptionalLong.empty".to_owned(),
            offset => format!("OptionalLong[{offset}]"),
        };
        let mut line = format!(
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: \
             {first_in_transaction} lastTimestamp: {timestamp}",
            i64_at(entry, 0),
            i16_at(entry, 8),
            i32_at(entry, 34),
        );
        if last_offset >= 0 {
            let first_sequence = (i64::from(last_sequence) - i64::from(offset_delta)) & 0x7fff_ffff;
            line += &format!(
                " firstSequence: {first_sequence} lastSequence: {last_sequence} lastOffset: \
                 {last_offset} offsetDelta: {offset_delta} timestamp: {timestamp}"
            );
        }
        println!("{line}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset_entry(offset: i32) -> Vec<u8> {
        [offset.to_be_bytes(), [0; 4]].concat()
    }

    fn time_entry(timestamp: i64, offset: i32) -> Vec<u8> {
        [&timestamp.to_be_bytes()[..], &offset.to_be_bytes()].concat()
    }

    /// Empty for a good index, otherwise the end of the complaint.
    #[track_caller]
    fn check(found: anyhow::Result<()>, expected: &str) {
        let found = found.map_or_else(|error| error.to_string(), |()| String::new());
        assert!(found.ends_with(expected), "{found}");
        assert_eq!(found.is_empty(), expected.is_empty(), "{found}");
    }

    #[test]
    fn an_offset_index_is_checked_as_at_a_start() {
        let of = |bytes: &[Vec<u8>]| {
            let entries = Entries {
                bytes: bytes.concat(),
                size: 8,
            };
            entries.check_offsets(Path::new("/data/100.index"), 100)
        };
        check(of(&[]), "");
        check(of(&[offset_entry(3), offset_entry(9)]), "");
        // A file that was sized ahead.
        check(of(&[offset_entry(3), offset_entry(0)]), "");
        let before = "the last offset is 99 which is less than the base offset 100";
        check(of(&[offset_entry(3), offset_entry(-1)]), before);
        check(of(&[offset_entry(3), vec![0; 3]]), "a multiple of 8");
    }

    #[test]
    fn a_time_index_is_checked_as_at_a_start() {
        let of = |bytes: &[Vec<u8>]| {
            let entries = Entries {
                bytes: bytes.concat(),
                size: 12,
            };
            entries.check_times(Path::new("/data/100.timeindex"), 100)
        };
        check(of(&[]), "");
        check(of(&[time_entry(5, 3), time_entry(7, 9)]), "");
        let earlier = "the last timestamp is 4 which is less than the first timestamp 5";
        check(of(&[time_entry(5, 3), time_entry(4, 9)]), earlier);
        let before = "the last offset is 99 which is less than the first offset 100";
        check(of(&[time_entry(5, 3), time_entry(7, -1)]), before);
        check(of(&[time_entry(5, 3), vec![0; 5]]), "a multiple of 12");
    }
}
