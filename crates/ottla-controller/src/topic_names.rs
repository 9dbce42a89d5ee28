//! Valid topic names.
//!
//! In Kafka: `org.apache.kafka.common.internals.Topic`.

const MAX_NAME_LENGTH: usize = 249;

/// The internal topics. Clients can read them, but creating and writing them is restricted.
const INTERNAL_TOPICS: [&str; 3] = [
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
];

/// The metadata log of the cluster. No topic can have this name.
pub(crate) const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";

pub fn is_internal(name: &str) -> bool {
    INTERNAL_TOPICS.contains(&name)
}

pub fn is_valid_topic_name(name: &str) -> bool {
    validate_topic_name(name).is_ok()
}

/// The error is Kafka's message.
pub fn validate_topic_name(name: &str) -> Result<(), String> {
    let reason = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if name.encode_utf16().count() > MAX_NAME_LENGTH {
        format!("the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}")
    } else if !name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    {
        format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )
    } else {
        return Ok(());
    };
    Err(format!("Topic name is invalid: {reason}"))
}

/// Names that differ only in `.` and `_` have metrics of the same name, so only one of them can
/// exist.
pub fn has_collision_chars(name: &str) -> bool {
    name.contains(['.', '_'])
}

pub(crate) fn unify_collision_chars(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_refused() {
        let error = |name: &str| validate_topic_name(name).unwrap_err();
        assert_eq!(
            error(""),
            "Topic name is invalid: the empty string is not allowed"
        );
        assert_eq!(error("."), "Topic name is invalid: '.' is not allowed");
        assert_eq!(error(".."), "Topic name is invalid: '..' is not allowed");
        assert_eq!(
            error("a b"),
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        );
        assert!(error(&"x".repeat(250)).ends_with("is longer than the max allowed length 249"));
        assert!(error("größe").contains("other than ASCII alphanumerics"));
        for name in ["a", "A.b_c-9", "...", &"x".repeat(249)] {
            assert_eq!(validate_topic_name(name), Ok(()), "{name}");
        }
    }
}
