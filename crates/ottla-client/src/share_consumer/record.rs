//! The record type of share consumers.

use super::session::TopicIdAndPartition;
use crate::consumer::ConsumerRecord;

/// The broker and the partition of a record.
pub(super) type Source = (i32, TopicIdAndPartition);

/// A record that is locked for this member until it is acknowledged or the lock expires.
///
/// ```no_run
/// # async fn example(consumer: &mut ottla_client::ShareConsumer) -> Result<(), ottla_client::ClientError> {
/// use std::time::Duration;
///
/// for job in consumer.poll(Duration::from_secs(1)).await? {
///     println!("offset {}, delivery {}", job.record.offset, job.delivery_count);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareRecord {
    pub record: ConsumerRecord,
    /// The number of deliveries to any member, including this one.
    pub delivery_count: i16,
    pub(super) source: Source,
}
