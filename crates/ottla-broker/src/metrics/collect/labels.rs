//! Labels of several metrics.

use ottla_types::TopicName;

pub(super) fn partition_labels(topic: &TopicName, partition: i32) -> [(&'static str, String); 2] {
    [
        ("topic", topic.to_string()),
        ("partition", partition.to_string()),
    ]
}
