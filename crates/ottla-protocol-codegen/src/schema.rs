//! The model of a schema, from which both the notation and the Rust code are printed.
//!
//! All version ranges are closed and clamped to the parent's range: a field's to its struct's, a
//! nested struct's to its field's. Where Kafka writes `0+` to mean "always", a field here has the
//! range of its parent, so that the generated code checks no version that cannot occur.

use std::fmt;

/// An inclusive range of versions, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    range: Option<(i16, i16)>,
}

impl Versions {
    pub const NONE: Versions = Versions { range: None };
    pub const ALL: Versions = Versions {
        range: Some((0, i16::MAX)),
    };

    pub fn new(lowest: i16, highest: i16) -> Versions {
        Versions {
            range: (lowest <= highest).then_some((lowest, highest)),
        }
    }

    pub fn is_none(self) -> bool {
        self.range.is_none()
    }

    /// The first version, if there is one.
    pub fn lowest(self) -> Option<i16> {
        self.range.map(|(lowest, _)| lowest)
    }

    /// The last version, if there is one.
    pub fn highest(self) -> Option<i16> {
        self.range.map(|(_, highest)| highest)
    }

    pub fn contains(self, version: i16) -> bool {
        self.range
            .is_some_and(|(lowest, highest)| (lowest..=highest).contains(&version))
    }

    pub fn intersect(self, other: Versions) -> Versions {
        match (self.range, other.range) {
            (Some(a), Some(b)) => Versions::new(a.0.max(b.0), a.1.min(b.1)),
            _ => Versions::NONE,
        }
    }

    /// Parses `3`, `3+`, `3-7` or `none`.
    pub fn parse(text: &str) -> Option<Versions> {
        if text == "none" {
            return Some(Versions::NONE);
        }
        if let Some(lowest) = text.strip_suffix('+') {
            return Some(Versions::new(lowest.parse().ok()?, i16::MAX));
        }
        match text.split_once('-') {
            Some((lowest, highest)) => {
                Some(Versions::new(lowest.parse().ok()?, highest.parse().ok()?))
            }
            None => text.parse().ok().map(|only| Versions::new(only, only)),
        }
    }

    /// Prints in a form for which [`Versions::parse`], clamped to `within`, returns the same range.
    pub fn display_within(self, within: Versions) -> String {
        match self.range {
            None => "none".into(),
            Some((lowest, highest)) if Some(highest) == within.highest() && lowest != highest => {
                format!("{lowest}+")
            }
            Some((lowest, highest)) if lowest == highest => match within.highest() {
                Some(last) if last == highest => format!("{lowest}+"),
                _ => lowest.to_string(),
            },
            Some((lowest, highest)) => format!("{lowest}-{highest}"),
        }
    }
}

/// The purpose of a message; determines its module and what identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Response,
    Header,
    Data,
    /// A record of the metadata log, or of the remote log metadata topic.
    Metadata,
    CoordinatorKey,
    CoordinatorValue,
}

impl Kind {
    pub const ALL: [Kind; 7] = [
        Kind::Request,
        Kind::Response,
        Kind::Header,
        Kind::Data,
        Kind::Metadata,
        Kind::CoordinatorKey,
        Kind::CoordinatorValue,
    ];

    /// Kafka's word, as in the JSON and in the notation.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Request => "request",
            Kind::Response => "response",
            Kind::Header => "header",
            Kind::Data => "data",
            Kind::Metadata => "metadata",
            Kind::CoordinatorKey => "coordinator-key",
            Kind::CoordinatorValue => "coordinator-value",
        }
    }

    pub fn from_word(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint16,
    Uint32,
    Float64,
    Uuid,
    String,
    Bytes,
    Records,
    Struct(String),
    Array(Box<Type>),
}

impl Type {
    pub fn parse(text: &str) -> Type {
        match text {
            "bool" => Type::Bool,
            "int8" => Type::Int8,
            "int16" => Type::Int16,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "uint16" => Type::Uint16,
            "uint32" => Type::Uint32,
            "float64" => Type::Float64,
            "uuid" => Type::Uuid,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "records" => Type::Records,
            _ => match text.strip_prefix("[]") {
                Some(element) => Type::Array(Box::new(Type::parse(element))),
                None => Type::Struct(text.to_owned()),
            },
        }
    }

    /// The struct that this type is, or whose array it is.
    pub fn struct_name(&self) -> Option<&str> {
        match self {
            Type::Struct(name) => Some(name),
            Type::Array(element) => element.struct_name(),
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Bool => "bool",
            Type::Int8 => "int8",
            Type::Int16 => "int16",
            Type::Int32 => "int32",
            Type::Int64 => "int64",
            Type::Uint16 => "uint16",
            Type::Uint32 => "uint32",
            Type::Float64 => "float64",
            Type::Uuid => "uuid",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Records => "records",
            Type::Struct(name) => name,
            Type::Array(element) => return write!(f, "[]{element}"),
        })
    }
}

/// One field of a message or struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub kind: Type,
    pub versions: Versions,
    /// Versions in which the field is nullable.
    pub nullable: Versions,
    /// The tag, and the versions in which the field is written as a tagged field.
    pub tag: Option<(u32, Versions)>,
    /// In Kafka's notation; `null` for null. `None` means the type's zero value.
    pub default: Option<String>,
    /// Whether a version that cannot express the value drops it instead of refusing to encode.
    pub ignorable: bool,
    /// Whether the field is part of the key when Kafka keeps the array's elements in a map.
    pub map_key: bool,
    /// Whether the field is never in compact form although the message is flexible (the client ID
    /// of the request header).
    pub inflexible: bool,
    /// The fields of the struct that this field defines inline.
    pub fields: Vec<Field>,
}

impl Field {
    pub fn default_is_null(&self) -> bool {
        self.default.as_deref() == Some("null")
    }
}

/// A struct that several fields of a message share (`commonStructs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    pub name: String,
    pub versions: Versions,
    pub fields: Vec<Field>,
}

/// One schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    pub name: String,
    pub api_key: Option<i16>,
    /// `None` for an API that Kafka removed and whose number it reserves.
    pub versions: Versions,
    pub flexible: Versions,
    /// Listeners on which a request is served: `broker`, `controller`.
    pub listeners: Vec<String>,
    pub latest_version_unstable: bool,
    pub fields: Vec<Field>,
    pub structs: Vec<Struct>,
}
