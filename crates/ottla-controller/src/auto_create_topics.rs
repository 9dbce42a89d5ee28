//! The settings of automatically created topics and of internal topics.
//!
//! In Kafka: `DefaultAutoTopicCreationManager.creatableTopic`, and the coordinators'
//! `groupMetadataTopicConfigs`, `transactionTopicConfigs`, `shareGroupStateTopicConfigs`.

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use ottla_types::named_enum;

named_enum! {
    /// A topic in which the broker stores its own state.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum InternalTopic {
        ConsumerOffsets => "__consumer_offsets",
        TransactionState => "__transaction_state",
        ShareGroupState => "__share_group_state",
    }
}

impl InternalTopic {
    pub fn from_name(name: &str) -> Option<InternalTopic> {
        Self::ALL.into_iter().find(|topic| topic.name() == name)
    }
}

/// The CreateTopics entry for the topic. For a client's topic, partition count and replication
/// factor are given only if the broker's configuration sets them; otherwise the controller's
/// defaults apply.
pub fn creatable_topic(config: &BrokerConfig, name: &ByteString) -> CreatableTopic {
    let topic = |num_partitions, replication_factor, configs| CreatableTopic {
        name: name.clone(),
        num_partitions,
        replication_factor,
        configs,
        ..Default::default()
    };
    match InternalTopic::from_name(name) {
        Some(InternalTopic::ConsumerOffsets) => topic(
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            topic_configs([
                ("cleanup.policy", "compact".to_owned()),
                ("compression.type", "producer".to_owned()),
                (
                    "segment.bytes",
                    config.offsets_topic_segment_bytes.to_string(),
                ),
            ]),
        ),
        Some(InternalTopic::TransactionState) => topic(
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            topic_configs([
                ("cleanup.policy", "compact".to_owned()),
                ("compression.type", "uncompressed".to_owned()),
                (
                    "min.insync.replicas",
                    config.transaction_state_log_min_isr.to_string(),
                ),
                (
                    "segment.bytes",
                    config.transaction_state_log_segment_bytes.to_string(),
                ),
                ("unclean.leader.election.enable", "false".to_owned()),
            ]),
        ),
        Some(InternalTopic::ShareGroupState) => topic(
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            topic_configs([
                ("cleanup.policy", "delete".to_owned()),
                ("compression.type", "uncompressed".to_owned()),
                (
                    "min.insync.replicas",
                    config.share_coordinator_state_topic_min_isr.to_string(),
                ),
                ("retention.ms", "-1".to_owned()),
                (
                    "segment.bytes",
                    config
                        .share_coordinator_state_topic_segment_bytes
                        .to_string(),
                ),
            ]),
        ),
        None => {
            let configured = |key: &str, value: i32| {
                if config.setting(key).is_some() {
                    value
                } else {
                    -1
                }
            };
            topic(
                configured("num.partitions", config.num_partitions),
                configured(
                    "default.replication.factor",
                    config.default_replication_factor,
                ) as i16,
                Vec::new(),
            )
        }
    }
}

fn topic_configs<const COUNT: usize>(
    configs: [(&'static str, String); COUNT],
) -> Vec<CreatableTopicConfig> {
    configs
        .into_iter()
        .map(|(name, value)| CreatableTopicConfig {
            name: ByteString::from_static(name),
            value: Some(ByteString::from(value)),
            ..Default::default()
        })
        .collect()
}

/// The effective value of a broker setting; empty if it has neither a value nor a default.
pub(crate) fn broker_setting(config: &BrokerConfig, key: &str) -> String {
    config
        .setting(key)
        .or_else(|| ottla_config::broker_config(key)?.default_text())
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Cluster;

    #[test]
    fn the_controller_chooses_the_numbers_of_a_client_topic() {
        let cluster = Cluster::single_node();
        let topic = creatable_topic(&cluster.config, &"orders".into());
        assert_eq!((topic.num_partitions, topic.replication_factor), (-1, -1));
        assert!(topic.configs.is_empty());

        let cluster = cluster.with_setting("num.partitions", "5");
        let topic = creatable_topic(&cluster.config, &"orders".into());
        assert_eq!((topic.num_partitions, topic.replication_factor), (5, -1));
    }

    #[test]
    fn internal_topics_have_their_own_settings() {
        let cluster = Cluster::single_node();
        let configs = |name: &'static str| -> (i32, i16, Vec<String>) {
            let topic = creatable_topic(&cluster.config, &name.into());
            let configs = topic
                .configs
                .iter()
                .map(|config| format!("{}={}", config.name, config.value.as_ref().unwrap()))
                .collect();
            (topic.num_partitions, topic.replication_factor, configs)
        };
        assert_eq!(
            configs("__consumer_offsets"),
            (
                50,
                1,
                [
                    "cleanup.policy=compact",
                    "compression.type=producer",
                    "segment.bytes=104857600"
                ]
                .map(String::from)
                .to_vec()
            )
        );
        let (partitions, _, transaction_configs) = configs("__transaction_state");
        assert_eq!(partitions, 50);
        assert!(transaction_configs.contains(&"min.insync.replicas=1".to_owned()));
        let (partitions, factor, share_configs) = configs("__share_group_state");
        assert_eq!((partitions, factor), (50, 1));
        assert!(share_configs.contains(&"segment.bytes=104857600".to_owned()));
    }
}
