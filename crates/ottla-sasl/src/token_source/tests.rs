use super::*;
use crate::jaas::parse_property;

const MODULE: &str = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";

fn read(settings: &[(&str, &str)], options: &str) -> Result<TokenSource, String> {
    let module = parse_property(&format!("{MODULE} required {options};")).unwrap();
    let lookup = |key: &str| {
        let given = settings.iter().find(|(name, _)| *name == key)?;
        Some(given.1.to_owned())
    };
    TokenSource::read(lookup, Some(&module)).map_err(|(_, message)| message)
}

fn grant(settings: &[(&str, &str)], options: &str) -> TokenGrant {
    let mut all = vec![(URL, "https://issuer/token")];
    all.extend(settings);
    match read(&all, options).unwrap().place {
        TokenPlace::Endpoint(_, grant) => *grant,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_a_source() {
    for (url, retriever) in [
        ("file:///tmp/token", ""),
        (
            "file:/tmp/token",
            "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever",
        ),
        (
            "file://localhost/tmp/token",
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        ),
    ] {
        let source = read(
            &[(URL, url), (RETRIEVER, retriever)],
            "extension_trace=\"on\"",
        )
        .unwrap();
        assert_eq!(source.place, TokenPlace::File("/tmp/token".to_owned()));
        assert_eq!(source.extensions["trace"], "on");
    }
}

#[test]
fn a_secret_is_sent_as_kafka_sends_it() {
    let secret = grant(
        &[(SCOPE, "read write"), (CLIENT_ID, "of setting")],
        "clientId=\"of option\" clientSecret=\"s&t\" scope=\"unused\"",
    );
    let request = secret.request(&Secret::default());
    assert_eq!(
        request.body.expose(),
        "grant_type=client_credentials&scope=read write"
    );
    let user = BASE64_STANDARD.encode("of setting:s&t");
    assert_eq!(
        request.authorization.unwrap().expose(),
        format!("Basic {user}")
    );
    assert!(!format!("{secret:?}").contains("s&t"));

    let encoded = grant(
        &[
            ("sasl.oauthbearer.header.urlencode", "true"),
            (CLIENT_ID, "a b"),
            (CLIENT_SECRET, "s&t*"),
            (SCOPE, "read write"),
        ],
        "",
    );
    let request = encoded.request(&Secret::default());
    assert_eq!(
        request.body.expose(),
        "grant_type=client_credentials&scope=read+write"
    );
    let user = BASE64_STANDARD.encode("a+b:s%26t*");
    assert_eq!(
        request.authorization.unwrap().expose(),
        format!("Basic {user}")
    );
}

#[test]
fn assertions_are_sent_in_the_form() {
    let assertion = Secret::new("a.b.c=");
    let with_assertion = grant(
        &[(ASSERTION_FILE, "/assertion"), (SCOPE, "a b")],
        "clientId=\"me\"",
    );
    assert_eq!(
        with_assertion.assertion(),
        Some(&Assertion::File("/assertion".to_owned()))
    );
    let request = with_assertion.request(&assertion);
    assert_eq!(
        request.body.expose(),
        "client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer\
         &client_assertion=a.b.c%3D&grant_type=client_credentials&client_id=me&scope=a+b"
    );
    assert_eq!(request.authorization, None);

    let bearer = grant(
        &[
            (
                RETRIEVER,
                "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
            ),
            (KEY_FILE, "/key.pem"),
            (ALGORITHM, "es256"),
            ("sasl.oauthbearer.assertion.claim.iss", "me"),
        ],
        "",
    );
    let Some(Assertion::Signed(template)) = bearer.assertion() else {
        panic!("{bearer:?}");
    };
    assert_eq!(template.algorithm, AssertionAlgorithm::Es256);
    assert_eq!(template.claims, BTreeMap::from([("iss", "me".to_owned())]));
    assert_eq!(
        (template.expires_seconds, template.not_before_seconds),
        (300, 60)
    );
    assert_eq!(
        bearer.request(&assertion).body.expose(),
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=a.b.c%3D"
    );
}

#[test]
fn errors_name_the_key_and_the_remedy() {
    let url = (URL, "https://issuer/token");
    for (settings, options, says) in [
        (&[][..], "", "token.endpoint.url is missing"),
        (
            &[(URL, "ftp://issuer")],
            "",
            "=ftp://issuer: give a URL with https, http or file",
        ),
        (&[url], "", "client.credentials.client.id is missing"),
        (
            &[url, (CLIENT_ID, "me")],
            "",
            "client.credentials.client.secret is missing",
        ),
        (
            &[url, ("sasl.oauthbearer.assertion.claim.iss", "me")],
            "",
            "assertion.private.key.file is missing",
        ),
        (
            &[url, (RETRIEVER, "com.example.Retriever")],
            "",
            "is a Java class",
        ),
        (
            &[url, (HANDLER, "com.example.Handler")],
            "",
            "is a Java class",
        ),
        (
            &[
                (URL, "file:///token"),
                (
                    RETRIEVER,
                    "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
                ),
            ],
            "",
            "gets tokens from a server",
        ),
        (
            &[
                url,
                (
                    RETRIEVER,
                    "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever",
                ),
            ],
            "",
            "gets tokens from a file",
        ),
        (
            &[(URL, "file:///token")],
            "extension_auth=\"x\"",
            "extension_auth cannot be sent",
        ),
    ] {
        let error = read(settings, options).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn answers_are_read() {
    let token = |body| token_in_answer(body).map(|token| token.expose().to_owned());
    assert_eq!(
        token(r#"{"access_token":" a.b.c ","id_token":"d"}"#),
        Ok("a.b.c".to_owned())
    );
    assert_eq!(
        token(r#"{"access_token":"","id_token":"d"}"#),
        Ok("d".to_owned())
    );
    assert!(token("{}").unwrap_err().contains("neither access_token"));
    assert!(token("<html>").unwrap_err().contains("no JSON"));
    for (body, says) in [
        (
            r#"{"error":"invalid_client","error_description":"who?"}"#,
            "invalid_client: who?",
        ),
        (r#"{"errorCode":"E1","errorSummary":"no"}"#, "E1: no"),
        ("gone\n", "gone"),
    ] {
        assert_eq!(refusal_in_answer(body), says);
    }
}

#[test]
fn tokens_are_replaced_in_time() {
    let refresh = TokenRefresh {
        window_factor_thousandths: 800,
        window_jitter_thousandths: 50,
        min_period_seconds: 60,
        buffer_seconds: 300,
    };
    let minutes = |count: i64| count * 60_000;
    // Too short for the buffers.
    assert_eq!(refresh.due_ms(0, minutes(5), 0), minutes(4));
    assert_eq!(refresh.due_ms(0, minutes(100), 0), minutes(80));
    assert_eq!(refresh.due_ms(0, minutes(100), 1000), minutes(85));
    // Not in the last five minutes, nor in the first.
    assert_eq!(refresh.due_ms(0, minutes(10), 1000), minutes(5));
    assert_eq!(refresh.due_ms(0, minutes(6), 0), minutes(1));
    // One that has expired is replaced at once.
    assert_eq!(refresh.due_ms(minutes(7), minutes(6), 0), minutes(7));
}
