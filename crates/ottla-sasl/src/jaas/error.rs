//! Errors in JAAS entries, shown with their line and the line that was probably meant. Words that may
//! be secret are masked.

use std::fmt;
use std::ops::Range;

use super::ControlFlag;
use super::tokens::{Kind, Token, Tokens};

/// An error in a JAAS text: Kafka's message, the line with a caret under the column, a hint,
/// and the line that was probably meant.
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
    /// An instruction.
    hint: Option<String>,
    /// A change of the text that probably mends it: the characters to replace, and the replacement.
    repair: Option<Box<(Range<usize>, String)>>,
    /// The line that was probably meant, with masked values.
    meant: Option<Box<str>>,
}

/// Repairs that are tried before the line is considered beyond repair.
const MAX_REPAIRS: usize = 16;

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
            repair: None,
            meant: None,
        }
    }

    /// Adds a change of the text that probably mends it.
    pub(super) fn with_repair(self, at: Range<usize>, text: impl Into<String>) -> JaasError {
        JaasError {
            repair: Some(Box::new((at, text.into()))),
            ..self
        }
    }

    /// Repairs the text, and adds the repaired line if `parse` then accepts it.
    pub(super) fn with_meant_line<T>(
        mut self,
        text: &[char],
        parse: impl Fn(&[char]) -> Result<T, JaasError>,
    ) -> JaasError {
        let mut text = text.to_vec();
        let mut repair = self.repair.clone();
        for _ in 0..MAX_REPAIRS {
            let Some((at, replacement)) = repair.map(|repair| *repair) else {
                return self;
            };
            text.splice(at, replacement.chars());
            match parse(&text) {
                Ok(_) => {
                    self.meant = Some(line_of(&text, self.line).into());
                    return self;
                }
                Err(error) => repair = error.repair,
            }
        }
        self
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
        if let Some(hint) = &self.hint {
            write!(f, "\n  {hint}")?;
        }
        match &self.meant {
            Some(line) => write!(f, "\n  probably meant:\n    {line}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for JaasError {}

/// A line with masked secrets. Repairs add no lines.
fn line_of(text: &[char], line: usize) -> String {
    let newlines = text.iter().enumerate().filter(|(_, it)| **it == '\n');
    let mut ends = newlines.map(|(at, _)| at);
    let start = match line {
        1 => 0,
        _ => ends.nth(line - 2).map_or(text.len(), |at| at + 1),
    };
    let is_end = |it: &char| matches!(it, '\n' | '\r');
    let end = text[start..].iter().position(is_end);
    let end = end.map_or(text.len(), |length| start + length);
    masked(text, start, end, start).0
}

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
