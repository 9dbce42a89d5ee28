//! One struct: its definition, its default, decoding and encoding.

use std::fmt::Write as _;

use crate::names;
use crate::rust::struct_context::{StructContext, condition};
use crate::rust::{error_codes, fields};
use crate::schema::{Field, Kind, Message, Struct, Versions};

pub(super) fn print(out: &mut String, message: &Message, shape: &Struct, is_message: bool) {
    let context = StructContext { message, shape };
    print_definition(out, &context);
    print_default(out, &context);
    let _ = writeln!(out, "    impl Message for {} {{", shape.name);
    print_decode(out, &context, is_message);
    print_encode(out, &context, is_message);
    if message.kind == Kind::Response {
        error_codes::print(out, message, shape);
        if is_message {
            print_throttle_time(out, shape);
        }
    }
    out.push_str("    }\n");
    if message.kind == Kind::Response && shape.fields.iter().any(error_codes::is_error_code) {
        let _ = write!(
            out,
            "    impl ErrorResponse for {} {{\n        fn set_error_code(&mut self, error: ErrorCode) {{ \
             self.error_code = error.code(); }}\n    }}\n",
            shape.name
        );
    }
}

/// Prints the throttle time accessors, if the response has the field.
fn print_throttle_time(out: &mut String, shape: &Struct) {
    if shape.fields.iter().all(|it| it.name != "ThrottleTimeMs") {
        return;
    }
    out.push_str("        fn throttle_time_ms(&self) -> i32 { self.throttle_time_ms }\n");
    out.push_str(
        "        fn set_throttle_time_ms(&mut self, time_ms: i32) { self.throttle_time_ms = time_ms; }\n",
    );
}

fn derives_default(shape: &Struct) -> bool {
    shape
        .fields
        .iter()
        .all(|field| fields::default_value(field) == "Default::default()")
}

fn print_definition(out: &mut String, context: &StructContext<'_>) {
    let shape = context.shape;
    let default = if derives_default(shape) {
        ", Default"
    } else {
        ""
    };
    let _ = writeln!(out, "    #[derive(Clone, Debug, PartialEq{default})]");
    let _ = writeln!(out, "    pub struct {} {{", shape.name);
    for field in &shape.fields {
        let note = fields::version_note(field, shape.versions);
        if !note.is_empty() {
            let _ = writeln!(out, "        /// {note}");
        }
        let _ = writeln!(
            out,
            "        pub {}: {},",
            names::field(&field.name),
            fields::rust_type(field)
        );
    }
    if context.has_tags() {
        out.push_str("        pub unknown_tagged_fields: UnknownTaggedFields,\n");
    }
    out.push_str("    }\n");
}

fn print_default(out: &mut String, context: &StructContext<'_>) {
    let shape = context.shape;
    if derives_default(shape) {
        return;
    }
    let _ = writeln!(out, "    impl Default for {} {{", shape.name);
    out.push_str("        fn default() -> Self {\n            Self {\n");
    for field in &shape.fields {
        let _ = writeln!(
            out,
            "                {}: {},",
            names::field(&field.name),
            fields::default_value(field)
        );
    }
    if context.has_tags() {
        out.push_str("                unknown_tagged_fields: UnknownTaggedFields::NONE,\n");
    }
    out.push_str("            }\n        }\n    }\n");
}

/// Prints `let flexible = v >= 9;` unless it is a constant.
fn print_flexible(out: &mut String, context: &StructContext<'_>) {
    let lowest = context.message.flexible.lowest();
    if let ("flexible", Some(lowest)) = (context.flexible_expression(), lowest) {
        let _ = writeln!(out, "            let flexible = v >= {lowest};");
    }
}

fn print_decode(out: &mut String, context: &StructContext<'_>, is_message: bool) {
    let shape = context.shape;
    out.push_str("        fn decode(r: &mut Reader, v: i16) -> Result<Self, DecodeError> {\n");
    if is_message {
        out.push_str("            check_decode_version(Self::NAME, &Self::VERSIONS, v)?;\n");
    }
    print_flexible(out, context);
    out.push_str("            let mut m = Self::default();\n");
    for field in &shape.fields {
        let untagged = untagged_versions(field);
        if untagged.is_none() {
            continue;
        }
        let statement = format!(
            "m.{} = {};",
            names::field(&field.name),
            fields::decode(context, field, untagged)
        );
        match condition(untagged, shape.versions) {
            None => {
                let _ = writeln!(out, "            {statement}");
            }
            Some(condition) => {
                let _ = writeln!(out, "            if {condition} {{ {statement} }}");
            }
        }
    }
    if context.has_tags() {
        let indent = if context.flexible_expression() == "true" {
            ""
        } else {
            "    "
        };
        if !indent.is_empty() {
            out.push_str("            if flexible {\n");
        }
        print_decode_tags(out, context, indent);
        if !indent.is_empty() {
            out.push_str("            }\n");
        }
    }
    out.push_str("            Ok(m)\n        }\n");
}

fn print_decode_tags(out: &mut String, context: &StructContext<'_>, indent: &str) {
    let tagged = tagged_fields(context.shape);
    if tagged.is_empty() {
        let _ = writeln!(
            out,
            "            {indent}m.unknown_tagged_fields = r.unknown_tagged_fields()?;"
        );
        return;
    }
    let _ = writeln!(
        out,
        "            {indent}m.unknown_tagged_fields = r.tagged_fields(|r, tag| {{ match tag {{"
    );
    for (tag, versions, field) in tagged {
        let target = names::field(&field.name);
        let value = fields::decode(context, field, versions);
        let guard = match condition(versions, flexible_range(context)) {
            None => String::new(),
            Some(condition) => {
                format!("if !({condition}) {{ return Err(r.tag_not_valid(tag, v)); }} ")
            }
        };
        let _ = writeln!(
            out,
            "                {indent}{tag} => {{ {guard}m.{target} = {value}; }}"
        );
    }
    let _ = writeln!(
        out,
        "                {indent}_ => return Ok(false),\n            {indent}}} Ok(true) }})?;"
    );
}

fn print_encode(out: &mut String, context: &StructContext<'_>, is_message: bool) {
    let shape = context.shape;
    out.push_str(
        "        fn encode(&self, w: &mut Encoder, v: i16) -> Result<(), EncodeError> {\n",
    );
    if is_message {
        out.push_str("            check_encode_version(Self::NAME, &Self::VERSIONS, v)?;\n");
    }
    print_flexible(out, context);
    for field in &shape.fields {
        let untagged = untagged_versions(field);
        if !untagged.is_none() {
            let statement = fields::encode(context, field, untagged);
            match condition(untagged, shape.versions) {
                None => {
                    let _ = writeln!(out, "            {statement}");
                }
                Some(condition) => {
                    let _ = writeln!(out, "            if {condition} {{ {statement} }}");
                }
            }
        }
        if let (false, Some(condition)) =
            (field.ignorable, condition(field.versions, shape.versions))
        {
            let _ = writeln!(
                out,
                "            if !({condition}) && {} {{ return Err(not_representable(\"{}.{}\", v)); }}",
                fields::is_set(field),
                shape.name,
                field.name
            );
        }
    }
    if context.has_tags() {
        let expression = context.flexible_expression();
        if expression != "true" {
            let _ = writeln!(
                out,
                "            if !flexible {{ return w.no_tagged_fields(&self.unknown_tagged_fields, \"{}\", v); }}",
                shape.name
            );
        }
        print_encode_tags(out, context);
    } else {
        out.push_str("            Ok(())\n");
    }
    out.push_str("        }\n");
}

fn print_encode_tags(out: &mut String, context: &StructContext<'_>) {
    let tagged = tagged_fields(context.shape);
    if tagged.is_empty() {
        out.push_str("            w.unknown_tagged_fields(&self.unknown_tagged_fields)\n");
        return;
    }
    let mut count = Vec::new();
    for (tag, versions, field) in &tagged {
        let is_set = fields::is_set(field);
        let present = match condition(*versions, flexible_range(context)) {
            None => is_set,
            Some(condition) => format!("{condition} && {is_set}"),
        };
        let _ = writeln!(out, "            let tag_{tag} = {present};");
        count.push(format!("usize::from(tag_{tag})"));
    }
    let _ = writeln!(
        out,
        "            let mut tags = w.tagged_fields(&self.unknown_tagged_fields, {});",
        count.join(" + ")
    );
    for (tag, versions, field) in &tagged {
        let _ = writeln!(
            out,
            "            if tag_{tag} {{ tags.field({tag}, |w| {{ {} Ok(()) }})?; }}",
            fields::encode(context, field, *versions)
        );
    }
    out.push_str("            tags.finish()\n");
}

/// The versions of this struct in which it has a tag section.
fn flexible_range(context: &StructContext<'_>) -> Versions {
    context.message.flexible.intersect(context.shape.versions)
}

fn tagged_fields(shape: &Struct) -> Vec<(u32, Versions, &Field)> {
    let mut tagged: Vec<_> = shape
        .fields
        .iter()
        .filter_map(|field| field.tag.map(|(tag, versions)| (tag, versions, field)))
        .collect();
    tagged.sort_by_key(|(tag, _, _)| *tag);
    tagged
}

/// The versions in which the field is encoded among the others, untagged.
fn untagged_versions(field: &Field) -> Versions {
    match (field.tag, field.versions.lowest()) {
        (Some((_, tagged)), Some(lowest)) => {
            let first_tagged = tagged.lowest().expect("a tag is tagged in some version");
            assert_eq!(
                tagged.highest(),
                field.versions.highest(),
                "{}: tagged to the end",
                field.name
            );
            Versions::new(lowest, first_tagged - 1)
        }
        _ => field.versions,
    }
}

#[cfg(test)]
mod tests {
    use crate::notation::parse;
    use crate::rust::generate;
    use crate::rust::struct_context::condition;
    use crate::schema::Versions;

    #[test]
    fn conditions_test_only_what_can_differ() {
        let parent = Versions::new(4, 18);
        let test = |lowest, highest| condition(Versions::new(lowest, highest), parent);
        assert_eq!(test(4, 18), None);
        assert_eq!(test(12, 18).as_deref(), Some("v >= 12"));
        assert_eq!(test(4, 11).as_deref(), Some("v <= 11"));
        assert_eq!(test(7, 11).as_deref(), Some("(7..=11).contains(&v)"));
        assert_eq!(test(7, 7).as_deref(), Some("v == 7"));
    }

    #[test]
    fn a_field_is_one_line_to_decode_and_one_to_encode() {
        let text = "\
data Sample 0-3 flexible 2+
  Name: string? = null 1+
  Count: int32 = -1 0-1
  Extra: []int16 3+ tag 0 ignorable
";
        let code = generate(&parse(text).unwrap());
        for line in [
            "let flexible = v >= 2;",
            "if v >= 1 { m.name = r.nullable_string(flexible)?; }",
            "if v <= 1 { m.count = r.i32()?; }",
            "0 => { if !(v >= 3) { return Err(r.tag_not_valid(tag, v)); } m.extra = r.array(flexible, 2, Reader::i16)?; }",
            "if !(v >= 1) && self.name.is_some() { return Err(not_representable(\"Sample.Name\", v)); }",
            "if !(v <= 1) && self.count != -1 { return Err(not_representable(\"Sample.Count\", v)); }",
            "let tag_0 = v >= 3 && !self.extra.is_empty();",
            "count: -1,",
        ] {
            assert!(code.contains(line), "{line} is not in\n{code}");
        }
    }

    #[test]
    #[should_panic(expected = "contains itself")]
    fn a_struct_that_contains_itself_is_refused() {
        generate(&parse("data Sample 0\n  Nodes: []Node\nstruct Node\n  Inner: []Node\n").unwrap());
    }

    #[test]
    fn an_element_takes_the_fewest_bytes_of_any_version() {
        let text = "\
data Sample 0-3 flexible 2+
  Nodes: []Node
    Id: int32
    Name: string 1+
";
        let code = generate(&parse(text).unwrap());
        // Version 0 has four bytes; version 2 has four, one for the string and one for the tags.
        assert!(code.contains("r.structs(flexible, 4, v)?"), "{code}");
    }
}
