//! Transactions and producers of partitions: listing, describing, and aborting hanging transactions
//! (KIP-664).

use ottla_protocol::messages::describe_producers_request::{
    DescribeProducersRequest, TopicRequest,
};
use ottla_protocol::messages::describe_producers_response::ProducerState;
use ottla_protocol::messages::describe_transactions_response::TransactionState;
use ottla_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use ottla_protocol::messages::{
    DescribeTransactionsRequest, InitProducerIdRequest, ListTransactionsRequest,
};
use ottla_types::ErrorCode;

use super::topics::leader_connection;
use super::{Admin, text};
use crate::client::CoordinatorKind;
use crate::error::ClientError;

/// A transactional id in a list.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::TransactionFilter;
///
/// for listed in admin.list_transactions(&TransactionFilter::default()).await? {
///     println!("{}: {}", listed.transactional_id, listed.state);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TransactionListing {
    /// The broker id of its coordinator.
    pub coordinator: i32,
    pub transactional_id: String,
    pub producer_id: i64,
    /// Kafka's name: `Ongoing`.
    pub state: String,
}

/// A filter of transactional ids. Empty lists and `None` match everything.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::TransactionFilter;
///
/// let long = TransactionFilter {
///     duration_ms: Some(600_000),
///     id_pattern: Some("billing-.*".to_owned()),
///     ..TransactionFilter::default()
/// };
/// println!("{} transactions are late", admin.list_transactions(&long).await?.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, Debug)]
pub struct TransactionFilter {
    pub producer_ids: Vec<i64>,
    /// Only transactions that have been running for longer than this.
    pub duration_ms: Option<i64>,
    /// A regular expression that must match the whole id.
    pub id_pattern: Option<String>,
}

/// One open transaction in one partition, identified by the producer state there.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::OpenTransaction;
///
/// // A transaction that blocks readers of committed records.
/// for producer in admin.describe_producers("orders", 0, None).await? {
///     if producer.current_txn_start_offset >= 0 {
///         let open = OpenTransaction {
///             topic: "orders".to_owned(),
///             partition: 0,
///             producer_id: producer.producer_id,
///             producer_epoch: producer.producer_epoch as i16,
///             coordinator_epoch: producer.coordinator_epoch,
///         };
///         println!("{open:?}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenTransaction {
    pub topic: String,
    pub partition: i32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub coordinator_epoch: i32,
}

impl Admin {
    /// The transactional ids of all brokers' coordinators, by broker.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::TransactionFilter;
    ///
    /// let filter = TransactionFilter { producer_ids: vec![4000], ..TransactionFilter::default() };
    /// for listed in admin.list_transactions(&filter).await? {
    ///     println!("{} on broker {}", listed.transactional_id, listed.coordinator);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list_transactions(
        &self,
        filter: &TransactionFilter,
    ) -> Result<Vec<TransactionListing>, ClientError> {
        let metadata = self.client.refresh_metadata(Some(&[]), false).await?;
        let mut listings = Vec::new();
        for broker in metadata.brokers.values() {
            let response = self
                .client
                .retrying("ListTransactions", async || {
                    let connection = self.client.connection(&broker.address()).await?;
                    let response = connection
                        .send_with(|_| ListTransactionsRequest {
                            producer_id_filters: filter.producer_ids.clone(),
                            duration_filter: filter.duration_ms.unwrap_or(-1),
                            transactional_id_pattern: filter.id_pattern.as_deref().map(text),
                            ..Default::default()
                        })
                        .await?;
                    let what = format!("the transactions of broker {}", broker.id);
                    ClientError::check_code(what, response.error_code)?;
                    Ok(response)
                })
                .await?;
            let listed = response.transaction_states.into_iter();
            listings.extend(listed.map(|listed| TransactionListing {
                coordinator: broker.id,
                transactional_id: listed.transactional_id.to_string(),
                producer_id: listed.producer_id,
                state: listed.transaction_state.to_string(),
            }));
        }
        listings.sort();
        Ok(listings)
    }

    /// The description of a transactional id, and the broker id of its coordinator.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let (coordinator, transaction) = admin.describe_transaction("billing-1").await?;
    /// println!("{} at broker {coordinator}", transaction.transaction_state);
    /// for topic in &transaction.topics {
    ///     println!("{}: partitions {:?}", topic.topic, topic.partitions);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_transaction(
        &self,
        transactional_id: &str,
    ) -> Result<(i32, TransactionState), ClientError> {
        let kind = CoordinatorKind::Transaction;
        let response = self
            .client
            .send_to_coordinator(
                kind,
                transactional_id,
                |_| DescribeTransactionsRequest {
                    transactional_ids: vec![text(transactional_id)],
                    ..Default::default()
                },
                |response| {
                    let state = response.transaction_states.first();
                    state.map_or(0, |state| state.error_code)
                },
            )
            .await?;
        let what = format!("transactional id {transactional_id}");
        let state = response.transaction_states.into_iter().next();
        let state = state.ok_or_else(|| ClientError::no_answer(&what))?;
        ClientError::check_code(what, state.error_code)?;
        let coordinator = self.client.coordinator(kind, transactional_id).await?;
        Ok((coordinator.id, state))
    }

    /// The active producers of a partition, from its leader or from the replica on `broker`.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// for producer in admin.describe_producers("orders", 0, None).await? {
    ///     println!("{} last wrote at {}", producer.producer_id, producer.last_timestamp);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_producers(
        &self,
        topic: &str,
        partition: i32,
        broker: Option<i32>,
    ) -> Result<Vec<ProducerState>, ClientError> {
        self.client
            .retrying("DescribeProducers", async || {
                let connection = match broker {
                    Some(id) => self.client.node(id).await?,
                    None => leader_connection(&self.client, topic, partition).await?,
                };
                let request = DescribeProducersRequest {
                    topics: vec![TopicRequest {
                        name: text(topic),
                        partition_indexes: vec![partition],
                        ..Default::default()
                    }],
                    ..Default::default()
                };
                let response = connection.send(&request).await?;
                let what = format!("the producers of {topic}-{partition}");
                let mut partitions = response.topics.into_iter().flat_map(|it| it.partitions);
                let found = partitions.next();
                let found = found.ok_or_else(|| ClientError::no_answer(&what))?;
                let message = found.error_message.as_deref();
                ClientError::check(what, found.error_code, message)?;
                Ok(found.active_producers)
            })
            .await
    }

    /// Aborts an open transaction in one partition, without its coordinator.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin, open: ottla_client::admin::OpenTransaction) -> Result<(), ottla_client::ClientError> {
    /// // `open` is the state of a producer whose coordinator has lost the transaction.
    /// admin.abort_transaction(&open).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn abort_transaction(&self, open: &OpenTransaction) -> Result<(), ClientError> {
        let OpenTransaction {
            topic, partition, ..
        } = open;
        self.client
            .retrying("WriteTxnMarkers", async || {
                let connection = leader_connection(&self.client, topic, *partition).await?;
                let request = WriteTxnMarkersRequest {
                    markers: vec![WritableTxnMarker {
                        producer_id: open.producer_id,
                        producer_epoch: open.producer_epoch,
                        coordinator_epoch: open.coordinator_epoch,
                        transaction_result: false,
                        topics: vec![WritableTxnMarkerTopic {
                            name: text(topic),
                            partition_indexes: vec![*partition],
                            ..Default::default()
                        }],
                        ..Default::default()
                    }],
                    ..Default::default()
                };
                let response = connection.send(&request).await?;
                let topics = response.markers.iter().flat_map(|marker| &marker.topics);
                let written = topics.flat_map(|topic| &topic.partitions).next();
                let code = written.map_or(ErrorCode::UnknownServerError.code(), |it| it.error_code);
                let what = format!("aborting a transaction in {topic}-{partition}");
                ClientError::check_code(what, code)
            })
            .await
    }

    /// Fences the producer of a transactional id, which aborts its open transaction.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// admin.fence_producer("billing-1").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn fence_producer(&self, transactional_id: &str) -> Result<(), ClientError> {
        self.client
            .retrying("InitProducerId", async || {
                let response = self
                    .client
                    .send_to_coordinator(
                        CoordinatorKind::Transaction,
                        transactional_id,
                        |_| InitProducerIdRequest {
                            transactional_id: Some(text(transactional_id)),
                            transaction_timeout_ms: self.timeout_ms(),
                            ..Default::default()
                        },
                        |response| response.error_code,
                    )
                    .await?;
                let what = format!("fencing the producer of {transactional_id}");
                ClientError::check_code(what, response.error_code)
            })
            .await
    }
}
