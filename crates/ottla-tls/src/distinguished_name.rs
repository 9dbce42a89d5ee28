//! Distinguished names in Java's RFC 2253 format, which ACLs and `super.users` use for clients with
//! a certificate.
//!
//! Java: `X500Principal.getName`, `sun.security.x509.AVA.toRFC2253String`.

use std::fmt::Write;

use x509_parser::asn1_rs::{Any, Tag, ToDer};
use x509_parser::x509::X509Name;

/// The keywords of RFC 2253. Other attributes are shown with their OID.
const KEYWORDS: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// The last part of the name comes first.
pub fn rfc2253(name: &X509Name<'_>) -> String {
    let parts: Vec<String> = name
        .iter_rdn()
        .map(|part| {
            let attributes = part
                .iter()
                .map(|it| attribute(&it.attr_type().to_id_string(), it.attr_value()));
            attributes.collect::<Vec<_>>().join("+")
        })
        .collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(",")
}

fn attribute(oid: &str, value: &Any<'_>) -> String {
    let keyword = KEYWORDS.iter().find(|(known, _)| *known == oid);
    match (keyword, is_text(value.tag())) {
        (Some((_, keyword)), true) => {
            format!(
                "{keyword}={}",
                escaped(&String::from_utf8_lossy(value.data))
            )
        }
        (keyword, _) => {
            let mut text = keyword.map_or(oid, |(_, keyword)| keyword).to_owned();
            text.push_str("=#");
            for byte in value.to_der_vec().unwrap_or_default() {
                let _ = write!(text, "{byte:02x}");
            }
            text
        }
    }
}

fn is_text(tag: Tag) -> bool {
    [
        Tag::PrintableString,
        Tag::Utf8String,
        Tag::T61String,
        Tag::Ia5String,
        Tag::GeneralString,
        Tag::BmpString,
        Tag::UniversalString,
    ]
    .contains(&tag)
}

fn escaped(value: &str) -> String {
    let is_space = |c: char| c == ' ' || c == '\r';
    let lead = value.len() - value.trim_start_matches(is_space).len();
    let trail = value.trim_end_matches(is_space).len();
    let mut text = String::with_capacity(value.len());
    for (index, c) in value.char_indices() {
        match c {
            ',' | '=' | '\n' | '+' | '<' | '>' | '#' | ';' | '"' | '\\' => text.extend(['\\', c]),
            '\0' => text.push_str("\\00"),
            _ if index < lead || index >= trail => text.extend(['\\', c]),
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values as printed by Java 17.
    #[test]
    fn values_are_escaped_as_in_java() {
        for (value, expected) in [
            ("a=b#c", "a\\=b\\#c"),
            ("#x", "\\#x"),
            (" lead", "\\ lead"),
            ("a b ", "a b\\ "),
            ("a,b+c;d<e>f\"g\\h", "a\\,b\\+c\\;d\\<e\\>f\\\"g\\\\h"),
            (
                "J\u{fc}rg M\u{fc}ller/\u{e4}",
                "J\u{fc}rg M\u{fc}ller/\u{e4}",
            ),
        ] {
            assert_eq!(escaped(value), expected);
        }
    }
}
