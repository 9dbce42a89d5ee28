//! The decisions of the controller as pure functions.
//!
//! Each function takes a request and a `ControllerContext`, and returns a `Decision`: the records
//! to append, and the response to send when they are committed. The functions change nothing and
//! read only their arguments; time and random numbers come from the context.
//!
//! In Kafka: `QuorumController` and its control managers.

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

mod decision;

mod topic_names;

mod replica_placement;

mod create_topics;

mod delete_topics;

mod create_partitions;

mod auto_create_topics;

mod config_validation;

mod alter_configs;

mod features;

mod brokers;

mod broker_sessions;

mod broker_lifecycle;

mod partition_change;

mod alter_partition;

mod assign_replicas_to_dirs;

mod elect_leaders;

mod leader_balance;

mod reassignments;

mod client_quotas;

mod scram_credentials;

mod delegation_tokens;

mod acls;

mod producer_ids;

mod bootstrap;

#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;

#[cfg(test)]
mod test_support;

pub use acls::{create_acls, delete_acls};
pub use alter_configs::{
    alter_configs, append_to_list, incremental_alter_configs, judge_alter_configs,
    judge_incremental_alter_configs, subtract_from_list,
};
pub use alter_partition::alter_partition;
pub use assign_replicas_to_dirs::assign_replicas_to_dirs;
pub use auto_create_topics::{InternalTopic, creatable_topic};
pub use bootstrap::{BootstrapOptions, activation_records, bootstrap_records};
pub use broker_lifecycle::{
    BrokerLifecycle, Heartbeat, HeartbeatAnswer, LifecycleEffect, LifecycleEvent, LifecycleFailure,
    LifecycleSettings,
};
pub use broker_sessions::BrokerSessions;
pub use brokers::{
    BrokerState, fence_broker, heartbeat, register_broker, register_controller, unregister_broker,
    unregister_controller,
};
pub use client_quotas::alter_client_quotas;
pub use create_partitions::create_partitions;
pub use create_topics::create_topics;
pub use decision::{ApiError, ControllerContext, Decision, MAX_RECORDS_PER_USER_OPERATION};
pub use delegation_tokens::{
    create_delegation_token, expire_delegation_token, remove_expired_tokens, renew_delegation_token,
};
pub use delete_topics::delete_topics;
pub use elect_leaders::{elect_leaders, elect_unclean_leaders};
pub use features::{local_supported_features, update_features};
pub use leader_balance::LeaderBalance;
pub use producer_ids::{PRODUCER_ID_BLOCK_SIZE, allocate_producer_ids};
pub use reassignments::{alter_partition_reassignments, list_partition_reassignments};
pub use replica_placement::{UsableBroker, place_on_brokers};
pub use scram_credentials::alter_user_scram_credentials;
pub use topic_names::{has_collision_chars, is_internal, is_valid_topic_name, validate_topic_name};
