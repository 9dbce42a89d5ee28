//! Bounds on the memory that clients together can make a node use, each a share of the memory
//! available to the process. `docs/operations.md` describes what happens at each bound.
//!
//! Without the bound of the heap as a whole, the shares add up to less than half of the memory. The
//! rest is left to the page cache, which serves reads of records.

use ottla_sync::machine::Machine;

/// The smallest budget of each part that a node needs, even on a small machine.
const LEAST_BYTES: u64 = 4 * 1024 * 1024;

/// The budgets of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budgets {
    /// The whole heap. Above this, no request is accepted that creates long-lived state, such as a
    /// group member.
    pub heap_bytes: u64,
    /// Requests that are being received or processed, if `queued.max.request.bytes` is not set.
    pub request_bytes: usize,
    /// Messages of clients that have not logged in yet.
    pub login_bytes: usize,
    /// Decoded requests other than Produce, and decoded Produce requests with unusually many
    /// partitions. The handlers of these requests may use several times as much.
    pub decoded_bytes: usize,
    /// Responses that clients do not read.
    pub unsent_answer_bytes: usize,
    /// Batches that are being decompressed and recompressed.
    pub compression_bytes: usize,
    /// Records that are read from remote storage, until their responses leave.
    pub remote_read_bytes: usize,
    /// Partitions of all incremental fetch sessions.
    pub fetch_session_partitions: usize,
    /// Metrics that clients pushed.
    pub telemetry_bytes: usize,
}

/// Memory per partition of a fetch session: its key twice, and the last request and response.
const FETCH_SESSION_PARTITION_BYTES: u64 = 256;

impl Budgets {
    pub fn of(machine: &Machine) -> Budgets {
        let share = |divisor: u64| (machine.memory_bytes / divisor).max(LEAST_BYTES);
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Budgets {
            heap_bytes: share(2),
            request_bytes: bytes(share(8)),
            // No minimum: nearly all of these messages are too small to be counted.
            login_bytes: bytes(machine.memory_bytes / 128),
            decoded_bytes: bytes(share(32)),
            unsent_answer_bytes: bytes(share(16)),
            compression_bytes: bytes(share(8)),
            // No minimum: a read returns less, and one batch at a time may exceed it.
            remote_read_bytes: bytes(machine.memory_bytes / 32),
            fetch_session_partitions: bytes(share(32) / FETCH_SESSION_PARTITION_BYTES),
            // No minimum: a node works without these metrics.
            telemetry_bytes: bytes(machine.memory_bytes / 64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(memory_bytes: u64) -> Machine {
        Machine {
            memory_bytes,
            is_memory_limited: true,
            processors: 1,
        }
    }

    #[test]
    fn budgets_follow_the_memory() {
        let small = Budgets::of(&machine(256 << 20));
        assert_eq!(small.request_bytes, 32 << 20);
        assert_eq!(small.decoded_bytes, 8 << 20);
        assert_eq!(small.unsent_answer_bytes, 16 << 20);
        let large = Budgets::of(&machine(64 << 30));
        assert_eq!(large.request_bytes, 8 << 30);
        assert_eq!(large.fetch_session_partitions, (2 << 30) / 256);
        assert_eq!(
            (small.telemetry_bytes, large.telemetry_bytes),
            (4 << 20, 1 << 30)
        );
    }

    #[test]
    fn the_budgets_leave_more_than_half_to_the_page_cache() {
        for memory in [64 << 20, 256 << 20, 24 << 30] {
            let of = Budgets::of(&machine(memory));
            let sessions = of.fetch_session_partitions as u64 * FETCH_SESSION_PARTITION_BYTES;
            let bytes = of.request_bytes
                + of.login_bytes
                + of.decoded_bytes
                + of.unsent_answer_bytes
                + of.compression_bytes
                + of.remote_read_bytes
                + of.telemetry_bytes;
            assert!(bytes as u64 + sessions < memory / 2, "{of:?}");
        }
    }
}
