//! Administration: topics, settings, groups, offsets.
//!
//! Each call sends the request to the broker that can answer it, and returns the result of each
//! item in the request, in Kafka's own response structs where these are suitable.
//!
//! ```no_run
//! # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
//! use ottla_client::admin::{ConfigResourceType, OffsetSpec};
//!
//! for topic in admin.describe_topics(&admin.list_topics(false).await?).await? {
//!     let partitions = topic.partitions.iter().map(|it| (topic.name.clone(), it.partition));
//!     let partitions: Vec<(String, i32)> = partitions.collect();
//!     let ends = admin.list_offsets(&partitions, OffsetSpec::Latest, false).await;
//!     println!("{}: {} partitions, ends {ends:?}", topic.name, partitions.len());
//!     let settings = admin.describe_configs(ConfigResourceType::Topic, &topic.name, false).await?;
//!     println!("{} settings", settings.len());
//! }
//! # Ok(())
//! # }
//! ```

mod acls;
mod cluster;
mod configs;
mod delegation_tokens;
pub(crate) mod groups;
mod offsets;
mod quotas;
mod reassignments;
mod replication_throttles;
mod share_groups;
mod streams_groups;
mod topics;
mod transactions;

use bytestring::ByteString;
use ottla_protocol::ApiRequest;

use crate::client::{Client, CoordinatorKind};
use crate::error::ClientError;
use crate::metadata::BrokerNode;

pub use cluster::{ElectionType, EndpointType, FeatureUpdateType, QuorumDescription};
pub use configs::{ConfigOperation, ConfigResourceType, DescribedConfigs};
pub use delegation_tokens::PrincipalParts;
pub use groups::{DescribedConsumerGroup, GroupListing, GroupMember};
pub use offsets::{CommittedOffset, ListedOffset, OffsetSpec};
pub use quotas::{NewScramCredential, QuotaEntity, QuotaMatch};
pub use reassignments::ReplicaLogDirs;
pub use share_groups::SharePartitionOffset;
pub use streams_groups::{DescribedStreamsGroup, Subtopology};
pub use topics::{NewTopic, PartitionDescription, TopicDescription};
pub use transactions::{OpenTransaction, TransactionFilter, TransactionListing};

/// Administers a cluster.
///
/// ```no_run
/// # async fn example() -> Result<(), ottla_client::ClientError> {
/// use ottla_client::{Admin, Client, ClientConfig};
///
/// let admin = Admin::new(Client::connect(ClientConfig::new("127.0.0.1:9092")?).await?);
/// for topic in admin.list_topics(false).await? {
///     println!("{topic}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Admin {
    client: Client,
    /// Whether the bootstrap servers are controllers. Every request then goes to the active
    /// controller.
    is_of_controllers: bool,
}

impl Admin {
    /// An admin client of this client's cluster.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::{Admin, Client, ClientConfig};
    ///
    /// let admin = Admin::new(Client::unconnected(ClientConfig::new("127.0.0.1:9092")?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: Client) -> Admin {
        Admin {
            client,
            is_of_controllers: false,
        }
    }

    /// The client that sends the requests.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// for broker in admin.client().refresh_metadata(None, false).await?.brokers.values() {
    ///     println!("{} at {}", broker.id, broker.address());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request to any broker; see [`Client::send`].
    async fn ask<R: ApiRequest + Clone>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.client.send(|_| request.clone()).await
    }

    /// Sends a request to the coordinator of a group; `error_of` as in [`Client::send_to_coordinator`].
    async fn ask_group<R: ApiRequest + Clone>(
        &self,
        group: &str,
        request: &R,
        error_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, ClientError> {
        let kind = CoordinatorKind::Group;
        let client = &self.client;
        client
            .send_to_coordinator(kind, group, |_| request.clone(), error_of)
            .await
    }

    /// Describes one group. Returns the coordinator's description, and the broker id of the
    /// coordinator. `found` takes the description and its error code from a response. `what` is the
    /// subject of error messages.
    async fn describe_group<R: ApiRequest + Clone, G: Clone>(
        &self,
        group: &str,
        what: &str,
        request: &R,
        found: impl Fn(&R::Response) -> Option<(&G, i16, Option<&ByteString>)>,
    ) -> Result<(G, BrokerNode), ClientError> {
        let code_of = |response: &R::Response| found(response).map_or(0, |(_, code, _)| code);
        let response = self.ask_group(group, request, code_of).await?;
        let (described, code, message) =
            found(&response).ok_or_else(|| ClientError::no_answer(what))?;
        ClientError::check(what, code, message)?;
        let coordinator = self.client.coordinator(CoordinatorKind::Group, group);
        Ok((described.clone(), coordinator.await?))
    }
}

/// Converts a string to the type of the protocol crate.
fn text(value: &str) -> ByteString {
    value.to_owned().into()
}
