//! What is committed: folded into the image, published, and from time to time written down as a snapshot.
//!
//! A node that has just started publishes nothing before it is told to, and is told when it has caught up: then
//! the whole image is one change, however many batches it came in. A broker that opened its partitions batch by
//! batch would go through every state that its cluster ever had.
//!
//! In Kafka: `MetadataLoader`, `SnapshotGenerator`.

use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_raft::{Event, SnapshotId, SnapshotPolicy, SnapshotRetention};
use ottla_types::Offset;

use super::deciding::changes_broker_settings;
use ottla_context::time_of_day;

use super::{Controller, Publish};
use ottla_context::effective_config;
use ottla_storage::metadata::metadata_log::MetadataLogError;
use ottla_storage::metadata::snapshot_file::Snapshot;

impl Controller {
    /// Folds what became committed of what was fetched. A leader's own records are in `deciding`.
    pub(super) fn apply_committed(&mut self) -> Result<(), MetadataLogError> {
        if self.deciding.is_some() {
            return Ok(());
        }
        let Some(high_watermark) = self.quorum.high_watermark() else {
            return Ok(());
        };
        while let Some(batch) = self.uncommitted.front() {
            if batch.last_offset >= high_watermark {
                break;
            }
            let Some(batch) = self.uncommitted.pop_front() else {
                break;
            };
            let (end, bytes) = (batch.last_offset.plus(1), batch.size_bytes);
            let delta = batch
                .load_into(&mut self.committed.0)
                .map_err(|reason| self.log.error(reason))?;
            self.committed.1 = end;
            self.count_committed(bytes);
            if let Some(delta) = delta
                && self.take_committed(end, &delta)
            {
                self.unpublished.push_back(delta);
            }
        }
        Ok(())
    }

    /// Takes a committed change into the image. Returns whether it is to be published.
    pub(super) fn take_committed(&mut self, end: Offset, delta: &MetadataDelta) -> bool {
        if end <= self.image_end_offset {
            return false;
        }
        self.image = delta.after.clone();
        self.image_end_offset = end;
        if self.deciding.is_none() && changes_broker_settings(delta) {
            self.refresh_config();
        }
        self.is_publishing
    }

    /// A snapshot of the leader's replaces everything.
    pub(super) fn take_snapshot(
        &mut self,
        id: SnapshotId,
        snapshot: &Snapshot,
    ) -> Result<(), MetadataLogError> {
        let provenance = ottla_metadata::Provenance {
            last_contained_offset: id.end_offset.plus(-1),
            last_contained_epoch: id.epoch,
            last_contained_log_time: snapshot.last_contained_log_time,
        };
        let loaded = self
            .committed
            .0
            .load_snapshot(&snapshot.records, provenance);
        loaded.map_err(|error| self.log.error(format!("snapshot {id}: {error}")))?;
        self.committed.1 = id.end_offset;
        self.uncommitted.clear();
        let delta = MetadataDelta::between(self.image.clone(), self.committed.0.image().clone());
        // Only what is committed is in a snapshot, and it is fetched for being ahead of the log.
        if self.take_committed(id.end_offset, &delta) {
            self.unpublished.push_back(delta);
        }
        self.refresh_config();
        Ok(())
    }

    pub(super) fn publish_committed(&mut self, publish: &mut Publish) {
        while let Some(delta) = self.unpublished.pop_front() {
            publish(&delta);
        }
    }

    /// From nothing to what there is now, in one change.
    fn begin_publishing(&mut self, publish: &mut Publish) {
        if !std::mem::replace(&mut self.is_publishing, true) {
            publish(&MetadataDelta::between(
                MetadataImage::empty(),
                self.image.clone(),
            ));
        }
    }

    /// Tells those who wait for it that this node knows what its cluster is, and begins to publish where the image has
    /// what that waits for.
    pub(super) fn answer_caught_up(&mut self, publish: &mut Publish) {
        if !self.is_caught_up && self.has_caught_up() {
            self.is_caught_up = true;
            self.update_status();
        }
        if self.is_caught_up {
            for sender in self.waiting_to_catch_up.drain(..) {
                // Whoever asked may have gone.
                let _ = sender.send(self.image.clone());
            }
        }
        let image_end_offset = self.image_end_offset;
        let is_there = |(offset, _): &mut (Offset, _)| *offset < image_end_offset;
        let reached: Vec<_> = self.waiting_to_publish.extract_if(.., is_there).collect();
        for (_, sender) in reached {
            self.begin_publishing(publish);
            let _ = sender.send(());
        }
    }

    fn has_caught_up(&self) -> bool {
        let known = match self.quorum.is_active_leader() {
            true => self.quorum.high_watermark(),
            false => self.leader_high_watermark,
        };
        // A quorum that was just formatted has committed who leads, and nothing about the cluster yet.
        known.is_some_and(|known| self.image_end_offset >= known)
            && self.image.features.metadata_version().is_some()
    }

    pub(super) fn refresh_config(&mut self) {
        let id = ottla_types::BrokerId(self.file_config.node_id);
        // What is not accepted was reported where it was published.
        (self.config, _) = effective_config(&self.file_config, self.image(), id);
    }

    // Snapshots

    pub(super) fn count_committed(&mut self, bytes: u64) {
        let policy = self.snapshot_policy();
        self.snapshot_progress
            .on_committed(bytes, time_of_day(), &policy);
    }

    fn snapshot_policy(&self) -> SnapshotPolicy {
        SnapshotPolicy {
            max_bytes_between: self
                .config
                .metadata_log_max_record_bytes_between_snapshots
                .max(1) as u64,
            max_interval_ms: self.config.metadata_log_max_snapshot_interval_ms,
        }
    }

    pub(super) fn write_snapshot_if_due(&mut self) -> Result<(), MetadataLogError> {
        let now = time_of_day();
        let (loader, _) = &self.committed;
        if !self.snapshot_progress.is_due(now, &self.snapshot_policy())
            || loader.is_in_transaction()
        {
            return Ok(());
        }
        let image = loader.image();
        let last_contained_offset = image.provenance.last_contained_offset;
        let control = self.quorum.control_records();
        let kraft_version = control.kraft_version_at(last_contained_offset);
        let snapshot = Snapshot {
            last_contained_log_time: image.provenance.last_contained_log_time,
            kraft_version,
            voters: control
                .voters_at(last_contained_offset)
                .filter(|_| kraft_version.is_reconfig_supported())
                .cloned(),
            records: image.to_records(),
        };
        let id = SnapshotId {
            end_offset: last_contained_offset.plus(1),
            epoch: image.provenance.last_contained_epoch,
        };
        // Counted as done even if it fails: the next attempt comes with the next bytes, not at once.
        self.snapshot_progress.on_snapshot_written(now);
        self.log.write_snapshot(id, &snapshot, now)?;
        let retention = SnapshotRetention {
            max_bytes: self.config.metadata_max_retention_bytes,
            max_ms: self.config.metadata_max_retention_ms,
        };
        self.log.clean(&retention, now)?;
        self.step(Event::SnapshotsChanged {
            snapshots: self.log.snapshot_ids(),
            log_start_offset: self.log.log_start_offset(),
        })
    }
}
