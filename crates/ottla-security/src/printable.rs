//! Text that a client chose, made safe to print.

use std::borrow::Cow;

use ottla_types::shell_word;

/// Escapes control characters and line separators: a client chooses its name, and must not be able
/// to forge lines.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(ends_line) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match ends_line(char) {
            true => escaped.extend(char.escape_default()),
            false => escaped.push(char),
        }
    }
    Cow::Owned(escaped)
}

/// Quotes text as one word of a shell command, without its control characters and line separators.
pub(crate) fn quoted(text: &str) -> String {
    let shown: String = text.chars().filter(|char| !ends_line(*char)).collect();
    shell_word(&shown)
}

fn ends_line(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')
}
