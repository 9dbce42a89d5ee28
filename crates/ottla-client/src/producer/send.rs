//! The variants of `send`: waiting or immediate, with a delivery, a callback or a tag.

use ottla_sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ottla_records::BatchHeader;

use super::accumulator::{AwaitDelivery, Interest, Refused, Tagged};
use super::buffer_pool::Grant;
use super::delivery::{Delivery, DeliveryCallback};
use super::metrics::Call;
use super::record::{ProducerRecord, RecordRef};
use super::{Producer, Shared};
use crate::clock::now_ms;
use crate::error::ClientError;

/// Why a record could not be sent immediately.
///
/// ```no_run
/// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::{RecordRef, TrySendError};
///
/// let record = RecordRef::new("orders", b"1");
/// match producer.try_send(record) {
///     Ok(_delivery) => {}
///     Err(TrySendError::Failed(error)) => return Err(error),
///     Err(TrySendError::BufferFull | TrySendError::UnknownTopic) => {
///         producer.send_ref(record).await?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum TrySendError {
    /// `buffer.memory` is exhausted.
    BufferFull,
    /// The partitions of the topic are not known yet.
    UnknownTopic,
    Failed(ClientError),
}

impl Producer {
    /// Sends a record. Waits up to `max.block.ms` for memory and for the topic's metadata. The
    /// returned delivery gives the result.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ProducerRecord;
    ///
    /// let record = ProducerRecord {
    ///     topic: "orders".to_owned(),
    ///     value: Some("1 book".into()),
    ///     ..ProducerRecord::default()
    /// };
    /// println!("{:?}", producer.send(record).await?.wait().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send(&self, record: ProducerRecord) -> Result<Delivery, ClientError> {
        self.send_ref(record.as_ref()).await
    }

    /// As [`Producer::send`], with a borrowed record.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RecordRef;
    ///
    /// for number in 0..1000 {
    ///     let value = number.to_string();
    ///     producer.send_ref(RecordRef::new("numbers", value.as_bytes())).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_ref(&self, record: RecordRef<'_>) -> Result<Delivery, ClientError> {
        self.shared.send(record, AwaitDelivery).await
    }

    /// As [`Producer::send`]. The callback is called on the sender's task and must not block.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RecordRef;
    ///
    /// let record = RecordRef::new("orders", b"1");
    /// producer
    ///     .send_with_callback(record, Box::new(|written| println!("{written:?}")))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_with_callback(
        &self,
        record: RecordRef<'_>,
        callback: DeliveryCallback,
    ) -> Result<(), ClientError> {
        self.shared.send(record, callback).await
    }

    /// As [`Producer::send`]. Only the listener is notified, with the tag.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RecordRef;
    ///
    /// for tag in 0..1000 {
    ///     producer.send_tagged(RecordRef::new("numbers", b"x"), tag).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_tagged(&self, record: RecordRef<'_>, tag: u64) -> Result<(), ClientError> {
        self.shared.send(record, Tagged(tag)).await
    }

    /// As [`Producer::send_ref`] for a thread outside the runtime, which it blocks.
    ///
    /// ```no_run
    /// # fn example(producer: &ottla_client::Producer, runtime: &ottla_sync::task::Handle) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RecordRef;
    ///
    /// // `runtime` is the handle of the runtime on which the producer was started.
    /// let delivery = producer.send_blocking(runtime, RecordRef::new("orders", b"1"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_blocking(
        &self,
        runtime: &ottla_sync::task::Handle,
        record: RecordRef<'_>,
    ) -> Result<Delivery, ClientError> {
        self.shared.send_blocking(runtime, record)
    }

    /// Sends a record immediately or not at all. Never waits, so it can be called on any thread.
    /// For interceptors, a refused record has failed, and a retry is a new record.
    ///
    /// ```no_run
    /// # fn example(producer: &ottla_client::Producer) {
    /// use ottla_client::{RecordRef, TrySendError};
    ///
    /// match producer.try_send(RecordRef::new("orders", b"1")) {
    ///     Ok(_delivery) => println!("on its way"),
    ///     Err(TrySendError::BufferFull) => println!("dropped: the brokers are too slow"),
    ///     Err(other) => println!("{other:?}"),
    /// }
    /// # }
    /// ```
    #[inline]
    pub fn try_send(&self, record: RecordRef<'_>) -> Result<Delivery, TrySendError> {
        self.shared.try_send_for_delivery(record)
    }

    /// As [`Producer::try_send`]. Only the listener is notified, with the tag.
    ///
    /// ```no_run
    /// # fn example(producer: &ottla_client::Producer) {
    /// use ottla_client::RecordRef;
    ///
    /// if producer.try_send_tagged(RecordRef::new("orders", b"1"), 7).is_err() {
    ///     println!("record 7 was not taken");
    /// }
    /// # }
    /// ```
    #[inline]
    pub fn try_send_tagged(&self, record: RecordRef<'_>, tag: u64) -> Result<(), TrySendError> {
        self.shared.try_send_tagged(record, tag)
    }
}

impl Shared {
    #[inline]
    pub(super) fn try_send_for_delivery(
        &self,
        record: RecordRef<'_>,
    ) -> Result<Delivery, TrySendError> {
        self.try_send(record, AwaitDelivery)
    }

    #[inline]
    pub(super) fn try_send_tagged(
        &self,
        record: RecordRef<'_>,
        tag: u64,
    ) -> Result<(), TrySendError> {
        self.try_send(record, Tagged(tag))
    }

    #[inline(always)]
    fn try_send<I: Interest>(
        &self,
        record: RecordRef<'_>,
        interest: I,
    ) -> Result<I::Answer, TrySendError> {
        if !self.interceptors.is_empty() {
            return self.try_send_intercepted(record, interest);
        }
        self.try_append_now(record, interest)
    }

    #[cold]
    fn try_send_intercepted<I: Interest>(
        &self,
        record: RecordRef<'_>,
        interest: I,
    ) -> Result<I::Answer, TrySendError> {
        let record = self.intercepted(record);
        let result = self.try_append_now(record.as_ref(), interest);
        if let Err(refusal) = &result {
            let error = match refusal {
                TrySendError::Failed(error) => error.clone(),
                TrySendError::BufferFull => {
                    ClientError::Unsendable("buffer.memory is used up".into())
                }
                TrySendError::UnknownTopic => ClientError::Unsendable(format!(
                    "the partitions of {} are not known yet",
                    record.topic
                )),
            };
            self.tell_interceptors(&record.topic, &error);
        }
        result
    }

    fn tell_interceptors(&self, topic: &str, error: &ClientError) {
        for interceptor in &self.interceptors {
            interceptor.on_acknowledgement(topic, Err(error));
        }
    }

    #[inline(always)]
    fn try_append_now<I: Interest>(
        &self,
        record: RecordRef<'_>,
        interest: I,
    ) -> Result<I::Answer, TrySendError> {
        let timestamp = self.check(&record).map_err(TrySendError::Failed)?;
        match self.append(&record, timestamp, interest, &mut None) {
            Ok(answer) => Ok(answer),
            Err(Waits::ForMemory { .. }) => {
                self.wake_sender.notify_one();
                Err(TrySendError::BufferFull)
            }
            Err(Waits::ForTopic { .. }) => Err(TrySendError::UnknownTopic),
            Err(Waits::InVain(error)) => Err(TrySendError::Failed(error)),
        }
    }

    async fn send<I: Interest>(
        &self,
        record: RecordRef<'_>,
        interest: I,
    ) -> Result<I::Answer, ClientError> {
        let intercepted;
        let record = if self.interceptors.is_empty() {
            record
        } else {
            intercepted = self.intercepted(record);
            intercepted.as_ref()
        };
        let result = self.send_waiting(record, interest).await;
        if let Err(error) = &result {
            self.tell_interceptors(record.topic, error);
        }
        result
    }

    fn send_blocking(
        &self,
        runtime: &ottla_sync::task::Handle,
        record: RecordRef<'_>,
    ) -> Result<Delivery, ClientError> {
        // Intercepted once, although there may be two attempts.
        let intercepted;
        let record = if self.interceptors.is_empty() {
            record
        } else {
            intercepted = self.intercepted(record);
            intercepted.as_ref()
        };
        let result = match self.try_append_now(record, AwaitDelivery) {
            Ok(delivery) => return Ok(delivery),
            Err(TrySendError::Failed(error)) => Err(error),
            Err(_) => runtime.block_on(self.send_waiting(record, AwaitDelivery)),
        };
        if let Err(error) = &result {
            self.tell_interceptors(record.topic, error);
        }
        result
    }

    async fn send_waiting<I: Interest>(
        &self,
        record: RecordRef<'_>,
        mut interest: I,
    ) -> Result<I::Answer, ClientError> {
        let timestamp = self.check(&record)?;
        let mut grant = None;
        let mut deadline = None;
        loop {
            let waits = match self.append(&record, timestamp, interest, &mut grant) {
                Ok(answer) => return Ok(answer),
                Err(waits) => waits,
            };
            let deadline =
                *deadline.get_or_insert_with(|| ottla_sync::time::now() + self.config.max_block);
            match waits {
                Waits::ForMemory { bytes, back } => {
                    grant = Some(self.wait_for_memory(bytes, deadline).await?);
                    interest = back;
                }
                Waits::ForTopic { back } => {
                    let began = ottla_sync::time::now();
                    self.wait_for_topic(record.topic, deadline).await?;
                    self.sensors.on_spent(Call::MetadataWait, began);
                    interest = back;
                }
                Waits::InVain(error) => return Err(error),
            }
        }
    }

    fn intercepted(&self, record: RecordRef<'_>) -> ProducerRecord {
        let start = record.to_owned();
        self.interceptors
            .iter()
            .fold(start, |record, it| it.on_send(record))
    }

    /// Refuses records that can never be sent. Returns the record's timestamp.
    #[inline(always)]
    fn check(&self, record: &RecordRef<'_>) -> Result<i64, ClientError> {
        let size = record.size_upper_bound();
        let limit = self.config.max_request_size.min(self.config.buffer_memory);
        let is_closed = self.is_closed.load(Ordering::Relaxed);
        if is_closed || size + BatchHeader::SIZE > limit || self.transaction.is_some() {
            self.check_further(size, limit)?;
        }
        Ok(record.timestamp.unwrap_or_else(now_ms))
    }

    #[cold]
    #[inline(never)]
    fn check_further(&self, size: usize, limit: usize) -> Result<(), ClientError> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(ClientError::ClientClosed);
        }
        if size + BatchHeader::SIZE > limit {
            let (name, limit) = match self.config.max_request_size <= limit {
                true => ("max.request.size", self.config.max_request_size),
                false => ("buffer.memory", self.config.buffer_memory),
            };
            return Err(ClientError::Unsendable(format!(
                "the record has {} bytes, more than {name}={limit}",
                size + BatchHeader::SIZE
            )));
        }
        if let Some(transaction) = &self.transaction {
            transaction.lock().check_may_send()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn append<I: Interest>(
        &self,
        record: &RecordRef<'_>,
        timestamp: i64,
        interest: I,
        grant: &mut Option<Grant>,
    ) -> Result<I::Answer, Waits<I>> {
        let Some(topic) = self.accumulator.topics.get(record.topic) else {
            return Err(Waits::ForTopic { back: interest });
        };
        let appended = self
            .accumulator
            .append(topic, record, timestamp, interest, grant);
        match appended {
            Ok(appended) => {
                if appended.is_news {
                    self.wake_sender.notify_one();
                }
                Ok(appended.answer)
            }
            Err(Refused::NoMemory { bytes, interest }) => Err(Waits::ForMemory {
                bytes,
                back: interest,
            }),
            Err(Refused::NoSuchPartition {
                partition,
                partitions,
            }) => Err(Waits::InVain(ClientError::Unsendable(format!(
                "topic {} has no partition {partition}; it has {partitions}",
                record.topic
            )))),
        }
    }

    async fn wait_for_memory(&self, bytes: usize, deadline: Instant) -> Result<Grant, ClientError> {
        let began = ottla_sync::time::now();
        let grant = self
            .accumulator
            .pool
            .grant(bytes, || self.wake_sender.notify_one());
        let left = deadline.saturating_duration_since(began);
        let granted = ottla_sync::time::timeout(left, grant).await;
        self.sensors
            .on_memory_awaited(ottla_sync::time::elapsed(began), granted.is_ok());
        granted.map_err(|_| {
            ClientError::Unsendable(format!(
                "there was no room in buffer.memory={} for {} ms (max.block.ms); \
                 records are sent faster than they are written",
                self.config.buffer_memory,
                self.config.max_block.as_millis()
            ))
        })
    }

    /// Waits until the partitions of a topic are known.
    pub(super) async fn wait_for_topic(
        &self,
        topic: &str,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let names = [topic.to_owned()];
        let mut pause = self.client.config().retry_backoff;
        let mut last = None;
        loop {
            if self.accumulator.topics.get(topic).is_some() {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(ottla_sync::time::now());
            let asked = self.client.refresh_metadata(Some(&names), true);
            match ottla_sync::time::timeout(left, asked).await {
                Ok(Ok(metadata)) => {
                    if let Some(found) = metadata.topics.get(topic) {
                        self.accumulator
                            .topics
                            .set_partitions(topic, found.partitions.len());
                        if found.error.code() != 0 {
                            let error = ClientError::broker(
                                format!("topic {topic}"),
                                found.error.code(),
                                None::<&str>,
                            );
                            if !found.error.is_retriable() {
                                return Err(error);
                            }
                            last = Some(error);
                        }
                    }
                }
                Ok(Err(error)) if error.is_retriable() => last = Some(error),
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
            if self.accumulator.topics.get(topic).is_some() {
                return Ok(());
            }
            if ottla_sync::time::now() + pause >= deadline {
                let unknown = || {
                    ClientError::broker(
                        format!("topic {topic}"),
                        ottla_types::ErrorCode::UnknownTopicOrPartition.code(),
                        Some("it does not exist, and the broker has not created it"),
                    )
                };
                return Err(ClientError::GaveUp {
                    what: format!("finding the partitions of {topic}"),
                    after: self.config.max_block,
                    last: Box::new(last.unwrap_or_else(unknown)),
                });
            }
            ottla_sync::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

/// The reason why a record must wait.
enum Waits<I> {
    ForMemory {
        bytes: usize,
        back: I,
    },
    ForTopic {
        back: I,
    },
    /// It can never be sent.
    InVain(ClientError),
}
