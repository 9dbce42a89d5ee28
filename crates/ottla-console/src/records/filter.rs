//! Which records a search finds.
//!
//! Most records differ in their bytes already: a text, a key, or a name in an expression is not among them. That is found
//! out for a whole batch of records at once ([`Filter::may_be_in`]), then for a record, and only then is JSON parsed.

use memchr::memmem;
use ottla_records::RecordView;
use serde::{Deserialize, Serialize};

use super::expression::{Expression, Need, Subject};
use super::text::Text;
use crate::problem::Problem;
use crate::registry::{Decoded, DecodedRecord};

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
    text: Option<Text>,
    key: Option<memmem::Finder<'static>>,
    expressions: Vec<Expression>,
    /// Of the expressions.
    needs: Vec<Need>,
}

impl FilterQuery {
    /// Empty conditions are as good as none.
    pub(crate) fn parse(&self) -> Result<Filter, Problem> {
        let given = |text: &Option<String>| text.clone().filter(|it| !it.trim().is_empty());
        let mut filter = Filter {
            // An empty key is a key.
            key: self
                .key
                .as_ref()
                .map(|it| memmem::Finder::new(it).into_owned()),
            ..Filter::default()
        };
        if let Some(text) = given(&self.text) {
            let text = Text::new(&text);
            let text = text.map_err(|error| Problem::invalid("text", format!("text: {error}")))?;
            filter.text = Some(text);
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
        filter.needs = filter
            .expressions
            .iter()
            .flat_map(Expression::needs)
            .collect();
        Ok(filter)
    }
}

/// The result of a filter for a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Matches,
    Differs,
    /// It takes too long, or too much memory, to find out; or the schema registry does not answer.
    GivenUp,
}

impl Filter {
    /// Whether a record within these bytes may match, if it is not decoded by a schema.
    pub(crate) fn may_be_in(&self, records: &[u8]) -> bool {
        let key = self.key.as_ref();
        key.is_none_or(|key| key.find(records).is_some())
            && self.text.as_ref().is_none_or(|it| it.may_be_in(records))
            && self.needs.iter().all(|it| it.may_be_in(records))
    }

    /// Whether one record can take long.
    pub(crate) fn has_expressions(&self) -> bool {
        !self.expressions.is_empty()
    }

    /// Texts are searched in the bytes and in the decoded values; expressions use the decoded
    /// values. If the schema registry does not answer, only the bytes are known. An expression such
    /// as `!has(value.error)` would hold for all records, and a redrive would send records that its
    /// preview has not counted.
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
        let is_as_written = decoded.key.is_none() && decoded.value.is_none();
        if is_as_written && !self.needs.iter().all(|it| it.may_be_of(record)) {
            return Verdict::Differs;
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
        let key = key.needle();
        let wanted = Some(key);
        record.key == wanted
            || view.key == wanted
            || (view.key != record.key && view.key.is_some_and(|json| is_text(json, key)))
    }

    fn has_text(&self, record: &RecordView<'_>, view: &RecordView<'_>) -> bool {
        let Some(text) = &self.text else {
            return true;
        };
        let has = |bytes: Option<&[u8]>| bytes.is_some_and(|bytes| text.is_in(bytes));
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
fn is_text(json: &[u8], text: &[u8]) -> bool {
    serde_json::from_slice::<String>(json).is_ok_and(|it| it.as_bytes() == text)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ottla_records::{
        Compression, CompressionType, RecordBatch, RecordBatchBuilder, RecordHeader,
    };
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
    fn decoded_values_are_found() {
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

    const PARTS: &[Option<&[u8]>] = &[
        None,
        Some(b""),
        Some(b"k1"),
        Some(b"\"k1\""),
        Some(b"\xff\xfe error"),
        Some(br#"{"name": "Anna", "n": 5, "tags": ["a", "b"]}"#),
        Some(br#"{"n\u0061me": "\u0041nna", "n": 1e2}"#),
        Some(br#"{"name": "ANNA", "error": null}"#),
        Some("Grüße, \u{212a}iss".as_bytes()),
        Some(b"[1, 2, 100]"),
    ];
    const EXPRESSIONS: &[&str] = &[
        "value.name == 'Anna'",
        "'Anna' == value.name && value.n == 5",
        "value.name != 'Anna'",
        "!(value.name == 'Anna')",
        "value.name == 'Anna' || key == 'k1'",
        "value.n.contains('100')",
        "value.name.startsWith('An')",
        "value.contains('error')",
        "key == 'k1'",
        "key == null",
        "value.error == null",
        "$..n > 4",
        "has(value.error)",
        "value.name in ['Anna', 'ANNA']",
        "size(value.tags) == 2",
        "headers.source == 'web'",
        "headers.source == null",
        "headers.source.contains('we')",
        "value.name.matches('^A')",
        "value.n",
        "partition == 0",
    ];
    const TEXTS: &[&str] = &[
        "anna", "ERROR", "grüsse", "GRÜßE", "kiss", "100", "we", "\\u0041", "k1",
    ];

    /// Records of all parts as keys and as values, with and without headers, a few in a batch.
    fn batches() -> Vec<RecordBatch> {
        let header = |value: Option<&'static str>| {
            RecordHeader::new(Bytes::from("source"), value.map(Bytes::from))
        };
        let headers = [vec![], vec![header(Some("web"))], vec![header(None)]];
        let pairs = PARTS
            .iter()
            .flat_map(|key| PARTS.iter().map(move |it| (*key, *it)));
        let records: Vec<_> = pairs.zip(headers.iter().cycle()).collect();
        let mut batches = Vec::new();
        for (records, codec) in records.chunks(3).zip(CompressionType::ALL.iter().cycle()) {
            let mut builder = RecordBatchBuilder::new(Compression::from(*codec));
            for ((key, value), headers) in records {
                builder.append(Timestamp(0), *key, *value, headers);
            }
            batches.push(builder.build());
        }
        batches
    }

    /// The result of a filter with one condition if every record is judged without the check of its
    /// bytes.
    fn expected(query: &FilterQuery, record: &RecordView<'_>) -> bool {
        if let Some(expression) = &query.expression {
            let subject = Subject::new("t", 0, record);
            return Expression::parse(expression).unwrap().holds(&subject);
        }
        if let Some(key) = &query.key {
            return record.key == Some(key.as_bytes());
        }
        let text = regex::escape(query.text.as_deref().unwrap());
        let regex = regex::bytes::Regex::new(&format!("(?i){text}")).unwrap();
        let has = |part: Option<&[u8]>| part.is_some_and(|it| regex.is_match(it));
        let mut headers = record.headers.iter();
        has(record.key)
            || has(record.value)
            || headers.any(|(name, value)| has(Some(name)) || has(value))
    }

    #[test]
    fn skipped_batches_contain_no_match() {
        let expression = |it: &&str| FilterQuery {
            expression: Some((*it).to_owned()),
            ..FilterQuery::default()
        };
        let text = |it: &&str| FilterQuery {
            text: Some((*it).to_owned()),
            ..FilterQuery::default()
        };
        let key = |it: &&str| FilterQuery {
            key: Some((*it).to_owned()),
            ..FilterQuery::default()
        };
        let expressions = EXPRESSIONS.iter().map(expression);
        let keys = ["", "k1", "\"k1\"", "none"];
        let queries = expressions.chain(TEXTS.iter().map(text));
        let queries: Vec<FilterQuery> = queries.chain(keys.iter().map(key)).collect();
        let batches = batches();
        let (mut passed_over, mut found) = (0, 0);
        for query in &queries {
            let filter = query.parse().unwrap();
            for batch in &batches {
                let records = batch.records(1 << 20).unwrap();
                let may_match = filter.may_be_in(records.bytes());
                passed_over += usize::from(!may_match);
                for record in records.iter() {
                    let record = record.unwrap();
                    let verdict = filter.judge("t", 0, &record, &DecodedRecord::default());
                    let expected = expected(query, &record);
                    assert_eq!(
                        verdict == Verdict::Matches,
                        expected,
                        "{query:?}: {record:?}"
                    );
                    assert!(may_match || !expected, "{query:?}: {record:?}");
                    found += usize::from(expected);
                }
            }
        }
        assert!(passed_over > batches.len() && found > batches.len());
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
