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
    #[error("it is damaged: {0}")]
    Damaged(#[from] BatchError),
    #[error("it is damaged: it ends {0} bytes after the beginning of a batch")]
    Cut(usize),
    #[error("it is damaged: a batch claims to have {size} bytes, more than {limit}")]
    TooLarge { size: usize, limit: usize },
}

/// How much `find_batches` reads.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    pub max_bytes: usize,
    /// The first batch is returned whole even if it exceeds `max_bytes`.
    pub min_one: bool,
    /// A batch that claims to be larger is damaged. Otherwise a wrong length would make the rest of
    /// the segment be held in memory.
    pub max_batch_bytes: usize,
    /// Batches that begin here or later are not part of the log.
    pub end: Offset,
}

/// Reads the stream up to `max_bytes` from the first batch whose last offset is at least `offset`.
/// Ends before a damaged batch, unless that is the first. `None` if there is no such batch before the
/// end.
pub async fn find_batches(
    mut stream: SegmentStream,
    offset: Offset,
    limits: BatchLimits,
) -> Result<Option<FoundBatches>, BatchesError> {
    let BatchLimits {
        max_bytes,
        min_one,
        max_batch_bytes,
        end: log_end,
    } = limits;
    let mut buffer = BytesMut::new();
    let mut skipped = 0;
    let (base_offset, first_bytes) = loop {
        if let Some(size) = whole_batch(&buffer, max_batch_bytes)? {
            let prefix = BatchPrefix::parse(&buffer)?;
            let batch = AnyBatch::read(&mut Bytes::copy_from_slice(&buffer[..size]))?;
            if prefix.base_offset >= log_end {
                return Ok(None);
            }
            if batch.last_offset() >= offset {
                break (prefix.base_offset, size);
            }
            let _ = buffer.split_to(size);
            skipped += size as u64;
            continue;
        }
        match stream.next().await {
            Some(part) => buffer.extend_from_slice(&part?),
            None if buffer.is_empty() => return Ok(None),
            // The reader would go on with the next segment, and the records would be lost silently.
            None => return Err(BatchesError::Cut(buffer.len())),
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
    while let Ok(Some(size)) = whole_batch(&buffer[end..], max_batch_bytes) {
        let prefix = BatchPrefix::parse(&buffer[end..])?;
        if end + size > limit || prefix.base_offset >= log_end {
            break;
        }
        end += size;
    }
    // The rest of the buffer would stay in memory with the batches, and the budget for remote reads
    // does not count it.
    if end < buffer.capacity() / 4 * 3 {
        return Ok(Some(found(Bytes::copy_from_slice(&buffer[..end]))));
    }
    buffer.truncate(end);
    Ok(Some(found(buffer.freeze())))
}

/// The size of the batch at the front, if it is complete.
fn whole_batch(bytes: &[u8], max_batch_bytes: usize) -> Result<Option<usize>, BatchesError> {
    if bytes.len() < BatchPrefix::SIZE {
        return Ok(None);
    }
    let size = BatchPrefix::parse(bytes)?.size_in_bytes();
    if size > max_batch_bytes {
        let limit = max_batch_bytes;
        return Err(BatchesError::TooLarge { size, limit });
    }
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

    const MAX_BATCH_BYTES: usize = 10_000;

    /// In parts that end anywhere.
    fn in_parts(bytes: &[u8]) -> SegmentStream {
        let parts: Vec<_> = bytes.chunks(7).map(Bytes::copy_from_slice).collect();
        stream::iter(parts.into_iter().map(Ok)).boxed()
    }

    async fn find_in(
        bytes: &[u8],
        offset: i64,
        max_bytes: usize,
        min_one: bool,
    ) -> Result<Option<FoundBatches>, BatchesError> {
        let limits = BatchLimits {
            max_bytes,
            min_one,
            max_batch_bytes: MAX_BATCH_BYTES,
            end: Offset(i64::MAX),
        };
        find_batches(in_parts(bytes), Offset(offset), limits).await
    }

    async fn find(offset: i64, max_bytes: usize, min_one: bool) -> Option<FoundBatches> {
        let found = find_in(&segment().concat(), offset, max_bytes, min_one).await;
        found.unwrap()
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

    #[tokio::test]
    async fn batches_after_the_end_are_left_out() {
        let segment = segment();
        let find = async |offset: i64, end: i64| {
            let limits = BatchLimits {
                max_bytes: 1 << 20,
                min_one: true,
                max_batch_bytes: MAX_BATCH_BYTES,
                end: Offset(end),
            };
            let stream = in_parts(&segment.concat());
            find_batches(stream, Offset(offset), limits).await.unwrap()
        };
        let found = find(105, 120).await.unwrap();
        assert_eq!(found.records, segment[..2].concat());
        assert_eq!(find(120, 120).await, None);
        assert_eq!(find(115, 110).await, None);
    }

    #[tokio::test]
    async fn a_batch_that_is_cut_off_is_damaged() {
        let segment = segment();
        let bytes = segment.concat();
        let cut = &bytes[..bytes.len() - 1];
        let before = find_in(cut, 105, 1 << 20, true).await.unwrap();
        assert_eq!(before.unwrap().records, segment[..2].concat());
        // Also within its first bytes, which tell its size.
        let third = segment[0].len() + segment[1].len();
        for rest in [segment[2].len() - 1, 5] {
            let found = find_in(&bytes[..third + rest], 125, 1 << 20, true).await;
            assert!(
                matches!(found, Err(BatchesError::Cut(cut)) if cut == rest),
                "{found:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_wrong_length_is_not_waited_for() {
        let segment = segment();
        let mut bytes = segment.concat();
        // The length of the second batch.
        let at = segment[0].len() + 8;
        bytes[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        let before = find_in(&bytes, 105, 1 << 20, true).await.unwrap();
        assert_eq!(before.unwrap().records, segment[0], "ends before it");
        let found = find_in(&bytes, 115, 1 << 20, true).await;
        assert!(
            matches!(
                found,
                Err(BatchesError::TooLarge {
                    limit: MAX_BATCH_BYTES,
                    ..
                })
            ),
            "{found:?}"
        );
    }
}
