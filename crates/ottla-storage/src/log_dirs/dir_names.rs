//! The kinds of directories in a log directory, by name.
//!
//! Kafka: `LocalLog.parseTopicPartitionName`, `LocalLog.logDeleteDirName`.

use ottla_log::file_names::{DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX};
use ottla_types::TopicPartition;

/// The metadata log, which is not a topic partition.
pub const METADATA_TOPIC: &str = "__cluster_metadata";
/// Used by tiered storage.
const REMOTE_INDEX_CACHE: &str = "remote-log-index-cache";
/// Maximum length of a file name.
const MAX_NAME_BYTES: usize = 255;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DirKind {
    Partition(TopicPartition),
    /// A deletion was in progress.
    Deleted,
    /// Found not to belong here; kept for the operator.
    Stray,
    /// The copy of a replica that is being moved between directories.
    Future(TopicPartition),
    /// Not a partition; ignored.
    Other,
}

impl DirKind {
    /// `None` for an invalid name.
    pub(super) fn of(name: &str) -> Option<DirKind> {
        if name == REMOTE_INDEX_CACHE {
            return Some(DirKind::Other);
        }
        let kinds: [(&str, fn(TopicPartition) -> DirKind); 3] = [
            (DELETE_DIR_SUFFIX, |_| DirKind::Deleted),
            (STRAY_DIR_SUFFIX, |_| DirKind::Stray),
            (FUTURE_DIR_SUFFIX, DirKind::Future),
        ];
        for (suffix, kind) in kinds {
            // `<topic>-<partition>.<unique id>-delete`; without the ID it is a topic whose name has
            // this suffix.
            if let Some(rest) = name.strip_suffix(suffix)
                && let Some((partition, id)) = rest.rsplit_once('.')
                && !id.is_empty()
                && let Ok(partition) = TopicPartition::from_dir_name(partition)
            {
                return Some(kind(partition));
            }
        }
        let partition = TopicPartition::from_dir_name(name).ok()?;
        Some(match &*partition.topic {
            METADATA_TOPIC => DirKind::Other,
            _ => DirKind::Partition(partition),
        })
    }
}

/// A name for the directory of a deleted or stray partition: unique, and cut to the file system's
/// limit.
pub(super) fn suffixed(topic_partition: &TopicPartition, id: u128, suffix: &str) -> String {
    let end = format!("-{}.{id:032x}{suffix}", topic_partition.partition);
    let topic = &topic_partition.topic;
    let kept = topic.len().min(MAX_NAME_BYTES - end.len());
    // Topic names are ASCII.
    format!("{}{end}", topic.get(..kept).unwrap_or(topic))
}

#[cfg(test)]
mod tests {
    use ottla_types::TopicPartition;

    use super::{DirKind, suffixed};

    #[test]
    fn the_suffix_gives_the_kind() {
        let partition =
            |topic, partition| Some(DirKind::Partition(TopicPartition::new(topic, partition)));
        let id = "0123456789abcdef0123456789abcdef";
        for (name, kind) in [
            ("orders-0".to_owned(), partition("orders", 0)),
            ("or.ders-eu-12".to_owned(), partition("or.ders-eu", 12)),
            (format!("orders-0.{id}-delete"), Some(DirKind::Deleted)),
            (format!("orders-0.{id}-stray"), Some(DirKind::Stray)),
            (
                format!("or.ders-eu-0.{id}-future"),
                Some(DirKind::Future(TopicPartition::new("or.ders-eu", 0))),
            ),
            ("__cluster_metadata-0".to_owned(), Some(DirKind::Other)),
            ("remote-log-index-cache".to_owned(), Some(DirKind::Other)),
            ("orders-delete".to_owned(), None),
            ("lost+found".to_owned(), None),
            ("orders".to_owned(), None),
        ] {
            assert_eq!(DirKind::of(&name), kind, "{name}");
        }
    }

    #[test]
    fn suffixed_names_are_parsed_and_bounded_in_length() {
        let short = TopicPartition::new("orders", 3);
        let name = suffixed(&short, 0xab, "-delete");
        assert_eq!(name, "orders-3.000000000000000000000000000000ab-delete");
        let long = TopicPartition::new("x".repeat(249), 3);
        let name = suffixed(&long, 0xab, "-delete");
        assert_eq!(name.len(), 255);
        assert_eq!(DirKind::of(&name), Some(DirKind::Deleted));
    }
}
