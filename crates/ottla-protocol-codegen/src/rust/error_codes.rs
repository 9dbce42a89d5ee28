//! Generates the visitor of a response's error codes, which are counted by metrics.
//!
//! Kafka implements `AbstractResponse.errorCounts` in each response. It nearly always covers all
//! fields named `ErrorCode` that exist in the version.

use std::fmt::Write as _;

use super::fields::rust_type;
use super::struct_context::condition;
use crate::names;
use crate::schema::{Field, Message, Struct, Type};

/// Structs whose own error code Kafka does not count, although it counts those of their children.
const UNCOUNTED: [&str; 3] = [
    "MetadataResponse",
    "DescribeUserScramCredentialsResponse",
    "DeleteAclsMatchingAcl",
];

/// Prints nothing if the struct has no error code: the trait's default method does nothing.
pub(super) fn print(out: &mut String, message: &Message, shape: &Struct) {
    let shapes = super::shapes::shapes_of(message);
    if !has_error_codes(shape, &shapes) {
        return;
    }
    out.push_str("        fn for_each_error_code(&self, v: i16, visit: &mut impl FnMut(i16)) {\n");
    for field in &shape.fields {
        let Some(statement) = statement(field, shape, &shapes) else {
            continue;
        };
        let _ = match condition(field.versions, shape.versions) {
            None => writeln!(out, "            {statement}"),
            Some(condition) => writeln!(out, "            if {condition} {{ {statement} }}"),
        };
    }
    out.push_str("        }\n");
}

fn statement(field: &Field, shape: &Struct, shapes: &[Struct]) -> Option<String> {
    let place = format!("self.{}", names::field(&field.name));
    if is_error_code(field) {
        let is_counted = !UNCOUNTED.contains(&shape.name.as_str());
        return is_counted.then(|| format!("visit({place});"));
    }
    let inner = shape_of(field, shapes)?;
    if !has_error_codes(inner, shapes) {
        return None;
    }
    let is_array = matches!(field.kind, Type::Array(_));
    let is_option = rust_type(field).starts_with("Option<");
    Some(match (is_array, is_option) {
        (false, false) => format!("{place}.for_each_error_code(v, visit);"),
        (true, true) => {
            format!("for x in {place}.iter().flatten() {{ x.for_each_error_code(v, visit); }}")
        }
        _ => format!("for x in &{place} {{ x.for_each_error_code(v, visit); }}"),
    })
}

pub(super) fn is_error_code(field: &Field) -> bool {
    field.name == "ErrorCode" && field.kind == Type::Int16
}

fn shape_of<'a>(field: &Field, shapes: &'a [Struct]) -> Option<&'a Struct> {
    let name = field.kind.struct_name()?;
    shapes.iter().find(|shape| shape.name == name)
}

/// Terminates, because recursive structs were rejected before.
fn has_error_codes(shape: &Struct, shapes: &[Struct]) -> bool {
    let is_own = !UNCOUNTED.contains(&shape.name.as_str());
    shape.fields.iter().any(|field| {
        is_own && is_error_code(field)
            || shape_of(field, shapes).is_some_and(|inner| has_error_codes(inner, shapes))
    })
}

#[cfg(test)]
mod tests {
    use crate::notation::parse;
    use crate::rust::generate;

    #[test]
    fn error_codes_are_gone_through_in_the_versions_that_have_them() {
        let text = "\
response 3 MetadataResponse 0-3
  ErrorCode: int16 2+
  Topics: []Topic? 1+
    ErrorCode: int16 0-2
    Name: string
  Brokers: []Broker
    Id: int32
";
        let code = generate(&parse(text).unwrap());
        for line in [
            "if v >= 1 { for x in self.topics.iter().flatten() { x.for_each_error_code(v, visit); } }",
            "if v <= 2 { visit(self.error_code); }",
        ] {
            assert!(code.contains(line), "{line} is not in\n{code}");
        }
        assert_eq!(code.matches("visit(self.error_code)").count(), 1, "{code}");
        assert_eq!(code.matches("fn for_each_error_code").count(), 2, "{code}");
    }
}
