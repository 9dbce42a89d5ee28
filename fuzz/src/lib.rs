//! What the fuzz targets share: an input names a message and a version in its first two bytes, and is
//! that message in the rest.

use std::sync::OnceLock;

use bytes::Bytes;
use ottla_protocol::sample::{AnyMessage, all_messages, check_any_bytes};

/// All messages, found once.
pub fn messages() -> &'static [AnyMessage] {
    static MESSAGES: OnceLock<Vec<AnyMessage>> = OnceLock::new();
    MESSAGES.get_or_init(all_messages)
}

/// Reads the input as one of the messages of these kinds.
pub fn check_message_of(kinds: &[&str], input: &[u8]) {
    let &[which, version, ref rest @ ..] = input else { return };
    let mut chosen = messages().iter().filter(|message| kinds.contains(&message.kind));
    let count = chosen.clone().count();
    let Some(message) = chosen.nth(usize::from(which) % count) else { return };
    let versions = message.versions.end() - message.versions.start() + 1;
    let version = message.versions.start() + i16::from(version) % versions;
    check_any_bytes(message, version, Bytes::copy_from_slice(rest));
}

/// The first two bytes of an input that is this message: the inverse of what [`check_message_of`] does.
pub fn input_prefix(kinds: &[&str], name: &str, version: i16) -> Option<[u8; 2]> {
    let mut chosen = messages().iter().filter(|message| kinds.contains(&message.kind));
    let which = chosen.clone().position(|message| message.name == name)?;
    let message = chosen.nth(which)?;
    Some([which as u8, (version - message.versions.start()) as u8])
}

pub const REQUESTS: &[&str] = &["request", "header"];
pub const RESPONSES: &[&str] = &["response", "data"];
