//! Reads a partition of `__consumer_offsets` back into a coordinator.
//!
//! Runs on a thread for blocking work: the log of a partition may have to come from the disk.
//! Source: `CoordinatorLoaderImpl`.

use std::sync::Arc;

use bytes::Bytes;
use ottla_coordinator::WriteId;
use ottla_coordinator::group::{GroupCoordinator, GroupCoordinatorConfig};
use ottla_log::LogReader;
use ottla_records::RecordBatch;
use ottla_records::control::ControlRecordType;
use ottla_types::{Offset, ProducerId};

use super::shard::Shard;
use crate::Broker;

/// How much is read at once; a larger batch is read whole.
const READ_BYTES: u64 = 1024 * 1024;
/// How many partitions are read at once, so that a start with many of them needs little memory and
/// leaves threads to others. Kafka reads them one after the other.
pub(super) const CONCURRENT_LOADS: usize = 4;
/// The most bytes that the records of one batch may decompress to.
const MAX_DECOMPRESSED_BYTES: usize = 1024 * 1024 * 1024;

/// A coordinator as the log of its partition describes it.
pub(super) struct Loaded {
    pub(super) coordinator: GroupCoordinator,
    /// What of the log is not committed counts to this write, and is committed when the high watermark is here.
    pub(super) uncommitted: Option<(WriteId, Offset)>,
}

/// Reads a partition up to the end of the log: what is there is going to be committed, unless this broker loses the lead,
/// and decisions have to be made on it. While too few replicas are in sync that may take long, and groups go on. The error
/// is for people. `None` if the shard was closed meanwhile.
pub(super) async fn load(
    broker: &Arc<Broker>,
    shard: &Shard,
    config: Arc<GroupCoordinatorConfig>,
) -> Option<Result<Loaded, String>> {
    // Asked through the inbox, so that everything that came before the election is in the log.
    let end = shard
        .partition
        .with_log(broker, |log| log.log_end_offset())
        .await?;
    let _turn = broker.groups.loading.acquire().await.ok()?;
    let (reader, loading) = (shard.partition.reader().clone(), Arc::clone(broker));
    let threads = shard.partition.home().threads.reads.clone();
    let loaded = threads.run(move || read_log(&loading, &reader, end, config));
    Some(loaded.await.unwrap_or_else(|error| Err(error.to_string())))
}

fn read_log(
    broker: &Broker,
    reader: &LogReader,
    end: Offset,
    config: Arc<GroupCoordinatorConfig>,
) -> Result<Loaded, String> {
    let mut coordinator = GroupCoordinator::new(config);
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
                uncommitted = Some((coordinator.begin_uncommitted(), end));
            }
            replay(broker, &mut coordinator, &batch)?;
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

fn replay(
    broker: &Broker,
    coordinator: &mut GroupCoordinator,
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
    for record in records.iter() {
        let record = record.map_err(|error| unreadable(&error))?;
        let key = record.key.unwrap_or_default();
        if header.attributes.is_control() {
            match ControlRecordType::parse_key(key) {
                Ok(Some(ControlRecordType::Commit)) => {
                    coordinator.replay_end_transaction_marker(header.producer_id, true);
                }
                Ok(Some(ControlRecordType::Abort)) => {
                    coordinator.replay_end_transaction_marker(header.producer_id, false);
                }
                Ok(_) => {}
                Err(error) => return Err(unreadable(&error)),
            }
            continue;
        }
        let key = Bytes::copy_from_slice(key);
        let value = record.value.map(Bytes::copy_from_slice);
        coordinator
            .replay(
                record.offset,
                producer_id,
                &key,
                value.as_ref(),
                broker.timestamp(),
            )
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}
