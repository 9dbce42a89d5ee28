//! Finding batches in the bytes of a remote segment, as they arrive.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use ottla_records::legacy::AnyBatch;
use ottla_records::{BatchError, BatchPrefix};
use ottla_tiered_storage::{RemoteStorageError, SegmentStream};
use ottla_types::Offset;

/// Whole batches of a segment, from the first that has the offset or a later one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundBatches {
    pub base_offset: Offset,
    /// Bytes of the stream before them.
    pub skipped: u64,
    /// Empty if the first batch exceeds the limit and may not.
    pub records: Bytes,
}

#[derive(Debug, thiserror::Error)]
pub enum BatchesError {
    #[error(transparent)]
    Store(#[from] RemoteStorageError),
    #[error("the segment is damaged: {0}")]
    Damaged(#[from] BatchError),
}

/// Reads the stream up to `max_bytes` from the first batch whose last offset is at least `offset`.
/// With `min_one`, the first batch is returned whole whatever its size. `None` if there is no such
/// batch.
pub async fn find_batches(
    mut stream: SegmentStream,
    offset: Offset,
    max_bytes: usize,
    min_one: bool,
) -> Result<Option<FoundBatches>, BatchesError> {
    let mut buffer = BytesMut::new();
    let mut skipped = 0;
    let (base_offset, first_bytes) = loop {
        if let Some(size) = whole_batch(&buffer)? {
            let prefix = BatchPrefix::parse(&buffer)?;
            let batch = AnyBatch::read(&mut Bytes::copy_from_slice(&buffer[..size]))?;
            if batch.last_offset() >= offset {
                break (prefix.base_offset, size);
            }
            let _ = buffer.split_to(size);
            skipped += size as u64;
            continue;
        }
        match stream.next().await {
            Some(part) => buffer.extend_from_slice(&part?),
            None => return Ok(None),
        }
    };
    let found = |records| FoundBatches {
        base_offset,
        skipped,
        records,
    };
    if first_bytes > max_bytes && !min_one {
        return Ok(Some(found(Bytes::new())));
    }
    let limit = max_bytes.max(first_bytes);
    while buffer.len() < limit {
        match stream.next().await {
            Some(part) => buffer.extend_from_slice(&part?),
            None => break,
        }
    }
    let mut end = first_bytes;
    while let Some(size) = whole_batch(&buffer[end..])? {
        if end + size > limit {
            break;
        }
        end += size;
    }
    buffer.truncate(end);
    Ok(Some(found(buffer.freeze())))
}

/// The size of the batch at the front, if it is there as a whole.
fn whole_batch(bytes: &[u8]) -> Result<Option<usize>, BatchError> {
    if bytes.len() < BatchPrefix::SIZE {
        return Ok(None);
    }
    let size = BatchPrefix::parse(bytes)?.size_in_bytes();
    Ok((bytes.len() >= size).then_some(size))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::Timestamp;

    use super::*;

    /// Batches of ten records each, from offset 100 on.
    fn segment() -> Vec<Bytes> {
        (0..3)
            .map(|index| {
                let builder = RecordBatchBuilder::new(Compression::None);
                let mut builder = builder.base_offset(Offset(100 + index * 10));
                for _ in 0..10 {
                    builder.append(Timestamp(1), None, Some(b"value"), &[]);
                }
                builder.build().to_bytes()
            })
            .collect()
    }

    async fn find(offset: i64, max_bytes: usize, min_one: bool) -> Option<FoundBatches> {
        // In parts that end anywhere.
        let bytes = segment().concat();
        let parts: Vec<_> = bytes.chunks(7).map(Bytes::copy_from_slice).collect();
        let stream = stream::iter(parts.into_iter().map(Ok)).boxed();
        find_batches(stream, Offset(offset), max_bytes, min_one)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn batches_from_an_offset_on() {
        let segment = segment();
        let size = segment[0].len();
        let found = find(115, 1 << 20, true).await.unwrap();
        assert_eq!(found.base_offset, Offset(110));
        assert_eq!(found.skipped, size as u64);
        assert_eq!(found.records, segment[1..].concat());
        let found = find(100, size + 1, true).await.unwrap();
        assert_eq!(found.records, segment[0]);
        let found = find(100, 1, true).await.unwrap();
        assert_eq!(found.records, segment[0], "the first batch is whole");
        let found = find(100, 1, false).await.unwrap();
        assert!(found.records.is_empty());
        assert_eq!(find(130, 1 << 20, true).await, None);
    }
}
