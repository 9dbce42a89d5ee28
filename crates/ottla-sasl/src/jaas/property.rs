//! Parses the value of `sasl.jaas.config`.

use std::collections::BTreeMap;

use super::error::JaasError;
use super::tokens::{Kind, Token, Tokens};
use super::{ControlFlag, LoginModule};
use crate::secret::Secret;

/// Parses a property, which contains one entry.
pub fn parse_property(text: &str) -> Result<LoginModule, JaasError> {
    let text: Vec<char> = text.chars().collect();
    let mut tokens = Tokens::new(&text, &[]);
    let mut entries = Vec::new();
    loop {
        let first = tokens.next();
        if first.kind == Kind::End {
            break;
        }
        let at = first.at;
        let entry = parse_entry(&text, &mut tokens, first, &|text| Ok(text.to_owned()))?;
        entries.push((at, entry));
    }
    match <[_; 1]>::try_from(entries) {
        Ok([(_, entry)]) => Ok(entry),
        Err(entries) => Err(match entries.get(1) {
            None => JaasError::new(
                &text,
                0,
                "Login module not specified in JAAS config",
                Some(example()),
            ),
            Some((at, _)) => JaasError::new(
                &text,
                *at,
                format!(
                    "JAAS config property contains {} login modules, should be 1 module",
                    entries.len()
                ),
                Some("give the property of each mechanism its own entry".to_owned()),
            ),
        }),
    }
}

fn example() -> String {
    "its format is: org.apache.kafka.common.security.plain.PlainLoginModule required \
     username=\"...\" password=\"...\";"
        .to_owned()
}

/// Parses the entry that starts with the token `first`. `expand` may replace variables in values.
pub(super) fn parse_entry(
    text: &[char],
    tokens: &mut Tokens<'_>,
    first: Token,
    expand: &dyn Fn(&str) -> Result<String, String>,
) -> Result<LoginModule, JaasError> {
    let error = |at: usize, message: &str, hint: Option<String>| {
        Err(JaasError::new(text, at, message, hint))
    };
    let Some(class) = first.kind.text() else {
        let message = "Login module not specified in JAAS config";
        return error(first.at, message, Some(example()));
    };
    let flag = tokens.next();
    let wants_flag = || {
        Some(format!(
            "probably meant: {} required ...",
            shown_class(class)
        ))
    };
    if flag.kind == Kind::End {
        let message = "Login module control flag not specified in JAAS config";
        return error(first.end, message, wants_flag());
    }
    let Some(name) = flag.kind.text() else {
        let message = "Login module control flag is not available in the JAAS config";
        return error(flag.at, message, wants_flag());
    };
    let Some(flag) = ControlFlag::from_name(name) else {
        let message = "Invalid login module control flag in JAAS config";
        return error(flag.at, message, wants_flag());
    };
    let mut options = BTreeMap::new();
    let mut end = first.end;
    loop {
        let key = tokens.next();
        if key.kind.is_mark(';') {
            let class = class.trim().to_owned();
            return Ok(LoginModule {
                class,
                flag,
                options,
            });
        }
        if key.kind == Kind::End {
            let message = "JAAS config entry not terminated by semi-colon";
            return error(
                end.max(last_text(text)),
                message,
                Some("add ; at the end".to_owned()),
            );
        }
        let Some(name) = key.kind.text() else {
            let message = "an option without a name in JAAS config";
            let hint = match key.kind {
                Kind::Mark(',') => Some("options have blanks between them, not commas".to_owned()),
                Kind::Mark('=') => {
                    Some("write name=\"value\" without blanks or a second =".to_owned())
                }
                _ => Some("put the value before it in double quotes".to_owned()),
            };
            return error(key.at, message, hint);
        };
        let equals = tokens.next();
        let value = match equals.kind.is_mark('=') {
            true => tokens.next(),
            false => {
                let message = "Value not specified for an option in JAAS config";
                let hint = match is_unclosed(&key.kind) {
                    true => "close the quote in front of it",
                    false => "probably meant: name=\"value\", with the value in double quotes",
                };
                return error(key.at, message, Some(hint.to_owned()));
            }
        };
        let Some(given) = value.kind.text() else {
            let message = "Value not specified for an option in JAAS config";
            let hint = match value.kind {
                Kind::Number => "a value that begins with a digit needs quotes",
                _ => "put the value in double quotes",
            };
            return error(value.at, message, Some(hint.to_owned()));
        };
        if is_unclosed(&value.kind) && given.contains(';') {
            let message = "JAAS config entry not terminated by semi-colon";
            let hint = "the quote that begins here is not closed in its line";
            return error(value.at, message, Some(hint.to_owned()));
        }
        match expand(given) {
            Ok(expanded) => options.insert(name.to_owned(), Secret::new(expanded)),
            Err(reason) => return Err(JaasError::new(text, value.at, reason, None)),
        };
        end = value.end;
    }
}

fn is_unclosed(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Quoted {
            is_closed: false,
            ..
        }
    )
}

/// The end of the text without trailing white space.
fn last_text(text: &[char]) -> usize {
    text.iter().rposition(|it| *it > ' ').map_or(0, |at| at + 1)
}

/// The class name, unless it may be a secret.
fn shown_class(class: &str) -> &str {
    match class.ends_with("LoginModule") {
        true => class,
        false => "<login module>",
    }
}
