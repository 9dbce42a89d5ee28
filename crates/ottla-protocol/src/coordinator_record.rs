//! The framing of coordinator records: a key starts with its record type, a value with its version,
//! both 16 bits.
//!
//! Records of unknown types are kept unchanged, so that they survive loading, expiry and compaction
//! byte for byte. Kafka's `CoordinatorRecordSerde` uses the same framing, but skips such records.

/// Generates the enums of keys and values from the table.
macro_rules! coordinator_records {
    ($keys:ident, $values:ident;
     $( $record_type:literal => $variant:ident($key:ident, $value:ident), )*) => {
        /// The key of a record of this coordinator.
        #[derive(Clone, Debug, PartialEq)]
        pub enum $keys {
            $( $variant($key), )*
            /// An unknown record type; all bytes of the key, including the type.
            Unknown { record_type: i16, bytes: bytes::Bytes },
        }

        impl $keys {
            /// The number of the record type.
            pub const fn record_type(&self) -> i16 {
                match self {
                    $( $keys::$variant(_) => $record_type, )*
                    $keys::Unknown { record_type, .. } => *record_type,
                }
            }

            /// Decodes the key of a record. Trailing bytes after a known key are an error, because
            /// they would be lost.
            pub fn decode(key: &bytes::Bytes) -> Result<$keys, crate::DecodeError> {
                let mut reader = crate::Reader::new(key.clone());
                let record_type = reader.i16()?;
                let decoded = match record_type {
                    $( $record_type => {
                        $keys::$variant(crate::Message::decode(&mut reader, 0)?)
                    } )*
                    _ => return Ok($keys::Unknown { record_type, bytes: key.clone() }),
                };
                reader.expect_end()?;
                Ok(decoded)
            }

            pub fn encode(&self) -> Result<bytes::Bytes, crate::EncodeError> {
                use crate::Message as _;
                let mut out = crate::Encoder::new();
                match self {
                    $keys::Unknown { bytes, .. } => return Ok(bytes.clone()),
                    $( $keys::$variant(key) => {
                        out.i16($record_type);
                        key.encode(&mut out, 0)?;
                    } )*
                }
                out.finish().try_into_bytes()
            }
        }

        $( impl From<$key> for $keys {
            fn from(key: $key) -> $keys {
                $keys::$variant(key)
            }
        } )*

        /// The value of a record of this coordinator. A tombstone has none.
        #[derive(Clone, Debug, PartialEq)]
        pub enum $values {
            $( $variant($value), )*
            /// An unknown record type; all bytes of the value, including the version.
            Unknown { record_type: i16, bytes: bytes::Bytes },
        }

        impl $values {
            /// The number of the record type.
            pub const fn record_type(&self) -> i16 {
                match self {
                    $( $values::$variant(_) => $record_type, )*
                    $values::Unknown { record_type, .. } => *record_type,
                }
            }

            /// Decodes the value of a record whose key has this type.
            pub fn decode(
                record_type: i16,
                value: &bytes::Bytes,
            ) -> Result<$values, crate::DecodeError> {
                Self::decode_versioned(record_type, value).map(|(value, _)| value)
            }

            /// Decodes the value of a record and returns its version, -1 for an unknown type. An
            /// unknown version is an error that names both.
            pub fn decode_versioned(
                record_type: i16,
                value: &bytes::Bytes,
            ) -> Result<($values, i16), crate::DecodeError> {
                let mut reader = crate::Reader::new(value.clone());
                let decoded = match record_type {
                    $( $record_type => {
                        let version = reader.i16()?;
                        if !$value::VERSIONS.contains(&version) {
                            return Err(crate::DecodeError::UnknownRecord {
                                record_type: record_type.into(),
                                version: version.into(),
                            });
                        }
                        let value = crate::Message::decode(&mut reader, version)?;
                        ($values::$variant(value), version)
                    } )*
                    _ => return Ok(($values::Unknown { record_type, bytes: value.clone() }, -1)),
                };
                reader.expect_end()?;
                Ok(decoded)
            }

            /// Encodes the value in this version; a value of unknown type is written unchanged.
            pub fn encode(&self, version: i16) -> Result<bytes::Bytes, crate::EncodeError> {
                use crate::Message as _;
                let mut out = crate::Encoder::new();
                out.i16(version);
                match self {
                    $values::Unknown { bytes, .. } => return Ok(bytes.clone()),
                    $( $values::$variant(value) => value.encode(&mut out, version)?, )*
                }
                out.finish().try_into_bytes()
            }
        }

        $( impl From<$value> for $values {
            fn from(value: $value) -> $values {
                $values::$variant(value)
            }
        } )*
    };
}
pub(crate) use coordinator_records;
