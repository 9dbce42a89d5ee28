//! Errors of decoding and encoding.

use std::ops::RangeInclusive;

use thiserror::Error;

/// The bytes are not a valid message. Positions count from the start of the reader's buffer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("{needed} more bytes expected at {position}, {remaining} remain")]
    UnexpectedEnd {
        position: usize,
        needed: usize,
        remaining: usize,
    },
    #[error("a length of {length} at {position} is not possible")]
    InvalidLength { position: usize, length: i64 },
    #[error("{count} elements at {position} do not fit into the {remaining} bytes that remain")]
    TooManyElements {
        position: usize,
        count: u64,
        remaining: usize,
    },
    #[error("{count} elements at {position} are more than {allowed}, which a message may have")]
    OverLimit {
        position: usize,
        count: u64,
        allowed: usize,
    },
    #[error(
        "the element at {position} takes {needed} more bytes of memory, and the whole message may take {allowance}"
    )]
    AllowanceExceeded {
        position: usize,
        needed: usize,
        allowance: usize,
    },
    #[error("null at {position}, where the version does not allow null")]
    UnexpectedNull { position: usize },
    #[error("the string at {position} is not UTF-8")]
    NotUtf8 { position: usize },
    #[error("the variable-length number at {position} is too long")]
    VarintTooLong { position: usize },
    #[error("tagged field {tag} at {position} does not end where its size says")]
    InvalidTaggedField { position: usize, tag: u32 },
    #[error("tagged field {tag} at {position} does not exist in version {version}")]
    TagNotInVersion {
        position: usize,
        tag: u32,
        version: i16,
    },
    #[error("{remaining} bytes follow the message that ends at {position}")]
    TrailingBytes { position: usize, remaining: usize },
    #[error("version {version} of {message} is not known")]
    UnsupportedVersion { message: &'static str, version: i16 },
    #[error("API {api_key} version {version} is not known")]
    UnknownApi { api_key: i16, version: i16 },
    #[error("record type {record_type} version {version} is not known")]
    UnknownRecord { record_type: i32, version: i32 },
    #[error("metadata record frame version {version} is not known")]
    UnknownFrameVersion { version: u32 },
}

/// The version cannot express a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    #[error("version {version} of {message} is not known")]
    UnsupportedVersion { message: &'static str, version: i16 },
    #[error("{field} is set, which version {version} cannot say")]
    NotRepresentable { field: &'static str, version: i16 },
    #[error("{field} is null, which version {version} cannot say")]
    NullNotAllowed { field: &'static str, version: i16 },
    #[error("{length} bytes or elements are more than the protocol can say")]
    TooLong { length: usize },
    #[error("tagged field {tag} is out of order")]
    TagOrder { tag: u32 },
    #[error("a file region cannot become one buffer")]
    FileRegion,
}

#[inline]
pub(crate) fn check_decode_version(
    message: &'static str,
    versions: &RangeInclusive<i16>,
    version: i16,
) -> Result<(), DecodeError> {
    if versions.contains(&version) {
        Ok(())
    } else {
        Err(DecodeError::UnsupportedVersion { message, version })
    }
}

#[inline]
pub(crate) fn check_encode_version(
    message: &'static str,
    versions: &RangeInclusive<i16>,
    version: i16,
) -> Result<(), EncodeError> {
    if versions.contains(&version) {
        Ok(())
    } else {
        Err(EncodeError::UnsupportedVersion { message, version })
    }
}

#[cold]
pub(crate) fn not_representable(field: &'static str, version: i16) -> EncodeError {
    EncodeError::NotRepresentable { field, version }
}

/// Unwraps a field that is nullable in other versions, but not in this one.
pub(crate) fn required<'a, T>(
    value: &'a Option<T>,
    field: &'static str,
    version: i16,
) -> Result<&'a T, EncodeError> {
    value
        .as_ref()
        .ok_or(EncodeError::NullNotAllowed { field, version })
}
