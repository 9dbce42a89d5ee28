//! The pure crates: time, randomness, threads, sockets and files are passed to them as arguments,
//! and they contain no unsafe code.
//!
//! Clippy finds forbidden names, from the list in `crates/pure.clippy.toml`. This check ensures
//! that the list applies to all pure crates, and finds runtimes, for which clippy has no lint.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;
use syn::visit::{self, Visit};

use super::complaint::Complaint;
use super::source_file::{SourceFile, is_rust, is_test_file};

const PURE: &[&str] = &[
    "ottla-types",
    "ottla-config",
    "ottla-records",
    "ottla-replica",
    "ottla-tiered",
    "ottla-sasl",
    "ottla-security",
    "ottla-metadata",
    "ottla-raft",
    "ottla-controller",
    "ottla-coordinator",
    "ottla-rebalance",
];

const BANS: &str = "crates/pure.clippy.toml";

/// Attributes required at the root of a pure crate.
const ATTRIBUTES: [&str; 2] = [
    "#![forbid(unsafe_code)]",
    "#![warn(clippy::iter_over_hash_type)]",
];

/// Crates on which a pure one must not depend, except in its tests.
const IMPURE: &[&str] = &[
    "crossbeam-utils",
    "futures-util",
    "libc",
    "parking_lot",
    "rand",
    "rustix",
    "socket2",
    "tempfile",
    "tokio",
];

pub fn check(files: &[SourceFile], metadata: &str) -> Result<Vec<Complaint>> {
    let mut complaints = dependencies(metadata)?;
    let text_of = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| file.text.as_str())
    };
    for name in PURE {
        let clippy = format!("crates/{name}/clippy.toml");
        if text_of(BANS).is_none() || text_of(&clippy) != text_of(BANS) {
            complaints.push(Complaint::new(clippy, format!("must be a link to {BANS}")));
        }
        let folder = format!("crates/{name}/src/");
        let root = format!("{folder}lib.rs");
        for attribute in ATTRIBUTES {
            if !text_of(&root).is_some_and(|text| text.contains(attribute)) {
                let text = format!("a pure crate says {attribute} at its root");
                complaints.push(Complaint::new(&root, text));
            }
        }
        let sources = files.iter().filter(|file| file.path.starts_with(&folder));
        for file in sources.filter(|file| is_rust(&file.path) && !is_test_file(&file.path)) {
            if is_async(&file.text) {
                let text = "`async` in a pure crate: a runtime; answer with effects instead";
                complaints.push(Complaint::new(&file.path, text));
            }
        }
    }
    Ok(complaints)
}

/// Pure crates that depend on impure ones.
fn dependencies(metadata: &str) -> Result<Vec<Complaint>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let mut complaints = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        if !PURE.contains(&name) {
            continue;
        }
        let dependencies = package["dependencies"].as_array();
        let used: BTreeSet<&str> = dependencies
            .into_iter()
            .flatten()
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str())
            .collect();
        for impure in used.iter().filter(|used| IMPURE.contains(used)) {
            let text = format!("is pure and uses {impure}; the shell owns it");
            complaints.push(Complaint::new(name, text));
        }
    }
    Ok(complaints)
}

/// Whether a file that parses contains anything `async`.
fn is_async(text: &str) -> bool {
    #[derive(Default)]
    struct Finder(bool);
    impl Visit<'_> for Finder {
        fn visit_signature(&mut self, signature: &syn::Signature) {
            self.0 |= signature.asyncness.is_some();
            visit::visit_signature(self, signature);
        }
        fn visit_expr_async(&mut self, _: &syn::ExprAsync) {
            self.0 = true;
        }
        fn visit_expr_closure(&mut self, closure: &syn::ExprClosure) {
            self.0 |= closure.asyncness.is_some();
            visit::visit_expr_closure(self, closure);
        }
    }
    let mut finder = Finder::default();
    if let Ok(file) = syn::parse_file(text) {
        finder.visit_file(&file);
    }
    finder.0
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

    /// All pure crates in a valid state.
    fn pure() -> Vec<SourceFile> {
        let crates = PURE.iter().flat_map(|name| {
            let root = ATTRIBUTES.join("\n");
            [
                file(&format!("crates/{name}/clippy.toml"), "bans"),
                file(&format!("crates/{name}/src/lib.rs"), &root),
            ]
        });
        crates.chain([file(BANS, "bans")]).collect()
    }

    fn places(files: &[SourceFile]) -> Vec<String> {
        let complaints = check(files, r#"{"packages": []}"#).unwrap();
        complaints.into_iter().map(|it| it.place).collect()
    }

    #[test]
    fn a_pure_crate_without_the_bans_is_found() {
        assert_eq!(places(&pure()), Vec::<String>::new());
        for (name, text) in [
            ("clippy.toml", "none"),
            ("src/lib.rs", "mod a;\n#![forbid(unsafe_code)]"),
        ] {
            let path = format!("crates/ottla-raft/{name}");
            let mut files = pure();
            files.iter_mut().find(|it| it.path == path).unwrap().text = text.to_owned();
            assert_eq!(places(&files), [path]);
        }
    }

    #[test]
    fn a_runtime_is_found_in_pure_crates_only() {
        for text in ["async fn f() {}", "fn f() { g(async { 1 }) }"] {
            let mut files = pure();
            files.push(file("crates/ottla-broker/src/a.rs", text));
            files.push(file("crates/ottla-raft/src/a/tests.rs", text));
            assert_eq!(places(&files), Vec::<String>::new());
            files.push(file("crates/ottla-raft/src/a.rs", text));
            assert_eq!(places(&files), ["crates/ottla-raft/src/a.rs"], "{text}");
        }
    }

    #[test]
    fn a_dependency_on_a_clock_or_a_socket_is_found() {
        let metadata = |kind: &str| {
            format!(
                r#"{{"packages": [{{"name": "ottla-raft",
                    "dependencies": [{{"name": "tokio", "kind": {kind}}}]}}]}}"#
            )
        };
        assert_eq!(check(&pure(), &metadata("null")).unwrap().len(), 1);
        assert_eq!(check(&pure(), &metadata("\"dev\"")).unwrap(), []);
    }
}
