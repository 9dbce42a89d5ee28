//! A member acknowledges records that it has acquired, or leaves.
//!
//! An acknowledgement is applied completely or not at all: if one of its batches is refused, the
//! changes of the earlier ones are rolled back. Only renewed locks stay renewed, as in Kafka.
//! Source: `SharePartition.acknowledge`, `SharePartition.releaseAcquiredRecords`.

use ottla_types::{ErrorCode, Offset};

use super::dead_letters::DeadLetterCause;
use super::in_flight::{DeliveryLimit, InFlightBatch, InFlightState, RecordState, StateWriteId};
use super::partition::SharePartition;
use super::transitions::{Changes, StateWrite};
use crate::planted::{self, Bug};

/// The result of processing a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcknowledgeType {
    /// There is no record at this offset.
    Gap,
    Accept,
    /// The record can be delivered again.
    Release,
    /// The record must not be delivered again.
    Reject,
    /// The member needs more time (KIP-1222).
    Renew,
}

impl AcknowledgeType {
    pub const fn from_id(id: i8) -> Option<AcknowledgeType> {
        match id {
            0 => Some(AcknowledgeType::Gap),
            1 => Some(AcknowledgeType::Accept),
            2 => Some(AcknowledgeType::Release),
            3 => Some(AcknowledgeType::Reject),
            4 => Some(AcknowledgeType::Renew),
            _ => None,
        }
    }

    /// `None` if the record stays acquired.
    const fn leads_to(self, limit: DeliveryLimit) -> Option<RecordState> {
        match self {
            AcknowledgeType::Gap => Some(RecordState::Archived),
            AcknowledgeType::Reject => Some(limit.undeliverable),
            AcknowledgeType::Accept => Some(RecordState::Acknowledged),
            AcknowledgeType::Release => Some(RecordState::Available),
            AcknowledgeType::Renew => None,
        }
    }

    /// The reason for which a record goes to the dead-letter queue, if this acknowledgement sends
    /// it there.
    const fn cause(self) -> DeadLetterCause {
        match self {
            AcknowledgeType::Reject => DeadLetterCause::Rejected,
            AcknowledgeType::Gap
            | AcknowledgeType::Accept
            | AcknowledgeType::Release
            | AcknowledgeType::Renew => DeadLetterCause::DeliveryCountExceeded,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcknowledgementBatch {
    pub first_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    /// One type for all records, or one per record: the shell has checked the number.
    pub types: Vec<AcknowledgeType>,
}

/// Why an acknowledgement is refused. The response contains Kafka's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcknowledgeError {
    /// The records are in the range of the records in flight but are not in flight.
    UnknownRecords,
    /// The records are after the last acquired one.
    FirstBehindAcquired,
    LastBehindAcquired,
    BatchNotAcquired,
    PartOfBatchNotAcquired,
    OffsetNotAcquired,
    InTransition,
    NotOwnerOfBatch,
    NotOwnerOfOffset,
    RenewalDisabled,
}

impl AcknowledgeError {
    pub fn code(self) -> ErrorCode {
        match self {
            AcknowledgeError::FirstBehindAcquired | AcknowledgeError::LastBehindAcquired => {
                ErrorCode::InvalidRequest
            }
            AcknowledgeError::UnknownRecords
            | AcknowledgeError::BatchNotAcquired
            | AcknowledgeError::PartOfBatchNotAcquired
            | AcknowledgeError::OffsetNotAcquired
            | AcknowledgeError::InTransition
            | AcknowledgeError::NotOwnerOfBatch
            | AcknowledgeError::NotOwnerOfOffset
            | AcknowledgeError::RenewalDisabled => ErrorCode::InvalidRecordState,
        }
    }

    pub fn message(self) -> &'static str {
        match self {
            AcknowledgeError::UnknownRecords => {
                "Batch record not found. The request batch offsets are not found in the cache."
            }
            AcknowledgeError::FirstBehindAcquired => {
                "Batch record not found. The first offset in request is past acquired records."
            }
            AcknowledgeError::LastBehindAcquired => {
                "Batch record not found. The last offset in request is past acquired records."
            }
            AcknowledgeError::BatchNotAcquired => {
                "The batch cannot be acknowledged. The batch is not in the acquired state."
            }
            AcknowledgeError::PartOfBatchNotAcquired => {
                "The batch cannot be acknowledged. The subset batch is not in the acquired state."
            }
            AcknowledgeError::OffsetNotAcquired => {
                "The offset cannot be acknowledged. The offset is not acquired."
            }
            AcknowledgeError::InTransition => {
                "The record state is invalid. The acknowledgement of delivery could not be completed."
            }
            AcknowledgeError::NotOwnerOfBatch => "Member is not the owner of batch record",
            AcknowledgeError::NotOwnerOfOffset => "Member is not the owner of offset",
            AcknowledgeError::RenewalDisabled => {
                "Renewing acquisition locks is not enabled for the group."
            }
        }
    }
}

impl SharePartition {
    /// The member is answered at once if nothing has to be persisted, otherwise when the write
    /// completes.
    pub fn acknowledge(
        &mut self,
        member: &str,
        batches: &[AcknowledgementBatch],
        now_ms: u64,
    ) -> Result<Option<StateWrite>, AcknowledgeError> {
        let mut changes = Changes::default();
        for batch in batches {
            if batch.last_offset.0 < self.start_offset {
                continue;
            }
            if let Err(error) = self.acknowledge_batch(member, batch, now_ms, &mut changes) {
                self.roll_back(changes);
                return Err(error);
            }
        }
        Ok(self.write_transitions(changes))
    }

    /// The member is gone: its acquired records become available to others.
    pub fn release_acquired_records(&mut self, member: &str) -> Option<StateWrite> {
        let mut changes = Changes::default();
        let (limit, write) = (self.settings.delivery_limit(), self.next_write);
        let start_offset = self.start_offset;
        for batch in self.in_flight.values_mut() {
            let is_cut = batch.first_offset < start_offset && batch.last_offset >= start_offset;
            let goes = |state: &InFlightState| {
                is_held_by(state, member)
                    || (state.state() == RecordState::Acquired
                        && planted::has(Bug::ReleaseWhatOthersHold))
            };
            let is_held = batch.whole().is_some_and(goes);
            if is_cut && is_held {
                // Records before the start offset are archived, whatever their delivery count.
                batch.split();
            }
            for (first, last, state) in batch.runs_mut() {
                if !goes(state) {
                    continue;
                }
                let to = if last < start_offset {
                    RecordState::Archived
                } else {
                    RecordState::Available
                };
                if state.start_transition(to, limit, write).is_some() {
                    let cause = DeadLetterCause::DeliveryCountExceeded;
                    changes.record(first, last, state, start_offset, cause);
                }
            }
        }
        self.write_transitions(changes)
    }

    fn acknowledge_batch(
        &mut self,
        member: &str,
        request: &AcknowledgementBatch,
        now_ms: u64,
        changes: &mut Changes,
    ) -> Result<(), AcknowledgeError> {
        for key in self.keys_of(request)? {
            let is_cut = self.start_offset_cuts(&self.in_flight[&key]);
            let start_offset = self.start_offset;
            let batch = &self.in_flight[&key];
            if batch.last_offset < start_offset {
                continue;
            }
            if let Some(state) = batch.whole() {
                check_batch(state, member)?;
                let is_full_match = batch.is_within(request.first_offset.0, request.last_offset.0);
                if is_full_match && request.types.len() <= 1 && !is_cut {
                    let lock = Renewal::of(self, now_ms);
                    let batch = self.batch_mut(key);
                    acknowledge_whole(batch, request, lock, changes, start_offset)?;
                    continue;
                }
                if state.state() != RecordState::Acquired {
                    return Err(AcknowledgeError::PartOfBatchNotAcquired);
                }
            }
            let renewal = Renewal::of(self, now_ms);
            let batch = self.batch_mut(key);
            acknowledge_each(batch, member, request, renewal, changes, start_offset)?;
        }
        Ok(())
    }

    /// The keys of the batches in flight that the request covers.
    fn keys_of(&self, request: &AcknowledgementBatch) -> Result<Vec<i64>, AcknowledgeError> {
        let (first, last) = (request.first_offset.0, request.last_offset.0);
        let floor = match self.floor(first) {
            Some(batch) => batch,
            None if first < self.start_offset && last >= self.start_offset => self
                .floor(self.start_offset)
                .ok_or(AcknowledgeError::UnknownRecords)?,
            None => return Err(AcknowledgeError::UnknownRecords),
        };
        let keys = self.keys(floor.first_offset, last);
        let last_known = keys.last().map(|key| self.in_flight[key].last_offset);
        match last_known {
            Some(known) if known < first => Err(AcknowledgeError::FirstBehindAcquired),
            Some(known) if known < last => Err(AcknowledgeError::LastBehindAcquired),
            Some(_) => Ok(keys),
            None => Err(AcknowledgeError::UnknownRecords),
        }
    }
}

/// The partition's state that renewing needs besides the batch.
#[derive(Clone, Copy)]
struct Renewal {
    is_enabled: bool,
    deadline_ms: u64,
    limit: DeliveryLimit,
    write: StateWriteId,
}

impl Renewal {
    fn of(partition: &mut SharePartition, now_ms: u64) -> Self {
        Renewal {
            is_enabled: partition.settings.renew_acknowledge_enable,
            deadline_ms: partition.lock_deadline_ms(now_ms),
            limit: partition.settings.delivery_limit(),
            write: partition.next_write,
        }
    }
}

fn is_held_by(state: &InFlightState, member: &str) -> bool {
    state.state() == RecordState::Acquired
        && state.member().is_some_and(|holder| **holder == *member)
}

fn check_batch(state: &InFlightState, member: &str) -> Result<(), AcknowledgeError> {
    match state.member() {
        None => Err(AcknowledgeError::BatchNotAcquired),
        Some(holder) if **holder != *member => Err(AcknowledgeError::NotOwnerOfBatch),
        Some(_) if state.is_in_transition() => Err(AcknowledgeError::InTransition),
        Some(_) => Ok(()),
    }
}

fn acknowledge_whole(
    batch: &mut InFlightBatch,
    request: &AcknowledgementBatch,
    renewal: Renewal,
    changes: &mut Changes,
    start_offset: i64,
) -> Result<(), AcknowledgeError> {
    let Some(kind) = request.types.first().copied() else {
        return Ok(());
    };
    for (first, last, state) in batch.runs_mut() {
        if state.state() != RecordState::Acquired {
            return Err(AcknowledgeError::BatchNotAcquired);
        }
        acknowledge_state(state, kind, renewal, AcknowledgeError::BatchNotAcquired)?;
        if kind != AcknowledgeType::Renew {
            changes.record(first, last, state, start_offset, kind.cause());
        }
    }
    Ok(())
}

fn acknowledge_each(
    batch: &mut InFlightBatch,
    member: &str,
    request: &AcknowledgementBatch,
    renewal: Renewal,
    changes: &mut Changes,
    start_offset: i64,
) -> Result<(), AcknowledgeError> {
    batch.split();
    let from = request.first_offset.0.max(start_offset);
    for (offset, _, state) in batch.runs_mut() {
        if offset < from {
            continue;
        }
        if offset > request.last_offset.0 {
            break;
        }
        if state.state() != RecordState::Acquired {
            return Err(AcknowledgeError::OffsetNotAcquired);
        }
        if state.is_in_transition() {
            return Err(AcknowledgeError::InTransition);
        }
        if !is_held_by(state, member) {
            return Err(AcknowledgeError::NotOwnerOfOffset);
        }
        let position = match request.types.len() {
            1 => 0,
            _ => (offset - request.first_offset.0) as usize,
        };
        let Some(kind) = request.types.get(position).copied() else {
            return Err(AcknowledgeError::OffsetNotAcquired);
        };
        acknowledge_state(state, kind, renewal, AcknowledgeError::OffsetNotAcquired)?;
        if kind != AcknowledgeType::Renew {
            changes.record(offset, offset, state, start_offset, kind.cause());
        }
    }
    Ok(())
}

fn acknowledge_state(
    state: &mut InFlightState,
    kind: AcknowledgeType,
    renewal: Renewal,
    refusal: AcknowledgeError,
) -> Result<(), AcknowledgeError> {
    let Some(to) = kind.leads_to(renewal.limit) else {
        if !renewal.is_enabled {
            return Err(AcknowledgeError::RenewalDisabled);
        }
        state.lock_until(renewal.deadline_ms);
        return Ok(());
    };
    state
        .start_transition(to, renewal.limit, renewal.write)
        .map(|_| ())
        .ok_or(refusal)
}
