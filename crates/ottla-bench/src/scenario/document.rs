//! A scenario file as written: values by path, and errors that name file, key and value.
//!
//! A path is the keys from the top joined by dots, such as `load.kind`. After `settings` the rest
//! is a single key, because Kafka's keys contain dots: `producers.settings.batch.size`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use toml::{Table, Value};

use super::quantities;

/// An error in a scenario file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError {
    pub file: String,
    pub key: String,
    pub value: String,
    /// The error, and the accepted values.
    pub sentence: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if !self.key.is_empty() {
            write!(f, "{}", self.key)?;
            if !self.value.is_empty() {
                write!(f, " = {}", self.value)?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.sentence)
    }
}

impl std::error::Error for ScenarioError {}

/// A file's contents.
#[derive(Clone, PartialEq, Debug)]
pub struct Document {
    pub file: String,
    pub table: Table,
}

impl Document {
    pub fn parse(file: &str, text: &str) -> Result<Document, ScenarioError> {
        match text.parse::<Table>() {
            Ok(table) => Ok(Document {
                file: file.to_owned(),
                table,
            }),
            Err(error) => {
                let line = error.span().map_or(0, |span| {
                    text[..span.start.min(text.len())].matches('\n').count() + 1
                });
                Err(ScenarioError {
                    file: format!("{file}:{line}"),
                    key: String::new(),
                    value: String::new(),
                    sentence: format!("not TOML: {}", error.message().replace('\n', " ")),
                })
            }
        }
    }

    pub fn root(&self) -> Section<'_> {
        Section::new(&self.file, String::new(), &self.table)
    }

    /// Sets the value at a path and creates its parent tables. Whether scenarios have such a path
    /// is checked when the document is parsed again.
    pub fn set(&mut self, path: &str, value: Value) -> Result<(), ScenarioError> {
        let keys = keys_of(path);
        let Some((last, above)) = keys.split_last() else {
            return Err(self.error(path, "", "is no key"));
        };
        let file = self.file.clone();
        let mut table = &mut self.table;
        for key in above {
            let entry = table
                .entry((*key).to_owned())
                .or_insert_with(|| Value::Table(Table::new()));
            let shown = entry.to_string();
            table = entry.as_table_mut().ok_or_else(|| ScenarioError {
                file: file.clone(),
                key: path.to_owned(),
                value: shown,
                sentence: format!("`{key}` holds no keys"),
            })?;
        }
        table.insert((*last).to_owned(), value);
        Ok(())
    }

    /// The value at a path.
    pub fn get(&self, path: &str) -> Option<&Value> {
        let keys = keys_of(path);
        let (last, above) = keys.split_last()?;
        let mut table = &self.table;
        for key in above {
            table = table.get(*key)?.as_table()?;
        }
        table.get(*last)
    }

    pub fn error(&self, key: &str, value: &str, sentence: &str) -> ScenarioError {
        ScenarioError {
            file: self.file.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
            sentence: sentence.to_owned(),
        }
    }
}

fn keys_of(path: &str) -> Vec<&str> {
    if let Some((before, setting)) = path.split_once(".settings.") {
        let mut keys: Vec<&str> = before.split('.').collect();
        keys.extend(["settings", setting]);
        return keys;
    }
    path.split('.').filter(|key| !key.is_empty()).collect()
}

/// One table of a file. It records the keys that are read, so that unknown ones can be rejected.
pub struct Section<'a> {
    file: &'a str,
    path: String,
    table: &'a Table,
    read: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    fn new(file: &'a str, path: String, table: &'a Table) -> Section<'a> {
        Section {
            file,
            path,
            table,
            read: RefCell::default(),
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// An error about a key of this table.
    pub fn error(&self, key: &str, sentence: impl Into<String>) -> ScenarioError {
        ScenarioError {
            file: self.file.to_owned(),
            key: self.path_of(key),
            value: self.table.get(key).map(shown).unwrap_or_default(),
            sentence: sentence.into(),
        }
    }

    pub fn value(&self, key: &'static str) -> Option<&'a Value> {
        self.read.borrow_mut().push(key);
        self.table.get(key)
    }

    fn read_as<T>(
        &self,
        key: &'static str,
        accepted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ScenarioError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => match read(value) {
                Some(read) => Ok(Some(read)),
                None => Err(self.error(key, format!("not accepted; give {accepted}"))),
            },
        }
    }

    pub fn text(&self, key: &'static str) -> Result<Option<String>, ScenarioError> {
        self.read_as(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    pub fn required_text(&self, key: &'static str) -> Result<String, ScenarioError> {
        let text = self.text(key)?;
        text.ok_or_else(|| self.error(key, "is missing; give a text"))
    }

    pub fn boolean(&self, key: &'static str) -> Result<bool, ScenarioError> {
        let read = self.read_as(key, "true or false", Value::as_bool)?;
        Ok(read.unwrap_or(false))
    }

    pub fn count(&self, key: &'static str) -> Result<Option<u64>, ScenarioError> {
        self.read_as(key, "a whole number, 0 or more", whole)
    }

    /// A number with or without a fraction.
    pub fn number(&self, key: &'static str) -> Result<Option<f64>, ScenarioError> {
        self.read_as(key, "a number", number)
    }

    pub fn duration(&self, key: &'static str) -> Result<Option<Duration>, ScenarioError> {
        let accepted = "a time with its unit, such as \"30s\", \"500ms\" or \"10min\"";
        self.read_as(key, accepted, |value| {
            value.as_str().and_then(quantities::duration)
        })
    }

    pub fn size_range(
        &self,
        key: &'static str,
    ) -> Result<Option<quantities::SizeRange>, ScenarioError> {
        let accepted = "a size in bytes such as 100, or a range such as \"0-1800\"";
        self.read_as(key, accepted, |value| match value {
            Value::String(text) => quantities::SizeRange::parse(text),
            other => whole(other).map(|size| quantities::SizeRange {
                smallest: size,
                largest: size,
            }),
        })
    }

    pub fn texts(&self, key: &'static str) -> Result<Vec<String>, ScenarioError> {
        let read = self.read_as(key, "a list of texts", |value| {
            let texts = value.as_array()?.iter();
            texts
                .map(|text| text.as_str().map(str::to_owned))
                .collect::<Option<Vec<String>>>()
        })?;
        Ok(read.unwrap_or_default())
    }

    /// Kafka settings: any key, with a string, number or boolean as its value.
    pub fn settings(&self, key: &'static str) -> Result<BTreeMap<String, String>, ScenarioError> {
        let mut settings = BTreeMap::new();
        let Some(table) = self.read_as(key, "a table of settings", Value::as_table)? else {
            return Ok(settings);
        };
        for (name, value) in table {
            let text = match value {
                Value::Table(_) | Value::Array(_) | Value::Datetime(_) => {
                    return Err(ScenarioError {
                        file: self.file.to_owned(),
                        key: format!("{}.{name}", self.path_of(key)),
                        value: shown(value),
                        sentence: "not accepted; write the setting's name in quotes, and give a \
                                   text, a number, true or false"
                            .to_owned(),
                    });
                }
                other => plain(other),
            };
            settings.insert(name.clone(), text);
        }
        Ok(settings)
    }

    /// A child table; empty if it is missing.
    pub fn section(&self, key: &'static str) -> Result<Section<'a>, ScenarioError> {
        static EMPTY: std::sync::LazyLock<Table> = std::sync::LazyLock::new(Table::new);
        let table = self.read_as(key, "a table", Value::as_table)?;
        Ok(Section::new(
            self.file,
            self.path_of(key),
            table.unwrap_or(&EMPTY),
        ))
    }

    /// The tables of `[[key]]`.
    pub fn sections(&self, key: &'static str) -> Result<Vec<Section<'a>>, ScenarioError> {
        let Some(array) = self.read_as(key, "tables, each begun by [[…]]", Value::as_array)?
        else {
            return Ok(Vec::new());
        };
        let section = |(index, value): (usize, &'a Value)| match value.as_table() {
            Some(table) => {
                let path = format!("{}[{}]", self.path_of(key), index + 1);
                Ok(Section::new(self.file, path, table))
            }
            None => Err(self.error(key, "not accepted; give tables, each begun by [[…]]")),
        };
        array.iter().enumerate().map(section).collect()
    }

    pub fn table(&self) -> &'a Table {
        self.table
    }

    /// Rejects unknown keys, which are the keys that were never read.
    pub fn finish(self) -> Result<(), ScenarioError> {
        let read = self.read.borrow();
        match self.table.keys().find(|key| !read.contains(&key.as_str())) {
            None => Ok(()),
            Some(unknown) => {
                let mut known = read.clone();
                known.sort_unstable();
                known.dedup();
                let sentence = format!("no such key; there are {}", known.join(", "));
                Err(self.error(unknown, sentence))
            }
        }
    }
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number).filter(|number| number.is_finite()),
        _ => None,
    }
}

/// A value as written in the file, shortened.
pub fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// A value without the quotes of a string.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document::parse("a.toml", text).unwrap()
    }

    #[test]
    fn errors_name_file_key_and_value() {
        let document = document("[load]\nrate = \"many\"\nx = 1");
        let root = document.root();
        let load = root.section("load").unwrap();
        let error = load.number("rate").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.toml: load.rate = \"many\": not accepted; give a number"
        );
        let error = load.finish().unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.toml: load.x = 1: no such key; there are rate"
        );
        let error = Document::parse("a.toml", "a = 1\nb = = 2").unwrap_err();
        assert!(
            error.to_string().starts_with("a.toml:2: not TOML"),
            "{error}"
        );
    }

    #[test]
    fn paths_may_end_in_a_setting_with_dots() {
        let mut document = document("[producers]\ncount = 1\n");
        document
            .set("producers.settings.batch.size", Value::Integer(5))
            .unwrap();
        let value = document.get("producers.settings.batch.size");
        assert_eq!(value, Some(&Value::Integer(5)));
        let settings = document
            .root()
            .section("producers")
            .unwrap()
            .settings("settings")
            .unwrap();
        assert_eq!(settings["batch.size"], "5");
        let error = document.set("producers.count.x", Value::Integer(1));
        assert!(error.unwrap_err().to_string().contains("holds no keys"));
    }

    #[test]
    fn a_setting_without_quotes_is_explained() {
        let document = document("[settings]\nbatch.size = 5");
        let error = document.root().settings("settings").unwrap_err();
        assert!(error.to_string().contains("in quotes"), "{error}");
    }
}
