//! Reads a partition of an internal topic back into a coordinator.
//!
//! Runs on a thread for blocking work: the log of a partition may have to come from the disk.
//! Source: `CoordinatorLoaderImpl`, `TransactionStateManager.loadTransactionMetadata`.

use std::sync::Arc;

use bytes::Bytes;
use ottla_coordinator::{LogEntry, WriteId};
use ottla_log::LogReader;
use ottla_records::RecordBatch;
use ottla_records::control::ControlRecordType;
use ottla_types::{Offset, ProducerId};

use super::Served;
use super::shard::Shard;

/// How much is read at once; a larger batch is read whole.
const READ_BYTES: u64 = 1024 * 1024;
/// How many partitions are read at once, so that a start with many of them needs little memory and
/// leaves threads to others. Kafka reads them one after the other.
pub(super) const CONCURRENT_LOADS: usize = 4;
/// The most bytes that the records of one batch may decompress to.
const MAX_DECOMPRESSED_BYTES: usize = 1024 * 1024 * 1024;

/// A coordinator as the log of its partition describes it.
pub(super) struct Loaded<C> {
    pub(super) coordinator: C,
    /// What of the log is not committed counts to this write, and is committed when the high watermark is here.
    pub(super) uncommitted: Option<(WriteId, Offset)>,
}

/// Reads a partition up to the end of the log: what is there is going to be committed, unless this broker loses the lead,
/// and decisions have to be made on it. While too few replicas are in sync that may take long: groups go on, and
/// transactions wait for it. The error is for people. `None` if the shard was closed meanwhile.
pub(super) async fn load<C: Served>(
    host: &Arc<C::Host>,
    shard: &Shard<C>,
) -> Option<Result<Loaded<C>, String>> {
    // Asked through the inbox, so that everything that came before the election is in the log.
    let end = shard
        .partition
        .with_log(&host.surroundings.host, |log| log.log_end_offset())
        .await?;
    if C::AWAITS_COMMITTED_LOG && !shard.await_high_watermark(end).await {
        return None;
    }
    let _turn = host.loading.acquire().await.ok()?;
    let (reader, loading) = (shard.partition.reader().clone(), Arc::clone(host));
    let threads = shard.partition.home().threads.reads.clone();
    let coordinator = C::new(host, shard.leader_epoch());
    let loaded = threads.run(move || read_log::<C>(&loading, &reader, end, coordinator));
    Some(loaded.await.unwrap_or_else(|error| Err(error.to_string())))
}

fn read_log<C: Served>(
    host: &C::Host,
    reader: &LogReader,
    end: Offset,
    mut coordinator: C,
) -> Result<Loaded<C>, String> {
    let mut uncommitted = None;
    let mut next = reader.log_start_offset();
    while next < end {
        let read = reader
            .read(next, READ_BYTES, end, true)
            .map_err(|error| format!("offset {next} cannot be read: {error}"))?;
        let Some(region) = read.region else {
            break;
        };
        let bytes = region
            .read()
            .map_err(|error| format!("offset {next} cannot be read: {error}"))?;
        let before = next;
        for batch in RecordBatch::read_all(bytes) {
            // The last batch of a read may be cut off; it is the first of the next.
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
            return Err(format!("the batch at offset {next} cannot be read"));
        }
    }
    Ok(Loaded {
        coordinator,
        uncommitted,
    })
}

fn replay<C: Served>(
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
