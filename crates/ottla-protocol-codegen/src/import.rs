//! Converts the schema JSON in Kafka's jars to the model.
//!
//! Names, types, versions and defaults are imported; descriptions are not. `entityType`, `zeroCopy`
//! (everything here is zero-copy) and `about` are deliberately ignored. An unknown key is an error,
//! so that no feature of a newer Kafka is lost silently.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::notation;
use crate::schema::{Field, Kind, Message, Struct, Type, Versions};

/// A jar or a schema could not be read.
#[derive(Debug)]
pub struct ImportError(String);

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImportError {}

/// Reads the schemas in these jars. Returns the text in the notation by schema file name.
pub fn import(jars: &[PathBuf]) -> Result<BTreeMap<&'static str, String>, ImportError> {
    let mut files: BTreeMap<&'static str, Vec<Message>> = BTreeMap::new();
    for jar in jars {
        for (entry, json) in schemas_of(jar)? {
            let message = message(&json)
                .map_err(|problem| ImportError(format!("{}: {entry}: {problem}", jar.display())))?;
            files
                .entry(file_of(&entry, &message))
                .or_default()
                .push(message);
        }
    }
    Ok(files
        .into_iter()
        .map(|(file, mut messages)| {
            messages.sort_by_key(|message| {
                (
                    message.api_key.is_none(),
                    message.api_key,
                    message.name.clone(),
                )
            });
            (file, format!("{HEADER}{}", notation::print(&messages)))
        })
        .collect())
}

const HEADER: &str = "\
# Made by `cargo xtask codegen` from the schemas in Apache Kafka's jars; not written by hand.
# docs/wire-types.md explains the notation.
";

/// The schema file, and thereby the Rust module, to which a message belongs.
fn file_of(entry: &str, message: &Message) -> &'static str {
    match message.kind {
        Kind::Request | Kind::Response | Kind::Header => "messages",
        Kind::CoordinatorKey | Kind::CoordinatorValue => match message.name.as_str() {
            name if name.starts_with("TransactionLog") => "transaction_records",
            "ShareSnapshotKey" | "ShareSnapshotValue" | "ShareUpdateKey" | "ShareUpdateValue" => {
                "share_records"
            }
            _ => "group_records",
        },
        Kind::Metadata if entry.starts_with("common/metadata/") => "metadata_records",
        Kind::Metadata => "storage_records",
        Kind::Data => match message.name.as_str() {
            "ConsumerProtocolSubscription"
            | "ConsumerProtocolAssignment"
            | "DefaultPrincipalData" => "messages",
            "AbortedTxn" | "ProducerSnapshot" | "EndTxnMarker" => "storage_records",
            _ => "raft_records",
        },
    }
}

fn schemas_of(jar: &Path) -> Result<Vec<(String, Value)>, ImportError> {
    let error = |problem: &dyn fmt::Display| ImportError(format!("{}: {problem}", jar.display()));
    let file = File::open(jar).map_err(|e| error(&e))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| error(&e))?;
    let mut schemas = Vec::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|e| error(&e))?;
        let name = entry.name().map_err(|e| error(&e))?.into_owned();
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        if !name.ends_with(".json")
            || !["common/message", "common/metadata", "message"].contains(&folder)
        {
            continue;
        }
        let mut text = String::new();
        entry.read_to_string(&mut text).map_err(|e| error(&e))?;
        let json = serde_json::from_str(&without_comments(&text))
            .map_err(|e| error(&format!("{name}: {e}")))?;
        schemas.push((name, json));
    }
    if schemas.is_empty() {
        return Err(error(&"holds no message schemas"));
    }
    Ok(schemas)
}

/// Kafka's schemas are JSON with `//` comments.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut in_string = false;
        let mut end = line.len();
        let bytes = line.as_bytes();
        for (index, &byte) in bytes.iter().enumerate() {
            match byte {
                b'"' if index == 0 || bytes[index - 1] != b'\\' => in_string = !in_string,
                b'/' if !in_string && bytes.get(index + 1) == Some(&b'/') => {
                    end = index;
                    break;
                }
                _ => {}
            }
        }
        out.push_str(&line[..end]);
        out.push('\n');
    }
    out
}

fn message(json: &Value) -> Result<Message, String> {
    known_keys(
        json,
        &[
            "apiKey",
            "type",
            "listeners",
            "name",
            "validVersions",
            "flexibleVersions",
            "fields",
            "commonStructs",
            "latestVersionUnstable",
        ],
    )?;
    let versions = versions_of(json, "validVersions")?.ok_or("has no validVersions")?;
    let kind = text(json, "type")?;
    let mut message = Message {
        kind: Kind::from_word(kind).ok_or_else(|| format!("type {kind:?} is not known"))?,
        name: text(json, "name")?.to_owned(),
        api_key: json["apiKey"].as_i64().map(|key| key as i16),
        versions,
        flexible: versions_of(json, "flexibleVersions")?
            .unwrap_or(Versions::NONE)
            .intersect(versions),
        listeners: list(json, "listeners")
            .filter_map(|listener| listener.as_str().map(str::to_owned))
            .collect(),
        latest_version_unstable: json["latestVersionUnstable"].as_bool() == Some(true),
        fields: Vec::new(),
        structs: Vec::new(),
    };
    message.fields = fields(json, versions)?;
    for shared in list(json, "commonStructs") {
        let versions = versions_of(shared, "versions")?
            .ok_or("struct without versions")?
            .intersect(versions);
        message.structs.push(Struct {
            name: text(shared, "name")?.to_owned(),
            versions,
            fields: fields(shared, versions)?,
        });
    }
    Ok(message)
}

/// The fields that exist in any version of their parent; Kafka's schemas also list some that do not.
fn fields(json: &Value, parent: Versions) -> Result<Vec<Field>, String> {
    let mut out = Vec::new();
    for json in list(json, "fields") {
        let field = field(json, parent)?;
        if !field.versions.is_none() {
            out.push(field);
        }
    }
    Ok(out)
}

fn field(json: &Value, parent: Versions) -> Result<Field, String> {
    known_keys(
        json,
        &[
            "name",
            "type",
            "versions",
            "nullableVersions",
            "taggedVersions",
            "tag",
            "default",
            "ignorable",
            "mapKey",
            "flexibleVersions",
            "fields",
            "about",
            "entityType",
            "zeroCopy",
        ],
    )?;
    let name = text(json, "name")?;
    let versions = versions_of(json, "versions")?
        .or(versions_of(json, "taggedVersions")?)
        .ok_or_else(|| format!("{name} has no versions"))?
        .intersect(parent);
    let tagged = versions_of(json, "taggedVersions")?
        .unwrap_or(Versions::NONE)
        .intersect(versions);
    let tag = json["tag"].as_u64().map(|tag| (tag as u32, tagged));
    if tag.is_none() != tagged.is_none() && !versions.is_none() {
        return Err(format!("{name} has a tag or taggedVersions, but not both"));
    }
    let inflexible = match versions_of(json, "flexibleVersions")? {
        None => false,
        Some(Versions::NONE) => true,
        Some(_) => return Err(format!("{name} has flexibleVersions other than none")),
    };
    Ok(Field {
        name: name.to_owned(),
        kind: Type::parse(text(json, "type")?),
        versions,
        nullable: versions_of(json, "nullableVersions")?
            .unwrap_or(Versions::NONE)
            .intersect(versions),
        tag,
        default: default(&json["default"], json.get("default").is_some())?,
        ignorable: json["ignorable"].as_bool() == Some(true),
        map_key: json["mapKey"].as_bool() == Some(true),
        inflexible,
        fields: fields(json, versions)?,
    })
}

/// Kafka writes defaults as JSON values or as strings. Only the string `"null"` is a default of null:
/// Kafka's generator treats the JSON value null as no default, so that such a field starts empty.
fn default(json: &Value, present: bool) -> Result<Option<String>, String> {
    match json {
        _ if !present => Ok(None),
        Value::Null => Ok(None),
        Value::Bool(value) => Ok(Some(value.to_string())),
        Value::Number(value) => Ok(Some(value.to_string())),
        Value::String(value) if value.is_empty() => Ok(None),
        Value::String(value) => Ok(Some(value.clone())),
        other => Err(format!("{other} is no default")),
    }
    .map(|value| value.filter(|value| !["0", "false"].contains(&value.as_str())))
}

fn known_keys(json: &Value, known: &[&str]) -> Result<(), String> {
    let object = json.as_object().ok_or("is not an object")?;
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("{key:?} is not known")),
        None => Ok(()),
    }
}

fn text<'a>(json: &'a Value, key: &str) -> Result<&'a str, String> {
    json[key]
        .as_str()
        .ok_or_else(|| format!("{key} is missing"))
}

fn list<'a>(json: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    json[key].as_array().into_iter().flatten()
}

fn versions_of(json: &Value, key: &str) -> Result<Option<Versions>, String> {
    match json[key].as_str() {
        None => Ok(None),
        Some(text) => Versions::parse(text)
            .map(Some)
            .ok_or_else(|| format!("{key} {text:?} is no version range")),
    }
}

#[cfg(test)]
mod tests {
    use super::{message, without_comments};
    use crate::notation;

    #[test]
    fn comments_end_a_line_but_not_inside_a_string() {
        assert_eq!(
            without_comments("{ \"a\": \"x//y\" } // z\n// all"),
            "{ \"a\": \"x//y\" } \n\n"
        );
    }

    #[test]
    fn json_becomes_notation() {
        let json = serde_json::json!({
            "apiKey": 1, "type": "request", "name": "FetchRequest", "listeners": ["broker"],
            "validVersions": "4-18", "flexibleVersions": "12+",
            "fields": [
                { "name": "Gone", "type": "int8", "versions": "0-3" },
                { "name": "Max", "type": "int32", "versions": "0+", "default": "0x7fffffff", "about": "x" },
                { "name": "Cluster", "type": "string", "versions": "12+", "nullableVersions": "12+",
                  "taggedVersions": "12+", "tag": 0, "default": "null", "ignorable": true },
                { "name": "Rack", "type": "string", "versions": "0+", "nullableVersions": "0+", "default": null },
                { "name": "Topics", "type": "[]Topic", "versions": "0+", "fields": [
                    { "name": "Name", "type": "string", "versions": "0-12", "mapKey": true } ] },
            ]
        });
        let text = notation::print(&[message(&json).unwrap()]);
        assert_eq!(
            text,
            "\nrequest 1 FetchRequest 4-18 flexible 12+ on broker\n  Max: int32 = 0x7fffffff\n  \
             Cluster: string? = null 12+ tag 0 ignorable\n  Rack: string?\n  Topics: []Topic\n    Name: string 4-12 key\n"
        );
    }

    #[test]
    fn unknown_keys_are_refused() {
        let json =
            serde_json::json!({ "type": "data", "name": "X", "validVersions": "0", "new": 1 });
        assert!(message(&json).unwrap_err().contains("new"));
    }
}
