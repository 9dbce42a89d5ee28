//! The keys of token issuers, from where `sasl.oauthbearer.jwks.endpoint.url` says.

use std::time::Duration;

use ottla_sasl::{KeySource, path_of_file_url};

use crate::http::{ISSUER, JAAS, MOST_BYTES, Server};

/// How long an answer may take, from the first byte that is sent to the last that comes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The text of a key set. Blocks. The error is for people.
pub fn read_issuer_keys(source: &KeySource) -> Result<String, String> {
    match path_of_file_url(&source.url) {
        Some(path) => read_file(path),
        None => read_url(source),
    }
}

fn read_file(path: &str) -> Result<String, String> {
    let bytes =
        ottla_sync::fs::read(path).map_err(|error| format!("cannot be read: {path:?}: {error}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("is longer than {MOST_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

fn read_url(source: &KeySource) -> Result<String, String> {
    let server = Server {
        url: &source.url,
        name: ISSUER,
        settings_of: JAAS,
        ssl: &source.ssl,
        connect_timeout: None,
        read_timeout: None,
        total_timeout: PATIENCE,
    };
    let answer = server
        .get()
        .map_err(|error| format!("cannot be read: {error}"))?;
    match answer.status {
        200..=299 => Ok(answer.body),
        status => Err(format!("cannot be read: http status {status}")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use ottla_sasl::Secret;
    use ottla_testkit::certificates::{Authority, Wanted};

    use super::*;
    use crate::test_server::{answering, answering_over_tls, response};

    fn source(url: &str) -> KeySource {
        KeySource {
            url: url.to_owned(),
            refresh: Duration::from_secs(3600),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(10),
            ssl: BTreeMap::new(),
        }
    }

    fn with_stores(url: &str, trust_store: &Path, key_store: Option<&Path>) -> KeySource {
        let mut ssl = BTreeMap::new();
        let stores = [("truststore", Some(trust_store)), ("keystore", key_store)];
        for (name, path) in stores {
            if let Some(path) = path {
                ssl.insert(format!("ssl.{name}.type"), Secret::new("PEM"));
                let path = path.display().to_string();
                ssl.insert(format!("ssl.{name}.location"), Secret::new(path));
            }
        }
        KeySource { ssl, ..source(url) }
    }

    #[test]
    fn a_server_is_recognised_by_the_trust_store_of_the_jaas_entry() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let trust_store = ours.write(&dir.path().join("ours.pem"));
        let (good, _) = answering_over_tls(&ours, None, vec![response(200, "{}")]);
        let read = |url: &str| read_issuer_keys(&with_stores(url, &trust_store, None));
        assert_eq!(read(&good), Ok("{}".to_owned()));
        let (stranger, _) = answering_over_tls(&other, None, vec![response(200, "{}")]);
        let refused = read(&stranger).unwrap_err();
        assert!(refused.contains("certificate"), "{refused}");
        let nothing = with_stores(&good, &dir.path().join("none.pem"), None);
        let nothing = read_issuer_keys(&nothing).unwrap_err();
        assert!(nothing.contains("none.pem"), "{nothing}");
    }

    #[test]
    fn a_server_is_shown_the_key_store_of_the_jaas_entry() {
        let dir = tempfile::tempdir().unwrap();
        let ours = Authority::new("ours");
        let trust_store = ours.write(&dir.path().join("ours.pem"));
        let key_store = ours
            .issue(Wanted::default())
            .write(&dir.path().join("node.pem"));
        for (key_store, is_let_in) in [(Some(key_store.as_path()), true), (None, false)] {
            let (url, _) = answering_over_tls(&ours, Some(&ours), vec![response(200, "{}")]);
            let read = read_issuer_keys(&with_stores(&url, &trust_store, key_store));
            assert_eq!(read.is_ok(), is_let_in, "{read:?}");
        }
    }

    #[test]
    fn a_file_and_a_url_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        std::fs::write(&path, "{}").unwrap();
        for url in [
            format!("file://{}", path.display()),
            format!("file:{}", path.display()),
            format!("file://localhost{}", path.display()),
        ] {
            assert_eq!(read_issuer_keys(&source(&url)), Ok("{}".to_owned()));
        }
        let body = "{\"keys\":[]}";
        let (good, _) = answering(vec![response(200, body)]);
        assert_eq!(read_issuer_keys(&source(&good)), Ok(body.to_owned()));
    }

    #[test]
    fn unreadable_key_sets_are_errors() {
        let gone = read_issuer_keys(&source("file:///nowhere/keys.json")).unwrap_err();
        assert!(gone.starts_with("cannot be read"), "{gone}");
        let (busy, _) = answering(vec![response(503, "")]);
        let refused = read_issuer_keys(&source(&busy)).unwrap_err();
        assert!(refused.contains("503"), "{refused}");
        let elsewhere =
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
        let (elsewhere, _) = answering(vec![elsewhere.to_owned()]);
        let redirected = read_issuer_keys(&source(&elsewhere)).unwrap_err();
        assert!(redirected.contains("302"), "{redirected}");
    }
}
