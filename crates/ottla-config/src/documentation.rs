//! Documentation of settings, which `DescribeConfigs` can request: one sentence for each
//! frequently used setting (topic settings, and some of Ottla's own settings), and the reason of
//! each setting without effect. Other settings are returned without documentation.

use std::borrow::Cow;

use crate::config_def::{ConfigDef, Support};

/// The documentation of a setting, if there is any. `topic_setting` is the topic setting of which
/// a broker setting is the default.
pub(crate) fn of(def: &ConfigDef, topic_setting: Option<&str>) -> Option<Cow<'static, str>> {
    let meaning = match topic_setting {
        None => sentence(def.name).map(Cow::Borrowed),
        Some(topic) => sentence(topic).map(|meaning| {
            format!("{meaning} The default for topics without a {topic} of their own.").into()
        }),
    };
    match (meaning, def.support) {
        (Some(meaning), Support::AcceptedWithoutEffect(why)) => {
            Some(format!("{meaning} Without effect: {why}.").into())
        }
        (None, Support::AcceptedWithoutEffect(why)) => {
            Some(format!("Without effect: {why}.").into())
        }
        (meaning, _) => meaning,
    }
}

#[rustfmt::skip]
fn sentence(name: &str) -> Option<&'static str> {
    Some(match name {
        "cleanup.policy" => "What happens to old records: they are deleted, compacted by key, or both.",
        "compression.gzip.level" => "How hard gzip tries when the broker compresses batches.",
        "compression.lz4.level" => "How hard lz4 tries when the broker compresses batches.",
        "compression.type" => "How batches are compressed in the log; producer keeps them as they were sent.",
        "compression.zstd.level" => "How hard zstd tries when the broker compresses batches.",
        "delete.retention.ms" => "How long a compacted topic keeps the mark of a deleted key.",
        "file.delete.delay.ms" => "How long the files of a deleted segment stay before they are removed.",
        "flush.messages" => "After how many records the log is written through to the disk.",
        "flush.ms" => "After how long records are written through to the disk.",
        "index.interval.bytes" => "How many bytes of records lie between two entries of the offset index.",
        "ottla.page.cache.max.bytes" => {
            "How many bytes that were appended last stay in the page cache, over all partitions; -1 for as many as \
             the kernel keeps; -2 for at least a third of the available memory, and for as many as the kernel keeps \
             unless appends to new memory are measured to cost more."
        }
        "ottla.writeback.bytes" => "After how many bytes the kernel is asked to begin writing a log to the disk; 0 leaves that to the kernel.",
        "max.compaction.lag.ms" => "The longest that a record may stay uncompacted.",
        "max.decompressed.message.bytes" => "The largest record that is accepted in a compressed batch, decompressed.",
        "max.message.bytes" => "The largest batch that is accepted, after compression.",
        "message.timestamp.after.max.ms" => "How far a record's timestamp may be after the broker's clock.",
        "message.timestamp.before.max.ms" => "How far a record's timestamp may be before the broker's clock.",
        "message.timestamp.type" => "Whether records keep the producer's timestamp or get the broker's.",
        "min.cleanable.dirty.ratio" => "The share of uncompacted records at which a log is compacted.",
        "min.compaction.lag.ms" => "The shortest that a record stays uncompacted.",
        "min.insync.replicas" => "How many replicas must have a record that is produced with acks=all.",
        "preallocate" => "Whether the file of a new segment is made at its full size.",
        "retention.bytes" => "How many bytes of a partition are kept; -1 for no limit.",
        "retention.ms" => "How long records are kept; -1 for no limit.",
        "segment.bytes" => "The size at which a new segment begins.",
        "segment.index.bytes" => "The size of an index at which a new segment begins.",
        "segment.jitter.ms" => "The maximum random amount by which a new segment starts earlier, so that not all roll at once.",
        "segment.ms" => "The age at which a new segment begins.",
        "unclean.leader.election.enable" => "Whether a replica that lacks acknowledged records may become the leader.",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    fn documentation(key: &str, topic_setting: Option<&str>) -> Option<String> {
        let def = crate::broker_config(key).expect("a broker setting");
        super::of(def, topic_setting).map(Cow::into_owned)
    }

    #[test]
    fn defaults_of_topics_and_settings_without_effect_are_documented() {
        assert_eq!(
            documentation("log.retention.ms", Some("retention.ms")).as_deref(),
            Some(
                "How long records are kept; -1 for no limit. The default for topics without a retention.ms of their own."
            )
        );
        let threads = documentation("num.io.threads", None).expect("a reason");
        assert!(
            threads.starts_with("Without effect: the machine"),
            "{threads}"
        );
        assert_eq!(documentation("broker.id", None), None);
    }

    #[test]
    fn documented_settings_exist() {
        let count = crate::TOPIC_CONFIGS
            .iter()
            .filter(|def| super::sentence(def.name).is_some())
            .count();
        assert_eq!(count, 27);
    }
}
