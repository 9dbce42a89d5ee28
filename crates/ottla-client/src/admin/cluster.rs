//! The cluster itself: its nodes, features, metadata quorum and log directories.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::messages::add_raft_voter_request::{AddRaftVoterRequest, Listener};
use ottla_protocol::messages::api_versions_request::ApiVersionsRequest;
use ottla_protocol::messages::api_versions_response::ApiVersionsResponse;
use ottla_protocol::messages::describe_cluster_request::DescribeClusterRequest;
use ottla_protocol::messages::describe_cluster_response::DescribeClusterResponse;
use ottla_protocol::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use ottla_protocol::messages::describe_quorum_request::{
    DescribeQuorumRequest, PartitionData, TopicData,
};
use ottla_protocol::messages::describe_quorum_response::{self, Node};
use ottla_protocol::messages::elect_leaders_request::{ElectLeadersRequest, TopicPartitions};
use ottla_protocol::messages::elect_leaders_response::ReplicaElectionResult;
use ottla_protocol::messages::remove_raft_voter_request::RemoveRaftVoterRequest;
use ottla_protocol::messages::unregister_broker_request::UnregisterBrokerRequest;
use ottla_protocol::messages::unregister_controller_request::UnregisterControllerRequest;
use ottla_protocol::messages::update_features_request::{FeatureUpdateKey, UpdateFeaturesRequest};
use ottla_types::{ErrorCode, Uuid};

use super::{Admin, text};
use crate::client::Client;
use crate::config::ClientConfig;
use crate::connection::Connection;
use crate::error::ClientError;
use crate::metadata::address_of;
use crate::partitions::by_topic;

/// The kind of nodes in a description of the cluster. The numbers are Kafka's (KIP-919).
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::EndpointType;
///
/// let cluster = admin.describe_cluster(EndpointType::Broker, false).await?;
/// println!("{} brokers", cluster.brokers.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum EndpointType {
    Broker = 1,
    Controller = 2,
}

/// The metadata quorum as its leader sees it.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// let quorum = admin.describe_quorum().await?;
/// for voter in &quorum.state.current_voters {
///     let behind = quorum.state.high_watermark - voter.log_end_offset;
///     println!("controller {}: {behind} records behind", voter.replica_id);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct QuorumDescription {
    pub state: describe_quorum_response::PartitionData,
    pub nodes: Vec<Node>,
}

/// The kind of change of a feature. The numbers are Kafka's (KIP-778).
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::FeatureUpdateType;
///
/// let levels = [("group.version".to_owned(), 0)];
/// admin.update_features(&levels, FeatureUpdateType::SafeDowngrade, false).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum FeatureUpdateType {
    Upgrade = 1,
    SafeDowngrade = 2,
    UnsafeDowngrade = 3,
}

/// The kind of election. The numbers are Kafka's.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::ElectionType;
///
/// // Every partition gets its preferred leader again.
/// admin.elect_leaders(ElectionType::Preferred, None).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum ElectionType {
    Preferred = 0,
    Unclean = 1,
}

impl Admin {
    /// Creates an admin client that talks to the active controller only (KIP-919).
    /// `bootstrap_servers` are controllers.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::{Admin, ClientConfig};
    ///
    /// let admin = Admin::of_controllers(ClientConfig::new("controller-1.example.com:9093")?).await?;
    /// println!("the leader is {}", admin.describe_quorum().await?.state.leader_id);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn of_controllers(mut config: ClientConfig) -> Result<Admin, ClientError> {
        let first = Admin::new(Client::unconnected(config.clone()));
        let cluster = first
            .describe_cluster(EndpointType::Controller, false)
            .await?;
        let active = cluster
            .brokers
            .iter()
            .find(|node| node.broker_id == cluster.controller_id);
        let active = active.ok_or_else(|| {
            ClientError::broker(
                "the active controller",
                ErrorCode::BrokerNotAvailable.code(),
                Some("there is none at the moment"),
            )
        })?;
        config.bootstrap_servers = vec![address_of(&active.host, active.port)];
        Ok(Admin {
            client: Client::unconnected(config),
            is_of_controllers: true,
        })
    }

    /// The cluster's id and nodes. Brokers before Kafka 4.0 do not list fenced brokers.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::EndpointType;
    ///
    /// let cluster = admin.describe_cluster(EndpointType::Broker, true).await?;
    /// println!("cluster {}", cluster.cluster_id);
    /// for broker in cluster.brokers.iter().filter(|broker| broker.is_fenced) {
    ///     println!("broker {} is fenced", broker.broker_id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_cluster(
        &self,
        nodes: EndpointType,
        include_fenced_brokers: bool,
    ) -> Result<DescribeClusterResponse, ClientError> {
        let response = self
            .client
            .retrying("DescribeCluster", async || {
                let connection = self.client.any_node().await?;
                let response = connection
                    .send_with(|version| DescribeClusterRequest {
                        endpoint_type: nodes as i8,
                        include_fenced_brokers: include_fenced_brokers && version >= 2,
                        ..Default::default()
                    })
                    .await?;
                ClientError::check(
                    "describing the cluster",
                    response.error_code,
                    response.error_message.as_ref(),
                )?;
                Ok(response)
            })
            .await?;
        Ok(response)
    }

    async fn controller(&self, id: i32) -> Result<Arc<Connection>, ClientError> {
        let cluster = self
            .describe_cluster(EndpointType::Controller, false)
            .await?;
        let found = cluster.brokers.iter().find(|it| it.broker_id == id);
        let found = found.ok_or_else(|| {
            ClientError::broker(
                format!("controller {id}"),
                ErrorCode::BrokerNotAvailable.code(),
                Some("it is not part of the quorum, or not running"),
            )
        })?;
        self.client
            .connection(&address_of(&found.host, found.port))
            .await
    }

    /// The API versions and features of a node, or of any node.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let served = admin.api_versions(Some(1)).await?;
    /// for feature in &served.finalized_features {
    ///     println!("{}={}", feature.name, feature.max_version_level);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn api_versions(
        &self,
        node: Option<i32>,
    ) -> Result<ApiVersionsResponse, ClientError> {
        self.client
            .retrying("ApiVersions", async || {
                let connection = match node {
                    Some(id) if self.is_of_controllers => self.controller(id).await?,
                    Some(id) => self.client.node(id).await?,
                    None => self.client.any_node().await?,
                };
                let response = connection
                    .send(&ApiVersionsRequest {
                        client_software_name: text("ottla"),
                        client_software_version: text(env!("CARGO_PKG_VERSION")),
                        ..Default::default()
                    })
                    .await?;
                ClientError::check_code("the API versions", response.error_code)?;
                Ok(response)
            })
            .await
    }

    /// The metadata quorum.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let quorum = admin.describe_quorum().await?;
    /// println!("leader {}, epoch {}", quorum.state.leader_id, quorum.state.leader_epoch);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_quorum(&self) -> Result<QuorumDescription, ClientError> {
        const TOPIC: &str = "__cluster_metadata";
        self.client
            .retrying("DescribeQuorum", async || {
                let connection = self.client.any_node().await?;
                let response = connection
                    .send(&DescribeQuorumRequest {
                        topics: vec![TopicData {
                            topic_name: text(TOPIC),
                            partitions: vec![PartitionData::default()],
                            ..Default::default()
                        }],
                        ..Default::default()
                    })
                    .await?;
                let what = "describing the metadata quorum";
                ClientError::check(what, response.error_code, response.error_message.as_ref())?;
                let mut partitions = response.topics.into_iter().flat_map(|it| it.partitions);
                let state = partitions.next();
                let state = state.ok_or_else(|| ClientError::no_answer(what))?;
                ClientError::check(what, state.error_code, state.error_message.as_ref())?;
                Ok(QuorumDescription {
                    state,
                    nodes: response.nodes,
                })
            })
            .await
    }

    /// Changes feature levels, all or none (KIP-1022). Older clusters return a result per feature;
    /// this returns the first error.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::FeatureUpdateType;
    ///
    /// let levels = [("transaction.version".to_owned(), 2)];
    /// let validate_only = true;
    /// admin.update_features(&levels, FeatureUpdateType::Upgrade, validate_only).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn update_features(
        &self,
        levels: &[(String, i16)],
        how: FeatureUpdateType,
        validate_only: bool,
    ) -> Result<(), ClientError> {
        let update = |(feature, level): &(String, i16)| FeatureUpdateKey {
            feature: text(feature),
            max_version_level: *level,
            upgrade_type: how as i8,
            ..Default::default()
        };
        let request = UpdateFeaturesRequest {
            timeout_ms: self.timeout_ms(),
            feature_updates: levels.iter().map(update).collect(),
            validate_only,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let what = "updating features";
        ClientError::check(what, response.error_code, response.error_message.as_ref())?;
        response.results.iter().try_for_each(|result| {
            ClientError::check(what, result.error_code, result.error_message.as_ref())
        })
    }

    /// The log directories of a broker with their contents.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// for dir in admin.describe_log_dirs(1).await? {
    ///     println!("{}: {} of {} bytes are free", dir.log_dir, dir.usable_bytes, dir.total_bytes);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_log_dirs(
        &self,
        broker: i32,
    ) -> Result<Vec<DescribeLogDirsResult>, ClientError> {
        self.client
            .retrying("DescribeLogDirs", async || {
                let connection = self.client.node(broker).await?;
                let response = connection
                    .send(&DescribeLogDirsRequest {
                        topics: None,
                        ..Default::default()
                    })
                    .await?;
                let what = format!("the log directories of broker {broker}");
                ClientError::check_code(what, response.error_code)?;
                Ok(response.results)
            })
            .await
    }

    /// Elects leaders of these partitions, or of all that need an election.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeSet;
    /// use ottla_client::admin::ElectionType;
    ///
    /// // Records may be lost: the leader can be a replica that was not in sync.
    /// let partitions = BTreeSet::from([("orders".to_owned(), 0)]);
    /// for topic in admin.elect_leaders(ElectionType::Unclean, Some(&partitions)).await? {
    ///     for partition in &topic.partition_result {
    ///         println!("{}-{}: {}", topic.topic, partition.partition_id, partition.error_code);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn elect_leaders(
        &self,
        how: ElectionType,
        partitions: Option<&BTreeSet<(String, i32)>>,
    ) -> Result<Vec<ReplicaElectionResult>, ClientError> {
        let topic = |(topic, partitions): (&str, Vec<i32>)| TopicPartitions {
            topic: text(topic),
            partitions,
            ..Default::default()
        };
        let request = ElectLeadersRequest {
            election_type: how as i8,
            topic_partitions: partitions.map(|partitions| {
                let topics = by_topic(partitions.iter().map(|it| (it, it.1)));
                topics.into_iter().map(topic).collect()
            }),
            timeout_ms: self.timeout_ms(),
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        ClientError::check_code("electing leaders", response.error_code)?;
        Ok(response.replica_election_results)
    }

    /// Unregisters a broker that is permanently gone.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// admin.unregister_broker(4).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unregister_broker(&self, broker: i32) -> Result<(), ClientError> {
        let request = UnregisterBrokerRequest {
            broker_id: broker,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let what = format!("unregistering broker {broker}");
        ClientError::check(what, response.error_code, response.error_message.as_ref())
    }

    /// Removes the registration of a controller that is permanently gone.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// admin.unregister_controller(3003).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unregister_controller(&self, controller: i32) -> Result<(), ClientError> {
        let request = UnregisterControllerRequest {
            controller_id: controller,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let what = format!("unregistering controller {controller}");
        ClientError::check(what, response.error_code, response.error_message.as_ref())
    }

    /// Adds a controller to the metadata quorum. The endpoints are listener, host and port.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// // The directory ID is in the `meta.properties` of the new controller.
    /// let directory_id: ottla_client::ottla_types::Uuid = "J8aAPcfLQt2bqs1JT_rMgQ".parse()?;
    /// let host = "controller-4.example.com".to_owned();
    /// let endpoints = [("CONTROLLER".to_owned(), host, 9093)];
    /// admin.add_raft_voter(3004, directory_id, &endpoints).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn add_raft_voter(
        &self,
        voter: i32,
        directory_id: Uuid,
        endpoints: &[(String, String, u16)],
    ) -> Result<(), ClientError> {
        let listener = |(name, host, port): &(String, String, u16)| Listener {
            name: text(name),
            host: text(host),
            port: *port,
            ..Default::default()
        };
        let request = AddRaftVoterRequest {
            // Any cluster. The default of the field is an empty cluster id.
            cluster_id: None,
            timeout_ms: self.timeout_ms(),
            voter_id: voter,
            voter_directory_id: directory_id,
            listeners: endpoints.iter().map(listener).collect(),
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let what = format!("adding controller {voter}");
        ClientError::check(what, response.error_code, response.error_message.as_ref())
    }

    /// Removes a controller from the metadata quorum.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let quorum = admin.describe_quorum().await?;
    /// let voters = quorum.state.current_voters.iter();
    /// for voter in voters.filter(|voter| voter.replica_id == 3004) {
    ///     admin.remove_raft_voter(voter.replica_id, voter.replica_directory_id).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remove_raft_voter(
        &self,
        voter: i32,
        directory_id: Uuid,
    ) -> Result<(), ClientError> {
        let request = RemoveRaftVoterRequest {
            cluster_id: None,
            voter_id: voter,
            voter_directory_id: directory_id,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let what = format!("removing controller {voter}");
        ClientError::check(what, response.error_code, response.error_message.as_ref())
    }
}
