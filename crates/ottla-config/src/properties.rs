//! Java's `.properties` files, parsed by Java's rules.
//!
//! Unlike `java.util.Properties`, the parser keeps the line number of each key, so that an error
//! can name the line. As in Java, the last of several lines with the same key takes precedence, an
//! unknown escape loses its backslash, and the encoding of files is ISO 8859-1.
//!
//! The rules are documented at `java.util.Properties.load(Reader)`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// The origin of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The line on which the key starts, counted from 1.
    Line(usize),
    /// The command line.
    Override,
}

/// One key and its value. `Debug` does not show the value, which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Property {
    pub key: String,
    pub value: String,
    pub origin: Origin,
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.key, self.origin)
    }
}

/// The contents of a properties file, and the overrides of the command line. `Debug` shows no
/// values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// As given by the user, for messages.
    file_name: String,
    /// In the order of the file. A later entry with the same key takes precedence.
    entries: Vec<Property>,
    /// Path and text of the JAAS file.
    pub(crate) jaas_file: Option<JaasSource>,
    /// Whether login settings are ignored.
    pub(crate) ignores_logins: bool,
    /// What replaces variables in values that are given later, as dynamic settings.
    pub(crate) variables: Option<Variables>,
    /// The variables that were replaced in this file, by what replaced them.
    replaced: BTreeMap<String, String>,
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Properties")
            .field("file_name", &self.file_name)
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

/// Shorter values are too likely to be a part of other words.
const SHORTEST_SECRET: usize = 4;

/// Replaces the variables of `config.providers` in a value.
#[derive(Clone)]
pub struct Variables(Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>);

impl Variables {
    /// The function may read files. Its error names the variable and the reason, and has no secret.
    pub fn new(
        replace: impl Fn(&str) -> Result<String, String> + Send + Sync + 'static,
    ) -> Variables {
        Variables(Arc::new(replace))
    }

    /// `None` if the value has no variables.
    pub(crate) fn replace(&self, value: &str) -> Result<Option<String>, String> {
        if !value.contains("${") {
            return Ok(None);
        }
        let replaced = (self.0)(value)?;
        Ok(Some(replaced).filter(|replaced| replaced != value))
    }
}

impl PartialEq for Variables {
    fn eq(&self, other: &Variables) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Variables {}

/// A JAAS file: its path and text. `Debug` shows only the path.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JaasSource {
    pub path: String,
    pub text: String,
}

impl fmt::Debug for JaasSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

/// The file violates Java's rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PropertiesError {
    pub file_name: String,
    pub line: usize,
    /// The escape as written in the file.
    pub escape: String,
}

impl fmt::Display for PropertiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} line {}: {} is not a character; write \\u and four hexadecimal digits, or double \
             the backslash if it is meant as one",
            self.file_name, self.line, self.escape
        )
    }
}

impl std::error::Error for PropertiesError {}

impl Properties {
    /// An empty set of settings, with this name in messages.
    pub fn new(file_name: &str) -> Properties {
        Properties {
            file_name: file_name.to_owned(),
            entries: Vec::new(),
            jaas_file: None,
            ignores_logins: false,
            variables: None,
            replaced: BTreeMap::new(),
        }
    }

    /// Parses the bytes of a file.
    pub fn parse_bytes(bytes: &[u8], file_name: &str) -> Result<Properties, PropertiesError> {
        let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
        Properties::parse(&text, file_name)
    }

    /// Parses a text.
    pub fn parse(text: &str, file_name: &str) -> Result<Properties, PropertiesError> {
        let mut properties = Properties::new(file_name);
        for logical in LogicalLines::new(text) {
            let unescape = |escaped: &[char]| {
                unescape(escaped).map_err(|escape| PropertiesError {
                    file_name: file_name.to_owned(),
                    line: logical.line,
                    escape,
                })
            };
            let (key, value) = split_key(&logical.text);
            let (key, value) = (unescape(key)?, unescape(value)?);
            properties.entries.push(Property {
                key,
                value,
                origin: Origin::Line(logical.line),
            });
        }
        Ok(properties)
    }

    /// Overrides one setting, like `--override key=value`.
    pub fn set(&mut self, key: &str, value: &str) {
        let (key, value) = (key.to_owned(), value.to_owned());
        self.entries.push(Property {
            key,
            value,
            origin: Origin::Override,
        });
    }

    /// Replaces the value of the entry that takes precedence, and keeps its place.
    pub fn replace(&mut self, key: &str, value: &str) {
        let mut entries = self.entries.iter_mut().rev();
        if let Some(property) = entries.find(|property| property.key == key) {
            property.value = value.to_owned();
        }
    }

    /// Sets the JAAS file, which Java's `java.security.auth.login.config` names.
    pub fn set_jaas_file(&mut self, path: &str, text: &str) {
        let (path, text) = (path.to_owned(), text.to_owned());
        self.jaas_file = Some(JaasSource { path, text });
    }

    /// Ignores login settings: for programs that only process the files of a node, and may have no
    /// access to the JAAS file. Kafka's do not read it either.
    pub fn ignore_logins(&mut self) {
        self.ignores_logins = true;
    }

    /// Has messages show a variable instead of the value that has replaced it, which may be a secret.
    pub fn hide(&mut self, variable: &str, value: &str) {
        let value = value.trim();
        if value.chars().count() >= SHORTEST_SECRET {
            self.replaced.insert(value.to_owned(), variable.to_owned());
        }
    }

    /// A message about these settings, with variables instead of what has replaced them.
    pub fn with_variables(&self, message: &str) -> String {
        let mut replaced: Vec<_> = self.replaced.iter().collect();
        // One may be a part of another.
        replaced.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        let mut message = message.to_owned();
        for (value, variable) in replaced {
            message = message.replace(value.as_str(), variable);
        }
        message
    }

    /// Sets what replaces variables in dynamic settings. Those in this file are already replaced.
    pub fn set_variables(&mut self, variables: Variables) {
        self.variables = Some(variables);
    }

    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// The entry of a key that takes precedence.
    pub fn get(&self, key: &str) -> Option<&Property> {
        self.entries
            .iter()
            .rev()
            .find(|property| property.key == key)
    }

    pub fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(|property| property.value.as_str())
    }

    /// All entries in the order of the file, including overridden ones.
    pub fn entries(&self) -> &[Property] {
        &self.entries
    }

    /// The entries that take precedence, in the order of the file.
    pub fn effective(&self) -> impl Iterator<Item = &Property> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, property)| {
                let replaced = self.entries[index + 1..]
                    .iter()
                    .any(|later| later.key == property.key);
                (!replaced).then_some(property)
            })
    }

    /// The values by key, without overridden ones.
    pub fn into_map(self) -> BTreeMap<String, String> {
        let entries = self.entries.into_iter();
        entries.map(|it| (it.key, it.value)).collect()
    }

    /// The place of a key, for messages: `server.properties line 12`.
    pub fn place(&self, key: &str) -> String {
        match self.get(key).map(|property| &property.origin) {
            Some(Origin::Line(line)) => format!("{} line {line}", self.file_name),
            Some(Origin::Override) => format!("--override {key}"),
            None => self.file_name.clone(),
        }
    }
}

/// A line of a properties file that is read as this key and value.
pub fn property_line(key: &str, value: &str) -> String {
    let mut line = String::new();
    write_escaped(&mut line, key, true);
    line.push('=');
    write_escaped(&mut line, value, false);
    line.push('\n');
    line
}

/// As `java.util.Properties.store` writes it. A line end would end the line, and other characters than
/// those of ASCII are not read in UTF-8.
fn write_escaped(line: &mut String, text: &str, is_key: bool) {
    for (index, character) in text.chars().enumerate() {
        match character {
            '\\' => line.push_str("\\\\"),
            ' ' if is_key || index == 0 => line.push_str("\\ "),
            '=' | ':' | '#' | '!' if is_key => line.extend(['\\', character]),
            ' '..='~' => line.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(line, "\\u{unit:04x}");
                }
            }
        }
    }
}

/// A line with its continuations, still escaped.
struct LogicalLine {
    line: usize,
    text: Vec<char>,
}

/// The logical lines of a text, without comments and blank lines.
struct LogicalLines<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    /// The line at which `rest` starts, counted from 1.
    line: usize,
}

impl<'a> LogicalLines<'a> {
    fn new(text: &'a str) -> Self {
        LogicalLines {
            rest: text.chars().peekable(),
            line: 1,
        }
    }

    /// The characters up to the end of the natural line, without leading white space.
    fn natural_line(&mut self) -> Option<Vec<char>> {
        self.rest.peek()?;
        let mut line = Vec::new();
        for character in self.rest.by_ref() {
            match character {
                '\n' => break,
                '\r' => {
                    self.rest.next_if_eq(&'\n');
                    break;
                }
                blank if is_blank(blank) && line.is_empty() => {}
                other => line.push(other),
            }
        }
        self.line += 1;
        Some(line)
    }
}

impl Iterator for LogicalLines<'_> {
    type Item = LogicalLine;

    fn next(&mut self) -> Option<LogicalLine> {
        loop {
            let first = self.line;
            let mut text = self.natural_line()?;
            if matches!(text.first(), None | Some('#' | '!')) {
                continue;
            }
            // With an odd number of backslashes at the end, the last one is not escaped itself.
            while text
                .iter()
                .rev()
                .take_while(|&&character| character == '\\')
                .count()
                % 2
                == 1
            {
                text.pop();
                match self.natural_line() {
                    Some(more) => text.extend(more),
                    None => break,
                }
            }
            return Some(LogicalLine { line: first, text });
        }
    }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\x0c')
}

/// Splits a line at the first white space, `=` or `:` that is not escaped. White space around one
/// separator is dropped.
fn split_key(text: &[char]) -> (&[char], &[char]) {
    let mut escaped = false;
    let mut end = text.len();
    for (index, &character) in text.iter().enumerate() {
        if !escaped && (is_blank(character) || character == '=' || character == ':') {
            end = index;
            break;
        }
        escaped = character == '\\' && !escaped;
    }
    let (key, mut value) = text.split_at(end);
    while let [first, rest @ ..] = value
        && is_blank(*first)
    {
        value = rest;
    }
    if let ['=' | ':', rest @ ..] = value {
        value = rest;
        while let [first, rest @ ..] = value
            && is_blank(*first)
        {
            value = rest;
        }
    }
    (key, value)
}

/// Resolves escapes. The error is the invalid escape.
fn unescape(text: &[char]) -> Result<String, String> {
    // Escapes are UTF-16 code units, so two of them may form one character.
    let mut units = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    let mut buffer = [0; 2];
    while let Some(&character) = rest.next() {
        let character = match character {
            '\\' => match rest.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some('u') => {
                    let digits: String = rest.by_ref().take(4).collect();
                    let valid =
                        digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                    if !valid {
                        return Err(format!("\\u{digits}"));
                    }
                    units.push(u16::from_str_radix(&digits, 16).expect("four digits"));
                    continue;
                }
                Some(&other) => other,
                None => break,
            },
            other => other,
        };
        units.extend_from_slice(character.encode_utf16(&mut buffer));
    }
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let properties = Properties::parse(text, "test.properties").expect("readable");
        properties
            .effective()
            .map(|it| (it.key.clone(), it.value.clone()))
            .collect()
    }

    #[track_caller]
    fn reads(text: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        assert_eq!(pairs(text), expected, "{text:?}");
    }

    #[test]
    fn separators() {
        reads("a=b", &[("a", "b")]);
        reads("  a  =  b c  ", &[("a", "b c  ")]);
        reads("a:b=c", &[("a", "b=c")]);
        reads("a b", &[("a", "b")]);
        reads(
            "a\tb\r\nc\x0c=d\re=f",
            &[("a", "b"), ("c", "d"), ("e", "f")],
        );
        reads("a", &[("a", "")]);
        reads("a==b", &[("a", "=b")]);
        reads("=b", &[("", "b")]);
        reads(r"a\=b\:c\ d=e", &[("a=b:c d", "e")]);
        reads(r"a\\=b", &[("a\\", "b")]);
    }

    #[test]
    fn comments_and_blank_lines() {
        reads("# a=b\n\n   ! c=d\\\n \t\n e=f#g\n", &[("e", "f#g")]);
    }

    #[test]
    fn continuations() {
        reads(
            "a=b,\\\n    c,\\\r\n  d\ne=f",
            &[("a", "b,c,d"), ("e", "f")],
        );
        reads("a=b\\\\\nc=d", &[("a", "b\\"), ("c", "d")]);
        reads("a=b\\\n#c", &[("a", "b#c")]);
        reads("a=b\\\n\nc=d", &[("a", "b"), ("c", "d")]);
        reads("a=b\\", &[("a", "b")]);
        reads("a\\\n  b=c", &[("ab", "c")]);
    }

    #[test]
    fn escapes() {
        reads(r"a=\t\n\r\f\q\\", &[("a", "\t\n\r\x0cq\\")]);
        reads(r"a=\u00e9\uD83D\uDE00", &[("a", "é😀")]);
        let error = Properties::parse("x=1\na=C:\\users", "test.properties").unwrap_err();
        assert_eq!(
            error.to_string(),
            "test.properties line 2: \\users is not a character; write \\u and four hexadecimal \
             digits, or double the backslash if it is meant as one"
        );
        assert!(Properties::parse(r"a=\u12", "test.properties").is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (key, value) in [
            ("a", " b\\c "),
            ("ssl.keystore.key", "-----BEGIN KEY-----\r\nlog.dirs=/\r\n"),
            ("password", "\tp\u{e4}ss \u{20ac}\u{1f600}=:#!"),
            ("#a key: with=blanks!", "#"),
            ("empty", ""),
        ] {
            let line = property_line(key, value);
            assert_eq!(line.lines().count(), 1, "{line}");
            let read = Properties::parse_bytes(line.as_bytes(), "test.properties").unwrap();
            assert_eq!(read.value(key), Some(value), "{line}");
        }
        assert_eq!(
            property_line("log.dirs", "/var/lib/a"),
            "log.dirs=/var/lib/a\n"
        );
    }

    #[test]
    fn bytes_are_latin_1() {
        let properties = Properties::parse_bytes(b"a=caf\xe9", "test.properties").unwrap();
        assert_eq!(properties.value("a"), Some("café"));
    }

    #[test]
    fn the_last_line_wins_and_lines_are_known() {
        let mut properties =
            Properties::parse("a=1\nb=2\\\n3\n\n# c\na=4\n", "test.properties").unwrap();
        assert_eq!(properties.value("a"), Some("4"));
        assert_eq!(properties.place("a"), "test.properties line 6");
        assert_eq!(properties.place("b"), "test.properties line 2");
        assert_eq!(properties.effective().count(), 2);
        properties.set("b", "5");
        assert_eq!(properties.value("b"), Some("5"));
        assert_eq!(properties.place("b"), "--override b");
    }
}
