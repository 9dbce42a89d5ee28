//! Decodes bytes, possibly malformed, in the way Java does.

/// `new String(bytes, UTF_8)`: malformed sequences become U+FFFD, in some cases a different number
/// of them than in Rust.
pub(super) fn decoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, malformed) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &malformed[malformed_length(malformed)..];
            }
        }
    }
}

/// The number of bytes that one U+FFFD replaces. `bytes` start with the malformed sequence. Source:
/// `String.decodeUTF8_UTF16`, `malformed3`, `malformed4`.
fn malformed_length(bytes: &[u8]) -> usize {
    let continues = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let second = bytes.get(1).copied().unwrap_or(0);
    match bytes[0] {
        first @ 0xe0..=0xef => {
            let may_follow = continues(1) && !(first == 0xe0 && second & 0xe0 == 0x80);
            match bytes.len() {
                1 => 1,
                _ if !may_follow => 1,
                2 => 2,
                // Three bytes that fit together are one half of a surrogate pair.
                _ if continues(2) => 3,
                _ => 2,
            }
        }
        first @ 0xf0..=0xf4 => {
            let may_follow = continues(1)
                && !(first == 0xf0 && second < 0x90)
                && !(first == 0xf4 && second & 0xf0 != 0x80);
            match bytes.len() {
                1 => 1,
                _ if !may_follow => 1,
                2 => 2,
                _ if !continues(2) => 2,
                _ => 3,
            }
        }
        _ => 1,
    }
}

/// Numbers, separated by commas.
pub(super) fn joined<'a>(numbers: impl IntoIterator<Item = &'a i32>) -> String {
    let texts: Vec<String> = numbers.into_iter().map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::decoded;

    /// The results of Java 17.
    #[test]
    fn malformed_text_is_replaced_as_in_java() {
        for (bytes, text) in [
            (&b"plain"[..], "plain"),
            (b"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "ä€😀"),
            (b"\x8b\xcf\xed\xa7T", "\u{fffd}\u{fffd}\u{fffd}T"),
            // A complete half of a surrogate pair.
            (b"\xed\xa7\x94T", "\u{fffd}T"),
            (b"\xe0\x80T", "\u{fffd}\u{fffd}T"),
            (b"\xe2\x82T", "\u{fffd}T"),
            (b"\xe2\x82", "\u{fffd}"),
            (b"\xf0\x9f\x98T", "\u{fffd}T"),
            (b"\xf0\x80\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xf5\x80\xffT", "\u{fffd}\u{fffd}\u{fffd}T"),
        ] {
            assert_eq!(decoded(bytes), text, "{bytes:x?}");
        }
    }
}
