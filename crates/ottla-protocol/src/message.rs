//! Traits of all generated messages.

use std::ops::RangeInclusive;

use bytes::Bytes;
use ottla_types::ErrorCode;

use crate::{ApiKey, DecodeError, EncodeError, Encoder, Reader};

/// A message, or a nested struct, in any of its versions.
pub trait Message: Sized + Default {
    /// Decodes one value and leaves the reader after it; trailing bytes are up to the caller.
    fn decode(reader: &mut Reader, version: i16) -> Result<Self, DecodeError>;

    /// Appends the value. After an error the encoder holds a partial value and must be discarded.
    fn encode(&self, out: &mut Encoder, version: i16) -> Result<(), EncodeError>;

    /// Visits each error code, including NONE, that Kafka counts for a response of this version
    /// (`AbstractResponse.errorCounts`). Other messages have none.
    fn for_each_error_code(&self, _version: i16, _visit: &mut impl FnMut(i16)) {}

    /// The throttle time of a response in milliseconds; 0 for messages without the field.
    fn throttle_time_ms(&self) -> i32 {
        0
    }

    /// Sets the throttle time in milliseconds; does nothing for messages without the field.
    fn set_throttle_time_ms(&mut self, _time_ms: i32) {}

    /// Decodes a value that must fill all of `bytes`.
    fn decode_all(bytes: &Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes.clone());
        let message = Self::decode(&mut reader, version)?;
        reader.expect_end()?;
        Ok(message)
    }

    /// Encodes the value as one buffer, for records, tools and tests. Fails if it contains a file
    /// region.
    fn encode_to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        let mut encoder = Encoder::new();
        self.encode(&mut encoder, version)?;
        encoder.finish().try_into_bytes()
    }
}

/// A response, or a part of one, with an error code.
pub trait ErrorResponse: Default {
    fn set_error_code(&mut self, error: ErrorCode);

    /// The error code, and defaults for all other fields.
    fn of_error(error: ErrorCode) -> Self {
        let mut response = Self::default();
        response.set_error_code(error);
        response
    }
}

/// A request or a response.
pub trait ApiMessage: Message {
    const API_KEY: ApiKey;
    const VERSIONS: RangeInclusive<i16>;
    /// The first version with compact types and tagged fields.
    const FLEXIBLE_FROM: Option<i16>;
}

/// A request, with its response type.
pub trait ApiRequest: ApiMessage {
    type Response: ApiMessage;
}
