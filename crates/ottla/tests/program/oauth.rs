//! Clients that log in with OAuth tokens: accepted and rejected tokens, and a key change of the
//! issuer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ottla_client::{Client, Producer, RecordRef, properties};
use ottla_testkit::tokens::{PACKAGE, TokenEndpoint, TokenIssuer, broker_with_tokens};
use ottla_testkit::{BrokerProcess, ToolOutput};
use serde_json::{Value, json};

const HANDLER: &str = "OAuthBearerValidatorCallbackHandler";
const ISSUER: &str = "https://issuer";

/// The claims that the broker expects, with changes.
fn claims(changes: Value) -> Value {
    let mut claims = json!({ "aud": "kafka", "iss": ISSUER });
    for (name, value) in changes.as_object().into_iter().flatten() {
        claims[name] = value.clone();
    }
    claims
}

/// The client settings of the owner of this token.
fn client(dir: &Path, token: &str) -> PathBuf {
    let (token_file, settings) = (dir.join("token"), dir.join("client.properties"));
    std::fs::write(&token_file, token).expect("a file");
    let text = format!(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\ndefault.api.timeout.ms=30000\n\
         sasl.login.callback.handler.class={PACKAGE}.OAuthBearerLoginCallbackHandler\n\
         sasl.oauthbearer.token.endpoint.url=file://{}\n\
         sasl.jaas.config={PACKAGE}.OAuthBearerLoginModule required;\n",
        token_file.display()
    );
    std::fs::write(&settings, text).expect("a file");
    settings
}

fn topics(broker: &BrokerProcess, settings: &Path, arguments: &[&str]) -> ToolOutput {
    let (servers, settings) = (broker.bootstrap(), settings.display().to_string());
    let flags = [
        "--bootstrap-server",
        &servers,
        "--command-config",
        &settings,
    ];
    ToolOutput::of(&[&["topics"][..], &flags, arguments].concat(), "")
}

#[test]
fn tokens_are_accepted_by_signature_and_claims() {
    let dir = tempfile::tempdir().expect("a folder");
    let issuer = TokenIssuer::new("first");
    let keys = issuer.write_keys(&dir.path().join("keys.json"));
    let mut broker = broker_with_tokens(&keys, HANDLER, ISSUER).start();
    let run =
        |token: &str, arguments: &[&str]| topics(&broker, &client(dir.path(), token), arguments);
    let create = ["--create", "--topic", "orders"];
    let good = claims(json!({}));
    run(&issuer.token("admin", 600, &good), &create).succeeded();
    let alice = issuer.token("alice", 600, &good);
    let listed = run(&alice, &["--list"]).succeeded();
    assert!(!listed.contains("orders"), "{listed}");
    let denied = run(&alice, &["--create", "--topic", "hers"]).failed();
    assert!(denied.to_lowercase().contains("authoriz"), "{denied}");

    let stranger = TokenIssuer::new("first");
    for token in [
        issuer.token("admin", -60, &good),
        issuer.token("admin", 600, &claims(json!({ "aud": "other" }))),
        issuer.token("admin", 600, &claims(json!({ "iss": "https://other" }))),
        stranger.token("admin", 600, &good),
    ] {
        let text = run(&token, &["--list"]).failed();
        assert!(text.contains("{\"status\":\"invalid_token\"}"), "{text}");
        assert!(!broker.output().contains(&token), "the token is in the log");
    }
    // The log says why, once a minute.
    let output = broker.output();
    assert!(
        output.contains("an OAuth token is not accepted: it expired"),
        "{output}"
    );

    // The issuer's next key counts without a restart.
    let next = TokenIssuer::new("second");
    next.write_keys(&keys);
    let token = next.token("alice", 600, &good);
    let began = Instant::now();
    loop {
        let listed = run(&token, &["--list"]);
        if listed.status == 0 {
            break;
        }
        let is_in_time = began.elapsed() < Duration::from_secs(30);
        assert!(is_in_time, "{}{}", listed.out, listed.err);
    }
    run(&alice, &["--list"]).failed();
    assert!(broker.stop().success());
}

/// Logs in as `admin` with tokens of this endpoint.
fn with_endpoint(broker: &BrokerProcess, endpoint: &TokenEndpoint) -> BTreeMap<String, String> {
    let module = format!("{PACKAGE}.OAuthBearerLoginModule required;");
    let client = "sasl.oauthbearer.client.credentials.client";
    [
        ("bootstrap.servers", &*broker.bootstrap()),
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.jaas.config", &module),
        ("sasl.oauthbearer.token.endpoint.url", endpoint.url()),
        (&format!("{client}.id"), "admin"),
        (&format!("{client}.secret"), "admin-secret"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_renews_its_session_with_tokens_of_an_endpoint() {
    /// A token is renewed when 5 to 15 % of this time is left. If it takes longer, the broker closes the
    /// connection.
    const TOKEN_SECONDS: i64 = 20;
    /// A machine that stands still for longer may let a session end before a request can renew it.
    const STALL: Duration = Duration::from_millis(500);
    let dir = tempfile::tempdir().expect("a folder");
    let issuer = TokenIssuer::new("first");
    let keys = issuer.write_keys(&dir.path().join("keys.json"));
    let mut broker = broker_with_tokens(&keys, HANDLER, ISSUER).start();
    let endpoint = TokenEndpoint::start(issuer, TOKEN_SECONDS, claims(json!({})));
    let settings = with_endpoint(&broker, &endpoint);
    let (client, config) = properties::producer(&settings).expect("settings");
    let client = Client::connect(client).await.expect("a login");
    let producer = Producer::new(client, config).expect("a producer");
    let send = async || {
        let delivery = producer.send_ref(RecordRef::new("orders", b"v")).await;
        let delivered = delivery.expect("room").wait().await;
        delivered.expect("an acknowledgement");
    };
    send().await;
    let count = |name: &str| producer.metrics().value(name).unwrap_or(f64::NAN);
    let closed = count("connection-close-total");
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    // Two renewals, of several connections each.
    while count("successful-reauthentication-total") < 2.0 || endpoint.granted() < 3 {
        assert!(began.elapsed() < Duration::from_secs(6 * TOKEN_SECONDS as u64));
        let sent = Instant::now();
        send().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        slowest = slowest.max(sent.elapsed());
    }
    assert!(count("successful-reauthentication-total") >= 2.0);
    assert!(count("reauthentication-latency-max") > 0.0);
    if slowest < STALL {
        assert_eq!(count("failed-reauthentication-total"), 0.0);
        assert_eq!(count("connection-close-total"), closed);
    }
    // At most one for each session, for any number of connections.
    let granted = endpoint.granted();
    assert!((3..12).contains(&granted), "{granted} tokens");
    producer.close().await;

    // Somebody whom the issuer does not know.
    let mut wrong = settings;
    wrong.insert(
        "sasl.oauthbearer.client.credentials.client.secret".to_owned(),
        "guessed".to_owned(),
    );
    let file = dir.path().join("wrong.properties");
    let lines = wrong.iter().map(|(key, value)| format!("{key}={value}\n"));
    std::fs::write(&file, lines.collect::<String>()).expect("a file");
    let text = topics(&broker, &file, &["--list"]).failed();
    assert!(text.contains("http status 401 invalid_client"), "{text}");
    assert!(!text.contains("guessed"), "{text}");
    assert!(broker.stop().success());
}

#[test]
fn unreadable_keys_refuse_the_start() {
    let refusal = broker_with_tokens(Path::new("/nowhere/keys.json"), HANDLER, ISSUER);
    let output = refusal.start_refused().output;
    let expected = "sasl.oauthbearer.jwks.endpoint.url=file:///nowhere/keys.json: cannot be read";
    assert!(output.contains(expected), "{output}");
}
