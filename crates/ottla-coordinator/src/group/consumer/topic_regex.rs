//! Regular expressions over names of topics, in the syntax and with the meaning of RE2/J, which Kafka's coordinator uses.
//!
//! The `regex` crate knows much of that syntax and more, and differs where it hurts: `a**`, `(?x)` and `[a&&b]` mean
//! something to it and are errors or something else in RE2/J; `\Q…\E`, `a{` and octal escapes are the other way round. So an
//! expression is read here by RE2/J's rules, refused in its words, and handed on in a form that leaves nothing to
//! interpretation. Names of topics are ASCII, so that what an expression says of other characters is only checked.
//! Source: `com.google.re2j.Parser`, `TopicRegexResolver`.

mod ascii_set;
mod parser;

use std::collections::BTreeSet;

use bytestring::ByteString;
use regex::bytes::{Regex, RegexBuilder};

/// How deep groups may be nested. RE2/J has no limit but its thread's stack.
const NEST_LIMIT: u32 = 1_000;

#[derive(Debug)]
pub(super) struct TopicRegex(Regex);

impl TopicRegex {
    /// The error is what RE2/J says about the expression.
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
    /// Of the metadata that it was matched with.
    pub version: i64,
    pub timestamp_ms: i64,
}

#[cfg(test)]
mod tests;
