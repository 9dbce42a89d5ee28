//! Words of commands in messages, which people copy into a shell.

/// The word as a shell reads it: in quotes only if it needs them.
pub fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=@%+".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn only_words_that_a_shell_would_change_are_quoted() {
        for plain in ["/srv/a-b_c.properties", "a:9092,b:9092", "num.partitions=6"] {
            assert_eq!(shell_word(plain), plain);
        }
        assert_eq!(shell_word("/my files/a"), "'/my files/a'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("*"), "'*'");
        assert_eq!(shell_word(""), "''");
    }
}
