//! The elements of SCRAM messages, parsed by the grammar in Kafka's patterns.
//!
//! Kafka: `ScramMessages`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Splits text before the first comma.
fn value(text: &str) -> (&str, &str) {
    match text.find(',') {
        Some(at) => (&text[..at], &text[at..]),
        None => (text, ""),
    }
}

fn is_value(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| (0x01..=0x7f).contains(&byte) && byte != b',')
}

pub(super) fn is_printable(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| (0x21..=0x7e).contains(&byte) && byte != b',')
}

/// A name in which commas and equals signs are encoded as `=2C` and `=3D`.
pub(crate) fn is_sasl_name(text: &str) -> bool {
    if !is_value(text) {
        return false;
    }
    let escapes = text.match_indices('=');
    escapes.into_iter().all(|(at, _)| {
        let escape = text.as_bytes().get(at..at + 3);
        escape == Some(b"=2C") || escape == Some(b"=3D")
    })
}

pub(super) fn encode_name(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

pub(super) fn decode_name(name: &str) -> String {
    name.replace("=2C", ",").replace("=3D", "=")
}

/// Splits off `name=value` at the start.
pub(super) fn attribute<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    Some(value(text.strip_prefix(name)?.strip_prefix('=')?))
}

/// Skips the optional reserved attribute `m=...,` at the start.
pub(super) fn skip_reserved(text: &str) -> Option<&str> {
    match attribute(text, "m") {
        Some((reserved, rest)) if is_value(reserved) => rest.strip_prefix(','),
        Some(_) => None,
        None => Some(text),
    }
}

/// The extensions at the end, each `,name=value`.
pub(super) fn extensions(mut text: &str) -> Option<Vec<(&str, &str)>> {
    let mut found = Vec::new();
    while !text.is_empty() {
        let (extension, rest) = value(text.strip_prefix(',')?);
        let (name, given) = extension.split_once('=')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
        if !is_name || !is_value(given) {
            return None;
        }
        found.push((name, given));
        text = rest;
    }
    Some(found)
}

pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
