//! The console with an identity provider: users log in at the provider, and the cluster's ACLs
//! decide about their permissions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ottla_testkit::identity_provider::{CLIENT_ID, CLIENT_SECRET, IdentityProvider, Return};
use ottla_testkit::tokens::broker_with_tokens;
use ottla_testkit::{BrokerBuilder, BrokerProcess, ottla_binary};
use serde_json::{Value, json};

/// For a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker that accepts the tokens of a provider, with ACLs.
fn broker(provider: &IdentityProvider, dir: &Path) -> BrokerBuilder {
    let keys = provider.write_keys(&dir.join("keys.json"));
    broker_with_tokens(&keys, "OAuthBearerValidatorCallbackHandler", provider.url())
}

/// A running console, killed on drop.
struct Console {
    child: Child,
    /// It prints more than its address.
    _stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Console {
    fn start(broker: &BrokerProcess, provider: &IdentityProvider, dir: &Path) -> Console {
        let (client, oidc) = (dir.join("client.properties"), dir.join("oidc.properties"));
        let security = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n";
        std::fs::write(&client, security).expect("a file");
        std::fs::write(&oidc, format!("client.secret={CLIENT_SECRET}\n")).expect("a file");
        let mut child = Command::new(ottla_binary())
            .args(["console", "--bootstrap-server", &broker.bootstrap()])
            .args(["--listen", "127.0.0.1:0", "--public-name", "localhost"])
            .args([
                "--oidc-issuer",
                provider.url(),
                "--oidc-client-id",
                CLIENT_ID,
            ])
            .arg("--oidc-config")
            .arg(&oidc)
            .arg("--command-config")
            .arg(&client)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it prints its address");
        let (_, address) = line.trim().rsplit_once("http://").expect("its address");
        let address = address.parse().expect("an address");
        Console {
            child,
            _stdout: stdout,
            address,
        }
    }
}

/// A browser, with its cookies.
struct Browser<'a> {
    console: &'a Console,
    cookies: Vec<(String, String)>,
}

struct Answer {
    status: u16,
    body: Value,
    text: String,
}

impl<'a> Browser<'a> {
    fn new(console: &'a Console) -> Browser<'a> {
        Browser {
            console,
            cookies: Vec::new(),
        }
    }

    fn ask(&mut self, request: &str, body: Value) -> Answer {
        let host = format!("localhost:{}", self.console.address.port());
        self.ask_under(&host, request, body)
    }

    fn ask_under(&mut self, host: &str, request: &str, body: Value) -> Answer {
        let body = match body.is_null() {
            true => String::new(),
            false => body.to_string(),
        };
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let text = format!(
            "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nX-Ottla-Console: 1\r\n\
             Cookie: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            cookies.join("; "),
            body.len()
        );
        let mut stream = TcpStream::connect(self.console.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.write_all(text.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        for line in head.lines() {
            let (name, value) = line.split_once(": ").unwrap_or_default();
            if name.eq_ignore_ascii_case("set-cookie") {
                self.keep(value);
            }
        }
        Answer {
            status: status.expect("a status"),
            body: serde_json::from_str(body).unwrap_or_default(),
            text: body.to_owned(),
        }
    }

    fn keep(&mut self, cookie: &str) {
        assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
        let (given, marks) = cookie.split_once(';').expect("marks");
        let (name, value) = given.split_once('=').expect("a value");
        self.cookies.retain(|(known, _)| known != name);
        if !marks.ends_with("Max-Age=0") {
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Goes to the provider, where somebody logs in, and comes back to the page.
    fn visit_provider(&mut self, provider: &IdentityProvider, user: &str) -> Return {
        let begun = self.ask("POST /api/session/oidc", Value::Null);
        assert_eq!(begun.status, 200, "{}", begun.text);
        let address = begun.body["address"].as_str().expect("an address");
        let back = provider.log_in(address, user);
        let port = self.console.address.port();
        assert_eq!(back.redirect_uri, format!("http://localhost:{port}/login"));
        back
    }

    fn hand_in(&mut self, back: &Return) -> Answer {
        let body = json!({ "code": back.code, "state": back.state });
        self.ask("POST /api/session/oidc/code", body)
    }

    fn log_in(&mut self, provider: &IdentityProvider, user: &str) {
        let back = self.visit_provider(provider, user);
        let done = self.hand_in(&back);
        assert_eq!(done.status, 200, "{}", done.text);
        assert_eq!(done.body["user"], user, "{}", done.text);
        assert_eq!(done.body["login"], "done", "{}", done.text);
    }
}

fn wait_for_revocation(provider: &IdentityProvider) {
    let began = Instant::now();
    while !provider.requests().iter().any(|it| it == "/revoke") {
        assert!(began.elapsed() < PATIENCE, "nothing is revoked");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn users_act_on_the_cluster_with_their_own_tokens() {
    let dir = tempfile::tempdir().expect("a folder");
    let provider = IdentityProvider::start();
    let mut broker = broker(&provider, dir.path()).start();
    let console = Console::start(&broker, &provider, dir.path());
    let mut admin = Browser::new(&console);
    let session = admin.ask("GET /api/session", Value::Null).body;
    assert_eq!(session["login"], "required");
    assert_eq!(session["mechanisms"], json!([]));
    assert!(
        provider
            .url()
            .ends_with(session["oidc"].as_str().expect("a host"))
    );
    // A login does not start at an address that is not a redirect URI of the provider.
    let elsewhere = console.address.to_string();
    let refused = admin.ask_under(&elsewhere, "POST /api/session/oidc", Value::Null);
    assert!(
        refused.text.contains("to localhost only"),
        "{}",
        refused.text
    );
    let password = json!({ "user": "admin", "password": "p" });
    let refused = admin.ask("POST /api/session", password);
    assert!(
        refused.text.contains("takes no passwords"),
        "{}",
        refused.text
    );

    admin.log_in(&provider, "admin");
    let topic = json!({ "name": "orders", "partitions": 1, "replication_factor": 1 });
    let created = admin.ask("POST /api/topics", topic);
    assert_eq!(created.status, 200, "{}", created.text);

    let mut alice = Browser::new(&console);
    alice.log_in(&provider, "alice");
    let topics = alice.ask("GET /api/topics", Value::Null);
    assert_eq!(topics.status, 200, "{}", topics.text);
    assert!(!topics.text.contains("orders"), "{}", topics.text);
    let denied = alice.ask("POST /api/topics", json!({ "name": "hers" }));
    assert_eq!(denied.status, 403, "{}", denied.text);

    // The page redirects to the provider, which revokes its tokens. The session of the console has
    // ended.
    let left = alice.ask("DELETE /api/session", Value::Null);
    let address = left.body["address"].as_str().unwrap_or_default();
    assert!(address.starts_with(&format!("{}/logout?client_id=", provider.url())));
    assert!(address.contains("&id_token_hint="), "{address}");
    assert_eq!(alice.ask("GET /api/topics", Value::Null).status, 401);
    wait_for_revocation(&provider);
    assert!(broker.stop().success());
}

#[test]
fn a_browser_cannot_be_logged_in_as_another_user() {
    let dir = tempfile::tempdir().expect("a folder");
    let provider = IdentityProvider::start();
    let mut broker = broker(&provider, dir.path()).start();
    let console = Console::start(&broker, &provider, dir.path());
    let mut attacker = Browser::new(&console);
    let link = attacker.visit_provider(&provider, "mallory");
    // The victim opens the link that the attacker got, without and with a login of their own under way.
    let mut victim = Browser::new(&console);
    let refused = victim.hand_in(&link);
    assert_eq!(refused.status, 401, "{}", refused.text);
    let own = victim.visit_provider(&provider, "alice");
    assert_eq!(victim.hand_in(&link).status, 401);
    let mixed = Return {
        code: link.code.clone(),
        state: own.state.clone(),
        redirect_uri: own.redirect_uri.clone(),
    };
    // The provider sees that the code was given for another verifier.
    assert_eq!(victim.hand_in(&mixed).status, 401);
    let done = victim.hand_in(&own);
    assert_eq!(done.body["user"], "alice", "{}", done.text);
    // A code is good once, also in the right browser.
    assert_eq!(victim.hand_in(&own).status, 401);

    // An error of the provider is shown only for a login of this browser.
    let mut other = Browser::new(&console);
    let back = other.visit_provider(&provider, "alice");
    let said = "access_denied\u{1b}[2J";
    let body = json!({ "state": back.state, "error": said });
    let refused = other.ask("POST /api/session/oidc/code", body);
    assert!(refused.text.contains("access_denied"), "{}", refused.text);
    assert!(!refused.text.contains('\u{1b}'), "{}", refused.text);
    let evil = "https://evil.example";
    let body = json!({ "state": back.state, "iss": evil, "error": "call this number" });
    let refused = other.ask("POST /api/session/oidc/code", body);
    assert_eq!(refused.status, 401, "{}", refused.text);
    assert!(!refused.text.contains("number"), "{}", refused.text);
    let body = json!({ "state": "guessed", "error": "call this number" });
    let refused = other.ask("POST /api/session/oidc/code", body);
    assert!(!refused.text.contains("number"), "{}", refused.text);

    // The cluster has the last word.
    provider.replace_key("second");
    let after = Console::start(&broker, &provider, dir.path());
    let mut late = Browser::new(&after);
    let back = late.visit_provider(&provider, "alice");
    let refused = late.hand_in(&back);
    assert_eq!(refused.status, 401, "{}", refused.text);
    assert!(
        refused.text.contains("does not accept the access token"),
        "{}",
        refused.text
    );
    // The tokens that the provider issued for it are revoked.
    wait_for_revocation(&provider);
    assert!(broker.stop().success());
}
