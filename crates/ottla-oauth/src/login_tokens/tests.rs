use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ottla_testkit::certificates::Authority;
use ottla_testkit::tokens::TokenIssuer;
use serde_json::json;

use super::*;
use crate::test_server::{answering, answering_over_tls, response};

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_millis() as i64
}

/// With the id `me` and the secret `hush`.
fn source(settings: &[(&str, &str)], options: &str) -> TokenSource {
    let lookup = |key: &str| {
        let given = settings.iter().find(|(name, _)| *name == key)?;
        Some(given.1.to_owned())
    };
    let module = format!(
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=\"me\" \
         clientSecret=\"hush\" {options};"
    );
    let module = ottla_sasl::jaas::parse_property(&module).unwrap();
    TokenSource::read(lookup, Some(&module)).unwrap()
}

fn at(url: &str) -> TokenSource {
    source(
        &[(URL, url), ("sasl.login.retry.backoff.max.ms", "2000")],
        "",
    )
}

/// An answer with a token that is valid for so many seconds.
fn granted(issuer: &TokenIssuer, seconds: i64) -> String {
    let token = issuer.token("node", seconds, &json!({}));
    response(200, &json!({ "access_token": token }).to_string())
}

fn token_of(credentials: ClientCredentials) -> Secret {
    match credentials {
        ClientCredentials::Token { token, .. } => token,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_token_is_asked_for_once_and_replaced_in_time() {
    let issuer = TokenIssuer::new("one");
    let answers = vec![granted(&issuer, 600), granted(&issuer, 900)];
    let (url, requests) = answering(answers);
    let (tokens, source, now) = (LoginTokens::default(), at(&url), now_ms());
    let first = token_of(tokens.credentials(&source, now).unwrap());
    let request = requests.recv().unwrap();
    assert!(request.starts_with("POST /at HTTP/1.1\r\n"), "{request}");
    let lower = request.to_ascii_lowercase();
    for header in [
        "accept: application/json\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "authorization: basic bwu6ahvzaa==\r\n",
    ] {
        assert!(lower.contains(header), "{request}");
    }
    assert!(
        request.ends_with("\r\n\r\ngrant_type=client_credentials"),
        "{request}"
    );
    // The last five minutes are not used, and the first is.
    let again = token_of(tokens.credentials(&source, now + 59_000).unwrap());
    assert_eq!(again, first);
    assert!(requests.try_recv().is_err());
    let second = token_of(tokens.credentials(&source, now + 301_000).unwrap());
    assert_ne!(second, first);
}

#[test]
fn what_passes_is_repeated_and_what_stays_is_not() {
    let issuer = TokenIssuer::new("one");
    let (url, requests) = answering(vec![response(503, "later"), granted(&issuer, 600)]);
    let tokens = LoginTokens::default();
    assert!(tokens.credentials(&at(&url), now_ms()).is_ok());
    assert_eq!(requests.iter().take(2).count(), 2);

    let refusal = json!({ "error": "invalid_client", "error_description": "who is that?" });
    let (url, _requests) = answering(vec![
        response(401, &refusal.to_string()),
        granted(&issuer, 600),
    ]);
    let error = tokens.credentials(&at(&url), now_ms()).unwrap_err();
    assert!(
        error.contains("401 invalid_client: who is that?"),
        "{error}"
    );
    assert!(error.contains(&url) && !error.contains("hush"), "{error}");
}

#[test]
fn a_token_that_is_still_good_is_used_while_there_is_no_other() {
    let issuer = TokenIssuer::new("one");
    let (url, _requests) = answering(vec![granted(&issuer, 600), response(400, "")]);
    let (tokens, source, now) = (LoginTokens::default(), at(&url), now_ms());
    let first = token_of(tokens.credentials(&source, now).unwrap());
    let kept = token_of(tokens.credentials(&source, now + 500_000).unwrap());
    assert_eq!(kept, first);
    // Nobody answers any more.
    let error = tokens.credentials(&source, now + 601_000).unwrap_err();
    assert!(error.contains("no token from"), "{error}");
}

#[test]
fn an_endpoint_is_recognised_by_the_trust_store_of_the_jaas_entry() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, issuer) = (Authority::new("ours"), TokenIssuer::new("one"));
    let trust_store = authority.write(&dir.path().join("ours.pem"));
    let (url, _requests) = answering_over_tls(&authority, None, vec![granted(&issuer, 600)]);
    let settings = [(URL, &*url), ("sasl.login.retry.backoff.max.ms", "1")];
    let options = format!(
        "ssl.truststore.type=\"PEM\" ssl.truststore.location=\"{}\"",
        trust_store.display()
    );
    let tokens = LoginTokens::default();
    assert!(
        tokens
            .credentials(&source(&settings, &options), now_ms())
            .is_ok()
    );
    let (url, _requests) = answering_over_tls(&authority, None, vec![granted(&issuer, 600)]);
    let settings = [(URL, &*url), ("sasl.login.retry.backoff.max.ms", "1")];
    let error = tokens
        .credentials(&source(&settings, ""), now_ms())
        .unwrap_err();
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn a_file_is_read_for_each_login() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let url = format!("file://{}", path.display());
    let source = source(&[(URL, &url)], "extension_trace=\"on\"");
    let (tokens, issuer) = (LoginTokens::default(), TokenIssuer::new("one"));
    let error = tokens.credentials(&source, now_ms()).unwrap_err();
    assert!(error.contains("cannot be read"), "{error}");
    for seconds in [600, 700] {
        let token = issuer.token("node", seconds, &json!({}));
        std::fs::write(&path, format!("{token}\n")).unwrap();
        let expected = ClientCredentials::Token {
            token: Secret::new(token),
            extensions: BTreeMap::from([("trace".to_owned(), "on".to_owned())]),
        };
        assert!(tokens.credentials(&source, now_ms()) == Ok(expected));
    }
    let nobody = issuer.token(" ", 600, &json!({}));
    std::fs::write(&path, nobody).unwrap();
    let error = tokens.credentials(&source, now_ms()).unwrap_err();
    assert!(error.contains("no claim sub"), "{error}");
    std::fs::write(&path, "nothing").unwrap();
    let error = tokens.credentials(&source, now_ms()).unwrap_err();
    assert!(error.contains("three parts"), "{error}");
}
