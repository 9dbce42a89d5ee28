//! The errors of a client.
//!
//! Every message names the address or the resource concerned and, if it is known, the way out.

use std::time::Duration;

use ottla_protocol::{ApiKey, DecodeError, EncodeError};
use ottla_records::BatchError;
use ottla_types::ErrorCode;

/// A failed operation. Cheap to clone, because one failed request can fail many records.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::{ClientError, ErrorCode};
///
/// match admin.delete_topic("orders").await {
///     Ok(()) => println!("deleted"),
///     Err(ClientError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }) => {
///         println!("there is no such topic");
///     }
///     Err(error) if error.is_retriable() => println!("try again later: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration is incomplete, or contains something that this client does not support.
    #[error("{0}")]
    Config(String),
    #[error("cannot connect to {address}: {reason}{}", what_to_check(reason))]
    Connect { address: String, reason: String },
    /// The endpoint of OAuth tokens was not reached, or is overloaded.
    #[error("{0}")]
    NoToken(String),
    #[error("the connection to {address} was closed: {reason}")]
    Closed { address: String, reason: String },
    #[error("{address} did not answer {what} within {} ms; it may be overloaded or stopped", after.as_millis())]
    TimedOut {
        address: String,
        what: String,
        after: Duration,
    },
    /// The timeout of the whole operation, including retries, is over.
    #[error("{what} did not succeed within {} ms; last failure: {last}", after.as_millis())]
    GaveUp {
        what: String,
        after: Duration,
        last: Box<ClientError>,
    },
    /// A broker that answers other requests did not answer one that it passes to the active controller.
    #[error(
        "{address} answers, but did not answer {what} within {} ms; it passes this request to the active controller, \
         and the metadata quorum seems to have none; check that most controllers run (ottla metadata-quorum \
         --bootstrap-controller HOST:PORT describe --status)",
        after.as_millis()
    )]
    NoController {
        address: String,
        what: String,
        after: Duration,
    },
    #[error("{}", describe_unsupported(address, *api, served, spoken, *is_controller))]
    Unsupported {
        address: String,
        api: ApiKey,
        served: String,
        spoken: String,
        /// Whether the node is a controller, and only brokers serve this API.
        is_controller: bool,
    },
    #[error("{address} sent {what} that cannot be read: {reason}")]
    Unreadable {
        address: String,
        what: String,
        reason: String,
    },
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
    /// The cluster returned an error.
    #[error("{what}: {}", describe_code(*code, message.as_deref()))]
    Broker {
        what: String,
        code: ErrorCode,
        message: Option<String>,
    },
    #[error("records of {partition} cannot be read: {error}")]
    Records {
        partition: String,
        error: BatchError,
    },
    #[error("the consumer was woken up while it waited")]
    WokenUp,
    #[error("the client is closed")]
    ClientClosed,
}

fn describe_code(code: ErrorCode, message: Option<&str>) -> String {
    match message {
        Some(message) if !message.is_empty() => format!("{message} ({code})"),
        _ => format!("{} ({code})", code.message()),
    }
}

fn describe_unsupported(
    address: &str,
    api: ApiKey,
    served: &str,
    spoken: &str,
    is_controller: bool,
) -> String {
    match is_controller {
        true => format!(
            "{address} is a listener of a controller, which does not serve {api}; give a listener of a broker: one of \
             listeners in its server.properties that controller.listener.names does not name"
        ),
        false => format!(
            "{address} does not serve {api} in a version that this client speaks (it serves {served}, this client \
             speaks {spoken})"
        ),
    }
}

/// How the reason begins if a broker was there, but its certificate was not accepted. Such a reason says what to change.
pub(crate) const CERTIFICATE_REFUSED: &str = "TLS: the broker's certificate is not accepted: ";

fn what_to_check(reason: &str) -> &'static str {
    match reason.starts_with(CERTIFICATE_REFUSED) {
        true => "",
        false => "; check the address and that a broker runs there",
    }
}

impl ClientError {
    /// The error for an error code of the cluster.
    ///
    /// ```
    /// use ottla_client::{ClientError, ErrorCode};
    ///
    /// let error = ClientError::broker("topic orders", 3, Some("it is gone"));
    /// assert_eq!(error.code(), Some(ErrorCode::UnknownTopicOrPartition));
    /// assert!(error.to_string().starts_with("topic orders: it is gone"));
    /// ```
    pub fn broker(
        what: impl Into<String>,
        code: i16,
        message: Option<impl AsRef<str>>,
    ) -> ClientError {
        ClientError::Broker {
            what: what.into(),
            code: ErrorCode::from_code(code),
            message: message.map(|message| message.as_ref().to_owned()),
        }
    }

    /// `Ok` for code 0, otherwise the error.
    ///
    /// ```
    /// use ottla_client::ClientError;
    ///
    /// assert!(ClientError::check("topic orders", 0, None::<&str>).is_ok());
    /// assert!(ClientError::check("topic orders", 3, None::<&str>).is_err());
    /// ```
    pub fn check(
        what: impl Into<String>,
        code: i16,
        message: Option<impl AsRef<str>>,
    ) -> Result<(), ClientError> {
        if code == 0 {
            Ok(())
        } else {
            Err(ClientError::broker(what, code, message))
        }
    }

    /// As [`ClientError::check`], without a message.
    pub(crate) fn check_code(what: impl Into<String>, code: i16) -> Result<(), ClientError> {
        ClientError::check(what, code, None::<&str>)
    }

    /// A response lacks a requested item.
    pub(crate) fn no_answer(what: impl Into<String>) -> ClientError {
        ClientError::broker(what, -1, Some("there was no answer"))
    }

    pub(crate) fn unreadable(address: &str, what: &str, error: DecodeError) -> ClientError {
        ClientError::Unreadable {
            address: address.to_owned(),
            what: what.to_owned(),
            reason: error.to_string(),
        }
    }

    /// Whether a retry may succeed.
    ///
    /// ```
    /// use ottla_client::ClientError;
    ///
    /// assert!(ClientError::broker("topic orders", 5, None::<&str>).is_retriable());
    /// assert!(!ClientError::Config("a typo".to_owned()).is_retriable());
    /// ```
    pub fn is_retriable(&self) -> bool {
        match self {
            ClientError::Connect { .. }
            | ClientError::NoToken(_)
            | ClientError::Closed { .. }
            | ClientError::TimedOut { .. } => true,
            ClientError::Broker { code, .. } => code.is_retriable(),
            _ => false,
        }
    }

    /// The error code, if the cluster returned one.
    ///
    /// ```
    /// use ottla_client::{ClientError, ErrorCode};
    ///
    /// let error = ClientError::broker("topic orders", 36, None::<&str>);
    /// assert_eq!(error.code(), Some(ErrorCode::TopicAlreadyExists));
    /// assert_eq!(ClientError::WokenUp.code(), None);
    /// ```
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Broker { code, .. } => Some(*code),
            ClientError::GaveUp { last, .. } => last.code(),
            _ => None,
        }
    }

    /// The message of Kafka's exception, without the context of the error. A message of this client
    /// that begins with `it` is about the context, and names it.
    ///
    /// ```
    /// use ottla_client::ClientError;
    ///
    /// let error = ClientError::broker("topic orders", 36, Some("Topic 'orders' already exists."));
    /// assert_eq!(error.broker_message(), "Topic 'orders' already exists.");
    /// ```
    pub fn broker_message(&self) -> String {
        match self {
            ClientError::Broker {
                what,
                message: Some(message),
                ..
            } if !message.is_empty() => match message.strip_prefix("it ") {
                Some(rest) => format!("{what} {rest}"),
                None => message.clone(),
            },
            ClientError::Broker { code, .. } => code.message().to_owned(),
            ClientError::GaveUp { last, .. } if last.code().is_some() => last.broker_message(),
            other => other.to_string(),
        }
    }
}

impl From<EncodeError> for ClientError {
    fn from(error: EncodeError) -> Self {
        ClientError::Unsendable(error.to_string())
    }
}
