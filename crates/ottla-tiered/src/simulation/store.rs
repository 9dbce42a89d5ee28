//! The store and the metadata topic, as everybody would see them.

use std::collections::BTreeMap;

use bytes::Bytes;
use ottla_types::Uuid;

use crate::{LeaderEpochs, RemoteLogMetadata, RemoteLogMetadataCache};

/// A record of a log, and of the object that holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) epoch: i32,
    pub(super) value: u64,
    pub(super) time: i64,
}

/// The objects of one segment.
pub(super) struct Objects {
    pub(super) is_complete: bool,
    pub(super) start: i64,
    pub(super) records: Vec<Record>,
    pub(super) leader_epochs: LeaderEpochs,
}

#[derive(Default)]
pub(super) struct Store {
    pub(super) objects: BTreeMap<Uuid, Objects>,
    /// Until when no request is served.
    pub(super) away_until: i64,
}

/// The topic, and the metadata of a reader of all its records.
pub(super) struct Topic {
    pub(super) records: Vec<Bytes>,
    pub(super) truth: RemoteLogMetadataCache,
}

impl Topic {
    pub(super) fn new() -> Topic {
        let mut truth = RemoteLogMetadataCache::new();
        truth.mark_initialized();
        Topic {
            records: Vec::new(),
            truth,
        }
    }

    /// Appends a record and returns its position.
    pub(super) fn append(&mut self, record: Bytes) -> usize {
        apply(&mut self.truth, &record);
        self.records.push(record);
        self.records.len() - 1
    }
}

/// Records that change nothing are dropped, as by every reader.
pub(super) fn apply(cache: &mut RemoteLogMetadataCache, record: &Bytes) {
    let _ = match RemoteLogMetadata::decode(record).expect("tasks write valid records") {
        RemoteLogMetadata::Segment(metadata) => cache.add(&metadata.segment),
        RemoteLogMetadata::SegmentUpdate(metadata) => cache.update(&metadata.update),
        other => panic!("no task writes {other:?}"),
    };
}
