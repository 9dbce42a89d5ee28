//! Kafka's command-line tools by the names of Ottla's.

use std::process::Command;

use ottla_peers::InstalledPeer;

/// A tool: Ottla's command, and the class that Kafka's script runs.
#[derive(Clone, Copy)]
pub struct Tool {
    pub command: &'static str,
    class: &'static str,
}

impl Tool {
    /// The command that runs the tool of this peer. The caller adds the arguments.
    pub fn of(self, peer: &InstalledPeer) -> Command {
        peer.tool(match peer.class_path() {
            Some(_) => self.class,
            None => self.command,
        })
    }

    /// Its class, if the peer's tools are in Java.
    pub fn class_in(self, peer: &InstalledPeer) -> Option<&str> {
        peer.class_path().map(|_| peer.tool_class(self.class))
    }
}

macro_rules! tools {
    ($($name:ident = $command:literal, $class:literal;)+) => {$(
        pub const $name: Tool = Tool {
            command: $command,
            class: $class,
        };
    )+};
}

tools! {
    TOPICS = "topics", "org.apache.kafka.tools.TopicCommand";
    CONFIGS = "configs", "kafka.admin.ConfigCommand";
    PRODUCER = "console-producer", "org.apache.kafka.tools.ConsoleProducer";
    CONSUMER = "console-consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer";
    OFFSETS = "get-offsets", "org.apache.kafka.tools.GetOffsetShell";
    CONSUMER_GROUPS = "consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    SHARE_GROUPS = "share-groups", "org.apache.kafka.tools.consumer.group.ShareGroupCommand";
    SHARE_CONSUMER = "console-share-consumer", "org.apache.kafka.tools.consumer.ConsoleShareConsumer";
    SHARE_TEST = "share-consumer-perf-test", "org.apache.kafka.tools.ShareConsumerPerformance";
    SHARE_VERIFIABLE = "verifiable-share-consumer", "org.apache.kafka.tools.VerifiableShareConsumer";
    STREAMS_GROUPS = "streams-groups", "org.apache.kafka.tools.streams.StreamsGroupCommand";
    GROUPS = "groups", "org.apache.kafka.tools.GroupsCommand";
    DELETE_RECORDS = "delete-records", "org.apache.kafka.tools.DeleteRecordsCommand";
    ELECTION = "leader-election", "org.apache.kafka.tools.LeaderElectionCommand";
    LOG_DIRS = "log-dirs", "org.apache.kafka.tools.LogDirsCommand";
    CLUSTER = "cluster", "org.apache.kafka.tools.ClusterTool";
    QUORUM = "metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand";
    FEATURES = "features", "org.apache.kafka.tools.FeatureCommand";
    API_VERSIONS = "broker-api-versions", "org.apache.kafka.tools.BrokerApiVersionsCommand";
    METRICS = "client-metrics", "org.apache.kafka.tools.ClientMetricsCommand";
    REASSIGN = "reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
    REPLICAS = "replica-verification", "org.apache.kafka.tools.ReplicaVerificationTool";
    PRODUCER_TEST = "producer-perf-test", "org.apache.kafka.tools.ProducerPerformance";
    CONSUMER_TEST = "consumer-perf-test", "org.apache.kafka.tools.ConsumerPerformance";
    LATENCY_TEST = "e2e-latency", "org.apache.kafka.tools.EndToEndLatency";
    STORAGE = "storage", "kafka.tools.StorageTool";
    ACLS = "acls", "org.apache.kafka.tools.AclCommand";
    TOKENS = "delegation-tokens", "org.apache.kafka.tools.DelegationTokenCommand";
    TRANSACTIONS = "transactions", "org.apache.kafka.tools.TransactionsCommand";
}
