//! Settings as texts, read by their names, with errors that name the setting, the value and the
//! values that are accepted.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;

use ottla_config::nearest_name;

use crate::error::RemoteStorageError;

/// The settings below one prefix. A password's value is never in an error.
pub struct Given<'a> {
    /// As errors show it: `rsm.config.`.
    prefix: &'a str,
    values: &'a BTreeMap<String, String>,
    known: RefCell<BTreeSet<String>>,
}

impl<'a> Given<'a> {
    /// `values` has the names without the prefix.
    pub fn new(prefix: &'a str, values: &'a BTreeMap<String, String>) -> Given<'a> {
        Given {
            prefix,
            values,
            known: RefCell::default(),
        }
    }

    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.known.borrow_mut().insert(name.to_owned());
        self.values.get(name).map(|value| value.trim())
    }

    /// A text that is not empty where it is given.
    pub fn non_empty(&self, name: &str) -> Result<Option<&'a str>, RemoteStorageError> {
        match self.text(name) {
            Some("") => Err(self.error(name, "is empty; give a value, or remove the line")),
            value => Ok(value),
        }
    }

    pub fn required(&self, name: &str) -> Result<&'a str, RemoteStorageError> {
        self.non_empty(name)?
            .ok_or_else(|| self.error(name, "is missing, and has no default; give a value"))
    }

    pub fn url(&self, name: &str) -> Result<Option<String>, RemoteStorageError> {
        match self.non_empty(name)? {
            Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
                Ok(Some(url.to_owned()))
            }
            Some(url) => {
                let cause = format!("is {url}; give http:// or https:// and a host");
                Err(self.error(name, cause))
            }
            None => Ok(None),
        }
    }

    pub fn boolean(&self, name: &str, default: bool) -> Result<bool, RemoteStorageError> {
        Ok(self.optional_boolean(name)?.unwrap_or(default))
    }

    pub fn optional_boolean(&self, name: &str) -> Result<Option<bool>, RemoteStorageError> {
        match self.text(name) {
            None => Ok(None),
            Some(value) if value.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(value) if value.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(value) => Err(self.error(name, format!("is {value}; give true or false"))),
        }
    }

    pub fn number(
        &self,
        name: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, RemoteStorageError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.parse::<i64>() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.error(
                name,
                format!(
                    "is {text}; give a number from {} to {}",
                    range.start(),
                    range.end()
                ),
            )),
        }
    }

    /// Texts between commas; empty ones are left out.
    pub fn list(&self, name: &str) -> Vec<&'a str> {
        let values = self.text(name).unwrap_or_default().split(',');
        values.map(str::trim).filter(|it| !it.is_empty()).collect()
    }

    /// Ignores a setting, so that [`Given::refuse_unknown`] accepts it.
    pub fn ignore(&self, name: &str) {
        self.text(name);
    }

    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.values.keys().map(String::as_str)
    }

    pub fn error(&self, name: &str, cause: impl Display) -> RemoteStorageError {
        RemoteStorageError::settings(&format!("{}{name}", self.prefix), cause)
    }

    /// An error that names the settings that nothing has read.
    pub fn refuse_unknown(&self) -> Result<(), RemoteStorageError> {
        let known = self.known.borrow();
        let unknown = self.values.keys().filter(|name| !known.contains(*name));
        let unknown: Vec<&String> = unknown.collect();
        let full = |name: &str| format!("{}{name}", self.prefix);
        let mut cause = match unknown.len() {
            0 => return Ok(()),
            1 => "this store has no such setting; remove the line, or correct its name".to_owned(),
            _ => "this store has no such settings; remove the lines, or correct their names"
                .to_owned(),
        };
        let similar = unknown.iter().filter_map(|name| {
            let name = nearest_name(name, known.iter().map(String::as_str));
            name.map(full)
        });
        let similar: Vec<String> = similar.collect();
        if !similar.is_empty() {
            cause = format!("{cause}; did you mean {}?", similar.join(", "));
        }
        let unknown: Vec<String> = unknown.iter().map(|name| full(name)).collect();
        Err(RemoteStorageError::settings(&unknown.join(", "), cause))
    }
}
