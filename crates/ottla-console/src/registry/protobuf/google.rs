//! The files that Protobuf's compiler brings along, which schemas import without a reference: their
//! types, without options and comments.

pub(super) fn file(name: &str) -> Option<&'static str> {
    Some(match name.strip_prefix("google/protobuf/")? {
        "any.proto" => include_str!("google/any.proto"),
        "api.proto" => include_str!("google/api.proto"),
        "compiler/plugin.proto" => include_str!("google/plugin.proto"),
        "descriptor.proto" => include_str!("google/descriptor.proto"),
        "duration.proto" => include_str!("google/duration.proto"),
        "empty.proto" => include_str!("google/empty.proto"),
        "field_mask.proto" => include_str!("google/field_mask.proto"),
        "source_context.proto" => include_str!("google/source_context.proto"),
        "struct.proto" => include_str!("google/struct.proto"),
        "timestamp.proto" => include_str!("google/timestamp.proto"),
        "type.proto" => include_str!("google/type.proto"),
        "wrappers.proto" => include_str!("google/wrappers.proto"),
        _ => return None,
    })
}
