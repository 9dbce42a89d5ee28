//! Writes snapshots of the committed metadata on a separate thread: writing and flushing a file
//! with the whole metadata takes time, in which the quorum must be answered. The completion is an
//! event for the quorum thread, which then deletes the files that the snapshot replaces.
//!
//! Only one snapshot is written at a time. If one fails, the only consequence is a longer log.
//!
//! In Kafka: the event queue of `SnapshotGenerator`, and `KafkaRaftClient.createSnapshot`.

use ottla_raft::{Event, SnapshotId, SnapshotPolicy, SnapshotRetention, StoredSnapshot};

use ottla_context::time_of_day;

use super::Controller;
use crate::quorum::work::SnapshotWritten;
use ottla_storage::metadata::metadata_log::MetadataLogError;
use ottla_storage::metadata::snapshot_file::Snapshot;

impl Controller {
    fn snapshot_policy(&self) -> SnapshotPolicy {
        SnapshotPolicy {
            max_bytes_between: self
                .config
                .metadata_log_max_record_bytes_between_snapshots
                .max(1) as u64,
            max_interval_ms: self.config.metadata_log_max_snapshot_interval_ms,
        }
    }

    pub(super) fn count_committed(&mut self, bytes: u64) {
        let policy = self.snapshot_policy();
        self.snapshot_progress
            .on_committed(bytes, time_of_day(), &policy);
    }

    /// Starts to write a snapshot of the committed metadata, if one is due.
    pub(super) fn begin_snapshot_if_due(&mut self) {
        let now = time_of_day();
        let (loader, _) = &self.committed;
        if self.snapshot_writer.is_writing()
            || loader.is_in_transaction()
            || !self.snapshot_progress.is_due(now, &self.snapshot_policy())
        {
            return;
        }
        // Counted even if the snapshot fails, so that the next attempt waits for further bytes.
        self.snapshot_progress.on_snapshot_written(now);
        let image = loader.image().clone();
        let provenance = image.provenance;
        let id = SnapshotId {
            end_offset: provenance.last_contained_offset.plus(1),
            epoch: provenance.last_contained_epoch,
        };
        if self.log.snapshot_ids().contains(&id) {
            return;
        }
        let control = self.quorum.control_records();
        let kraft_version = control.kraft_version_at(provenance.last_contained_offset);
        let voters = control
            .voters_at(provenance.last_contained_offset)
            .filter(|_| kraft_version.is_reconfig_supported())
            .cloned();
        let write = self.log.snapshot_write(now);
        self.snapshot_writer.start(move || {
            let snapshot = Snapshot {
                last_contained_log_time: provenance.last_contained_log_time,
                kraft_version,
                voters,
                records: image.to_records(),
            };
            SnapshotWritten {
                id,
                last_contained_log_time: snapshot.last_contained_log_time,
                outcome: write(&snapshot, id),
            }
        });
    }

    /// Handles the completion of a snapshot: on success, deletes the files that it replaces.
    pub(super) fn on_snapshot_written(
        &mut self,
        written: SnapshotWritten,
    ) -> Result<(), MetadataLogError> {
        self.snapshot_writer.finish();
        let (id, now) = (written.id, time_of_day());
        let kept = (|| {
            let size_bytes = written.outcome.map_err(|error| {
                self.log
                    .error(format!("cannot write snapshot {id}: {error}"))
            })?;
            self.log.add_snapshot(StoredSnapshot {
                id,
                size_bytes,
                last_contained_log_time: written.last_contained_log_time,
            })?;
            let retention = SnapshotRetention {
                max_bytes: self.config.metadata_max_retention_bytes,
                max_ms: self.config.metadata_max_retention_ms,
            };
            self.log.clean(&retention, now)
        })();
        if let Err(error) = kept {
            tracing::error!("{error}");
            return Ok(());
        }
        self.step(Event::SnapshotsChanged {
            snapshots: self.log.snapshot_ids(),
            log_start_offset: self.log.log_start_offset(),
        })
    }
}
