//! Regular expressions for topic names, with the syntax and semantics of RE2/J, which Kafka's
//! coordinator uses.
//!
//! The `regex` crate supports most of that syntax and more, with some conflicts: `a**`, `(?x)` and
//! `[a&&b]` are valid there but are errors or mean something else in RE2/J; `\Q…\E`, `a{` and octal
//! escapes are the opposite. So an expression is parsed here by RE2/J's rules, refused with its
//! messages, and translated into an unambiguous form. Topic names are ASCII, so the parts of an
//! expression for other characters are only validated. Source: `com.google.re2j.Parser`,
//! `TopicRegexResolver`.

mod ascii_set;
mod parser;

use std::collections::BTreeSet;

use bytestring::ByteString;
use regex::bytes::{Regex, RegexBuilder};

/// The maximum nesting depth of groups. RE2/J is limited only by its thread's stack.
const NEST_LIMIT: u32 = 1_000;

#[derive(Debug)]
pub(super) struct TopicRegex(Regex);

impl TopicRegex {
    /// The error is RE2/J's message.
    pub(super) fn compile(text: &str) -> Result<Self, &'static str> {
        let pattern = parser::parse(text)?;
        RegexBuilder::new(&format!(r"\A(?:{pattern})\z"))
            .unicode(false)
            .nest_limit(NEST_LIMIT)
            .build()
            .map(TopicRegex)
            .map_err(|_| "expression too large")
    }

    /// Whether the whole name matches.
    pub(super) fn matches(&self, topic: &str) -> bool {
        self.0.is_match(topic.as_bytes())
    }
}

/// The topics that match a regular expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedRegex {
    pub topics: BTreeSet<ByteString>,
    /// The version of the metadata with which it was resolved.
    pub version: i64,
    pub timestamp_ms: i64,
}

#[cfg(test)]
mod tests;
