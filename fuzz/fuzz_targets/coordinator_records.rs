//! Keys and values of the coordinators' records. The first byte is the length of the key.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ottla_protocol::EncodeError;
use ottla_protocol::coordinator_records::{
    GroupRecordKey, GroupRecordValue, ShareRecordKey, ShareRecordValue, TransactionRecordKey,
    TransactionRecordValue,
};

macro_rules! check {
    ($key:ident, $value:ident, $key_bytes:ident, $value_bytes:ident) => {
        if let Ok(key) = $key::decode(&$key_bytes) {
            let written = key.encode().expect("a key that was read");
            assert_eq!($key::decode(&written).as_ref(), Ok(&key));
            let record_type = key.record_type();
            if let Ok((value, version)) = $value::decode_versioned(record_type, &$value_bytes) {
                match value.encode(version) {
                    Ok(written) => {
                        let again = $value::decode_versioned(record_type, &written);
                        assert_eq!(again, Ok((value, version)));
                    }
                    Err(error) => assert!(matches!(error, EncodeError::TagOrder { .. }), "{error}"),
                }
            }
        }
    };
}

fuzz_target!(|input: &[u8]| {
    let Some((length, rest)) = input.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(*length).min(rest.len()));
    let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    check!(GroupRecordKey, GroupRecordValue, key, value);
    check!(TransactionRecordKey, TransactionRecordValue, key, value);
    check!(ShareRecordKey, ShareRecordValue, key, value);
});
