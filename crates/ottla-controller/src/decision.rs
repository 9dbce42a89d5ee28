//! The common types of all decisions.
//!
//! In Kafka: `ControllerResult`, `ApiError`.

use std::borrow::Cow;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_metadata::feature::KRAFT_VERSION;
use ottla_metadata::{MetadataImage, MetadataVersion};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_security::quota::{MutationQuota, QuotaExceeded};
use ottla_types::ErrorCode;

/// The maximum number of records per request, which are committed together.
pub const MAX_RECORDS_PER_USER_OPERATION: usize = 10_000;

/// The inputs of a decision.
pub struct ControllerContext<'a> {
    /// The cluster as of the last decided record, committed or not.
    pub image: &'a MetadataImage,
    /// This node's configuration with its dynamic settings.
    pub config: &'a BrokerConfig,
    /// The level of `kraft.version`. It is in control records and therefore not in the image.
    pub kraft_version: i16,
    /// Whether raising `kraft.version` to a level would change anything in the quorum. The error is
    /// the response's message that it cannot be raised.
    pub kraft_version_upgrade: &'a dyn Fn(i16) -> Result<bool, String>,
    /// The principal of the client, such as `User:alice`; empty for the node's own requests.
    pub client: ByteString,
    /// The controller mutation quota of the client, if there is one.
    pub mutation_quota: Option<Arc<dyn MutationQuota>>,
    /// A source of random numbers.
    pub random: &'a mut dyn FnMut() -> u64,
}

impl ControllerContext<'_> {
    pub(crate) fn metadata_version(&self) -> MetadataVersion {
        self.image.metadata_version()
    }

    /// The finalized level of a feature; 0 if it is unknown.
    pub(crate) fn finalized_level(&self, feature: &str) -> i16 {
        match feature {
            MetadataVersion::FEATURE_NAME => self.metadata_version().feature_level(),
            name if name == KRAFT_VERSION.name => self.kraft_version,
            name => self.image.features.level(name),
        }
    }

    /// Counts created or deleted partitions toward the quota. Kafka:
    /// `ControllerRequestContext.applyPartitionChangeQuota`.
    pub(crate) fn count_mutations(&self, partitions: usize) -> Result<(), ApiError> {
        let Some(quota) = &self.mutation_quota else {
            return Ok(());
        };
        quota.record(partitions).map_err(|QuotaExceeded| {
            let message = "The throttling quota has been exceeded.";
            ApiError::new(ErrorCode::ThrottlingQuotaExceeded, message)
        })
    }

    /// A random id that is not reserved.
    pub(crate) fn random_uuid(&mut self) -> ottla_types::Uuid {
        loop {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&(self.random)().to_be_bytes());
            bytes[8..].copy_from_slice(&(self.random)().to_be_bytes());
            if let Some(id) = ottla_types::Uuid::from_random(bytes) {
                return id;
            }
        }
    }
}

/// The records to append as one batch, and the response to send when they are committed.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision<R> {
    pub records: Vec<MetadataRecord>,
    /// The level to which the quorum raises `kraft.version` before the records are appended.
    pub kraft_version: Option<i16>,
    pub response: R,
}

impl<R> Decision<R> {
    pub fn new(records: Vec<MetadataRecord>, response: R) -> Decision<R> {
        Decision {
            records,
            kraft_version: None,
            response,
        }
    }

    /// A decision that changes nothing.
    pub fn unchanged(response: R) -> Decision<R> {
        Decision::new(Vec::new(), response)
    }
}

/// An error code and its message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiError {
    pub code: ErrorCode,
    pub message: Option<Cow<'static, str>>,
}

impl ApiError {
    pub const NONE: ApiError = ApiError {
        code: ErrorCode::None,
        message: None,
    };

    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError {
            code,
            message: Some(message.into()),
        }
    }

    /// An error code without a message.
    pub const fn bare(code: ErrorCode) -> ApiError {
        ApiError {
            code,
            message: None,
        }
    }

    /// The message for the response.
    pub fn wire_message(&self) -> Option<ByteString> {
        self.message
            .as_ref()
            .map(|message| ByteString::from(message.to_string()))
    }
}
