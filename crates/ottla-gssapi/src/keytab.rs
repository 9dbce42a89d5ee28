//! The principals that a keytab has keys of, for messages.
//!
//! The format is MIT's, version 2: `05 02`, and then entries with their length before them. A
//! negative length is the room of an entry that was deleted. An entry begins with the number of the
//! name's parts, the realm and the parts, each with its length before it.

use std::collections::BTreeSet;

const MAGIC: [u8; 2] = [5, 2];

/// Each principal once, in the order of their names. Ends where the bytes are no keytab.
pub(crate) fn principals(bytes: &[u8]) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut left = bytes.strip_prefix(&MAGIC).unwrap_or_default();
    while let Some((length, after)) = left.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        let Some((entry, after)) = after.split_at_checked(length.unsigned_abs() as usize) else {
            break;
        };
        if length > 0 {
            names.extend(principal(entry));
        }
        left = after;
    }
    names.into_iter().collect()
}

fn principal(entry: &[u8]) -> Option<String> {
    let mut left = entry;
    let parts = u16::from_be_bytes(*left.split_off(..2)?.first_chunk::<2>()?);
    let mut text = || -> Option<String> {
        let length = u16::from_be_bytes(*left.split_off(..2)?.first_chunk::<2>()?);
        let text = left.split_off(..usize::from(length))?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let realm = text()?;
    let parts = (0..parts).map(|_| text()).collect::<Option<Vec<_>>>()?;
    Some(format!("{}@{realm}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(parts: &[&str], realm: &str) -> Vec<u8> {
        let text = |text: &str| {
            let length = (text.len() as u16).to_be_bytes();
            [&length[..], text.as_bytes()].concat()
        };
        let mut entry = (parts.len() as u16).to_be_bytes().to_vec();
        entry.extend(text(realm));
        entry.extend(parts.iter().flat_map(|part| text(part)));
        // The type of the name, a time, a version and a key.
        entry.extend([0, 0, 0, 1, 0, 0, 0, 9, 3, 0, 18, 0, 2, 7, 7]);
        entry
    }

    fn with_length(length: i32, entry: &[u8]) -> Vec<u8> {
        [&length.to_be_bytes()[..], entry].concat()
    }

    #[test]
    fn each_name_is_listed_once_and_deleted_ones_are_not() {
        let broker = entry(&["kafka", "broker.example.com"], "EXAMPLE.COM");
        let client = entry(&["alice"], "EXAMPLE.COM");
        let length = |entry: &[u8]| entry.len() as i32;
        let keytab = [
            MAGIC.to_vec(),
            with_length(length(&broker), &broker),
            with_length(-8, &[0; 8]),
            with_length(length(&client), &client),
            with_length(length(&broker), &broker),
        ];
        let names = ["alice@EXAMPLE.COM", "kafka/broker.example.com@EXAMPLE.COM"];
        assert_eq!(principals(&keytab.concat()), names);
    }

    #[test]
    fn bytes_that_are_no_keytab_have_no_names() {
        let broker = entry(&["kafka", "b"], "X");
        let cut = [MAGIC.to_vec(), with_length(900, &broker)].concat();
        let wrong = [MAGIC.to_vec(), with_length(2, &[0, 9])].concat();
        for bytes in [
            &b""[..],
            &b"\x05"[..],
            &b"\x05\x01\x00"[..],
            &cut[..],
            &wrong[..],
        ] {
            assert_eq!(principals(bytes), Vec::<String>::new(), "{bytes:?}");
        }
    }
}
