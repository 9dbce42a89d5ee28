//! How long a connection keeps its thread from other tasks.

/// After this many bytes or requests, the task of a connection yields.
const YIELD_BYTES: usize = 1024 * 1024;
pub(super) const YIELD_REQUESTS: usize = 64;

/// What the task of a connection has done since others could last run on its thread.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) bytes_read: usize,
    pub(super) requests: usize,
}

impl Turn {
    /// Whether the task yields before it takes another request.
    pub(super) fn is_over(&self) -> bool {
        self.bytes_read >= YIELD_BYTES || self.requests >= YIELD_REQUESTS
    }
}
