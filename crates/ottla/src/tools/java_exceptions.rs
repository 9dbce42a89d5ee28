//! The names of Kafka's Java exceptions, which occur in the output of Kafka's tools and which
//! scripts search for.

use ottla_client::ClientError;
use ottla_types::ErrorCode;

const PACKAGE: &str = "org.apache.kafka.common.errors";

/// The class of the exception: `org.apache.kafka.common.errors.GroupIdNotFoundException`.
pub(super) fn class_name(error: &ClientError) -> String {
    let name = match error.code() {
        // The two that do not end in `Exception`.
        Some(ErrorCode::OffsetMetadataTooLarge) => {
            return format!("{PACKAGE}.OffsetMetadataTooLarge");
        }
        Some(ErrorCode::InvalidRegularExpression) => {
            return format!("{PACKAGE}.InvalidRegularExpression");
        }
        None => match error {
            ClientError::Unsupported { .. } => "UnsupportedVersion".to_owned(),
            ClientError::Unsendable(_) => "RecordTooLarge".to_owned(),
            _ => "Timeout".to_owned(),
        },
        // Most Java names are the code's name in another capitalisation.
        Some(code) => match name_of_its_own(code) {
            Some(name) => name.to_owned(),
            None => code.name().split('_').map(capitalised).collect(),
        },
    };
    format!("{PACKAGE}.{name}Exception")
}

/// The name before `Exception`, if it differs from the code's name.
fn name_of_its_own(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::UnknownServerError => "UnknownServer",
        ErrorCode::CorruptMessage => "CorruptRecord",
        ErrorCode::RequestTimedOut => "Timeout",
        ErrorCode::MessageTooLarge => "RecordTooLarge",
        ErrorCode::StaleControllerEpoch => "ControllerMoved",
        ErrorCode::NetworkException => "Network",
        ErrorCode::InvalidTopicException => "InvalidTopic",
        ErrorCode::RecordListTooLarge => "RecordBatchTooLarge",
        ErrorCode::TopicAuthorizationFailed => "TopicAuthorization",
        ErrorCode::GroupAuthorizationFailed => "GroupAuthorization",
        ErrorCode::ClusterAuthorizationFailed => "ClusterAuthorization",
        ErrorCode::TopicAlreadyExists => "TopicExists",
        ErrorCode::InvalidConfig => "InvalidConfiguration",
        ErrorCode::OutOfOrderSequenceNumber => "OutOfOrderSequence",
        ErrorCode::DuplicateSequenceNumber => "DuplicateSequence",
        ErrorCode::InvalidProducerIdMapping => "InvalidPidMapping",
        ErrorCode::InvalidTransactionTimeout => "InvalidTxnTimeout",
        ErrorCode::TransactionalIdAuthorizationFailed => "TransactionalIdAuthorization",
        ErrorCode::KafkaStorageError => "KafkaStorage",
        ErrorCode::SaslAuthenticationFailed => "SaslAuthentication",
        ErrorCode::DelegationTokenAuthDisabled => "DelegationTokenDisabled",
        ErrorCode::DelegationTokenRequestNotAllowed => "UnsupportedByAuthentication",
        ErrorCode::DelegationTokenAuthorizationFailed => "DelegationTokenAuthorization",
        ErrorCode::NonEmptyGroup => "GroupNotEmpty",
        ErrorCode::PrincipalDeserializationFailure => "PrincipalDeserialization",
        ErrorCode::FetchSessionTopicIdError => "FetchSessionTopicId",
        _ => return None,
    })
}

/// The exception as Java prints it: class and message.
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
    fn names_are_java_classes() {
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
        assert_eq!(
            class(ErrorCode::TopicDeletionDisabled),
            "TopicDeletionDisabledException"
        );
        assert_eq!(
            class(ErrorCode::OffsetMetadataTooLarge),
            "OffsetMetadataTooLarge"
        );
    }
}
