use bytes::Bytes;
use ottla_protocol::{Encoder, RawTaggedField, Reader, UnknownTaggedFields};

fn section(bytes: &'static [u8]) -> Reader {
    Reader::new(Bytes::from_static(bytes))
}

fn field(tag: u32, data: &'static [u8]) -> RawTaggedField {
    RawTaggedField {
        tag,
        data: Bytes::from_static(data),
    }
}

#[test]
fn fields_are_equal_however_long_their_sizes_are_written() {
    let [short, long, other] = [
        &b"\x01\x02\x01a"[..],
        &b"\x01\x82\x00\x81\x00a"[..],
        &b"\x01\x02\x01b"[..],
    ]
    .map(|bytes| section(bytes).unknown_tagged_fields().unwrap());
    assert_eq!(short, long);
    assert_ne!(short, other);
    assert_ne!(short, UnknownTaggedFields::NONE);
    let mut encoder = Encoder::new();
    encoder.unknown_tagged_fields(&long).unwrap();
    let written = encoder.finish().into_bytes();
    assert_eq!(Reader::new(written).unknown_tagged_fields().unwrap(), long);
}

#[test]
fn a_struct_of_a_peer_has_at_most_ten_thousand_tagged_fields() {
    for (count, is_read) in [(10_000, true), (10_001, false)] {
        let mut encoder = Encoder::new();
        encoder.unsigned_varint(count);
        let mut bytes = encoder.finish().into_bytes().to_vec();
        for tag in 0..count {
            let mut encoder = Encoder::new();
            encoder.unsigned_varint(tag);
            encoder.unsigned_varint(0);
            bytes.extend_from_slice(&encoder.finish().into_bytes());
        }
        let read = Reader::untrusted(Bytes::from(bytes)).unknown_tagged_fields();
        assert_eq!(read.is_ok(), is_read, "{count}: {read:?}");
    }
}

#[test]
fn unknown_fields_are_kept_without_the_known_ones_between_them() {
    // Tags 1, 5, 6 and 9; 5 and 9 are known.
    let bytes = b"\x04\x01\x01a\x05\x00\x06\x02bc\x09\x00";
    let known = |_: &mut Reader, tag| Ok(tag == 5 || tag == 9);
    let unknown = section(bytes).tagged_fields(known).unwrap();
    let expected = [field(1, b"a"), field(6, b"bc")];
    assert_eq!(unknown.len(), 2);
    assert!(unknown.iter().eq(expected.iter().cloned()));
    assert_eq!(unknown, UnknownTaggedFields::from_iter(expected));

    let all = section(bytes).unknown_tagged_fields().unwrap();
    let tags: Vec<u32> = all.iter().map(|field| field.tag).collect();
    assert_eq!(tags, [1, 5, 6, 9]);
}

#[test]
fn many_unknown_fields_take_no_more_than_their_bytes() {
    const COUNT: usize = 100_000;
    let mut bytes = vec![0xa0, 0x8d, 0x06];
    bytes.extend([0x07, 0x00].repeat(COUNT));
    let mut reader = Reader::new(bytes.into());
    let mut reserved = None;
    let measured = allocation_counter::measure(|| {
        reserved = Some(reader.unknown_tagged_fields().unwrap());
    });
    assert_eq!(reserved.unwrap().len(), COUNT);
    assert!(measured.bytes_total < 200, "{} bytes", measured.bytes_total);
}

#[test]
fn none_is_a_pointer() {
    assert_eq!(size_of::<UnknownTaggedFields>(), size_of::<usize>());
}
