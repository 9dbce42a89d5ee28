//! A PEM parser as lenient as Kafka's `DefaultSslEngineFactory.PemParser`: accepts text around the
//! entries, headers inside them, and everything on a single line.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// One entry: the label after `BEGIN`, and the decoded bytes.
pub struct PemEntry {
    pub label: String,
    pub bytes: Vec<u8>,
}

/// The entries of a text, in order. Text outside `BEGIN` and `END` is ignored. Returns an error for
/// people if an entry is not base64.
pub fn entries(text: &str) -> Result<Vec<PemEntry>, String> {
    let mut entries = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("-BEGIN ") {
        let after = &rest[at + "-BEGIN ".len()..];
        let Some((label, after)) = after.split_once('-') else {
            return Err("a BEGIN without the dashes that end it".to_owned());
        };
        let label = label.split_whitespace().collect::<Vec<_>>().join(" ");
        let after = after.trim_start_matches('-');
        let Some(end) = after.find("-END ") else {
            return Err(format!("BEGIN {label} has no END"));
        };
        let mut digits = String::new();
        for line in after[..end].lines() {
            // Headers, as in OpenSSL's old formats and in the output of `openssl pkcs12`.
            if !line.contains(':') {
                digits.extend(line.chars().filter(|c| !c.is_whitespace() && *c != '-'));
            }
        }
        let bytes = STANDARD
            .decode(digits.as_bytes())
            .map_err(|error| format!("{label} is not base64: {error}"))?;
        entries.push(PemEntry { label, bytes });
        rest = &after[end + 1..];
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<(String, Vec<u8>)> {
        let entries = entries(text).unwrap();
        entries.into_iter().map(|it| (it.label, it.bytes)).collect()
    }

    #[test]
    fn entries_are_found_in_text_with_headers_and_in_one_line() {
        let text = "Bag Attributes\n  friendlyName: x\n-----BEGIN CERTIFICATE-----\nAQ\nID\n-----END CERTIFICATE-----\n\
                    -----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nBAUG\n-----END RSA PRIVATE KEY-----";
        let expected = [
            ("CERTIFICATE".to_owned(), vec![1, 2, 3]),
            ("RSA PRIVATE KEY".to_owned(), vec![4, 5, 6]),
        ];
        assert_eq!(labels(text), expected);
        let one_line = "-----BEGIN CERTIFICATE----- AQ ID -----END CERTIFICATE-----";
        assert_eq!(labels(one_line), expected[..1]);
        assert_eq!(labels("no entry"), []);
    }

    #[test]
    fn truncated_files_are_refused() {
        assert!(entries("-----BEGIN CERTIFICATE-----\nAQID").is_err());
        assert!(entries("-----BEGIN CERTIFICATE").is_err());
        assert!(entries("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----").is_err());
    }
}
