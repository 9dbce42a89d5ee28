//! The value of a record of the metadata log or of the remote log metadata topic, frame and all.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ottla_protocol::EncodeError;
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_protocol::storage_records::RemoteLogRecord;

fuzz_target!(|input: &[u8]| {
    let value = Bytes::copy_from_slice(input);
    if let Ok((record, version)) = MetadataRecord::decode_versioned(&value) {
        match record.encode_version(version) {
            // The bytes, and not the values: a quota may be no number, which is not equal to itself.
            Ok(written) => {
                let (again, version) = MetadataRecord::decode_versioned(&written).expect("what was written reads");
                assert_eq!(again.encode_version(version), Ok(written));
            }
            Err(error) => assert!(matches!(error, EncodeError::TagOrder { .. }), "{error}"),
        }
    }
    if let Ok((record, version)) = RemoteLogRecord::decode_versioned(&value) {
        match record.encode_version(version) {
            Ok(written) => {
                let (again, version) = RemoteLogRecord::decode_versioned(&written).expect("what was written reads");
                assert_eq!(again.encode_version(version), Ok(written));
            }
            Err(error) => assert!(matches!(error, EncodeError::TagOrder { .. }), "{error}"),
        }
    }
});
