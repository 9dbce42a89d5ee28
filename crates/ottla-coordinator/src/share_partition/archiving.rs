//! Records that are copied to the dead-letter queue before they are archived (KIP-1191).
//!
//! 1. A record is rejected, or has been delivered too often: it becomes `Archiving`, and that is
//!    persisted.
//! 2. When the write has completed, the record is returned by
//!    [`SharePartition::take_dead_letters`], once.
//! 3. When it was copied, or could not be, it becomes `Archived`, and that is persisted as well.
//!
//! Until then the start offset does not pass it. A new leader continues with step 2 for records that
//! it finds in state `Archiving`, so a record may be copied twice. Source:
//! `SharePartition.initiateDLQAndArchive`, `SharePartition.maybeResumeDlqArchiving`.

use super::dead_letters::DeadLetters;
use super::in_flight::RecordState;
use super::partition::SharePartition;
use super::transitions::{Changes, StateWrite};

impl SharePartition {
    /// The records that must be copied now. [`SharePartition::on_dead_letters_written`] must follow.
    pub fn take_dead_letters(&mut self) -> Vec<DeadLetters> {
        std::mem::take(&mut self.dead_letters)
    }

    pub fn has_dead_letters(&self) -> bool {
        !self.dead_letters.is_empty()
    }

    /// The records were copied, or cannot be: they are archived either way.
    pub fn on_dead_letters_written(&mut self, written: &[DeadLetters]) -> Option<StateWrite> {
        let mut changes = Changes::default();
        let start_offset = self.start_offset;
        for letters in written {
            let (first_offset, last_offset) = (letters.first_offset.0, letters.last_offset.0);
            let from = self
                .floor(first_offset)
                .map_or(first_offset, |batch| batch.first_offset);
            for (_, batch) in self.in_flight.range_mut(from..=last_offset) {
                for (first, last, state) in batch.runs_mut() {
                    let is_meant = first >= first_offset && last <= last_offset;
                    if is_meant && state.state() == RecordState::Archiving {
                        state.archive();
                        changes.record(first, last, state, start_offset, letters.cause);
                    }
                }
            }
        }
        self.write_settled(changes)
    }
}
