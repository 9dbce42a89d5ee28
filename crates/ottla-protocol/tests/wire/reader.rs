use bytes::Bytes;
use ottla_protocol::{DecodeError, Reader};

const MAX_ARRAY_LENGTH: usize = 1_000_000;

#[test]
fn an_array_of_a_peer_has_at_most_a_million_elements() {
    let count = |count: usize| {
        let mut bytes = (count as i32).to_be_bytes().to_vec();
        bytes.resize(4 + count, 0);
        let read = |mut reader: Reader| reader.array(false, 1, |reader| reader.i8());
        let bytes = Bytes::from(bytes);
        (
            read(Reader::untrusted(bytes.clone())).map(|it| it.len()),
            read(Reader::new(bytes)).map(|it| it.len()),
        )
    };
    assert_eq!(count(MAX_ARRAY_LENGTH), (Ok(1_000_000), Ok(1_000_000)));
    let (untrusted, trusted) = count(MAX_ARRAY_LENGTH + 1);
    assert!(matches!(untrusted, Err(DecodeError::OverLimit { .. })));
    assert_eq!(trusted, Ok(1_000_001));
}
