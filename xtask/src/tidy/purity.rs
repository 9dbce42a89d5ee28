//! The pure crates: time, chance, threads, sockets and files reach them as arguments, and nothing in them is unsafe.

use super::complaint::Complaint;
use super::source_file::{SourceFile, is_rust, is_test_file, without_tests};

const PURE: &[&str] = &[
    "ottla-types",
    "ottla-config",
    "ottla-replica",
    "ottla-metadata",
    "ottla-raft",
    "ottla-controller",
    "ottla-coordinator",
];

/// What a pure crate must not name, and why it would not be pure with it.
const BANNED: &[(&str, &str)] = &[
    (
        "std::time::Instant",
        "a clock; take the time as an argument",
    ),
    (
        "std::time::SystemTime",
        "a clock; take the time as an argument",
    ),
    ("Instant::now", "a clock; take the time as an argument"),
    ("SystemTime::now", "a clock; take the time as an argument"),
    ("std::thread", "a thread; its owner stands outside"),
    ("std::net::Tcp", "a socket; its owner stands outside"),
    ("std::net::Udp", "a socket; its owner stands outside"),
    ("std::fs", "a file; its owner stands outside"),
    (
        "std::env",
        "the environment; take what it says as an argument",
    ),
    ("tokio::", "a runtime; its owner stands outside"),
    ("async fn", "a runtime; answer with effects instead"),
    ("rand::", "chance; take random numbers as arguments"),
    (
        "std::collections::hash_map::RandomState",
        "chance; order must not depend on it",
    ),
    ("parking_lot::", "a lock; its owner stands outside"),
    ("std::sync::Mutex", "a lock; its owner stands outside"),
];

pub fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for name in PURE {
        let folder = format!("crates/{name}/src/");
        for file in files.iter().filter(|file| file.path.starts_with(&folder)) {
            if file.path == format!("{folder}lib.rs")
                && !file.text.contains("#![forbid(unsafe_code)]")
            {
                complaints.push(Complaint::new(
                    &file.path,
                    "a pure crate says #![forbid(unsafe_code)] at its root",
                ));
            }
            if is_rust(&file.path) && !is_test_file(&file.path) {
                complaints.extend(banned_names(file));
            }
        }
    }
    complaints
}

fn banned_names(file: &SourceFile) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (number, line) in without_tests(&file.text) {
        let code = line.split("//").next().unwrap_or_default();
        for (name, why) in BANNED {
            if code.contains(name) {
                complaints.push(Complaint::new(
                    format!("{}:{number}", file.path),
                    format!("`{name}` in a pure crate: {why}"),
                ));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn clocks_files_and_runtimes_are_found_in_pure_crates_only() {
        for line in [
            "use std::fs;",
            "let t = Instant::now();",
            "async fn f() {}",
            "tokio::spawn(x)",
        ] {
            assert_eq!(
                check(&[file("crates/ottla-raft/src/a.rs", line)]).len(),
                1,
                "{line}"
            );
            assert_eq!(check(&[file("crates/ottla-broker/src/a.rs", line)]), []);
        }
    }

    #[test]
    fn comments_and_tests_may_name_them() {
        let text = "// unlike std::fs\n#[cfg(test)]\nmod tests { use std::fs; }";
        assert_eq!(check(&[file("crates/ottla-raft/src/a.rs", text)]), []);
    }

    #[test]
    fn the_root_of_a_pure_crate_forbids_unsafe_code() {
        assert_eq!(
            check(&[file("crates/ottla-raft/src/lib.rs", "mod a;")]).len(),
            1
        );
        assert_eq!(
            check(&[file(
                "crates/ottla-raft/src/lib.rs",
                "#![forbid(unsafe_code)]"
            )]),
            []
        );
    }
}
