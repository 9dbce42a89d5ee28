//! Generates test support for every struct: a sample value for a version, and a canonical text.

use std::fmt::Write as _;

use super::fields::null_expression;
use super::struct_context::condition;
use crate::names::{field as field_name, snake_case};
use crate::schema::{Message, Struct, Versions};

pub(super) fn print(out: &mut String, message: &Message, shape: &Struct) {
    let module = snake_case(&message.name);
    let _ = writeln!(out, "impl Sample for {module}::{} {{", shape.name);
    out.push_str(
        "    fn sample(s: &mut Sampler, v: i16) -> Self {\n        let mut m = Self::default();\n",
    );
    for field in &shape.fields {
        let target = field_name(&field.name);
        let value = null_expression(
            field,
            "Sample::sample(s, v)",
            "Some(Sample::sample(s, v))",
            "s.nullable(v)",
        );
        let statement = format!("m.{target} = {value};");
        let _ = match condition(field.versions, shape.versions) {
            None => writeln!(out, "        {statement}"),
            Some(condition) => writeln!(out, "        if {condition} {{ {statement} }}"),
        };
    }
    let flexible = message.flexible.intersect(shape.versions);
    print_unknown_tags(out, flexible, shape.versions);
    out.push_str(
        "        m\n    }\n    fn dump(&self, out: &mut String) {\n        dump_struct(out, &[\n",
    );
    let mut names: Vec<&str> = shape
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    names.sort_by_key(|name| name.to_lowercase());
    for name in names {
        let _ = writeln!(
            out,
            "            (\"{}\", &self.{} as &dyn DumpSample),",
            name.to_lowercase(),
            field_name(name)
        );
    }
    out.push_str("        ]);\n    }\n}\n");
}

fn print_unknown_tags(out: &mut String, flexible: Versions, all: Versions) {
    if flexible.is_none() {
        return;
    }
    let statement = "m.unknown_tagged_fields = s.unknown_tagged_fields();";
    let _ = match condition(flexible, all) {
        None => writeln!(out, "        {statement}"),
        Some(condition) => writeln!(out, "        if {condition} {{ {statement} }}"),
    };
}
