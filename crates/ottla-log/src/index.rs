//! The three indexes of a segment: offset to position, timestamp to offset, aborted transactions.
//!
//! All are sequences of fixed-size entries, append-only while the segment is active. The newest
//! entries are kept in memory and written to the file when enough have gathered or the segment is
//! flushed: an append costs no write for its index entry, and no file has to be preallocated and
//! cut later, unlike Kafka's mapped files. Entries that a crash loses are rebuilt by recovery,
//! which always scans the segments from the recovery point on.

mod entries;
mod offset_index;
mod time_index;
mod transaction_index;

pub(crate) use entries::OpenFile;
pub(crate) use offset_index::OffsetIndex;
pub(crate) use time_index::TimeIndex;
pub use time_index::TimestampOffset;
pub use transaction_index::AbortedTxn;
pub(crate) use transaction_index::TransactionIndex;
