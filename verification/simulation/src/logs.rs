//! Reads the logs on the simulated disks.

use std::collections::BTreeMap;
use std::path::Path;

use ottla_records::BatchHeader;
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

/// The batches of the requested logs on a disk, by the name of the log's directory.
pub(crate) fn on_disk(
    disk: &Disk,
    is_wanted: impl Fn(&str) -> bool,
) -> BTreeMap<String, Vec<Batch>> {
    let mut logs: BTreeMap<String, Vec<Batch>> = BTreeMap::new();
    let is_of_wanted = |path: &Path| log_of_segment(path).is_some_and(&is_wanted);
    disk.read_files(is_of_wanted, |path, bytes| {
        if let Some(name) = log_of_segment(path) {
            let batches = logs.entry(name.to_owned()).or_default();
            batches.extend(batches_in(bytes));
        }
    });
    logs
}

/// The number of segments of all logs on a disk.
pub(crate) fn count_segments(disk: &Disk) -> u64 {
    let mut segments = 0;
    disk.read_files(|path| log_of_segment(path).is_some(), |_, _| segments += 1);
    segments
}

/// The name of the log's directory, if the file is a segment of a log. Directories of logs that are
/// being deleted, moved or cleaned have other names.
fn log_of_segment(path: &Path) -> Option<&str> {
    let log = path.parent()?.file_name()?.to_str()?;
    let (_, index) = log.rsplit_once('-')?;
    let is_log = path.extension().is_some_and(|it| it == "log") && index.parse::<i32>().is_ok();
    is_log.then_some(log)
}

/// The batches of a segment. The last one can be incomplete and is left out then.
fn batches_in(mut bytes: &[u8]) -> impl Iterator<Item = Batch> {
    std::iter::from_fn(move || {
        let header = BatchHeader::parse(bytes).ok()?;
        bytes = bytes.get(header.size_in_bytes()..)?;
        Some(Batch {
            base_offset: header.base_offset.0,
            last_offset: header.last_offset().0,
            epoch: header.partition_leader_epoch.0,
            crc: header.crc,
            producer: header
                .is_transactional()
                .then_some((header.producer_id.0, header.producer_epoch.0)),
            is_control: header.is_control(),
        })
    })
}

#[cfg(test)]
mod tests {
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::Timestamp;

    use super::*;

    #[test]
    fn an_incomplete_batch_ends_a_segment() {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(Timestamp(5), None, Some(b"one"), &[]);
        builder.append(Timestamp(5), None, Some(b"two"), &[]);
        let batch = builder.build_in_place();
        let segment = [&batch[..], &batch[..]].concat();
        let found: Vec<Batch> = batches_in(&segment).collect();
        let offsets = found.iter().map(|it| (it.base_offset, it.last_offset));
        assert!(offsets.eq([(0, 1), (0, 1)]));
        for cut in 1..batch.len() {
            assert_eq!(batches_in(&segment[..segment.len() - cut]).count(), 1);
        }
        assert_eq!(batches_in(&[]).count(), 0);
    }

    #[test]
    fn segments_are_those_of_logs_in_use() {
        let log = |path: &'static str| log_of_segment(Path::new(path));
        assert_eq!(log("/data/a-b-0/00000000000000000000.log"), Some("a-b-0"));
        assert_eq!(log("/data/a-0/00000000000000000000.index"), None);
        assert_eq!(log("/data/a-0.4f-delete/00000000000000000000.log"), None);
        assert_eq!(log("/data/meta.log"), None);
    }
}
