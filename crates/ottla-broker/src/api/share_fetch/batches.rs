//! The batches in a region that was read, as a share partition needs them, and their positions.
//! Kafka: `ShareFetchUtils.maybeSliceFetchRecords`.

use ottla_coordinator::share_partition::FetchedBatch;
use ottla_protocol::FileRegion;
use ottla_records::control::ControlRecordType;
use ottla_records::{BatchHeader, RecordBatch};
use ottla_types::ProducerId;

/// A batch and its position in the file.
pub(super) struct LocatedBatch {
    pub(super) batch: FetchedBatch,
    position: u64,
    len: u64,
}

/// The complete batches in a region. The region was just read into the page cache.
pub(super) fn located_batches(region: &FileRegion) -> std::io::Result<Vec<LocatedBatch>> {
    let mut located = Vec::new();
    let end = region.position + region.len;
    let mut position = region.position;
    while end - position >= BatchHeader::SIZE as u64 {
        let mut bytes = [0; BatchHeader::SIZE];
        region.file.read_exact_at(&mut bytes, position)?;
        let header = BatchHeader::parse(&bytes).map_err(std::io::Error::other)?;
        let len = header.size_in_bytes() as u64;
        if len > end - position {
            break;
        }
        located.push(LocatedBatch {
            batch: FetchedBatch {
                base_offset: header.base_offset,
                last_offset: header.last_offset(),
                producer_id: header.producer_id,
                is_transactional: header.is_transactional(),
                is_abort_marker: is_abort_marker(region, &header, position)?,
            },
            position,
            len,
        });
        position += len;
    }
    Ok(located)
}

fn is_abort_marker(
    region: &FileRegion,
    header: &BatchHeader,
    position: u64,
) -> std::io::Result<bool> {
    if !header.is_control() || header.producer_id == ProducerId::NONE {
        return Ok(false);
    }
    let mut bytes = vec![0; header.size_in_bytes()];
    region.file.read_exact_at(&mut bytes, position)?;
    let batch = RecordBatch::read(&mut bytes.into()).map_err(std::io::Error::other)?;
    let records = batch
        .records(header.size_in_bytes())
        .map_err(std::io::Error::other)?;
    let Some(Ok(first)) = records.iter().next() else {
        return Ok(false);
    };
    let kind = ControlRecordType::parse_key(first.key.unwrap_or_default());
    Ok(matches!(kind, Ok(Some(ControlRecordType::Abort))))
}

/// The part of the region from the batch with the first offset to the one with the last offset.
pub(super) fn slice(
    region: &FileRegion,
    located: &[LocatedBatch],
    first_offset: i64,
    last_offset: i64,
) -> FileRegion {
    let is_meant = |it: &&LocatedBatch| {
        it.batch.last_offset.0 >= first_offset && it.batch.base_offset.0 <= last_offset
    };
    let first = located.iter().find(is_meant);
    let last = located.iter().rev().find(is_meant);
    let (Some(first), Some(last)) = (first, last) else {
        return region.clone();
    };
    FileRegion {
        file: region.file.clone(),
        position: first.position,
        len: last.position + last.len - first.position,
    }
}
