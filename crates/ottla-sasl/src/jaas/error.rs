//! Errors in JAAS entries, shown with their line. Words that may be secret are masked.

use std::fmt;

use super::ControlFlag;
use super::tokens::{Kind, Token, Tokens};

/// An error in a JAAS text: Kafka's message, the line with a caret under the column, and a hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JaasError {
    /// Kafka's message, if Kafka has one.
    message: String,
    /// The line number, starting at 1.
    line: usize,
    /// The column in characters, starting at 1, in the text and not in the masked line.
    column: usize,
    /// The line with masked values, and the column in it, starting at 0.
    shown: (String, usize),
    /// A correction or an instruction.
    hint: Option<String>,
}

/// The words that a message may contain. Other words may be secrets without quotes.
const KNOWN_OPTIONS: &[&str] = &[
    "username",
    "password",
    "tokenauth",
    "serviceName",
    "useKeyTab",
    "useTicketCache",
    "storeKey",
    "keyTab",
    "principal",
    "debug",
    "clientId",
    "clientSecret",
    "scope",
];

impl JaasError {
    pub(super) fn new(
        text: &[char],
        at: usize,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> JaasError {
        let at = at.min(text.len());
        let start = text[..at]
            .iter()
            .rposition(|it| *it == '\n')
            .map_or(0, |newline| newline + 1);
        let end = text[at..]
            .iter()
            .position(|it| matches!(it, '\n' | '\r'))
            .map_or(text.len(), |length| at + length);
        JaasError {
            message: message.into(),
            line: text[..start].iter().filter(|it| **it == '\n').count() + 1,
            column: at - start + 1,
            shown: masked(text, start, end, at),
            hint,
        }
    }

    /// The line number, starting at 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column, starting at 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// The message without the line.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for JaasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = &self.shown;
        writeln!(f, "{} (column {})", self.message, self.column)?;
        writeln!(f, "    {line}")?;
        write!(f, "    {}^", " ".repeat(*column))?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for JaasError {}

/// The line from `start` to `end` with masked secrets, and the column of `at` in it.
fn masked(text: &[char], start: usize, end: usize, at: usize) -> (String, usize) {
    let mut tokens = Tokens::new(text, &['*']);
    let mut shown = String::new();
    let mut column = None;
    let mut written = start;
    let mut before: Option<Kind> = None;
    loop {
        let token = tokens.next();
        if token.end <= start && token.kind != Kind::End {
            before = Some(token.kind);
            continue;
        }
        if token.at >= end || token.kind == Kind::End {
            break;
        }
        // White space and comments between tokens. A comment may be a secret that contains a slash.
        for character in &text[written.max(start)..token.at.max(start)] {
            if column.is_none() && at == written {
                column = Some(shown.chars().count());
            }
            shown.push(if *character <= ' ' { ' ' } else { '.' });
            written += 1;
        }
        if column.is_none() && at <= token.at {
            column = Some(shown.chars().count());
        }
        shown.push_str(&shown_token(&token, before.as_ref()));
        written = token.end;
        if column.is_none() && at < token.end {
            column = Some(shown.chars().count().saturating_sub(1));
        }
        before = Some(token.kind);
    }
    let column = column.unwrap_or_else(|| shown.chars().count());
    (shown, column)
}

fn shown_token(token: &Token, before: Option<&Kind>) -> String {
    let is_value = before.is_some_and(|kind| kind.is_mark('='));
    match &token.kind {
        Kind::Word(word) if !is_value && is_known(word, before) => word.clone(),
        Kind::Word(_) | Kind::Number => "...".to_owned(),
        Kind::Quoted {
            is_closed: true, ..
        } => "\"...\"".to_owned(),
        Kind::Quoted { .. } => "\"...".to_owned(),
        Kind::Mark(mark) if "=;{}".contains(*mark) => mark.to_string(),
        Kind::Mark(_) => ".".to_owned(),
        Kind::End => String::new(),
    }
}

fn is_known(word: &str, before: Option<&Kind>) -> bool {
    let begins_entry = match before {
        None => true,
        Some(kind) => kind.is_mark(';') || kind.is_mark('{') || kind.is_mark('}'),
    };
    KNOWN_OPTIONS.contains(&word)
        || word.starts_with("user_")
        || word.ends_with("LoginModule")
        || ControlFlag::from_name(word).is_some()
        || word.ends_with("KafkaServer")
        || word.ends_with("KafkaClient")
        || (begins_entry && word.contains('.') && before.is_none())
}
