//! Which records a search finds.

use ottla_records::RecordView;
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::expression::{Expression, Subject};
use crate::problem::Problem;
use crate::registry::{Decoded, DecodedRecord};

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
    /// It takes too long, or too much memory, to find out; or the schema registry does not answer.
    GivenUp,
}

impl Filter {
    /// Texts are looked for in the bytes and in what was decoded from them; expressions are about
    /// what was decoded. If the schema registry does not answer, only what the bytes show is known:
    /// an expression such as `!has(value.error)` would hold for all of them, and a redrive would
    /// send what its preview has not counted.
    pub(crate) fn judge(
        &self,
        topic: &str,
        partition: i32,
        record: &RecordView<'_>,
        decoded: &DecodedRecord,
    ) -> Verdict {
        let view = decoded.view(record);
        let is_unread = |part: &Option<Decoded>| part.as_ref().is_some_and(|it| it.is_unread);
        let (key, value) = (is_unread(&decoded.key), is_unread(&decoded.value));
        let differs = |is_unread| match is_unread {
            true => Verdict::GivenUp,
            false => Verdict::Differs,
        };
        if !self.has_key(record, &view) {
            return differs(key);
        }
        if !self.has_text(record, &view) {
            return differs(key || value);
        }
        if self.expressions.is_empty() {
            return Verdict::Matches;
        }
        let subject = Subject::new(topic, partition, &view).with_unread(key, value);
        let holds = self.expressions.iter().all(|it| it.holds(&subject));
        match holds {
            _ if subject.is_given_up() => Verdict::GivenUp,
            true => Verdict::Matches,
            false => Verdict::Differs,
        }
    }

    fn has_key(&self, record: &RecordView<'_>, view: &RecordView<'_>) -> bool {
        let Some(key) = &self.key else {
            return true;
        };
        let wanted = Some(key.as_bytes());
        record.key == wanted
            || view.key == wanted
            || (view.key != record.key && view.key.is_some_and(|json| is_text(json, key)))
    }

    fn has_text(&self, record: &RecordView<'_>, view: &RecordView<'_>) -> bool {
        let Some(text) = &self.text else {
            return true;
        };
        let has = |bytes: Option<&[u8]>| bytes.is_some_and(|bytes| text.is_match(bytes));
        has(view.value)
            || has(view.key)
            || (view.value != record.value && has(record.value))
            || (view.key != record.key && has(record.key))
            || record
                .headers
                .iter()
                .any(|(name, value)| has(Some(name)) || has(value))
    }
}

/// Whether JSON is this text.
fn is_text(json: &[u8], text: &str) -> bool {
    serde_json::from_slice::<String>(json).is_ok_and(|it| it == text)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ottla_records::{Compression, RecordBatchBuilder, RecordHeader};
    use ottla_types::Timestamp;

    use super::*;
    use crate::registry::{Kind, SchemaId};

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
            let filter = query.parse().unwrap();
            filter.judge("t", 0, &record, &DecodedRecord::default()) == Verdict::Matches
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
    fn what_was_decoded_is_found() {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        let (key, value) = (&b"\0\0\0\0\x01\x04k1"[..], &b"\0\0\0\0\x02raw"[..]);
        builder.append(Timestamp(0), Some(key), Some(value), &[]);
        let batch = builder.build();
        let records = batch.records(1 << 20).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let part = |id, json: &str| Decoded {
            schema: SchemaId::Number(id),
            kind: Some(Kind::Avro),
            subject: None,
            is_unread: false,
            outcome: Ok(json.to_owned()),
        };
        let decoded = DecodedRecord {
            key: Some(part(1, "\"k1\"")),
            value: Some(part(2, r#"{"name": "Anna"}"#)),
        };
        let matches = |query: FilterQuery| {
            let filter = query.parse().unwrap();
            filter.judge("t", 0, &record, &decoded) == Verdict::Matches
        };
        let text = |text: &str| FilterQuery {
            text: Some(text.into()),
            ..FilterQuery::default()
        };
        let key = |key: &str| FilterQuery {
            key: Some(key.into()),
            ..FilterQuery::default()
        };
        let expression = |expression: &str| FilterQuery {
            expression: Some(expression.into()),
            ..FilterQuery::default()
        };
        assert!(matches(text("anna")) && matches(text("raw")) && !matches(text("zzz")));
        assert!(matches(key("k1")) && matches(key("\"k1\"")) && !matches(key("k")));
        assert!(matches(expression("value.name == 'Anna' && key == 'k1'")));
        assert!(!matches(expression("value.name == 'Berta'")));
    }

    #[test]
    fn without_an_answer_of_the_registry_only_the_bytes_are_judged() {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(Timestamp(0), Some(b"k"), Some(b"\0\0\0\0\x02raw"), &[]);
        let batch = builder.build();
        let records = batch.records(1 << 20).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let mut decoded = DecodedRecord {
            key: None,
            value: Some(Decoded {
                schema: SchemaId::Number(2),
                kind: None,
                subject: None,
                is_unread: true,
                outcome: Err("no answer".into()),
            }),
        };
        let judge = |query: FilterQuery, decoded: &DecodedRecord| {
            let filter = query.parse().unwrap();
            filter.judge("t", 0, &record, decoded)
        };
        let text = |text: &str| FilterQuery {
            text: Some(text.into()),
            ..FilterQuery::default()
        };
        let expression = |expression: &str| FilterQuery {
            expression: Some(expression.into()),
            ..FilterQuery::default()
        };
        let not_failed = "!has(value.error)";
        for (query, verdict) in [
            (expression(not_failed), Verdict::GivenUp),
            (expression("value.error == 'x'"), Verdict::GivenUp),
            (expression("partition == 0 && key == 'k'"), Verdict::Matches),
            (
                expression("partition == 1 && has(value.a)"),
                Verdict::Differs,
            ),
            (text("raw"), Verdict::Matches),
            (text("Anna"), Verdict::GivenUp),
        ] {
            assert_eq!(judge(query.clone(), &decoded), verdict, "{query:?}");
        }
        // The schema does not exist: the bytes are all that there is.
        decoded.value.as_mut().unwrap().is_unread = false;
        assert_eq!(judge(expression(not_failed), &decoded), Verdict::Matches);
        assert_eq!(judge(text("Anna"), &decoded), Verdict::Differs);
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
