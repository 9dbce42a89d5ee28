//! Reads the logs on the simulated disks.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use ottla_records::RecordBatch;
use ottla_sync::fs::Disk;

/// A batch on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    pub base_offset: i64,
    pub last_offset: i64,
    pub epoch: i32,
    pub crc: u32,
    /// The id and epoch of a transactional producer.
    pub producer: Option<(i64, i16)>,
    /// Whether it is the marker that ends a transaction of the producer.
    pub is_control: bool,
}

/// The batches of each log on a disk, by the name of its directory, and the number of segments.
pub(crate) fn on_disk(disk: &Disk) -> (BTreeMap<String, Vec<Batch>>, u64) {
    let mut logs: BTreeMap<String, Vec<Batch>> = BTreeMap::new();
    let mut segments = 0;
    let is_segment = |path: &Path| path.extension().is_some_and(|it| it == "log");
    for (path, bytes) in disk.files_where(is_segment) {
        let Some(name) = path.parent().and_then(Path::file_name) else {
            continue;
        };
        let name = name.to_string_lossy().into_owned();
        // Directories of logs that are being deleted, moved or cleaned are skipped.
        let index = name.rsplit('-').next().unwrap_or_default();
        if index.parse::<i32>().is_err() {
            continue;
        }
        segments += 1;
        let log = logs.entry(name).or_default();
        let mut rest = Bytes::from(bytes);
        // The last batch can be incomplete.
        while let Ok(batch) = RecordBatch::read(&mut rest) {
            log.push(Batch {
                base_offset: batch.header.base_offset.0,
                last_offset: batch.header.last_offset().0,
                epoch: batch.header.partition_leader_epoch.0,
                crc: batch.header.crc,
                producer: batch
                    .header
                    .is_transactional()
                    .then_some((batch.header.producer_id.0, batch.header.producer_epoch.0)),
                is_control: batch.header.is_control(),
            });
        }
    }
    (logs, segments)
}
