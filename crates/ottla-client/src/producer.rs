//! Producing records, with the names and behaviour of Kafka's producer.
//!
//! `send` encodes a record into the batch that will be sent, on the calling thread: one lock, one
//! copy, no allocation. Batches are sent when they are full, when they have lingered, when memory
//! is short, or during a flush. One task, the sender, sends them to the leaders, several per
//! partition in parallel; sequence numbers keep them in order and prevent duplicates.
//!
//! The modules `accumulator`, `batch`, `sequences` and `sticky` are pure; `sender` is the shell
//! around them.

mod accumulator;
mod batch;
mod brief_lock;
mod buffer_pool;
mod config;
mod delivery;
mod metrics;
pub(crate) mod offline;
mod queue_state;
mod record;
mod send;
mod sender;
mod sequences;
mod shared;
mod sticky;
mod topics;
mod transaction;
mod transaction_state;

use ottla_sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use ottla_sync::Mutex;
use ottla_sync::Notify;

use crate::client::Client;
use crate::error::ClientError;
use crate::metrics::Metrics;
use accumulator::Accumulator;
use buffer_pool::BufferPool;
use metrics::{Call, ProducerSensors};
use queue_state::BatchRules;
use shared::Shared;
use transaction_state::TransactionState;

pub use config::ProducerConfig;
pub use delivery::{
    DeliveredBatch, Delivery, DeliveryCallback, DeliveryListener, ProducerInterceptor,
};
pub use record::{ProducerRecord, RecordMetadata, RecordRef};
pub use send::TrySendError;
pub use transaction::ConsumerGroupMetadata;

/// Sends records. Clones are cheap and share everything. Any number of threads can send.
///
/// ```no_run
/// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::RecordRef;
///
/// for value in ["a", "b", "c"] {
///     producer.send_ref(RecordRef::new("letters", value.as_bytes())).await?;
/// }
/// // Records are sent in the background.
/// producer.flush().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
    _owner: Arc<LastOwner>,
}

/// When the last handle is dropped, the sender sends the remaining batches and ends.
struct LastOwner(Arc<Shared>);

impl Drop for LastOwner {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.wake_sender.notify_one();
    }
}

/// A builder with the settings, listener and interceptors of a producer.
///
/// ```no_run
/// # async fn example(client: ottla_client::Client) -> Result<(), ottla_client::ClientError> {
/// use std::sync::Arc;
/// use ottla_client::{DeliveredBatch, DeliveryListener, Producer, ProducerConfig};
///
/// struct Telling;
///
/// impl DeliveryListener for Telling {
///     fn on_delivered(&self, batch: &DeliveredBatch<'_>) {
///         println!("{} records of {}", batch.record_count, batch.topic);
///     }
/// }
///
/// let builder = Producer::builder(client, ProducerConfig::default());
/// let producer = builder.listener(Arc::new(Telling)).start()?;
/// # Ok(())
/// # }
/// ```
pub struct ProducerBuilder {
    client: Client,
    config: ProducerConfig,
    listener: Option<Arc<dyn DeliveryListener>>,
    interceptors: Vec<Arc<dyn ProducerInterceptor>>,
}

impl ProducerBuilder {
    /// Sets the listener, which is notified of every completed batch with the tags of its records.
    ///
    /// ```no_run
    /// # fn example(builder: ottla_client::ProducerBuilder) {
    /// use std::sync::Arc;
    /// use ottla_client::{DeliveredBatch, DeliveryListener};
    ///
    /// struct Telling;
    ///
    /// impl DeliveryListener for Telling {
    ///     fn on_delivered(&self, batch: &DeliveredBatch<'_>) {
    ///         println!("{:?}: {:?}", batch.tags, batch.result);
    ///     }
    /// }
    ///
    /// let builder = builder.listener(Arc::new(Telling));
    /// # }
    /// ```
    #[must_use]
    pub fn listener(mut self, listener: Arc<dyn DeliveryListener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Adds an interceptor after the existing ones.
    ///
    /// ```no_run
    /// # fn example(builder: ottla_client::ProducerBuilder) {
    /// use std::sync::Arc;
    /// use ottla_client::ottla_records::RecordHeader;
    /// use ottla_client::{ProducerInterceptor, ProducerRecord};
    ///
    /// struct Signing;
    ///
    /// impl ProducerInterceptor for Signing {
    ///     fn on_send(&self, mut record: ProducerRecord) -> ProducerRecord {
    ///         record.headers.push(RecordHeader::new("sent-by", Some("billing".into())));
    ///         record
    ///     }
    /// }
    ///
    /// let builder = builder.interceptor(Arc::new(Signing));
    /// # }
    /// ```
    #[must_use]
    pub fn interceptor(mut self, interceptor: Arc<dyn ProducerInterceptor>) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Starts the sender on the current runtime.
    ///
    /// ```no_run
    /// # async fn example(client: ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::{Producer, ProducerConfig};
    ///
    /// let producer = Producer::builder(client, ProducerConfig::default()).start()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(self) -> Result<Producer, ClientError> {
        let shared = Arc::new(self.shared()?);
        ottla_sync::task::spawn(sender::run(shared.clone()));
        Ok(Producer {
            _owner: Arc::new(LastOwner(shared.clone())),
            shared,
        })
    }

    fn shared(self) -> Result<Shared, ClientError> {
        let ProducerBuilder {
            client,
            config,
            listener,
            interceptors,
        } = self;
        config.validate(client.config().request_timeout)?;
        let rules = BatchRules {
            batch_size: config.batch_size,
            linger: config.linger,
            compression: config.compression,
            ignore_keys: config.partitioner_ignore_keys,
            is_adaptive: config.partitioner_adaptive_partitioning_enable,
            keeps_tags: listener.is_some(),
            is_transactional: config.transactional_id.is_some(),
            one_in_flight: config.max_in_flight_requests_per_connection == 1,
        };
        let pool = BufferPool::new(config.buffer_memory, config.batch_size);
        let transaction = config
            .transactional_id
            .is_some()
            .then(|| Mutex::new(TransactionState::default()));
        Ok(Shared {
            accumulator: Accumulator::new(rules, pool),
            sensors: ProducerSensors::new(client.config().metrics_windows()),
            listener,
            interceptors,
            identity: Mutex::default(),
            transaction,
            wake_sender: Notify::new(),
            is_closed: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
            sender_ended: ottla_sync::SetOnce::new(),
            client,
            config,
        })
    }
}

impl Producer {
    /// A producer with these settings. Contradictory settings are an error.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::{Client, ClientConfig, Producer, ProducerConfig};
    ///
    /// let client = Client::connect(ClientConfig::new("127.0.0.1:9092")?).await?;
    /// let producer = Producer::new(client, ProducerConfig::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: Client, config: ProducerConfig) -> Result<Producer, ClientError> {
        Producer::builder(client, config).start()
    }

    /// A builder, for a producer with a listener or interceptors.
    ///
    /// ```no_run
    /// # fn example(client: ottla_client::Client) {
    /// use ottla_client::{Producer, ProducerConfig};
    ///
    /// let builder = Producer::builder(client, ProducerConfig::default());
    /// # }
    /// ```
    pub fn builder(client: Client, config: ProducerConfig) -> ProducerBuilder {
        ProducerBuilder {
            client,
            config,
            listener: None,
            interceptors: Vec::new(),
        }
    }

    /// The settings of this producer.
    ///
    /// ```no_run
    /// # fn example(producer: &ottla_client::Producer) {
    /// println!("idempotent: {}", producer.config().is_idempotent());
    /// # }
    /// ```
    pub fn config(&self) -> &ProducerConfig {
        &self.shared.config
    }

    /// The client that sends the requests.
    ///
    /// ```no_run
    /// # fn example(producer: &ottla_client::Producer) {
    /// println!("connected: {}", producer.client().is_connected());
    /// # }
    /// ```
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Waits until every record sent so far is completed.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RecordRef;
    ///
    /// let delivery = producer.send_ref(RecordRef::new("orders", b"1")).await?;
    /// producer.flush().await;
    /// assert!(delivery.outcome().is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self) {
        let began = ottla_sync::time::now();
        self.shared.flush().await;
        self.shared.sensors.on_spent(Call::Flush, began);
    }

    /// Sends the remaining records and refuses new ones.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// producer.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.flush().await;
        self.shared.wake_sender.notify_one();
        self.shared.sender_ended.wait().await;
    }

    /// As [`Producer::close`], but records that are not sent within the limit fail.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// producer.close_within(std::time::Duration::from_secs(5)).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close_within(&self, limit: Duration) {
        if ottla_sync::time::timeout(limit, self.close())
            .await
            .is_err()
        {
            self.shared.is_aborted.store(true, Ordering::Release);
            self.shared.wake_sender.notify_one();
            self.shared.sender_ended.wait().await;
        }
    }

    /// The metrics of this producer and of its client's connections.
    ///
    /// ```no_run
    /// # fn example(producer: &ottla_client::Producer) {
    /// println!("{:?}", producer.metrics().value("record-send-rate"));
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.shared
            .sensors
            .read(&self.shared.client, &self.shared.accumulator.pool)
    }

    /// The number of partitions of a topic. A topic that does not exist is created if the broker
    /// allows it.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// println!("{} partitions", producer.partitions_for("orders").await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn partitions_for(&self, topic: &str) -> Result<usize, ClientError> {
        let deadline = ottla_sync::time::now() + self.shared.config.max_block;
        self.shared.wait_for_topic(topic, deadline).await?;
        let found = self.shared.accumulator.topics.get(topic);
        Ok(found.map_or(0, |topic| topic.partitions.len()))
    }
}
