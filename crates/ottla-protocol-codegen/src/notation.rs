//! The notation of the committed schema files: one line per field, nested by indentation.
//!
//! ```text
//! request 1 Fetch 4-18 flexible 12+ on broker controller
//!   ClusterId: string? = null 12+ tag 0 ignorable
//!   ReplicaState: ReplicaState 15+ tag 1
//!     ReplicaId: int32 = -1
//!   Topics: []FetchTopic
//! struct Voter 1+
//!   VoterId: int32
//! ```
//!
//! A line without indentation begins a message (kind, number if it has one, name, versions) or a shared
//! struct of the message above it. A field is `Name: type`, followed by deviations from the defaults:
//! `?` for nullable (`?7+` in those versions only), `= default`, its versions (left out: as long as its
//! parent), `tag N` (`tag N@3+` where it is tagged only in those), `ignorable`, `key`, `inflexible`.
//! `docs/wire-types.md` describes it for readers.

use std::fmt;
use std::fmt::Write as _;

use crate::schema::{Field, Kind, Message, Struct, Type, Versions};

/// A line is not valid in the notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotationError {
    pub line: usize,
    pub problem: String,
}

impl fmt::Display for NotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for NotationError {}

/// Prints messages in the form that [`parse`] reads.
pub fn print(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages {
        out.push('\n');
        print_message(&mut out, message);
    }
    out
}

fn print_message(out: &mut String, message: &Message) {
    out.push_str(message.kind.word());
    if let Some(api_key) = message.api_key {
        let _ = write!(out, " {api_key}");
    }
    let _ = write!(out, " {} ", message.name);
    match (message.versions.lowest(), message.versions.highest()) {
        (Some(lowest), Some(highest)) if lowest == highest => {
            let _ = write!(out, "{lowest}");
        }
        (Some(lowest), Some(highest)) => {
            let _ = write!(out, "{lowest}-{highest}");
        }
        _ => out.push_str("none"),
    }
    if !message.flexible.is_none() {
        let _ = write!(
            out,
            " flexible {}",
            message.flexible.display_within(message.versions)
        );
    }
    if !message.listeners.is_empty() {
        let _ = write!(out, " on {}", message.listeners.join(" "));
    }
    if message.latest_version_unstable {
        out.push_str(" latest-unstable");
    }
    out.push('\n');
    print_fields(out, &message.fields, message.versions, 1);
    for shared in &message.structs {
        let _ = write!(out, "struct {}", shared.name);
        if shared.versions != message.versions {
            let _ = write!(out, " {}", shared.versions.display_within(message.versions));
        }
        out.push('\n');
        print_fields(out, &shared.fields, shared.versions, 1);
    }
}

fn print_fields(out: &mut String, fields: &[Field], parent: Versions, depth: usize) {
    for field in fields {
        let _ = write!(out, "{}{}: {}", "  ".repeat(depth), field.name, field.kind);
        if !field.nullable.is_none() {
            out.push('?');
            if field.nullable != field.versions {
                out.push_str(&field.nullable.display_within(field.versions));
            }
        }
        if let Some(default) = &field.default {
            let _ = write!(out, " = {default}");
        }
        if field.versions != parent {
            let _ = write!(out, " {}", field.versions.display_within(parent));
        }
        if let Some((tag, versions)) = field.tag {
            let _ = write!(out, " tag {tag}");
            if versions != field.versions {
                let _ = write!(out, "@{}", versions.display_within(field.versions));
            }
        }
        for (set, word) in [
            (field.ignorable, " ignorable"),
            (field.map_key, " key"),
            (field.inflexible, " inflexible"),
        ] {
            if set {
                out.push_str(word);
            }
        }
        out.push('\n');
        print_fields(out, &field.fields, field.versions, depth + 1);
    }
}

/// Reads a schema file. Empty lines and lines that start with `#` are skipped.
pub fn parse(text: &str) -> Result<Vec<Message>, NotationError> {
    let mut lines = Lines::new(text)?;
    let mut messages: Vec<Message> = Vec::new();
    while let Some(line) = lines.next_at(0) {
        if let Some(rest) = line.text.strip_prefix("struct ") {
            let Some(message) = messages.last_mut() else {
                return Err(line.error("a struct before the first message"));
            };
            let mut words = rest.split_whitespace();
            let name = words.next().unwrap_or_default().to_owned();
            let versions = match words.next() {
                Some(word) => line.versions(word)?.intersect(message.versions),
                None => message.versions,
            };
            let fields = parse_fields(&mut lines, 1, versions)?;
            message.structs.push(Struct {
                name,
                versions,
                fields,
            });
        } else {
            let mut message = parse_message_line(&line)?;
            message.fields = parse_fields(&mut lines, 1, message.versions)?;
            messages.push(message);
        }
    }
    match lines.peek() {
        Some(line) => Err(line.error("indented deeper than the line above allows")),
        None => Ok(messages),
    }
}

fn parse_message_line(line: &Line<'_>) -> Result<Message, NotationError> {
    let mut words = line.text.split_whitespace().peekable();
    let kind = words.next().and_then(Kind::from_word);
    let kind = kind.ok_or_else(|| line.error("starts with no kind of message"))?;
    let api_key = words.peek().and_then(|word| word.parse().ok());
    if api_key.is_some() {
        words.next();
    }
    let name = words
        .next()
        .ok_or_else(|| line.error("has no name"))?
        .to_owned();
    let versions = line.versions(words.next().unwrap_or_default())?;
    let mut message = Message {
        kind,
        name,
        api_key,
        versions,
        flexible: Versions::NONE,
        listeners: Vec::new(),
        latest_version_unstable: false,
        fields: Vec::new(),
        structs: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word {
            "flexible" => {
                let flexible = line.versions(words.next().unwrap_or_default())?;
                message.flexible = flexible.intersect(versions);
            }
            "on" => {
                while let Some(listener) = words.next_if(|word| *word != "latest-unstable") {
                    message.listeners.push(listener.to_owned());
                }
            }
            "latest-unstable" => message.latest_version_unstable = true,
            _ => return Err(line.error(&format!("{word:?} is not known here"))),
        }
    }
    Ok(message)
}

fn parse_fields(
    lines: &mut Lines<'_>,
    depth: usize,
    parent: Versions,
) -> Result<Vec<Field>, NotationError> {
    let mut fields = Vec::new();
    while let Some(line) = lines.next_at(depth) {
        let mut field = parse_field_line(&line, parent)?;
        field.fields = parse_fields(lines, depth + 1, field.versions)?;
        fields.push(field);
    }
    Ok(fields)
}

fn parse_field_line(line: &Line<'_>, parent: Versions) -> Result<Field, NotationError> {
    let (name, rest) = line
        .text
        .split_once(": ")
        .ok_or_else(|| line.error("a field is `Name: type`"))?;
    let mut words = rest.split_whitespace().peekable();
    let kind_word = words.next().unwrap_or_default();
    let (kind, nullable_word) = match kind_word.split_once('?') {
        Some((kind, versions)) => (kind, Some(versions)),
        None => (kind_word, None),
    };
    let mut field = Field {
        name: name.to_owned(),
        kind: Type::parse(kind),
        versions: parent,
        nullable: Versions::NONE,
        tag: None,
        default: None,
        ignorable: false,
        map_key: false,
        inflexible: false,
        fields: Vec::new(),
    };
    let mut tag = None;
    while let Some(word) = words.next() {
        match word {
            "=" => {
                let value = words
                    .next()
                    .ok_or_else(|| line.error("`=` without a value"))?;
                field.default = Some(value.to_owned());
            }
            "tag" => tag = Some(words.next().unwrap_or_default()),
            "ignorable" => field.ignorable = true,
            "key" => field.map_key = true,
            "inflexible" => field.inflexible = true,
            _ => field.versions = line.versions(word)?.intersect(parent),
        }
    }
    if let Some(word) = nullable_word {
        let nullable = if word.is_empty() {
            Versions::ALL
        } else {
            line.versions(word)?
        };
        field.nullable = nullable.intersect(field.versions);
    }
    if let Some(word) = tag {
        let (number, versions) = word.split_once('@').unwrap_or((word, "0+"));
        let number = number
            .parse()
            .map_err(|_| line.error("a tag is a number"))?;
        field.tag = Some((number, line.versions(versions)?.intersect(field.versions)));
    }
    Ok(field)
}

#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    depth: usize,
    text: &'a str,
}

impl Line<'_> {
    fn error(&self, problem: &str) -> NotationError {
        NotationError {
            line: self.number,
            problem: format!("{:?} {problem}", self.text),
        }
    }

    fn versions(&self, word: &str) -> Result<Versions, NotationError> {
        Versions::parse(word).ok_or_else(|| self.error(&format!("{word:?} is no version range")))
    }
}

struct Lines<'a> {
    lines: Vec<Line<'a>>,
    next: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Result<Lines<'a>, NotationError> {
        let mut lines = Vec::new();
        for (index, raw) in text.lines().enumerate() {
            let text = raw.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let spaces = raw.len() - raw.trim_start_matches(' ').len();
            let line = Line {
                number: index + 1,
                depth: spaces / 2,
                text,
            };
            if spaces % 2 == 1 {
                return Err(line.error("is indented by an odd number of spaces"));
            }
            lines.push(line);
        }
        Ok(Lines { lines, next: 0 })
    }

    fn peek(&self) -> Option<Line<'a>> {
        self.lines.get(self.next).copied()
    }

    /// The next line, if it has this depth.
    fn next_at(&mut self, depth: usize) -> Option<Line<'a>> {
        let line = self.peek().filter(|line| line.depth == depth)?;
        self.next += 1;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, print};
    use crate::schema::{Type, Versions};

    const TEXT: &str = "
request 1 FetchRequest 4-18 flexible 12+ on broker controller latest-unstable
  ClusterId: string?14+ = null 12+ tag 0@13+ ignorable
  ReplicaState: ReplicaState 15-17 tag 1
    ReplicaId: int32 = -1
    Names: []string? 16+
  Topic: string key
  Voters: []Voter
struct Voter 5+
  VoterId: int32 = 0x7fffffff 7

header RequestHeader 1-2 flexible 2+
  ClientId: string? inflexible

data EndTxnMarker 0

request 4 LeaderAndIsrRequest none
";

    #[test]
    fn what_is_parsed_prints_the_same() {
        let messages = parse(TEXT).unwrap();
        assert_eq!(print(&messages), TEXT);
    }

    #[test]
    fn ranges_are_clamped_to_the_parent() {
        let messages = parse(TEXT).unwrap();
        let fetch = &messages[0];
        assert_eq!(fetch.versions, Versions::new(4, 18));
        assert_eq!(fetch.flexible, Versions::new(12, 18));
        assert_eq!(fetch.fields[0].nullable, Versions::new(14, 18));
        assert_eq!(fetch.fields[0].tag, Some((0, Versions::new(13, 18))));
        assert_eq!(fetch.fields[1].fields[1].versions, Versions::new(16, 17));
        assert_eq!(
            fetch.fields[1].fields[1].kind,
            Type::Array(Box::new(Type::String))
        );
        assert_eq!(fetch.structs[0].fields[0].versions, Versions::new(7, 7));
        assert!(messages[3].versions.is_none());
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line) in [
            ("request 1 Fetch 0\n   Odd: int8", 2),
            ("request 1 Fetch 0\n    Deep: int8", 2),
            ("request 1 Fetch x", 1),
            ("nonsense 1 Fetch 0", 1),
            ("struct Voter 0", 1),
            ("\nrequest 1 Fetch 0\n  NoType", 3),
            ("request 1 Fetch 0\n  A: int8 tag x", 2),
            ("request 1 Fetch 0 sideways", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text:?}");
        }
    }
}
