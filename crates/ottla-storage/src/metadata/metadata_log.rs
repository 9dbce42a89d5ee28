//! `__cluster_metadata-0`: the metadata log with its snapshots and `quorum-state`.
//!
//! Owned by the controller thread. The log is always opened as after a crash: it is scanned
//! completely, as in Kafka. Replication from and to other nodes is in `replicated`.
//!
//! Kafka: `KafkaRaftLog`, `FileQuorumStateStore`, `KRaftControlRecordStateMachine`.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ottla_config::{BrokerConfig, CleanupPolicy, TopicConfig};
use ottla_log::checkpoint::PartitionMetadata;
use ottla_log::{
    AppendError, AppendErrorReason, Handles, Job, JobOutcome, Log, LogError, OpenParams,
    StorageError, WholeSegment, retry_lacking, whole_segments,
};
use ottla_metadata::{MetadataLoader, Provenance};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{
    ControlRecord, ControlRecordHistory, ElectionState, EpochStart, KRaftVersion, LogState,
    SnapshotId, SnapshotRetention, StoredSnapshot, VoterSet,
};
use ottla_records::RecordBatch;
use ottla_sync::fs::{self, Dir, File};
use ottla_types::{LeaderEpoch, Offset, Timestamp, TopicPartition, Uuid};

use super::forced_mark::{ForcedMark, UNMARKED, forced_offset};
use super::record_batches::{ControlValue, MetadataBatch, MetadataBatchContent};
use super::snapshot_file::{Snapshot, read_snapshot};

mod partial_snapshot;
mod replicated;

use partial_snapshot::PartialSnapshot;

pub const METADATA_DIR: &str = "__cluster_metadata-0";
pub const QUORUM_STATE_FILE: &str = "quorum-state";
/// Bytes of the log read at once during loading.
const LOAD_CHUNK_BYTES: u64 = 8 * 1024 * 1024;

/// Why the metadata log cannot be used, as a sentence.
#[derive(Debug, thiserror::Error)]
#[error("the metadata log in {dir}: {reason}")]
pub struct MetadataLogError {
    dir: String,
    reason: String,
    /// The disk is full, or a handle or memory is missing. Nothing was written and the log is
    /// unchanged; the operation can be retried.
    pub is_temporary: bool,
}

/// The log, open for its only writer.
pub struct MetadataLog {
    dir: PathBuf,
    log: Log,
    forced: ForcedMark,
    /// Oldest first.
    snapshots: BTreeMap<SnapshotId, StoredSnapshot>,
    /// The snapshot being fetched.
    partial_snapshot: Option<PartialSnapshot>,
    /// The errors of the next append and the next flush.
    #[cfg(any(test, feature = "fault-injection"))]
    pub faults: (Option<io::ErrorKind>, Option<io::ErrorKind>),
    /// Held by a test to make the disk hang while a snapshot is written.
    #[cfg(any(test, feature = "fault-injection"))]
    pub snapshot_gate: Option<Arc<ottla_sync::Mutex<()>>>,
}

/// The state loaded from snapshots and log.
pub struct LoadedMetadata {
    /// The image of the newest snapshot and of the applied part of the log.
    pub loader: MetadataLoader,
    /// The records of [`SnapshotId::BOOTSTRAP`], which are for the first controller of the cluster
    /// and not part of the image. Only Kafka 4.4 puts them there.
    pub bootstrap_records: Vec<MetadataRecord>,
    /// The batches after the newest snapshot that are not applied, committed or not.
    pub tail: VecDeque<MetadataBatch>,
    /// The voters and `kraft.version` of the newest snapshot and the log after it. Configured
    /// voters are not included.
    pub control_records: ControlRecordHistory,
    pub election: Option<ElectionState>,
    /// Bytes of the log after the newest snapshot.
    pub bytes_since_snapshot: u64,
}

impl MetadataLog {
    /// Opens the log in `metadata.log.dir` and reads all of it. Waits for file handles.
    pub fn open(
        config: &BrokerConfig,
        now: Timestamp,
    ) -> Result<(MetadataLog, LoadedMetadata), MetadataLogError> {
        let dir = Path::new(&config.metadata_log_dir).join(METADATA_DIR);
        let fail = |reason: String| MetadataLogError {
            dir: dir.display().to_string(),
            reason,
            is_temporary: false,
        };
        fs::create_dir_all(&dir).map_err(|error| fail(format!("cannot create it: {error}")))?;
        let snapshots = retry_lacking(|| find_snapshots(&dir));
        let mut snapshots = snapshots.map_err(|error| fail(error.to_string()))?;
        // Recovery cuts the log at the first invalid byte, and possibly no other node has the
        // records after it.
        let forced = retry_lacking(|| forced_offset(&dir));
        let forced = forced.map_err(|error| fail(error.to_string()))?;
        let segments = retry_lacking(|| whole_segments(&dir, forced));
        let segments = segments.map_err(|error| fail(error.to_string()))?;
        force(&dir, &segments, forced).map_err(|error| fail(error.to_string()))?;
        let params = OpenParams {
            dir: dir.clone(),
            topic_partition: TopicPartition::new("__cluster_metadata", 0),
            config: Arc::new(log_config(config)),
            recovery_point: Offset::ZERO,
            log_start_offset: Offset::ZERO,
            clean_shutdown: false,
            now,
            producer_id_expiration_ms: i64::from(i32::MAX),
            random_seed: ottla_sync::random::random("log"),
            // It keeps its files open, independently of the budget of other logs.
            handles: Handles::unlimited(),
            checkpoint_marks: Arc::default(),
        };
        let opened = retry_lacking(|| Log::open(params.clone()));
        let (log, _) = opened.map_err(|error| fail(error.to_string()))?;
        let mark = retry_lacking(|| ForcedMark::open(&dir));
        let mut metadata_log = MetadataLog {
            dir: dir.clone(),
            log,
            forced: mark.map_err(|error| fail(error.to_string()))?,
            snapshots: BTreeMap::new(),
            partial_snapshot: None,
            #[cfg(any(test, feature = "fault-injection"))]
            faults: (None, None),
            #[cfg(any(test, feature = "fault-injection"))]
            snapshot_gate: None,
        };
        let log_start_offset = metadata_log.log.log_start_offset();
        snapshots.retain(|id| id.end_offset >= log_start_offset);
        if log_start_offset > Offset::ZERO && snapshots.is_empty() {
            return Err(fail(format!(
                "it starts at offset {log_start_offset}, and there is no snapshot of the records \
                 before; restore the missing .checkpoint file"
            )));
        }
        // A power loss may take the end of a segment and leave the next one, if neither was forced.
        // This node has acknowledged nothing from there on, and would never fetch what is missing.
        if let Some(gap) = metadata_log.log.doubtful_from()
            && gap >= forced
            && snapshots
                .last()
                .is_none_or(|newest| newest.end_offset <= gap)
        {
            tracing::warn!(
                dir = %dir.display(), log_end_offset = %metadata_log.log.log_end_offset(), %gap,
                "the metadata log has a gap, and is truncated to it"
            );
            retry_lacking(|| metadata_log.log.truncate_to(gap, now))
                .map_err(|error| fail(error.to_string()))?;
        }
        metadata_log.log.keep_gaps();
        if let Some(&newest) = snapshots.last()
            && metadata_log.is_behind(newest)
        {
            // The snapshot contains the whole log: it was fetched and the log was not emptied yet;
            // or the log was cut short and its records after the snapshot are gone.
            tracing::warn!(
                dir = %dir.display(), log_end_offset = %metadata_log.log.log_end_offset(),
                snapshot_end_offset = %newest.end_offset,
                "the metadata log ends before its newest snapshot, and continues after it"
            );
            metadata_log.lower_forced_mark(newest.end_offset)?;
            let log = &mut metadata_log.log;
            retry_lacking(|| log.truncate_fully_and_start_at(newest.end_offset, None, now))
                .map_err(|error| fail(error.to_string()))?;
        }
        // What is left was forced before it was opened.
        let end = metadata_log.log_end_offset();
        metadata_log.forced.raise(end);
        let loaded = metadata_log.load(&snapshots).map_err(fail)?;
        Ok((metadata_log, loaded))
    }

    fn load(&mut self, snapshots: &[SnapshotId]) -> Result<LoadedMetadata, String> {
        let election = self.read_election_state()?;
        let mut loaded = LoadedMetadata::new(election);
        let mut next_offset = self.log.log_start_offset();
        for &id in snapshots {
            let path = self.dir.join(id.file_name());
            let size_bytes = fs::metadata(&path)
                .map_err(|error| error.to_string())?
                .len();
            let is_newest = Some(&id) == snapshots.last();
            let snapshot = match retry_lacking(|| read_snapshot(&path)) {
                Ok(snapshot) => Some(snapshot),
                Err(error) if is_newest => return Err(error.to_string()),
                Err(error) => {
                    tracing::warn!("{error}; a newer snapshot covers its records");
                    None
                }
            };
            let written_at = |snapshot: &Snapshot| snapshot.last_contained_log_time;
            self.snapshots.insert(
                id,
                StoredSnapshot {
                    id,
                    size_bytes,
                    last_contained_log_time: snapshot.as_ref().map_or(Timestamp(0), written_at),
                },
            );
            let Some(snapshot) = snapshot.filter(|_| is_newest) else {
                continue;
            };
            loaded.load_snapshot(id, snapshot, &path)?;
            next_offset = id.end_offset;
        }
        while next_offset < self.log.log_end_offset() {
            for batch in self.read_batches(next_offset)? {
                if batch.last_offset < next_offset {
                    continue;
                }
                next_offset = batch.last_offset.plus(1);
                loaded.add(batch)?;
            }
        }
        Ok(loaded)
    }

    /// Whether a snapshot contains the whole log and more: it was fetched and the log was not
    /// emptied yet; or the log was cut short. Kafka: `KafkaRaftLog.truncateToLatestSnapshot`.
    fn is_behind(&self, snapshot: SnapshotId) -> bool {
        let is_longer = snapshot.end_offset > self.log.log_end_offset();
        match self.log.latest_epoch() {
            Some(last) => snapshot.epoch > last || (snapshot.epoch == last && is_longer),
            None => is_longer,
        }
    }

    /// Whole batches, starting with the batch that holds `from`; at least one. Waits for file
    /// handles.
    fn read_batches(&self, from: Offset) -> Result<Vec<MetadataBatch>, String> {
        let (reader, end) = (self.log.reader(), self.log.log_end_offset());
        let read = retry_lacking(|| reader.read(from, LOAD_CHUNK_BYTES, end, true));
        let read = read.map_err(|error| error.to_string())?;
        let region = read
            .region
            .ok_or_else(|| format!("there is nothing at offset {from}"))?;
        let mut bytes = vec![0; region.len as usize];
        region
            .file
            .read_exact_at(&mut bytes, region.position)
            .map_err(|error| error.to_string())?;
        let mut rest = Bytes::from(bytes);
        let mut batches = Vec::new();
        while !rest.is_empty() {
            match RecordBatch::read(&mut rest) {
                Ok(batch) => {
                    batches.push(MetadataBatch::read(&batch).map_err(|error| error.to_string())?)
                }
                // The end of the chunk cuts the last batch off.
                Err(_) if !batches.is_empty() => break,
                Err(error) => {
                    return Err(format!(
                        "the batch at offset {from} cannot be read: {error}"
                    ));
                }
            }
        }
        Ok(batches)
    }

    pub fn log_end_offset(&self) -> Offset {
        self.log.log_end_offset()
    }

    /// The state of the log and its snapshots for the quorum.
    pub fn state(&self) -> LogState {
        let epochs = self.log.leader_epochs().entries();
        LogState::new(
            self.log.log_start_offset(),
            self.log.log_end_offset(),
            epochs
                .iter()
                .map(|entry| EpochStart {
                    epoch: entry.epoch,
                    start_offset: entry.start_offset,
                })
                .collect(),
            self.snapshots.keys().copied(),
        )
    }

    pub fn log_start_offset(&self) -> Offset {
        self.log.log_start_offset()
    }

    /// Oldest first.
    pub fn snapshot_ids(&self) -> Vec<SnapshotId> {
        self.snapshots.keys().copied().collect()
    }

    /// Adds a leader epoch that starts at `start_offset`.
    pub fn assign_leader_epoch(&mut self, epoch: LeaderEpoch, start_offset: Offset) {
        self.log.assign_leader_epoch(epoch, start_offset);
    }

    /// Appends one batch, which is not on disk before `flush`. On a full disk the log stays
    /// unchanged.
    pub fn append(&mut self, batch: &RecordBatch, now: Timestamp) -> Result<(), MetadataLogError> {
        #[cfg(any(test, feature = "fault-injection"))]
        if let Some(kind) = self.faults.0.take() {
            return Err(self.storage_error(&fault(kind)));
        }
        self.log
            .append(std::slice::from_ref(batch), now)
            .map(drop)
            .map_err(|error| self.append_error(&error))
    }

    fn append_error(&self, error: &AppendError) -> MetadataLogError {
        match &error.reason {
            AppendErrorReason::Temporary(storage) => self.storage_error(storage),
            _ => self.error(error.to_string()),
        }
    }

    /// Fsyncs everything appended and returns the end offset.
    pub fn flush(&mut self) -> Result<Offset, MetadataLogError> {
        let Some(job) = self.log.flush_job() else {
            return Ok(self.log.log_end_offset());
        };
        #[cfg(any(test, feature = "fault-injection"))]
        if let Some(kind) = self.faults.1.take() {
            return Err(self.storage_error(&fault(kind)));
        }
        let end = job.run().map_err(|error| self.storage_error(&error))?;
        self.forced.raise(end);
        Ok(end)
    }

    fn lower_forced_mark(&mut self, end: Offset) -> Result<(), MetadataLogError> {
        let lowered = self.forced.lower(end);
        lowered.map_err(|error| self.storage_error(&StorageError::new("write", &self.dir, error)))
    }

    /// Removes unflushed records. Needs no disk space.
    pub fn truncate_to(&mut self, end: Offset, now: Timestamp) -> Result<(), MetadataLogError> {
        self.lower_forced_mark(end)?;
        match self.log.truncate_to(end, now) {
            Ok(_) => Ok(()),
            // A failed truncation leaves the log unchanged.
            Err(error) => Err(self.log_error(&error)),
        }
    }

    /// Runs pending maintenance: spare files and the deletion of old segments. Commits do not
    /// depend on it, so a full disk only delays it.
    pub fn maintain(&mut self) -> Result<(), MetadataLogError> {
        for job in self.log.take_jobs() {
            let is_spare = matches!(job, Job::PrepareSpare(_));
            let result = match job.run() {
                // Only this thread opens files of this log by name.
                Ok(JobOutcome::Unlink(unlink)) => unlink.run(),
                Ok(outcome) => {
                    self.log.on_job_done(outcome);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match result {
                Err(error) if error.is_temporary() => {
                    if is_spare {
                        self.log.on_spare_refused();
                    }
                }
                result => result.map_err(|error| self.storage_error(&error))?,
            }
        }
        Ok(())
    }

    pub fn set_high_watermark(&mut self, offset: Offset) {
        self.log.set_high_watermark(offset);
    }

    /// Writes `quorum-state` durably.
    pub fn write_election_state(
        &self,
        election: &ElectionState,
        kraft_version: KRaftVersion,
    ) -> Result<(), MetadataLogError> {
        let path = self.dir.join(QUORUM_STATE_FILE);
        let partial = self.dir.join("quorum-state.tmp");
        let write = || {
            let mut file = File::create(&partial)?;
            file.write_all(election.to_json(kraft_version).as_bytes())?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            Dir::open(&self.dir)?.sync()
        };
        write().map_err(|error| self.io_error("write", &path, error))
    }

    /// Writes `partition.metadata` if it is missing. Only Kafka's tools may read it.
    pub fn write_partition_metadata(&self) -> Result<(), MetadataLogError> {
        let written = match PartitionMetadata::read(&self.dir) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => PartitionMetadata {
                topic_id: Uuid::METADATA_TOPIC,
            }
            .write(&self.dir)
            .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        written.map_err(|reason| self.error(reason))
    }

    fn read_election_state(&self) -> Result<Option<ElectionState>, String> {
        let path = self.dir.join(QUORUM_STATE_FILE);
        match retry_lacking(|| fs::read_to_string(&path)) {
            Ok(text) => ElectionState::from_json(&text)
                .map(Some)
                .map_err(|error| format!("quorum-state cannot be read: {error}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("quorum-state cannot be read: {error}")),
        }
    }

    /// A closure that writes a snapshot, for a thread that may block, and returns its size in
    /// bytes. The log has the snapshot once it is [added](Self::add_snapshot).
    pub fn snapshot_write(
        &self,
        now: Timestamp,
    ) -> impl FnOnce(&Snapshot, SnapshotId) -> io::Result<u64> + Send + 'static {
        let dir = self.dir.clone();
        #[cfg(any(test, feature = "fault-injection"))]
        let gate = self.snapshot_gate.clone();
        move |snapshot, id| {
            #[cfg(any(test, feature = "fault-injection"))]
            drop(gate.as_ref().map(|gate| gate.lock()));
            snapshot.write(&dir, id, now)
        }
    }

    /// Adds a snapshot of committed records that is on disk. If the log now starts after it,
    /// because a snapshot of the leader replaced the log, the snapshot is deleted.
    pub fn add_snapshot(&mut self, stored: StoredSnapshot) -> Result<(), MetadataLogError> {
        let id = stored.id;
        if id.end_offset < self.log.log_start_offset() {
            return fs::remove_file(self.dir.join(id.file_name()))
                .map_err(|error| self.error(format!("cannot delete snapshot {id}: {error}")));
        }
        self.snapshots.insert(id, stored);
        Ok(())
    }

    /// Deletes snapshots beyond the retention, and the log before the oldest kept one.
    pub fn clean(
        &mut self,
        retention: &SnapshotRetention,
        now: Timestamp,
    ) -> Result<(), MetadataLogError> {
        let stored: Vec<StoredSnapshot> = self.snapshots.values().copied().collect();
        let Some(oldest) = retention.oldest_to_keep(&stored, self.log.reader().size(), now) else {
            return Ok(());
        };
        self.log
            .increment_log_start_offset(oldest.end_offset)
            .map_err(|error| self.error(error.to_string()))?;
        self.log
            .delete_old_segments(now)
            .map_err(|error| self.log_error(&error))?;
        self.maintain()?;
        let kept = self.snapshots.split_off(&oldest);
        for id in std::mem::replace(&mut self.snapshots, kept).into_keys() {
            let path = self.dir.join(id.file_name());
            fs::remove_file(&path)
                .map_err(|error| self.error(format!("cannot delete snapshot {id}: {error}")))?;
        }
        Ok(())
    }

    /// Closes the log for a clean stop.
    pub fn close(self) -> Result<(), MetadataLogError> {
        let dir = self.dir.display().to_string();
        self.log
            .close()
            .map(drop)
            .map_err(|error| MetadataLogError {
                dir,
                reason: error.to_string(),
                is_temporary: false,
            })
    }

    pub fn error(&self, reason: String) -> MetadataLogError {
        MetadataLogError {
            dir: self.dir.display().to_string(),
            reason,
            is_temporary: false,
        }
    }

    fn io_error(&self, operation: &'static str, path: &Path, error: io::Error) -> MetadataLogError {
        self.storage_error(&StorageError::new(operation, path, error))
    }

    fn log_error(&self, error: &LogError) -> MetadataLogError {
        match error.storage() {
            Some(error) => self.storage_error(error),
            None => self.error(error.to_string()),
        }
    }

    fn storage_error(&self, error: &StorageError) -> MetadataLogError {
        MetadataLogError {
            is_temporary: error.is_temporary(),
            ..self.error(error.to_string())
        }
    }
}

#[cfg(any(test, feature = "fault-injection"))]
fn fault(kind: io::ErrorKind) -> StorageError {
    StorageError::new("write to", METADATA_DIR.as_ref(), kind.into())
}

impl LoadedMetadata {
    pub fn new(election: Option<ElectionState>) -> LoadedMetadata {
        LoadedMetadata {
            loader: MetadataLoader::default(),
            bootstrap_records: Vec::new(),
            tail: VecDeque::new(),
            control_records: ControlRecordHistory::new(VoterSet::empty()),
            election,
            bytes_since_snapshot: 0,
        }
    }

    /// Adds the next batch of the log. Its control records take effect at once, its records when
    /// they are applied.
    fn add(&mut self, batch: MetadataBatch) -> Result<(), String> {
        self.bytes_since_snapshot += batch.size_bytes;
        if let MetadataBatchContent::Control(values) = &batch.content {
            let mut offset = batch.base_offset;
            for value in values {
                self.apply_control(offset, value)?;
                offset = offset.plus(1);
            }
        }
        self.tail.push_back(batch);
        Ok(())
    }

    /// Applies the whole log. The caller must know that it is committed.
    pub fn apply_tail(&mut self) -> Result<(), String> {
        while let Some(batch) = self.tail.pop_front() {
            batch.load_into(&mut self.loader)?;
        }
        Ok(())
    }

    /// Adds the next batch of the log and applies it.
    pub fn apply(&mut self, batch: MetadataBatch) -> Result<(), String> {
        self.add(batch)?;
        self.apply_tail()
    }

    /// Starts with the snapshot in the file `path`.
    pub fn load_snapshot(
        &mut self,
        id: SnapshotId,
        snapshot: Snapshot,
        path: &Path,
    ) -> Result<(), String> {
        // Its control records take effect at its last record.
        let last_offset = id.end_offset.plus(-1);
        self.control_records
            .set_kraft_version(last_offset, snapshot.kraft_version);
        if let Some(voters) = snapshot.voters {
            self.control_records.set_voters(last_offset, voters);
        }
        if id == SnapshotId::BOOTSTRAP {
            self.bootstrap_records = snapshot.records;
            return Ok(());
        }
        let provenance = Provenance {
            last_contained_offset: last_offset,
            last_contained_epoch: id.epoch,
            last_contained_log_time: snapshot.last_contained_log_time,
        };
        self.loader
            .load_snapshot(&snapshot.records, provenance)
            .map(drop)
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    fn apply_control(&mut self, offset: Offset, value: &ControlValue) -> Result<(), String> {
        let record = match value {
            ControlValue::KRaftVersion(record) => ControlRecord::KRaftVersion(record.clone()),
            ControlValue::Voters(record) => ControlRecord::Voters(record.clone()),
            ControlValue::LeaderChange(_)
            | ControlValue::SnapshotHeader(_)
            | ControlValue::SnapshotFooter(_) => return Ok(()),
        };
        self.control_records
            .add(offset, &record)
            .map_err(|error| error.to_string())
    }
}

/// Forces what the last process has not, because the quorum counts everything in the log as fsynced.
/// Unlike a flush, this needs no disk space.
fn force(dir: &Path, segments: &[WholeSegment], forced: Offset) -> Result<(), StorageError> {
    // Another program may have been killed before its fsync.
    let is_due = |segment: &&WholeSegment| forced == UNMARKED || segment.is_unforced();
    let due: Vec<_> = segments.iter().filter(is_due).collect();
    if due.is_empty() {
        return Ok(());
    }
    for segment in due {
        retry_lacking(|| segment.force())?;
    }
    // The names of its files, and its own.
    for dir in [Some(dir), dir.parent()].into_iter().flatten() {
        let open = || Dir::open(dir).map_err(|error| StorageError::new("open", dir, error));
        let synced = retry_lacking(open)?.sync();
        synced.map_err(|error| StorageError::fsync(dir, error))?;
    }
    Ok(())
}

/// The IDs of all complete snapshots, oldest first. Partial and deleted ones are removed.
fn find_snapshots(dir: &Path) -> io::Result<Vec<SnapshotId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(id) = SnapshotId::from_file_name(name) {
            ids.push(id);
        } else if name.ends_with(".checkpoint.part") || name.ends_with(".checkpoint.deleted") {
            fs::remove_file(dir.join(name))?;
        }
    }
    ids.sort();
    Ok(ids)
}

/// The metadata log is kept until a snapshot covers it: neither time nor size deletes it.
fn log_config(config: &BrokerConfig) -> TopicConfig {
    TopicConfig {
        cleanup_policy: CleanupPolicy::DELETE,
        retention_ms: -1,
        retention_bytes: -1,
        segment_bytes: config.metadata_log_segment_bytes,
        internal_segment_bytes: config.internal_metadata_log_segment_bytes,
        segment_ms: config.metadata_log_segment_ms,
        max_message_bytes: config.internal_metadata_max_batch_size_in_bytes,
        ..TopicConfig::default()
    }
}
