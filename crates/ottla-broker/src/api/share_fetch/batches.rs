//! The batches that were read, as a share partition needs them, and their positions. They are in a
//! region of a segment file, or in memory if they come from remote storage.
//! Kafka: `ShareFetchUtils.maybeSliceFetchRecords`.

use ottla_coordinator::share_partition::FetchedBatch;
use ottla_protocol::{FileRegion, Records};
use ottla_records::control::ControlRecordType;
use ottla_records::{BatchHeader, RecordBatch};
use ottla_types::ProducerId;

/// A batch, and its position in the bytes read.
pub(super) struct LocatedBatch {
    pub(super) batch: FetchedBatch,
    position: u64,
    len: u64,
}

/// The complete batches that were read. A region was just read into the page cache.
pub(super) fn located_batches(records: &Records) -> std::io::Result<Vec<LocatedBatch>> {
    let mut located = Vec::new();
    let end = records.len();
    let mut position = 0;
    while end - position >= BatchHeader::SIZE as u64 {
        let mut bytes = [0; BatchHeader::SIZE];
        read_exact_at(records, &mut bytes, position)?;
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
                is_abort_marker: is_abort_marker(records, &header, position)?,
            },
            position,
            len,
        });
        position += len;
    }
    Ok(located)
}

fn is_abort_marker(
    records: &Records,
    header: &BatchHeader,
    position: u64,
) -> std::io::Result<bool> {
    if !header.is_control() || header.producer_id == ProducerId::NONE {
        return Ok(false);
    }
    let mut bytes = vec![0; header.size_in_bytes()];
    read_exact_at(records, &mut bytes, position)?;
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

/// Reads at a position relative to the first byte of the records.
fn read_exact_at(records: &Records, buffer: &mut [u8], position: u64) -> std::io::Result<()> {
    match records {
        Records::File(region) => region
            .file
            .read_exact_at(buffer, region.position + position),
        Records::Bytes(bytes) => {
            let start = position as usize;
            let found = bytes.get(start..start + buffer.len());
            buffer.copy_from_slice(found.ok_or(std::io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }
}

/// The records from the batch with the first offset to the one with the last offset.
pub(super) fn slice(
    records: &Records,
    located: &[LocatedBatch],
    first_offset: i64,
    last_offset: i64,
) -> Records {
    let is_meant = |it: &&LocatedBatch| {
        it.batch.last_offset.0 >= first_offset && it.batch.base_offset.0 <= last_offset
    };
    let first = located.iter().find(is_meant);
    let last = located.iter().rev().find(is_meant);
    let (Some(first), Some(last)) = (first, last) else {
        return records.clone();
    };
    let (start, end) = (first.position, last.position + last.len);
    match records {
        Records::File(region) => Records::File(FileRegion {
            file: region.file.clone(),
            position: region.position + start,
            len: end - start,
        }),
        Records::Bytes(bytes) => Records::Bytes(bytes.slice(start as usize..end as usize)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::{Offset, Timestamp};

    use super::*;

    /// A batch with two records.
    fn batch_at(base_offset: i64) -> Bytes {
        let mut builder =
            RecordBatchBuilder::new(Compression::None).base_offset(Offset(base_offset));
        for value in ["a", "b"] {
            builder.append(Timestamp(1), None, Some(value.as_bytes()), &[]);
        }
        builder.build().to_bytes()
    }

    #[test]
    fn batches_are_found_in_a_file_and_in_memory() {
        let batches = [0, 2, 4].map(batch_at);
        let size = batches[0].len();
        let mut whole: Vec<u8> = batches.iter().flat_map(|batch| batch.to_vec()).collect();
        let last_two = whole[size..].to_vec();
        // A batch that the end of the read cuts off is not returned.
        whole.extend_from_slice(&batch_at(6)[..size - 1]);
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &[0; 7]).expect("space before the region");
        std::io::Write::write_all(&mut file, &whole).expect("the batches");
        let in_file = Records::File(FileRegion {
            file: Arc::new(file),
            position: 7,
            len: whole.len() as u64,
        });
        let in_memory = Records::Bytes(whole.into());
        for records in [in_file, in_memory] {
            let located = located_batches(&records).expect("whole batches");
            let ranges = located
                .iter()
                .map(|it| (it.batch.base_offset.0, it.batch.last_offset.0));
            assert_eq!(Vec::from_iter(ranges), [(0, 1), (2, 3), (4, 5)]);
            let sliced = slice(&records, &located, 3, 4);
            assert_eq!(sliced.len(), 2 * size as u64);
            let mut found = vec![0; 2 * size];
            read_exact_at(&sliced, &mut found, 0).expect("the sliced bytes");
            assert_eq!(found, last_two);
        }
    }
}
