//! Generates the Rust code of a schema file: one module per message, then the code that connects
//! the messages.
//!
//! The generated code uses the hand-written runtime of `ottla-protocol` (`Reader`, `Encoder`, the
//! record macros), so decoding and encoding take one line per field. All code generated here is a
//! function of the schema; only version checks happen at run time.

mod error_codes;
mod fields;
mod samples;
mod shapes;
mod struct_context;
mod structs;

use std::fmt::Write as _;

use crate::names::snake_case;
use crate::schema::{Kind, Message, Versions};
use shapes::shapes_of;

/// Prints the modules and re-exports of one schema file.
pub fn generate(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages
        .iter()
        .filter(|message| !message.versions.is_none())
    {
        let module = snake_case(&message.name);
        let _ = writeln!(out, "pub mod {module} {{");
        out.push_str("    #[allow(unused_imports)]\n    use crate::generated::prelude::*;\n");
        for (index, shape) in shapes_of(message).iter().enumerate() {
            structs::print(&mut out, message, shape, index == 0);
        }
        print_traits(&mut out, message);
        out.push_str("}\n");
        let _ = writeln!(out, "pub use {module}::{};\n", message.name);
    }
    out
}

/// Prints the samples of one schema file, for tests and tools.
pub fn generate_samples(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages
        .iter()
        .filter(|message| !message.versions.is_none())
    {
        for shape in shapes_of(message) {
            samples::print(&mut out, message, &shape);
        }
    }
    out
}

fn print_traits(out: &mut String, message: &Message) {
    let name = &message.name;
    let range = range_of(message.versions);
    let flexible_from = match message.flexible.lowest() {
        Some(lowest) => format!("Some({lowest})"),
        None => "None".into(),
    };
    let _ = write!(
        out,
        "    impl {name} {{\n        pub const NAME: &'static str = \"{name}\";\n        \
         pub const VERSIONS: RangeInclusive<i16> = {range};\n        \
         pub const FLEXIBLE_FROM: Option<i16> = {flexible_from};\n"
    );
    if let (Kind::Metadata | Kind::CoordinatorKey | Kind::CoordinatorValue, Some(api_key)) =
        (message.kind, message.api_key)
    {
        let _ = writeln!(
            out,
            "        /// The record type.\n        pub const API_KEY: i16 = {api_key};"
        );
    }
    out.push_str("    }\n");
    if matches!(message.kind, Kind::Request | Kind::Response) {
        let api = api_name(name);
        let _ = write!(
            out,
            "    impl ApiMessage for {name} {{\n        const API_KEY: ApiKey = ApiKey::{api};\n        \
             const VERSIONS: RangeInclusive<i16> = {range};\n        \
             const FLEXIBLE_FROM: Option<i16> = {flexible_from};\n    }}\n"
        );
        if message.kind == Kind::Request {
            let response = format!("{api}Response");
            let _ = write!(
                out,
                "    impl ApiRequest for {name} {{\n        \
                 type Response = crate::messages::{response};\n    }}\n"
            );
        }
    }
}

/// `ProduceRequest` -> `Produce`: Kafka's name of the API.
fn api_name(name: &str) -> &str {
    name.strip_suffix("Request")
        .or(name.strip_suffix("Response"))
        .unwrap_or(name)
}

fn range_of(versions: Versions) -> String {
    match (versions.lowest(), versions.highest()) {
        (Some(lowest), Some(highest)) => format!("{lowest}..={highest}"),
        _ => "0..=-1".into(),
    }
}

/// Prints the `api_keys!` table: one line per API, including those that Kafka removed.
pub fn generate_api_keys(messages: &[Message]) -> String {
    let mut out = String::from("api_keys! {\n");
    for request in messages
        .iter()
        .filter(|message| message.kind == Kind::Request)
    {
        let api = api_name(&request.name);
        let response = messages
            .iter()
            .find(|other| other.kind == Kind::Response && other.api_key == request.api_key)
            .unwrap_or_else(|| panic!("{api} has no response"));
        let first = |versions: Versions| match versions.lowest() {
            Some(lowest) => format!("Some({lowest})"),
            None => "None".into(),
        };
        let _ = writeln!(
            out,
            "    {api} = {}, {}, request flexible {}, response flexible {}, broker {}, controller {}, unstable {};",
            request
                .api_key
                .unwrap_or_else(|| panic!("{api} has no number")),
            range_of(request.versions),
            first(request.flexible),
            first(response.flexible),
            request
                .listeners
                .iter()
                .any(|listener| listener == "broker"),
            request
                .listeners
                .iter()
                .any(|listener| listener == "controller"),
            request.latest_version_unstable,
        );
    }
    out.push_str("}\n");
    out
}

/// Prints `name! { enum_name; 2 => Topic(TopicRecord), … }` for records that carry their type.
pub fn generate_record_enum(messages: &[Message], macro_name: &str, enum_name: &str) -> String {
    let mut out = format!("{macro_name}! {{ {enum_name};\n");
    for message in messages
        .iter()
        .filter(|message| message.kind == Kind::Metadata)
    {
        let variant = message.name.strip_suffix("Record").unwrap_or(&message.name);
        let key = message
            .api_key
            .unwrap_or_else(|| panic!("{} has no number", message.name));
        let _ = writeln!(out, "    {key} => {variant}({}),", message.name);
    }
    out.push_str("}\n");
    out
}

/// Prints the `coordinator_records!` table: record type => name(key struct, value struct).
pub fn generate_coordinator_enum(messages: &[Message], key_enum: &str, value_enum: &str) -> String {
    let mut out = format!("coordinator_records! {{ {key_enum}, {value_enum};\n");
    for key in messages
        .iter()
        .filter(|message| message.kind == Kind::CoordinatorKey)
    {
        let value = messages
            .iter()
            .find(|other| other.kind == Kind::CoordinatorValue && other.api_key == key.api_key)
            .unwrap_or_else(|| panic!("{} has no value", key.name));
        let _ = writeln!(
            out,
            "    {} => {}({}, {}),",
            key.api_key
                .unwrap_or_else(|| panic!("{} has no number", key.name)),
            key.name.strip_suffix("Key").unwrap_or(&key.name),
            key.name,
            value.name
        );
    }
    out.push_str("}\n");
    out
}

/// Prints a macro that calls another macro with every message (module, kind and struct), for tests
/// and fuzzing.
pub fn generate_list(files: &[(&str, &[Message])]) -> String {
    let mut out =
        String::from("macro_rules! for_each_message {\n    ($call:ident) => {\n        $call! {\n");
    for (module, messages) in files {
        for message in messages
            .iter()
            .filter(|message| !message.versions.is_none())
        {
            let kind = message.kind.word().replace('-', "_");
            let _ = writeln!(out, "            {module} {kind} {};", message.name);
        }
    }
    out.push_str("        }\n    };\n}\n");
    out
}
