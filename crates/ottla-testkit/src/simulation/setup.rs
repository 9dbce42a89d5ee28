//! What kind of cluster a seed makes.

use std::collections::BTreeMap;

use ottla_config::{BrokerConfig, single_node_properties};
use ottla_controller::{BootstrapOptions, bootstrap_records};
use ottla_metadata::MetadataVersion;
use ottla_raft::QuorumConfig;

use super::coordinator_shell::{OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC};
use super::group_clients::{INPUT_TOPIC, OUTPUT_TOPIC};
use super::message::FIRST_CONTROLLER;
use super::quorum_shell::ClusterSettings;
use super::random::Random;

/// What brokers may lose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Losses {
    /// Their processes only, as many and as often as it happens.
    Processes,
    /// What they have not flushed, or their whole disks: while another member of the ISR or the ELR keeps its.
    Disks,
}

/// Who works together on what is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Groups {
    None,
    /// One group moves it on in transactions, another reads what was moved.
    Movers,
    /// A share group reads it.
    Sharers,
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub brokers: i32,
    pub controllers: i32,
    pub partitions: i32,
    pub replicas: i16,
    pub min_insync_replicas: usize,
    pub flush_messages: i64,
    pub has_dynamic_voters: bool,
    /// `eligible.leader.replicas.version` 1 (KIP-966).
    pub has_elr: bool,
    /// `unclean.leader.election.enable`
    pub is_unclean: bool,
    pub losses: Losses,
    /// None where elections are unclean: what coordinators have forgotten then, clients do not get over.
    pub groups: Groups,
}

impl Setup {
    pub(crate) fn draw(random: &mut Random) -> Setup {
        let replicas = 2 + random.below(2) as i16;
        let is_unclean = random.below(8) == 0;
        Setup {
            brokers: 3 + random.below(3) as i32,
            controllers: if random.below(4) == 0 { 1 } else { 3 },
            partitions: 1 + random.below(3) as i32,
            replicas,
            min_insync_replicas: 1 + random.below(2) as usize,
            flush_messages: if random.below(4) == 0 { 1 } else { i64::MAX },
            has_dynamic_voters: random.below(2) == 0,
            has_elr: random.below(4) != 0,
            is_unclean,
            losses: match random.below(2) {
                0 => Losses::Processes,
                _ => Losses::Disks,
            },
            groups: match random.below(8) {
                _ if is_unclean => Groups::None,
                0..4 => Groups::Movers,
                4..6 => Groups::Sharers,
                _ => Groups::None,
            },
        }
    }

    /// With the number of their partitions.
    pub(crate) fn topics(&self) -> Vec<(&'static str, i32)> {
        let mut topics = vec![(INPUT_TOPIC, self.partitions)];
        match self.groups {
            Groups::None => {}
            Groups::Movers => topics.extend([
                (OUTPUT_TOPIC, 2),
                (OFFSETS_TOPIC, 2),
                (TRANSACTION_TOPIC, 2),
            ]),
            Groups::Sharers => topics.extend([(OFFSETS_TOPIC, 2), (SHARE_STATE_TOPIC, 2)]),
        }
        topics
    }

    pub(crate) fn controller_ids(&self) -> Vec<i32> {
        (FIRST_CONTROLLER..FIRST_CONTROLLER + self.controllers).collect()
    }

    pub(crate) fn broker_ids(&self) -> Vec<i32> {
        (1..=self.brokers).collect()
    }

    pub(crate) fn cluster_settings(&self, random: &mut Random) -> ClusterSettings {
        let mut properties = single_node_properties("data", "localhost:9092", "localhost:9093");
        for (key, value) in [
            ("broker.session.timeout.ms", "2000".to_owned()),
            ("min.insync.replicas", self.min_insync_replicas.to_string()),
            (
                "unclean.leader.election.enable",
                self.is_unclean.to_string(),
            ),
        ] {
            properties.set(key, &value);
        }
        let (config, _) = BrokerConfig::from_properties(&properties).expect("valid settings");
        let elr = (
            "eligible.leader.replicas.version".to_owned(),
            i16::from(self.has_elr),
        );
        let levels = BootstrapOptions {
            metadata_version: MetadataVersion::LATEST_PRODUCTION,
            feature_levels: BTreeMap::from([elr]),
            has_dynamic_quorum: self.has_dynamic_voters,
        };
        let levels = levels.effective_levels().expect("levels that exist");
        let is_hasty = random.below(3) == 0;
        ClusterSettings {
            controllers: self.controller_ids(),
            has_dynamic_voters: self.has_dynamic_voters,
            bootstrap: bootstrap_records(&levels),
            config,
            quorum: QuorumConfig {
                election_timeout_ms: if is_hasty { 200 } else { 1_000 },
                fetch_timeout_ms: if is_hasty { 700 } else { 2_000 },
                ..QuorumConfig::default()
            },
        }
    }
}
