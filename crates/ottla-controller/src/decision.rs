//! The shape of every decision.
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

/// One request may not write more records than this: they are committed together.
pub const MAX_RECORDS_PER_USER_OPERATION: usize = 10_000;

/// What a decision may look at.
pub struct ControllerContext<'a> {
    /// The cluster up to the last record that was decided, committed or not.
    pub image: &'a MetadataImage,
    /// This node's configuration, dynamic settings laid over those of the file.
    pub config: &'a BrokerConfig,
    /// The level of `kraft.version`, which stands in control records and so not in the image.
    pub kraft_version: i16,
    /// Whether raising `kraft.version` to a level would change anything in the quorum; the error is why it cannot be
    /// raised, in the words of the response.
    pub kraft_version_upgrade: &'a dyn Fn(i16) -> Result<bool, String>,
    /// Who asks, as `User:alice`; empty where the node asks for itself.
    pub client: ByteString,
    /// What the changes of topics count to, where the client has such a quota.
    pub mutation_quota: Option<Arc<dyn MutationQuota>>,
    /// A source of random numbers.
    pub random: &'a mut dyn FnMut() -> u64,
}

impl ControllerContext<'_> {
    pub(crate) fn metadata_version(&self) -> MetadataVersion {
        self.image.metadata_version()
    }

    /// The level in force of any feature; 0 of one that is not known.
    pub(crate) fn finalized_level(&self, feature: &str) -> i16 {
        match feature {
            MetadataVersion::FEATURE_NAME => self.metadata_version().feature_level(),
            name if name == KRAFT_VERSION.name => self.kraft_version,
            name => self.image.features.level(name),
        }
    }

    /// Counts the creation or deletion of partitions. Kafka: `ControllerRequestContext.applyPartitionChangeQuota`.
    pub(crate) fn count_mutations(&self, partitions: usize) -> Result<(), ApiError> {
        let Some(quota) = &self.mutation_quota else {
            return Ok(());
        };
        quota.record(partitions).map_err(|QuotaExceeded| {
            let message = "The throttling quota has been exceeded.";
            ApiError::new(ErrorCode::ThrottlingQuotaExceeded, message)
        })
    }

    /// Refuses to store what would only look as if it held: what the broker does not enforce yet, unless
    /// `ottla.accept.unserved` names it. A start refuses on the same grounds, so a broker could otherwise
    /// be brought to a state from which it does not start again.
    pub(crate) fn check_is_served(&self, name: &str, what: &str) -> Result<(), ApiError> {
        if self.config.accepts_unserved(name) {
            return Ok(());
        }
        let message = format!(
            "{what} not enforced yet, so nothing is stored; with ottla.accept.unserved={name} in the \
             broker's properties they are stored all the same"
        );
        Err(ApiError::new(ErrorCode::InvalidRequest, message))
    }

    /// A fresh id that is none of the reserved ones.
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

/// Records to append together, and the response for when they are committed.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision<R> {
    pub records: Vec<MetadataRecord>,
    /// The level to which the quorum is to raise `kraft.version`, before the records are appended.
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

/// An error code with the message that goes with it.
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

    /// A code that says it all.
    pub const fn bare(code: ErrorCode) -> ApiError {
        ApiError {
            code,
            message: None,
        }
    }

    /// The message as a response carries it.
    pub fn wire_message(&self) -> Option<ByteString> {
        self.message
            .as_ref()
            .map(|message| ByteString::from(message.to_string()))
    }
}
