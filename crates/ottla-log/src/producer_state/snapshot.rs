//! The format of `.snapshot` files: the producer state at an offset, so that a start need not read
//! old segments.
//!
//! ```text
//! version i16 = 1 | crc u32 (CRC-32C of what follows) | count i32 | entries
//! entry: producer id i64 | epoch i16 | last sequence i32 | last offset i64 | offset delta i32
//!        | timestamp i64 | coordinator epoch i32 | first offset of the open transaction i64, -1
//! ```
//!
//! Kafka: `ProducerStateManager.readSnapshot`, `ProducerSnapshot.json`.

use std::path::Path;

use ottla_sync::Mutex;
use ottla_types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::entry::{BatchMetadata, ProducerStateEntry};
use crate::disk;
use crate::error::StorageError;
use crate::file_names::{PRODUCER_SNAPSHOT_SUFFIX, file_name};

const VERSION: i16 = 1;
const HEADER_SIZE: usize = 10;
const CRC_END: usize = 6;
const ENTRY_SIZE: usize = 46;

/// An unusable snapshot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{0}")]
    Corrupt(&'static str),
}

/// A snapshot to be written.
#[derive(Debug)]
pub(crate) struct PendingSnapshot {
    pub(crate) offset: Offset,
    /// `None` once it is written or cancelled. Locked while the file is written.
    pub(super) bytes: Mutex<Option<Vec<u8>>>,
}

pub(super) fn encode<'a>(
    entries: impl ExactSizeIterator<Item = &'a ProducerStateEntry>,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_SIZE + entries.len() * ENTRY_SIZE);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(entries.len() as i32).to_be_bytes());
    let none = BatchMetadata {
        last_sequence: Sequence::NONE,
        last_offset: Offset::UNKNOWN,
        offset_delta: 0,
        timestamp: Timestamp::NONE,
    };
    for entry in entries {
        let last = entry.last_batch().unwrap_or(&none);
        let open = entry.current_txn_first_offset.unwrap_or(Offset::UNKNOWN);
        bytes.extend_from_slice(&entry.producer_id.0.to_be_bytes());
        bytes.extend_from_slice(&entry.producer_epoch.0.to_be_bytes());
        bytes.extend_from_slice(&last.last_sequence.0.to_be_bytes());
        bytes.extend_from_slice(&last.last_offset.0.to_be_bytes());
        bytes.extend_from_slice(&last.offset_delta.to_be_bytes());
        bytes.extend_from_slice(&entry.last_timestamp.0.to_be_bytes());
        bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        bytes.extend_from_slice(&open.0.to_be_bytes());
    }
    let crc = crc(&bytes[CRC_END..]);
    bytes[2..CRC_END].copy_from_slice(&crc.to_be_bytes());
    bytes
}

pub(super) fn decode(bytes: &[u8]) -> Result<Vec<ProducerStateEntry>, SnapshotError> {
    let corrupt = |reason| Err(SnapshotError::Corrupt(reason));
    let Some(header) = bytes.first_chunk::<HEADER_SIZE>() else {
        return corrupt("the snapshot is too short");
    };
    if i16::from_be_bytes([header[0], header[1]]) != VERSION {
        return corrupt("the snapshot has an unknown version");
    }
    let stored = u32::from_be_bytes([header[2], header[3], header[4], header[5]]);
    if stored != crc(&bytes[CRC_END..]) {
        return corrupt("the checksum of the snapshot is wrong");
    }
    let count = i32::from_be_bytes([header[6], header[7], header[8], header[9]]);
    let (entries, rest) = bytes[HEADER_SIZE..].as_chunks::<ENTRY_SIZE>();
    if !rest.is_empty() || usize::try_from(count) != Ok(entries.len()) {
        return corrupt("the snapshot has not as many entries as it says");
    }
    Ok(entries.iter().map(decode_entry).collect())
}

/// Whether these are all bytes of a snapshot.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    decode(bytes).is_ok()
}

/// The snapshot of a log without producers.
pub(crate) fn of_no_producers() -> Vec<u8> {
    encode(std::iter::empty::<&ProducerStateEntry>())
}

fn decode_entry(bytes: &[u8; ENTRY_SIZE]) -> ProducerStateEntry {
    let long = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let int = |at: usize| i32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let timestamp = Timestamp(long(26));
    let mut entry = ProducerStateEntry::new(
        ProducerId(long(0)),
        ProducerEpoch(i16::from_be_bytes([bytes[8], bytes[9]])),
        int(34),
        timestamp,
        Some(Offset(long(38))).filter(|first| first.0 >= 0),
    );
    if long(14) >= 0 {
        entry.add_batch(BatchMetadata {
            last_sequence: Sequence(int(10)),
            last_offset: Offset(long(14)),
            offset_delta: int(22),
            timestamp,
        });
    }
    entry
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

impl PendingSnapshot {
    /// Writes the file durably, but as in Kafka not atomically: a file cut short by a crash fails
    /// its checksum, and an older snapshot is used.
    pub(crate) fn write_once(&self, dir: &Path) -> Result<(), StorageError> {
        let mut pending = self.bytes.lock();
        let Some(bytes) = pending.as_ref() else {
            return Ok(());
        };
        let path = dir.join(file_name(self.offset, PRODUCER_SNAPSHOT_SUFFIX));
        let file =
            disk::write(&path, bytes).map_err(|error| StorageError::new("write", &path, error))?;
        disk::sync_data(&file).map_err(|error| StorageError::fsync(&path, error))?;
        *pending = None;
        Ok(())
    }

    /// Writes the file without fsync, which [`PendingSnapshot::write_once`] does later.
    pub(super) fn write_unforced(&self, dir: &Path) -> Result<(), StorageError> {
        match self.bytes.lock().as_ref() {
            Some(bytes) => {
                let path = dir.join(file_name(self.offset, PRODUCER_SNAPSHOT_SUFFIX));
                disk::write(&path, bytes)
                    .map(drop)
                    .map_err(|error| StorageError::new("write", &path, error))
            }
            None => Ok(()),
        }
    }

    /// Whether it was written or cancelled. Does not wait for a write that is running.
    pub(crate) fn is_done(&self) -> bool {
        self.bytes.try_lock().is_some_and(|bytes| bytes.is_none())
    }

    /// Prevents that it is written later. A write that is running completes; nothing reads its
    /// file.
    pub(crate) fn cancel_unless_writing(&self) {
        if let Some(mut pending) = self.bytes.try_lock() {
            *pending = None;
        }
    }

    /// Prevents that it is written, because the log was truncated. Waits for a write that is
    /// running.
    pub(crate) fn cancel(&self) {
        *self.bytes.lock() = None;
    }
}
