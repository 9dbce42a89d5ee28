//! The modules that the build script generates from `schema/`, and the imports of their code.

/// Names that the generated code uses without a path.
pub(crate) mod prelude {
    pub(crate) use std::ops::RangeInclusive;

    pub(crate) use bytes::Bytes;
    pub(crate) use bytestring::ByteString;
    pub(crate) use ottla_types::{ErrorCode, Uuid};

    pub(crate) use crate::api_key::ApiKey;
    pub(crate) use crate::encoder::Encoder;
    pub(crate) use crate::error::{
        DecodeError, EncodeError, check_decode_version, check_encode_version, not_representable,
        required,
    };
    pub(crate) use crate::message::{ApiMessage, ApiRequest, ErrorResponse, Message};
    pub(crate) use crate::reader::Reader;
    pub(crate) use crate::records::Records;
    pub(crate) use crate::tagged::UnknownTaggedFields;
}

macro_rules! printed {
    ($(#[$doc:meta])* $module:ident, $file:literal, $samples:literal $(, $import:item)*) => {
        $(#[$doc])*
        #[allow(clippy::all, unused_parens, unused_variables, unused_mut)]
        #[rustfmt::skip]
        pub mod $module {
            $($import)*
            include!(concat!(env!("OUT_DIR"), "/", $file));

            #[cfg(feature = "samples")]
            mod samples {
                use super::*;
                use crate::sample::{DumpSample, Sample, Sampler, dump_struct};
                include!(concat!(env!("OUT_DIR"), "/", $samples));
            }
        }
    };
}

printed! {
    /// Requests, responses, headers and the consumer protocol: one module per message.
    messages, "messages.rs", "messages_samples.rs"
}
printed! {
    /// Records of the metadata log (`org.apache.kafka.common.metadata`).
    metadata_records, "metadata_records.rs", "metadata_records_samples.rs", use crate::metadata_record::metadata_records;
}
printed! {
    /// Records of the group coordinator in `__consumer_offsets`.
    group_records, "group_records.rs", "group_records_samples.rs", use crate::coordinator_record::coordinator_records;
}
printed! {
    /// Records of the transaction coordinator in `__transaction_state`.
    transaction_records, "transaction_records.rs", "transaction_records_samples.rs", use crate::coordinator_record::coordinator_records;
}
printed! {
    /// Records of the share coordinator in `__share_group_state`.
    share_records, "share_records.rs", "share_records_samples.rs", use crate::coordinator_record::coordinator_records;
}
printed! {
    /// Control records of the metadata log and the `quorum-state` file.
    raft_records, "raft_records.rs", "raft_records_samples.rs"
}
printed! {
    /// Transaction markers, producer snapshots and the remote log metadata topic.
    storage_records, "storage_records.rs", "storage_records_samples.rs", use crate::metadata_record::metadata_records;
}

#[cfg(feature = "samples")]
include!(concat!(env!("OUT_DIR"), "/list.rs"));
