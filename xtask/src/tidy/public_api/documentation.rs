//! The attributes of an item that matter to its readers: its documentation, whether that is hidden, and
//! whether the item may grow.

use syn::{Attribute, Expr, Lit, Meta, Path, Token, punctuated::Punctuated};

/// The text of an item's documentation.
pub fn of(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(literal) = &pair.value
            && let Lit::Str(line) = &literal.lit
        {
            text.push_str(&line.value());
            text.push('\n');
        }
    }
    text
}

/// Whether there is a code block that rustdoc compiles, in one program with all others.
pub fn has_example(text: &str) -> bool {
    let mut is_inside = false;
    let mut fences = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("```"));
    fences.any(|language| {
        is_inside = !is_inside;
        let mut words = language.split([',', ' ']);
        is_inside && words.all(|word| ["", "rust", "no_run", "should_panic"].contains(&word))
    })
}

/// `#[doc(hidden)]`: for other crates of this repository only.
pub fn is_hidden(attributes: &[Attribute]) -> bool {
    list(attributes, "doc").iter().any(|it| it == "hidden")
}

/// Whether other crates must expect more fields or variants than there are.
pub fn may_grow(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|it| it.path().is_ident("non_exhaustive"))
}

/// The traits of an item's `#[derive]`s, without their paths.
pub fn derived(attributes: &[Attribute]) -> Vec<String> {
    list(attributes, "derive")
}

/// The last names of the paths in `#[NAME(…)]`.
fn list(attributes: &[Attribute], name: &str) -> Vec<String> {
    let mut names = Vec::new();
    for attribute in attributes {
        if !attribute.path().is_ident(name) || !matches!(attribute.meta, Meta::List(_)) {
            continue;
        }
        let paths = attribute.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated);
        // `#[doc(alias = "…")]` is no list of paths.
        for path in paths.iter().flatten() {
            names.extend(path.segments.last().map(|last| last.ident.to_string()));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compiled_blocks_are_examples() {
        for (text, is_example) in [
            ("Words.\n\n```\nlet a = 1;\n```\n", true),
            ("```no_run\nf();\n```", true),
            ("```text\na\n```\n", false),
            ("```ignore\nf();\n```\n", false),
            ("```standalone_crate\nf();\n```\n", false),
            ("```text\na\n```\n```rust\nf();\n```\n", true),
            ("Words.", false),
        ] {
            assert_eq!(has_example(text), is_example, "{text}");
        }
    }

    #[test]
    fn attributes_are_read() {
        let text = "/// One.\n/// Two.\n#[derive(Clone, thiserror::Error)]\n#[doc(hidden)]\n#[non_exhaustive]\nstruct S;";
        let item: syn::ItemStruct = syn::parse_str(text).unwrap();
        assert_eq!(of(&item.attrs), " One.\n Two.\n");
        assert_eq!(derived(&item.attrs), ["Clone", "Error"]);
        assert!(is_hidden(&item.attrs) && may_grow(&item.attrs));
        let item: syn::ItemStruct = syn::parse_str("#[doc(alias = \"x\")] struct S;").unwrap();
        assert!(!is_hidden(&item.attrs) && !may_grow(&item.attrs));
    }
}
