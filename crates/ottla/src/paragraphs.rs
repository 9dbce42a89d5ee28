//! Text for people, wrapped at 80 columns.

use std::fmt::Write as _;

/// The width at which lines are wrapped.
pub const WIDTH: usize = 80;

/// Appends wrapped text. Lines of it that are indented by four spaces are quotations, such as an
/// entry with a caret below it, and are not wrapped.
pub fn wrap(text: &mut String, first: &str, others: &str, words: &str) {
    for (index, line) in words.split('\n').enumerate() {
        let first = if index == 0 { first } else { others };
        if line.starts_with("    ") {
            let _ = writeln!(text, "{others}{line}");
        } else {
            wrap_line(text, first, others, line.trim_start())
        }
    }
}

fn wrap_line(text: &mut String, first: &str, others: &str, words: &str) {
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in words.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{line}");
            others.clone_into(&mut line);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::{WIDTH, wrap};

    #[test]
    fn further_lines_have_their_own_indent() {
        let mut text = String::new();
        wrap(&mut text, "  - ", "    ", "word ".repeat(40).trim());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("  - word") && lines[1].starts_with("    word"));
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
    }
}
