//! The input files of checks.

use std::path::Path;

/// A file of the repository, with its path relative to the root.
#[derive(Debug, Clone)]
pub struct SourceFile {
    pub path: String,
    pub text: String,
}

/// Whether it is a Rust source file.
pub(super) fn is_rust(path: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|extension| extension == "rs")
}

/// Whether the whole file is test code, by its folder and name.
pub(super) fn is_test_file(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "benches" || part == "fuzz")
        || path.ends_with("tests.rs")
}

/// A file's lines before its tests, which are at the end.
pub(super) fn without_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .take_while(|(_, line)| {
            !line.starts_with("#[cfg(test)]") && !line.starts_with("#[cfg(all(test")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_a_file_are_separated_from_its_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(without_tests(text).count(), 1);
        assert!(is_test_file("crates/x/src/a/tests.rs") && is_test_file("crates/x/tests/a.rs"));
        assert!(!is_test_file("crates/x/src/attests.md"));
    }
}
