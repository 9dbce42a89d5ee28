//! Checks of single source files: length, name, and words that do not belong there.

use std::path::Path;

use super::complaint::Complaint;
use super::source_file::{SourceFile, is_rust, is_test_file, without_tests};

const LONGEST: usize = 800;

/// Names that do not describe the file's contents. `mod` is among them: a module with a folder is
/// `net.rs` beside `net/`, so that editor tabs and backtraces show which one it is.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "manager", "impl", "common", "misc", "mod",
];

/// A file longer than 800 lines without its tests must be split by roles.
pub fn lengths(files: &[SourceFile]) -> Vec<Complaint> {
    let counted = files
        .iter()
        .filter(|file| is_source(&file.path) && !is_generated(file));
    counted
        .filter_map(|file| {
            let lines = if is_test_file(&file.path) {
                file.text.lines().count()
            } else {
                without_tests(&file.text).count()
            };
            let text = format!("{lines} lines; split it along the roles in it (at most {LONGEST})");
            (lines > LONGEST).then(|| Complaint::new(&file.path, text))
        })
        .collect()
}

pub fn names(files: &[SourceFile]) -> Vec<Complaint> {
    files
        .iter()
        .filter(|file| is_source(&file.path))
        .filter_map(|file| {
            let empty = file.path.split('/').find(|part| {
                let stem = Path::new(part).file_stem().and_then(|stem| stem.to_str());
                EMPTY_NAMES.contains(&stem.unwrap_or_default())
            })?;
            let text = format!("`{empty}` does not name the thing in it");
            Some(Complaint::new(&file.path, text))
        })
        .collect()
}

/// Absolute paths that exist on one machine only.
pub fn machine_paths(files: &[SourceFile]) -> Vec<Complaint> {
    // Assembled, so that this file does not match.
    let places = ["home", "root", "work", "Users"].map(|place| format!("/{place}/"));
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with(".lock")) {
        for (index, line) in file.text.lines().enumerate() {
            for place in &places {
                let is_found = line.match_indices(place.as_str()).any(|(at, _)| {
                    // A match within a longer path or a URL is not an absolute path.
                    let before = line[..at].chars().next_back();
                    !before
                        .is_some_and(|before| before.is_alphanumeric() || "_-./}$".contains(before))
                });
                if is_found {
                    complaints.push(Complaint::new(
                        format!("{}:{}", file.path, index + 1),
                        format!("`{place}` is a place on one machine"),
                    ));
                }
            }
        }
    }
    complaints
}

/// Markers of unfinished code, and disabled tests. Tests that need a special machine name the suite that
/// runs them: `"…: cargo xtask NAME"`.
pub fn unfinished(files: &[SourceFile]) -> Vec<Complaint> {
    let words = ["todo", "unimplemented"].map(|word| format!("{word}!("));
    let ignored = format!("#[{}", "ignore");
    let marks = ["TODO", "FIXME", "XXX"].map(|mark| format!("// {mark}"));
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| is_source(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            let found = words
                .iter()
                .chain(&marks)
                .chain([&ignored])
                .find(|word| line.contains(*word));
            let found = found.filter(|word| **word != ignored || !line.contains(": cargo xtask "));
            if let Some(word) = found {
                complaints.push(Complaint::new(
                    format!("{}:{}", file.path, index + 1),
                    format!("`{word}`: finish it or take it out"),
                ));
            }
        }
    }
    complaints
}

/// API version numbers belong in the protocol crate and the broker's `api/` folder. Elsewhere a
/// comparison of a request's version with a number is an error.
pub fn api_versions(files: &[SourceFile]) -> Vec<Complaint> {
    const HOMES: &[&str] = &[
        "crates/ottla-protocol/",
        "crates/ottla-protocol-codegen/",
        "crates/ottla-broker/src/api/",
    ];
    let mut complaints = Vec::new();
    for file in files
        .iter()
        .filter(|file| is_rust(&file.path) && file.path.starts_with("crates/"))
    {
        if HOMES.iter().any(|home| file.path.starts_with(home)) || is_test_file(&file.path) {
            continue;
        }
        for (number, line) in without_tests(&file.text) {
            let code = line.split("//").next().unwrap_or_default();
            if compares_with_a_number(code, "api_version")
                || compares_with_a_number(code, "request_version")
            {
                complaints.push(Complaint::new(
                    format!("{}:{number}", file.path),
                    "the number of an API's version belongs to the protocol crate or to api/",
                ));
            }
        }
    }
    complaints
}

/// Whether the name is compared with a literal number, ignoring method calls in between.
fn compares_with_a_number(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let rest = code[at + name.len()..]
            .trim_start()
            .trim_start_matches("()")
            .trim_start();
        ["==", "!=", ">=", "<=", ">", "<"].iter().any(|operator| {
            rest.strip_prefix(operator)
                .is_some_and(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        })
    })
}

/// Hand-written code in any language.
fn is_source(path: &str) -> bool {
    let extension = Path::new(path)
        .extension()
        .and_then(|extension| extension.to_str());
    matches!(
        extension,
        Some("rs" | "java" | "py" | "go" | "js" | "mjs" | "ts" | "tsx" | "sh")
    )
}

fn is_generated(file: &SourceFile) -> bool {
    file.text
        .lines()
        .take(5)
        .any(|line| line.contains("@generated"))
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
    fn a_long_file_is_found_and_its_tests_are_not_counted() {
        let long = "x\n".repeat(801);
        assert_eq!(lengths(&[file("a.rs", &long)]).len(), 1);
        assert_eq!(
            lengths(&[file("a.rs", &format!("x\n#[cfg(test)]\n{long}"))]),
            []
        );
        assert_eq!(lengths(&[file("a.md", &long)]), []);
    }

    #[test]
    fn meaningless_file_and_folder_names_are_found() {
        for path in [
            "crates/x/src/utils.rs",
            "crates/x/src/common/a.rs",
            "conformance/helpers.py",
            "crates/x/src/net/mod.rs",
        ] {
            assert_eq!(names(&[file(path, "")]).len(), 1, "{path}");
        }
        assert_eq!(names(&[file("crates/x/src/commonality.rs", "")]), []);
    }

    #[test]
    fn machine_specific_paths_are_found() {
        let path = format!("/{}/kim/ottla", "home");
        assert_eq!(
            machine_paths(&[file("README.md", &format!("see {path}"))]).len(),
            1
        );
        assert_eq!(
            machine_paths(&[file("a.rs", &format!("url(\"https://x{path}\")"))]),
            []
        );
    }

    #[test]
    fn unfinished_code_is_found() {
        for text in [
            format!("{}!()", "todo"),
            format!("#[{}]", "ignore"),
            format!("// {} later", "TODO"),
        ] {
            assert_eq!(unfinished(&[file("a.rs", &text)]).len(), 1, "{text}");
        }
        let of_suite = format!("#[{} = \"needs a kernel: cargo xtask tls\"]", "ignore");
        for text in ["let todos = 1;", of_suite.as_str()] {
            assert_eq!(unfinished(&[file("a.rs", text)]), []);
        }
    }

    #[test]
    fn an_api_version_outside_its_crates_is_found() {
        for text in ["if api_version >= 12 {", "context.api_version() == 3"] {
            assert_eq!(
                api_versions(&[file("crates/ottla-log/src/a.rs", text)]).len(),
                1,
                "{text}"
            );
            assert_eq!(
                api_versions(&[file("crates/ottla-broker/src/api/a.rs", text)]),
                []
            );
        }
        let passing = "let x = api_version; if api_version > other {}";
        assert_eq!(
            api_versions(&[file("crates/ottla-log/src/a.rs", passing)]),
            []
        );
    }
}
