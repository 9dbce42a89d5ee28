//! The configured quorum: `controller.quorum.voters` and `controller.quorum.bootstrap.servers`.
//!
//! Kafka: `QuorumConfig.parseVoterConnections`, `QuorumConfig.parseBootstrapServers`.

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_raft::{KRaftVersion, Node, Quorum, ReplicaKey, Voter, VoterEndpoint, VoterSet};
use ottla_types::BrokerId;

/// The configured voters (`kraft.version` 0). Their directory IDs are unknown.
pub fn static_voters(config: &BrokerConfig) -> Result<VoterSet, String> {
    let name = controller_listener_name(config);
    let voters = config.controller_quorum_voters.iter().map(|voter| Voter {
        key: ReplicaKey {
            id: BrokerId(voter.id),
            directory_id: None,
        },
        endpoints: vec![VoterEndpoint {
            name: ByteString::from(name.clone()),
            host: ByteString::from(voter.host.clone()),
            port: voter.port,
        }],
        supported_kraft_versions: (0, KRaftVersion::V0.feature_level()),
    });
    VoterSet::new(voters).map_err(|_| no_quorum())
}

/// The nodes that are asked first when no leader is known. Numbered, because their IDs are unknown.
pub fn bootstrap_servers(config: &BrokerConfig) -> Vec<Node> {
    let voters = config
        .controller_quorum_voters
        .iter()
        .map(|voter| (voter.host.clone(), voter.port));
    let servers: Vec<(String, u16)> = if config.controller_quorum_bootstrap_servers.is_empty() {
        voters.collect()
    } else {
        config.controller_quorum_bootstrap_servers.clone()
    };
    servers
        .into_iter()
        .enumerate()
        .map(|(index, (host, port))| Node {
            id: Quorum::bootstrap_id(index),
            host: ByteString::from(host),
            port,
        })
        .collect()
}

/// The error for a configuration without a quorum.
pub fn no_quorum() -> String {
    "there is no metadata quorum: give controller.quorum.voters, or format the directory with \
     --standalone"
        .to_owned()
}

/// The first of `controller.listener.names`.
pub fn controller_listener_name(config: &BrokerConfig) -> String {
    let first = config.controller_listener_names.first();
    first.cloned().unwrap_or_default()
}
