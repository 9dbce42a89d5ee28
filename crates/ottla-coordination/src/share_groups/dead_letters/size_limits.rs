//! The sizes of batches for a dead-letter queue.

/// No batch with several letters is larger, whatever its topic allows: as many batches as are written
/// at the same time are in memory.
const MAX_BATCH_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct SizeLimits {
    /// For a batch with several letters.
    pub(super) batch_bytes: usize,
    /// For any batch: `max.message.bytes` of the queue.
    pub(super) message_bytes: usize,
}

impl SizeLimits {
    pub(super) fn of_queue(max_message_bytes: usize) -> SizeLimits {
        SizeLimits {
            batch_bytes: max_message_bytes.min(MAX_BATCH_BYTES),
            message_bytes: max_message_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_for_large_records_gets_no_larger_batches() {
        let limits = SizeLimits::of_queue(i32::MAX as usize);
        assert_eq!(limits.batch_bytes, MAX_BATCH_BYTES);
        assert_eq!(limits.message_bytes, i32::MAX as usize);
        assert_eq!(SizeLimits::of_queue(1000).batch_bytes, 1000);
    }
}
