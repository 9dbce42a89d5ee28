//! What every request meets, over real connections. The cluster is away.

use std::collections::BTreeMap;
use std::path::Path;

use ottla_client::{ClientConfig, SecurityProtocol};
use ottla_testkit::identity_provider::{CLIENT_ID, CLIENT_SECRET, IdentityProvider, fields_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::measure::MeasureConfig;
use crate::oidc::OidcConfig;

/// A console on a loopback address.
struct Served {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Answer {
    status: u16,
    /// Names in lower case.
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// A client configuration whose cluster does not answer, and that soon gives up.
fn away() -> ClientConfig {
    let mut config = ClientConfig::new("127.0.0.1:1").unwrap();
    config.default_api_timeout = Duration::from_millis(300);
    config
}

async fn serve_with(change: impl FnOnce(&mut ConsoleConfig)) -> Served {
    let mut config = ConsoleConfig::new(away());
    change(&mut config);
    let listener = bind("127.0.0.1:0", "test").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        serve(listener, config).await.unwrap();
    });
    Served { address, task }
}

impl Served {
    /// Sends a request with these lines after the first; `Host` is added if they have none.
    async fn ask(&self, request: &str, lines: &[&str]) -> Answer {
        self.ask_with(request, lines, "").await
    }

    async fn ask_with(&self, request: &str, lines: &[&str], body: &str) -> Answer {
        let mut text = format!("{request} HTTP/1.1\r\nConnection: close\r\n");
        if !lines.iter().any(|line| line.starts_with("Host:")) {
            text.push_str(&format!("Host: {}\r\n", self.address));
        }
        if !body.is_empty() {
            let length = body.len();
            text.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {length}\r\n"
            ));
        }
        for line in lines {
            text.push_str(&format!("{line}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(body);
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let reading = stream.read_to_end(&mut bytes);
        tokio::time::timeout(Duration::from_secs(60), reading)
            .await
            .expect("an answer")
            .unwrap();
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let headers = head.lines().skip(1).map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_lowercase(), value.to_owned())
        });
        Answer {
            status,
            headers: headers.collect(),
            body: bytes[end + 4..].to_vec(),
        }
    }
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

const OWN: &str = "X-Ottla-Console: 1";

#[tokio::test]
async fn a_page_of_another_site_is_refused() {
    let console = serve_with(|_| ()).await;
    let origin = format!("Origin: http://{}", console.address);
    let own = console.ask("GET /api/session", &[OWN, &origin]).await;
    assert_eq!(own.status, 200, "{}", own.text());
    for (lines, says) in [
        // DNS rebinding: the browser takes the console for a host of the other site.
        (
            &["Host: evil.example", OWN][..],
            "not a name of this console",
        ),
        (
            &["Host: localhost.evil.example:80", OWN],
            "not a name of this console",
        ),
        // A form or an image of another site cannot send the header.
        (&[], "X-Ottla-Console is missing"),
        (
            &[OWN, "Origin: http://evil.example"],
            "a page of another site",
        ),
        (&[OWN, "Origin: null"], "a page of another site"),
        (
            &[OWN, "Origin: http://127.0.0.1:1"],
            "a page of another site",
        ),
        (
            &[OWN, "Sec-Fetch-Site: cross-site"],
            "a page of another site",
        ),
        (
            &[OWN, "Sec-Fetch-Site: same-site"],
            "a page of another site",
        ),
    ] {
        for request in [
            "GET /api/session",
            "POST /api/topics",
            "DELETE /api/topics/a?confirm=a",
        ] {
            let refused = console.ask(request, lines).await;
            assert_eq!(
                refused.status,
                403,
                "{request} {lines:?}: {}",
                refused.text()
            );
            assert!(
                refused.text().contains(says),
                "{lines:?}: {}",
                refused.text()
            );
        }
    }
    // The page itself is refused under another name too.
    assert_eq!(
        console.ask("GET /", &["Host: evil.example"]).await.status,
        403
    );
    // A preflight gets no permission.
    let preflight = console
        .ask(
            "OPTIONS /api/topics",
            &[
                "Origin: http://evil.example",
                "Access-Control-Request-Method: POST",
            ],
        )
        .await;
    assert!(
        !preflight
            .headers
            .contains_key("access-control-allow-origin")
    );
    // A link may point to an export alone, and not from another site.
    let link = console.ask("GET /api/session?download=1", &[]).await;
    assert_eq!(link.status, 403);
    let link = console
        .ask(
            "GET /api/topics/t/export?download=1",
            &["Sec-Fetch-Site: cross-site"],
        )
        .await;
    assert_eq!(link.status, 403);
    let link = console
        .ask(
            "GET /api/topics/t/export?download=1",
            &["Sec-Fetch-Site: same-origin"],
        )
        .await;
    assert_eq!(link.status, 502, "{}", link.text());
}

#[tokio::test]
async fn the_page_is_served_under_each_of_its_addresses() {
    let console = serve_with(|_| ()).await;
    let index = console.ask("GET /", &[]).await;
    assert_eq!(
        (index.status, &*index.headers["content-type"]),
        (200, "text/html; charset=utf-8")
    );
    assert!(index.text().contains("<html"));
    assert!(!index.headers.contains_key("content-encoding"));
    let deep = console
        .ask("GET /topics/orders/records?from=end", &[])
        .await;
    assert_eq!((deep.status, deep.body.clone()), (200, index.body.clone()));
    let gzip = console
        .ask("GET /", &["Accept-Encoding: br, gzip;q=0.8"])
        .await;
    assert_eq!(gzip.headers["content-encoding"], "gzip");
    assert!(gzip.body.starts_with(&[0x1f, 0x8b]));
    let plain = console.ask("GET /", &["Accept-Encoding: gzip;q=0"]).await;
    assert_eq!(plain.body, index.body);
    let etag = format!("If-None-Match: \"other\", {}", index.headers["etag"]);
    let again = console.ask("GET /", &[&etag]).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(console.ask("POST /", &[]).await.status, 405);
}

#[tokio::test]
async fn every_answer_has_the_headers_that_keep_scripts_out() {
    let console = serve_with(|_| ()).await;
    for (request, lines) in [
        ("GET /", &[][..]),
        ("GET /console.js", &[]),
        ("GET /api/session", &[OWN]),
        ("GET /api/unknown", &[OWN]),
        ("GET /api/session", &["Host: evil.example"]),
    ] {
        let answer = console.ask(request, lines).await;
        let policy = &answer.headers["content-security-policy"];
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        assert!(
            !policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["referrer-policy"], "no-referrer");
        if request.contains("/api/") {
            assert_eq!(answer.headers["cache-control"], "no-store");
        }
    }
}

#[tokio::test]
async fn errors_are_problems() {
    let console = serve_with(|_| ()).await;
    for (request, body, status, says) in [
        ("GET /api/unknown", "", 404, "the API has no such path"),
        ("GET /api/topics", "", 502, "cannot connect to 127.0.0.1:1"),
        (
            "GET /api/topics?limit=many",
            "",
            422,
            "limit: not a whole number",
        ),
        (
            "GET /api/topics?intrenal=true",
            "",
            400,
            "intrenal: GET /api/topics has no such parameter; it has search, offset, limit, sort, order, internal",
        ),
        (
            "DELETE /api/topics/orders?confirm=orders&force",
            "",
            400,
            "force: DELETE /api/topics/{topic} has no such parameter; it has confirm",
        ),
        ("GET /api/cluster?x=1", "", 400, "it has none"),
        ("POST /api/topics", "{", 422, "EOF"),
        ("POST /api/topics", "{\"name\": 5}", 422, "invalid type"),
        (
            "POST /api/topics",
            "{\"name\": \"t\", \"partitions\": 0}",
            422,
            "partitions=0: give 1 or more",
        ),
        (
            "DELETE /api/topics/orders?confirm=order",
            "",
            422,
            "give the name, orders, to confirm",
        ),
        ("GET /api/brokers/one", "", 404, "one"),
        (
            "GET /api/brokers/one/settings",
            "",
            404,
            "broker one: not a broker ID",
        ),
        (
            "GET /api/topics/t/records?from=yesterday",
            "",
            422,
            "from=yesterday: give beginning",
        ),
        (
            "GET /api/topics/t/records?expression=value.",
            "",
            422,
            "it ends too early",
        ),
        ("GET /api/series?of=all", "", 422, "of=all: give cluster"),
        (
            "PATCH /api/topics/t/settings",
            "{\"set\": {}}",
            422,
            "there is no change",
        ),
        (
            "POST /api/acls",
            r#"{"resource_type": "topic", "resource_name": "t", "principal": "User:a", "operation": "fly", "permission": "allow"}"#,
            422,
            "operation=fly: give",
        ),
        (
            "GET /api/acls/explanation?principal=alice&resource_type=topic&resource_name=t",
            "",
            422,
            "principal=alice: give a type and a name",
        ),
        (
            "POST /api/topics/t/redrive",
            r#"{"to": "u", "matching": {}, "ranges": [{"partition": 0, "start": 0, "end": 5}]}"#,
            422,
            "topic_id is missing",
        ),
        (
            "POST /api/topics/t/redrive",
            r#"{"to": "u", "records": [{"partition": 0, "offset": 3}]}"#,
            422,
            "token is missing; give the token from the preview",
        ),
        (
            "POST /api/topics/t/redrive",
            r#"{"to": "u", "records": [{"partition": 0, "offset": 3}], "token": "guessed"}"#,
            409,
            "was used, or is forgotten",
        ),
        (
            "GET /api/topics/t/records?from=cursor:guessed",
            "",
            422,
            "from=cursor:guessed: this place is forgotten",
        ),
        (
            "POST /api/delegation-tokens",
            r#"{"owner": "alice"}"#,
            422,
            "owner=alice: give a type and a name",
        ),
        (
            "POST /api/delegation-tokens/id/renew",
            r#"{"period_ms": -1}"#,
            422,
            "period_ms=-1: give 1 ms or more",
        ),
        (
            "GET /api/rebalance-plan?emptied=1,two",
            "",
            422,
            "emptied=1,two: two is no broker",
        ),
        ("GET /api/rebalance-plan?rate=0", "", 422, "rate=0"),
        (
            "POST /api/reassignments",
            r#"{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}], "throttle": 0}"#,
            422,
            "throttle=0: give bytes per second",
        ),
        (
            "POST /api/elections",
            "{\"type\": \"unclean\"}",
            422,
            "name the partitions",
        ),
        (
            "PUT /api/users/a",
            r#"{"mechanism": "SCRAM-SHA-256", "password": "p", "iterations": 1}"#,
            422,
            "iterations=1: give 4096",
        ),
    ] {
        let answer = console.ask_with(request, &[OWN], body).await;
        assert_eq!(answer.status, status, "{request}: {}", answer.text());
        assert_eq!(
            answer.headers["content-type"], "application/problem+json",
            "{request}"
        );
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(problem["status"], status);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{request}: {detail}");
    }
    let large = format!("{{\"name\": \"{}\"}}", "x".repeat((1 << 20) + 100));
    assert_eq!(
        console
            .ask_with("POST /api/topics", &[OWN], &large)
            .await
            .status,
        413
    );
}

#[tokio::test]
async fn a_small_body_cannot_stand_for_a_large_list() {
    let console = serve_with(|_| ()).await;
    let list = |item: &str, count: usize| vec![item; count].join(",");
    // Three bytes each, which would be a hundred in memory.
    let records = format!(r#"{{"records": [{}]}}"#, list("{}", 1_000_000));
    let headers = list(r#"{"key": ""}"#, 201);
    let headers = format!(r#"{{"records": [{{"headers": [{headers}]}}]}}"#);
    let unknown = list("[]", 100_000);
    let matching = format!(r#"{{"to": "u", "preview": true, "matching": {{"x": [{unknown}]}}}}"#);
    for (path, body, says) in [
        ("records", &records, "at most 1000 items"),
        ("records", &headers, "at most 200 items"),
        ("redrive", &matching, "give 65536 at most"),
    ] {
        let request = format!("POST /api/topics/t/{path}");
        let refused = console.ask_with(&request, &[OWN], body).await;
        assert_eq!(refused.status, 422, "{path}: {}", refused.text());
        assert!(refused.text().contains(says), "{}", refused.text());
    }
}

#[tokio::test]
async fn the_head_of_a_request_is_bounded() {
    let console = serve_with(|_| ()).await;
    let long = format!("X-Long: {}", "x".repeat(HEAD_BYTES / 2));
    let taken = console.ask("GET /api/session", &[OWN, &long]).await;
    assert_eq!(taken.status, 200);
    let mut stream = TcpStream::connect(console.address).await.unwrap();
    let endless = format!("GET / HTTP/1.1\r\nX-Long: {}", "x".repeat(HEAD_BYTES * 2));
    // The connection may already be reset.
    let _ = stream.write_all(endless.as_bytes()).await;
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let ended = tokio::time::timeout(HEAD / 2, reading).await;
    assert!(ended.is_ok(), "it waits for more of the head");
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_console_that_only_reads_refuses_every_change() {
    let console = serve_with(|config| config.read_only = true).await;
    for request in [
        "POST /api/topics",
        "DELETE /api/topics/t?confirm=t",
        "PATCH /api/topics/t/settings",
        "POST /api/topics/t/records",
        "POST /api/topics/t/redrive",
        "POST /api/groups/g/offsets",
        "PUT /api/users/u",
        "POST /api/transactions/t/abort",
        "POST /api/delegation-tokens",
        "PATCH /api/brokers/1/log-dirs",
    ] {
        let refused = console.ask(request, &[OWN]).await;
        assert_eq!(refused.status, 403, "{request}");
        assert!(
            refused.text().contains("read-only mode"),
            "{}",
            refused.text()
        );
    }
    let session = console.ask("GET /api/session", &[OWN]).await;
    assert!(
        session.text().contains("\"read_only\":true"),
        "{}",
        session.text()
    );
}

#[tokio::test]
async fn without_a_login_nothing_is_shown() {
    let console = serve_with(|config| {
        config.login = true;
        config.client.security.protocol = SecurityProtocol::SaslPlaintext;
    })
    .await;
    for request in [
        "GET /api/cluster",
        "GET /api/topics",
        "GET /api/topics/t/records",
        "GET /api/topics/t/export?download=1",
        "DELETE /api/topics/t?confirm=t",
    ] {
        for lines in [
            &[OWN][..],
            &[OWN, "Cookie: ottla-console=guessed"],
            &[OWN, "Cookie: a=b; ottla-console-="],
        ] {
            assert_eq!(console.ask(request, lines).await.status, 401, "{request}");
        }
    }
    // No body is read before its sender is authenticated.
    let announced = [OWN, "Content-Length: 16000000"];
    let refused = console.ask("POST /api/topics/t/records", &announced).await;
    assert_eq!(refused.status, 401, "{}", refused.text());
    let session = console.ask("GET /api/session", &[OWN]).await;
    assert!(
        session.text().contains("\"login\":\"required\""),
        "{}",
        session.text()
    );
    let login = |user: &str, mechanism: &str| {
        format!("{{\"user\": \"{user}\", \"password\": \"hush\", \"mechanism\": \"{mechanism}\"}}")
    };
    for (body, status) in [
        (login("", "PLAIN"), 422),
        (login("a", "NONE"), 422),
        // The cluster is away.
        (login("a", "PLAIN"), 502),
    ] {
        let answer = console.ask_with("POST /api/session", &[OWN], &body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(!answer.text().contains("hush") && !answer.headers.contains_key("set-cookie"));
    }
}

#[tokio::test]
async fn a_login_that_nobody_could_make_is_refused_at_the_start() {
    let listener = bind("127.0.0.1:0", "test").await.unwrap();
    let config = ConsoleConfig {
        login: true,
        ..ConsoleConfig::new(away())
    };
    let refused = serve(listener, config).await.unwrap_err();
    assert!(refused.contains("needs a login"), "{refused}");
    let refused = bind("127.0.0.1:99999", "--listen").await.unwrap_err();
    assert!(
        refused.starts_with("--listen=127.0.0.1:99999: cannot listen there"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_login_at_a_provider_begins_on_the_page_and_under_a_public_name() {
    let console = serve_with(|config| {
        config.public_names = vec!["localhost".into(), "console.example".into()];
        config.client.security.protocol = SecurityProtocol::SaslPlaintext;
        config.read_only = true;
        let provider = OidcConfig::new("http://127.0.0.1:1", "console", &BTreeMap::new());
        config.oidc = Some(provider.unwrap());
    })
    .await;
    let session = console.ask("GET /api/session", &[OWN]).await.text();
    assert!(session.contains("\"oidc\":\"127.0.0.1:1\""), "{session}");
    let own = format!("Host: localhost:{}", console.address.port());
    let (named, over_tls) = ("Host: console.example", "X-Forwarded-Proto: https");
    for (lines, status, says) in [
        (&[OWN][..], 422, "to localhost or console.example only"),
        (&[OWN, named], 422, "need HTTPS"),
        (&[own.as_str()], 403, "X-Ottla-Console is missing"),
        (
            &[OWN, own.as_str(), "Sec-Fetch-Site: cross-site"],
            403,
            "a page of another site",
        ),
        // The provider is away.
        (&[OWN, own.as_str()], 502, "http://127.0.0.1:1"),
        (&[OWN, named, over_tls], 502, "http://127.0.0.1:1"),
    ] {
        let answer = console.ask("POST /api/session/oidc", lines).await;
        assert_eq!(answer.status, status, "{lines:?}: {}", answer.text());
        assert!(answer.text().contains(says), "{}", answer.text());
    }
    let guessed = r#"{"state": "guessed", "code": "c"}"#;
    let code = "POST /api/session/oidc/code";
    let refused = console.ask_with(code, &[OWN, &own], guessed).await;
    assert_eq!(refused.status, 401, "{}", refused.text());
    assert!(!refused.headers.contains_key("set-cookie"));
    let without = serve_with(|_| ()).await;
    let refused = without.ask("POST /api/session/oidc", &[OWN]).await;
    assert!(
        refused.text().contains("--oidc-issuer"),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn codes_that_the_provider_refuses_have_to_wait() {
    let provider = IdentityProvider::start();
    let console = serve_with(|config| {
        config.public_names = vec!["localhost".into()];
        config.client.security.protocol = SecurityProtocol::SaslPlaintext;
        let secret = ("client.secret".to_owned(), CLIENT_SECRET.to_owned());
        let provider = OidcConfig::new(provider.url(), CLIENT_ID, &BTreeMap::from([secret]));
        config.oidc = Some(provider.unwrap());
    })
    .await;
    let own = format!("Host: localhost:{}", console.address.port());
    let begun = console.ask("POST /api/session/oidc", &[OWN, &own]).await;
    assert_eq!(begun.status, 200, "{}", begun.text());
    let cookie = begun.headers["set-cookie"].split(';').next().unwrap();
    let cookie = format!("Cookie: {cookie}");
    let leave: serde_json::Value = serde_json::from_slice(&begun.body).unwrap();
    let (_, query) = leave["address"].as_str().unwrap().split_once('?').unwrap();
    let fields = fields_of(query);
    let body = serde_json::json!({ "state": fields["state"], "code": "guessed" }).to_string();
    let code = "POST /api/session/oidc/code";
    let mut refused = 0;
    loop {
        let answer = console.ask_with(code, &[OWN, &own, &cookie], &body).await;
        if answer.status == 429 {
            break;
        }
        assert_eq!(answer.status, 401, "{}", answer.text());
        refused += 1;
        // Some more on a machine that needs a second for one.
        assert!(refused < 12);
    }
    assert!(refused >= 5, "{refused}");
}

/// With a script in place of `ottla`, whose benchmark runs until it is stopped.
fn bench_in(dir: &Path) -> MeasureConfig {
    MeasureConfig {
        program: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench.sh").into(),
        dir: dir.to_path_buf(),
        command_config: None,
    }
}

#[tokio::test]
async fn one_benchmark_runs_at_a_time_and_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let console = serve_with(|config| config.measure = Some(bench_in(dir.path()))).await;
    let overview = console.ask("GET /api/measure", &[OWN]).await.text();
    assert!(
        overview.contains(r#"{"name":"g/s","title":"A title"}"#),
        "{overview}"
    );
    assert!(overview.contains(r#""refusal":null"#), "{overview}");
    let run = "/api/measure/run";
    for (body, status) in [
        (r#"{"scenario": "../x.toml"}"#, 422),
        (r#"{"scenario": "g/s", "repetitions": 0}"#, 422),
        (r#"{"scenario": "g/s"}"#, 200),
        (r#"{"scenario": "g/s"}"#, 409),
    ] {
        let answer = console.ask_with(&format!("POST {run}"), &[OWN], body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
    }
    let began = Instant::now();
    loop {
        let overview = console.ask("GET /api/measure", &[OWN]).await.text();
        if overview.contains("at work") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{overview}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stopped = console.ask(&format!("DELETE {run}"), &[OWN]).await;
    assert_eq!(stopped.status, 204, "{}", stopped.text());
    let output = console.ask(&format!("GET {run}/output"), &[OWN]).await;
    let text = output.text();
    assert!(
        text.contains("event: lines") && text.contains("saved"),
        "{text}"
    );
    assert!(
        text.contains("event: done") && text.contains(r#""is_ok":false"#),
        "{text}"
    );
    let late = console.ask(&format!("DELETE {run}"), &[OWN]).await;
    assert_eq!(late.status, 409);
}

#[tokio::test]
async fn results_are_read_where_no_benchmark_may_run_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("results");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(dir.path().join("secret.json"), "{}").unwrap();
    for name in ["one", "other"] {
        std::fs::write(inner.join(format!("{name}.json")), "{}").unwrap();
    }
    let console = serve_with(|config| {
        config.read_only = true;
        config.measure = Some(MeasureConfig {
            dir: inner.clone(),
            ..bench_in(dir.path())
        });
    })
    .await;
    let start = r#"{"scenario": "g/s"}"#;
    let refused = console
        .ask_with("POST /api/measure/run", &[OWN], start)
        .await;
    assert_eq!(refused.status, 403);
    let overview = console.ask("GET /api/measure", &[OWN]).await.text();
    assert!(overview.contains("read-only mode"), "{overview}");
    let compared = "GET /api/measure/comparison?first=one&second=other";
    let compared = console.ask(compared, &[OWN]).await;
    assert!(
        compared.text().contains("one.json against"),
        "{}",
        compared.text()
    );
    for (request, status) in [
        ("GET /api/measure/results", 200),
        ("GET /api/measure/results/missing", 404),
        ("GET /api/measure/results/..%2Fsecret", 422),
        ("GET /api/measure/results/..%2Fsecret/export", 422),
        (
            "GET /api/measure/comparison?first=..%2Fsecret&second=one",
            422,
        ),
        ("GET /api/measure/run/output", 404),
    ] {
        let answer = console.ask(request, &[OWN]).await;
        assert_eq!(answer.status, status, "{request}: {}", answer.text());
    }
    let without = serve_with(|_| ()).await;
    let overview = without.ask("GET /api/measure", &[OWN]).await.text();
    assert!(overview.contains("--bench-dir"), "{overview}");
}
