//! Records that are not delivered any more, on their way to a dead-letter queue (KIP-1191).
//!
//! Source: `ShareGroupDLQRecordParameter`, `ShareGroupDLQManager`.

use ottla_types::Offset;

/// A range of records with the same fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadLetters {
    pub first_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    pub delivery_count: i16,
    pub cause: DeadLetterCause,
}

/// Why records are not delivered any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadLetterCause {
    /// A member has rejected them.
    Rejected,
    DeliveryCountExceeded,
}

impl DeadLetterCause {
    /// The value of the header `__dlq.errors.message`.
    pub const fn message(self) -> &'static str {
        match self {
            DeadLetterCause::Rejected => "Offset rejected by client.",
            DeadLetterCause::DeliveryCountExceeded => {
                "Offset delivery count exceeded the threshold."
            }
        }
    }
}

impl DeadLetters {
    /// Appends the range, or extends the last one if it continues it.
    pub(super) fn add_to(self, all: &mut Vec<DeadLetters>) {
        let previous = all.last_mut().filter(|previous| {
            previous.last_offset.0 + 1 == self.first_offset.0
                && previous.delivery_count == self.delivery_count
                && previous.cause == self.cause
        });
        match previous {
            Some(previous) => previous.last_offset = self.last_offset,
            None => all.push(self),
        }
    }
}
