use bytes::Bytes;

use ottla_protocol::DecodeError;
use ottla_protocol::coordinator_records::{
    GroupRecordKey, GroupRecordValue, OffsetCommitKey, OffsetCommitValue,
};

#[test]
fn keys_begin_with_their_type_and_values_with_their_version() {
    let key = GroupRecordKey::from(OffsetCommitKey {
        group: "g".into(),
        topic: "t".into(),
        partition: 3,
    });
    let bytes = key.encode().unwrap();
    assert_eq!(&bytes[..], b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03");
    assert_eq!(GroupRecordKey::decode(&bytes).unwrap(), key);

    let value = GroupRecordValue::from(OffsetCommitValue {
        offset: 9,
        ..Default::default()
    });
    let bytes = value.encode(3).unwrap();
    assert_eq!(&bytes[..2], b"\x00\x03");
    assert_eq!(
        GroupRecordValue::decode_versioned(1, &bytes).unwrap(),
        (value, 3)
    );
}

#[test]
fn unknown_types_are_kept_and_unknown_versions_named() {
    let key = Bytes::from_static(b"\x7f\x00abc");
    assert_eq!(GroupRecordKey::decode(&key).unwrap().encode().unwrap(), key);
    let value = Bytes::from_static(b"\x00\x09xyz");
    let kept = GroupRecordValue::decode(0x7f00, &value).unwrap();
    assert_eq!(kept.encode(0).unwrap(), value);
    assert_eq!(
        GroupRecordValue::decode(1, &value),
        Err(DecodeError::UnknownRecord {
            record_type: 1,
            version: 9
        })
    );
}
