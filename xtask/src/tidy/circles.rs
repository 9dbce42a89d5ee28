//! No dependency cycle between the modules of a crate: code that two modules need is placed below
//! both, or passed in.
//!
//! An edge goes from a file to the file that defines a name used in it. Edges come from the code's
//! imports and paths; a re-export counts as its target. `mod child;` and `pub use child::…` alone
//! are not edges, because a facade does not use its children. Tests are excluded.

mod graph;
mod paths;

use std::collections::BTreeMap;

use graph::{Arrows, Circle};

use super::complaint::Complaint;
use super::modules;
use super::source_file::SourceFile;

/// Reports each cycle.
pub fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let manifests = files
        .iter()
        .filter_map(|file| file.path.strip_suffix("Cargo.toml"));
    for folder in manifests {
        let sources: BTreeMap<&str, &str> = files
            .iter()
            .filter_map(|file| Some((file.path.strip_prefix(folder)?, file.text.as_str())))
            .collect();
        let name = folder.trim_end_matches('/');
        let (arrows, unread) = arrows_of(&sources);
        complaints.extend(
            unread
                .into_iter()
                .map(|(path, why)| Complaint::new(format!("{folder}{path}"), why)),
        );
        let circles = graph::circles(&arrows);
        let described = circles.iter().map(|circle| described(circle, &arrows));
        complaints.extend(described.map(|text| Complaint::new(name, text)));
    }
    complaints
}

/// The edges between the files of a crate, and the files that could not be parsed.
fn arrows_of(sources: &BTreeMap<&str, &str>) -> (Arrows, Vec<(String, String)>) {
    let tree = modules::read(sources);
    (paths::arrows(&tree), tree.unread)
}

/// The cycle, its edges, and where it is easiest to break.
fn described(circle: &Circle, arrows: &Arrows) -> String {
    let inner = circle.arrows(arrows);
    let mut text = format!("these modules form a circle: {}", circle.files.join(", "));
    for (from, to, names) in &inner {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        text.push_str(&format!(
            "\n        {from} uses {} of {to}",
            names.join(", ")
        ));
    }
    if let Some((from, to, names)) = inner.iter().min_by_key(|(_, _, names)| names.len()) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        text.push_str(&format!(
            "\n        the thinnest tie: move {} from {to} to a file below both, or pass it in to {from}",
            names.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(sources: &[(&str, &str)]) -> Vec<SourceFile> {
        let manifest = ("Cargo.toml", "");
        std::iter::once(&manifest)
            .chain(sources)
            .map(|(path, text)| SourceFile {
                path: format!("crates/x/{path}"),
                text: (*text).to_owned(),
            })
            .collect()
    }

    fn complaints(sources: &[(&str, &str)]) -> Vec<String> {
        check(&files(sources))
            .into_iter()
            .map(|complaint| complaint.text)
            .collect()
    }

    /// The edges as `from -> to: names`, without folder and extension.
    fn arrows(sources: &[(&str, &str)]) -> Vec<String> {
        let (arrows, unread) = arrows_of(&sources.iter().copied().collect());
        assert_eq!(unread, []);
        arrows
            .iter()
            .map(|((from, to), names)| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let short = |path: &str| path.replace("src/", "").replace(".rs", "");
                format!("{} -> {}: {}", short(from), short(to), names.join(" "))
            })
            .collect()
    }

    #[test]
    fn a_cycle_of_two_files_is_found_with_its_imports() {
        let found = complaints(&[
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "use crate::b::Later; pub struct Sooner(Later);"),
            (
                "src/b.rs",
                "pub struct Later; fn f(_: &super::a::Sooner) {}",
            ),
        ]);
        assert_eq!(
            found,
            ["these modules form a circle: src/a.rs, src/b.rs\n        \
             src/a.rs uses Later of src/b.rs\n        \
             src/b.rs uses Sooner of src/a.rs\n        \
             the thinnest tie: move Later from src/b.rs to a file below both, or pass it in to src/a.rs"]
        );
    }

    #[test]
    fn a_circle_of_three_files_through_a_re_export_is_found() {
        let found = complaints(&[
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "mod inner; mod other; pub use inner::Inner;"),
            (
                "src/a/inner.rs",
                "use crate::b::B; pub struct Inner { b: B }",
            ),
            ("src/a/other.rs", "pub fn other(_: super::Inner) {}"),
            (
                "src/b.rs",
                "pub struct B; pub fn g() { crate::a::other::other(todo()) }",
            ),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("circle: src/a/inner.rs, src/a/other.rs, src/b.rs\n"),
            "{found:?}"
        );
        assert!(
            found[0].contains("src/a/other.rs uses Inner of src/a/inner.rs"),
            "{found:?}"
        );
    }

    #[test]
    fn a_clean_tree_has_none() {
        let found = complaints(&[
            (
                "src/lib.rs",
                "mod a; mod b; mod c; pub use a::A; pub fn top() { b::b(); }",
            ),
            (
                "src/a.rs",
                "use crate::c::C; pub struct A(C); #[cfg(test)] mod tests { use crate::b; fn t() { b::b() } }",
            ),
            ("src/b.rs", "use crate::A; pub fn b() -> A { todo() }"),
            ("src/c.rs", "pub struct C;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_parent_and_a_child_that_use_each_other_are_a_circle() {
        let parent = "mod child; pub struct P; pub fn f() { child::g(P) }";
        let sources = [
            ("src/lib.rs", "mod p;"),
            ("src/p.rs", parent),
            ("src/p/child.rs", "pub fn g(_: super::P) {}"),
        ];
        assert_eq!(
            arrows(&sources),
            ["p -> p/child: g", "p/child -> p: P"],
            "as a facade it would be none"
        );
        assert_eq!(complaints(&sources).len(), 1);
        let facade = "mod child; pub struct P; pub use child::g;";
        assert_eq!(
            arrows(&[sources[0], ("src/p.rs", facade), sources[2]]),
            ["p/child -> p: P"]
        );
        let user = "mod child; pub struct P; pub use child::g; fn f() { g(P) }";
        assert_eq!(
            arrows(&[sources[0], ("src/p.rs", user), sources[2]]),
            ["p -> p/child: g", "p/child -> p: P"]
        );
    }

    #[test]
    fn paths_are_found_at_every_position() {
        for text in [
            "use crate::b::B;",
            "use super::b::{self, B};",
            "fn f() { use crate::b as other; other::B; }",
            "use crate::*; fn f() -> b::B {}",
            "use crate::b::*; fn f(_: Option<B>) {}",
            "fn f() { assert!(x == crate::b::B); }",
            "impl crate::b::B {}",
            "mod inline { fn f(_: super::super::b::B) {} }",
            "#[arg(value_parser = crate::b::B)] struct S;",
            "macro_rules! m { () => { $crate::b::B } }",
            "fn f(x: u8) { match x { crate::b::B => {} _ => {} } }",
            "fn f(x: T) -> bool where T: crate::b::B {}",
        ] {
            let sources = [
                ("src/lib.rs", "mod a; mod b;"),
                ("src/a.rs", text),
                ("src/b.rs", "pub struct B;"),
            ];
            assert_eq!(arrows(&sources), ["a -> b: B"], "{text}");
        }
    }

    #[test]
    fn external_names_and_tests_are_no_edges() {
        for text in [
            "use std::b::B; use ::b::B;",
            "#[cfg(test)] use crate::b::B;",
            "#[cfg(all(test, loom))] fn f(_: crate::b::B) {}",
            "impl S { #[cfg(test)] fn f(_: crate::b::B) {} }",
            "pub(in crate::b) struct S;",
            "use crate::b;",
        ] {
            let sources = [
                ("src/lib.rs", "mod a; mod b;"),
                ("src/a.rs", text),
                ("src/b.rs", "pub struct B;"),
            ];
            assert_eq!(arrows(&sources), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn programs_and_examples_of_a_crate_are_read_as_well() {
        let program = [
            ("src/bin/p.rs", "mod q; pub fn f() { q::g() }"),
            ("src/bin/q.rs", "pub fn g() { crate::f() }"),
        ];
        assert_eq!(complaints(&program).len(), 1);
    }

    #[test]
    fn a_module_whose_file_is_not_found_and_a_file_that_does_not_parse_are_complained_of() {
        assert_eq!(complaints(&[("src/lib.rs", "mod a;")]).len(), 1);
        assert_eq!(complaints(&[("src/lib.rs", "mod a {")]).len(), 1);
    }
}
