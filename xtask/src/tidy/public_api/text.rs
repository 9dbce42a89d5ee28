//! Declarations as text that does not depend on the layout of the source, nor on names of parameters.

use std::collections::BTreeMap;

use quote::ToTokens;
use syn::{Fields, FnArg, PathArguments, ReceiverKind, ReturnType, Safety, Signature};

use crate::tidy::modules::is_public;

/// Pairs of token sequences as they are printed, with a space between any two tokens, and as written.
const LAYOUT: [(&str, &str); 16] = [
    (" :: ", "::"),
    (":: ", "::"),
    ("& ", "&"),
    ("? ", "?"),
    (" <", "<"),
    ("< ", "<"),
    (" >", ">"),
    (" ,", ","),
    (" :", ":"),
    (" ;", ";"),
    ("Fn (", "Fn("),
    ("FnMut (", "FnMut("),
    ("FnOnce (", "FnOnce("),
    (",)", ")"),
    (",>", ">"),
    (",]", "]"),
];

pub fn of(part: &impl ToTokens) -> String {
    let printed = part.to_token_stream().to_string();
    LAYOUT.iter().fold(printed, |text, (printed, written)| {
        text.replace(printed, written)
    })
}

/// A function or method with the types of its parameters: `pub async fn a::b(&self, u8) -> bool`.
pub fn of_function(path: &str, signature: &Signature) -> String {
    let mut text = String::from("pub ");
    for (is_there, word) in [
        (signature.constness.is_some(), "const "),
        (signature.asyncness.is_some(), "async "),
        (matches!(signature.safety, Safety::Unsafe(_)), "unsafe "),
    ] {
        if is_there {
            text.push_str(word);
        }
    }
    let generics = of(&signature.generics);
    let inputs: Vec<String> = signature.inputs.iter().map(of_input).collect();
    text.push_str(&format!("fn {path}{generics}({})", inputs.join(", ")));
    if let ReturnType::Type(_, output) = &signature.output {
        text.push_str(&format!(" -> {}", of(output)));
    }
    if let Some(conditions) = &signature.generics.where_clause {
        text.push_str(&format!(" {}", of(conditions).trim_end_matches(',')));
    }
    text
}

fn of_input(input: &FnArg) -> String {
    match input {
        // `mut self` is the function's own affair.
        FnArg::Receiver(receiver) if matches!(receiver.kind, ReceiverKind::Value) => "self".into(),
        FnArg::Receiver(receiver) => of(receiver),
        FnArg::Typed(typed) => of(&typed.ty),
    }
}

/// The fields of a variant: `{ a: u8, b: u8 }`, `(u8)`, or nothing.
pub fn of_variant(fields: &Fields) -> String {
    let types = fields.iter().map(|field| match &field.ident {
        Some(name) => format!("{name}: {}", of(&field.ty)),
        None => of(&field.ty),
    });
    let types: Vec<String> = types.collect();
    match fields {
        Fields::Named(_) => format!(" {{ {} }}", types.join(", ")),
        Fields::Unnamed(_) => format!("({})", types.join(", ")),
        Fields::Unit => String::new(),
    }
}

/// The public fields, each with its name or number and its type.
pub fn of_fields(fields: &Fields) -> Vec<(String, String)> {
    let named = fields.iter().enumerate().map(|(index, field)| {
        let name = field.ident.as_ref().map(ToString::to_string);
        (name.unwrap_or(index.to_string()), field)
    });
    let public = named.filter(|(_, field)| is_public(&field.vis));
    public.map(|(name, field)| (name, of(&field.ty))).collect()
}

/// The last name of a path, with its generic arguments: `From<u8>`.
pub fn of_last(path: &syn::Path) -> String {
    path.segments.last().map_or_else(String::new, |last| {
        let arguments = match &last.arguments {
            PathArguments::None => String::new(),
            arguments => of(arguments),
        };
        format!("{}{arguments}", last.ident)
    })
}

/// The text with names replaced, unless they are the end of a path.
pub fn with_replaced(text: &str, names: &BTreeMap<String, String>) -> String {
    let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_name = is_of_name(first);
        let end = rest.find(|letter: char| is_of_name(letter) != is_name);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        let other = names.get(part).filter(|_| !replaced.ends_with("::"));
        replaced.push_str(other.map_or(part, String::as_str));
        rest = after;
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(text: &str) -> String {
        let item: syn::ItemFn = syn::parse_str(text).unwrap();
        of_function("a::f", &item.sig)
    }

    #[test]
    fn layout_and_names_of_parameters_do_not_matter() {
        for text in [
            "pub fn f(a: &[String], mut b: Option<&'static str>) -> Vec<(String, i32)> {}",
            "pub fn f(\n    other: &[String],\n    (c): Option<&'static str>,\n) -> Vec<(String, i32,)> {}",
        ] {
            assert_eq!(
                function(text),
                "pub fn a::f(&[String], Option<&'static str>) -> Vec<(String, i32)>"
            );
        }
    }

    #[test]
    fn what_callers_meet_is_kept() {
        let bounds = "pub async fn f<T: Send, F>(f: impl Fn(i16) -> F) -> io::Result<T> where F: Future<Output = T>, {}";
        assert_eq!(
            function(bounds),
            "pub async fn a::f<T: Send, F>(impl Fn(i16) -> F) -> io::Result<T> where F: Future<Output = T>"
        );
        assert_eq!(
            function("pub const unsafe fn f(d: Box<dyn FnMut(&[u8; 16]) + Send>) {}"),
            "pub const unsafe fn a::f(Box<dyn FnMut(&[u8; 16]) + Send>)"
        );
        let method: syn::ImplItemFn = syn::parse_str("pub fn f(mut self, n: u8) {}").unwrap();
        assert_eq!(of_function("A::f", &method.sig), "pub fn A::f(self, u8)");
        let method: syn::ImplItemFn = syn::parse_str("pub fn f(&mut self) {}").unwrap();
        assert_eq!(of_function("A::f", &method.sig), "pub fn A::f(&mut self)");
    }
}
