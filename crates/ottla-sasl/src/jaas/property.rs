//! Parses the value of `sasl.jaas.config`.

use std::collections::BTreeMap;

use super::error::JaasError;
use super::tokens::{Kind, Token, Tokens};
use super::{ControlFlag, LoginModule};
use crate::secret::Secret;

/// Parses a property, which contains one entry.
pub fn parse_property(text: &str) -> Result<LoginModule, JaasError> {
    let text: Vec<char> = text.chars().collect();
    parse_text(&text).map_err(|error| error.with_meant_line(&text, parse_text))
}

fn parse_text(text: &[char]) -> Result<LoginModule, JaasError> {
    let mut tokens = Tokens::new(text, &[]);
    let mut entries = Vec::new();
    loop {
        let first = tokens.next();
        if first.kind == Kind::End {
            break;
        }
        let at = first.at;
        let entry = parse_entry(text, &mut tokens, first, &|text| Ok(text.to_owned()))?;
        entries.push((at, entry));
    }
    match <[_; 1]>::try_from(entries) {
        Ok([(_, entry)]) => Ok(entry),
        Err(entries) => Err(match entries.get(1) {
            None => JaasError::new(
                text,
                0,
                "Login module not specified in JAAS config",
                Some(example()),
            ),
            Some((at, _)) => JaasError::new(
                text,
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
    let error = |at: usize, message: &str, hint: &str| {
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        JaasError::new(text, at, message, hint)
    };
    let Some(class) = first.kind.text() else {
        let message = "Login module not specified in JAAS config";
        return Err(error(first.at, message, &example()));
    };
    let flag = tokens.next();
    let flags = "the control flag is required, requisite, sufficient or optional";
    if flag.kind == Kind::End {
        let message = "Login module control flag not specified in JAAS config";
        let error = error(first.end, message, flags);
        return Err(error.with_repair(first.end..first.end, " required"));
    }
    let Some(name) = flag.kind.text() else {
        let message = "Login module control flag is not available in the JAAS config";
        let error = error(flag.at, message, flags);
        return Err(error.with_repair(flag.at..flag.at, "required"));
    };
    let Some(control_flag) = ControlFlag::from_name(name) else {
        let message = "Invalid login module control flag in JAAS config";
        let error = error(flag.at, message, flags);
        return Err(match tokens.next().kind.is_mark('=') {
            // It is the first option.
            true => error.with_repair(flag.at..flag.at, "required "),
            false => error.with_repair(flag.at..flag.end, "required"),
        });
    };
    let mut options = BTreeMap::new();
    let mut last: Option<Token> = None;
    loop {
        let key = tokens.next();
        if key.kind.is_mark(';') {
            let class = class.trim().to_owned();
            return Ok(LoginModule {
                class,
                flag: control_flag,
                options,
            });
        }
        if key.kind == Kind::End {
            let message = "JAAS config entry not terminated by semi-colon";
            let (end, hint) = (last_text(text), "add ; at the end");
            let end = end.max(last.as_ref().map_or(first.end, |last| last.end));
            let error = error(end, message, hint);
            return Err(match last {
                // A slash in a value without quotes starts a comment.
                Some(value) if text.get(value.end) == Some(&'/') => quoted(error, text, value.at),
                _ => error.with_repair(end..end, ";"),
            });
        }
        let Some(name) = key.kind.text() else {
            return Err(nameless(text, &key, last.as_ref()));
        };
        let equals = tokens.next();
        let value = if equals.kind.is_mark('=') {
            tokens.next()
        } else {
            let message = "Value not specified for an option in JAAS config";
            let hint = match is_unclosed(&key.kind) {
                true => "close the quote in front of it",
                false => "write name=\"value\", with the value in double quotes",
            };
            let error = error(key.at, message, hint);
            return Err(match equals.kind {
                Kind::Quoted { .. } if !is_unclosed(&equals.kind) => {
                    error.with_repair(key.end..equals.at, "=")
                }
                Kind::Mark(':') => error.with_repair(key.end..equals.end, "="),
                _ => error,
            });
        };
        let Some(given) = value.kind.text() else {
            let message = "Value not specified for an option in JAAS config";
            let hint = match value.kind {
                Kind::Number => "a value that begins with a digit needs quotes",
                _ => "put the value in double quotes",
            };
            return Err(quoted(error(value.at, message, hint), text, value.at));
        };
        if is_unclosed(&value.kind) && given.contains(';') {
            let message = "JAAS config entry not terminated by semi-colon";
            let hint = "the quote that begins here is not closed in its line";
            let error = error(value.at, message, hint);
            let semicolon = text[value.at..value.end].iter().rposition(|it| *it == ';');
            let end = semicolon.map_or(value.end, |at| value.at + at);
            return Err(error.with_repair(end..end, text[value.at].to_string()));
        }
        match expand(given) {
            Ok(expanded) => options.insert(name.to_owned(), Secret::new(expanded)),
            Err(reason) => return Err(JaasError::new(text, value.at, reason, None)),
        };
        last = Some(value);
    }
}

/// The error about a token that is not the name of an option; `last` is the value before it.
fn nameless(text: &[char], key: &Token, last: Option<&Token>) -> JaasError {
    let hint = match key.kind {
        Kind::Mark(',') => "options have blanks between them, not commas",
        Kind::Mark('=') => "write name=\"value\" without blanks or a second =",
        Kind::Mark('}') => "end the entry with ; before the }",
        _ => "put the value before it in double quotes",
    };
    let message = "an option without a name in JAAS config";
    let error = JaasError::new(text, key.at, message, Some(hint.to_owned()));
    let is_separate = text.get(key.end).is_none_or(|it| *it <= ' ');
    match (&key.kind, last) {
        (Kind::Mark('}'), _) => error.with_repair(key.at..key.at, ";"),
        (Kind::Mark(','), _) if is_separate => error.with_repair(key.at..key.end, ""),
        (_, Some(value)) if value.end == key.at && matches!(value.kind, Kind::Word(_)) => {
            quoted(error, text, value.at)
        }
        (Kind::Mark('='), _) => error.with_repair(key.at..key.end, ""),
        _ => error,
    }
}

/// Adds the repair that quotes the value which starts at `at`, up to a blank or a semicolon.
fn quoted(error: JaasError, text: &[char], at: usize) -> JaasError {
    let length = text[at..].iter().position(|it| *it <= ' ' || *it == ';');
    let end = length.map_or(text.len(), |length| at + length);
    let mut quoted = String::from('"');
    for character in &text[at..end] {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(*character);
    }
    quoted.push('"');
    error.with_repair(at..end, quoted)
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
