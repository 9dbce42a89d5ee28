//! Finding batches in the bytes of a remote segment, as they arrive.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use ottla_records::legacy::AnyBatch;
use ottla_records::{BatchError, BatchHeader, BatchPrefix};
use ottla_tiered_storage::{RemoteStorageError, SegmentStream};
use ottla_types::Offset;

/// Whole batches of a segment, from the first that has the offset or a later one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundBatches {
    pub base_offset: Offset,
    /// Where they begin in the segment.
    pub position: u32,
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
    /// To be read from this position on, when so much is reserved.
    #[error("its batch at position {position} has {size} bytes, more than are reserved")]
    NotReserved { position: u32, size: usize },
}

/// How much `find_batches` reads.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    pub max_bytes: usize,
    /// The first batch is returned whole even if it exceeds `max_bytes`.
    pub min_one: bool,
    /// The part of the budget for remote reads that the reader holds, at least `max_bytes`. A larger first
    /// batch is not read.
    pub reserved_bytes: usize,
    /// A batch that claims to be larger is damaged. Otherwise a wrong length would make the rest of
    /// the segment be held in memory.
    pub max_batch_bytes: usize,
    /// Batches that begin here or later are not part of the log.
    pub end: Offset,
}

/// Reads the stream, which begins at `position` of its segment, up to `max_bytes` from the first
/// batch whose last offset is at least `offset`. Ends before a damaged batch, unless that is the
/// first. `None` if there is no such batch before the end. Of the batches before, only the headers
/// are held in memory.
pub async fn find_batches(
    stream: SegmentStream,
    position: u32,
    offset: Offset,
    limits: BatchLimits,
) -> Result<Option<FoundBatches>, BatchesError> {
    let BatchLimits {
        max_bytes,
        min_one,
        reserved_bytes,
        max_batch_bytes,
        end: log_end,
    } = limits;
    let mut source = Source {
        stream,
        rest: Bytes::new(),
    };
    let mut buffer = BytesMut::new();
    let mut position = position;
    let (prefix, first_bytes) = loop {
        source.fill(&mut buffer, BatchPrefix::SIZE).await?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let Some(size) = batch_size(&buffer, max_batch_bytes)? else {
            // The reader would go on with the next segment, and the records would be lost silently.
            return Err(BatchesError::Cut(buffer.len()));
        };
        let header = size.min(BatchHeader::SIZE);
        if !source.fill(&mut buffer, header).await? {
            return Err(BatchesError::Cut(buffer.len()));
        }
        let prefix = BatchPrefix::parse(&buffer)?;
        let last_offset = match prefix.magic {
            0 | 1 => prefix.base_offset,
            _ => BatchHeader::parse(&buffer)?.last_offset(),
        };
        if prefix.base_offset >= log_end {
            return Ok(None);
        }
        if last_offset >= offset {
            break (prefix, size);
        }
        let missing = source.skip(size - buffer.len()).await?;
        if missing > 0 {
            return Err(BatchesError::Cut(size - missing));
        }
        buffer.clear();
        position = position.saturating_add(u32::try_from(size).unwrap_or(u32::MAX));
    };
    let found = |records| FoundBatches {
        base_offset: prefix.base_offset,
        position,
        records,
    };
    if first_bytes > max_bytes && !min_one {
        return Ok(Some(found(Bytes::new())));
    }
    if first_bytes > reserved_bytes {
        return Err(BatchesError::NotReserved {
            position,
            size: first_bytes,
        });
    }
    buffer.reserve(first_bytes - buffer.len());
    if !source.fill(&mut buffer, first_bytes).await? {
        return Err(BatchesError::Cut(buffer.len()));
    }
    if prefix.magic < 2 {
        // A message of an older format. Its fields are checked too.
        AnyBatch::read(&mut Bytes::copy_from_slice(&buffer))?;
    }
    source.fill(&mut buffer, max_bytes).await?;
    let mut end = first_bytes;
    while let Ok(Some(size)) = batch_size(&buffer[end..], max_batch_bytes) {
        let prefix = BatchPrefix::parse(&buffer[end..])?;
        if end + size > buffer.len() || prefix.base_offset >= log_end {
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

/// A stream whose parts are taken piece by piece.
struct Source {
    stream: SegmentStream,
    /// Of the last part.
    rest: Bytes,
}

impl Source {
    /// The next bytes, at most this many. `None` at the end.
    async fn next(&mut self, at_most: usize) -> Result<Option<Bytes>, RemoteStorageError> {
        while self.rest.is_empty() {
            match self.stream.next().await {
                Some(part) => self.rest = part?,
                None => return Ok(None),
            }
        }
        let size = self.rest.len().min(at_most);
        Ok(Some(self.rest.split_to(size)))
    }

    /// Reads until the buffer has this many bytes. False if the stream ends before.
    async fn fill(
        &mut self,
        buffer: &mut BytesMut,
        size: usize,
    ) -> Result<bool, RemoteStorageError> {
        while buffer.len() < size {
            match self.next(size - buffer.len()).await? {
                Some(bytes) => buffer.extend_from_slice(&bytes),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Skips bytes. Returns how many of them are missing, because the stream ends before.
    async fn skip(&mut self, mut bytes: usize) -> Result<usize, RemoteStorageError> {
        while bytes > 0 {
            match self.next(bytes).await? {
                Some(skipped) => bytes -= skipped.len(),
                None => break,
            }
        }
        Ok(bytes)
    }
}

/// The size of the batch at the front, as it claims. `None` if its prefix is not complete.
fn batch_size(bytes: &[u8], max_batch_bytes: usize) -> Result<Option<usize>, BatchesError> {
    if bytes.len() < BatchPrefix::SIZE {
        return Ok(None);
    }
    let size = BatchPrefix::parse(bytes)?.size_in_bytes();
    if size > max_batch_bytes {
        let limit = max_batch_bytes;
        return Err(BatchesError::TooLarge { size, limit });
    }
    Ok(Some(size))
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
    /// Of the stream in the segment.
    const POSITION: u32 = 5_000;

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
            reserved_bytes: MAX_BATCH_BYTES.max(max_bytes),
            max_batch_bytes: MAX_BATCH_BYTES,
            end: Offset(i64::MAX),
        };
        find_batches(in_parts(bytes), POSITION, Offset(offset), limits).await
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
        assert_eq!(found.position, POSITION + size as u32);
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
                reserved_bytes: 1 << 20,
                max_batch_bytes: MAX_BATCH_BYTES,
                end: Offset(end),
            };
            let stream = in_parts(&segment.concat());
            find_batches(stream, POSITION, Offset(offset), limits)
                .await
                .unwrap()
        };
        let found = find(105, 120).await.unwrap();
        assert_eq!(found.records, segment[..2].concat());
        assert_eq!(find(120, 120).await, None);
        assert_eq!(find(115, 110).await, None);
    }

    #[tokio::test]
    async fn a_first_batch_that_is_larger_than_what_is_reserved_is_not_read() {
        let segment = segment();
        let size = segment[0].len();
        let find = async |offset: i64, min_one: bool, reserved_bytes: usize| {
            let limits = BatchLimits {
                max_bytes: 10,
                min_one,
                reserved_bytes,
                max_batch_bytes: MAX_BATCH_BYTES,
                end: Offset(i64::MAX),
            };
            // Only what tells the size of the third batch is there.
            let bytes = segment[..2].concat();
            let bytes = [&bytes[..], &segment[2][..BatchHeader::SIZE]].concat();
            find_batches(in_parts(&bytes), POSITION, Offset(offset), limits).await
        };
        for (offset, before) in [(105, 0), (125, 2 * size)] {
            let at = POSITION + before as u32;
            let found = find(offset, true, size - 1).await;
            assert!(
                matches!(
                    found,
                    Err(BatchesError::NotReserved { position, size: of_batch })
                        if (position, of_batch) == (at, size)
                ),
                "{found:?}"
            );
            let found = find(offset, false, 10).await.unwrap().unwrap();
            assert!(found.records.is_empty());
        }
        let found = find(105, true, size).await.unwrap().unwrap();
        assert_eq!(found.records, segment[0]);
        let found = find(125, true, size).await;
        assert!(matches!(found, Err(BatchesError::Cut(BatchHeader::SIZE))));
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
        // Also one that is skipped.
        let found = find_in(&bytes[..third - 1], 125, 1 << 20, true).await;
        let rest = segment[1].len() - 1;
        assert!(
            matches!(found, Err(BatchesError::Cut(cut)) if cut == rest),
            "{found:?}"
        );
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
