//! One field: its Rust type and default, and the expressions that decode, encode and test it.

use crate::names;
use crate::rust::struct_context::{StructContext, condition};
use crate::schema::{Field, Message, Struct, Type, Versions};

/// The Rust type of the field; an `Option` if it is nullable in any version.
pub(super) fn rust_type(field: &Field) -> String {
    let plain = plain_type(&field.kind);
    if is_option(field) {
        format!("Option<{plain}>")
    } else {
        plain
    }
}

fn is_option(field: &Field) -> bool {
    !field.nullable.is_none() || field.kind == Type::Records
}

fn plain_type(kind: &Type) -> String {
    match kind {
        Type::Bool => "bool".into(),
        Type::Int8 => "i8".into(),
        Type::Int16 => "i16".into(),
        Type::Int32 => "i32".into(),
        Type::Int64 => "i64".into(),
        Type::Uint16 => "u16".into(),
        Type::Uint32 => "u32".into(),
        Type::Float64 => "f64".into(),
        Type::Uuid => "Uuid".into(),
        Type::String => "ByteString".into(),
        Type::Bytes => "Bytes".into(),
        Type::Records => "Records".into(),
        Type::Struct(name) => name.clone(),
        Type::Array(element) => format!("Vec<{}>", plain_type(element)),
    }
}

/// A doc comment about the versions in which the field is on the wire.
pub(super) fn version_note(field: &Field, parent: Versions) -> String {
    let mut notes = Vec::new();
    if field.versions != parent {
        notes.push(match (field.versions.lowest(), field.versions.highest()) {
            (Some(lowest), highest) if highest == parent.highest() => {
                format!("From version {lowest}")
            }
            (lowest, Some(highest)) if lowest == parent.lowest() => {
                format!("To version {highest}")
            }
            _ => format!("Versions {}", field.versions.display_within(parent)),
        });
    }
    if let Some((tag, _)) = field.tag {
        notes.push(format!("tag {tag}"));
    }
    if !field.nullable.is_none() && field.nullable != field.versions {
        notes.push(format!(
            "nullable in {}",
            field.nullable.display_within(field.versions)
        ));
    }
    let mut note = notes.join(", ");
    if !note.is_empty() {
        note[..1].make_ascii_uppercase();
        note.push('.');
    }
    note
}

/// The expression of the default; `Default::default()` if it is the type's own.
pub(super) fn default_value(field: &Field) -> String {
    let type_default = "Default::default()".to_owned();
    if field.kind == Type::Records || field.default_is_null() {
        return type_default;
    }
    let plain = match (&field.kind, &field.default) {
        (_, None) => type_default,
        (Type::String, Some(text)) => format!("ByteString::from_static({text:?})"),
        (Type::Float64, Some(number)) => format!("{number}f64"),
        (_, Some(literal)) => literal.clone(),
    };
    if is_option(field) {
        format!("Some({plain})")
    } else {
        plain
    }
}

/// An expression that is true when the field of `self` differs from its default. A version without
/// the field then refuses to encode it, and a tagged field is written only then.
pub(super) fn is_set(field: &Field) -> String {
    let value = format!("self.{}", names::field(&field.name));
    if !is_option(field) {
        return plain_is_set(&field.kind, field.default.as_deref(), &value, &value);
    }
    if field.kind == Type::Records || field.default_is_null() {
        return format!("{value}.is_some()");
    }
    let inner = plain_is_set(&field.kind, field.default.as_deref(), "x", "*x");
    format!("{value}.as_ref().is_none_or(|x| {inner})")
}

fn plain_is_set(kind: &Type, default: Option<&str>, value: &str, context: &str) -> String {
    match (kind, default) {
        (Type::Bool, Some("true")) => format!("!{context}"),
        (Type::Bool, _) => value.to_owned(),
        (Type::String, Some(text)) => format!("&*{value} != {text:?}"),
        (Type::String | Type::Bytes | Type::Array(_), _) => format!("!{value}.is_empty()"),
        (Type::Uuid, _) => format!("!{value}.is_zero()"),
        (Type::Struct(name), _) => format!("{context} != {name}::default()"),
        (Type::Float64, default) => format!("{context} != {}f64", default.unwrap_or("0")),
        (_, default) => format!("{context} != {}", default.unwrap_or("0")),
    }
}

/// The expression that reads the field in `versions`, from reader `r` at version `v`.
pub(super) fn decode(context: &StructContext<'_>, field: &Field, versions: Versions) -> String {
    let nullable = decode_as(context, field, versions, true);
    let plain = decode_as(context, field, versions, false);
    if field.kind == Type::Records {
        return if field.nullable == field.versions {
            nullable
        } else {
            format!("Some({plain})")
        };
    }
    match null_condition(field, versions) {
        Null::Never if is_option(field) => format!("Some({plain})"),
        Null::Never => plain,
        Null::Always => nullable,
        Null::When(condition) => {
            format!("if {condition} {{ {nullable} }} else {{ Some({plain}) }}")
        }
    }
}

/// Selects among three expressions by version: for a field that is never null, for a value whose
/// field is nullable in other versions, and for a nullable value.
pub(super) fn null_expression(field: &Field, plain: &str, some: &str, nullable: &str) -> String {
    match null_condition(field, field.versions) {
        Null::Never if is_option(field) => some.to_owned(),
        Null::Never => plain.to_owned(),
        Null::Always => nullable.to_owned(),
        Null::When(condition) => format!("if {condition} {{ {nullable} }} else {{ {some} }}"),
    }
}

enum Null {
    Never,
    Always,
    When(String),
}

fn null_condition(field: &Field, versions: Versions) -> Null {
    let nullable = field.nullable.intersect(versions);
    if nullable.is_none() {
        return Null::Never;
    }
    let has_null = matches!(
        field.kind,
        Type::String | Type::Bytes | Type::Records | Type::Struct(_) | Type::Array(_)
    );
    assert!(has_null, "{} cannot be null", field.name);
    match condition(nullable, versions) {
        None => Null::Always,
        Some(condition) => Null::When(condition),
    }
}

/// A part of the runtime's method names if the field is tagged in `versions`: a tagged struct marks
/// null differently than an untagged one.
fn tagged(field: &Field, versions: Versions) -> &'static str {
    if field.tag.is_some_and(|(_, tagged)| tagged == versions) {
        "tagged_"
    } else {
        ""
    }
}

fn decode_as(
    context: &StructContext<'_>,
    field: &Field,
    versions: Versions,
    nullable: bool,
) -> String {
    let flexible = context.flexible(field);
    let null = if nullable { "nullable_" } else { "" };
    match &field.kind {
        Type::String => format!("r.{null}string({flexible})?"),
        Type::Bytes => format!("r.{null}bytes({flexible})?"),
        Type::Records => format!("r.{null}records({flexible})?"),
        Type::Struct(_) if nullable => format!("r.nullable_{}struct(v)?", tagged(field, versions)),
        Type::Struct(name) => format!("{name}::decode(r, v)?"),
        Type::Array(element) => match &**element {
            Type::Struct(name) => {
                let size = least_size(context.message, name);
                format!("r.{null}structs({flexible}, {size}, v)?")
            }
            Type::String => format!("r.{null}strings({flexible})?"),
            Type::Bytes => {
                format!("r.{null}array({flexible}, 1, |r| r.bytes({flexible}))?")
            }
            primitive => {
                let (method, size) = primitive_method(primitive);
                format!("r.{null}array({flexible}, {size}, Reader::{method})?")
            }
        },
        primitive => {
            let (method, _) = primitive_method(primitive);
            format!("r.{method}()?")
        }
    }
}

/// The statement that writes the field in `versions`, to encoder `w` at version `v`.
pub(super) fn encode(context: &StructContext<'_>, field: &Field, versions: Versions) -> String {
    let value = format!("self.{}", names::field(&field.name));
    let label = format!("\"{}.{}\", v", context.shape.name, field.name);
    let required = if is_option(field) {
        format!("required(&{value}, {label})?")
    } else {
        format!("&{value}")
    };
    let nullable = match field.kind {
        Type::Struct(_) => {
            format!(
                "w.nullable_{}struct({value}.as_ref(), v)?;",
                tagged(field, versions)
            )
        }
        _ => encode_as(context, field, true, &value),
    };
    let plain = encode_as(context, field, false, &required);
    match null_condition(field, versions) {
        Null::Never => plain,
        Null::Always => nullable,
        Null::When(condition) => format!("if {condition} {{ {nullable} }} else {{ {plain} }}"),
    }
}

fn encode_as(context: &StructContext<'_>, field: &Field, nullable: bool, value: &str) -> String {
    let flexible = context.flexible(field);
    let null = if nullable { "nullable_" } else { "" };
    let (borrowed, slice) = if nullable {
        (format!("{value}.as_ref()"), format!("{value}.as_deref()"))
    } else {
        (value.to_owned(), value.to_owned())
    };
    match &field.kind {
        Type::String => format!("w.{null}string({flexible}, {borrowed})?;"),
        Type::Bytes => format!("w.{null}bytes({flexible}, {borrowed})?;"),
        Type::Records => format!("w.{null}records({flexible}, {borrowed})?;"),
        Type::Struct(_) if value.starts_with('&') => {
            format!("{}.encode(w, v)?;", value.trim_start_matches('&'))
        }
        Type::Struct(_) => format!("{value}.encode(w, v)?;"),
        Type::Array(element) => match &**element {
            Type::Struct(_) => format!("w.{null}structs({flexible}, {slice}, v)?;"),
            Type::String => format!("w.{null}strings({flexible}, {slice})?;"),
            Type::Bytes => {
                format!("w.{null}array({flexible}, {slice}, |w, x| w.bytes({flexible}, x))?;")
            }
            primitive => {
                let (method, _) = primitive_method(primitive);
                format!("w.{null}array({flexible}, {slice}, |w, x| {{ w.{method}(*x); Ok(()) }})?;")
            }
        },
        primitive => {
            let (method, _) = primitive_method(primitive);
            format!("w.{method}({});", value.trim_start_matches('&'))
        }
    }
}

/// The runtime's method for a type of fixed size, and that size.
fn primitive_method(kind: &Type) -> (&'static str, usize) {
    match kind {
        Type::Bool => ("bool", 1),
        Type::Int8 => ("i8", 1),
        Type::Int16 => ("i16", 2),
        Type::Int32 => ("i32", 4),
        Type::Int64 => ("i64", 8),
        Type::Uint16 => ("u16", 2),
        Type::Uint32 => ("u32", 4),
        Type::Float64 => ("f64", 8),
        Type::Uuid => ("uuid", 16),
        other => panic!("{other} has no fixed size"),
    }
}

/// The minimum encoded size of this struct in any version: an array whose count exceeds what fits
/// into the remaining bytes is refused before anything is allocated.
fn least_size(message: &Message, name: &str) -> usize {
    let shapes = super::shapes::shapes_of(message);
    let shape = shapes
        .iter()
        .find(|shape| shape.name == name)
        .expect("checked before");
    let (lowest, highest) = (shape.versions.lowest(), shape.versions.highest());
    let (Some(lowest), Some(highest)) = (lowest, highest) else {
        return 1;
    };
    (lowest..=highest)
        .map(|version| struct_size(message, &shapes, shape, version))
        .min()
        .unwrap_or(1)
        .max(1)
}

fn struct_size(message: &Message, shapes: &[Struct], shape: &Struct, version: i16) -> usize {
    let flexible = message.flexible.contains(version);
    let mut size = usize::from(flexible);
    for field in shape
        .fields
        .iter()
        .filter(|field| field.versions.contains(version))
    {
        if field
            .tag
            .is_some_and(|(_, versions)| versions.contains(version))
        {
            continue;
        }
        let compact = flexible && !field.inflexible;
        size += match &field.kind {
            Type::String if compact => 1,
            Type::String => 2,
            Type::Bytes | Type::Records | Type::Array(_) if compact => 1,
            Type::Bytes | Type::Records | Type::Array(_) => 4,
            Type::Struct(_) if field.nullable.contains(version) => 1,
            Type::Struct(name) => {
                let inner = shapes
                    .iter()
                    .find(|shape| &shape.name == name)
                    .expect("checked before");
                struct_size(message, shapes, inner, version)
            }
            primitive => primitive_method(primitive).1,
        };
    }
    size
}
