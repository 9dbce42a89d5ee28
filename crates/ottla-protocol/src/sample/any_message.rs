//! Every message as a value, for tests that treat all messages alike.

use std::ops::RangeInclusive;

use bytes::Bytes;

use super::{Sample, Sampler, dump};
use crate::{DecodeError, EncodeError, Message, Reader};

/// One message of the schemas.
pub struct AnyMessage {
    /// Kafka's name.
    pub name: &'static str,
    /// The word at the start of its line in the schema file, with underscores.
    pub kind: &'static str,
    pub versions: RangeInclusive<i16>,
    /// Decodes a message at the start of some bytes.
    pub read: fn(Bytes, i16) -> Result<ReadMessage, DecodeError>,
    /// Only decodes; returns whether the bytes start with a message.
    pub decode: fn(Reader, i16) -> bool,
    /// Generates a sample: its bytes and its canonical text.
    pub sample: fn(Sampler, i16) -> Result<(Bytes, String), EncodeError>,
}

/// The request and the response of this API; `None` for an API that was removed.
pub fn request_and_response(api_key: crate::ApiKey) -> Option<(AnyMessage, AnyMessage)> {
    let name = api_key.name();
    let mut all = all_messages();
    let mut take = |kind: &str| {
        let found = all.iter().position(|message| {
            message.kind == kind
                && message
                    .name
                    .to_ascii_lowercase()
                    .strip_suffix(kind)
                    .is_some_and(|rest| rest == name.to_ascii_lowercase())
        });
        found.map(|index| all.swap_remove(index))
    };
    Some((take("request")?, take("response")?))
}

/// The outcome of decoding a message.
pub struct ReadMessage {
    pub text: String,
    /// The value, encoded again in the same version.
    pub written: Result<Bytes, EncodeError>,
    /// The number of bytes after the message.
    pub remaining: usize,
}

fn read<T: Message + Sample>(bytes: Bytes, version: i16) -> Result<ReadMessage, DecodeError> {
    let mut reader = Reader::new(bytes);
    let message = T::decode(&mut reader, version)?;
    Ok(ReadMessage {
        text: dump(&message),
        written: message.encode_to_bytes(version),
        remaining: reader.remaining(),
    })
}

fn decode<T: Message>(mut reader: Reader, version: i16) -> bool {
    T::decode(&mut reader, version).is_ok()
}

fn sample<T: Message + Sample>(
    mut sampler: Sampler,
    version: i16,
) -> Result<(Bytes, String), EncodeError> {
    let message = T::sample(&mut sampler, version);
    Ok((message.encode_to_bytes(version)?, dump(&message)))
}

macro_rules! any_messages {
    ($( $module:ident $kind:ident $name:ident; )*) => {
        vec![$( AnyMessage {
            name: stringify!($name),
            kind: stringify!($kind),
            versions: crate::$module::$name::VERSIONS,
            decode: decode::<crate::$module::$name>,
            read: read::<crate::$module::$name>,
            sample: sample::<crate::$module::$name>,
        }, )*]
    };
}

/// All messages of all schema files.
pub fn all_messages() -> Vec<AnyMessage> {
    for_each_message!(any_messages)
}

/// Decodes arbitrary bytes as a message; returns false if they are invalid. A decoded value must be
/// encodable and then decode to the same value.
///
/// # Panics
/// If it does not: tests and fuzz targets look for this.
pub fn check_any_bytes(message: &AnyMessage, version: i16, bytes: Bytes) -> bool {
    let Ok(first) = (message.read)(bytes, version) else {
        return false;
    };
    match first.written {
        Ok(written) => {
            let again =
                (message.read)(written.clone(), version).expect("a written message can be read");
            assert_eq!(
                (again.text, again.remaining),
                (first.text, 0),
                "{} {version}",
                message.name
            );
            assert_eq!(again.written, Ok(written), "{} {version}", message.name);
        }
        // Kafka reads tags in any order too, and refuses to write them out of order.
        Err(EncodeError::TagOrder { .. }) => {}
        Err(error) => panic!(
            "{} {version} was read, but not to be written: {error}",
            message.name
        ),
    }
    true
}
