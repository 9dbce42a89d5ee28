//! Every script in the `bin` folder of Apache Kafka 4.3.1, and its counterpart here.

use std::fmt::Write as _;

/// One of Kafka's scripts.
pub struct Script {
    /// Without `.sh`.
    pub name: &'static str,
    /// The Java class that it runs; empty if it runs another script.
    pub class: &'static str,
    pub outcome: Outcome,
}

/// The counterpart of a script.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// The command that implements it, and remarks, if any.
    Serves(&'static str, &'static str),
    /// The reason why it is not supported.
    NotServed(&'static str),
}

use Outcome::{NotServed, Serves};

const fn script(name: &'static str, class: &'static str, outcome: Outcome) -> Script {
    Script {
        name,
        class,
        outcome,
    }
}

const CONNECT: &str = "Kafka Connect is a Java framework that runs outside the broker; run Kafka's own script against this broker";
const VERIFIABLE: &str =
    "it is part of Kafka's system tests; run Kafka's own script against this broker";

/// Sorted by name.
#[rustfmt::skip]
pub const SCRIPTS: &[Script] = &[
    script("connect-distributed", "org.apache.kafka.connect.cli.ConnectDistributed", NotServed(CONNECT)),
    script("connect-mirror-maker", "org.apache.kafka.connect.mirror.MirrorMaker", NotServed(CONNECT)),
    script("connect-plugin-path", "org.apache.kafka.tools.ConnectPluginPath", NotServed(CONNECT)),
    script("connect-standalone", "org.apache.kafka.connect.cli.ConnectStandalone", NotServed(CONNECT)),
    script("kafka-acls", "org.apache.kafka.tools.AclCommand", Serves("acls", "the usage text is not printed after an error; sets are sorted")),
    script("kafka-broker-api-versions", "org.apache.kafka.tools.BrokerApiVersionsCommand", Serves("broker-api-versions", "")),
    script("kafka-client-metrics", "org.apache.kafka.tools.ClientMetricsCommand", Serves("client-metrics", "")),
    script("kafka-cluster", "org.apache.kafka.tools.ClusterTool", Serves("cluster", "")),
    script("kafka-configs", "kafka.admin.ConfigCommand", Serves("configs", "")),
    script("kafka-console-consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer", Serves("console-consumer", "Java formatters and deserializers other than Kafka's own are refused")),
    script("kafka-console-producer", "org.apache.kafka.tools.ConsoleProducer", Serves("console-producer", "Java line readers are refused")),
    script("kafka-console-share-consumer", "org.apache.kafka.tools.consumer.ConsoleShareConsumer", Serves("console-share-consumer", "Java formatters and deserializers other than Kafka's own are refused")),
    script("kafka-consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", Serves("consumer-groups", "")),
    script("kafka-consumer-perf-test", "org.apache.kafka.tools.ConsumerPerformance", Serves("consumer-perf-test", "")),
    script("kafka-delegation-tokens", "org.apache.kafka.tools.DelegationTokenCommand", Serves("delegation-tokens", "without `--owner-principal`, all tokens that the client may see are shown; Kafka's tool shows none")),
    script("kafka-delete-records", "org.apache.kafka.tools.DeleteRecordsCommand", Serves("delete-records", "")),
    script("kafka-dump-log", "org.apache.kafka.tools.DumpLogSegments", Serves("dump-log", "Java decoder classes other than Kafka's own are refused")),
    script("kafka-e2e-latency", "org.apache.kafka.tools.EndToEndLatency", Serves("e2e-latency", "joins no group and commits no offsets")),
    script("kafka-features", "org.apache.kafka.tools.FeatureCommand", Serves("features", "")),
    script("kafka-get-offsets", "org.apache.kafka.tools.GetOffsetShell", Serves("get-offsets", "")),
    script("kafka-groups", "org.apache.kafka.tools.GroupsCommand", Serves("groups", "")),
    script("kafka-jmx", "org.apache.kafka.tools.JmxTool", NotServed("it reads JMX metrics of a Java process")),
    script("kafka-leader-election", "org.apache.kafka.tools.LeaderElectionCommand", Serves("leader-election", "")),
    script("kafka-log-dirs", "org.apache.kafka.tools.LogDirsCommand", Serves("log-dirs", "")),
    script("kafka-metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand", Serves("metadata-quorum", "")),
    script("kafka-metadata-shell", "org.apache.kafka.shell.MetadataShell", NotServed("use `ottla dump-log --cluster-metadata-decoder --files FILE` to read the metadata log")),
    script("kafka-producer-perf-test", "org.apache.kafka.tools.ProducerPerformance", Serves("producer-perf-test", "with `--throughput`, latencies count from when records were due, not from when they were sent; failed records are counted instead of printed one by one")),
    script("kafka-reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", Serves("reassign-partitions", "errors are printed without the stack trace of Kafka's tool")),
    script("kafka-replica-verification", "org.apache.kafka.tools.ReplicaVerificationTool", Serves("replica-verification", "a partition without a record at or after `--time` is read from its end, where Kafka's tool fails")),
    script("kafka-run-class", "", Serves("", "runs the script that belongs to the given class; no other Java class")),
    script("kafka-server-start", "kafka.Kafka", Serves("server-start", "JVM settings have no effect; a message says so")),
    script("kafka-server-stop", "", Serves("server-stop", "stops the Ottla servers on this machine, not Kafka's")),
    script("kafka-share-consumer-perf-test", "org.apache.kafka.tools.ShareConsumerPerformance", Serves("share-consumer-perf-test", "continues while records arrive; Kafka's stops once it has run longer than `--timeout`")),
    script("kafka-share-groups", "org.apache.kafka.tools.consumer.group.ShareGroupCommand", Serves("share-groups", "")),
    script("kafka-storage", "kafka.tools.StorageTool", Serves("storage", "")),
    script("kafka-streams-application-reset", "org.apache.kafka.tools.StreamsResetter", NotServed("it is a tool of the Java library Kafka Streams; run Kafka's own script against this broker")),
    script("kafka-streams-groups", "org.apache.kafka.tools.streams.StreamsGroupCommand", Serves("streams-groups", "")),
    script("kafka-topics", "org.apache.kafka.tools.TopicCommand", Serves("topics", "")),
    script("kafka-transactions", "org.apache.kafka.tools.TransactionsCommand", Serves("transactions", "")),
    script("kafka-verifiable-consumer", "org.apache.kafka.tools.VerifiableConsumer", NotServed(VERIFIABLE)),
    script("kafka-verifiable-producer", "org.apache.kafka.tools.VerifiableProducer", NotServed(VERIFIABLE)),
    script("kafka-verifiable-share-consumer", "org.apache.kafka.tools.VerifiableShareConsumer", Serves("verifiable-share-consumer", "")),
    script("trogdor", "org.apache.kafka.trogdor.Trogdor", NotServed("it is Kafka's test framework, a Java program; run Kafka's own script against this broker")),
];

/// The table for `COMPATIBILITY.md`.
pub fn markdown() -> String {
    let mut table = String::from("| script | command | remarks |\n| --- | --- | --- |\n");
    for script in SCRIPTS {
        let (command, note) = match script.outcome {
            Outcome::Serves("", note) => ("yes".to_owned(), note.to_owned()),
            Outcome::Serves(command, note) => (format!("`ottla {command}`"), note.to_owned()),
            Outcome::NotServed(reason) => ("–".to_owned(), format!("not supported: {reason}")),
        };
        let _ = writeln!(table, "| `{}.sh` | {command} | {note} |", script.name);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str =
        "<!-- scripts: generated by `cargo run -p ottla -- install-scripts --table` -->\n";
    const END: &str = "<!-- end of scripts -->";

    #[test]
    fn the_page_contains_the_table_of_scripts() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../COMPATIBILITY.md");
        let page = std::fs::read_to_string(path).expect("COMPATIBILITY.md");
        let begin = page.find(BEGIN).expect("the mark at the beginning") + BEGIN.len();
        let end = page.find(END).expect("the mark at the end");
        assert!(
            page[begin..end].trim() == markdown().trim(),
            "the table of scripts in COMPATIBILITY.md is outdated; replace it with the output of \
             `cargo run -p ottla -- install-scripts --table`"
        );
    }

    #[test]
    fn names_are_in_order() {
        assert!(SCRIPTS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
