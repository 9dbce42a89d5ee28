//! Kafka's settings as data, the Java properties reader and the typed broker and topic configuration.
//!
//! Pure: nothing here opens a file, reads a clock or depends on a running broker. The input is the
//! text of a `server.properties`; the output is typed values and warnings, or an error that says
//! what to write instead.

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type
    )
)]

mod config_def;
mod from_value;
mod nearest_name;
mod synonyms;
mod tables;

mod properties;
mod topic_config;

mod remote_storage;

mod broker_config;

mod describe;
mod documentation;
mod markdown;

pub use broker_config::{
    BrokerConfig, ConfigError, Examined, Listener, ProcessRoles, QuorumVoter, SecurityProtocol,
    Warning, parse_listener, single_node_properties,
};
pub use config_def::{
    ConfigDef, ConfigType, ConfigValue, DefaultValue, Importance, InvalidValue, Support,
    UpdateMode, Validator, parse_host_port, parse_voter, share_offset_reset_duration_ms,
};
pub use describe::{
    ConfigSource, DescribedConfig, Synonym, created_topic_config_source, describe_broker,
    describe_client_metrics, describe_cluster_default, describe_group, describe_topic,
};
pub use markdown::settings_markdown;
pub use nearest_name::nearest_name;
pub use properties::{Origin, Properties, PropertiesError, Property, Variables, property_line};
pub use remote_storage::{
    InvalidRemoteLogMetadata, InvalidRemoteStorage, RemoteLogMetadataConfig, check_remote_storage,
    check_remote_storage_defaults, settings_below,
};
pub use synonyms::{broker_config_synonyms, broker_synonym_of_topic_config};
pub use tables::{
    BROKER_CONFIG_AREAS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, REMOTE_LOG_METADATA_CONFIGS,
    TOPIC_CONFIGS, broker_config, broker_config_of_key, broker_configs, client_metrics_config,
    group_config, topic_config,
};
pub use topic_config::{
    BrokerCompressionType, CleanupPolicy, InvalidTopicConfig, TimestampType, TopicConfig,
    java_double,
};
