//! Reporting the results of records.
//!
//! A batch has one completion, shared by all its records: a [`Delivery`] is a reference to it and
//! the index of the record. A record allocates something only if it has a callback. Programs that
//! count records use a [`DeliveryListener`], which is notified of whole batches.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use ottla_sync::SetOnce;

use super::record::{ProducerRecord, RecordMetadata};
use crate::error::ClientError;

/// Where a batch was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// -1 if it is unknown.
    pub(super) base_offset: i64,
    /// -1 if the records keep their own timestamps.
    pub(super) log_append_time: i64,
}

impl Written {
    pub(super) fn metadata(self, partition: i32, index: u32, timestamp: i64) -> RecordMetadata {
        RecordMetadata {
            partition,
            offset: match self.base_offset {
                ..0 => -1,
                base_offset => base_offset + i64::from(index),
            },
            timestamp: match self.log_append_time {
                ..0 => timestamp,
                log_append_time => log_append_time,
            },
        }
    }
}

/// The result of a batch.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Done(Result<Written, ClientError>),
    /// The batch was too large and was split. Each part has the index of its first record.
    Split(Vec<(u32, Arc<Completion>)>),
}

/// The completion of a batch.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) partition: i32,
    outcome: SetOnce<Outcome>,
}

impl Completion {
    pub(super) fn new(partition: i32) -> Arc<Completion> {
        Arc::new(Completion {
            partition,
            outcome: SetOnce::new(),
        })
    }

    /// Only the first result counts.
    pub(super) fn set(&self, outcome: Outcome) {
        let _ = self.outcome.set(outcome);
    }

    pub(super) async fn wait(self: &Arc<Self>) {
        let mut pending = vec![self.clone()];
        while let Some(completion) = pending.pop() {
            if let Outcome::Split(parts) = completion.outcome.wait().await {
                pending.extend(parts.iter().map(|(_, part)| part.clone()));
            }
        }
    }
}

/// The number of references that a thread keeps, one per partition slot.
const KEPT: usize = 8;

thread_local! {
    /// References to completions from dropped deliveries of this thread, by partition. An atomic
    /// increment of a reference count waits until all earlier writes have reached the cache, which
    /// includes the record that was just encoded. Most programs drop a delivery, or all but the
    /// last one, on the sending thread, so one reference is passed from delivery to delivery of a
    /// batch without being counted. The kept references retain at most [`KEPT`] small completions.
    static SPARE: [Cell<Option<Arc<Completion>>>; KEPT] = const { [const { Cell::new(None) }; KEPT] };
}

impl Completion {
    #[inline]
    fn place(&self) -> usize {
        self.partition as usize % KEPT
    }

    /// A reference to this completion. Reuses the reference that this thread has kept, if there is
    /// one.
    #[inline]
    fn reference(self: &Arc<Self>) -> Arc<Completion> {
        match SPARE.try_with(|spare| spare[self.place()].take()) {
            Ok(Some(kept)) if Arc::ptr_eq(&kept, self) => kept,
            _ => self.clone(),
        }
    }

    #[inline]
    fn give_back(self: Arc<Self>) {
        // While the thread ends, nothing is kept. The previous reference is dropped after it was
        // replaced.
        let _before = SPARE.try_with(|spare| spare[self.place()].replace(Some(self)));
    }
}

/// The result of a record, which can be awaited, polled or ignored.
///
/// ```no_run
/// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::RecordRef;
///
/// let first = producer.send_ref(RecordRef::new("orders", b"1")).await?;
/// let second = producer.send_ref(RecordRef::new("orders", b"2")).await?;
/// println!("{}, {}", first.wait().await?.offset, second.wait().await?.offset);
/// # Ok(())
/// # }
/// ```
pub struct Delivery {
    /// `Some` until it is dropped.
    completion: Option<Arc<Completion>>,
    index: u32,
    timestamp: i64,
}

impl Delivery {
    #[inline]
    pub(super) fn new(completion: &Arc<Completion>, index: u32, timestamp: i64) -> Delivery {
        Delivery {
            completion: Some(completion.reference()),
            index,
            timestamp,
        }
    }

    fn completion(&self) -> Arc<Completion> {
        self.completion
            .clone()
            .expect("it is given back when the delivery is dropped")
    }

    /// Waits until the record is written, or has failed.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RecordRef;
    ///
    /// let delivery = producer.send_ref(RecordRef::new("orders", b"1")).await?;
    /// let written = delivery.wait().await?;
    /// println!("partition {}, offset {}", written.partition, written.offset);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait(self) -> Result<RecordMetadata, ClientError> {
        let (mut completion, mut index) = (self.completion(), self.index);
        loop {
            let outcome = completion.outcome.wait().await.clone();
            match outcome {
                Outcome::Done(result) => {
                    return result
                        .map(|it| it.metadata(completion.partition, index, self.timestamp));
                }
                Outcome::Split(parts) => (completion, index) = part_of(&parts, index),
            }
        }
    }

    /// The result of the record, if it is known.
    ///
    /// ```no_run
    /// # fn example(delivery: &ottla_client::Delivery) {
    /// match delivery.outcome() {
    ///     None => println!("not sent yet"),
    ///     Some(Ok(written)) => println!("offset {}", written.offset),
    ///     Some(Err(error)) => println!("{error}"),
    /// }
    /// # }
    /// ```
    pub fn outcome(&self) -> Option<Result<RecordMetadata, ClientError>> {
        let (mut completion, mut index) = (self.completion(), self.index);
        loop {
            let outcome = completion.outcome.get()?.clone();
            match outcome {
                Outcome::Done(result) => {
                    let metadata =
                        result.map(|it| it.metadata(completion.partition, index, self.timestamp));
                    return Some(metadata);
                }
                Outcome::Split(parts) => (completion, index) = part_of(&parts, index),
            }
        }
    }
}

impl Clone for Delivery {
    fn clone(&self) -> Delivery {
        Delivery {
            completion: self.completion.clone(),
            index: self.index,
            timestamp: self.timestamp,
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("index", &self.index)
            .field("outcome", &self.outcome())
            .finish()
    }
}

impl Drop for Delivery {
    #[inline]
    fn drop(&mut self) {
        if let Some(completion) = self.completion.take() {
            completion.give_back();
        }
    }
}

/// The part that contains the record with this index, and its index in the part.
fn part_of(parts: &[(u32, Arc<Completion>)], index: u32) -> (Arc<Completion>, u32) {
    let at = parts.partition_point(|(first, _)| *first <= index);
    let (first, completion) = &parts[at.max(1) - 1];
    (completion.clone(), index - first)
}

/// Called once with the result of a record.
///
/// ```no_run
/// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::{DeliveryCallback, RecordRef};
///
/// let tell: DeliveryCallback = Box::new(|written| println!("{written:?}"));
/// producer.send_with_callback(RecordRef::new("orders", b"1"), tell).await?;
/// # Ok(())
/// # }
/// ```
pub type DeliveryCallback = Box<dyn FnOnce(Result<RecordMetadata, ClientError>) + Send>;

/// A completed batch.
///
/// ```no_run
/// # fn example(batch: &ottla_client::DeliveredBatch<'_>) {
/// match batch.result {
///     Ok(offset) => println!("{}-{} from {offset} on", batch.topic, batch.partition),
///     Err(error) => println!("{} records failed: {error}", batch.record_count),
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct DeliveredBatch<'a> {
    pub topic: &'a str,
    pub partition: i32,
    /// The offset of the first record, -1 if it is unknown.
    pub result: Result<i64, &'a ClientError>,
    pub record_count: u32,
    /// The size as sent, after compression.
    pub bytes: usize,
    /// The tags of the records, in order.
    pub tags: &'a [u64],
}

/// Notified of every completed batch, on the sender's task, so it must not block.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use ottla_client::{DeliveredBatch, DeliveryListener};
///
/// #[derive(Default)]
/// struct Counting {
///     written: AtomicU64,
/// }
///
/// impl DeliveryListener for Counting {
///     fn on_delivered(&self, batch: &DeliveredBatch<'_>) {
///         if batch.result.is_ok() {
///             self.written.fetch_add(batch.record_count.into(), Ordering::Relaxed);
///         }
///     }
/// }
/// # let counting = Counting::default();
/// # counting.on_delivered(&DeliveredBatch {
/// #     topic: "orders", partition: 0, result: Ok(7), record_count: 2, bytes: 90, tags: &[],
/// # });
/// # assert_eq!(counting.written.into_inner(), 2);
/// ```
pub trait DeliveryListener: Send + Sync {
    fn on_delivered(&self, batch: &DeliveredBatch<'_>);
}

/// Sees and can change every record that is sent, and is notified of its result
/// (`org.apache.kafka.clients.producer.ProducerInterceptor`).
///
/// ```
/// use ottla_client::{ClientError, ProducerInterceptor, ProducerRecord, RecordMetadata};
///
/// struct Lowercase;
///
/// impl ProducerInterceptor for Lowercase {
///     fn on_send(&self, record: ProducerRecord) -> ProducerRecord {
///         let value = record.value.map(|value| value.to_ascii_lowercase().into());
///         ProducerRecord { value, ..record }
///     }
///
///     fn on_acknowledgement(&self, topic: &str, result: Result<&RecordMetadata, &ClientError>) {
///         if let Err(error) = result {
///             eprintln!("{topic}: {error}");
///         }
///     }
/// }
/// # let record = ProducerRecord { value: Some("A".into()), ..Default::default() };
/// # assert_eq!(Lowercase.on_send(record).value.as_deref(), Some(&b"a"[..]));
/// ```
pub trait ProducerInterceptor: Send + Sync {
    /// Called on the sending thread.
    fn on_send(&self, record: ProducerRecord) -> ProducerRecord {
        record
    }

    /// Called on the sender's task, so it must not block.
    fn on_acknowledgement(&self, _topic: &str, _result: Result<&RecordMetadata, &ClientError>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn records_of_a_split_batch_get_the_result_of_their_part() {
        let whole = Completion::new(3);
        let (first, second) = (Completion::new(3), Completion::new(3));
        let delivery = |index| Delivery::new(&whole, index, 7);
        assert!(delivery(0).outcome().is_none());
        whole.set(Outcome::Split(vec![
            (0, first.clone()),
            (4, second.clone()),
        ]));
        assert!(delivery(4).outcome().is_none());
        let written = |base_offset| {
            Outcome::Done(Ok(Written {
                base_offset,
                log_append_time: -1,
            }))
        };
        first.set(written(10));
        second.set(written(20));
        for (index, offset) in [(0, 10), (3, 13), (4, 20), (6, 22)] {
            let metadata = delivery(index).wait().await.unwrap();
            assert_eq!((metadata.offset, metadata.timestamp), (offset, 7));
        }
    }

    /// A kept reference must not be used for another batch, and must not keep its completion alive
    /// forever.
    #[tokio::test]
    async fn dropped_deliveries_leave_one_cached_reference_per_partition() {
        let [first, second, elsewhere] = [3, 3, 4].map(Completion::new);
        for _ in 0..10 {
            drop(Delivery::new(&first, 0, 0));
        }
        assert_eq!(Arc::strong_count(&first), 2);
        let held: Vec<Delivery> = (0..5)
            .map(|index| Delivery::new(&first, index, 0))
            .collect();
        assert_eq!(Arc::strong_count(&first), 6);
        // References of another partition are kept in another slot.
        drop(Delivery::new(&elsewhere, 0, 0));
        drop(held);
        assert_eq!(
            (Arc::strong_count(&first), Arc::strong_count(&elsewhere)),
            (2, 2)
        );
        let delivery = Delivery::new(&second, 0, 0);
        assert_eq!(
            (Arc::strong_count(&first), Arc::strong_count(&second)),
            (1, 2)
        );
        first.set(Outcome::Done(Ok(Written {
            base_offset: 1,
            log_append_time: -1,
        })));
        second.set(Outcome::Done(Ok(Written {
            base_offset: 2,
            log_append_time: -1,
        })));
        assert_eq!(delivery.clone().wait().await.unwrap().offset, 2);
        assert_eq!(Arc::strong_count(&second), 3);
        // They are kept by the thread that drops them, until that thread ends.
        ottla_sync::thread::spawn(move || drop(delivery))
            .join()
            .unwrap();
        drop(Delivery::new(&first, 0, 0));
        assert_eq!(
            (Arc::strong_count(&first), Arc::strong_count(&second)),
            (2, 1)
        );
    }
}
