//! Parses lines as records (`org.apache.kafka.tools.LineMessageReader`).

use std::collections::BTreeMap;

use anyhow::bail;
use bytes::Bytes;
use ottla_client::ProducerRecord;
use ottla_records::RecordHeader;

/// Parses a line as headers, key and value.
pub(super) struct LineReader {
    topic: String,
    parse_key: bool,
    key_separator: String,
    parse_headers: bool,
    headers_delimiter: String,
    headers_separator: String,
    headers_key_separator: String,
    ignore_error: bool,
    null_marker: Option<String>,
    line_number: u64,
}

impl LineReader {
    pub(super) fn new(
        topic: &str,
        properties: &BTreeMap<String, String>,
    ) -> anyhow::Result<LineReader> {
        let text = |key: &str, default: &str| {
            properties
                .get(key)
                .map_or_else(|| default.to_owned(), Clone::clone)
        };
        let flag = |key: &str| {
            properties
                .get(key)
                .is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        };
        let reader = LineReader {
            topic: topic.to_owned(),
            parse_key: flag("parse.key"),
            key_separator: text("key.separator", "\t"),
            parse_headers: flag("parse.headers"),
            headers_delimiter: text("headers.delimiter", "\t"),
            headers_separator: text("headers.separator", ","),
            headers_key_separator: text("headers.key.separator", ":"),
            ignore_error: flag("ignore.error"),
            null_marker: properties.get("null.marker").cloned(),
            line_number: 0,
        };
        reader.check()?;
        Ok(reader)
    }

    /// Rejects separators that are ambiguous.
    fn check(&self) -> anyhow::Result<()> {
        let marks = [
            ("headers.delimiter", Some(&self.headers_delimiter)),
            ("headers.separator", Some(&self.headers_separator)),
            ("headers.key.separator", Some(&self.headers_key_separator)),
            ("null.marker", self.null_marker.as_ref()),
        ];
        for (index, (first, mark)) in marks.iter().enumerate() {
            for (second, other) in &marks[index + 1..] {
                if mark.is_some() && mark == other {
                    bail!("{first} and {second} may not be equal");
                }
            }
        }
        if self.null_marker.as_ref() == Some(&self.key_separator) {
            bail!("null.marker and key.separator may not be equal");
        }
        Ok(())
    }

    pub(super) fn read(&mut self, line: &str) -> anyhow::Result<ProducerRecord> {
        self.line_number += 1;
        let mut rest = line;
        let headers = if self.parse_headers {
            self.split_off(
                line,
                &mut rest,
                &self.headers_delimiter,
                "headers delimiter",
            )?
        } else {
            None
        };
        let key = if self.parse_key {
            self.split_off(line, &mut rest, &self.key_separator, "key separator")?
        } else {
            None
        };
        let headers = match headers {
            Some(headers) if !self.is_null(headers) => self.headers(headers)?,
            _ => Vec::new(),
        };
        let bytes =
            |text: &str| (!self.is_null(text)).then(|| Bytes::copy_from_slice(text.as_bytes()));
        Ok(ProducerRecord {
            topic: self.topic.clone(),
            key: key.and_then(bytes),
            value: bytes(rest),
            headers,
            ..ProducerRecord::default()
        })
    }

    fn split_off<'a>(
        &self,
        line: &str,
        rest: &mut &'a str,
        mark: &str,
        name: &str,
    ) -> anyhow::Result<Option<&'a str>> {
        match rest.split_once(mark) {
            Some((part, behind)) => {
                *rest = behind;
                Ok(Some(part))
            }
            None if self.ignore_error => Ok(None),
            None => bail!(
                "No {name} found on line number {}: '{line}'",
                self.line_number
            ),
        }
    }

    fn headers(&self, text: &str) -> anyhow::Result<Vec<RecordHeader>> {
        let mut headers = Vec::new();
        for pair in text.split(&self.headers_separator) {
            match pair.split_once(&self.headers_key_separator) {
                Some((key, _)) if self.is_null(key) => bail!(
                    "Header keys should not be equal to the null marker '{key}' as they can't be null"
                ),
                Some((key, value)) => {
                    let value =
                        (!self.is_null(value)).then(|| Bytes::copy_from_slice(value.as_bytes()));
                    headers.push(RecordHeader::new(key.to_owned(), value));
                }
                None if self.ignore_error => headers.push(RecordHeader::new(pair.to_owned(), None)),
                None => bail!(
                    "No header key separator found in pair '{pair}' on line number {}",
                    self.line_number
                ),
            }
        }
        Ok(headers)
    }

    fn is_null(&self, text: &str) -> bool {
        self.null_marker.as_deref() == Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(pairs: &[(&str, &str)]) -> LineReader {
        let properties = pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        LineReader::new("t", &properties).expect("accepted")
    }

    fn text(bytes: &Option<Bytes>) -> Option<&str> {
        bytes
            .as_ref()
            .map(|bytes| std::str::from_utf8(bytes).expect("UTF-8"))
    }

    #[test]
    fn headers_key_and_value_are_parsed() {
        let mut reader = reader(&[("parse.key", "true"), ("parse.headers", "true")]);
        let record = reader.read("a:1,b:2\tkey\tvalue\tmore").unwrap();
        assert_eq!(
            (text(&record.key), text(&record.value)),
            (Some("key"), Some("value\tmore"))
        );
        assert_eq!(record.headers.len(), 2);
        assert_eq!(record.headers[1].key, Bytes::from("b"));
        let error = reader.read("no tabs").unwrap_err();
        assert_eq!(
            error.to_string(),
            "No headers delimiter found on line number 2: 'no tabs'"
        );
    }

    #[test]
    fn the_null_marker_stands_for_null() {
        let mut reader = reader(&[
            ("parse.key", "true"),
            ("key.separator", "="),
            ("null.marker", "NULL"),
        ]);
        let record = reader.read("NULL=NULL").unwrap();
        assert_eq!((record.key, record.value), (None, None));
        let same = BTreeMap::from([("null.marker".to_owned(), "\t".to_owned())]);
        assert!(LineReader::new("t", &same).is_err());
    }

    #[test]
    fn parse_errors_can_be_ignored() {
        let mut reader = reader(&[("parse.key", "true"), ("ignore.error", "true")]);
        let record = reader.read("value").unwrap();
        assert_eq!(
            (text(&record.key), text(&record.value)),
            (None, Some("value"))
        );
    }
}
