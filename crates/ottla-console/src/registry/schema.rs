//! A schema that records can be decoded with.

use serde::de::IgnoredAny;

use super::avro::AvroSchema;
use super::json::{MOST_BYTES, too_long};
use super::protobuf::ProtobufSchema;
use super::wire::Framed;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Avro,
    Protobuf,
    Json,
}

impl Kind {
    /// By its name in the API of a registry.
    pub(super) fn parse(name: &str) -> Option<Kind> {
        match name {
            "AVRO" => Some(Kind::Avro),
            "PROTOBUF" => Some(Kind::Protobuf),
            "JSON" => Some(Kind::Json),
            _ => None,
        }
    }

    /// Its name in the console's API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Avro => "avro",
            Kind::Protobuf => "protobuf",
            Kind::Json => "json",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Kind::Avro => "Avro",
            Kind::Protobuf => "Protobuf",
            Kind::Json => "JSON",
        }
    }
}

#[derive(Debug)]
pub(super) struct Schema {
    definition: Definition,
    /// Some of the subjects that have it.
    subjects: Vec<String>,
    /// About its size in memory.
    size: usize,
}

#[derive(Debug)]
enum Definition {
    Avro(AvroSchema),
    Protobuf(ProtobufSchema),
    Json,
}

impl Schema {
    /// `references` are names and texts; what others refer to comes before them.
    pub(super) fn parse(
        kind: Kind,
        text: &str,
        references: &[(String, String)],
        subjects: Vec<String>,
    ) -> Result<Schema, String> {
        let definition = match kind {
            Kind::Avro => {
                let texts: Vec<&str> = references.iter().map(|(_, text)| text.as_str()).collect();
                Definition::Avro(AvroSchema::parse(text, &texts)?)
            }
            Kind::Protobuf => Definition::Protobuf(ProtobufSchema::parse(text, references)?),
            Kind::Json => Definition::Json,
        };
        let texts: usize = references.iter().map(|(_, text)| text.len()).sum();
        let names: usize = subjects.iter().map(String::len).sum();
        Ok(Schema {
            definition,
            subjects,
            // Types and descriptors are several times as large as their texts.
            size: 1000 + 10 * (text.len() + texts) + names,
        })
    }

    pub(super) fn kind(&self) -> Kind {
        match self.definition {
            Definition::Avro(_) => Kind::Avro,
            Definition::Protobuf(_) => Kind::Protobuf,
            Definition::Json => Kind::Json,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The subject to show for records of a topic: the topic's own, if it has the schema.
    pub(super) fn subject(&self, topic: &str, part: &str) -> Option<&str> {
        let of_topic = |it: &&String| it.strip_prefix(topic) == Some(part);
        let own = self.subjects.iter().find(of_topic);
        own.or(self.subjects.first()).map(String::as_str)
    }

    /// The JSON of the data. The error says why the data do not fit.
    pub(super) fn decode(&self, framed: &Framed<'_>) -> Result<String, String> {
        match &self.definition {
            Definition::Avro(schema) => schema.decode(framed.data()),
            Definition::Protobuf(schema) => {
                let (place, data) = framed.message()?;
                schema.decode(&place, data)
            }
            // It is copied, and records can be larger than the memory reserved for that.
            Definition::Json if framed.data().len() > MOST_BYTES => Err(too_long()),
            Definition::Json => {
                let text = std::str::from_utf8(framed.data());
                let text = text.map_err(|_| "it is not UTF-8".to_owned())?;
                let parsed = serde_json::from_str::<IgnoredAny>(text);
                parsed.map_err(|error| format!("it is not JSON: {error}"))?;
                Ok(text.to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_subjects_count_and_long_json_is_not_copied() {
        let of = |subjects| Schema::parse(Kind::Json, "{}", &[], subjects).unwrap();
        let (plain, named) = (of(Vec::new()), of(vec!["s".repeat(1 << 20)]));
        assert_eq!(named.size() - plain.size(), 1 << 20);
        let text = |size: usize| {
            let mut bytes = vec![0, 0, 0, 0, 1];
            bytes.resize(bytes.len() + size, b'1');
            plain.decode(&Framed::read(&bytes, None).unwrap())
        };
        assert_eq!(text(3).unwrap(), "111");
        let error = text(MOST_BYTES + 1).unwrap_err();
        assert!(error.contains("MiB"), "{error}");
    }
}
