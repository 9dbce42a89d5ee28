//! Programs with `test = false`, which save the build of a test program: they must have no tests,
//! which would not run.

use anyhow::{Context, Result};
use serde_json::Value;

use super::complaint::Complaint;
use super::source_file::SourceFile;

pub fn check(files: &[SourceFile], metadata: &str) -> Result<Vec<Complaint>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"].as_array();
    let packages = packages.context("cargo metadata without packages")?;
    let targets = packages.iter().filter_map(|it| it["targets"].as_array());
    let untested: Vec<&str> = targets
        .flatten()
        .filter(|target| target["kind"][0] == "bin" && target["test"] == false)
        .filter_map(|target| target["src_path"].as_str())
        .collect();
    let is_untested = |file: &&SourceFile| {
        let path = format!("/{}", file.path);
        untested.iter().any(|source| source.ends_with(&path))
    };
    let mut complaints = Vec::new();
    for file in files.iter().filter(is_untested) {
        let hides =
            |line: &&str| line.starts_with("mod ") || line.trim_start().starts_with("#[test");
        for line in file.text.lines().filter(hides) {
            complaints.push(Complaint::new(
                &file.path,
                format!(
                    "`{}`: tests of this program do not run; remove `test = false`",
                    line.trim()
                ),
            ));
        }
    }
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_modules_of_a_program_without_tests_are_reported() {
        let metadata = r#"{"packages": [{"targets": [
            {"kind": ["bin"], "test": false, "src_path": "/w/a/src/main.rs"},
            {"kind": ["bin"], "test": true, "src_path": "/w/b/src/main.rs"},
            {"kind": ["example"], "test": false, "src_path": "/w/c/examples/main.rs"}
        ]}]}"#;
        let file = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let complaints = |text: &str| {
            let files = ["a/src/main.rs", "b/src/main.rs", "c/examples/main.rs"];
            check(&files.map(|path| file(path, text)), metadata).unwrap()
        };
        assert_eq!(complaints("fn main() {}\n"), []);
        let found = complaints("mod parts;\nfn main() {}\n    #[test]\n");
        let places: Vec<&str> = found.iter().map(|it| it.place.as_str()).collect();
        assert_eq!(places, ["a/src/main.rs", "a/src/main.rs"]);
    }
}
