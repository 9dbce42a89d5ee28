//! Flags of older Kafka versions that still occur in documentation, and their replacements.

/// A flag, the tools that had it, and its replacement.
struct RetiredFlag {
    flag: &'static str,
    /// `None` means all tools.
    tools: &'static [&'static str],
    advice: &'static str,
}

#[rustfmt::skip]
const RETIRED: &[RetiredFlag] = &[
    RetiredFlag { flag: "--zookeeper", tools: &[], advice: "Kafka 4 does not use ZooKeeper; write --bootstrap-server host:9092, the address of a broker" },
    RetiredFlag {
        flag: "--broker-list",
        tools: &[
            "topics",
            "configs",
            "consumer-groups",
            "get-offsets",
            "console-producer",
            "console-consumer",
            "consumer-perf-test",
            "producer-perf-test",
        ],
        advice: "write --bootstrap-server host:9092",
    },
    RetiredFlag { flag: "--new-consumer", tools: &[], advice: "there is only the new consumer; leave the flag out" },
    RetiredFlag { flag: "--old-consumer", tools: &[], advice: "there is only the new consumer; leave the flag out" },
    RetiredFlag { flag: "--force", tools: &["topics"], advice: "topics change without it; leave the flag out" },
    RetiredFlag { flag: "--disable-rack-aware", tools: &["topics"], advice: "replicas are placed by the controller, which knows the racks; leave the flag out" },
    RetiredFlag { flag: "--offsets", tools: &["get-offsets"], advice: "only one offset is given for each partition; leave the flag out" },
    RetiredFlag { flag: "--max-wait-ms", tools: &["get-offsets"], advice: "write request.timeout.ms into the file of --command-config" },
    RetiredFlag { flag: "--blacklist", tools: &["console-consumer"], advice: "write --include with a regular expression" },
    RetiredFlag { flag: "--whitelist", tools: &["console-consumer"], advice: "write --include" },
    RetiredFlag { flag: "--sync", tools: &["console-consumer"], advice: "it belongs to console-producer" },
    RetiredFlag { flag: "--queue-size", tools: &["console-producer"], advice: "write --max-memory-bytes" },
    RetiredFlag { flag: "--queue-enqueuetimeout-ms", tools: &["console-producer"], advice: "write --max-block-ms" },
    RetiredFlag { flag: "--key-serializer", tools: &["console-producer"], advice: "keys are sent as they are read; leave the flag out" },
    RetiredFlag { flag: "--value-serializer", tools: &["console-producer"], advice: "values are sent as they are read; leave the flag out" },
];

/// The advice about the first retired flag among a tool's arguments.
pub fn advice(tool: &str, arguments: &[String]) -> Option<String> {
    arguments.iter().find_map(|argument| {
        let flag = argument.split('=').next().unwrap_or_default();
        let retired = RETIRED.iter().find(|retired| {
            retired.flag == flag && (retired.tools.is_empty() || retired.tools.contains(&tool))
        })?;
        Some(format!(
            "{flag} is an option of older Kafka releases: {}.",
            retired.advice
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::advice;

    #[test]
    fn retired_flags_have_an_error_message() {
        let say = |tool: &str, argument: &str| advice(tool, &[argument.to_owned()]);
        assert!(
            say("topics", "--zookeeper=localhost:2181")
                .unwrap()
                .contains("--bootstrap-server")
        );
        assert!(
            say("console-producer", "--broker-list")
                .unwrap()
                .contains("--bootstrap-server")
        );
        assert!(
            say("console-consumer", "--whitelist")
                .unwrap()
                .contains("--include")
        );
        assert_eq!(say("topics", "--sync"), None);
        assert_eq!(say("topics", "--list"), None);
        // In this tool the flag selects brokers.
        assert_eq!(say("log-dirs", "--broker-list"), None);
    }
}
