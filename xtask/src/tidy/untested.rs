//! Tests that do not run, which nothing else reports: those of targets with `test = false`, which
//! saves the build of a test program, those of files that no module declares, and the examples of
//! libraries with `doctest = false`, which saves a look for examples.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::complaint::Complaint;
use super::source_file::{SourceFile, is_rust};

pub fn check(files: &[SourceFile], metadata: &str) -> Result<Vec<Complaint>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"].as_array();
    let packages = packages.context("cargo metadata without packages")?;
    let targets = packages.iter().filter_map(|it| it["targets"].as_array());
    let untested = targets.flatten().filter(|target| target["test"] == false);
    let sources = |kinds: &'static [&'static str]| {
        let is_meant = move |target: &&Value| kinds.iter().any(|kind| target["kind"][0] == *kind);
        let meant = untested.clone().filter(is_meant);
        let sources: Vec<&str> = meant
            .filter_map(|target| target["src_path"].as_str())
            .collect();
        sources
    };
    let mut complaints = Vec::new();
    let programs = sources(&["bin"]);
    let is_untested = |file: &&SourceFile| {
        let path = format!("/{}", file.path);
        programs.iter().any(|source| source.ends_with(&path))
    };
    for file in files.iter().filter(is_untested) {
        for line in file.text.lines().filter(|line| hides_tests(line)) {
            complaints.push(Complaint::new(
                &file.path,
                format!(
                    "`{}`: tests of this program do not run; remove `test = false`",
                    line.trim()
                ),
            ));
        }
    }
    for source in sources(&["lib"]) {
        for file in files.iter().filter(|file| is_below(source, &file.path)) {
            for line in file.text.lines().filter(|line| is_test(line)) {
                let text = format!(
                    "`{}`: tests of this library do not run; move them to its test program",
                    line.trim()
                );
                complaints.push(Complaint::new(&file.path, text));
            }
        }
    }
    for source in sources(&["test"]) {
        let text = "its tests do not run; remove `test = false`";
        complaints.push(Complaint::new(source, text));
    }
    for library in of_kind(packages, "lib").filter(|it| it["doctest"] == false) {
        let root = library["src_path"].as_str().context("src_path")?;
        for file in files.iter().filter(|file| is_below(root, &file.path)) {
            for line in examples(&file.text) {
                let text = format!("`{line}`: this example does not run; remove `doctest = false`");
                complaints.push(Complaint::new(&file.path, text));
            }
        }
    }
    complaints.extend(undeclared(files));
    Ok(complaints)
}

/// The targets of this kind.
fn of_kind<'a>(packages: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let targets = packages.iter().filter_map(|it| it["targets"].as_array());
    targets
        .flatten()
        .filter(move |target| target["kind"][0] == kind)
}

/// The first lines of the examples in a file's documentation.
fn examples(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim_start);
    let documentation = lines.filter_map(|line| {
        line.strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
    });
    let fences = documentation
        .map(str::trim)
        .filter(|line| line.starts_with("```"));
    // Every other one ends a block.
    let begun = fences.step_by(2);
    begun.filter(|line| *line != "```text").collect()
}

/// Whether the line begins a test, or declares a module, which may have some.
fn hides_tests(line: &str) -> bool {
    declared(line.trim_start()).is_some() || is_test(line)
}

fn is_test(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[test") || line.starts_with("#[tokio::test")
}

/// Whether the file belongs to the library with this root, an absolute path.
fn is_below(root: &str, path: &str) -> bool {
    let folder = root.strip_suffix("lib.rs").unwrap_or(root);
    let own = path.find("/src/").map(|at| &path[..at + "/src/".len()]);
    own.is_some_and(|own| folder.ends_with(&format!("/{own}")))
}

/// The module that a line declares, with a file of its own.
fn declared(line: &str) -> Option<&str> {
    let (visibility, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
}

/// The files that no module declares: the compiler does not read them.
fn undeclared(files: &[SourceFile]) -> Vec<Complaint> {
    let sources: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| is_rust(&file.path))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let lines = sources.values().flat_map(|text| text.lines());
    let attributes = lines.filter_map(|line| {
        let path = line.trim().strip_prefix("#[path = \"")?;
        Some(path.strip_suffix("\"]")?.trim_start_matches("../"))
    });
    let named: Vec<String> = attributes.map(|path| format!("/{path}")).collect();
    let is_declared = |path: &str| {
        let Some((folder, name)) = path
            .strip_suffix(".rs")
            .and_then(|path| path.rsplit_once('/'))
        else {
            return true;
        };
        let declares = |end: &&str| {
            let parent = sources.get(format!("{folder}{end}").as_str());
            parent.is_some_and(|text| text.lines().any(|line| declared(line) == Some(name)))
        };
        is_root(folder, name)
            || ["/main.rs", "/lib.rs", "/mod.rs", ".rs"]
                .iter()
                .any(declares)
            || named.iter().any(|end| path.ends_with(end))
    };
    sources
        .keys()
        .filter(|path| !is_declared(path))
        .map(|path| Complaint::new(*path, "no module declares this file"))
        .collect()
}

/// Whether cargo, or a folder's name, makes it a file of its own.
fn is_root(folder: &str, name: &str) -> bool {
    let (_, last) = folder.rsplit_once('/').unwrap_or(("", folder));
    match last {
        "benches" | "bin" | "examples" | "fuzz_targets" => true,
        // A module `tests` has such a folder too.
        "tests" if !folder.contains("/src/") => true,
        _ => ["main", "lib", "mod", "build"].contains(&name),
    }
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

    fn places(complaints: &[Complaint]) -> Vec<&str> {
        complaints.iter().map(|it| it.place.as_str()).collect()
    }

    #[test]
    fn tests_and_modules_of_a_program_without_tests_are_reported() {
        let metadata = r#"{"packages": [{"targets": [
            {"kind": ["bin"], "test": false, "src_path": "/w/a/src/main.rs"},
            {"kind": ["bin"], "test": true, "src_path": "/w/b/src/main.rs"},
            {"kind": ["example"], "test": false, "src_path": "/w/c/examples/main.rs"}
        ]}]}"#;
        let complaints = |text: &str| {
            let files = ["a/src/main.rs", "b/src/main.rs", "c/examples/main.rs"];
            check(&files.map(|path| file(path, text)), metadata).unwrap()
        };
        assert_eq!(complaints("fn main() {}\n"), []);
        let found = complaints(
            "pub mod parts;\nfn main() {}\n    #[test]\n    #[tokio::test(start_paused = true)]\n",
        );
        assert_eq!(places(&found), ["a/src/main.rs"; 3]);
    }

    #[test]
    fn a_library_with_tests_or_a_test_program_must_be_tested() {
        let metadata = r#"{"packages": [{"targets": [
            {"kind": ["lib"], "test": true, "src_path": "/w/a/src/lib.rs"},
            {"kind": ["lib"], "test": false, "src_path": "/w/b/src/lib.rs"},
            {"kind": ["test"], "test": false, "src_path": "/w/b/tests/c.rs"}
        ]}]}"#;
        let found = |text: &str| {
            let files = [
                file("a/src/lib.rs", "mod x;\n#[test]\n"),
                file("a/src/x.rs", "#[test]\n"),
                file("b/src/lib.rs", "mod x;\nmod y;\n"),
                file("b/src/x.rs", "mod z;\n"),
                file("b/src/x/z.rs", text),
                file("b/src/y.rs", text),
                file("b/tests/c.rs", "#[test]\n"),
            ];
            check(&files, metadata).unwrap()
        };
        assert_eq!(places(&found("fn tested() {}\n")), ["/w/b/tests/c.rs"]);
        let all = ["b/src/x/z.rs", "b/src/y.rs", "/w/b/tests/c.rs"];
        assert_eq!(places(&found("    #[test]\n")), all);
        assert_eq!(places(&found("#[tokio::test]\n")), all);
    }

    #[test]
    fn an_example_of_a_library_without_examples_is_reported() {
        let metadata = r#"{"packages": [{"targets": [
            {"kind": ["lib"], "test": true, "doctest": true, "src_path": "/w/a/src/lib.rs"},
            {"kind": ["lib"], "test": true, "doctest": false, "src_path": "/w/b/src/lib.rs"}
        ]}]}"#;
        let found = |documented: &str| {
            let text = format!("mod x;\n//! ```text\n//! a | b\n//! ```\n{documented}");
            let files = ["a", "b"].map(|it| file(&format!("{it}/src/lib.rs"), &text));
            let x = ["a", "b"].map(|it| file(&format!("{it}/src/x.rs"), ""));
            check(&[files, x].concat(), metadata).unwrap()
        };
        assert_eq!(found("/// Text.\nlet fence = \"```\";\n"), []);
        for example in ["```", "```no_run", "```should_panic"] {
            let found = found(&format!("    /// {example}\n    /// f();\n    /// ```\n"));
            assert_eq!(places(&found), ["b/src/lib.rs"], "{example}");
        }
    }

    #[test]
    fn a_file_that_no_module_declares_is_reported() {
        let root = "mod one;\npub(crate) mod two;\n// mod three;\nmod four {}\n";
        let mut files = vec![
            file("a/build.rs", ""),
            file("a/src/lib.rs", root),
            file("a/src/one.rs", "mod tests;\n"),
            file("a/src/one/tests.rs", "mod deep;\n"),
            file("a/src/one/tests/deep.rs", ""),
            file("a/src/two.rs", ""),
            file("a/tests/alone.rs", ""),
            file(
                "a/tests/whole/main.rs",
                "#[path = \"../support/x.rs\"]\nmod x;\n",
            ),
            file("a/tests/support/x.rs", ""),
        ];
        assert_eq!(undeclared(&files), []);
        let lost = [
            "a/src/four.rs",
            "a/src/one/tests/lost.rs",
            "a/src/three.rs",
            "a/tests/support/y.rs",
            "a/tests/whole/lost.rs",
        ];
        files.extend(lost.map(|path| file(path, "#[test]\n")));
        assert_eq!(places(&undeclared(&files)), lost);
    }
}
