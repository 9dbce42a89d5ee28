//! Reads schemas from a registry, with all their references.
//!
//! The requests are supported by every registry with Confluent's API: `GET /schemas/ids/{id}` (or
//! `/schemas/guids/{guid}`), `GET /schemas/ids/{id}/versions` for the subjects, and
//! `GET /subjects/{subject}/versions/{version}` for the references of a schema.
//!
//! Blocks; callers run on threads that may block. The time, the number and the size of the
//! responses for one schema are bounded.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ottla_oauth::Server;
use ottla_sasl::Secret;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::schema::{Kind, Schema};
use super::wire::SchemaId;

const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(5);
/// For a schema with all that it refers to.
const TOGETHER: Duration = Duration::from_secs(15);
const MOST_REFERENCES: usize = 200;
const MOST_DEPTH: usize = 30;
/// Of a schema and its references; a response is at most 1 MiB.
const MOST_BYTES: usize = 4 << 20;
const MOST_SUBJECTS: usize = 20;

/// Where a schema registry is, and how the console logs in there.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// Without a slash at its end.
    url: String,
    authorization: Option<Secret>,
    /// `ssl.*`, as for clients of Kafka.
    ssl: BTreeMap<String, Secret>,
}

/// Why there is no schema.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It will not be there soon: it does not exist, or nothing can be made of it.
    Schema(String),
    /// The registry answers nothing useful, for any schema.
    Registry(String),
}

impl Failure {
    pub(super) fn reason(&self) -> &str {
        match self {
            Failure::Schema(reason) | Failure::Registry(reason) => reason,
        }
    }
}

impl RegistryConfig {
    /// The names of the settings come from Confluent's serializers, with or without the prefix
    /// `schema.registry.`: `basic.auth.user.info`, `bearer.auth.token` and `ssl.*`. The error is a
    /// sentence for people.
    pub fn new(url: &str, settings: &BTreeMap<String, String>) -> Result<RegistryConfig, String> {
        let url = url.trim().trim_end_matches('/');
        let refused = |reason: &str| Err(format!("{url}: {reason}"));
        let after = ["http://", "https://"]
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme));
        let Some(after) = after.filter(|it| !it.is_empty() && !it.starts_with('/')) else {
            return refused("not the URL of a schema registry; give http://HOST:PORT or https://…");
        };
        if after.split('/').next().unwrap_or("").contains('@') {
            // The user and the password are not repeated.
            return Err(
                "the URL of the schema registry contains credentials; put them in a file, \
                        as basic.auth.user.info=USER:PASSWORD"
                    .into(),
            );
        }
        if url.contains([',', '?', '#', ' ']) {
            return refused("give one URL, without a query");
        }
        let mut config = RegistryConfig {
            url: url.to_owned(),
            authorization: None,
            ssl: BTreeMap::new(),
        };
        let mut user = None;
        let mut token = None;
        for (name, value) in settings {
            match name.strip_prefix("schema.registry.").unwrap_or(name) {
                "basic.auth.user.info" => user = Some(value),
                "bearer.auth.token" => token = Some(value),
                "basic.auth.credentials.source" if value == "USER_INFO" => {}
                "bearer.auth.credentials.source" if value == "STATIC_TOKEN" => {}
                key if key.starts_with("ssl.") => {
                    let value = Secret::new(value.as_str());
                    config.ssl.insert(key.to_owned(), value);
                }
                _ => {
                    return Err(format!(
                        "{name}: not a setting of a schema registry, or a value that is not \
                         supported; accepted are basic.auth.user.info, bearer.auth.token and ssl.*"
                    ));
                }
            }
        }
        config.authorization = match (user, token) {
            (Some(_), Some(_)) => {
                return Err("give basic.auth.user.info or bearer.auth.token, not both".into());
            }
            (Some(user), None) if !user.contains(':') => {
                return Err("basic.auth.user.info: give USER:PASSWORD".into());
            }
            (Some(user), None) => Some(Secret::new(format!(
                "Basic {}",
                BASE64_STANDARD.encode(user)
            ))),
            (None, Some(token)) => Some(Secret::new(format!("Bearer {token}"))),
            (None, None) => None,
        };
        Ok(config)
    }

    /// The schema with this ID.
    pub(super) fn load(&self, id: &SchemaId) -> Result<Schema, Failure> {
        let path = match id {
            SchemaId::Number(number) => format!("/schemas/ids/{number}"),
            SchemaId::Guid(_) => format!("/schemas/guids/{id}"),
        };
        let end = Instant::now() + TOGETHER;
        let found: Found = self.get(&path, end)?;
        let kind = found.kind()?;
        let mut reading = Reading {
            config: self,
            end,
            bytes: found.schema.len(),
            read: Vec::new(),
            begun: HashSet::new(),
        };
        // A JSON schema checks data; it is not needed to read them.
        if kind != Kind::Json {
            reading.read_all(&found.references, 0)?;
        }
        let subjects = match id {
            SchemaId::Number(_) => self.subjects(&path, end),
            SchemaId::Guid(_) => Vec::new(),
        };
        let read = reading.read;
        Schema::parse(kind, &found.schema, &read, subjects)
            .map_err(|error| Failure::Schema(format!("the {} schema {id}: {error}", kind.title())))
    }

    /// Subjects are for people only: a registry may deny or lack this request.
    fn subjects(&self, path: &str, end: Instant) -> Vec<String> {
        let versions: Result<Vec<SubjectVersion>, Failure> =
            self.get(&format!("{path}/versions"), end);
        let subjects = versions.unwrap_or_default().into_iter();
        subjects.map(|it| it.subject).take(MOST_SUBJECTS).collect()
    }

    fn get<T: DeserializeOwned>(&self, path: &str, end: Instant) -> Result<T, Failure> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = TOGETHER.as_secs();
            return Err(self.failed(&format!("it took more than {seconds} s to read the schema")));
        }
        let url = format!("{}{path}", self.url);
        let server = Server {
            url: &url,
            name: "the schema registry",
            settings_of: "schema registry: ",
            ssl: &self.ssl,
            connect_timeout: Some(CONNECT.min(left)),
            read_timeout: Some(ANSWER.min(left)),
            total_timeout: left,
        };
        let accept = "application/vnd.schemaregistry.v1+json, application/json";
        let mut headers = vec![("Accept", accept)];
        if let Some(authorization) = &self.authorization {
            headers.push(("Authorization", authorization.expose()));
        }
        let answer = server.get_with(&headers);
        let answer = answer.map_err(|error| match error.is_too_long {
            // It is about this schema alone.
            true => Failure::Schema(format!(
                "the schema registry {}: GET {path}: {}",
                self.url, error.reason
            )),
            false => self.failed(&error.reason),
        })?;
        match answer.status {
            200 => serde_json::from_str(&answer.body).map_err(|error| {
                self.failed(&format!(
                    "its answer to GET {path} is none of a registry: {error}"
                ))
            }),
            404 => Err(Failure::Schema(format!(
                "the schema registry {} has no {path}",
                self.url
            ))),
            401 => Err(self.failed(&format!(
                "it denies GET {path} (HTTP status 401); give credentials that may read schemas"
            ))),
            // Registries grant rights for each subject: others can be read.
            403 => Err(Failure::Schema(format!(
                "the schema registry {} denies GET {path} (HTTP status 403); give credentials that may read it",
                self.url
            ))),
            status => Err(self.failed(&format!("HTTP status {status} to GET {path}"))),
        }
    }

    fn failed(&self, reason: &str) -> Failure {
        Failure::Registry(format!("the schema registry {}: {reason}", self.url))
    }
}

#[derive(Deserialize)]
struct Found {
    schema: String,
    /// Avro, if it is missing.
    #[serde(rename = "schemaType")]
    kind: Option<String>,
    #[serde(default)]
    references: Option<Vec<Reference>>,
}

#[derive(Deserialize, Clone)]
struct Reference {
    name: String,
    subject: String,
    version: i64,
}

#[derive(Deserialize)]
struct SubjectVersion {
    subject: String,
}

impl Found {
    fn kind(&self) -> Result<Kind, Failure> {
        let kind = self.kind.as_deref().unwrap_or("AVRO");
        Kind::parse(kind).ok_or_else(|| {
            Failure::Schema(format!(
                "the schema is of type {kind}; AVRO, PROTOBUF and JSON are supported"
            ))
        })
    }
}

/// The references of a schema, while they are read.
struct Reading<'a> {
    config: &'a RegistryConfig,
    end: Instant,
    bytes: usize,
    /// Names and texts. What others refer to comes before them.
    read: Vec<(String, String)>,
    begun: HashSet<String>,
}

impl Reading<'_> {
    fn read_all(
        &mut self,
        references: &Option<Vec<Reference>>,
        depth: usize,
    ) -> Result<(), Failure> {
        let references = references.as_deref().unwrap_or_default();
        if depth > MOST_DEPTH {
            return Err(Failure::Schema(format!(
                "the schema has references nested more than {MOST_DEPTH} levels deep"
            )));
        }
        for reference in references {
            if !self.begun.insert(reference.name.clone()) {
                continue;
            }
            if self.begun.len() > MOST_REFERENCES {
                return Err(Failure::Schema(format!(
                    "the schema has more than {MOST_REFERENCES} references"
                )));
            }
            let path = format!(
                "/subjects/{}/versions/{}",
                encoded(&reference.subject),
                reference.version
            );
            let found: Found = self.config.get(&path, self.end)?;
            self.bytes += found.schema.len();
            if self.bytes > MOST_BYTES {
                return Err(Failure::Schema(format!(
                    "the schema with its references has more than {} MiB",
                    MOST_BYTES >> 20
                )));
            }
            self.read_all(&found.references, depth + 1)?;
            self.read.push((reference.name.clone(), found.schema));
        }
        Ok(())
    }
}

/// A part of a path.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            b'.' if !text.trim_matches('.').is_empty() => encoded.push('.'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str, settings: &[(&str, &str)]) -> Result<RegistryConfig, String> {
        let settings = settings.iter();
        let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        RegistryConfig::new(url, &settings.collect())
    }

    #[test]
    fn the_settings_are_those_of_clients() {
        let plain = config("https://registry.example/api/", &[]).unwrap();
        assert_eq!(plain.url, "https://registry.example/api");
        assert!(plain.authorization.is_none());
        let given = [
            ("basic.auth.credentials.source", "USER_INFO"),
            ("schema.registry.basic.auth.user.info", "ann:secret"),
            ("schema.registry.ssl.truststore.location", "/trust.pem"),
        ];
        let basic = config("http://registry.example", &given).unwrap();
        assert_eq!(
            basic.authorization.as_ref().unwrap().expose(),
            "Basic YW5uOnNlY3JldA=="
        );
        assert!(basic.ssl.contains_key("ssl.truststore.location"));
        assert!(!format!("{basic:?}").contains("YW5u"));
        let bearer = config("http://registry.example", &[("bearer.auth.token", "t")]).unwrap();
        assert_eq!(bearer.authorization.unwrap().expose(), "Bearer t");
    }

    #[test]
    fn wrong_settings_are_named() {
        for url in [
            "",
            "registry:8081",
            "ftp://a",
            "http://",
            "http:///a",
            "http://a,http://b",
        ] {
            assert!(config(url, &[]).unwrap_err().contains(url), "{url}");
        }
        let refused = config("http://ann:secret@a", &[]).unwrap_err();
        assert!(
            refused.contains("file") && !refused.contains("secret"),
            "{refused}"
        );
        for settings in [
            &[("basic.auth.user.infos", "a:b")][..],
            &[("basic.auth.user.info", "ann")],
            &[("basic.auth.credentials.source", "URL")],
            &[("basic.auth.user.info", "a:b"), ("bearer.auth.token", "t")],
        ] {
            let refused = config("http://a", settings).unwrap_err();
            assert!(refused.contains(settings[0].0), "{refused}");
        }
    }

    #[test]
    fn a_subject_is_one_part_of_a_path() {
        assert_eq!(encoded("a.b-value"), "a.b-value");
        assert_eq!(encoded("../a/ü?"), "..%2Fa%2F%C3%BC%3F");
        assert_eq!(encoded(".."), "%2E%2E");
    }
}
