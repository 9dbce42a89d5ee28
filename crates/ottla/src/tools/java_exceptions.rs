//! What Java calls the errors of a cluster, which stands in the output of Kafka's tools where scripts look
//! for it.

use ottla_client::ClientError;
use ottla_types::ErrorCode;

/// The class of the exception: `org.apache.kafka.common.errors.GroupIdNotFoundException`.
pub(super) fn class_name(error: &ClientError) -> String {
    let name = match error.code() {
        Some(ErrorCode::NonEmptyGroup) => "GroupNotEmpty".to_owned(),
        Some(ErrorCode::TopicAlreadyExists) => "TopicExists".to_owned(),
        Some(ErrorCode::InvalidTopicException) => "InvalidTopic".to_owned(),
        Some(ErrorCode::InvalidConfig) => "InvalidConfiguration".to_owned(),
        Some(ErrorCode::MessageTooLarge) => "RecordTooLarge".to_owned(),
        Some(ErrorCode::UnknownServerError) => "UnknownServer".to_owned(),
        Some(ErrorCode::KafkaStorageError) => "KafkaStorage".to_owned(),
        Some(ErrorCode::RequestTimedOut) => "Timeout".to_owned(),
        None => match error {
            ClientError::Unsupported { .. } => "UnsupportedVersion".to_owned(),
            ClientError::Unsendable(_) => "RecordTooLarge".to_owned(),
            _ => "Timeout".to_owned(),
        },
        // Most of Java's names are those of the codes in other letters.
        Some(code) => code.name().split('_').map(capitalised).collect(),
    };
    format!("org.apache.kafka.common.errors.{name}Exception")
}

/// The exception as Java shows it: its class and what it says.
pub(super) fn shown(error: &ClientError) -> String {
    format!("{}: {}", class_name(error), error.broker_message())
}

/// `GROUP` -> `Group`
fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    format!("{first}{}", rest.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_javas() {
        let class = |code: ErrorCode| {
            class_name(&ClientError::broker("x", code.code(), None::<&str>))
                .rsplit('.')
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(class(ErrorCode::NonEmptyGroup), "GroupNotEmptyException");
        assert_eq!(
            class(ErrorCode::UnknownTopicOrPartition),
            "UnknownTopicOrPartitionException"
        );
        assert_eq!(class(ErrorCode::TopicAlreadyExists), "TopicExistsException");
    }
}
