use bytes::Bytes;

use ottla_protocol::DecodeError;
use ottla_protocol::metadata_records::{FeatureLevelRecord, MetadataRecord, TopicRecord};

#[test]
fn the_frame_is_kafkas() {
    let record = MetadataRecord::from(FeatureLevelRecord {
        name: "kraft.version".into(),
        feature_level: 1,
        ..Default::default()
    });
    let bytes = record.encode().unwrap();
    assert_eq!(&bytes[..], b"\x01\x0c\x00\x0ekraft.version\x00\x01\x00");
    assert_eq!(MetadataRecord::decode(&bytes).unwrap(), record);
}

#[test]
fn unknown_types_and_versions_are_in_the_error() {
    let decode = |bytes: &'static [u8]| MetadataRecord::decode(&Bytes::from_static(bytes));
    let unknown = |record_type, version| {
        Err(DecodeError::UnknownRecord {
            record_type,
            version,
        })
    };
    assert_eq!(decode(b"\x01\x7f\x00"), unknown(127, 0));
    assert_eq!(decode(b"\x01\x02\x09"), unknown(2, 9));
    assert_eq!(decode(b"\x01\x02\x80\x80\x04"), unknown(2, 65536));
    assert_eq!(
        decode(b"\x00\x02\x00"),
        Err(DecodeError::UnknownFrameVersion { version: 0 })
    );
}

#[test]
fn trailing_bytes_are_refused() {
    let mut bytes = MetadataRecord::from(TopicRecord::default())
        .encode()
        .unwrap()
        .to_vec();
    bytes.push(0);
    assert!(matches!(
        MetadataRecord::decode(&bytes.into()),
        Err(DecodeError::TrailingBytes { remaining: 1, .. })
    ));
}
