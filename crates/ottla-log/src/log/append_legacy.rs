//! Appending messages of magic 0 and 1, copied from another log of this node. Producers cannot
//! write them.
//!
//! They have no leader epoch and no producer. A compressed message only has its last offset, so
//! only that is checked.
//!
//! Kafka: `UnifiedLog.appendAsFollower`, `UnifiedLog.maybeRoll`.

use std::io::IoSlice;

use ottla_records::legacy::LegacyMessage;
use ottla_types::{Offset, Timestamp};

use super::Log;
use super::append::{AppendInfo, Entry, MAX_BASE_OFFSET, write_all};
use crate::error::{AppendError, AppendErrorReason};

impl Log {
    /// Appends messages at their own offsets.
    pub fn append_legacy(
        &mut self,
        messages: &[LegacyMessage],
        now: Timestamp,
    ) -> Result<AppendInfo, AppendError> {
        let mut info = AppendInfo {
            first_offset: messages
                .first()
                .map_or(self.log_end_offset(), |message| message.offset),
            last_offset: self.log_end_offset().plus(-1),
            bytes: 0,
            rolled: false,
        };
        for (index, message) in messages.iter().enumerate() {
            match self.append_message(message, now) {
                Ok(rolled) => info.rolled |= rolled,
                Err(reason) => {
                    return Err(AppendError {
                        batches_written: index,
                        reason,
                    });
                }
            }
            info.last_offset = message.offset;
            info.bytes += message.size_in_bytes() as u64;
        }
        Ok(info)
    }

    /// Returns whether a new segment was started.
    fn append_message(
        &mut self,
        message: &LegacyMessage,
        now: Timestamp,
    ) -> Result<bool, AppendErrorReason> {
        let last_offset = message.offset;
        if !(0..=MAX_BASE_OFFSET).contains(&last_offset.0) {
            return Err(AppendErrorReason::InvalidOffsets {
                base_offset: last_offset,
                last_offset,
            });
        }
        let entry = Entry {
            last_offset,
            max_timestamp: message.timestamp,
            size: message.size_in_bytes() as u64,
        };
        self.check_place(last_offset, message.size_in_bytes())?;
        let is_roll_due = self.is_roll_due(entry, entry.size, now);
        if is_roll_due {
            // The offset of the first inner message is unknown, but it is within the range of an
            // index before the last.
            let first = Offset(last_offset.0 - i64::from(i32::MAX));
            self.roll_at(first.max(self.log_end_offset()), now)
                .map_err(AppendErrorReason::from_storage)?;
        }
        let position = self.active.segment.size();
        let bytes = message.to_bytes();
        self.with_active_file(|file| {
            let written = write_all(file, &mut [IoSlice::new(&bytes)], position);
            written.map_err(|(error, written)| {
                self.cut_file_back(file, position, position + written, error)
                    .unwrap_or_else(|reason| reason)
            })
        })??;
        self.publish_entries(std::iter::once(entry));
        // Epochs must grow with the offsets. As in Kafka, followers truncate to the high watermark
        // until new epochs exist.
        if self.leader_epochs.latest().is_some() {
            self.leader_epochs.clear();
            self.on_epochs_changed();
        }
        self.spill_indexes();
        self.producers.set_map_end_offset(last_offset.plus(1));
        self.set_log_end_offset(last_offset.plus(1));
        Ok(is_roll_due)
    }
}
