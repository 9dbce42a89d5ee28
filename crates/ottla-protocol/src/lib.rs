//! Every request, response, metadata record and coordinator record of Kafka 4.4.0.
//!
//! The structs are generated at build time from `schema/`, Kafka's own schemas in a compact
//! notation (`docs/wire-types.md`). This crate owns the byte format of the Kafka protocol and its
//! version numbers. It does not know sockets, files (beyond carrying a [`FileRegion`]) or the
//! meaning of messages, except for fetch sessions ([`fetch_session`]).
//!
//! Invariants:
//! - Decoding arbitrary bytes returns a value or a [`DecodeError`]: no panic, no allocation beyond
//!   a small multiple of the input, no recursion deeper than the schema.
//! - Strings, bytes and records of a decoded message are slices of the input buffer.
//! - Encoding a value that the version cannot express fails, as in Kafka's generated classes,
//!   unless the schema marks the field ignorable.
//!
//! Kafka does the same in `org.apache.kafka.common.message` (generated) and `…common.protocol`.

mod api_key;
mod coordinator_record;
mod encoder;
mod error;
pub mod fetch_session;
#[cfg_attr(feature = "samples", macro_use)]
mod generated;
mod header;
mod message;
mod metadata_record;
mod nested;
mod reader;
mod records;
#[cfg(feature = "samples")]
pub mod sample;
mod tagged;

pub use api_key::ApiKey;
pub use encoder::{Chunk, Encoded, Encoder};
pub use error::{DecodeError, EncodeError};
pub use generated::{
    group_records, messages, metadata_records, raft_records, share_records, storage_records,
    transaction_records,
};
pub use header::{decode_api_versions_response, decode_request_header};
pub use message::{ApiMessage, ApiRequest, ErrorResponse, Message};
pub use reader::{Reader, fair_allowance};
pub use records::{FileRegion, Records, RegionFile};
pub use tagged::{RawTaggedField, UnknownTaggedFields};

/// The records of all coordinators: groups, transactions and share groups.
pub mod coordinator_records {
    pub use crate::group_records::*;
    pub use crate::share_records::*;
    pub use crate::transaction_records::*;
}
