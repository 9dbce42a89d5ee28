//! A client of a cluster: finds the right broker for each request, and retries it while that makes
//! sense.
//!
//! Holds one connection per broker, the metadata, and the known coordinators. Clones are cheap and
//! share all of it.

mod retry;

use ottla_sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use ottla_protocol::messages::find_coordinator_response::Coordinator;
use ottla_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use ottla_protocol::{ApiKey, ApiRequest};
use ottla_sync::{BoxFuture, Mutex};
use ottla_types::{ErrorCode, Uuid};

use crate::config::ClientConfig;
use crate::connection::Connection;
use crate::error::ClientError;
use crate::metadata::{BrokerNode, Metadata, NamedLeader};
use crate::metrics::{NetworkSensors, Sheet};
use crate::outages::{Outage, Outages};

/// The type of a coordinator key.
///
/// ```no_run
/// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::CoordinatorKind;
///
/// let node = client.coordinator(CoordinatorKind::Group, "billing").await?;
/// println!("broker {}", node.id);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(i8)]
pub enum CoordinatorKind {
    Group = 0,
    Transaction = 1,
    Share = 2,
}

/// A client of one cluster.
///
/// ```no_run
/// # async fn example() -> Result<(), ottla_client::ClientError> {
/// use ottla_client::{Admin, Client, ClientConfig};
///
/// let client = Client::connect(ClientConfig::new("127.0.0.1:9092")?).await?;
/// // Both use the same connections.
/// let (admin, client) = (Admin::new(client.clone()), client);
/// println!("{:?}, {} brokers", admin.list_topics(false).await?, client.metadata().brokers.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    config: ClientConfig,
    /// By address and owner; `None` for shared connections.
    connections: Mutex<BTreeMap<(String, Option<Owner>), Slot>>,
    metadata: Mutex<(Arc<Metadata>, Instant)>,
    coordinators: Mutex<BTreeMap<(CoordinatorKind, String), BrokerNode>>,
    next_bootstrap: AtomicUsize,
    next_owner: AtomicUsize,
    network: Arc<NetworkSensors>,
    outages: Arc<Outages>,
}

/// A user of dedicated connections: a consumer's fetches or its group membership. A broker answers
/// the requests of a connection in order and delays these, which would block all other users of the
/// connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Owner(usize);

/// One caller at a time opens the connection to an address; other callers wait for the lock.
type Slot = Arc<ottla_sync::async_lock::Mutex<Option<Arc<Connection>>>>;

impl Client {
    /// Connects to the first broker that answers and asks it for the cluster's brokers.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::{Client, ClientConfig};
    ///
    /// let client = Client::connect(ClientConfig::new("127.0.0.1:9092")?).await?;
    /// println!("cluster {:?}", client.metadata().cluster_id);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(config: ClientConfig) -> Result<Client, ClientError> {
        let client = Client::unconnected(config);
        client.refresh_metadata(Some(&[]), false).await?;
        Ok(client)
    }

    /// A client that connects on first use.
    ///
    /// ```
    /// use ottla_client::{Client, ClientConfig};
    ///
    /// let client = Client::unconnected(ClientConfig::new("127.0.0.1:9092").unwrap());
    /// assert!(!client.is_connected());
    /// ```
    pub fn unconnected(config: ClientConfig) -> Client {
        Client {
            inner: Arc::new(Inner {
                network: Arc::new(NetworkSensors::new(config.metrics_windows())),
                config,
                connections: Mutex::default(),
                metadata: Mutex::new((Arc::default(), ottla_sync::time::now())),
                coordinators: Mutex::default(),
                next_bootstrap: AtomicUsize::new(0),
                next_owner: AtomicUsize::new(0),
                outages: Arc::default(),
            }),
        }
    }

    /// The settings of this client.
    ///
    /// ```
    /// use ottla_client::{Client, ClientConfig};
    ///
    /// let client = Client::unconnected(ClientConfig::new("127.0.0.1:9092").unwrap());
    /// assert_eq!(client.config().client_id, "ottla");
    /// ```
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// The current metadata.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// for broker in client.metadata().brokers.values() {
    ///     println!("{} at {}", broker.id, broker.address());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn metadata(&self) -> Arc<Metadata> {
        self.inner.metadata.lock().0.clone()
    }

    /// Takes over the leaders that the errors of a Produce or Fetch response name, as far as they are
    /// news, and the addresses in it (KIP-951).
    pub(crate) fn learn_leaders(
        &self,
        leaders: &[NamedLeader<'_>],
        nodes: impl Iterator<Item = BrokerNode>,
    ) {
        if leaders.is_empty() {
            return;
        }
        let nodes: Vec<BrokerNode> = nodes.collect();
        let mut metadata = self.inner.metadata.lock();
        if let Some(updated) = metadata.0.with_leaders(leaders, nodes) {
            metadata.0 = Arc::new(updated);
        }
    }

    #[cfg(test)]
    pub(crate) fn set_metadata(&self, metadata: Metadata) {
        self.inner.metadata.lock().0 = Arc::new(metadata);
    }

    /// The brokers that cannot be reached at the moment, for a program to display while it waits.
    ///
    /// ```no_run
    /// # fn example(client: &ottla_client::Client) {
    /// for outage in client.outages() {
    ///     println!("{} for {:?}: {}", outage.address, outage.since.elapsed(), outage.reason);
    /// }
    /// # }
    /// ```
    pub fn outages(&self) -> Vec<Outage> {
        self.inner.outages.all()
    }

    /// Whether any connection to a broker is open.
    ///
    /// ```no_run
    /// # fn example(client: &ottla_client::Client) {
    /// if !client.is_connected() {
    ///     println!("the cluster is not reachable at the moment");
    /// }
    /// # }
    /// ```
    pub fn is_connected(&self) -> bool {
        self.inner.outages.is_connected()
    }

    /// Adds the metrics of the connections.
    pub(crate) fn write_metrics(
        &self,
        sheet: &mut Sheet,
        group: &'static str,
        node_group: &'static str,
    ) {
        let metadata = self.metadata();
        let network = &self.inner.network;
        network.write(sheet, group, node_group, &metadata);
    }

    pub(crate) fn metadata_age(&self) -> Duration {
        ottla_sync::time::elapsed(self.inner.metadata.lock().1)
    }

    /// A connection to this address; opens one if there is none, or if it is broken.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// let connection = client.connection("127.0.0.1:9092").await?;
    /// println!("metadata.version {}", connection.finalized_feature("metadata.version"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connection(&self, address: &str) -> Result<Arc<Connection>, ClientError> {
        self.connection_of(address, None).await
    }

    /// A new owner of connections.
    pub(crate) fn new_owner(&self) -> Owner {
        Owner(self.inner.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// Closes the connections of an owner.
    pub(crate) fn disown(&self, owner: Owner) {
        self.inner
            .connections
            .lock()
            .retain(|(_, of), _| *of != Some(owner));
    }

    /// As [`Client::connection`], for one owner.
    pub(crate) async fn connection_of(
        &self,
        address: &str,
        owner: Option<Owner>,
    ) -> Result<Arc<Connection>, ClientError> {
        let key = (address.to_owned(), owner);
        let slot = self
            .inner
            .connections
            .lock()
            .entry(key)
            .or_default()
            .clone();
        let mut slot = slot.lock().await;
        if let Some(connection) = &*slot
            && connection.closed().is_none()
        {
            return Ok(connection.clone());
        }
        let network = self.inner.network.clone();
        let outages = self.inner.outages.clone();
        let opened = Connection::open(address, &self.inner.config, network, outages).await;
        let connection =
            Arc::new(opened.inspect_err(|error| self.inner.outages.on_refused(address, error))?);
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// A connection to a broker of the cluster.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// println!("broker 1 is at {}", client.node(1).await?.address());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn node(&self, id: i32) -> Result<Arc<Connection>, ClientError> {
        self.node_of(id, None).await
    }

    /// As [`Client::node`], for one owner.
    pub(crate) async fn node_of(
        &self,
        id: i32,
        owner: Option<Owner>,
    ) -> Result<Arc<Connection>, ClientError> {
        let address = match self.metadata().brokers.get(&id) {
            Some(broker) => broker.address(),
            None => {
                let metadata = self.refresh_metadata(Some(&[]), false).await?;
                let broker = metadata.brokers.get(&id).ok_or_else(|| {
                    ClientError::broker(
                        format!("broker {id}"),
                        ErrorCode::BrokerNotAvailable.code(),
                        Some("it is not part of the cluster, or not running"),
                    )
                })?;
                broker.address()
            }
        };
        self.connection_of(&address, owner).await
    }

    /// A connection to any broker: an open one, otherwise each known address in turn.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// println!("connected to {}", client.any_node().await?.address());
    /// # Ok(())
    /// # }
    /// ```
    pub fn any_node(&self) -> BoxFuture<'_, Result<Arc<Connection>, ClientError>> {
        Box::pin(self.any_node_unboxed())
    }

    async fn any_node_unboxed(&self) -> Result<Arc<Connection>, ClientError> {
        let mut addresses: Vec<String> = self
            .metadata()
            .brokers
            .values()
            .map(BrokerNode::address)
            .collect();
        let bootstrap = &self.inner.config.bootstrap_servers;
        let first = self.inner.next_bootstrap.fetch_add(1, Ordering::Relaxed);
        for index in 0..bootstrap.len() {
            addresses.push(bootstrap[(first + index) % bootstrap.len()].clone());
        }
        for address in &addresses {
            let key = (address.clone(), None);
            let slot = self.inner.connections.lock().get(&key).cloned();
            if let Some(slot) = slot
                && let Ok(slot) = slot.try_lock()
                && let Some(connection) = &*slot
                && connection.closed().is_none()
            {
                return Ok(connection.clone());
            }
        }
        let mut last = ClientError::Config("there is no broker to connect to".into());
        for address in &addresses {
            match self.connection(address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Requests metadata of these topics, or of all, and stores it. Topics that do not exist are
    /// missing in the result.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// let topics = ["orders".to_owned()];
    /// let metadata = client.refresh_metadata(Some(&topics), false).await?;
    /// println!("{:?}", metadata.topics.get("orders"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn refresh_metadata(
        &self,
        topics: Option<&[String]>,
        allow_auto_topic_creation: bool,
    ) -> Result<Arc<Metadata>, ClientError> {
        let topic = |name: &String| MetadataRequestTopic {
            name: Some(name.clone().into()),
            ..Default::default()
        };
        let topics = topics.map(|topics| topics.iter().map(topic).collect());
        self.ask_for_metadata(topics, allow_auto_topic_creation)
            .await
    }

    /// Requests metadata of the topics with these IDs. The result omits topics that do not exist.
    pub(crate) async fn refresh_topic_ids(
        &self,
        ids: &[Uuid],
    ) -> Result<Arc<Metadata>, ClientError> {
        let topic = |id: &Uuid| MetadataRequestTopic {
            topic_id: *id,
            name: None,
            ..Default::default()
        };
        self.ask_for_metadata(Some(ids.iter().map(topic).collect()), false)
            .await
    }

    /// Requests the brokers of the cluster. `on_retry` is called with the failure before each further
    /// attempt, for a program to display.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// let metadata = client.refresh_brokers(|error| eprintln!("trying again: {error}")).await?;
    /// println!("{} brokers", metadata.brokers.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn refresh_brokers(
        &self,
        on_retry: impl Fn(&ClientError),
    ) -> Result<Arc<Metadata>, ClientError> {
        self.retrying("metadata", async || {
            let asked = self.try_metadata(Some(&[]), false).await;
            if let Err(error) = &asked
                && error.is_retriable()
            {
                on_retry(error);
            }
            asked
        })
        .await
    }

    fn ask_for_metadata(
        &self,
        topics: Option<Vec<MetadataRequestTopic>>,
        allow_auto_topic_creation: bool,
    ) -> BoxFuture<'_, Result<Arc<Metadata>, ClientError>> {
        Box::pin(async move {
            self.retrying("metadata", async || {
                self.try_metadata(topics.as_deref(), allow_auto_topic_creation)
                    .await
            })
            .await
        })
    }

    async fn try_metadata(
        &self,
        topics: Option<&[MetadataRequestTopic]>,
        allow_auto_topic_creation: bool,
    ) -> Result<Arc<Metadata>, ClientError> {
        let connection = self.any_node().await?;
        let request = MetadataRequest {
            topics: topics.map(<[_]>::to_vec),
            allow_auto_topic_creation,
            ..Default::default()
        };
        let response = connection.send(&request).await?;
        ClientError::check_code("metadata", response.error_code)?;
        if response.brokers.is_empty() {
            return Err(ClientError::broker(
                "metadata",
                ErrorCode::LeaderNotAvailable.code(),
                Some(format!(
                    "{} lists no broker: none has started yet, or the brokers do not advertise this listener \
                     (advertised.listeners); if they run, connect to a listener that they advertise",
                    connection.address()
                )),
            ));
        }
        let mut metadata = self.inner.metadata.lock();
        let merged = Arc::new(metadata.0.merged(&response, topics.is_none()));
        *metadata = (merged.clone(), ottla_sync::time::now());
        Ok(merged)
    }

    /// Metadata with these topics, refreshed if one is missing or has no leader, or if it is too
    /// old. An unknown topic is an error.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// let metadata = client.topics(&["orders".to_owned()]).await?;
    /// println!("{:?} leads partition 0", metadata.leader("orders", 0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn topics(&self, names: &[String]) -> Result<Arc<Metadata>, ClientError> {
        let (metadata, asked) = self.inner.metadata.lock().clone();
        let usable = |metadata: &Metadata| {
            names.iter().all(|name| {
                metadata.topics.get(name).is_some_and(|topic| {
                    topic.error == ErrorCode::None
                        && topic
                            .partitions
                            .iter()
                            .all(|partition| partition.leader >= 0)
                })
            })
        };
        if usable(&metadata)
            && ottla_sync::time::elapsed(asked) < self.inner.config.metadata_max_age
        {
            return Ok(metadata);
        }
        let metadata = self.refresh_metadata(Some(names), false).await?;
        for name in names {
            match metadata.topics.get(name) {
                Some(topic) => {
                    ClientError::check_code(format!("topic {name}"), topic.error.code())?;
                }
                None => {
                    return Err(ClientError::broker(
                        format!("topic {name}"),
                        ErrorCode::UnknownTopicOrPartition.code(),
                        Some("it does not exist"),
                    ));
                }
            }
        }
        Ok(metadata)
    }

    /// Sends a request to any broker, with retries. Brokers forward requests for the controller.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::messages::list_groups_request::ListGroupsRequest;
    ///
    /// let listed = client.send(|_version| ListGroupsRequest::default()).await?;
    /// println!("{} groups", listed.groups.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send<R: ApiRequest>(
        &self,
        build: impl Fn(i16) -> R,
    ) -> Result<R::Response, ClientError> {
        self.retrying(R::API_KEY.name(), async || {
            self.any_node().await?.send_with(&build).await
        })
        .await
    }

    /// Sends a request to the coordinator of this group or transactional id, with retries.
    /// `error_of` returns the error code of the whole response, so that a coordinator that has
    /// moved is looked up again.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::CoordinatorKind;
    /// use ottla_client::ottla_protocol::messages::heartbeat_request::HeartbeatRequest;
    ///
    /// let build = |_version: i16| HeartbeatRequest { group_id: "billing".into(), ..Default::default() };
    /// let kind = CoordinatorKind::Group;
    /// let answer = client.send_to_coordinator(kind, "billing", build, |it| it.error_code).await?;
    /// println!("{}", answer.error_code);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_to_coordinator<R: ApiRequest>(
        &self,
        kind: CoordinatorKind,
        key: &str,
        build: impl Fn(i16) -> R,
        error_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, ClientError> {
        self.retrying(R::API_KEY.name(), async || {
            let result = async {
                let coordinator = self.coordinator_for_admin(kind, key).await?;
                let response = self
                    .connection(&coordinator.address())
                    .await?
                    .send_with(&build)
                    .await?;
                match ErrorCode::from_code(error_of(&response)) {
                    code @ (ErrorCode::NotCoordinator
                    | ErrorCode::CoordinatorNotAvailable
                    | ErrorCode::CoordinatorLoadInProgress) => Err(ClientError::broker(
                        format!("the coordinator of {key} at {}", coordinator.address()),
                        code.code(),
                        None::<&str>,
                    )),
                    _ => Ok(response),
                }
            }
            .await;
            if result.as_ref().is_err_and(ClientError::is_retriable) {
                self.forget_coordinator(kind, key);
            }
            result
        })
        .await
    }

    /// A connection to the coordinator of a group, for one owner.
    pub(crate) async fn group_connection_of(
        &self,
        group: &str,
        owner: Owner,
    ) -> Result<Arc<Connection>, ClientError> {
        let coordinator = self.coordinator(CoordinatorKind::Group, group).await?;
        self.connection_of(&coordinator.address(), Some(owner))
            .await
    }

    /// The coordinator of this group or transactional id.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::CoordinatorKind;
    ///
    /// let node = client.coordinator(CoordinatorKind::Transaction, "billing-1").await?;
    /// println!("{}", node.address());
    /// # Ok(())
    /// # }
    /// ```
    pub fn coordinator<'a>(
        &'a self,
        kind: CoordinatorKind,
        key: &'a str,
    ) -> BoxFuture<'a, Result<BrokerNode, ClientError>> {
        Box::pin(self.coordinator_unboxed(kind, key))
    }

    async fn coordinator_unboxed(
        &self,
        kind: CoordinatorKind,
        key: &str,
    ) -> Result<BrokerNode, ClientError> {
        let cache_key = (kind, key.to_owned());
        if let Some(node) = self.inner.coordinators.lock().get(&cache_key) {
            return Ok(node.clone());
        }
        let response = self
            .any_node()
            .await?
            .send_with(|version| {
                let mut request = FindCoordinatorRequest {
                    key_type: kind as i8,
                    ..Default::default()
                };
                // Newer versions support several keys (KIP-699).
                if version >= 4 {
                    request.coordinator_keys = vec![key.to_owned().into()];
                } else {
                    request.key = key.to_owned().into();
                }
                request
            })
            .await?;
        let what = format!("the coordinator of {key}");
        let alone = || Coordinator {
            error_code: response.error_code,
            error_message: response.error_message,
            node_id: response.node_id,
            host: response.host,
            port: response.port,
            ..Default::default()
        };
        let found = response.coordinators.into_iter().next();
        let found = found.unwrap_or_else(alone);
        // Kafka: `GroupAuthorizationException.forGroupId`.
        let message = match ErrorCode::from_code(found.error_code) {
            ErrorCode::GroupAuthorizationFailed => {
                Some(format!("Not authorized to access group: {key}"))
            }
            _ => found.error_message.map(|message| message.to_string()),
        };
        ClientError::check(what, found.error_code, message)?;
        let node = BrokerNode::new(found.node_id, &found.host, found.port, None);
        self.inner
            .coordinators
            .lock()
            .insert(cache_key, node.clone());
        Ok(node)
    }

    /// As [`Client::coordinator`]. If the lookup is denied, the error has the message of Kafka's admin
    /// client (`CoordinatorStrategy`), which differs from that of its consumers and producers.
    pub(crate) async fn coordinator_for_admin(
        &self,
        kind: CoordinatorKind,
        key: &str,
    ) -> Result<BrokerNode, ClientError> {
        let found = self.coordinator(kind, key).await;
        found.map_err(|error| {
            let (subject, kind) = match error.code() {
                Some(ErrorCode::GroupAuthorizationFailed) => ("groupId", "GROUP"),
                Some(ErrorCode::TransactionalIdAuthorizationFailed) => {
                    ("transactionalId", "TRANSACTION")
                }
                _ => return error,
            };
            let message = format!(
                "FindCoordinator request for {subject} `CoordinatorKey(idValue='{key}', type={kind})` failed due to \
                 authorization failure"
            );
            match error {
                ClientError::Broker { what, code, .. } => ClientError::Broker {
                    what,
                    code,
                    message: Some(message),
                },
                other => other,
            }
        })
    }

    /// Has the next request to the coordinator look it up again, for example after it has answered
    /// `NOT_COORDINATOR`.
    ///
    /// ```no_run
    /// # fn example(client: &ottla_client::Client) {
    /// use ottla_client::CoordinatorKind;
    ///
    /// client.forget_coordinator(CoordinatorKind::Group, "billing");
    /// # }
    /// ```
    pub fn forget_coordinator(&self, kind: CoordinatorKind, key: &str) {
        self.inner
            .coordinators
            .lock()
            .remove(&(kind, key.to_owned()));
    }

    /// The finalized level of a feature, according to one of the open connections; 0 if it has
    /// none.
    ///
    /// ```no_run
    /// # fn example(client: &ottla_client::Client) {
    /// if client.finalized_feature("group.version") == 0 {
    ///     println!("the cluster has classic groups only");
    /// }
    /// # }
    /// ```
    pub fn finalized_feature(&self, name: &str) -> i16 {
        let slots: Vec<Slot> = self.inner.connections.lock().values().cloned().collect();
        let levels = slots.iter().filter_map(|slot| {
            let slot = slot.try_lock().ok()?;
            Some(slot.as_ref()?.finalized_feature(name))
        });
        levels.max().unwrap_or(0)
    }

    /// Whether the cluster supports an API.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::ApiKey;
    ///
    /// println!("share groups: {}", client.serves(ApiKey::ShareFetch).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn serves(&self, api: ApiKey) -> Result<bool, ClientError> {
        let connection = self
            .retrying("a connection", async || self.any_node().await)
            .await?;
        Ok(connection.version(api).is_ok())
    }
}
