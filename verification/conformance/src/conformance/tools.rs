//! Kafka's command line tools by the names of ours.

use std::process::Command;

use ottla_peers::InstalledPeer;

/// A tool: our command, and the class that Kafka's script runs.
#[derive(Clone, Copy)]
pub struct Tool {
    pub command: &'static str,
    class: &'static str,
}

impl Tool {
    /// The command that runs it as that peer has it, to which the caller adds the arguments.
    pub fn of(self, peer: &InstalledPeer) -> Command {
        peer.tool(match peer.class_path() {
            Some(_) => self.class,
            None => self.command,
        })
    }
}

const fn tool(command: &'static str, class: &'static str) -> Tool {
    Tool { command, class }
}

pub const TOPICS: Tool = tool("topics", "org.apache.kafka.tools.TopicCommand");
pub const CONFIGS: Tool = tool("configs", "kafka.admin.ConfigCommand");
pub const PRODUCER: Tool = tool("console-producer", "org.apache.kafka.tools.ConsoleProducer");
pub const CONSUMER: Tool = tool(
    "console-consumer",
    "org.apache.kafka.tools.consumer.ConsoleConsumer",
);
pub const OFFSETS: Tool = tool("get-offsets", "org.apache.kafka.tools.GetOffsetShell");
pub const CONSUMER_GROUPS: Tool = tool(
    "consumer-groups",
    "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
);
pub const SHARE_GROUPS: Tool = tool(
    "share-groups",
    "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
);
pub const SHARE_CONSUMER: Tool = tool(
    "console-share-consumer",
    "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
);
pub const SHARE_TEST: Tool = tool(
    "share-consumer-perf-test",
    "org.apache.kafka.tools.ShareConsumerPerformance",
);
pub const SHARE_VERIFIABLE: Tool = tool(
    "verifiable-share-consumer",
    "org.apache.kafka.tools.VerifiableShareConsumer",
);
pub const STREAMS_GROUPS: Tool = tool(
    "streams-groups",
    "org.apache.kafka.tools.streams.StreamsGroupCommand",
);
pub const GROUPS: Tool = tool("groups", "org.apache.kafka.tools.GroupsCommand");
pub const DELETE_RECORDS: Tool = tool(
    "delete-records",
    "org.apache.kafka.tools.DeleteRecordsCommand",
);
pub const ELECTION: Tool = tool(
    "leader-election",
    "org.apache.kafka.tools.LeaderElectionCommand",
);
pub const LOG_DIRS: Tool = tool("log-dirs", "org.apache.kafka.tools.LogDirsCommand");
pub const CLUSTER: Tool = tool("cluster", "org.apache.kafka.tools.ClusterTool");
pub const QUORUM: Tool = tool(
    "metadata-quorum",
    "org.apache.kafka.tools.MetadataQuorumCommand",
);
pub const FEATURES: Tool = tool("features", "org.apache.kafka.tools.FeatureCommand");
pub const API_VERSIONS: Tool = tool(
    "broker-api-versions",
    "org.apache.kafka.tools.BrokerApiVersionsCommand",
);
pub const METRICS: Tool = tool(
    "client-metrics",
    "org.apache.kafka.tools.ClientMetricsCommand",
);
pub const REASSIGN: Tool = tool(
    "reassign-partitions",
    "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
);
pub const REPLICAS: Tool = tool(
    "replica-verification",
    "org.apache.kafka.tools.ReplicaVerificationTool",
);
pub const PRODUCER_TEST: Tool = tool(
    "producer-perf-test",
    "org.apache.kafka.tools.ProducerPerformance",
);
pub const CONSUMER_TEST: Tool = tool(
    "consumer-perf-test",
    "org.apache.kafka.tools.ConsumerPerformance",
);
pub const LATENCY_TEST: Tool = tool("e2e-latency", "org.apache.kafka.tools.EndToEndLatency");
pub const STORAGE: Tool = tool("storage", "kafka.tools.StorageTool");
pub const TRANSACTIONS: Tool = tool("transactions", "org.apache.kafka.tools.TransactionsCommand");
