//! `ottla-clean-logs`: what a clean stop knows about the logs of a log directory, so that the next
//! start need not read the files of each.
//!
//! Only of logs that take few words: one segment, no producers, no aborted transactions, and no
//! other files than those. All others are opened by their files.
//!
//! A start trusts the file as a whole if it is intact, belongs to the clean shutdown marker that is
//! there ([`CleanShutdown`]), and was written by the same user. It trusts what the file says of a
//! log if neither the log's directory nor its `.log` file has changed since: not their contents, and
//! not their owner and rights. Whoever replaces, adds or removes a file changes the directory. A
//! small file or an index that is overwritten in place goes unnoticed.
//!
//! The change times of files come from a clock with ticks of some milliseconds, on some file systems
//! of a second. So a log that changed in the tick in which the file was written, just before the end
//! of the stop, is not trusted: a change after the stop could have the same time.
//!
//! ```text
//! version u32 = 1 | crc u32 (CRC-32C of what follows) | broker epoch i64 | user u32 | count u32 | logs
//! log: length of name u16 | name of the directory | topic id 16 bytes
//!      | last change of the directory and of the .log file, each seconds i64, nanoseconds i64
//!      | base offset i64 | size u64 | log end offset i64 | entries of .index u32, of .timeindex u32
//!      | last entry of .timeindex: timestamp i64, offset i64 | largest timestamp of the first batch i64
//!      | count u32 of leader epochs: epoch i32, start offset i64 | count u32 of snapshots: offset i64
//! ```
//!
//! Kafka has no such file, and ignores it: it looks at the directories in a log directory only.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, BufMut};
use ottla_sync::fs::{ChangeTime, status};
use ottla_sync::process::effective_user;
use ottla_types::{
    BrokerEpoch, LeaderEpoch, Offset, Timestamp, TopicId, TopicName, TopicPartition,
};

use crate::checkpoint::{CleanShutdown, PARTITION_METADATA, read_file, write_atomically};
use crate::disk;
use crate::error::StorageError;
use crate::file_names::{PRODUCER_SNAPSHOT_SUFFIX, file_name, offset_from_file_name};
use crate::handles::MayLack;
use crate::index::TimestampOffset;
use crate::leader_epochs::{EpochEntry, LEADER_EPOCH_CHECKPOINT, LeaderEpochs};
use crate::listing::{Listed, list};
use crate::segment::{IndexSizes, Segment};
use crate::segment_file::SegmentFile;

pub const CLEAN_LOGS_FILE: &str = "ottla-clean-logs";

const VERSION: u32 = 1;
const CRC_START: usize = 4;
const CRC_END: usize = 8;

/// The most offsets that a segment may have: its indexes store relative ones in 31 bits.
const MAX_OFFSETS: i64 = 1 << 31;

/// A log as a clean stop left it.
#[derive(Clone, Debug)]
pub struct CleanLog {
    topic_partition: TopicPartition,
    topic_id: TopicId,
    dir_changed: ChangeTime,
    log_changed: ChangeTime,
    /// Of the only segment.
    pub(crate) base_offset: Offset,
    /// Of the `.log` file.
    pub(crate) size: u64,
    pub(crate) log_end_offset: Offset,
    pub(crate) indexes: IndexSizes,
    /// `None` if there is no batch.
    pub(crate) first_batch_timestamp: Option<Timestamp>,
    /// Those in the file.
    pub(crate) leader_epochs: LeaderEpochs,
    /// The offsets of the producer snapshots, ascending. If there are any, the last one is at the
    /// log end, and holds no producers.
    pub(crate) snapshots: Vec<Offset>,
}

/// The state of a log with one segment and no producers, on which nothing will be appended.
pub(crate) struct ClosedLog {
    pub(crate) segment: Arc<Segment>,
    pub(crate) log_end_offset: Offset,
    pub(crate) first_batch_timestamp: Option<Timestamp>,
    /// `None` if its file may hold others.
    pub(crate) leader_epochs: Option<LeaderEpochs>,
}

impl ClosedLog {
    /// Looks at the directory of the log, all of whose changes are in its files. `None` if it is not
    /// as simple as a [`CleanLog`].
    pub(crate) fn look(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
    ) -> Option<CleanLog> {
        let (segment, size) = (&self.segment, self.segment.size());
        let dir = segment.dir();
        let has_usual_name = dir.file_name() == Some(OsStr::new(&topic_partition.dir_name()));
        let aborted = segment.transaction_index.entries().len();
        let is_empty = self.first_batch_timestamp.is_none();
        if !has_usual_name || !segment.is_forced() || aborted > 0 || is_empty != (size == 0) {
            return None;
        }
        // Before the listing: a file that is made in between changes the directory.
        let of_dir = status(&dir).ok()?;
        let of_log = status(SegmentFile::Log.path_in(&dir, segment.base_offset)).ok()?;
        let found = Found::in_dir(&dir, segment.base_offset)?;
        let is_simple = of_log.len == size
            && found.has_topic_id
            && (found.snapshots.last()).is_none_or(|last| *last == self.log_end_offset);
        let leader_epochs = match found.has_leader_epochs {
            true => self.leader_epochs.clone()?,
            false => LeaderEpochs::default(),
        };
        is_simple.then(|| CleanLog {
            topic_partition: topic_partition.clone(),
            topic_id,
            dir_changed: of_dir.changed,
            log_changed: of_log.changed,
            base_offset: segment.base_offset,
            size,
            log_end_offset: self.log_end_offset,
            indexes: IndexSizes {
                offset_entries: segment.offset_index.entries().len(),
                time_entries: segment.time_index.entries().len(),
                last_time_entry: segment.time_index.last_entry(),
                transaction_entries: 0,
            },
            first_batch_timestamp: self.first_batch_timestamp,
            leader_epochs,
            snapshots: found.snapshots,
        })
    }
}

/// The files in the directory of a log with one segment.
struct Found {
    snapshots: Vec<Offset>,
    has_leader_epochs: bool,
    has_topic_id: bool,
}

impl Found {
    /// `None` if a file of the segment is missing, or there is anything else.
    fn in_dir(dir: &Path, base_offset: Offset) -> Option<Found> {
        let Listed { files, is_complete } = list(dir).ok()?;
        let mut missing: Vec<String> = SegmentFile::ALL
            .into_iter()
            .filter(|kind| *kind != SegmentFile::TransactionIndex)
            .map(|kind| file_name(base_offset, kind.suffix()))
            .collect();
        let mut found = Found {
            snapshots: Vec::new(),
            has_leader_epochs: false,
            has_topic_id: false,
        };
        for name in files {
            if let Some(place) = missing.iter().position(|wanted| *wanted == name) {
                missing.swap_remove(place);
            } else if name == LEADER_EPOCH_CHECKPOINT {
                found.has_leader_epochs = true;
            } else if name == PARTITION_METADATA {
                found.has_topic_id = true;
            } else {
                let offset = offset_from_file_name(&name)?;
                if name != file_name(offset, PRODUCER_SNAPSHOT_SUFFIX) {
                    return None;
                }
                found.snapshots.push(offset);
            }
        }
        found.snapshots.sort_unstable();
        (is_complete && missing.is_empty()).then_some(found)
    }
}

impl CleanLog {
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// Whether the log in `dir`, the partition's directory, is still as the stop left it. Two system
    /// calls.
    pub fn is_unchanged(&self, dir: &Path) -> bool {
        let log = || SegmentFile::Log.path_in(dir, self.base_offset);
        status(dir).is_ok_and(|dir| dir.changed == self.dir_changed)
            && status(log())
                .is_ok_and(|log| log.changed == self.log_changed && log.len == self.size)
    }

    /// Whether a change since `written` has a later time than those that are known.
    fn has_settled_before(&self, written: ChangeTime) -> bool {
        self.dir_changed < written && self.log_changed < written
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        let name = self.topic_partition.dir_name();
        bytes.put_u16(u16::try_from(name.len()).expect("names of files are short"));
        bytes.put_slice(name.as_bytes());
        bytes.put_slice(&self.topic_id.0);
        for changed in [self.dir_changed, self.log_changed] {
            bytes.put_i64(changed.seconds);
            bytes.put_i64(changed.nanoseconds);
        }
        bytes.put_i64(self.base_offset.0);
        bytes.put_u64(self.size);
        bytes.put_i64(self.log_end_offset.0);
        bytes.put_u32(self.indexes.offset_entries);
        bytes.put_u32(self.indexes.time_entries);
        let last = self.indexes.last_time_entry;
        bytes.put_i64(last.map_or(Timestamp::NONE, |last| last.timestamp).0);
        bytes.put_i64(last.map_or(Offset::UNKNOWN, |last| last.offset).0);
        bytes.put_i64(self.first_batch_timestamp.unwrap_or(Timestamp::NONE).0);
        let epochs = self.leader_epochs.entries();
        bytes.put_u32(epochs.len() as u32);
        for entry in epochs {
            bytes.put_i32(entry.epoch.0);
            bytes.put_i64(entry.start_offset.0);
        }
        bytes.put_u32(self.snapshots.len() as u32);
        for offset in &self.snapshots {
            bytes.put_i64(offset.0);
        }
    }

    /// `None` if the bytes cannot be those of a log. `last_topic` is the topic of the log before,
    /// and then that of this one: the logs of a topic share its name.
    fn take(bytes: &mut &[u8], last_topic: &mut TopicName) -> Option<CleanLog> {
        let name = usize::from(bytes.try_get_u16().ok()?);
        let (name, rest) = bytes.split_at_checked(name)?;
        *bytes = rest;
        let name = std::str::from_utf8(name).ok()?;
        let (topic, partition) = TopicPartition::split_dir_name(name).ok()?;
        if *last_topic != *topic {
            *last_topic = topic.into();
        }
        let topic_partition = TopicPartition::new(last_topic.clone(), partition.0);
        let mut topic_id = TopicId::ZERO;
        bytes.try_copy_to_slice(&mut topic_id.0).ok()?;
        let mut changed = || {
            Some(ChangeTime {
                seconds: bytes.try_get_i64().ok()?,
                nanoseconds: bytes.try_get_i64().ok()?,
            })
        };
        let (dir_changed, log_changed) = (changed()?, changed()?);
        let base_offset = Offset(bytes.try_get_i64().ok()?);
        let size = bytes.try_get_u64().ok()?;
        let log_end_offset = Offset(bytes.try_get_i64().ok()?);
        let offset_entries = bytes.try_get_u32().ok()?;
        let time_entries = bytes.try_get_u32().ok()?;
        let last_time_entry = TimestampOffset {
            timestamp: Timestamp(bytes.try_get_i64().ok()?),
            offset: Offset(bytes.try_get_i64().ok()?),
        };
        let first_batch_timestamp = Timestamp(bytes.try_get_i64().ok()?);
        let mut epochs = Vec::new();
        for _ in 0..bytes.try_get_u32().ok()? {
            epochs.push(EpochEntry {
                epoch: LeaderEpoch(bytes.try_get_i32().ok()?),
                start_offset: Offset(bytes.try_get_i64().ok()?),
            });
        }
        let mut snapshots = Vec::new();
        for _ in 0..bytes.try_get_u32().ok()? {
            snapshots.push(Offset(bytes.try_get_i64().ok()?));
        }
        let may_be_in_segment =
            |offset: Offset| base_offset <= offset && offset.since(base_offset) <= MAX_OFFSETS;
        let is_possible = Offset::ZERO <= base_offset
            && may_be_in_segment(log_end_offset)
            && (time_entries == 0 || may_be_in_segment(last_time_entry.offset));
        is_possible.then(|| CleanLog {
            topic_partition,
            topic_id,
            dir_changed,
            log_changed,
            base_offset,
            size,
            log_end_offset,
            indexes: IndexSizes {
                offset_entries,
                time_entries,
                last_time_entry: (time_entries > 0).then_some(last_time_entry),
                transaction_entries: 0,
            },
            first_batch_timestamp: (size > 0).then_some(first_batch_timestamp),
            leader_epochs: epochs.into(),
            snapshots,
        })
    }
}

/// The logs of a log directory that a clean stop has described, in the order of their names.
#[derive(Default, Debug)]
pub struct CleanLogs(Vec<CleanLog>);

/// Why the file is not trusted. All logs are then opened by their files.
#[derive(Debug, thiserror::Error)]
pub enum CleanLogsError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("the file is damaged, or has an unknown version")]
    Damaged,
    #[error("the file is not that of the last clean stop")]
    OtherStop,
    #[error("another user has written the file")]
    OtherUser,
}

impl MayLack for CleanLogsError {
    fn is_lack_of_resources(&self) -> bool {
        matches!(self, CleanLogsError::Storage(error) if error.is_lack_of_resources())
    }
}

impl CleanLogs {
    /// Reads the file of a log directory; empty if there is none. To be called before the clean
    /// shutdown marker is deleted.
    pub fn read(log_dir: &Path) -> Result<CleanLogs, CleanLogsError> {
        let path = log_dir.join(CLEAN_LOGS_FILE);
        let Some(bytes) = read_file(&path)? else {
            return Ok(CleanLogs::default());
        };
        let written = status(&path).map_err(|error| StorageError::new("look at", &path, error))?;
        let marker = CleanShutdown::read(log_dir)?;
        let (stop, logs) = decode(&bytes).ok_or(CleanLogsError::Damaged)?;
        if marker.and_then(|marker| marker.broker_epoch) != Some(stop.broker_epoch) {
            return Err(CleanLogsError::OtherStop);
        }
        if stop.user != effective_user() {
            return Err(CleanLogsError::OtherUser);
        }
        let mut settled = logs;
        settled.retain(|log| log.has_settled_before(written.changed));
        sort(&mut settled);
        Ok(CleanLogs(settled))
    }

    pub fn get(&self, topic_partition: &TopicPartition) -> Option<&CleanLog> {
        let by_name = |log: &CleanLog| log.topic_partition.cmp(topic_partition);
        let found = self.0.binary_search_by(by_name).ok()?;
        Some(&self.0[found])
    }

    /// Writes the file of a log directory durably. To be called before the clean shutdown marker
    /// with the same broker epoch is written.
    pub fn write(
        log_dir: &Path,
        broker_epoch: BrokerEpoch,
        logs: &mut [CleanLog],
    ) -> Result<(), StorageError> {
        // So that the start, which may have to wait for it, finds them sorted.
        sort(logs);
        let stop = Stop {
            broker_epoch,
            user: effective_user(),
        };
        write_atomically(&log_dir.join(CLEAN_LOGS_FILE), &encode(stop, logs))
    }

    /// Removes the file. To be called before the clean shutdown marker is deleted, which forces both
    /// to disk.
    pub fn delete(log_dir: &Path) -> Result<(), StorageError> {
        let path = log_dir.join(CLEAN_LOGS_FILE);
        disk::remove_file_if_there(&path).map_err(|error| StorageError::new("delete", &path, error))
    }
}

fn sort(logs: &mut [CleanLog]) {
    logs.sort_by(|left, right| left.topic_partition().cmp(right.topic_partition()));
}

/// Which stop has written the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stop {
    /// That of the clean shutdown marker. Each start of a broker gets a larger one.
    broker_epoch: BrokerEpoch,
    user: u32,
}

fn encode(stop: Stop, logs: &[CleanLog]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(VERSION);
    bytes.put_u32(0);
    bytes.put_i64(stop.broker_epoch.0);
    bytes.put_u32(stop.user);
    bytes.put_u32(logs.len() as u32);
    logs.iter().for_each(|log| log.put(&mut bytes));
    let crc = crc(&bytes[CRC_END..]);
    bytes[CRC_START..CRC_END].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// `None` if the bytes are not those of such a file.
fn decode(mut bytes: &[u8]) -> Option<(Stop, Vec<CleanLog>)> {
    let version = bytes.try_get_u32().ok()?;
    let stored = bytes.try_get_u32().ok()?;
    if version != VERSION || stored != crc(bytes) {
        return None;
    }
    let stop = Stop {
        broker_epoch: BrokerEpoch(bytes.try_get_i64().ok()?),
        user: bytes.try_get_u32().ok()?,
    };
    let mut logs = Vec::new();
    let mut last_topic = TopicName::new();
    for _ in 0..bytes.try_get_u32().ok()? {
        logs.push(CleanLog::take(&mut bytes, &mut last_topic)?);
    }
    bytes.is_empty().then_some((stop, logs))
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> CleanLog {
        let changed = |seconds| ChangeTime {
            seconds,
            nanoseconds: 999_999_999,
        };
        let epochs = vec![EpochEntry {
            epoch: LeaderEpoch(3),
            start_offset: Offset(40),
        }];
        CleanLog {
            topic_partition: TopicPartition::new(name, 7),
            topic_id: TopicId::from_u128(77),
            dir_changed: changed(1_800_000_000),
            log_changed: changed(1_800_000_001),
            base_offset: Offset(40),
            size: 200,
            log_end_offset: Offset(44),
            indexes: IndexSizes {
                offset_entries: 1,
                time_entries: 2,
                last_time_entry: Some(TimestampOffset {
                    timestamp: Timestamp(9),
                    offset: Offset(43),
                }),
                transaction_entries: 0,
            },
            first_batch_timestamp: Some(Timestamp(8)),
            leader_epochs: epochs.into(),
            snapshots: vec![Offset(40), Offset(44)],
        }
    }

    fn empty_log(name: &str) -> CleanLog {
        CleanLog {
            size: 0,
            log_end_offset: Offset(40),
            indexes: IndexSizes::default(),
            first_batch_timestamp: None,
            leader_epochs: LeaderEpochs::default(),
            snapshots: Vec::new(),
            ..log(name)
        }
    }

    const STOP: Stop = Stop {
        broker_epoch: BrokerEpoch(42),
        user: 1000,
    };

    #[test]
    fn logs_are_read_as_they_were_written() {
        let logs = [log("orders"), empty_log("or.ders-eu")];
        let (stop, read) = decode(&encode(STOP, &logs)).unwrap();
        assert_eq!(stop, STOP);
        assert_eq!(format!("{read:?}"), format!("{logs:?}"));
    }

    #[test]
    fn logs_are_found_by_name_and_share_that_of_their_topic() {
        let mut logs: Vec<CleanLog> = [(10, "payments"), (7, "orders"), (7, "payments")]
            .into_iter()
            .map(|(partition, topic)| CleanLog {
                topic_partition: TopicPartition::new(topic, partition),
                ..log(topic)
            })
            .collect();
        sort(&mut logs);
        let (_, read) = decode(&encode(STOP, &logs)).unwrap();
        let names = read.iter().map(|log| log.topic_partition.topic.as_ptr());
        let names: Vec<_> = names.collect();
        assert_eq!(names[1], names[2]);
        let clean_logs = CleanLogs(read);
        for log in &logs {
            let found = clean_logs.get(&log.topic_partition);
            assert_eq!(format!("{:?}", found.unwrap()), format!("{log:?}"));
        }
        for missing in [("orders", 8), ("a", 7), ("z", 7)] {
            let missing = TopicPartition::new(missing.0, missing.1);
            assert!(clean_logs.get(&missing).is_none(), "{missing}");
        }
    }

    #[test]
    fn a_log_that_changed_when_the_file_was_written_is_not_trusted() {
        let log = log("orders");
        let (dir, file) = (log.dir_changed, log.log_changed);
        assert!(dir < file);
        let next_tick = ChangeTime {
            seconds: file.seconds + 1,
            nanoseconds: 0,
        };
        assert!(log.has_settled_before(next_tick));
        assert!(!log.has_settled_before(file));
        let changed_dir = CleanLog {
            dir_changed: next_tick,
            ..log
        };
        assert!(!changed_dir.has_settled_before(next_tick));
    }

    /// From other programs: their offsets would not fit into an index.
    #[test]
    fn impossible_offsets_are_refused() {
        let impossible: [fn(&mut CleanLog); 4] = [
            |log| log.base_offset = Offset(-1),
            |log| log.log_end_offset = Offset(39),
            |log| log.log_end_offset = Offset(41 + MAX_OFFSETS),
            |log| {
                let last = log.indexes.last_time_entry.as_mut().unwrap();
                last.offset = Offset(39);
            },
        ];
        for (number, change) in impossible.iter().enumerate() {
            let mut log = log("orders");
            change(&mut log);
            assert!(decode(&encode(STOP, &[log])).is_none(), "{number}");
        }
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let bytes = encode(STOP, &[log("orders"), empty_log("payments")]);
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            assert!(decode(&damaged).is_none(), "{position}");
            assert!(decode(&bytes[..position]).is_none(), "{position}");
        }
    }

    /// Bytes with a right checksum, which only another program can have written.
    #[test]
    fn no_bytes_lead_to_a_panic() {
        let bytes = encode(STOP, &[log("orders"), empty_log("payments")]);
        for position in CRC_END..bytes.len() {
            for value in [0, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[position] = value;
                let crc = crc(&changed[CRC_END..]);
                changed[CRC_START..CRC_END].copy_from_slice(&crc.to_be_bytes());
                assert!(decode(&changed).is_none_or(|(_, logs)| logs.len() <= 2));
            }
        }
    }
}
