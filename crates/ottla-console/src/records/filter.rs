//! Which records a search finds.

use ottla_records::RecordView;
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::expression::{Expression, Subject};
use crate::problem::Problem;

/// The memory for finding a text.
const TEXT_REGEX_BYTES: usize = 1 << 20;

/// The conditions of a request; all that are given must hold.
#[derive(Serialize, Deserialize, Default, Clone, Debug)]
pub(crate) struct FilterQuery {
    /// A substring of key, value or a header; case is ignored.
    text: Option<String>,
    /// The key, exactly.
    key: Option<String>,
    json_path: Option<String>,
    expression: Option<String>,
}

#[derive(Default)]
pub(crate) struct Filter {
    text: Option<Regex>,
    key: Option<String>,
    expressions: Vec<Expression>,
}

impl FilterQuery {
    /// Empty conditions are as good as none.
    pub(crate) fn parse(&self) -> Result<Filter, Problem> {
        let given = |text: &Option<String>| text.clone().filter(|it| !it.trim().is_empty());
        let mut filter = Filter {
            // An empty key is a key.
            key: self.key.clone(),
            ..Filter::default()
        };
        if let Some(text) = given(&self.text) {
            let regex = RegexBuilder::new(&regex::escape(&text))
                .case_insensitive(true)
                .size_limit(TEXT_REGEX_BYTES)
                .build();
            let regex =
                regex.map_err(|error| Problem::invalid("text", format!("text: {error}")))?;
            filter.text = Some(regex);
        }
        if let Some(path) = given(&self.json_path) {
            let parsed = Expression::parse_path(&path);
            filter.expressions.push(parsed.map_err(|error| {
                Problem::invalid("json_path", format!("json_path={path}: {error}"))
            })?);
        }
        if let Some(expression) = given(&self.expression) {
            let parsed = Expression::parse(&expression);
            filter.expressions.push(parsed.map_err(|error| {
                Problem::invalid("expression", format!("expression={expression}: {error}"))
            })?);
        }
        Ok(filter)
    }
}

/// What a filter says of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Matches,
    Differs,
    /// It takes too long, or too much memory, to find out.
    GivenUp,
}

impl Filter {
    pub(crate) fn judge(&self, topic: &str, partition: i32, record: &RecordView<'_>) -> Verdict {
        if !self.has_texts(record) {
            return Verdict::Differs;
        }
        if self.expressions.is_empty() {
            return Verdict::Matches;
        }
        let subject = Subject::new(topic, partition, record);
        let holds = self.expressions.iter().all(|it| it.holds(&subject));
        match holds {
            _ if subject.is_given_up() => Verdict::GivenUp,
            true => Verdict::Matches,
            false => Verdict::Differs,
        }
    }

    fn has_texts(&self, record: &RecordView<'_>) -> bool {
        if let Some(key) = &self.key
            && record.key != Some(key.as_bytes())
        {
            return false;
        }
        if let Some(text) = &self.text {
            let has = |bytes: Option<&[u8]>| bytes.is_some_and(|bytes| text.is_match(bytes));
            let is_found = has(record.value)
                || has(record.key)
                || record
                    .headers
                    .iter()
                    .any(|(name, value)| has(Some(name)) || has(value));
            return is_found;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ottla_records::{Compression, RecordBatchBuilder, RecordHeader};
    use ottla_types::Timestamp;

    use super::*;

    #[test]
    fn all_conditions_must_hold() {
        let header = RecordHeader::new(Bytes::from("trace"), Some(Bytes::from("Abc")));
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(
            Timestamp(0),
            Some(b"k1"),
            Some(r#"{"n": 5, "t": "GRÜSSE"}"#.as_bytes()),
            &[header],
        );
        let batch = builder.build();
        let records = batch.records(1 << 20).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let matches = |text: Option<&str>,
                       key: Option<&str>,
                       json_path: Option<&str>,
                       expression: Option<&str>| {
            let owned = |it: Option<&str>| it.map(str::to_owned);
            let query = FilterQuery {
                text: owned(text),
                key: owned(key),
                json_path: owned(json_path),
                expression: owned(expression),
            };
            query.parse().unwrap().judge("t", 0, &record) == Verdict::Matches
        };
        assert!(matches(None, None, None, None));
        assert!(matches(Some("grüsse"), None, None, None));
        assert!(matches(
            Some("aBC"),
            Some("k1"),
            Some("$.n"),
            Some("value.n == 5")
        ));
        assert!(matches(Some(" "), None, Some(""), None));
        assert!(!matches(Some("zzz"), None, None, None));
        assert!(!matches(None, Some("k"), None, None));
        assert!(!matches(None, None, Some("$.m"), None));
        assert!(!matches(Some("abc"), None, None, Some("value.n == 6")));
    }

    #[test]
    fn a_text_is_not_a_regular_expression() {
        let query = FilterQuery {
            text: Some("(a.*".into()),
            ..FilterQuery::default()
        };
        query.parse().unwrap();
        let query = FilterQuery {
            expression: Some("value.".into()),
            ..FilterQuery::default()
        };
        assert_eq!(query.parse().err().map(|it| it.status()), Some(422));
    }
}
