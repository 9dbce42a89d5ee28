//! The frame around a record of the metadata log and of the remote log metadata topic:
//! frame version, record type and version as unsigned varints, then the record.
//!
//! Kafka does the same in `AbstractApiMessageSerde`.

use crate::{DecodeError, EncodeError, Encoder, Reader};

const FRAME_VERSION: u32 = 1;

/// Decodes the frame: the record's type and version.
pub(crate) fn decode_frame(reader: &mut Reader) -> Result<(i32, i32), DecodeError> {
    let version = reader.unsigned_varint()?;
    if version != FRAME_VERSION {
        return Err(DecodeError::UnknownFrameVersion { version });
    }
    let number = |reader: &mut Reader| reader.unsigned_varint().map(|number| number as i32);
    Ok((number(reader)?, number(reader)?))
}

pub(crate) fn encode_frame(
    out: &mut Encoder,
    record_type: i16,
    version: i16,
    message: &'static str,
) -> Result<(), EncodeError> {
    if version < 0 {
        return Err(EncodeError::UnsupportedVersion { message, version });
    }
    out.unsigned_varint(FRAME_VERSION);
    out.unsigned_varint(record_type as u32);
    out.unsigned_varint(version as u32);
    Ok(())
}

/// Generates the enum of records from the table.
macro_rules! metadata_records {
    ($enum:ident; $( $record_type:literal => $variant:ident($record:ident), )*) => {
        /// Any of the records.
        #[derive(Clone, Debug, PartialEq)]
        pub enum $enum {
            $( $variant($record), )*
        }

        impl $enum {
            /// The number of the record type.
            pub const fn api_key(&self) -> i16 {
                match self { $( $enum::$variant(_) => $record_type, )* }
            }

            /// Kafka's name of the record.
            pub const fn name(&self) -> &'static str {
                match self { $( $enum::$variant(_) => $record::NAME, )* }
            }

            /// The highest version of this record.
            pub const fn highest_version(&self) -> i16 {
                match self { $( $enum::$variant(_) => *$record::VERSIONS.end(), )* }
            }

            /// Decodes a record value of the log.
            pub fn decode(value: &bytes::Bytes) -> Result<$enum, crate::DecodeError> {
                Self::decode_versioned(value).map(|(record, _)| record)
            }

            /// Decodes a record value of the log, and its version.
            pub fn decode_versioned(
                value: &bytes::Bytes,
            ) -> Result<($enum, i16), crate::DecodeError> {
                use crate::Message as _;
                // The image keeps names, and must not keep the batches that they came in.
                let mut reader = crate::Reader::new(value.clone()).copying();
                let (record_type, version) = crate::metadata_record::decode_frame(&mut reader)?;
                let unknown = crate::DecodeError::UnknownRecord { record_type, version };
                let Ok(version) = i16::try_from(version) else { return Err(unknown) };
                let record = match record_type {
                    $( $record_type if $record::VERSIONS.contains(&version) => {
                        $enum::$variant($record::decode(&mut reader, version)?)
                    } )*
                    _ => return Err(unknown),
                };
                reader.expect_end()?;
                Ok((record, version))
            }

            /// Encodes a record value for the log, in the highest version.
            pub fn encode(&self) -> Result<bytes::Bytes, crate::EncodeError> {
                self.encode_version(self.highest_version())
            }

            /// Encodes a record value for the log, in the version that the metadata version
            /// requires.
            pub fn encode_version(
                &self,
                version: i16,
            ) -> Result<bytes::Bytes, crate::EncodeError> {
                use crate::Message as _;
                let mut out = crate::Encoder::new();
                crate::metadata_record::encode_frame(
                    &mut out, self.api_key(), version, self.name(),
                )?;
                match self { $( $enum::$variant(record) => record.encode(&mut out, version)?, )* }
                out.finish().try_into_bytes()
            }
        }

        $( impl From<$record> for $enum {
            fn from(record: $record) -> $enum {
                $enum::$variant(record)
            }
        } )*
    };
}
pub(crate) use metadata_records;
