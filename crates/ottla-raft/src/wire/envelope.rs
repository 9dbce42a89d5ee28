//! Shared parts of the messages of all APIs: cluster and partition, the encoding of the leader and
//! of voter endpoints, and the reasons for refusing a message.

use bytestring::ByteString;
use ottla_protocol::{ErrorResponse, Records};
use ottla_types::{BrokerId, DirectoryId, ErrorCode, Uuid};

use crate::message::{CurrentLeader, Request, Response};

pub const METADATA_TOPIC: &str = "__cluster_metadata";
pub const METADATA_PARTITION: i32 = 0;

/// One API of the quorum on the server side. Implemented by its request.
pub trait QuorumApi: Sized {
    type Answer: ErrorResponse;

    /// The request for the state machine, or the error response if it is for another cluster or
    /// partition.
    fn read(self, cluster_id: &ByteString) -> Result<Request, Self::Answer>;

    /// A response that is an error as a whole.
    fn refuse(error: ErrorCode) -> Self::Answer {
        Self::Answer::of_error(error)
    }

    /// Converts the state machine's response; `None` for a response of another API.
    fn answer(response: Response, parts: AnswerParts<'_>) -> Option<Self::Answer>;
}

/// The parts of a response that the state machine does not provide.
#[derive(Clone, PartialEq, Debug)]
pub struct AnswerParts<'a> {
    /// The listener that was asked: the leader's endpoint at this listener is returned.
    pub listener_name: &'a str,
    /// Whether the version can carry the leader's endpoint.
    pub has_endpoints: bool,
    /// Batches, the last possibly cut off, or a part of a snapshot.
    pub records: Records,
}

/// Why a response is unusable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unusable {
    /// The response as a whole is an error.
    #[error("{0}")]
    Refused(ErrorCode),
    #[error("it answers for another topic or partition")]
    OtherPartition,
    #[error("its records cannot be read: {0}")]
    Corrupt(String),
    /// Batches that this release cannot decode; their records must not be skipped.
    #[error(
        "{0}; it was written by a newer release, or metadata.version is newer than this release"
    )]
    Undecodable(String),
}

impl Unusable {
    /// The error code to report to the state machine.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Unusable::Refused(error) => *error,
            Unusable::OtherPartition => ErrorCode::InvalidRequest,
            Unusable::Corrupt(_) | Unusable::Undecodable(_) => ErrorCode::CorruptMessage,
        }
    }
}

/// Whether a request is for this cluster; one without a cluster ID is.
pub(super) fn check_cluster_id(
    requested: Option<&ByteString>,
    cluster_id: &ByteString,
) -> Result<(), ErrorCode> {
    match requested {
        Some(requested) if requested != cluster_id => Err(ErrorCode::InconsistentClusterId),
        Some(_) | None => Ok(()),
    }
}

/// The error of the response as a whole.
pub(super) fn check_response(error_code: i16) -> Result<(), Unusable> {
    match ErrorCode::from_code(error_code) {
        ErrorCode::None => Ok(()),
        error => Err(Unusable::Refused(error)),
    }
}

/// A directory ID in a message: zero if unknown.
pub(super) fn directory(id: Option<DirectoryId>) -> Uuid {
    id.unwrap_or_default()
}

/// The only element of a list.
pub(super) fn only<T>(mut list: Vec<T>) -> Option<T> {
    list.pop().filter(|_| list.is_empty())
}

/// The leader in a response.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NamedLeader {
    /// -1 for none.
    pub id: i32,
    pub epoch: i32,
    /// Its address at the listener that was asked.
    pub address: Option<(ByteString, u16)>,
}

impl NamedLeader {
    pub fn at(listener_name: &str, leader: &CurrentLeader) -> NamedLeader {
        let endpoint = leader
            .endpoints
            .iter()
            .find(|endpoint| &*endpoint.name == listener_name)
            .filter(|_| leader.leader.is_some());
        NamedLeader {
            id: leader.leader.map_or(-1, BrokerId::value),
            epoch: leader.epoch.value(),
            address: endpoint.map(|endpoint| (endpoint.host.clone(), endpoint.port)),
        }
    }
}

/// The only partition of the only topic in a list, if it is the metadata log's.
macro_rules! only_partition {
    ($topics:expr, $name:ident, $partitions:ident, $index:ident) => {
        $crate::wire::envelope::only($topics)
            .filter(|topic| &*topic.$name == $crate::wire::METADATA_TOPIC)
            .and_then(|topic| $crate::wire::envelope::only(topic.$partitions))
            .filter(|partition| partition.$index == $crate::wire::METADATA_PARTITION)
    };
}

/// The leader in `leader_id` and `leader_epoch` of a response, with its address at the listener
/// that was asked.
macro_rules! current_leader {
    ($named:expr, $nodes:expr, $listener:expr) => {{
        let id = $named.leader_id;
        let leader = (id >= 0).then_some(ottla_types::BrokerId(id));
        let endpoints = $nodes
            .iter()
            .filter(|node| leader == Some(ottla_types::BrokerId(node.node_id)))
            .filter_map(|node| {
                Some($crate::VoterEndpoint {
                    name: $listener.clone(),
                    host: node.host.clone(),
                    port: u16::try_from(node.port).ok()?,
                })
            })
            .take(1)
            .collect();
        $crate::message::CurrentLeader {
            leader,
            epoch: ottla_types::LeaderEpoch($named.leader_epoch),
            endpoints,
        }
    }};
}

/// The endpoint of a [`NamedLeader`] in one of the generated types: none if it is unknown or the
/// version cannot carry it.
macro_rules! node_endpoints {
    ($leader:ident, $endpoint:ident, $has_endpoints:expr) => {
        $leader
            .address
            .filter(|_| $has_endpoints)
            .map(|(host, port)| $endpoint {
                node_id: $leader.id,
                host,
                port: port.into(),
                ..Default::default()
            })
            .into_iter()
            .collect()
    };
}

/// Reads a response to BeginQuorumEpoch or EndQuorumEpoch.
macro_rules! read_epoch_response {
    ($Response:ident) => {
        pub(super) fn read_response(
            response: $Response,
            listener_name: &ByteString,
        ) -> Result<$crate::message::QuorumEpochResponse, $crate::wire::envelope::Unusable> {
            $crate::wire::envelope::check_response(response.error_code)?;
            let (topics, nodes) = (response.topics, response.node_endpoints);
            let partition = $crate::wire::envelope::only_partition!(
                topics,
                topic_name,
                partitions,
                partition_index
            );
            let partition = partition.ok_or($crate::wire::envelope::Unusable::OtherPartition)?;
            Ok($crate::message::QuorumEpochResponse {
                error: ErrorCode::from_code(partition.error_code),
                current_leader: $crate::wire::envelope::current_leader!(
                    partition,
                    nodes,
                    listener_name
                ),
            })
        }
    };
}

/// A response with `$response`'s data for the metadata partition, for the APIs whose responses
/// differ only in types and `$field`s.
macro_rules! partition_response {
    ($type:ident, $module:ident, $response:ident, $parts:ident $(, $field:ident: $value:expr)*) => {{
        use ottla_protocol::messages::$module::{NodeEndpoint, PartitionData, TopicData};
        let leader = $crate::wire::envelope::NamedLeader::at(
            $parts.listener_name,
            &$response.current_leader,
        );
        $type {
            error_code: ErrorCode::None.code(),
            topics: vec![TopicData {
                topic_name: ByteString::from_static(METADATA_TOPIC),
                partitions: vec![PartitionData {
                    partition_index: METADATA_PARTITION,
                    error_code: $response.error.code(),
                    leader_id: leader.id,
                    leader_epoch: leader.epoch,
                    $($field: $value,)*
                    ..Default::default()
                }],
                ..Default::default()
            }],
            node_endpoints: $crate::wire::envelope::node_endpoints!(
                leader,
                NodeEndpoint,
                $parts.has_endpoints
            ),
            ..Default::default()
        }
    }};
}

/// The endpoints of a voter from one of the generated types.
macro_rules! voter_endpoints {
    ($endpoints:expr) => {
        $endpoints
            .into_iter()
            .map(|endpoint| $crate::VoterEndpoint {
                name: endpoint.name,
                host: endpoint.host,
                port: endpoint.port,
            })
            .collect()
    };
}

/// The endpoints of a voter in one of the generated types.
macro_rules! wire_endpoints {
    ($endpoints:expr, $endpoint:ident) => {
        $endpoints
            .into_iter()
            .map(|endpoint| $endpoint {
                name: endpoint.name,
                host: endpoint.host,
                port: endpoint.port,
                ..Default::default()
            })
            .collect()
    };
}

pub(super) use {
    current_leader, node_endpoints, only_partition, partition_response, read_epoch_response,
    voter_endpoints, wire_endpoints,
};
