//! What the handlers of the quorum's APIs share: whom a request is for, and how a response names the leader.

use bytestring::ByteString;
use ottla_node::quorum::served::ServedData;
use ottla_raft::{CurrentLeader, Request, Response};
use ottla_types::{BrokerId, ErrorCode};

use crate::Broker;

/// Has this node's part in the quorum answer a request, once `read` has made sure that it is for this cluster and has
/// the form that it must have.
pub(crate) async fn ask<R>(
    broker: &Broker,
    request: R,
    read: impl FnOnce(R, &ByteString) -> Result<Request, ErrorCode>,
) -> Result<(Response, ServedData), ErrorCode> {
    let quorum = broker.node.quorum().ok_or(ErrorCode::BrokerNotAvailable)?;
    let request = read(request, quorum.cluster_id())?;
    let answer = quorum.ask(request).await;
    answer.ok_or(ErrorCode::BrokerNotAvailable)
}

/// The leader as an answer names it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NamedLeader {
    /// -1 for nobody.
    pub id: i32,
    pub epoch: i32,
    /// Where it is reached at the listener that was asked.
    pub address: Option<(ByteString, u16)>,
}

impl NamedLeader {
    pub(crate) fn at(listener_name: &str, leader: &CurrentLeader) -> NamedLeader {
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

/// The endpoint of a [`NamedLeader`] as an answer lists it, in whichever of the generated types; none where it is not
/// known or the version has no place for it.
macro_rules! node_endpoints {
    ($leader:ident, $endpoint:ident, $has_place:expr) => {
        $leader
            .address
            .filter(|_| $has_place)
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

/// The endpoints that a request gives for a voter, from whichever of the generated types.
macro_rules! voter_endpoints {
    ($endpoints:expr) => {
        $endpoints
            .into_iter()
            .map(|endpoint| ottla_raft::VoterEndpoint {
                name: endpoint.name,
                host: endpoint.host,
                port: endpoint.port,
            })
            .collect()
    };
}

pub(crate) use {node_endpoints, voter_endpoints};

/// What an answer says of an error in words: its own, or what Kafka says of the code.
pub(crate) fn error_message(error: ErrorCode, message: Option<String>) -> Option<ByteString> {
    match message {
        Some(message) => Some(ByteString::from(message)),
        None if error == ErrorCode::None => None,
        None => Some(ByteString::from_static(error.message())),
    }
}

/// As [`check_cluster_id`], in the words of Kafka's answers to changes of the voters.
pub(crate) fn check_cluster_id_in_words(
    requested: Option<&ByteString>,
    cluster_id: &ByteString,
) -> Result<(), (ErrorCode, String)> {
    check_cluster_id(requested, cluster_id).map_err(|error| {
        let given = requested.map_or("", |given| given);
        let message =
            format!("The given id \"{given}\" doesn't match the cluster id \"{cluster_id}\"");
        (error, message)
    })
}

/// Whether a request is meant for this cluster; one that names none is.
pub(crate) fn check_cluster_id(
    requested: Option<&ByteString>,
    cluster_id: &ByteString,
) -> Result<(), ErrorCode> {
    match requested {
        Some(requested) if requested != cluster_id => Err(ErrorCode::InconsistentClusterId),
        Some(_) | None => Ok(()),
    }
}
