//! Loads a coordinator from its partition of an internal topic.
//!
//! Runs on a thread for blocking work, because the log may have to be read from disk.
//!
//! Kafka: `CoordinatorLoaderImpl`, `TransactionStateManager.loadTransactionMetadata`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_coordinator::{LogEntry, WriteId};
use ottla_log::{LogReader, ReadError, StorageError};
use ottla_records::RecordBatch;
use ottla_records::control::ControlRecordType;
use ottla_types::{Offset, ProducerId};

use ottla_partition::partition::Waiter;

use super::shard::{Shard, ShardedCoordinator};

/// Bytes read at once; a larger batch is read whole.
const READ_BYTES: u64 = 1024 * 1024;
/// Limit for decompressing the records of one batch.
const MAX_DECOMPRESSED_BYTES: usize = 1024 * 1024 * 1024;

/// The pause before a load that found no file handle or memory is repeated.
const LOAD_RETRY: Duration = Duration::from_secs(1);

/// Why a log could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("offset {0} cannot be read: {1}")]
    Storage(Offset, StorageError),
    #[error("{0}")]
    Unreadable(String),
}

impl LoadError {
    fn of_read(offset: Offset, error: ReadError) -> LoadError {
        match error {
            ReadError::Storage(error) => LoadError::Storage(offset, error),
            error => LoadError::Unreadable(format!("offset {offset} cannot be read: {error}")),
        }
    }

    /// Whether a file handle or memory was missing. Without another attempt there would be no
    /// coordinator until the next election.
    fn is_temporary(&self) -> bool {
        matches!(self, LoadError::Storage(_, error) if error.is_temporary())
    }
}

impl From<String> for LoadError {
    fn from(message: String) -> LoadError {
        LoadError::Unreadable(message)
    }
}

/// A coordinator with the state of its partition's log.
pub(crate) struct Loaded<C> {
    pub(crate) coordinator: C,
    /// The write that represents the uncommitted part of the log, and the high watermark at which
    /// it is committed.
    uncommitted: Option<(WriteId, Offset)>,
}

impl<C: ShardedCoordinator> Shard<C> {
    /// Reads the log in a task and then activates the coordinator.
    pub(super) fn load(self: &Arc<Self>, host: &Arc<C::Host>) {
        let (shard, host) = (Arc::clone(self), Arc::clone(host));
        ottla_sync::task::spawn(async move {
            let mut has_failed = false;
            while let Some(loaded) = load(&host, &shard).await {
                match loaded {
                    Err(error) if error.is_temporary() && !shard.is_closed() => {
                        if !has_failed {
                            let partition = &shard.partition.topic_partition;
                            tracing::warn!(%partition, "{} cannot be coordinated yet: {error}", C::WHAT);
                        }
                        has_failed = true;
                        ottla_sync::time::sleep(LOAD_RETRY).await;
                        if shard.is_closed() {
                            return;
                        }
                    }
                    loaded => return shard.on_loaded(&host, loaded),
                }
            }
        });
    }

    fn on_loaded(self: &Arc<Self>, host: &Arc<C::Host>, loaded: Result<Loaded<C>, LoadError>) {
        let Loaded {
            mut coordinator,
            uncommitted,
        } = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                if self.step(host, |runtime, _| runtime.on_load_failed()) {
                    let partition = &self.partition.topic_partition;
                    tracing::error!(%partition, "{} cannot be coordinated: {error}", C::WHAT);
                }
                // Another broker coordinates once it leads the partition.
                if let LoadError::Storage(_, error) = &error
                    && let Some(log_dirs) = host.surroundings.host.log_dirs()
                {
                    log_dirs.on_partition_error(&self.partition.reader(), error);
                }
                return;
            }
        };
        self.step(host, |runtime, at| {
            // Under the lock: a metadata change is either included here or finds the shard active.
            coordinator.begin(host);
            runtime.on_loaded(coordinator, uncommitted, at);
        });
        self.run_outbox(host);
        ottla_sync::task::spawn(Arc::clone(self).run_timers(Arc::clone(host)));
    }

    /// Returns `true` when records below `end` are committed, `false` when the shard is closed.
    pub(super) async fn await_high_watermark(&self, end: Offset) -> bool {
        loop {
            let waiter = Waiter::default();
            // Wakes when the last record below `end` is readable, and when the shard is closed.
            let registered = self.partition.waiters.register(end.plus(-1), &waiter);
            let is_committed = self.partition.reader().high_watermark() >= end;
            if is_committed || self.is_closed() {
                self.partition.waiters.take_out(registered);
                return is_committed;
            }
            waiter.notified().await;
        }
    }
}

/// Reads a partition to the log end offset: the uncommitted records will be committed unless this
/// broker loses leadership, and decisions must include them. While the ISR is too small that may
/// take long: groups start without waiting, transactions wait. `None` if the shard was closed
/// during the load.
async fn load<C: ShardedCoordinator>(
    host: &Arc<C::Host>,
    shard: &Shard<C>,
) -> Option<Result<Loaded<C>, LoadError>> {
    // Requested through the inbox, so that everything appended before the election is included.
    let end = shard
        .partition
        .with_log(&host.surroundings.host, |log| log.log_end_offset())
        .await?;
    if C::AWAITS_COMMITTED_LOG && !shard.await_high_watermark(end).await {
        return None;
    }
    let _turn = host.load_turn().await;
    let (reader, loading) = (shard.partition.reader().clone(), Arc::clone(host));
    let threads = shard.partition.log_location().threads.reads.clone();
    let coordinator = C::new(host, shard.leader_epoch());
    let loaded = threads.run(move || read_log::<C>(&loading, &reader, end, coordinator));
    Some(
        loaded
            .await
            .unwrap_or_else(|error| Err(error.to_string().into())),
    )
}

pub(crate) fn read_log<C: ShardedCoordinator>(
    host: &C::Host,
    reader: &LogReader,
    end: Offset,
    mut coordinator: C,
) -> Result<Loaded<C>, LoadError> {
    let mut uncommitted = None;
    let mut next = reader.log_start_offset();
    while next < end {
        let read = reader
            .read(next, READ_BYTES, end, true)
            .map_err(|error| LoadError::of_read(next, error))?;
        let Some(region) = read.region else {
            break;
        };
        let bytes = region.read().map_err(|error| {
            let error = StorageError::new("read", &reader.dir(), error);
            LoadError::of_read(next, ReadError::Storage(error))
        })?;
        let before = next;
        for batch in RecordBatch::read_all(bytes) {
            // The last batch of a read may be cut off; the next read starts with it.
            let Ok(batch) = batch else {
                break;
            };
            if uncommitted.is_none() && batch.header.next_offset() > reader.high_watermark() {
                uncommitted = coordinator.begin_uncommitted().map(|write| (write, end));
            }
            replay(host, &mut coordinator, &batch)?;
            next = batch.header.next_offset();
        }
        if next == before {
            return Err(format!("the batch at offset {next} cannot be read").into());
        }
    }
    Ok(Loaded {
        coordinator,
        uncommitted,
    })
}

fn replay<C: ShardedCoordinator>(
    host: &C::Host,
    coordinator: &mut C,
    batch: &RecordBatch,
) -> Result<(), String> {
    let header = &batch.header;
    let unreadable =
        |error: &dyn std::fmt::Display| format!("the batch at {}: {error}", header.base_offset);
    let records = batch
        .records(MAX_DECOMPRESSED_BYTES)
        .map_err(|error| unreadable(&error))?;
    let is_transactional = header.attributes.is_transactional();
    let producer_id = if is_transactional {
        header.producer_id
    } else {
        ProducerId::NONE
    };
    let now = host.surroundings.context.timestamp();
    for record in records.iter() {
        let record = record.map_err(|error| unreadable(&error))?;
        let key = record.key.unwrap_or_default();
        if header.attributes.is_control() {
            let kind = ControlRecordType::parse_key(key).map_err(|error| unreadable(&error))?;
            let is_commit = match kind {
                Some(ControlRecordType::Commit) => true,
                Some(ControlRecordType::Abort) => false,
                _ => continue,
            };
            let producer_id = header.producer_id;
            let entry = LogEntry::EndTransaction {
                producer_id,
                is_commit,
            };
            coordinator.replay(entry, now)?;
            continue;
        }
        let key = Bytes::copy_from_slice(key);
        let value = record.value.map(Bytes::copy_from_slice);
        let entry = LogEntry::Record {
            offset: record.offset,
            producer_id,
            key: &key,
            value: value.as_ref(),
        };
        coordinator.replay(entry, now)?;
    }
    Ok(())
}
