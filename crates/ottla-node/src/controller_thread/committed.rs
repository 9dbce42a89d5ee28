//! Applies committed records to the image, and hands changes to the publisher thread
//! (`publishing`).
//!
//! A node that has just started publishes nothing until it has caught up. Then it publishes the
//! whole image as one change, regardless of the number of batches that it has read. Otherwise the
//! broker would open its partitions batch by batch, and pass through every earlier state of the
//! cluster.
//!
//! In Kafka: `MetadataLoader`.

use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_raft::SnapshotId;
use ottla_types::Offset;

use super::Controller;
use super::deciding::changes_broker_settings;
use ottla_context::effective_config;
use ottla_storage::metadata::metadata_log::MetadataLogError;
use ottla_storage::metadata::snapshot_file::Snapshot;

impl Controller {
    /// Applies the fetched batches that have become committed. The records of a leader are handled
    /// in `deciding`.
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
            if let Some(delta) = delta {
                self.take_committed(end, delta);
            }
        }
        Ok(())
    }

    /// Applies a committed change to the image, and publishes it.
    pub(super) fn take_committed(&mut self, end: Offset, delta: MetadataDelta) {
        if end <= self.image_end_offset {
            return;
        }
        self.image = delta.after.clone();
        self.image_end_offset = end;
        if self.deciding.is_none() && changes_broker_settings(&delta) {
            self.refresh_config();
        }
        if self.is_publishing {
            self.publisher.publish(delta, end);
        }
    }

    /// Replaces everything with a snapshot of the leader.
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
        // A snapshot contains only committed records, and is fetched only if it ends after the log.
        self.take_committed(id.end_offset, delta);
        self.refresh_config();
        Ok(())
    }

    /// Publishes the whole image as one change.
    fn begin_publishing(&mut self) {
        if !std::mem::replace(&mut self.is_publishing, true) {
            let delta = MetadataDelta::between(MetadataImage::empty(), self.image.clone());
            self.publisher.publish(delta, self.image_end_offset);
        }
    }

    /// Answers the waiting requests when this node has caught up, and begins publishing when the
    /// image contains the record for which that waits.
    pub(super) fn answer_caught_up(&mut self) {
        if !self.is_caught_up && self.has_caught_up() {
            self.is_caught_up = true;
            self.update_status();
        }
        if self.is_caught_up {
            for sender in self.waiting_to_catch_up.drain(..) {
                // The requester may be gone.
                let _ = sender.send(self.image.clone());
            }
        }
        let image_end_offset = self.image_end_offset;
        let is_there = |(offset, _): &mut (Offset, _)| {
            *offset < image_end_offset
                || ottla_sync::planted::has("a broker serves before it is registered")
        };
        let reached: Vec<_> = self.waiting_to_publish.extract_if(.., is_there).collect();
        for (_, sender) in reached {
            self.begin_publishing();
            let _ = sender.send(self.image_end_offset);
        }
    }

    fn has_caught_up(&self) -> bool {
        let known = match self.quorum.is_active_leader() {
            true => self.quorum.high_watermark(),
            false => self.leader_high_watermark,
        };
        // A quorum that was just formatted has committed its leader and no records of the cluster
        // yet.
        known.is_some_and(|known| self.image_end_offset >= known)
            && self.image.features.metadata_version().is_some()
    }

    pub(super) fn refresh_config(&mut self) {
        let id = ottla_types::BrokerId(self.file_config.node_id);
        // Settings that are refused were reported where they were published.
        (self.config, _) = effective_config(&self.file_config, &self.config, self.image(), id);
    }
}
