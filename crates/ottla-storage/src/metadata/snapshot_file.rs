//! Snapshot files: `<offset>-<epoch>.checkpoint` of the metadata log, and `bootstrap.checkpoint`.
//!
//! A snapshot is a sequence of batches: control records (a header, and with `kraft.version` 1 the
//! voters), then the records, then a control record as footer. It is written under another name,
//! fsynced and renamed, so that a file of this name is complete.
//!
//! Kafka: `RecordsSnapshotWriter`, `RecordsSnapshotReader`, `FileRawSnapshotWriter`,
//! `BatchFileWriter`.

use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use ottla_log::MayLack;
use ottla_metadata::MetadataVersion;
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_protocol::raft_records::{
    KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord,
};
use ottla_raft::{KRaftVersion, SnapshotId, VoterSet};
use ottla_records::RecordBatch;
use ottla_sync::fs::{self, Dir, File};
use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::record_batches::{
    ControlValue, MetadataBatch, MetadataBatchContent, MetadataReadError, control_batch,
    records_batch,
};

/// Number of records per batch of a snapshot.
const RECORDS_PER_BATCH: usize = 1024;

/// The content of a snapshot.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// The append time of the last contained record; 0 for none.
    pub last_contained_log_time: Timestamp,
    pub kraft_version: KRaftVersion,
    /// `None` with `kraft.version` 0, where the voters are configured.
    pub voters: Option<VoterSet>,
    pub records: Vec<MetadataRecord>,
}

impl Snapshot {
    /// The batches of the file, offsets from 0.
    fn batches(&self, epoch: LeaderEpoch, now: Timestamp) -> io::Result<Vec<RecordBatch>> {
        let metadata_version = self.metadata_version();
        let mut header = vec![ControlValue::SnapshotHeader(SnapshotHeaderRecord {
            version: 0,
            last_contained_log_timestamp: self.last_contained_log_time.value(),
            ..Default::default()
        })];
        if self.kraft_version.is_reconfig_supported() {
            header.push(ControlValue::KRaftVersion(KRaftVersionRecord {
                version: 0,
                kraft_version: self.kraft_version.feature_level(),
                ..Default::default()
            }));
            header.extend(
                self.voters
                    .as_ref()
                    .map(|voters| ControlValue::Voters(voters.to_record())),
            );
        }
        let mut batches =
            vec![control_batch(Offset(0), epoch, now, &header).map_err(io::Error::other)?];
        let mut next_offset = batches[0].header.next_offset();
        for records in self.records.chunks(RECORDS_PER_BATCH) {
            let batch = records_batch(next_offset, epoch, now, records, metadata_version)
                .map_err(io::Error::other)?;
            next_offset = batch.header.next_offset();
            batches.push(batch);
        }
        let footer = [ControlValue::SnapshotFooter(SnapshotFooterRecord::default())];
        batches.push(control_batch(next_offset, epoch, now, &footer).map_err(io::Error::other)?);
        Ok(batches)
    }

    /// The version in which the records are written: `metadata.version` comes first.
    fn metadata_version(&self) -> MetadataVersion {
        self.records
            .iter()
            .find_map(|record| match record {
                MetadataRecord::FeatureLevel(feature)
                    if &*feature.name == MetadataVersion::FEATURE_NAME =>
                {
                    MetadataVersion::from_feature_level(feature.feature_level)
                }
                _ => None,
            })
            .unwrap_or(MetadataVersion::MINIMUM)
    }

    /// Writes the snapshot `id` into the directory of the metadata log. Returns its size in bytes.
    pub fn write(&self, dir: &Path, id: SnapshotId, now: Timestamp) -> io::Result<u64> {
        let partial = dir.join(format!(
            "{id}-{:016x}.checkpoint.part",
            ottla_sync::random::random::<u64>("snapshot file names")
        ));
        let size = self.write_file(&partial, &dir.join(id.file_name()), id.epoch, now)?;
        Dir::open(dir)?.sync()?;
        Ok(size)
    }

    /// Writes `bootstrap.checkpoint`, the initial records of the cluster's first controller. The
    /// file is fsynced; its directory entry is fsynced when `meta.properties` is written into the
    /// directory.
    pub fn write_bootstrap(&self, log_dir: &Path, now: Timestamp) -> io::Result<u64> {
        let partial = log_dir.join(format!("{BOOTSTRAP_FILE}.tmp"));
        self.write_file(&partial, &log_dir.join(BOOTSTRAP_FILE), LeaderEpoch(0), now)
    }

    fn write_file(
        &self,
        partial: &Path,
        path: &Path,
        epoch: LeaderEpoch,
        now: Timestamp,
    ) -> io::Result<u64> {
        let batches = self.batches(epoch, now)?;
        let written = (|| {
            let mut file = File::create(partial)?;
            let mut size = 0;
            for batch in &batches {
                let bytes = batch.to_bytes();
                size += bytes.len() as u64;
                file.write_all(&bytes)?;
            }
            file.sync_all()?;
            fs::rename(partial, path)?;
            Ok(size)
        })();
        if written.is_err() {
            // The partial file is useless; a start would delete it too.
            let _ = fs::remove_file(partial);
        }
        written
    }
}

pub const BOOTSTRAP_FILE: &str = "bootstrap.checkpoint";

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotReadError {
    #[error("cannot read {path}: {error}")]
    Io { path: String, error: io::Error },
    #[error("{path}: {error}")]
    Batch {
        path: String,
        error: MetadataReadError,
    },
    /// The content cannot be skipped.
    #[error(
        "{path}: {error}; it was written by a newer release, or metadata.version is newer than this release"
    )]
    Undecodable {
        path: String,
        error: MetadataReadError,
    },
    #[error("{path}: {reason}")]
    Content { path: String, reason: String },
}

impl MayLack for SnapshotReadError {
    fn is_lack_of_resources(&self) -> bool {
        matches!(self, SnapshotReadError::Io { error, .. } if error.is_lack_of_resources())
    }
}

/// Reads a complete snapshot.
pub fn read_snapshot(path: &Path) -> Result<Snapshot, SnapshotReadError> {
    let name = || path.display().to_string();
    let content = |reason: String| SnapshotReadError::Content {
        path: name(),
        reason,
    };
    let bytes = fs::read(path).map_err(|error| SnapshotReadError::Io {
        path: name(),
        error,
    })?;
    let mut snapshot = Snapshot {
        last_contained_log_time: Timestamp(0),
        kraft_version: KRaftVersion::V0,
        voters: None,
        records: Vec::new(),
    };
    let mut is_complete = false;
    for batch in RecordBatch::read_all(Bytes::from(bytes)) {
        let batch = batch.map_err(|error| SnapshotReadError::Batch {
            path: name(),
            error: MetadataReadError::Batch {
                offset: Offset(0),
                error,
            },
        })?;
        let batch = MetadataBatch::read(&batch).map_err(|error| match error {
            MetadataReadError::Batch { .. } => SnapshotReadError::Batch {
                path: name(),
                error,
            },
            MetadataReadError::Record { .. } | MetadataReadError::NoValue(_) => {
                SnapshotReadError::Undecodable {
                    path: name(),
                    error,
                }
            }
        })?;
        match batch.content {
            MetadataBatchContent::Records(mut records) => snapshot.records.append(&mut records),
            MetadataBatchContent::Control(values) => {
                for value in values {
                    match value {
                        ControlValue::SnapshotHeader(header) => {
                            snapshot.last_contained_log_time =
                                Timestamp(header.last_contained_log_timestamp);
                        }
                        ControlValue::KRaftVersion(record) => {
                            snapshot.kraft_version = KRaftVersion::from_feature_level(
                                record.kraft_version,
                            )
                            .ok_or_else(|| {
                                content(format!(
                                    "kraft.version {} is not known",
                                    record.kraft_version
                                ))
                            })?;
                        }
                        ControlValue::Voters(record) => {
                            let voters = VoterSet::from_record(&record)
                                .map_err(|error| content(error.to_string()))?;
                            snapshot.voters = Some(voters);
                        }
                        ControlValue::SnapshotFooter(_) => is_complete = true,
                        ControlValue::LeaderChange(_) => {}
                    }
                }
            }
        }
    }
    if !is_complete {
        return Err(content("the snapshot ends before its footer".to_owned()));
    }
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use ottla_protocol::metadata_records::FeatureLevelRecord;
    use ottla_raft::{ReplicaKey, Voter, VoterEndpoint};
    use ottla_types::{BrokerId, Uuid};

    use super::*;

    fn snapshot() -> Snapshot {
        let feature = |name: String, feature_level| {
            MetadataRecord::FeatureLevel(FeatureLevelRecord {
                name: name.into(),
                feature_level,
                ..Default::default()
            })
        };
        let mut records = vec![feature("metadata.version".to_owned(), 30)];
        records.extend((0..3000).map(|index| feature(format!("feature.{index}"), 1)));
        Snapshot {
            last_contained_log_time: Timestamp(77),
            kraft_version: KRaftVersion::V1,
            voters: Some(
                VoterSet::new([Voter {
                    key: ReplicaKey::new(BrokerId(1), Uuid::from_u128(100)),
                    endpoints: vec![VoterEndpoint {
                        name: "CONTROLLER".into(),
                        host: "localhost".into(),
                        port: 9093,
                    }],
                    supported_kraft_versions: (0, 1),
                }])
                .unwrap(),
            ),
            records,
        }
    }

    #[test]
    fn snapshots_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let id = SnapshotId {
            end_offset: Offset(42),
            epoch: LeaderEpoch(3),
        };
        let size = snapshot().write(dir.path(), id, Timestamp(1000)).unwrap();
        let path = dir
            .path()
            .join("00000000000000000042-0000000003.checkpoint");
        assert_eq!(fs::metadata(&path).unwrap().len(), size);
        assert_eq!(read_snapshot(&path).unwrap(), snapshot());
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing else is left"
        );
    }

    #[test]
    fn a_truncated_snapshot_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        snapshot()
            .write_bootstrap(dir.path(), Timestamp(1000))
            .unwrap();
        let path = dir.path().join("bootstrap.checkpoint");
        let bytes = fs::read(&path).unwrap();
        // The footer's batch is the last 61 + some bytes; it is cut off completely, then in the
        // middle.
        for cut in [bytes.len() - 100, bytes.len() - 10, 0] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert!(read_snapshot(&path).is_err(), "cut at {cut}");
        }
    }
}
