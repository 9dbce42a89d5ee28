//! Reads records that only remote storage has, and finds offsets by time there.
//!
//! A read has memory before it takes its turn, and one that has to wait for more gives back its memory and
//! its turn first. Of the reads of a response, only one may wait for memory: the first, before the others
//! have any, or later, when it has met a large batch. For such a batch it may exceed the budget, which one
//! read at a time may, and the others of its response end without more memory. So no two responses wait
//! for each other.
//!
//! Kafka: `RemoteLogManager.read`, `RemoteLogReader`, `RemoteLogManager.findOffsetByTimestamp`.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_log::{LogReader, TimestampLookup};
use ottla_net::RequestMemory;
use ottla_partition::Partition;
use ottla_partition::tiering::{log_view, tiered_epochs};
use ottla_records::BatchError;
use ottla_records::legacy::AnyBatch;
use ottla_sync::OwnedSemaphorePermit;
use ottla_sync::atomic::{AtomicUsize, Ordering};
use ottla_tiered::{
    AbortedRange, AbortedTransaction, OffsetIndex, ReadEffect, ReadEvent, RemoteLogSegmentMetadata,
    RemotePartition, RemoteRead, RemoteSegment, TimeIndex, TimestampSearch, collect_aborted,
    find_timestamp,
};
use ottla_tiered_storage::{IndexType, Permit, RemoteStorageError, RemoteStorageErrorKind};
use ottla_types::{ErrorCode, Offset, Timestamp};

use crate::batches::{BatchLimits, BatchesError, find_batches};
use crate::remote_tier::{RemoteTier, remote_partition};
use crate::segment_bytes::fetch_from;
use crate::stores::Stores;
use crate::tier_metrics::TierCounter;

/// A batch may be this large whatever the settings are now: the limit for producers with Kafka's
/// default of `socket.request.max.bytes`.
const LEAST_BATCH_LIMIT: usize = 100 << 20;
/// The part of the budget for remote reads that one read may take, except for a first batch that is larger.
/// A client that asks for more than the whole budget would otherwise wait until no other read runs and
/// no response is left, and all reads after it would wait as long.
const PART_OF_BUDGET: usize = 8;
/// The part of the budget that the reads of one response may take together. A response keeps what was read
/// until its last read has ended, and leaves some memory to others that long.
const PART_OF_RESPONSE: usize = 2;
/// How much a search by time reads at once.
const SEARCH_BYTES: usize = 1 << 20;

/// How often a read that the quota holds back looks again.
const THROTTLE: Duration = Duration::from_millis(50);

/// A read from one partition.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRequest {
    pub offset: Offset,
    pub max_bytes: usize,
    /// The first batch is returned whole even if it exceeds the limit.
    pub min_one: bool,
    pub is_read_committed: bool,
}

/// Whole batches. Empty if the offset has none in remote storage.
#[derive(Debug, Default)]
pub struct RemoteRecords {
    pub records: Bytes,
    /// For `read_committed`.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// The part of the budget for remote reads that the records hold. Held until the response is sent,
    /// or its bytes count as bytes that the client has not read yet.
    pub memory: Option<OwnedSemaphorePermit>,
}

#[derive(Debug, thiserror::Error)]
pub enum RemoteReadError {
    #[error("offset {0} is not in remote storage")]
    OffsetOutOfRange(Offset),
    #[error("the metadata of its remote segments has not been read to its end yet")]
    NotReady,
    #[error("{0} reads wait already (remote.log.reader.max.pending.tasks)")]
    Busy(usize),
    #[error("the local segments after it were deleted during the read")]
    LocalLogMoved,
    #[error(transparent)]
    Store(#[from] RemoteStorageError),
    #[error("remote segment {segment} of {partition}: {cause}")]
    Damaged {
        partition: RemotePartition,
        segment: ottla_types::Uuid,
        cause: String,
    },
    #[error(transparent)]
    Local(#[from] ottla_log::ReadError),
}

impl RemoteReadError {
    /// All except the first are errors after which clients try again.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            RemoteReadError::OffsetOutOfRange(_) => ErrorCode::OffsetOutOfRange,
            RemoteReadError::NotReady | RemoteReadError::LocalLogMoved => {
                ErrorCode::ReplicaNotAvailable
            }
            RemoteReadError::Busy(_)
            | RemoteReadError::Store(_)
            | RemoteReadError::Damaged { .. } => ErrorCode::KafkaStorageError,
            RemoteReadError::Local(error) => error.error_code(),
        }
    }
}

/// Counts a read that waits or runs.
struct Pending(Arc<AtomicUsize>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A read that has memory. It counts as waiting or running until this is dropped.
pub struct AdmittedRead {
    partition: Arc<Partition>,
    request: RemoteRequest,
    memory: OwnedSemaphorePermit,
    _pending: Pending,
}

/// The partition of a read, with what stays the same during it.
struct Reader<'a> {
    remote: &'a RemoteTier,
    partition: RemotePartition,
    log: LogReader,
    /// The turn to read, which the work at the store holds too. None while it waits for memory.
    permit: Permit,
    /// Its part of the budget for remote reads.
    memory: Option<OwnedSemaphorePermit>,
    /// The bytes that this is for.
    reserved_bytes: usize,
}

impl RemoteTier {
    /// Waits until the quota allows a read and there is memory for it. The response that it is for must
    /// hold no memory of other reads: two responses could wait for each other. An error is counted
    /// and logged.
    pub async fn admit(
        &self,
        partition: &Arc<Partition>,
        request: RemoteRequest,
    ) -> Result<AdmittedRead, RemoteReadError> {
        let name = &partition.topic_partition;
        self.metrics.add(&name.topic, TierCounter::FetchRequests, 1);
        // If the client got a response at once, it would send the next request at once; the caller's
        // limit ends the wait, and the response then has no records, as in Kafka.
        let mut throttle_ms = self.fetch_throttle_ms();
        if throttle_ms > 0 {
            self.on_fetch_throttled(throttle_ms);
        }
        while throttle_ms > 0 {
            ottla_sync::time::sleep(THROTTLE).await;
            throttle_ms = self.fetch_throttle_ms();
        }
        let Some(pending) = self.begin_pending() else {
            let (_, waiting) = self.read_limits();
            let error = RemoteReadError::Busy(waiting);
            self.metrics.on_failed_read(name, request.offset, &error);
            return Err(error);
        };
        let request = self.limited(request);
        let memory = self.memory.take(reserved_bytes(request)).await;
        Ok(AdmittedRead {
            partition: Arc::clone(partition),
            request,
            memory,
            _pending: pending,
        })
    }

    /// As [`RemoteTier::admit`], for another read of a response that holds memory. `None` if it would have to
    /// wait for memory or for its turn.
    ///
    /// The quota decides once for a response, at its first read. Kafka asks it for each partition, but before
    /// any of the response's reads has begun, and a read counts only when it has ended: the answer is the same
    /// for all. If it were asked again here, a first read that ends early would hold back the others, depending
    /// on the timing of threads. Source: `ReplicaManager.handleOffsetOutOfRangeError`, `RemoteLogReader.call`.
    pub fn admit_at_once(
        &self,
        partition: &Arc<Partition>,
        request: RemoteRequest,
    ) -> Option<AdmittedRead> {
        let pending = self.begin_pending()?;
        let request = self.limited(request);
        let memory = self.memory.try_take(reserved_bytes(request))?;
        let topic = &partition.topic_partition.topic;
        self.metrics.add(topic, TierCounter::FetchRequests, 1);
        Some(AdmittedRead {
            partition: Arc::clone(partition),
            request,
            memory,
            _pending: pending,
        })
    }

    /// Reads from an offset below the local log start. Dropping the future cancels it. Errors are
    /// counted and logged.
    pub async fn read(&self, admitted: AdmittedRead) -> Result<RemoteRecords, RemoteReadError> {
        let partition = Arc::clone(&admitted.partition);
        let (name, request) = (&partition.topic_partition, admitted.request);
        let read = self.read_in_turn(admitted).await;
        match &read {
            Ok(read) => {
                let bytes = read.records.len() as u64;
                self.metrics
                    .add(&name.topic, TierCounter::FetchBytes, bytes);
            }
            // The offset is in the log, but remote storage lacks it. A consumer resets its
            // position; a share group makes no progress there.
            Err(error @ RemoteReadError::OffsetOutOfRange(offset))
                if partition.reader().is_only_remote(*offset) =>
            {
                self.metrics.on_failed_read(name, *offset, error);
            }
            Err(
                error @ (RemoteReadError::OffsetOutOfRange(_)
                | RemoteReadError::NotReady
                | RemoteReadError::LocalLogMoved),
            ) => {
                let offset = request.offset;
                tracing::debug!(
                    partition = %name, %offset, "cannot be read from remote storage: {error}"
                );
            }
            Err(error) => self.metrics.on_failed_read(name, request.offset, error),
        }
        read
    }

    /// How many bytes of the budget a read with this limit takes, unless its first batch is larger.
    pub fn read_bytes(&self, max_bytes: usize) -> usize {
        max_bytes.min(self.memory.total_bytes() / PART_OF_BUDGET)
    }

    /// How many bytes of the budget the reads of one response may take together.
    pub fn response_bytes(&self) -> usize {
        self.memory.total_bytes() / PART_OF_RESPONSE
    }

    async fn read_in_turn(&self, admitted: AdmittedRead) -> Result<RemoteRecords, RemoteReadError> {
        let AdmittedRead {
            partition,
            request,
            memory,
            _pending,
        } = admitted;
        let mut reader = self.reader(&partition);
        reader.begin(memory, reserved_bytes(request)).await;
        let began = ottla_sync::time::now();
        let read = reader.read(request).await;
        let took = ottla_sync::time::elapsed(began);
        self.context.metrics.on_remote_read(took);
        let mut read = read?;
        read.memory = reader.memory.take();
        if let Some(memory) = &mut read.memory {
            RequestMemory::keep(memory, read.records.len());
        }
        self.count_fetched(read.records.len() as u64);
        Ok(read)
    }

    /// `None` if as many reads as may wait do.
    fn begin_pending(&self) -> Option<Pending> {
        let before = self.pending_reads.fetch_add(1, Ordering::AcqRel);
        let pending = Pending(Arc::clone(&self.pending_reads));
        let (running, waiting) = self.read_limits();
        (before < running + waiting).then_some(pending)
    }

    /// The read with no larger limit than one read may have.
    fn limited(&self, request: RemoteRequest) -> RemoteRequest {
        RemoteRequest {
            max_bytes: self.read_bytes(request.max_bytes),
            ..request
        }
    }

    /// Without memory and turn.
    fn reader(&self, partition: &Partition) -> Reader<'_> {
        Reader {
            permit: Permit::default(),
            remote: self,
            partition: remote_partition(partition),
            log: partition.reader().clone(),
            memory: None,
            reserved_bytes: 0,
        }
    }

    /// The first record at or after `from` with at least the timestamp, if remote storage may have
    /// one. `None`: the local log is to be searched.
    pub async fn find_by_time(
        &self,
        partition: &Arc<Partition>,
        timestamp: Timestamp,
        from: Offset,
    ) -> Result<Option<TimestampLookup>, RemoteReadError> {
        let view = partition.with_log(&self.host, |log| log_view(log)).await;
        let Some(Ok(view)) = view else {
            return Err(RemoteReadError::NotReady);
        };
        let mut reader = self.reader(partition);
        let key = partition.topic_id_partition();
        reader.reserve(SEARCH_BYTES).await;
        let (mut from, mut stopped_at) = (from, None);
        loop {
            let search = self.metadata.with_cache(key, |cache| {
                let cache = cache.ok_or(RemoteReadError::NotReady)?;
                let search = find_timestamp(timestamp, from, stopped_at, &view, cache);
                Ok::<_, RemoteReadError>(search)
            })?;
            let segment = match search {
                None | Some(TimestampSearch::Local) => return Ok(None),
                Some(TimestampSearch::StoppedAt(segment)) => {
                    stopped_at = Some(segment);
                    // A partition may have a million segments, and this thread serves others too.
                    ottla_sync::task::yield_now().await;
                    continue;
                }
                Some(TimestampSearch::Remote(segment)) => segment,
            };
            let next = Offset(segment.end_offset.0.saturating_add(1));
            if let Some(found) = reader.find_in(segment, timestamp, from).await? {
                return Ok(Some(found));
            }
            (from, stopped_at) = (next, None);
        }
    }
}

impl Reader<'_> {
    /// Waits for memory for this many bytes, and for its turn if it has none. What memory it has before is
    /// given back first: two readers that each hold a part would otherwise wait for each other.
    async fn reserve(&mut self, bytes: usize) {
        self.memory = None;
        let memory = match self.remote.memory.try_take(bytes) {
            Some(memory) => memory,
            None => {
                self.permit = Permit::default();
                self.remote.memory.take(bytes).await
            }
        };
        self.begin(memory, bytes).await;
    }

    /// The same for a batch that is larger than what the read was to return. One such batch at a time
    /// may exceed the budget. Otherwise it could wait for records of other partitions that leave only
    /// in the same response.
    async fn reserve_for_batch(&mut self, bytes: usize) {
        self.memory = None;
        let memory = match self.remote.memory.try_take_or_exceed(bytes) {
            Some(memory) => memory,
            None => {
                self.permit = Permit::default();
                self.remote.memory.take_or_exceed(bytes).await
            }
        };
        self.begin(memory, bytes).await;
    }

    /// Waits for its turn if it has none, with memory for this many bytes. Those that have a turn wait for
    /// no memory.
    async fn begin(&mut self, memory: OwnedSemaphorePermit, bytes: usize) {
        self.memory = Some(memory);
        self.reserved_bytes = bytes;
        if !self.permit.limits() {
            self.permit = self.remote.turn_to_read().await;
        }
    }

    fn metadata(&self, segment: &RemoteSegment) -> RemoteLogSegmentMetadata {
        RemoteLogSegmentMetadata {
            partition: self.partition.clone(),
            segment: segment.clone(),
        }
    }

    fn damaged(&self, segment: &RemoteSegment, error: BatchesError) -> RemoteReadError {
        match error {
            BatchesError::Store(error) => RemoteReadError::Store(error),
            error @ (BatchesError::Damaged(_)
            | BatchesError::Cut(_)
            | BatchesError::TooLarge { .. }
            | BatchesError::NotReserved { .. }) => RemoteReadError::Damaged {
                partition: self.partition.clone(),
                segment: segment.id,
                cause: error.to_string(),
            },
        }
    }

    /// A batch that is larger, compressed or not, is taken for damaged: no producer could send it,
    /// unless the settings were higher then.
    fn max_batch_bytes(&self) -> usize {
        let of_requests = self.remote.context.config().socket_request_max_bytes;
        let of_batches = self.log.config().max_message_bytes;
        let most = usize::try_from(of_requests.max(of_batches)).unwrap_or(0);
        most.max(LEAST_BATCH_LIMIT)
    }

    async fn read(&mut self, request: RemoteRequest) -> Result<RemoteRecords, RemoteReadError> {
        let epochs = tiered_epochs(&self.log.leader_epochs());
        let key = self.partition.topic_id_partition();
        let remote = self.remote;
        let metadata = &remote.metadata;
        let (mut read, mut effect) = metadata.with_cache(key, |cache| {
            let cache = cache.ok_or(RemoteReadError::NotReady)?;
            let offset = request.offset;
            RemoteRead::begin(offset, request.is_read_committed, &epochs, cache)
                .ok_or(RemoteReadError::OffsetOutOfRange(offset))
        })?;
        let mut result = RemoteRecords::default();
        let mut local_start = self.log.local_log_start_offset();
        loop {
            let event = match effect {
                ReadEffect::ReadSegment {
                    segment,
                    offset,
                    end,
                } => {
                    // A follower that has not learned yet where the leader's epoch ended.
                    let range = offset..end.min(self.log.log_end_offset());
                    match self.read_segment(&segment, range, request).await? {
                        Some((records, event)) => {
                            result.records = records;
                            event
                        }
                        None => ReadEvent::NoBatch,
                    }
                }
                ReadEffect::CollectAborted { segment, range } => {
                    self.collect_aborted(&segment, range).await?
                }
                ReadEffect::CollectLocalAborted { range } => {
                    let collected = self.collect_local(range).await?;
                    // A segment that was local when the remote ones had been searched may be only
                    // remote by now. Its aborted transactions would be missing.
                    if self.log.local_log_start_offset() != local_start {
                        return Err(RemoteReadError::LocalLogMoved);
                    }
                    collected
                }
                ReadEffect::Finished { aborted, .. } => {
                    result.aborted = aborted;
                    return Ok(result);
                }
            };
            // Before the metadata is read: segments deleted here after that may be in it.
            local_start = self.log.local_log_start_offset();
            effect = metadata.with_cache(key, |cache| {
                let cache = cache.ok_or(RemoteReadError::NotReady)?;
                Ok::<_, RemoteReadError>(read.step(event, cache))
            })?;
        }
    }

    /// Reads the batches that begin before the end of the range, from the one that has its start on. If
    /// that is larger than what is reserved, it is reserved, and read from its position on. The reader must
    /// hold no records: others may wait until they are gone.
    async fn read_segment(
        &mut self,
        segment: &RemoteSegment,
        range: Range<Offset>,
        request: RemoteRequest,
    ) -> Result<Option<(Bytes, ReadEvent)>, RemoteReadError> {
        let mut found_at = None;
        loop {
            let limits = BatchLimits {
                max_bytes: request.max_bytes,
                min_one: request.min_one,
                reserved_bytes: self.reserved_bytes,
                max_batch_bytes: self.max_batch_bytes(),
                end: range.end,
            };
            let offset = range.start;
            let (stores, metadata) = (Arc::clone(&self.remote.stores), self.metadata(segment));
            let permit = self.permit.clone();
            let reading = async move {
                read_batches(&stores, &permit, &metadata, offset, found_at, limits).await
            };
            match self.remote.stores.run(&self.permit, reading).await {
                Err(BatchesError::NotReserved { position, size }) => {
                    found_at = Some(position);
                    self.reserve_for_batch(size).await;
                }
                read => return read.map_err(|error| self.damaged(segment, error)),
            }
        }
    }

    async fn collect_aborted(
        &self,
        segment: &RemoteSegment,
        range: AbortedRange,
    ) -> Result<ReadEvent, RemoteReadError> {
        let (stores, metadata) = (Arc::clone(&self.remote.stores), self.metadata(segment));
        let permit = self.permit.clone();
        // It may look at each entry of the index.
        let collecting = async move {
            let index = stores.index_here(&permit, &metadata, IndexType::Transaction);
            let index = index.await?;
            let collected = collect_aborted(&index, range.from, range.upper_bound);
            Ok::<_, RemoteStorageError>(collected)
        };
        let collected = self.remote.stores.run(&self.permit, collecting).await;
        let (aborted, is_complete) = match collected {
            Ok(collected) => collected,
            Err(error) if error.kind == RemoteStorageErrorKind::NoIndex => (Vec::new(), false),
            // If it was deleted or lost, the reader would take aborted records for committed.
            Err(error) => return Err(error.into()),
        };
        Ok(ReadEvent::AbortedCollected {
            aborted,
            is_complete,
        })
    }

    /// On a thread that may wait for the disk.
    async fn collect_local(&self, range: AbortedRange) -> Result<ReadEvent, RemoteReadError> {
        let log = self.log.clone();
        let collect = move || log.aborted_transactions(range.from, range.upper_bound);
        let collected = match ottla_sync::task::spawn_blocking(collect).await {
            Ok(collected) => collected?,
            Err(error) => {
                let what = "search the local log for aborted transactions";
                return Err(RemoteStorageError::cancelled(what, error).into());
            }
        };
        let aborted = collected.iter().map(|it| AbortedTransaction {
            producer_id: it.producer_id,
            first_offset: it.first_offset,
            last_offset: it.last_offset,
            last_stable_offset: it.last_stable_offset,
        });
        Ok(ReadEvent::AbortedCollected {
            aborted: aborted.collect(),
            is_complete: true,
        })
    }

    async fn find_in(
        &mut self,
        segment: RemoteSegment,
        timestamp: Timestamp,
        from: Offset,
    ) -> Result<Option<TimestampLookup>, RemoteReadError> {
        let metadata = self.metadata(&segment);
        let stores = Arc::clone(&self.remote.stores);
        let times = stores
            .index(&self.permit, &metadata, IndexType::Timestamp)
            .await?;
        let indexed = TimeIndex::new(segment.start_offset, &times).offset(timestamp);
        let mut next = indexed.max(from);
        let limits = SearchLimits {
            max_record_bytes: self.log.config().max_decompressed_record_bytes(),
            max_decompressed_bytes: self.max_batch_bytes(),
        };
        while next <= segment.end_offset {
            // The batch before may have been a large one.
            if self.reserved_bytes > SEARCH_BYTES {
                self.reserve(SEARCH_BYTES).await;
            }
            let request = RemoteRequest {
                offset: next,
                max_bytes: SEARCH_BYTES,
                min_one: true,
                is_read_committed: false,
            };
            let range = next..segment.next_offset();
            let found = self.read_segment(&segment, range, request).await?;
            let Some((records, _)) = found else {
                return Ok(None);
            };
            // It may decompress a thousand batches.
            let searching = async move { search(records, next, timestamp, from, limits) };
            let searched = stores.run(&self.permit, searching).await;
            match searched.map_err(|error| self.unreadable(&segment, error))? {
                Searched::Before(after) => next = after,
                Searched::Found(offset, timestamp) => {
                    let epochs = self.log.leader_epochs();
                    return Ok(Some(TimestampLookup {
                        offset,
                        timestamp,
                        leader_epoch: epochs.epoch_for(offset),
                    }));
                }
            }
        }
        Ok(None)
    }

    /// An error of a search by time.
    fn unreadable(&self, segment: &RemoteSegment, error: BatchError) -> RemoteReadError {
        match error {
            BatchError::RecordTooLarge { .. } => {
                RemoteReadError::Local(ottla_log::ReadError::RecordTooLarge {
                    segment_base_offset: segment.start_offset,
                    reason: error.to_string(),
                })
            }
            error => self.damaged(segment, BatchesError::Damaged(error)),
        }
    }
}

/// What a read reserves at first. A batch of any size, for a client that wants no bytes, needs some too.
fn reserved_bytes(request: RemoteRequest) -> usize {
    request.max_bytes.max(1)
}

/// Batches from an offset on, and what they tell the read. `found_at` is the position of the first, if an
/// earlier read has found it. On the threads of the store.
async fn read_batches(
    stores: &Stores,
    permit: &Permit,
    metadata: &RemoteLogSegmentMetadata,
    offset: Offset,
    found_at: Option<u32>,
    limits: BatchLimits,
) -> Result<Option<(Bytes, ReadEvent)>, BatchesError> {
    let index = stores
        .index_here(permit, metadata, IndexType::Offset)
        .await?;
    let index = OffsetIndex::new(metadata.segment.start_offset, &index);
    let position = found_at.unwrap_or_else(|| index.position(offset));
    let wanted = limits.max_bytes.max(limits.reserved_bytes);
    let stream = fetch_from(&stores.store(permit), metadata, position, wanted).await?;
    let found = find_batches(stream, position, offset, limits).await?;
    Ok(found.map(|found| {
        let size = u32::try_from(found.records.len()).unwrap_or(u32::MAX);
        let event = ReadEvent::BatchesRead {
            base_offset: found.base_offset,
            upper_bound: index.upper_bound(found.position, size),
        };
        (found.records, event)
    }))
}

/// How much a search by time decompresses.
#[derive(Clone, Copy)]
struct SearchLimits {
    /// Of a record.
    max_record_bytes: usize,
    /// Of a batch.
    max_decompressed_bytes: usize,
}

/// What a search by time has found in some batches.
#[derive(Debug, PartialEq, Eq)]
enum Searched {
    /// Nothing before this offset.
    Before(Offset),
    Found(Offset, Timestamp),
}

/// Searches batches that begin at `next`.
fn search(
    mut batches: Bytes,
    mut next: Offset,
    timestamp: Timestamp,
    from: Offset,
    limits: SearchLimits,
) -> Result<Searched, BatchError> {
    while !batches.is_empty() {
        let batch = AnyBatch::read(&mut batches)?;
        next = Offset(batch.last_offset().0.saturating_add(1));
        if batch.max_timestamp() < timestamp {
            continue;
        }
        let (of_record, of_batch) = (limits.max_record_bytes, limits.max_decompressed_bytes);
        for record in batch.records_of_at_most(of_record, of_batch)? {
            if record.offset >= from && record.timestamp >= timestamp {
                return Ok(Searched::Found(record.offset, record.timestamp));
            }
        }
    }
    Ok(Searched::Before(next))
}
