//! The file named by `-Djava.security.auth.login.config`: sections with entries.

use std::collections::BTreeMap;

use super::LoginModule;
use super::error::JaasError;
use super::property::parse_entry;
use super::tokens::{Kind, Tokens};

/// The sections of a file, by name.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct JaasFile {
    sections: BTreeMap<String, Vec<LoginModule>>,
}

impl JaasFile {
    pub fn parse(text: &str) -> Result<JaasFile, JaasError> {
        let text: Vec<char> = text.chars().collect();
        let parsed = JaasFile::parse_text(&text);
        parsed.map_err(|error| error.with_meant_line(&text, JaasFile::parse_text))
    }

    fn parse_text(text: &[char]) -> Result<JaasFile, JaasError> {
        let mut tokens = Tokens::new(text, &['*']);
        let mut sections = BTreeMap::new();
        loop {
            let name = tokens.next();
            if name.kind == Kind::End {
                return Ok(JaasFile { sections });
            }
            let Some(section) = name.kind.text().map(str::to_owned) else {
                let message = "the name of a section is missing";
                let hint = "its format is: KafkaServer { ... };".to_owned();
                return Err(JaasError::new(text, name.at, message, Some(hint)));
            };
            let brace = tokens.next();
            if !brace.kind.is_mark('{') {
                let message = "a section without {";
                let hint = "its format is: KafkaServer { ... };".to_owned();
                return Err(JaasError::new(text, brace.at, message, Some(hint)));
            }
            let mut entries = Vec::new();
            loop {
                let first = tokens.next();
                if first.kind.is_mark('}') {
                    break;
                }
                if first.kind == Kind::End {
                    let message = "a section without }";
                    let hint = "end it with };".to_owned();
                    return Err(JaasError::new(text, first.at, message, Some(hint)));
                }
                entries.push(parse_entry(text, &mut tokens, first, &expand)?);
            }
            let end = tokens.next();
            if !end.kind.is_mark(';') {
                let message = "a section without a semicolon at its end";
                let hint = "end it with };".to_owned();
                return Err(JaasError::new(text, end.at, message, Some(hint)));
            }
            if sections.insert(section, entries).is_some() {
                let message = "there is a second section of this name";
                let hint = "put the entries into one".to_owned();
                return Err(JaasError::new(text, name.at, message, Some(hint)));
            }
        }
    }

    /// The entries of a section.
    pub fn section(&self, name: &str) -> Option<&[LoginModule]> {
        self.sections.get(name).map(Vec::as_slice)
    }
}

/// Replaces `${/}`. Other variables are properties of a Java process, and an error.
fn expand(value: &str) -> Result<String, String> {
    let value = value.replace("${/}", "/");
    match value.contains("${") {
        true => Err("a value names a system property of Java, which has no value here".to_owned()),
        false => Ok(value),
    }
}
