//! What every generated message can do.

use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::{ApiKey, DecodeError, EncodeError, Encoder, Reader};

/// A message, or a struct inside one, at any of its versions.
pub trait Message: Sized + Default {
    /// Reads one value and leaves the reader after it; what follows is up to the caller.
    fn decode(reader: &mut Reader, version: i16) -> Result<Self, DecodeError>;

    /// Appends the value. After an error the encoder holds a part of it and is of no further use.
    fn encode(&self, out: &mut Encoder, version: i16) -> Result<(), EncodeError>;

    /// Visits each error code of a response in that version that Kafka counts
    /// (`AbstractResponse.errorCounts`), including NONE. Other messages have none.
    fn for_each_error_code(&self, _version: i16, _visit: &mut impl FnMut(i16)) {}

    /// How long a response says that the client is throttled; 0 of a message that has no field for it.
    fn throttle_time_ms(&self) -> i32 {
        0
    }

    /// Does nothing to a message that has no field for it.
    fn set_throttle_time_ms(&mut self, _time_ms: i32) {}

    /// Reads a value that fills all of `bytes`.
    fn decode_all(bytes: &Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes.clone());
        let message = Self::decode(&mut reader, version)?;
        reader.expect_end()?;
        Ok(message)
    }

    /// The value as one buffer. File regions cannot be in it: for records, tools and tests.
    fn encode_to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        let mut encoder = Encoder::new();
        self.encode(&mut encoder, version)?;
        encoder.finish().try_into_bytes()
    }
}

/// A request or a response.
pub trait ApiMessage: Message {
    const API_KEY: ApiKey;
    const VERSIONS: RangeInclusive<i16>;
    /// The first version with compact types and tagged fields.
    const FLEXIBLE_FROM: Option<i16>;
}

/// A request, which knows its response.
pub trait ApiRequest: ApiMessage {
    type Response: ApiMessage;
}
