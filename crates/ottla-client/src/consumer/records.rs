//! Reads the fetched data of one partition incrementally.
//!
//! Pure. Batches are checked and decompressed one at a time, when their records are needed. Keys
//! and values are slices of the response. Control records are skipped, and with `read_committed`
//! also the records of aborted transactions
//! (`org.apache.kafka.clients.consumer.internals.CompletedFetch`).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use ottla_protocol::messages::fetch_response::AbortedTransaction;
use ottla_records::control::ControlRecordType;
use ottla_records::legacy::{AnyBatch, LegacyMessage};
use ottla_records::{
    BatchError, BatchHeader, BatchPrefix, BatchRecords, Compression, RecordBatch,
    RecordBatchBuilder, RecordHeader, RecordView, TimestampType,
};

/// The default of the maximum decompressed size of a batch. Larger ones are treated as malicious.
pub(super) const MAX_BATCH_BYTES: usize = 1 << 30;

/// An owned record whose key and value are slices of the response.
///
/// ```no_run
/// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
/// use std::time::Duration;
///
/// for record in consumer.poll(Duration::from_secs(1)).await? {
///     let key = record.key.as_deref().map(String::from_utf8_lossy);
///     println!("{key:?} at {}, {} headers", record.timestamp, record.headers.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerRecord {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    pub leader_epoch: i32,
    pub timestamp: i64,
    pub timestamp_type: TimestampType,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<RecordHeader>,
}

/// The unread records of one batch, borrowed when they are accessed.
///
/// ```no_run
/// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
/// use std::time::Duration;
///
/// for batch in consumer.poll_batches(Duration::from_secs(1)).await? {
///     println!("{}-{}: {} records", batch.topic, batch.partition, batch.record_count());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FetchedBatch {
    pub topic: Arc<str>,
    pub partition: i32,
    pub leader_epoch: i32,
    pub timestamp_type: TimestampType,
    /// The batch also has records before this offset, which are skipped.
    first_offset: i64,
    /// Whether some records are before `first_offset`.
    is_begun: bool,
    /// Inclusive.
    last_offset: i64,
    records: BatchRecords,
}

impl FetchedBatch {
    /// The records, without copies.
    ///
    /// ```no_run
    /// # fn example(batch: &ottla_client::FetchedBatch) {
    /// for record in batch.iter() {
    ///     match record {
    ///         Ok(record) => println!("{}: {:?}", record.offset, record.value),
    ///         Err(error) => println!("the rest of the batch cannot be read: {error}"),
    ///     }
    /// }
    /// # }
    /// ```
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Result<RecordView<'_>, BatchError>> {
        let first_offset = self.first_offset;
        self.records.iter().filter(move |record| {
            record
                .as_ref()
                .map_or(true, |record| record.offset.0 >= first_offset)
        })
    }

    /// The number of records in the batch, including those before the position.
    ///
    /// ```no_run
    /// # fn example(batch: &ottla_client::FetchedBatch) {
    /// println!("{} records", batch.record_count());
    /// # }
    /// ```
    pub fn record_count(&self) -> usize {
        usize::try_from(self.records.record_count()).unwrap_or(0)
    }

    /// All records of the batch as they are encoded, decompressed; also those before the position. Keys, values and headers
    /// are parts of it, so that a search can pass over a batch as a whole.
    ///
    /// ```no_run
    /// # fn example(batch: &ottla_client::FetchedBatch) {
    /// let may_match = batch.bytes().windows(5).any(|bytes| bytes == b"error");
    /// # }
    /// ```
    pub fn bytes(&self) -> &[u8] {
        self.records.bytes()
    }

    /// The offset of the first record that the batch was written with, which can be before the position.
    ///
    /// ```no_run
    /// # fn example(batch: &ottla_client::FetchedBatch) {
    /// println!("{} to {}", batch.base_offset(), batch.last_offset());
    /// # }
    /// ```
    pub fn base_offset(&self) -> i64 {
        self.records.base_offset().0
    }

    /// Whether no record of the batch is before the position.
    ///
    /// ```no_run
    /// # fn example(batch: &ottla_client::FetchedBatch) {
    /// if batch.is_whole() {
    ///     println!("all {} records are new", batch.record_count());
    /// }
    /// # }
    /// ```
    pub fn is_whole(&self) -> bool {
        !self.is_begun
    }

    /// The number of records from the position on, and their size.
    fn wanted(&self) -> Extent {
        if !self.is_begun {
            return Extent {
                records: self.record_count(),
                bytes: self.bytes().len(),
            };
        }
        self.iter()
            .flatten()
            .fold(Extent::default(), |sum, record| {
                sum.plus(record.size_in_bytes)
            })
    }

    /// The last offset of the batch, whether or not its record still exists.
    ///
    /// ```no_run
    /// # fn example(batch: &ottla_client::FetchedBatch) {
    /// println!("the next batch begins after {}", batch.last_offset());
    /// # }
    /// ```
    pub fn last_offset(&self) -> i64 {
        self.last_offset
    }

    /// The next record, owned, and its size in bytes.
    pub(crate) fn next_record(&mut self) -> Option<Result<(ConsumerRecord, usize), BatchError>> {
        loop {
            let begins = self.records.position();
            let record = match self.records.next()? {
                Ok(record) if record.offset.0 < self.first_offset => continue,
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            self.first_offset = record.offset.0.saturating_add(1);
            self.is_begun = true;
            let size = self.records.position() - begins;
            let record = ConsumerRecord {
                topic: self.topic.clone(),
                partition: self.partition,
                offset: record.offset.0,
                leader_epoch: self.leader_epoch,
                timestamp: record.timestamp.0,
                timestamp_type: self.timestamp_type,
                key: record.key,
                value: record.value,
                headers: record.headers,
            };
            return Some(Ok((record, size)));
        }
    }
}

/// A number of records and their uncompressed size without batch headers, as Kafka counts consumed
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Extent {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

impl Extent {
    fn plus(self, record_bytes: usize) -> Extent {
        Extent {
            records: self.records + 1,
            bytes: self.bytes + record_bytes,
        }
    }
}

/// Fetched data and the read position in it.
#[derive(Clone, Debug)]
pub(crate) struct CompletedFetch {
    topic: Arc<str>,
    partition: i32,
    remaining: Bytes,
    /// The next offset, after all returned and skipped records.
    next_offset: i64,
    /// The offset after the last batch.
    end_offset: i64,
    bytes_per_offset: f64,
    checks_crcs: bool,
    max_batch_bytes: usize,
    /// Aborted transactions that have not started yet, ordered by first offset.
    aborted: VecDeque<AbortedTransaction>,
    aborted_producers: BTreeSet<i64>,
    /// The batch that is partly returned.
    open: Option<FetchedBatch>,
    handed_out: Extent,
}

impl CompletedFetch {
    /// `aborted` is empty with read_uncommitted.
    pub(crate) fn new(
        topic: Arc<str>,
        partition: i32,
        bytes: Bytes,
        from: i64,
        mut aborted: Vec<AbortedTransaction>,
        checks_crcs: bool,
    ) -> CompletedFetch {
        aborted.sort_by_key(|transaction| transaction.first_offset);
        let end_offset = end_of(&bytes).unwrap_or(from).max(from);
        let bytes_per_offset = bytes.len() as f64 / (end_offset - from).max(1) as f64;
        CompletedFetch {
            topic,
            partition,
            remaining: bytes,
            next_offset: from,
            end_offset,
            bytes_per_offset,
            checks_crcs,
            max_batch_bytes: MAX_BATCH_BYTES,
            aborted: aborted.into(),
            aborted_producers: BTreeSet::new(),
            open: None,
            handed_out: Extent::default(),
        }
    }

    /// Refuses batches that are larger when they are decompressed.
    pub(super) fn with_max_batch_bytes(mut self, max_batch_bytes: usize) -> CompletedFetch {
        self.max_batch_bytes = max_batch_bytes;
        self
    }

    pub(super) fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// The offset of the next fetch.
    pub(super) fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// The estimated number of bytes after this data in a log that ends at `end`, based on the
    /// average record size here.
    pub(super) fn expected_bytes_behind(&self, end: i64) -> f64 {
        (end.saturating_sub(self.end_offset)).max(0) as f64 * self.bytes_per_offset
    }

    pub(super) fn handed_out(&self) -> Extent {
        self.handed_out
    }

    /// The next record; `None` at the end.
    pub(crate) fn next_record(&mut self) -> Result<Option<ConsumerRecord>, BatchError> {
        loop {
            let Some(open) = &mut self.open else {
                self.open = self.read_batch()?;
                if self.open.is_none() {
                    return Ok(None);
                }
                continue;
            };
            match open.next_record() {
                Some(Ok((record, size))) => {
                    self.next_offset = record.offset + 1;
                    self.handed_out = self.handed_out.plus(size);
                    return Ok(Some(record));
                }
                // A batch that cannot be read is not resumed in the middle.
                Some(Err(error)) => {
                    self.open = None;
                    return Err(error);
                }
                None => {
                    self.next_offset = self.next_offset.max(open.last_offset + 1);
                    self.open = None;
                }
            }
        }
    }

    /// The rest of the next batch; `None` at the end. A batch that cannot be read returns the same
    /// error again.
    pub(crate) fn next_batch(&mut self) -> Result<Option<FetchedBatch>, BatchError> {
        let batch = match self.open.take() {
            Some(batch) => Some(batch),
            None => self.read_batch()?,
        };
        if let Some(batch) = &batch {
            self.next_offset = self.next_offset.max(batch.last_offset.saturating_add(1));
            let wanted = batch.wanted();
            self.handed_out.records += wanted.records;
            self.handed_out.bytes += wanted.bytes;
        }
        Ok(batch)
    }

    /// Skips the batch that [`CompletedFetch::next_batch`] could not read. Returns its last offset,
    /// limited by the start of the next batch. `None` if even its length is unknown, so that all
    /// data after it is lost as well.
    pub(crate) fn skip_unreadable(&mut self) -> Option<i64> {
        let end = BatchPrefix::parse(&self.remaining).ok().and_then(|prefix| {
            let last_offset = match prefix.magic {
                BatchHeader::MAGIC => BatchHeader::parse(&self.remaining).ok()?.last_offset(),
                _ => prefix.base_offset,
            };
            let length = usize::try_from(prefix.batch_length).ok()?;
            let size = BatchPrefix::LOG_OVERHEAD.checked_add(length)?;
            let behind = self.remaining.get(size..)?;
            let next = BatchPrefix::parse(behind).ok();
            let before_next = next.map_or(i64::MAX, |next| next.base_offset.0.saturating_sub(1));
            Some((size, last_offset.0.min(before_next)))
        });
        match end {
            Some((size, last_offset)) => {
                self.remaining.advance(size);
                Some(last_offset)
            }
            None => {
                self.remaining = Bytes::new();
                None
            }
        }
    }

    /// The next batch with records to return.
    fn read_batch(&mut self) -> Result<Option<FetchedBatch>, BatchError> {
        while has_whole_batch(&self.remaining) {
            let mut behind = self.remaining.clone();
            let batch = AnyBatch::read(&mut behind)?;
            let wanted = self.wanted_of(batch)?;
            self.remaining = behind;
            if wanted.is_some() {
                return Ok(wanted);
            }
        }
        Ok(None)
    }

    fn wanted_of(&mut self, batch: AnyBatch) -> Result<Option<FetchedBatch>, BatchError> {
        if self.checks_crcs {
            batch.verify_crc()?;
        }
        let last_offset = batch.last_offset().0;
        if last_offset < self.next_offset {
            return Ok(None);
        }
        let (batch, timestamp_type) = match batch {
            AnyBatch::Current(batch) => {
                if self.is_left_out(&batch)? {
                    self.next_offset = last_offset.saturating_add(1);
                    return Ok(None);
                }
                let timestamp_type = batch.header.attributes.timestamp_type();
                (batch, timestamp_type)
            }
            AnyBatch::Legacy(message) => {
                let timestamp_type = message.timestamp_type();
                let timestamp_type = timestamp_type.unwrap_or(TimestampType::CreateTime);
                match modern(&message, self.max_batch_bytes)? {
                    Some(batch) => (batch, timestamp_type),
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(FetchedBatch {
            topic: self.topic.clone(),
            partition: self.partition,
            leader_epoch: batch.header.partition_leader_epoch.0,
            timestamp_type,
            first_offset: self.next_offset,
            is_begun: batch.header.base_offset.0 < self.next_offset,
            last_offset,
            records: batch.records(self.max_batch_bytes)?,
        }))
    }

    /// Whether the batch is a control batch or belongs to an aborted transaction.
    fn is_left_out(&mut self, batch: &RecordBatch) -> Result<bool, BatchError> {
        let header = &batch.header;
        let last_offset = header.last_offset().0;
        while let Some(transaction) = self
            .aborted
            .pop_front_if(|transaction| transaction.first_offset <= last_offset)
        {
            self.aborted_producers.insert(transaction.producer_id);
        }
        if header.is_control() {
            for marker in batch.records(self.max_batch_bytes)?.iter() {
                let kind = ControlRecordType::parse_key(marker?.key.unwrap_or_default())?;
                if kind == Some(ControlRecordType::Abort) {
                    self.aborted_producers.remove(&header.producer_id.0);
                }
            }
            return Ok(true);
        }
        Ok(header.is_transactional() && self.aborted_producers.contains(&header.producer_id.0))
    }
}

/// Whether the next batch is complete; the end of a response can be truncated. Also true for data
/// that is not a batch, so that the reader reports it.
fn has_whole_batch(bytes: &[u8]) -> bool {
    const OVERHEAD: usize = BatchPrefix::LOG_OVERHEAD;
    let Some(prefix) = bytes.first_chunk::<OVERHEAD>() else {
        return false;
    };
    let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
    !usize::try_from(length).is_ok_and(|length| bytes.len() - OVERHEAD < length)
}

/// The offset after the last complete batch, or after the last one before invalid data, where
/// reading ends.
fn end_of(mut bytes: &[u8]) -> Option<i64> {
    let mut end: Option<i64> = None;
    while has_whole_batch(bytes)
        && let Ok(prefix) = BatchPrefix::parse(bytes)
    {
        // Before magic 2 it is the offset of the last record of the message.
        let last = match prefix.magic {
            BatchHeader::MAGIC => match BatchHeader::parse(bytes) {
                Ok(header) => header.last_offset(),
                Err(_) => break,
            },
            _ => prefix.base_offset,
        };
        end = end.max(Some(last.0.wrapping_add(1)));
        bytes = &bytes[BatchPrefix::LOG_OVERHEAD + prefix.batch_length as usize..];
    }
    end
}

/// Converts a message of an old format to a batch, so that there is one way to read records. Old
/// formats are rare, and cost a copy.
fn modern(message: &LegacyMessage, limit: usize) -> Result<Option<RecordBatch>, BatchError> {
    let records = message.records(limit)?;
    let Some(base_offset) = records.first().map(|record| record.offset) else {
        return Ok(None);
    };
    let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(base_offset);
    let mut last_delta = -1;
    for record in &records {
        let delta = i32::try_from(record.offset.since(base_offset))
            .ok()
            .filter(|delta| *delta > last_delta)
            .ok_or(BatchError::MalformedMessageSet(
                "its offsets do not increase",
            ))?;
        last_delta = delta;
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder.append_at(delta, record.timestamp, key, value, &record.headers);
    }
    Ok(Some(builder.build()))
}

#[cfg(test)]
mod tests;
