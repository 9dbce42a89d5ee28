//! What an error of a store means: its kind, and one line with the store's code and message and the
//! setting that most likely has to change.
//!
//! `object_store` gives most failures a kind by their HTTP status. Where it does not (a deletion in
//! Azure, the end of an upload in GCS, a request for a token), the status is in the text only.

use std::time::Duration;

use crate::error::{RemoteStorageError, RemoteStorageErrorKind};

/// An error text longer than this is cut.
const MAX_CAUSE: usize = 600;
const ANSWERED: &str = "the store answered ";
/// A deletion in Azure has this text instead of a code.
const NO_CONTAINER: &str = "The specified container does not exist";

/// The error of an operation, `what`, on a store whose location is `s3://bucket` or the like.
pub fn failed(location: &str, what: String, error: &object_store::Error) -> RemoteStorageError {
    let text = text_of(error);
    let cause = shown(&text);
    let kind = kind_of(error, &text, &cause);
    RemoteStorageError::new(kind, what, with_advice(location, kind, cause))
}

pub fn no_answer(location: &str, what: String, timeout: Duration) -> RemoteStorageError {
    let kind = RemoteStorageErrorKind::Unavailable;
    let cause = format!("no answer within {} ms", timeout.as_millis());
    RemoteStorageError::new(kind, what, with_advice(location, kind, cause))
}

/// The error of the store in one line: code and message of its XML, if there is one.
pub fn cause(error: &object_store::Error) -> String {
    shown(&text_of(error))
}

fn kind_of(error: &object_store::Error, text: &str, cause: &str) -> RemoteStorageErrorKind {
    use object_store::Error;
    match error {
        _ if is_without_bucket(cause) => RemoteStorageErrorKind::Settings,
        Error::NotFound { .. } => RemoteStorageErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            RemoteStorageErrorKind::Denied
        }
        Error::InvalidPath { .. } | Error::UnknownConfigurationKey { .. } => {
            RemoteStorageErrorKind::Settings
        }
        _ if is_denied(text) => RemoteStorageErrorKind::Denied,
        _ => RemoteStorageErrorKind::Unavailable,
    }
}

/// Whether the store has no such bucket or container: the settings name another one than at the
/// upload. This says nothing about the object. If the object counted as deleted, it would stay in
/// its bucket forever.
fn is_without_bucket(cause: &str) -> bool {
    matches!(code_of(cause), Some("NoSuchBucket" | "ContainerNotFound"))
        || cause.contains(NO_CONTAINER)
}

/// Whether credentials were refused, by the store or by the server that gives out its tokens. That
/// server also answers 400 and 404 to an identity that it does not know.
fn is_denied(text: &str) -> bool {
    match status_of(text) {
        Some(401 | 403) => true,
        Some(400 | 404) => text.contains("performing token request"),
        _ => false,
    }
}

/// The HTTP status in the text of an error.
fn status_of(text: &str) -> Option<u16> {
    let mut markers = ["non-2xx status code: ", "(code: "].into_iter();
    let (_, rest) = markers.find_map(|marker| text.split_once(marker))?;
    rest.get(..3)?.parse().ok()
}

/// The error code of the store's answer, in what [`cause`] returns.
fn code_of(cause: &str) -> Option<&str> {
    cause.strip_prefix(ANSWERED)?.split(':').next()
}

/// The settings of a kind of store, as advice names them.
struct Advice {
    bucket: &'static str,
    endpoint: &'static str,
    credentials: &'static str,
}

const S3: Advice = Advice {
    bucket: "storage.s3.bucket.name",
    endpoint: "storage.s3.endpoint.url, or raise storage.s3.api.call.timeout",
    credentials: "storage.aws.access.key.id and storage.aws.secret.access.key, or \
                  storage.aws.credentials.*, and what they allow in the bucket",
};
const GCS: Advice = Advice {
    bucket: "storage.gcs.bucket.name",
    endpoint: "storage.gcs.endpoint.url, if it is set, and the network",
    credentials: "storage.gcs.credentials.*, and what they allow in the bucket",
};
const AZURE: Advice = Advice {
    bucket: "storage.azure.container.name",
    endpoint: "storage.azure.account.name or storage.azure.endpoint.url, and the network",
    credentials: "storage.azure.account.key, storage.azure.sas.token or \
                  storage.azure.connection.string, or without them the identity of this machine, \
                  and what it allows in the container",
};

/// Adds to a failure the setting that most likely has to change.
fn with_advice(location: &str, kind: RemoteStorageErrorKind, cause: String) -> String {
    use RemoteStorageErrorKind::{Denied, Unavailable};
    let advice = match location.split_once("://") {
        Some(("s3", _)) => &S3,
        Some(("gs", _)) => &GCS,
        Some(("azure", _)) => &AZURE,
        _ => return cause,
    };
    let check = match (code_of(&cause), kind) {
        _ if is_without_bucket(&cause) => advice.bucket,
        (Some("PermanentRedirect" | "AuthorizationHeaderMalformed"), _) => {
            "storage.s3.region and storage.s3.endpoint.url"
        }
        (Some("RequestTimeTooSkewed"), _) => "the clock of this machine",
        (_, Denied) => advice.credentials,
        (None, Unavailable) => advice.endpoint,
        _ => return cause,
    };
    format!("{cause}; check {check}")
}

/// The text of an error and of its sources.
fn text_of(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

fn shown(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    let answer = match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{ANSWERED}{code}: {message}"),
        (Some(code), None) => format!("{ANSWERED}{code}"),
        (None, _) => text.to_owned(),
    };
    // Azure's messages have lines.
    let mut line: String = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > MAX_CAUSE {
        let end = line.floor_char_boundary(MAX_CAUSE);
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of_text(text: &str) -> RemoteStorageErrorKind {
        let error = object_store::Error::Generic {
            store: "x",
            source: text.to_owned().into(),
        };
        failed("azure://account/container", "delete key".to_owned(), &error).kind
    }

    #[test]
    fn an_object_of_a_missing_bucket_does_not_count_as_deleted() {
        let kind_of = |answer: String| {
            let error = object_store::Error::NotFound {
                path: "key".to_owned(),
                source: answer.into(),
            };
            failed("s3://bucket", "delete key".to_owned(), &error).kind
        };
        let with_code =
            |code: &str| format!("<Error><Code>{code}</Code><Message>x</Message></Error>");
        // The texts of Azure's bulk deletion, which has no codes.
        let of_azure = |what: &str| {
            format!(
                "Bulk delete request failed for key k: The specified {what} does not exist. (code: 404)"
            )
        };
        for answer in [with_code("NoSuchKey"), of_azure("blob")] {
            assert_eq!(kind_of(answer), RemoteStorageErrorKind::NotFound);
        }
        for answer in [
            with_code("NoSuchBucket"),
            with_code("ContainerNotFound"),
            of_azure("container"),
        ] {
            assert_eq!(kind_of(answer), RemoteStorageErrorKind::Settings);
        }
    }

    #[test]
    fn a_refusal_is_found_where_only_the_text_has_the_status() {
        use RemoteStorageErrorKind::{Denied, Unavailable};
        let of_token = |status: &str| {
            format!(
                "Error performing token request: Error performing POST in 1ms - Server returned \
                 non-2xx status code: {status}: {{\"error\":\"invalid_grant\"}}"
            )
        };
        for (text, expected) in [
            (
                "Server returned non-2xx status code: 403 Forbidden: ".to_owned(),
                Denied,
            ),
            (
                "Server returned non-2xx status code: 503 Busy: ".to_owned(),
                Unavailable,
            ),
            (
                "Server returned non-2xx status code: 400 Bad Request: ".to_owned(),
                Unavailable,
            ),
            (
                "Bulk delete request failed for key k: No (code: 403)".to_owned(),
                Denied,
            ),
            (of_token("400 Bad Request"), Denied),
            (of_token("404 Not Found"), Denied),
            (of_token("429 Too Many Requests"), Unavailable),
            ("connection refused".to_owned(), Unavailable),
        ] {
            assert_eq!(kind_of_text(&text), expected, "{text}");
        }
    }

    #[test]
    fn an_answer_is_shown_in_one_line() {
        let xml = "<Error>\n  <Code>AuthenticationFailed</Code>\n  <Message>Refused.\nRequestId:1\n\
                   Time:2</Message>\n</Error>";
        let expected = "the store answered AuthenticationFailed: Refused. RequestId:1 Time:2";
        assert_eq!(shown(xml), expected);
        assert_eq!(
            shown("<Code>NoSuchKey</Code>"),
            "the store answered NoSuchKey"
        );
        assert_eq!(code_of("the store answered NoSuchKey"), Some("NoSuchKey"));
    }

    #[test]
    fn a_failure_names_the_setting_to_change() {
        use RemoteStorageErrorKind::{Denied, NotFound, Unavailable};
        let advice = |location: &str, kind, cause: &str| {
            let text = with_advice(location, kind, cause.to_owned());
            let advice = text.strip_prefix(cause).expect("the cause comes first");
            advice.to_owned()
        };
        for (kind, cause, expected) in [
            (
                NotFound,
                "the store answered NoSuchBucket: x",
                "storage.s3.bucket.name",
            ),
            (
                Unavailable,
                "the store answered AuthorizationHeaderMalformed: x",
                "storage.s3.region",
            ),
            (
                Denied,
                "the store answered InvalidAccessKeyId: x",
                "storage.aws.access.key.id",
            ),
            (Denied, "forbidden", "storage.aws.credentials.*"),
            (
                Denied,
                "the store answered RequestTimeTooSkewed: x",
                "clock",
            ),
            (
                Unavailable,
                "no answer within 5 ms",
                "storage.s3.api.call.timeout",
            ),
        ] {
            let advice = advice("s3://bucket", kind, cause);
            assert!(advice.contains(expected), "{cause}: {advice}");
        }
        for (location, bucket, credentials) in [
            (
                "gs://bucket",
                "storage.gcs.bucket.name",
                "storage.gcs.credentials.*",
            ),
            (
                "azure://a/c",
                "storage.azure.container.name",
                "storage.azure.account.key",
            ),
        ] {
            let missing = advice(location, NotFound, "the store answered NoSuchBucket: x");
            assert!(missing.contains(bucket), "{missing}");
            let denied = advice(location, Denied, "forbidden");
            assert!(denied.contains(credentials), "{denied}");
        }
        for (location, kind, cause) in [
            ("s3://bucket", NotFound, "the store answered NoSuchKey: x"),
            ("s3://bucket", Unavailable, "the store answered SlowDown: x"),
            ("/a/directory", Denied, "forbidden"),
        ] {
            assert_eq!(advice(location, kind, cause), "", "{cause}");
        }
    }
}
