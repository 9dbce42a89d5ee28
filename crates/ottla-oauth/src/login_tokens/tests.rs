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

/// An answer with a token that is valid for this many seconds.
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

#[tokio::test]
async fn a_token_is_requested_once_and_replaced_in_time() {
    let issuer = TokenIssuer::new("one");
    let answers = vec![granted(&issuer, 600), granted(&issuer, 900)];
    let (url, requests) = answering(answers);
    let (tokens, source, now) = (LoginTokens::default(), at(&url), now_ms());
    let first = token_of(tokens.credentials(&source, || now).await.unwrap());
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
    let again = token_of(tokens.credentials(&source, || now + 59_000).await.unwrap());
    assert_eq!(again, first);
    assert!(requests.try_recv().is_err());
    let second = token_of(tokens.credentials(&source, || now + 301_000).await.unwrap());
    assert_ne!(second, first);
}

#[tokio::test]
async fn transient_errors_are_retried_and_permanent_ones_are_not() {
    let issuer = TokenIssuer::new("one");
    let (url, requests) = answering(vec![response(503, "later"), granted(&issuer, 600)]);
    let tokens = LoginTokens::default();
    assert!(tokens.credentials(&at(&url), now_ms).await.is_ok());
    assert_eq!(requests.iter().take(2).count(), 2);

    let refusal = json!({ "error": "invalid_client", "error_description": "who is that?" });
    let (url, _requests) = answering(vec![
        response(401, &refusal.to_string()),
        granted(&issuer, 600),
    ]);
    let error = tokens
        .credentials(&at(&url), now_ms)
        .await
        .unwrap_err()
        .message;
    assert!(
        error.contains("401 invalid_client: who is that?"),
        "{error}"
    );
    assert!(error.contains(&url) && !error.contains("hush"), "{error}");
}

#[tokio::test]
async fn an_answer_that_may_hold_a_token_is_not_shown() {
    let issuer = TokenIssuer::new("one");
    let token = issuer.token("node", 600, &json!({}));
    for status in [203, 206] {
        let body = json!({ "access_token": token }).to_string();
        let answer = || response(status, &body);
        let (url, _requests) = answering(vec![answer(), answer(), answer(), answer()]);
        let settings = [(URL, &*url), ("sasl.login.retry.backoff.max.ms", "50")];
        let tokens = LoginTokens::default();
        let error = tokens.credentials(&source(&settings, ""), now_ms).await;
        let error = error.unwrap_err().message;
        assert!(error.contains(&format!("http status {status}")), "{error}");
        assert!(!error.contains("access_token"), "{error}");
    }
}

/// No login waits for an endpoint while a token is valid.
#[tokio::test]
async fn a_valid_token_is_used_while_the_endpoint_fails() {
    let issuer = TokenIssuer::new("one");
    let (url, requests) = answering(vec![granted(&issuer, 600), response(400, "")]);
    let (tokens, source, now) = (LoginTokens::default(), at(&url), now_ms());
    let first = token_of(tokens.credentials(&source, || now).await.unwrap());
    let kept = token_of(tokens.credentials(&source, || now + 500_000).await.unwrap());
    assert_eq!(kept, first);
    assert_eq!(
        requests.iter().take(2).count(),
        2,
        "another one was requested"
    );
    // The endpoint no longer answers.
    let error = tokens.credentials(&source, || now + 601_000).await;
    let error = error.unwrap_err().message;
    assert!(error.contains("no token from"), "{error}");
}

/// A change of `sasl.login.refresh.*` applies to the token that is there.
#[tokio::test]
async fn the_refresh_settings_are_those_of_the_login() {
    let issuer = TokenIssuer::new("one");
    let (url, requests) = answering(vec![granted(&issuer, 600), granted(&issuer, 900)]);
    let (tokens, now) = (LoginTokens::default(), now_ms());
    let first = token_of(tokens.credentials(&at(&url), || now).await.unwrap());
    assert!(requests.recv().is_ok());
    // Due after five of ten minutes with the default buffer, and after eight with this one.
    let mut changed = at(&url);
    changed.refresh.buffer_seconds = 60;
    changed.refresh.min_period_seconds = 0;
    let later = now + 400_000;
    let kept = token_of(tokens.credentials(&changed, || later).await.unwrap());
    assert_eq!(kept, first);
    assert!(requests.try_recv().is_err(), "no other token is asked for");
    assert_eq!(tokens.by_source.lock().len(), 1);
    let second = token_of(tokens.credentials(&at(&url), || later).await.unwrap());
    assert_ne!(second, first);
}

/// An endpoint that does not answer holds up no login for which there is a token.
#[tokio::test]
async fn a_silent_endpoint_is_waited_for_a_second() {
    let issuer = TokenIssuer::new("one");
    let (url, _requests) = answering(vec![granted(&issuer, 600)]);
    let (tokens, source, now) = (LoginTokens::default(), at(&url), now_ms());
    let first = token_of(tokens.credentials(&source, || now).await.unwrap());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = at(&format!("http://{}/at", silent.local_addr().unwrap()));
    let held = tokens.of(&source).state.lock().held.take();
    tokens.of(&silent).state.lock().held = held;
    for patience in [20, 1] {
        let login = tokens.credentials(&silent, || now + 500_000);
        let limit = std::time::Duration::from_secs(patience);
        let used = tokio::time::timeout(limit, login).await.expect("in time");
        assert_eq!(token_of(used.unwrap()), first);
    }
}

/// Many logins without a token share one request and its failure. No request is sent for the next
/// ten seconds.
#[tokio::test]
async fn logins_share_one_request_and_its_failure() {
    let refusal = json!({ "error": "invalid_client" }).to_string();
    let (url, requests) = answering(vec![response(401, &refusal), response(401, &refusal)]);
    let (tokens, source) = (LoginTokens::default(), at(&url));
    for _ in 0..3 {
        let all = [(); 3].map(|()| tokens.credentials(&source, now_ms));
        let [one, two, three] = all;
        for outcome in [one.await, two.await, three.await] {
            let error = outcome.unwrap_err();
            assert!(error.message.contains("invalid_client") && !error.is_passing);
        }
    }
    assert!(requests.recv().is_ok() && requests.try_recv().is_err());
}

#[tokio::test]
async fn an_endpoint_is_recognised_by_the_trust_store_of_the_jaas_entry() {
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
            .credentials(&source(&settings, &options), now_ms)
            .await
            .is_ok()
    );
    let (url, _requests) = answering_over_tls(&authority, None, vec![granted(&issuer, 600)]);
    let settings = [(URL, &*url), ("sasl.login.retry.backoff.max.ms", "1")];
    let error = tokens
        .credentials(&source(&settings, ""), now_ms)
        .await
        .unwrap_err()
        .message;
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_file_is_read_for_each_login() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let url = format!("file://{}", path.display());
    let source = source(&[(URL, &url)], "extension_trace=\"on\"");
    let (tokens, issuer) = (LoginTokens::default(), TokenIssuer::new("one"));
    let error = tokens
        .credentials(&source, now_ms)
        .await
        .unwrap_err()
        .message;
    assert!(error.contains("cannot be read"), "{error}");
    for seconds in [600, 700] {
        let token = issuer.token("node", seconds, &json!({}));
        std::fs::write(&path, format!("{token}\n")).unwrap();
        let expected = ClientCredentials::Token {
            token: Secret::new(token),
            extensions: BTreeMap::from([("trace".to_owned(), "on".to_owned())]),
        };
        assert!(tokens.credentials(&source, now_ms).await == Ok(expected));
    }
    // While the file is being replaced, the last token is used.
    for wrong in [issuer.token(" ", 600, &json!({})), "nothing".to_owned()] {
        std::fs::write(&path, &wrong).unwrap();
        assert!(tokens.credentials(&source, now_ms).await.is_ok());
        let later = now_ms() + 701_000;
        let error = tokens.credentials(&source, || later).await;
        let error = error.unwrap_err().message;
        let expected = if wrong == "nothing" {
            "three parts"
        } else {
            "no claim sub"
        };
        assert!(error.contains(expected), "{error}");
    }
}
