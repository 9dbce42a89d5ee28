//! Kafka's command-line tools, with Kafka's flags, output and exit statuses, and `rebalance`.
//!
//! The tools work with any Kafka cluster through `ottla-client`, or read the files of a log
//! directory; they never require an Ottla broker. Their standard output is that of Kafka 4.3's
//! tools, so existing scripts run unchanged; the wording of errors on standard error is Ottla's
//! own.
//!
//! Exit statuses: 0 for success, 1 for everything else, as in Kafka. `--help` succeeds.

mod acls;
mod admin_client;
mod connection_watch;
mod coordinator_watch;
mod java_exceptions;
mod java_maps;
mod java_numbers;
mod java_text;
mod local_time;
mod offset_deletion;
mod offset_reset;
mod performance;
mod retired_flags;
mod running;
mod settings;
mod simple_date_format;
mod sizes;
mod tabbed_table;
mod topic_filter;
mod topic_partitions_file;
mod topic_records;

mod broker_api_versions;
mod client_metrics;
mod cluster;
mod configs;
mod console_consumer;
mod console_producer;
mod console_share_consumer;
mod consumer_groups;
mod consumer_perf_test;
mod delegation_tokens;
mod delete_records;
mod dump_log;
mod e2e_latency;
mod features;
mod get_offsets;
mod group_arguments;
mod groups;
mod leader_election;
mod log_dirs;
mod metadata_quorum;
mod producer_perf_test;
mod reassign_partitions;
mod rebalance;
mod replica_verification;
mod share_consumer_perf_test;
mod share_groups;
mod storage;
mod streams_groups;
mod tier;
mod topics;
mod transactions;
mod verifiable_share_consumer;

use std::process::ExitCode;

use clap::Subcommand;

use running::{
    UsageError, block_on, block_on_while_receiving, message_of, report_on_stderr, report_on_stdout,
    report_plainly,
};
use settings::{
    key_values, load_client_properties, load_client_properties_if_given, load_properties_if_given,
    read_text, warn_of_unknown,
};

pub use acls::UNKNOWN;
pub use admin_client::{
    cluster_flags, config_without_credentials, connect_within as connect_admin,
};
pub use retired_flags::advice as advice_for_retired_flags;
pub use settings::{load_properties, read_properties};

/// The tools; each documents itself at its arguments.
#[derive(Subcommand, Debug)]
pub enum Tool {
    Topics(Box<topics::TopicsArgs>),
    Acls(Box<acls::AclsArgs>),
    Configs(Box<configs::ConfigsArgs>),
    DelegationTokens(Box<delegation_tokens::DelegationTokensArgs>),
    GetOffsets(get_offsets::GetOffsetsArgs),
    ConsumerGroups(Box<consumer_groups::ConsumerGroupsArgs>),
    Groups(groups::GroupsArgs),
    ShareGroups(Box<share_groups::ShareGroupsArgs>),
    StreamsGroups(Box<streams_groups::StreamsGroupsArgs>),
    Tier(tier::TierArgs),
    DeleteRecords(delete_records::DeleteRecordsArgs),
    LeaderElection(leader_election::LeaderElectionArgs),
    LogDirs(log_dirs::LogDirsArgs),
    Cluster(cluster::ClusterArgs),
    MetadataQuorum(metadata_quorum::MetadataQuorumArgs),
    Features(features::FeaturesArgs),
    Rebalance(Box<rebalance::RebalanceArgs>),
    ReassignPartitions(Box<reassign_partitions::ReassignPartitionsArgs>),
    ReplicaVerification(replica_verification::ReplicaVerificationArgs),
    BrokerApiVersions(broker_api_versions::BrokerApiVersionsArgs),
    ClientMetrics(Box<client_metrics::ClientMetricsArgs>),
    Storage(storage::StorageArgs),
    DumpLog(dump_log::DumpLogArgs),
    ConsoleProducer(Box<console_producer::ConsoleProducerArgs>),
    ConsoleConsumer(Box<console_consumer::ConsoleConsumerArgs>),
    ConsoleShareConsumer(Box<console_share_consumer::ConsoleShareConsumerArgs>),
    ConsumerPerfTest(Box<consumer_perf_test::ConsumerPerfTestArgs>),
    ShareConsumerPerfTest(Box<share_consumer_perf_test::ShareConsumerPerfTestArgs>),
    #[command(name = "e2e-latency")]
    E2eLatency(Box<e2e_latency::E2eLatencyArgs>),
    ProducerPerfTest(Box<producer_perf_test::ProducerPerfTestArgs>),
    Transactions(transactions::TransactionsArgs),
    VerifiableShareConsumer(verifiable_share_consumer::VerifiableShareConsumerArgs),
}

/// Runs a tool. Some tools print a special message when they are called without arguments.
pub fn run(tool: Tool, has_arguments: bool) -> ExitCode {
    // The console clients still have records to send or offsets to commit.
    if !matches!(
        tool,
        Tool::ConsoleProducer(_) | Tool::ConsoleConsumer(_) | Tool::ConsoleShareConsumer(_)
    ) {
        crate::broken_pipe::end_with_it();
    }
    match tool {
        Tool::Topics(args) => topics::run(*args),
        Tool::Acls(args) => acls::run(*args),
        Tool::Configs(args) => configs::run(*args),
        Tool::DelegationTokens(args) => delegation_tokens::run(*args),
        Tool::GetOffsets(args) => get_offsets::run(args),
        Tool::ConsumerGroups(args) => consumer_groups::run(*args),
        Tool::Groups(args) => groups::run(args),
        Tool::ShareGroups(args) => share_groups::run(*args),
        Tool::StreamsGroups(args) => streams_groups::run(*args),
        Tool::Tier(args) => tier::run(args),
        Tool::DeleteRecords(args) => delete_records::run(args),
        Tool::LeaderElection(args) => leader_election::run(args),
        Tool::LogDirs(args) => log_dirs::run(args),
        Tool::Cluster(args) => cluster::run(args),
        Tool::MetadataQuorum(args) => metadata_quorum::run(args),
        Tool::Features(args) => features::run(args),
        Tool::Rebalance(args) => rebalance::run(*args),
        Tool::ReassignPartitions(args) => reassign_partitions::run(*args),
        Tool::ReplicaVerification(args) => replica_verification::run(args),
        Tool::BrokerApiVersions(args) => broker_api_versions::run(args),
        Tool::ClientMetrics(args) => client_metrics::run(*args),
        Tool::Storage(args) => storage::run(args),
        Tool::DumpLog(args) => dump_log::run(args),
        Tool::ConsoleProducer(args) => console_producer::run(*args),
        Tool::ConsoleConsumer(args) => console_consumer::run(*args),
        Tool::ConsoleShareConsumer(args) => console_share_consumer::run(*args),
        Tool::ConsumerPerfTest(args) => consumer_perf_test::run(*args),
        Tool::ShareConsumerPerfTest(args) => share_consumer_perf_test::run(*args),
        Tool::E2eLatency(args) => e2e_latency::run(*args),
        Tool::ProducerPerfTest(args) => producer_perf_test::run(*args, has_arguments),
        Tool::Transactions(args) => transactions::run(args),
        Tool::VerifiableShareConsumer(args) => verifiable_share_consumer::run(args),
    }
}
