//! Interceptors, which see and can change the records that a consumer returns
//! (`org.apache.kafka.clients.consumer.ConsumerInterceptor`).

use std::collections::BTreeMap;

use super::{CommitOffset, ConsumerRecord, FetchedBatch, Partition};

/// Sees all records that polls return, and all commits. Called on the owner's thread, from within
/// `poll`, a commit or `close`. Each interceptor gets the result of the previous one.
///
/// Positions advance by the fetched records, regardless of changes here. Kafka catches exceptions
/// of an interceptor; a panic here goes to the caller. `Sync`, so that a task can own a consumer.
///
/// ```
/// use std::collections::BTreeMap;
/// use ottla_client::{CommitOffset, ConsumerInterceptor, ConsumerRecord, FetchedBatch};
///
/// #[derive(Default)]
/// struct Counting {
///     records: usize,
///     commits: usize,
/// }
///
/// impl ConsumerInterceptor for Counting {
///     fn on_consume(&mut self, records: Vec<ConsumerRecord>) -> Vec<ConsumerRecord> {
///         self.records += records.len();
///         records
///     }
///
///     fn on_consume_batches(&mut self, batches: Vec<FetchedBatch>) -> Vec<FetchedBatch> {
///         self.records += batches.iter().map(FetchedBatch::record_count).sum::<usize>();
///         batches
///     }
///
///     fn on_commit(&mut self, _offsets: &BTreeMap<(String, i32), CommitOffset>) {
///         self.commits += 1;
///     }
/// }
/// # let mut counting = Counting::default();
/// # counting.on_commit(&BTreeMap::new());
/// # assert_eq!(counting.commits, 1);
/// ```
pub trait ConsumerInterceptor: Send + Sync {
    /// Called before [`Consumer::poll`](super::Consumer::poll) returns. Records can be changed,
    /// removed and added.
    fn on_consume(&mut self, records: Vec<ConsumerRecord>) -> Vec<ConsumerRecord> {
        records
    }

    /// Called before [`Consumer::poll_batches`](super::Consumer::poll_batches) returns. Batches can
    /// be removed. To change records, use `poll`.
    fn on_consume_batches(&mut self, batches: Vec<FetchedBatch>) -> Vec<FetchedBatch> {
        batches
    }

    /// The offsets have been committed.
    fn on_commit(&mut self, _offsets: &BTreeMap<Partition, CommitOffset>) {}
}
