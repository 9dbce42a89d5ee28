//! Errors of the API, as `application/problem+json` (RFC 9457).

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ottla_client::ClientError;
use ottla_types::ErrorCode;
use serde::Serialize;

/// One error. `detail` names the thing, the value and the way out.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: String,
    status: u16,
    detail: String,
    /// Kafka's name of the error, if the cluster returned one.
    code: Option<&'static str>,
    /// The field of the request that is invalid.
    field: Option<&'static str>,
}

impl Problem {
    fn new(status: StatusCode, title: &str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank",
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            code: None,
            field: None,
        }
    }

    /// A field of the request has a value that is not accepted.
    pub(crate) fn invalid(field: &'static str, detail: impl Into<String>) -> Problem {
        let mut problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid value", detail);
        problem.field = Some(field);
        problem
    }

    /// The query has a parameter that the path does not have.
    pub(crate) fn unknown_parameter(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "Unknown parameter", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "Not found", detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "Not allowed", detail)
    }

    pub(crate) fn login_required() -> Problem {
        let detail = "this console needs a login; log in as a SASL user of the cluster";
        Problem::new(StatusCode::UNAUTHORIZED, "Log in first", detail)
    }

    pub(crate) fn login_refused(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, "Login refused", detail)
    }

    /// The target of the change is not, or no longer, in the expected state.
    pub(crate) fn conflict(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, "Not in this state", detail)
    }

    pub(crate) fn too_many(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "Too many at once", detail)
    }

    /// There is no memory for the request at the moment.
    pub(crate) fn busy(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Too much at once", detail)
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The console failed",
            detail,
        )
    }

    /// A server besides the cluster cannot be reached, or its response is unusable.
    pub(crate) fn unreachable(title: &str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_GATEWAY, title, detail)
    }

    pub(crate) fn timed_out(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "No answer in time", detail)
    }

    /// The same problem, of this thing.
    pub(crate) fn of(mut self, what: &str) -> Problem {
        self.detail = format!("{what}: {}", self.detail);
        self
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Problem {
        let (status, title) = status_of(&error);
        let mut problem = Problem::new(status, title, error.to_string());
        problem.code = error.code().map(|code| code.name());
        problem
    }
}

fn status_of(error: &ClientError) -> (StatusCode, &'static str) {
    use ErrorCode as Code;
    let Some(code) = error.code() else {
        return match error {
            ClientError::Config(_) | ClientError::Unsupported { .. } => {
                (StatusCode::UNPROCESSABLE_ENTITY, "Not possible here")
            }
            _ => (StatusCode::BAD_GATEWAY, "The cluster cannot be reached"),
        };
    };
    match code {
        Code::UnknownTopicOrPartition
        | Code::UnknownTopicId
        | Code::GroupIdNotFound
        | Code::TransactionalIdNotFound
        | Code::ResourceNotFound
        | Code::DelegationTokenNotFound
        | Code::BrokerNotAvailable => (StatusCode::NOT_FOUND, "Not found"),
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::DelegationTokenAuthorizationFailed
        | Code::DelegationTokenOwnerMismatch => (StatusCode::FORBIDDEN, "The cluster denies it"),
        Code::SaslAuthenticationFailed | Code::IllegalSaslState => {
            (StatusCode::UNAUTHORIZED, "Login refused")
        }
        Code::TopicAlreadyExists
        | Code::NonEmptyGroup
        | Code::GroupSubscribedToTopic
        | Code::ReassignmentInProgress
        | Code::NoReassignmentInProgress
        | Code::ElectionNotNeeded
        | Code::UnknownMemberId
        | Code::InvalidProducerEpoch
        | Code::ProducerFenced
        | Code::InvalidTxnState
        | Code::ConcurrentTransactions => (StatusCode::CONFLICT, "Not in this state"),
        code if code.is_retriable() => (StatusCode::BAD_GATEWAY, "The cluster is not ready"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "The cluster refuses it"),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status);
        let mut response = (
            status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            Json(&self),
        )
            .into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Problem {
        let mut problem = Problem::invalid("body", rejection.body_text());
        problem.status = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE.as_u16(),
            _ => problem.status,
        };
        problem
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Problem {
        Problem::invalid("query", plain(&rejection.body_text()))
    }
}

/// The name of the parameter and the error, without the libraries' wording.
fn plain(text: &str) -> String {
    let (_, text) = text.split_once("query string: ").unwrap_or(("", text));
    let words = [
        ("invalid digit found in string", "not a whole number"),
        (
            "cannot parse integer from empty string",
            "a number is missing",
        ),
        (
            "number too large to fit in target type",
            "the number is too large",
        ),
    ];
    let replace = |text: String, (theirs, ours): (&str, &str)| text.replace(theirs, ours);
    words.into_iter().fold(text.to_owned(), replace)
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Problem {
        Problem::not_found(rejection.body_text())
    }
}
