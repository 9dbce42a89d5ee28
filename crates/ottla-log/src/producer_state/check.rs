//! Whether a batch of an idempotent or transactional producer may be appended (KIP-98, KIP-360, KIP-890).
//!
//! Kafka: `ProducerAppendInfo`, `UnifiedLog.analyzeAndValidateProducerState`.

use std::collections::HashMap;

use ottla_records::control::{ControlRecordType, EndTxnMarker};
use ottla_records::{BatchHeader, RecordBatch};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

use super::entry::{BatchMetadata, Marker, ProducerStateEntry};

/// Size limit for the records of a control batch; a marker is a few bytes.
const MAX_MARKER_BYTES: usize = 64 * 1024;

/// The origin of a batch, which decides the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendOrigin {
    /// From a follower's fetch or read back by recovery: the leader has checked it.
    Replication,
    /// A marker or record written by a coordinator.
    Coordinator,
    /// From a producer: everything is checked.
    Client,
    /// The metadata quorum's leader.
    RaftLeader,
}

/// `transaction.version` of the marker's writer. From 2 on, every transaction raises the producer
/// epoch (KIP-890), so a marker of the current epoch is a repetition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct TransactionVersion(pub i16);

/// What to do with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducerVerdict {
    InSequence,
    /// Already appended: acknowledged with the offsets of the first append, and not appended again.
    Duplicate(BatchMetadata),
}

/// Why a batch must not be appended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProducerError {
    #[error("epoch {epoch} of producer {producer_id} is older than {current_epoch}, the last seen")]
    InvalidProducerEpoch {
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        current_epoch: ProducerEpoch,
    },
    #[error("sequence {sequence} of producer {producer_id} does not follow {last_sequence}")]
    OutOfOrderSequence {
        producer_id: ProducerId,
        sequence: Sequence,
        /// -1 where a new epoch must start at 0.
        last_sequence: Sequence,
    },
    #[error("producer {producer_id} has an open transaction, but the batch is not part of one")]
    NotTransactional { producer_id: ProducerId },
    #[error(
        "marker for producer {producer_id} by coordinator epoch {epoch}, but {current_epoch} has written already"
    )]
    CoordinatorFenced {
        producer_id: ProducerId,
        epoch: i32,
        current_epoch: i32,
    },
    #[error("control batch of producer {producer_id} holds no transaction marker")]
    NotAMarker { producer_id: ProducerId },
}

impl ProducerError {
    pub fn error_code(&self) -> ErrorCode {
        match self {
            ProducerError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            ProducerError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
            ProducerError::NotTransactional { .. } => ErrorCode::InvalidTxnState,
            ProducerError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
            ProducerError::NotAMarker { .. } => ErrorCode::InvalidRecord,
        }
    }
}

/// Batches that were accepted but are not in the file yet; later batches of the same write are
/// checked against them.
#[derive(Default, Debug)]
pub struct ProducerStage(Option<Box<Staged>>);

/// Boxed, because most logs are idle.
#[derive(Default, Debug)]
struct Staged {
    entries: HashMap<ProducerId, ProducerStateEntry>,
}

impl ProducerStage {
    /// Clears the stage after its batches were written or refused.
    pub fn clear(&mut self) {
        if let Some(staged) = &mut self.0 {
            staged.entries.clear();
        }
    }

    /// Gives the memory of an empty stage back.
    pub fn free_room(&mut self) {
        self.0 = self.0.take().filter(|staged| !staged.entries.is_empty());
    }

    /// The state of a producer, including the staged batches.
    pub(super) fn known<'a>(
        &'a self,
        producers_of_log: Option<&'a HashMap<ProducerId, ProducerStateEntry>>,
        producer_id: ProducerId,
    ) -> Option<&'a ProducerStateEntry> {
        let staged = self.0.as_ref();
        let staged = staged.and_then(|staged| staged.entries.get(&producer_id));
        staged.or_else(|| producers_of_log?.get(&producer_id))
    }

    /// Checks a batch with an assigned offset against the log and the staged batches, and stages it
    /// if it is in sequence. Batches without a producer ID always are.
    pub(super) fn check(
        &mut self,
        producers_of_log: Option<&HashMap<ProducerId, ProducerStateEntry>>,
        batch: &RecordBatch,
        origin: AppendOrigin,
        transaction_version: TransactionVersion,
    ) -> Result<ProducerVerdict, ProducerError> {
        let header = &batch.header;
        if !header.has_producer_id() {
            return Ok(ProducerVerdict::InSequence);
        }
        let producer_id = header.producer_id;
        let known = self.known(producers_of_log, producer_id);
        let takes_every_batch = ottla_sync::planted::has("nobody looks at sequence numbers");
        if origin == AppendOrigin::Client
            && !takes_every_batch
            && let Some(duplicate) = known.and_then(|entry| entry.find_duplicate(header))
        {
            return Ok(ProducerVerdict::Duplicate(duplicate));
        }
        let mut entry = known
            .cloned()
            .unwrap_or_else(|| ProducerStateEntry::empty(producer_id));
        if header.is_control() {
            let marker = end_txn_marker(batch).ok_or(ProducerError::NotAMarker { producer_id })?;
            if origin != AppendOrigin::Replication {
                check_marker(&entry, header, &marker, transaction_version)?;
            }
            entry.append_marker(header.producer_epoch, &marker);
        } else {
            if origin != AppendOrigin::Replication && !takes_every_batch {
                check_data(&entry, header, origin)?;
            }
            entry.append_data(header);
        }
        let staged = self.0.get_or_insert_default();
        staged.entries.insert(producer_id, entry);
        Ok(ProducerVerdict::InSequence)
    }
}

/// The marker in a control batch; `None` if there is none.
pub(super) fn end_txn_marker(batch: &RecordBatch) -> Option<Marker> {
    let record = batch.records(MAX_MARKER_BYTES).ok()?.next()?.ok()?;
    let kind = ControlRecordType::parse_key(record.key.as_deref()?).ok()??;
    let is_abort = match kind {
        ControlRecordType::Abort => true,
        ControlRecordType::Commit => false,
        _ => return None,
    };
    let marker = EndTxnMarker::parse(record.value.as_deref()?).ok()?;
    Some(Marker {
        coordinator_epoch: marker.coordinator_epoch,
        timestamp: record.timestamp,
        is_abort,
    })
}

fn check_data(
    entry: &ProducerStateEntry,
    header: &BatchHeader,
    origin: AppendOrigin,
) -> Result<(), ProducerError> {
    let producer_id = entry.producer_id;
    if header.producer_epoch < entry.producer_epoch {
        return Err(ProducerError::InvalidProducerEpoch {
            producer_id,
            epoch: header.producer_epoch,
            current_epoch: entry.producer_epoch,
        });
    }
    if origin == AppendOrigin::Client && entry.producer_epoch != ProducerEpoch::NONE {
        let last_sequence = match header.producer_epoch == entry.producer_epoch {
            true => entry.last_sequence(),
            false => Sequence::NONE,
        };
        let sequence = header.base_sequence;
        // -1 ("none yet") is followed by 0 like any other number.
        if sequence != last_sequence.plus(1) {
            return Err(ProducerError::OutOfOrderSequence {
                producer_id,
                sequence,
                last_sequence,
            });
        }
    }
    if entry.current_txn_first_offset.is_some() && !header.is_transactional() {
        return Err(ProducerError::NotTransactional { producer_id });
    }
    Ok(())
}

fn check_marker(
    entry: &ProducerStateEntry,
    header: &BatchHeader,
    marker: &Marker,
    transaction_version: TransactionVersion,
) -> Result<(), ProducerError> {
    let producer_id = entry.producer_id;
    let (epoch, current_epoch) = (header.producer_epoch, entry.producer_epoch);
    let raises_epoch = transaction_version >= TransactionVersion(2);
    let is_repeated = raises_epoch
        && epoch == current_epoch
        && (entry.current_txn_first_offset.is_none() || epoch.0 == i16::MAX);
    let is_old = epoch < current_epoch || (raises_epoch && epoch == current_epoch);
    if is_old && !is_repeated {
        return Err(ProducerError::InvalidProducerEpoch {
            producer_id,
            epoch,
            current_epoch,
        });
    }
    if entry.coordinator_epoch > marker.coordinator_epoch {
        return Err(ProducerError::CoordinatorFenced {
            producer_id,
            epoch: marker.coordinator_epoch,
            current_epoch: entry.coordinator_epoch,
        });
    }
    Ok(())
}
