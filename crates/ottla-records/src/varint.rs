//! Zigzag varints of records: at most 5 bytes for 32 bits and 10 for 64, as in Kafka's `ByteUtils`.
//! Bits beyond the width are dropped, as there.

/// The maximum size of a 32-bit varint.
pub(crate) const MAX_VARINT: usize = 5;
/// The maximum size of a 64-bit varint.
pub(crate) const MAX_VARLONG: usize = 10;

/// Reads a varint from the front of `bytes`. Returns the value and the number of bytes read; `None`
/// if the bytes end within the varint or it is longer than 5 bytes.
#[inline(always)]
pub(crate) fn read_varint(bytes: &[u8]) -> Option<(i32, usize)> {
    // Nearly all varints have one or two bytes, so these are decoded without a loop.
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((zigzag_32(u32::from(first)), 1));
    }
    let second = *bytes.get(1)?;
    if second < 0x80 {
        return Some((
            zigzag_32(u32::from(first & 0x7f) | u32::from(second) << 7),
            2,
        ));
    }
    read_long_varint(bytes)
}

#[cold]
fn read_long_varint(bytes: &[u8]) -> Option<(i32, usize)> {
    let mut value = 0u32;
    for (index, &byte) in bytes.iter().take(MAX_VARINT).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((zigzag_32(value), index + 1));
        }
    }
    None
}

/// Reads a varint from the front of `bytes`. Returns the value and the number of bytes read; `None`
/// if the bytes end within the varint or it is longer than 10 bytes.
#[inline(always)]
pub(crate) fn read_varlong(bytes: &[u8]) -> Option<(i64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((zigzag_64(u64::from(first)), 1));
    }
    let mut value = u64::from(first & 0x7f);
    for (index, &byte) in bytes.iter().take(MAX_VARLONG).enumerate().skip(1) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((zigzag_64(value), index + 1));
        }
    }
    None
}

#[inline]
pub(crate) fn write_varint(out: &mut Vec<u8>, value: i32) {
    write_varlong(out, i64::from(value));
}

#[inline]
pub(crate) fn write_varlong(out: &mut Vec<u8>, value: i64) {
    let mut bytes = [0; MAX_VARLONG];
    let length = put_varlong(&mut bytes, 0, value);
    out.extend_from_slice(&bytes[..length]);
}

/// Writes a number to `out` at `at` and returns the position after it. Panics if there is not
/// enough space.
#[inline(always)]
pub(crate) fn put_varlong(out: &mut [u8], mut at: usize, value: i64) -> usize {
    let mut rest = (value << 1 ^ value >> 63) as u64;
    while rest >= 0x80 {
        out[at] = rest as u8 | 0x80;
        rest >>= 7;
        at += 1;
    }
    out[at] = rest as u8;
    at + 1
}

/// The encoded size for `write_varint`.
#[inline]
pub(crate) const fn size_of_varint(value: i32) -> usize {
    size_of_varlong(value as i64)
}

/// The encoded size for `write_varlong`.
#[inline]
pub(crate) const fn size_of_varlong(value: i64) -> usize {
    let zigzag = (value << 1 ^ value >> 63) as u64;
    let bits = 64 - (zigzag | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

const fn zigzag_32(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

const fn zigzag_64(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_values() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(read_varint(bytes), Some((value, bytes.len())));
            assert_eq!(size_of_varint(value), bytes.len());
        }
    }

    #[test]
    fn endless_and_cut_off_input_is_refused() {
        assert_eq!(read_varint(&[]), None);
        assert_eq!(read_varint(&[0x80]), None);
        assert_eq!(read_varint(&[0xff; 4]), None);
        assert_eq!(read_varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), None);
        assert_eq!(read_varlong(&[0xff; 9]), None);
        let mut eleven = [0x80; 11];
        eleven[10] = 0;
        assert_eq!(read_varlong(&eleven), None);
    }

    #[test]
    fn bits_beyond_the_width_are_dropped_as_in_java() {
        assert_eq!(
            read_varint(&[0xfe, 0xff, 0xff, 0xff, 0x7f]),
            Some((i32::MAX, 5))
        );
    }

    proptest! {
        #[test]
        fn varlongs_come_back(value: i64, tail: Vec<u8>) {
            let mut out = Vec::new();
            write_varlong(&mut out, value);
            let length = out.len();
            prop_assert_eq!(size_of_varlong(value), length);
            out.extend(tail);
            prop_assert_eq!(read_varlong(&out), Some((value, length)));
        }

        #[test]
        fn varints_come_back(value: i32) {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            prop_assert_eq!(read_varint(&out), Some((value, out.len())));
        }
    }
}
