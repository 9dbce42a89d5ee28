//! The names under which a setting can be given.

/// The first broker synonym of a topic setting (`ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS`).
pub fn broker_synonym_of_topic_config(name: &str) -> Option<&'static str> {
    Some(match name {
        "cleanup.policy" => "log.cleanup.policy",
        "compression.gzip.level" => "compression.gzip.level",
        "compression.lz4.level" => "compression.lz4.level",
        "compression.type" => "compression.type",
        "compression.zstd.level" => "compression.zstd.level",
        "delete.retention.ms" => "log.cleaner.delete.retention.ms",
        "file.delete.delay.ms" => "log.segment.delete.delay.ms",
        "flush.messages" => "log.flush.interval.messages",
        "flush.ms" => "log.flush.interval.ms",
        "index.interval.bytes" => "log.index.interval.bytes",
        "local.retention.bytes" => "log.local.retention.bytes",
        "local.retention.ms" => "log.local.retention.ms",
        "max.compaction.lag.ms" => "log.cleaner.max.compaction.lag.ms",
        "max.decompressed.message.bytes" => "max.decompressed.message.bytes",
        "max.message.bytes" => "message.max.bytes",
        "message.timestamp.after.max.ms" => "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms" => "log.message.timestamp.before.max.ms",
        "message.timestamp.type" => "log.message.timestamp.type",
        "min.cleanable.dirty.ratio" => "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms" => "log.cleaner.min.compaction.lag.ms",
        "min.insync.replicas" => "min.insync.replicas",
        "preallocate" => "log.preallocate",
        "remote.copy.lag.bytes" => "log.remote.copy.lag.bytes",
        "remote.copy.lag.ms" => "log.remote.copy.lag.ms",
        "retention.bytes" => "log.retention.bytes",
        "retention.ms" => "log.retention.ms",
        "segment.bytes" => "log.segment.bytes",
        "segment.index.bytes" => "log.index.size.max.bytes",
        "segment.jitter.ms" => "log.roll.jitter.ms",
        "segment.ms" => "log.roll.ms",
        "unclean.leader.election.enable" => "unclean.leader.election.enable",
        _ => return None,
    })
}

/// All names under which a broker setting can be given, in order of precedence. For most settings,
/// there is only one (`DynamicBrokerConfig.brokerConfigSynonyms`).
pub fn broker_config_synonyms(name: &str) -> Vec<&str> {
    match name {
        "log.roll.ms" | "log.roll.hours" => vec!["log.roll.ms", "log.roll.hours"],
        "log.roll.jitter.ms" | "log.roll.jitter.hours" => {
            vec!["log.roll.jitter.ms", "log.roll.jitter.hours"]
        }
        "log.flush.interval.ms" => vec!["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        "log.retention.ms" | "log.retention.minutes" | "log.retention.hours" => {
            vec![
                "log.retention.ms",
                "log.retention.minutes",
                "log.retention.hours",
            ]
        }
        _ => match name
            .strip_prefix("listener.name.")
            .and_then(|rest| rest.split_once('.'))
        {
            Some((_, base)) => {
                let mechanism = LISTENER_MECHANISM_CONFIGS
                    .iter()
                    .find(|it| base.ends_with(*it));
                vec![name, mechanism.copied().unwrap_or(base)]
            }
            None => vec![name],
        },
    }
}

/// Settings that a listener can override for each of its SASL mechanisms.
const LISTENER_MECHANISM_CONFIGS: &[&str] = &[
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
];
