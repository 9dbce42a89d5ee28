//! The configuration of one node, typed.
//!
//! A [`BrokerConfig`] is built from a properties file and validated, first each setting and then
//! across settings, when the node starts and after every dynamic change (KIP-226). Settings without
//! effect are still validated and kept in [`BrokerConfig::settings`], so that `DescribeConfigs`
//! reports what is in the file.
//!
//! Kafka: `kafka.server.KafkaConfig`, `AbstractKafkaConfig`.

mod dynamic;
mod error;
mod examine;
mod listeners;
mod oauth;
mod sasl;
mod secrets;
mod unknown_keys;
mod validate;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::config_def::{parse_host_port, parse_voter};
use crate::properties::{JaasSource, Properties, Variables};
use crate::topic_config::TopicConfig;
pub use error::{ConfigError, Warning};
pub use examine::Examined;
pub use listeners::{Listener, SecurityProtocol, parse_listener};
use ottla_sasl::SaslPeer;
pub use sasl::SaslConfig;
use sasl::SaslListeners;
pub(crate) use values::Values;

/// `process.roles`: the roles of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessRoles {
    pub broker: bool,
    pub controller: bool,
}

/// One entry of `controller.quorum.voters`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuorumVoter {
    pub id: i32,
    pub host: String,
    pub port: u16,
}

/// Declares the fields that contain one setting each. Their names are Kafka's keys with
/// underscores.
macro_rules! broker_config {
    ($( $field:ident: $type:ty = $key:literal, )*) => {
        /// The configuration of one node. `Debug` shows no values, because some are secrets.
        #[derive(Clone, PartialEq)]
        pub struct BrokerConfig {
            pub node_id: i32,
            pub process_roles: ProcessRoles,
            pub controller_quorum_voters: Vec<QuorumVoter>,
            pub controller_quorum_bootstrap_servers: Vec<(String, u16)>,
            /// In upper case, as Kafka normalises listener names.
            pub controller_listener_names: Vec<String>,
            /// Every listener that this node binds, including controller listeners.
            pub listeners: Vec<Listener>,
            /// The endpoints advertised to clients and other brokers.
            pub advertised_listeners: Vec<Listener>,
            /// The endpoints of this controller, advertised to controllers and brokers.
            pub advertised_controller_listeners: Vec<Listener>,
            pub inter_broker_listener_name: String,
            /// `listener.security.protocol.map`, with names in upper case.
            listener_protocols: BTreeMap<String, SecurityProtocol>,
            /// The SASL settings of this node's listeners, and its credentials at the listeners of
            /// other nodes.
            pub sasl: SaslConfig,
            /// Path and text of the JAAS file.
            jaas_file: Option<JaasSource>,
            /// `log.dirs`, or `log.dir`, as written.
            pub log_dirs: Vec<String>,
            /// `metadata.log.dir`, or the first of the log directories.
            pub metadata_log_dir: String,
            /// Addresses with their own connection limit.
            pub max_connections_per_ip_overrides: BTreeMap<String, i32>,
            /// The defaults for topics.
            pub topic_defaults: TopicConfig,
            $( #[doc = concat!("`", $key, "`")] pub $field: $type, )*
            /// The properties file, in which `broker.id` and `node.id` are synonyms.
            static_settings: BTreeMap<String, String>,
            /// The dynamic settings of the cluster and of this broker that are in effect.
            dynamic_default_settings: BTreeMap<String, String>,
            dynamic_settings: BTreeMap<String, String>,
            /// The values of those of them that have variables, in the same order.
            replaced_settings: [BTreeMap<String, String>; 2],
            variables: Option<Variables>,
            file_name: String,
        }

        impl BrokerConfig {
            /// Builds the configuration without checking rules across settings.
            fn build_unchecked(values: &Values<'_>) -> Result<BrokerConfig, ConfigError> {
                let effective = listeners::resolve(values)?;
                let log_dirs = match values.optional_list("log.dirs") {
                    Some(dirs) => dirs,
                    None => values.list("log.dir"),
                };
                let metadata_log_dir = values
                    .optional_text("metadata.log.dir")
                    .or_else(|| log_dirs.first().cloned())
                    .ok_or_else(|| values.conflict(
                        "log.dirs",
                        "there is no log directory; give log.dirs=/path/to/data",
                    ))?;
                let roles = values.list("process.roles");
                let mut config = BrokerConfig {
                    node_id: values.get("node.id"),
                    process_roles: ProcessRoles {
                        broker: roles.iter().any(|role| role == "broker"),
                        controller: roles.iter().any(|role| role == "controller"),
                    },
                    controller_quorum_voters: values
                        .list("controller.quorum.voters")
                        .iter()
                        .filter_map(|voter| parse_voter(voter))
                        .map(|(id, host, port)| QuorumVoter { id, host, port })
                        .collect(),
                    controller_quorum_bootstrap_servers: values
                        .list("controller.quorum.bootstrap.servers")
                        .iter()
                        .filter_map(|server| parse_host_port(server))
                        .collect(),
                    controller_listener_names: effective.controller_names,
                    listeners: effective.listeners,
                    advertised_listeners: effective.advertised,
                    advertised_controller_listeners: effective.advertised_controller,
                    inter_broker_listener_name: effective.inter_broker_name,
                    listener_protocols: effective.protocols,
                    sasl: SaslConfig::default(),
                    jaas_file: values.jaas_file().cloned(),
                    log_dirs,
                    metadata_log_dir,
                    max_connections_per_ip_overrides: values.connection_overrides()?,
                    topic_defaults: values.topic_defaults(),
                    $( $field: values.get($key), )*
                    static_settings: values.static_settings(),
                    dynamic_default_settings: BTreeMap::new(),
                    dynamic_settings: BTreeMap::new(),
                    replaced_settings: Default::default(),
                    variables: values.variables().cloned(),
                    file_name: values.file_name().to_owned(),
                };
                (config.sasl, _) = SaslConfig::resolve(&config.listeners_with_sasl(), values);
                Ok(config)
            }

            /// The settings with their own field.
            #[cfg(test)]
            pub(crate) const TYPED_KEYS: &'static [&'static str] = &[$( $key, )*];
        }
    };
}

broker_config! {
    add_partitions_to_txn_retry_backoff_max_ms: i32 = "add.partitions.to.txn.retry.backoff.max.ms",
    add_partitions_to_txn_retry_backoff_ms: i32 = "add.partitions.to.txn.retry.backoff.ms",
    allow_everyone_if_no_acl_found: bool = "allow.everyone.if.no.acl.found",
    authorizer_class_name: String = "authorizer.class.name",
    auto_create_topics_enable: bool = "auto.create.topics.enable",
    auto_leader_rebalance_enable: bool = "auto.leader.rebalance.enable",
    broker_heartbeat_interval_ms: i32 = "broker.heartbeat.interval.ms",
    broker_rack: Option<String> = "broker.rack",
    broker_session_timeout_ms: i32 = "broker.session.timeout.ms",
    connection_failed_authentication_delay_ms: i32 = "connection.failed.authentication.delay.ms",
    connections_max_idle_ms: i64 = "connections.max.idle.ms",
    controlled_shutdown_enable: bool = "controlled.shutdown.enable",
    controller_quota_window_num: i32 = "controller.quota.window.num",
    controller_quota_window_size_seconds: i32 = "controller.quota.window.size.seconds",
    controller_socket_timeout_ms: i32 = "controller.socket.timeout.ms",
    controller_quorum_auto_join_enable: bool = "controller.quorum.auto.join.enable",
    controller_quorum_election_backoff_max_ms: i32 = "controller.quorum.election.backoff.max.ms",
    controller_quorum_election_timeout_ms: i32 = "controller.quorum.election.timeout.ms",
    controller_quorum_fetch_max_bytes: i32 = "controller.quorum.fetch.max.bytes",
    controller_quorum_fetch_snapshot_max_bytes: i32 = "controller.quorum.fetch.snapshot.max.bytes",
    controller_quorum_fetch_timeout_ms: i32 = "controller.quorum.fetch.timeout.ms",
    controller_quorum_request_timeout_ms: i32 = "controller.quorum.request.timeout.ms",
    controller_quorum_retry_backoff_ms: i32 = "controller.quorum.retry.backoff.ms",
    cordoned_log_dirs: Vec<String> = "cordoned.log.dirs",
    delegation_token_expiry_check_interval_ms: i64 = "delegation.token.expiry.check.interval.ms",
    delegation_token_expiry_time_ms: i64 = "delegation.token.expiry.time.ms",
    delegation_token_max_lifetime_ms: i64 = "delegation.token.max.lifetime.ms",
    default_replication_factor: i32 = "default.replication.factor",
    delete_topic_enable: bool = "delete.topic.enable",
    errors_deadletterqueue_auto_create_topics_enable: bool = "errors.deadletterqueue.auto.create.topics.enable",
    errors_deadletterqueue_topic_name_prefix: String = "errors.deadletterqueue.topic.name.prefix",
    fetch_max_bytes: i32 = "fetch.max.bytes",
    follower_replication_throttled_rate: i64 = "follower.replication.throttled.rate",
    group_consumer_assignment_interval_ms: i32 = "group.consumer.assignment.interval.ms",
    group_consumer_assignor_offload_enable: bool = "group.consumer.assignor.offload.enable",
    group_consumer_assignors: Vec<String> = "group.consumer.assignors",
    group_consumer_heartbeat_interval_ms: i32 = "group.consumer.heartbeat.interval.ms",
    group_consumer_max_assignment_interval_ms: i32 = "group.consumer.max.assignment.interval.ms",
    group_consumer_max_heartbeat_interval_ms: i32 = "group.consumer.max.heartbeat.interval.ms",
    group_consumer_max_session_timeout_ms: i32 = "group.consumer.max.session.timeout.ms",
    group_consumer_max_size: i32 = "group.consumer.max.size",
    group_consumer_migration_policy: String = "group.consumer.migration.policy",
    group_consumer_min_assignment_interval_ms: i32 = "group.consumer.min.assignment.interval.ms",
    group_consumer_min_heartbeat_interval_ms: i32 = "group.consumer.min.heartbeat.interval.ms",
    group_consumer_min_session_timeout_ms: i32 = "group.consumer.min.session.timeout.ms",
    group_consumer_regex_refresh_interval_ms: i32 = "group.consumer.regex.refresh.interval.ms",
    group_consumer_session_timeout_ms: i32 = "group.consumer.session.timeout.ms",
    group_coordinator_background_threads: i32 = "group.coordinator.background.threads",
    group_coordinator_rebalance_protocols: Vec<String> = "group.coordinator.rebalance.protocols",
    group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms",
    group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms",
    group_max_size: i32 = "group.max.size",
    group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms",
    group_share_assignment_interval_ms: i32 = "group.share.assignment.interval.ms",
    group_share_delivery_count_limit: i32 = "group.share.delivery.count.limit",
    group_share_heartbeat_interval_ms: i32 = "group.share.heartbeat.interval.ms",
    group_share_initialize_retry_interval_ms: i32 = "group.share.initialize.retry.interval.ms",
    group_share_max_assignment_interval_ms: i32 = "group.share.max.assignment.interval.ms",
    group_share_max_delivery_count_limit: i32 = "group.share.max.delivery.count.limit",
    group_share_max_heartbeat_interval_ms: i32 = "group.share.max.heartbeat.interval.ms",
    group_share_max_partition_max_record_locks: i32 = "group.share.max.partition.max.record.locks",
    group_share_max_record_lock_duration_ms: i32 = "group.share.max.record.lock.duration.ms",
    group_share_max_session_timeout_ms: i32 = "group.share.max.session.timeout.ms",
    group_share_max_share_sessions: i32 = "group.share.max.share.sessions",
    group_share_max_size: i32 = "group.share.max.size",
    group_share_min_assignment_interval_ms: i32 = "group.share.min.assignment.interval.ms",
    group_share_min_delivery_count_limit: i32 = "group.share.min.delivery.count.limit",
    group_share_min_heartbeat_interval_ms: i32 = "group.share.min.heartbeat.interval.ms",
    group_share_min_partition_max_record_locks: i32 = "group.share.min.partition.max.record.locks",
    group_share_min_record_lock_duration_ms: i32 = "group.share.min.record.lock.duration.ms",
    group_share_min_session_timeout_ms: i32 = "group.share.min.session.timeout.ms",
    group_share_partition_max_record_locks: i32 = "group.share.partition.max.record.locks",
    group_share_record_lock_duration_ms: i32 = "group.share.record.lock.duration.ms",
    group_share_session_timeout_ms: i32 = "group.share.session.timeout.ms",
    group_streams_acceptable_recovery_lag: i64 = "group.streams.acceptable.recovery.lag",
    group_streams_assignment_interval_ms: i32 = "group.streams.assignment.interval.ms",
    group_streams_heartbeat_interval_ms: i32 = "group.streams.heartbeat.interval.ms",
    group_streams_initial_rebalance_delay_ms: i32 = "group.streams.initial.rebalance.delay.ms",
    group_streams_max_assignment_interval_ms: i32 = "group.streams.max.assignment.interval.ms",
    group_streams_max_heartbeat_interval_ms: i32 = "group.streams.max.heartbeat.interval.ms",
    group_streams_max_session_timeout_ms: i32 = "group.streams.max.session.timeout.ms",
    group_streams_max_size: i32 = "group.streams.max.size",
    group_streams_max_standby_replicas: i32 = "group.streams.max.standby.replicas",
    group_streams_min_assignment_interval_ms: i32 = "group.streams.min.assignment.interval.ms",
    group_streams_min_heartbeat_interval_ms: i32 = "group.streams.min.heartbeat.interval.ms",
    group_streams_min_session_timeout_ms: i32 = "group.streams.min.session.timeout.ms",
    group_streams_min_task_offset_interval_ms: i32 = "group.streams.min.task.offset.interval.ms",
    group_streams_num_standby_replicas: i32 = "group.streams.num.standby.replicas",
    group_streams_rack_aware_assignment_tags: Vec<String> = "group.streams.rack.aware.assignment.tags",
    group_streams_session_timeout_ms: i32 = "group.streams.session.timeout.ms",
    group_streams_task_offset_interval_ms: i32 = "group.streams.task.offset.interval.ms",
    initial_broker_registration_timeout_ms: i32 = "initial.broker.registration.timeout.ms",
    internal_metadata_log_segment_bytes: Option<i32> = "internal.metadata.log.segment.bytes",
    internal_metadata_max_batch_size_in_bytes: i32 = "internal.metadata.max.batch.size.in.bytes",
    leader_imbalance_check_interval_seconds: i64 = "leader.imbalance.check.interval.seconds",
    leader_replication_throttled_rate: i64 = "leader.replication.throttled.rate",
    log_cleaner_backoff_ms: i64 = "log.cleaner.backoff.ms",
    log_cleaner_dedupe_buffer_size: i64 = "log.cleaner.dedupe.buffer.size",
    log_cleaner_enable: bool = "log.cleaner.enable",
    log_cleaner_io_buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor",
    log_cleaner_io_buffer_size: i32 = "log.cleaner.io.buffer.size",
    log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second",
    log_cleaner_threads: i32 = "log.cleaner.threads",
    log_dir_failure_timeout_ms: i64 = "log.dir.failure.timeout.ms",
    log_flush_offset_checkpoint_interval_ms: i32 = "log.flush.offset.checkpoint.interval.ms",
    log_flush_scheduler_interval_ms: i64 = "log.flush.scheduler.interval.ms",
    log_flush_start_offset_checkpoint_interval_ms: i32 = "log.flush.start.offset.checkpoint.interval.ms",
    log_initial_task_delay_ms: i64 = "log.initial.task.delay.ms",
    log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms",
    max_connection_creation_rate: i32 = "max.connection.creation.rate",
    max_connections: i32 = "max.connections",
    max_connections_per_ip: i32 = "max.connections.per.ip",
    max_incremental_fetch_session_cache_slots: i32 = "max.incremental.fetch.session.cache.slots",
    max_request_partition_size_limit: i32 = "max.request.partition.size.limit",
    metadata_log_max_record_bytes_between_snapshots: i64 = "metadata.log.max.record.bytes.between.snapshots",
    metadata_log_max_snapshot_interval_ms: i64 = "metadata.log.max.snapshot.interval.ms",
    metadata_log_segment_bytes: i32 = "metadata.log.segment.bytes",
    metadata_log_segment_ms: i64 = "metadata.log.segment.ms",
    metadata_max_retention_bytes: i64 = "metadata.max.retention.bytes",
    metadata_max_retention_ms: i64 = "metadata.max.retention.ms",
    num_partitions: i32 = "num.partitions",
    num_recovery_threads_per_data_dir: i32 = "num.recovery.threads.per.data.dir",
    num_replica_alter_log_dirs_threads: Option<i32> = "num.replica.alter.log.dirs.threads",
    num_replica_fetchers: i32 = "num.replica.fetchers",
    offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes",
    offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms",
    offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms",
    offsets_retention_minutes: i32 = "offsets.retention.minutes",
    offsets_topic_compression_codec: i32 = "offsets.topic.compression.codec",
    offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions",
    offsets_topic_replication_factor: i16 = "offsets.topic.replication.factor",
    offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes",
    ottla_accept_unserved: Vec<String> = "ottla.accept.unserved",
    ottla_audit_events: Vec<String> = "ottla.audit.events",
    ottla_audit_file: Option<String> = "ottla.audit.file",
    ottla_audit_topic: Option<String> = "ottla.audit.topic",
    ottla_console_listener: String = "ottla.console.listener",
    ottla_console_oidc_client_id: Option<String> = "ottla.console.oidc.client.id",
    ottla_console_oidc_config: Option<String> = "ottla.console.oidc.config",
    ottla_console_oidc_issuer: Option<String> = "ottla.console.oidc.issuer",
    ottla_console_public_names: Vec<String> = "ottla.console.public.names",
    ottla_console_read_only: bool = "ottla.console.read.only",
    ottla_console_schema_registry: Option<String> = "ottla.console.schema.registry",
    ottla_console_schema_registry_config: Option<String> = "ottla.console.schema.registry.config",
    ottla_core_dump_enable: bool = "ottla.core.dump.enable",
    ottla_disk_reserve_bytes: i64 = "ottla.disk.reserve.bytes",
    ottla_http_listener: Option<String> = "ottla.http.listener",
    ottla_memory_max_bytes: i64 = "ottla.memory.max.bytes",
    ottla_metrics_reporter_dir: Option<String> = "ottla.metrics.reporter.dir",
    ottla_metrics_reporter_file_max_bytes: i64 = "ottla.metrics.reporter.file.max.bytes",
    ottla_metrics_reporter_files: i32 = "ottla.metrics.reporter.files",
    ottla_metrics_reporter_format: String = "ottla.metrics.reporter.format",
    ottla_metrics_reporter_interval_ms: i64 = "ottla.metrics.reporter.interval.ms",
    ottla_page_cache_max_bytes: i64 = "ottla.page.cache.max.bytes",
    ottla_ssl_kernel_enable: bool = "ottla.ssl.kernel.enable",
    ottla_trace_stalls_ms: i64 = "ottla.trace.stalls.ms",
    ottla_writeback_bytes: i64 = "ottla.writeback.bytes",
    producer_id_expiration_check_interval_ms: i32 = "producer.id.expiration.check.interval.ms",
    producer_id_expiration_ms: i32 = "producer.id.expiration.ms",
    queued_max_request_bytes: i64 = "queued.max.request.bytes",
    quota_window_num: i32 = "quota.window.num",
    quota_window_size_seconds: i32 = "quota.window.size.seconds",
    replica_alter_log_dirs_io_max_bytes_per_second: i64 = "replica.alter.log.dirs.io.max.bytes.per.second",
    replica_fetch_backoff_ms: i32 = "replica.fetch.backoff.ms",
    replica_fetch_max_bytes: i32 = "replica.fetch.max.bytes",
    replica_fetch_min_bytes: i32 = "replica.fetch.min.bytes",
    replica_fetch_response_max_bytes: i32 = "replica.fetch.response.max.bytes",
    replica_fetch_wait_max_ms: i32 = "replica.fetch.wait.max.ms",
    replica_high_watermark_checkpoint_interval_ms: i64 = "replica.high.watermark.checkpoint.interval.ms",
    replica_lag_time_max_ms: i64 = "replica.lag.time.max.ms",
    follower_fetch_last_tiered_offset_enable: bool = "follower.fetch.last.tiered.offset.enable",
    remote_fetch_max_wait_ms: i32 = "remote.fetch.max.wait.ms",
    remote_list_offsets_request_timeout_ms: i64 = "remote.list.offsets.request.timeout.ms",
    remote_log_manager_copier_thread_pool_size: i32 = "remote.log.manager.copier.thread.pool.size",
    remote_log_manager_copy_max_bytes_per_second: i64 = "remote.log.manager.copy.max.bytes.per.second",
    remote_log_manager_expiration_thread_pool_size: i32 = "remote.log.manager.expiration.thread.pool.size",
    remote_log_manager_fetch_max_bytes_per_second: i64 = "remote.log.manager.fetch.max.bytes.per.second",
    remote_log_reader_max_pending_tasks: i32 = "remote.log.reader.max.pending.tasks",
    remote_log_reader_threads: i32 = "remote.log.reader.threads",
    remote_log_storage_system_enable: bool = "remote.log.storage.system.enable",
    replica_selector_class: Option<String> = "replica.selector.class",
    replica_socket_timeout_ms: i32 = "replica.socket.timeout.ms",
    replication_quota_window_num: i32 = "replication.quota.window.num",
    replication_quota_window_size_seconds: i32 = "replication.quota.window.size.seconds",
    request_timeout_ms: i32 = "request.timeout.ms",
    share_coordinator_cold_partition_snapshot_interval_ms: i32 = "share.coordinator.cold.partition.snapshot.interval.ms",
    share_coordinator_snapshot_update_records_per_snapshot: i32 = "share.coordinator.snapshot.update.records.per.snapshot",
    share_coordinator_state_topic_compression_codec: i32 = "share.coordinator.state.topic.compression.codec",
    share_coordinator_state_topic_min_isr: i16 = "share.coordinator.state.topic.min.isr",
    share_coordinator_state_topic_num_partitions: i32 = "share.coordinator.state.topic.num.partitions",
    share_coordinator_state_topic_prune_interval_ms: i32 = "share.coordinator.state.topic.prune.interval.ms",
    share_coordinator_state_topic_replication_factor: i16 = "share.coordinator.state.topic.replication.factor",
    share_coordinator_state_topic_segment_bytes: i32 = "share.coordinator.state.topic.segment.bytes",
    share_coordinator_write_timeout_ms: i32 = "share.coordinator.write.timeout.ms",
    sasl_server_max_receive_size: i32 = "sasl.server.max.receive.size",
    socket_connection_setup_timeout_ms: i64 = "socket.connection.setup.timeout.ms",
    socket_listen_backlog_size: i32 = "socket.listen.backlog.size",
    socket_receive_buffer_bytes: i32 = "socket.receive.buffer.bytes",
    socket_request_max_bytes: i32 = "socket.request.max.bytes",
    socket_send_buffer_bytes: i32 = "socket.send.buffer.bytes",
    super_users: String = "super.users",
    telemetry_max_bytes: i32 = "telemetry.max.bytes",
    transaction_abort_timed_out_transaction_cleanup_interval_ms: i32 = "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    transaction_max_timeout_ms: i32 = "transaction.max.timeout.ms",
    transaction_partition_verification_enable: bool = "transaction.partition.verification.enable",
    transaction_remove_expired_transaction_cleanup_interval_ms: i32 = "transaction.remove.expired.transaction.cleanup.interval.ms",
    transaction_state_log_num_partitions: i32 = "transaction.state.log.num.partitions",
    transaction_state_log_replication_factor: i16 = "transaction.state.log.replication.factor",
    transaction_state_log_segment_bytes: i32 = "transaction.state.log.segment.bytes",
    transaction_state_log_min_isr: i32 = "transaction.state.log.min.isr",
    transaction_two_phase_commit_enable: bool = "transaction.two.phase.commit.enable",
    transactional_id_expiration_ms: i32 = "transactional.id.expiration.ms",
    unclean_leader_election_interval_ms: i64 = "unclean.leader.election.interval.ms",
}

impl fmt::Debug for BrokerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerConfig")
            .field("node_id", &self.node_id)
            .field("file_name", &self.file_name)
            .finish_non_exhaustive()
    }
}

impl BrokerConfig {
    /// The settings of the file.
    pub fn static_settings(&self) -> &BTreeMap<String, String> {
        &self.static_settings
    }

    /// The dynamic settings of the cluster that are in effect, with their variables.
    pub fn dynamic_default_settings(&self) -> &BTreeMap<String, String> {
        &self.dynamic_default_settings
    }

    /// The dynamic settings of this broker that are in effect, with their variables.
    pub fn dynamic_settings(&self) -> &BTreeMap<String, String> {
        &self.dynamic_settings
    }

    /// The effective text of a key without its default: dynamic for this broker, dynamic for the
    /// cluster, file. Variables are replaced by their values.
    pub fn setting(&self, key: &str) -> Option<&str> {
        let [of_cluster, of_broker] = &self.replaced_settings;
        [
            of_broker,
            &self.dynamic_settings,
            of_cluster,
            &self.dynamic_default_settings,
            &self.static_settings,
        ]
        .into_iter()
        .find_map(|settings| settings.get(key))
        .map(String::as_str)
    }

    /// Like [`setting`](Self::setting), as it is written: with variables, if it is dynamic.
    pub(crate) fn written_setting(&self, key: &str) -> Option<&str> {
        [
            &self.dynamic_settings,
            &self.dynamic_default_settings,
            &self.static_settings,
        ]
        .into_iter()
        .find_map(|settings| settings.get(key))
        .map(String::as_str)
    }

    /// Leaves variables in dynamic settings as they are. For threads that must not read files, and
    /// use no setting that can have variables.
    pub fn ignore_variables(&mut self) {
        self.variables = None;
    }

    /// The protocol of a listener of this node or of others. The name is in upper case.
    pub fn listener_protocol(&self, name: &str) -> Option<SecurityProtocol> {
        self.listener_protocols.get(name).copied()
    }

    /// The effective setting of a listener, and the key under which it is given: that of the
    /// listener, or the general one.
    pub fn listener_setting(&self, listener: &str, key: &str) -> Option<(String, &str)> {
        let own = format!("listener.name.{}.{key}", listener.to_lowercase());
        match self.setting(&own) {
            Some(value) => Some((own, value)),
            None => Some((key.to_owned(), self.setting(key)?)),
        }
    }

    /// The listeners that need login settings.
    fn listeners_with_sasl(&self) -> SaslListeners<'_> {
        let broker = self.process_roles.broker;
        SaslListeners {
            own: &self.listeners,
            inter_broker: broker.then_some(self.inter_broker_listener_name.as_str()),
            controller: self.controller_listener_names.first().map(String::as_str),
            protocols: &self.listener_protocols,
        }
    }

    /// The credentials of this node at the controllers' listeners.
    pub fn sasl_of_controllers(&self) -> Option<Arc<SaslPeer>> {
        let listener = self.controller_listener_names.first()?;
        self.sasl.peer(listener).cloned()
    }

    /// Whether a feature that Kafka enforces, and Ottla does not support yet, may be stored without
    /// effect.
    pub fn accepts_unserved(&self, name: &str) -> bool {
        self.ottla_accept_unserved.iter().any(|it| it == name)
    }

    /// `delegation.token.secret.key`. Delegation tokens are enabled if it is set.
    pub fn delegation_token_secret_key(&self) -> Option<&str> {
        let key = self.setting("delegation.token.secret.key");
        key.filter(|key| !key.is_empty())
    }

    /// Whether requests are authorised. `authorizer.class.name` can only be Kafka's
    /// StandardAuthorizer.
    pub fn has_authorizer(&self) -> bool {
        !self.authorizer_class_name.is_empty()
    }

    /// Whether broker and controller run in one process.
    pub fn is_combined(&self) -> bool {
        self.process_roles.broker && self.process_roles.controller
    }
}

/// The configuration of a single node with its data in one directory. `ottla server` uses it if no
/// file is given. Replication factors are 1, as in the file that ships with Kafka.
pub fn single_node_properties(data_dir: &str, listener: &str, controller: &str) -> Properties {
    let mut properties = Properties::new("the built-in configuration");
    for (key, value) in [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        (
            "listeners",
            &format!("PLAINTEXT://{listener},CONTROLLER://{controller}"),
        ),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.bootstrap.servers", controller),
        ("log.dirs", data_dir),
        // As in that file: a consumer in a test setup does not wait for other members of its group.
        ("group.initial.rebalance.delay.ms", "0"),
        ("offsets.topic.replication.factor", "1"),
        ("transaction.state.log.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
    ] {
        properties.set(key, value);
    }
    properties
}

#[cfg(test)]
mod tests;
