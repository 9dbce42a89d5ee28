//! Robustness against invalid bytes: every message and version, truncated, corrupted and random.
//!
//! For any input, decoding returns a value or an error; a decoded value can be encoded and decodes
//! to the same value. The fuzz targets in `fuzz/` extend these tests.

use bytes::Bytes;

use ottla_protocol::sample::{AnyMessage, Sampler, Style, all_messages, check_any_bytes};
use ottla_protocol::{DecodeError, EncodeError, Encoder, Reader};

fn with_every_message_and_version(mut check: impl FnMut(&AnyMessage, i16)) {
    let all = all_messages();
    assert!(all.len() > 250);
    for message in &all {
        for version in message.versions.clone() {
            check(message, version);
        }
    }
}

fn sample(message: &AnyMessage, version: i16, seed: u64, style: Style) -> (Bytes, String) {
    (message.sample)(Sampler::new(seed, style), version).expect("a sample can be written")
}

#[test]
fn written_messages_round_trip() {
    with_every_message_and_version(|message, version| {
        for style in [Style::Bare, Style::Full, Style::Mixed, Style::Extreme] {
            let (bytes, text) = sample(message, version, 1, style);
            let read = (message.read)(bytes.clone(), version).unwrap();
            assert_eq!(read.text, text);
            assert_eq!(read.remaining, 0);
            assert_eq!(read.written.unwrap(), bytes);
        }
    });
}

/// A message consumes all its bytes, so no proper prefix of it is a message.
#[test]
fn a_message_cut_short_is_an_error() {
    with_every_message_and_version(|message, version| {
        for style in [Style::Full, Style::Mixed] {
            let (bytes, _) = sample(message, version, 7, style);
            for length in (0..bytes.len()).step_by(bytes.len() / 200 + 1) {
                assert!((message.read)(bytes.slice(..length), version).is_err());
            }
        }
    });
}

#[test]
fn versions_that_are_not_known_are_refused() {
    with_every_message_and_version(|message, _| {
        let (first, last) = (*message.versions.start(), *message.versions.end());
        for version in [first - 1, last + 1, i16::MIN, i16::MAX] {
            assert!((message.read)(vec![0; 256].into(), version).is_err());
        }
    });
}

#[test]
fn bent_messages_end_in_a_value_or_an_error() {
    let (mut values, mut errors) = (0, 0);
    with_every_message_and_version(|message, version| {
        let (bytes, _) = sample(message, version, 3, Style::Full);
        for position in (0..bytes.len()).step_by(bytes.len() / 60 + 1) {
            for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let mut bent = bytes.to_vec();
                bent[position] = byte;
                if check_any_bytes(message, version, bent.into()) {
                    values += 1
                } else {
                    errors += 1
                }
            }
        }
    });
    // Both outcomes must be frequent, or the test would not be meaningful.
    assert!(
        values > 10_000 && errors > 10_000,
        "{values} values, {errors} errors"
    );
}

#[test]
fn made_up_bytes_end_in_a_value_or_an_error() {
    with_every_message_and_version(|message, version| {
        for fill in [0x00, 0x01, 0x02, 0x7f, 0x80, 0xff] {
            check_any_bytes(message, version, vec![fill; 300].into());
        }
    });
}

#[test]
fn counts_and_lengths_are_checked_before_anything_is_reserved() {
    let i32_max = Bytes::from_static(b"\x7f\xff\xff\xff\x00\x00");
    let varint_max = Bytes::from_static(b"\xff\xff\xff\xff\x07\x00");
    for (bytes, flexible) in [(i32_max, false), (varint_max, true)] {
        let reader = || Reader::new(bytes.clone());
        let too_many = |result: DecodeError| matches!(result, DecodeError::TooManyElements { .. });
        assert!(too_many(
            reader().array(flexible, 8, Reader::i64).unwrap_err()
        ));
        assert!(too_many(reader().strings(flexible).unwrap_err()));
        assert!(matches!(
            reader().bytes(flexible),
            Err(DecodeError::UnexpectedEnd { .. })
        ));
    }
    // One element more than the remaining bytes allow, and exactly as many.
    let three = Bytes::from_static(b"\x00\x00\x00\x03\x00\x01\x00\x02\x00");
    assert!(Reader::new(three).array(false, 2, Reader::i16).is_err());
    let two = Bytes::from_static(b"\x00\x00\x00\x02\x00\x01\x00\x02");
    assert_eq!(
        Reader::new(two).array(false, 2, Reader::i16).unwrap(),
        [1, 2]
    );
}

#[test]
fn strings_are_bounded_and_utf8() {
    let mut long = Encoder::new();
    long.unsigned_varint(32769);
    long.raw(&[b'a'; 40_000]);
    let long = long.finish().into_bytes();
    assert!(matches!(
        Reader::new(long).string(true),
        Err(DecodeError::InvalidLength { length: 32768, .. })
    ));
    let bad = Bytes::from_static(b"\x00\x02\xc3\x28");
    assert_eq!(
        Reader::new(bad).string(false),
        Err(DecodeError::NotUtf8 { position: 2 })
    );
    let null = Bytes::from_static(b"\xff\xff");
    assert_eq!(
        Reader::new(null.clone()).string(false),
        Err(DecodeError::UnexpectedNull { position: 2 })
    );
    assert_eq!(Reader::new(null).nullable_string(false), Ok(None));
    assert!(matches!(
        Encoder::new().string(true, &"a".repeat(32768)),
        Err(EncodeError::TooLong { length: 32768 })
    ));
}

#[test]
fn a_copying_reader_keeps_nothing_of_its_buffer() {
    let mut out = Encoder::new();
    out.string(true, "orders").unwrap();
    out.bytes(true, b"assignment").unwrap();
    let buffer = out.finish().into_bytes();
    let read = |mut reader: Reader| {
        let name = reader.string(true).unwrap();
        let bytes = reader.bytes(true).unwrap();
        (name, bytes)
    };
    let slices = read(Reader::new(buffer.clone()));
    let copies = read(Reader::new(buffer.clone()).copying());
    assert_eq!(slices, copies);
    assert!(!buffer.is_unique());
    drop(slices);
    assert!(buffer.is_unique());
    // Copies take memory in addition to the buffer.
    let mut reader = Reader::new(buffer).copying();
    reader.set_allowance(10);
    assert!(reader.string(true).is_ok());
    let refused = reader.bytes(true).unwrap_err();
    assert!(matches!(refused, DecodeError::AllowanceExceeded { .. }));
}

#[test]
fn variable_length_numbers_are_bounded() {
    for value in [0, 1, -1, 63, 64, -64, -65, i32::MAX, i32::MIN] {
        let mut out = Encoder::new();
        out.varint(value);
        out.varlong(i64::from(value) << 31);
        let mut reader = Reader::new(out.finish().into_bytes());
        assert_eq!(reader.varint(), Ok(value));
        assert_eq!(reader.varlong(), Ok(i64::from(value) << 31));
    }
    let read = |bytes: &'static [u8]| Reader::new(Bytes::from_static(bytes));
    assert_eq!(
        read(b"\xff\xff\xff\xff\x0f").unsigned_varint(),
        Ok(u32::MAX)
    );
    let too_long = Err(DecodeError::VarintTooLong { position: 0 });
    assert_eq!(read(b"\xff\xff\xff\xff\x1f").unsigned_varint(), too_long);
    assert_eq!(
        read(b"\x80\x80\x80\x80\x80\x00").unsigned_varint(),
        too_long
    );
    let too_long = Err(DecodeError::VarintTooLong { position: 0 });
    assert_eq!(
        read(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02").varlong(),
        too_long
    );
    assert_eq!(
        read(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").varlong(),
        Ok(i64::MIN)
    );
}
