//! Permissions: a console with logins in front of a cluster with ACLs, as several users see it, and
//! the console's log of their actions.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ottla_peers::{InstalledPeer, NodeOptions};
use ottla_testkit::{lease_range, words};
use ottla_workspace::process::{self, OwnedChild};
use serde_json::json;

use super::http::Http;
use super::stage::{PATIENCE, STOP_PATIENCE, shows, start_console};

/// A super user, and a user with few permissions. The password is the name with the suffix
/// `-secret`.
const USERS: [&str; 2] = ["root", "alice"];
/// Contents of records, which must not be in a log.
const KEY: &str = "key-4539-1488";
const VALUE: &str = "value-0343-6467";

/// A cluster whose clients log in, and a console with logins in front of it.
struct Guarded<'a> {
    binary: &'a Path,
    /// A listener without logins, for the tools.
    bootstrap: String,
    /// A client without a login.
    http: Http,
}

/// Starts the cluster and its console, and checks the permissions of each user.
pub fn check(peer: &InstalledPeer, binary: &Path, dir: &Path) -> Result<()> {
    let (port, sasl) = (lease_range(2)?, lease_range(1)?);
    let mut node = peer.start(NodeOptions {
        dir: dir.join("guarded"),
        port: Some(port),
        overrides: settings(port, sasl),
        ..NodeOptions::default()
    })?;
    let log = dir.join("console.log");
    let (mut console, address) = start(binary, sasl, dir, &log)?;
    let guarded = Guarded {
        binary,
        bootstrap: node.bootstrap(),
        http: Http::new(address),
    };
    guarded.set_up()?;
    guarded.try_without_login()?;
    let alice = guarded.try_as_alice()?;
    let hmac = guarded.try_as_root()?;
    guarded.try_after_logout(alice)?;
    console.stop(STOP_PATIENCE)?;
    node.stop()?;
    check_log(&std::fs::read_to_string(log)?, &hmac)?;
    refuses_to_start(binary, &guarded.bootstrap)
}

/// A broker that has, beside its listener without logins, one at which [`USERS`] log in; with ACLs and
/// delegation tokens.
pub fn settings(port: u16, sasl: u16) -> Vec<(String, String)> {
    let clients = format!("PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl}");
    let users: Vec<String> = USERS
        .iter()
        .map(|user| format!("user_{user}=\"{user}-secret\""))
        .collect();
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    [
        (
            "listeners",
            format!("{clients},CONTROLLER://127.0.0.1:{}", port + 1),
        ),
        ("advertised.listeners", clients),
        (
            "listener.security.protocol.map",
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT".to_owned(),
        ),
        ("sasl.enabled.mechanisms", "PLAIN".to_owned()),
        (
            "listener.name.sasl.plain.sasl.jaas.config",
            format!("{module} required {};", users.join(" ")),
        ),
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned(),
        ),
        ("super.users", "User:ANONYMOUS;User:root".to_owned()),
        ("offsets.topic.num.partitions", "1".to_owned()),
        ("delegation.token.secret.key", "of-the-tokens".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

/// The properties of a client.
const CLIENT: &str = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n";

/// The properties of a client that logs in as this user.
pub fn login(user: &str) -> String {
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    format!(
        "{CLIENT}sasl.jaas.config={module} required username=\"{user}\" password=\"{user}-secret\";\n"
    )
}

/// Starts a console on which people log in. Its log goes to a file.
fn start(binary: &Path, sasl: u16, dir: &Path, log: &Path) -> Result<(OwnedChild, String)> {
    let client = dir.join("client.properties");
    std::fs::write(&client, CLIENT)?;
    let mut command = Command::new(binary);
    command
        .args([
            "console",
            "--bootstrap-server",
            &format!("127.0.0.1:{sasl}"),
        ])
        .args(["--listen", "127.0.0.1:0", "--login", "--command-config"])
        .arg(client)
        .stdout(Stdio::piped())
        .stderr(File::create(log)?);
    start_console(&mut command)
}

impl Guarded<'_> {
    fn tool(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.binary);
        command
            .args(arguments)
            .args(["--bootstrap-server", &self.bootstrap]);
        process::output_of(&mut command)
    }

    /// Alice may use the topic `hers`, and nothing else.
    fn set_up(&self) -> Result<()> {
        for topic in ["hers", "others"] {
            self.tool(&["topics", "--create", "--topic", topic])?;
        }
        process::retried(PATIENCE, "the topics are known", || {
            let listed = self.tool(&["topics", "--list"])?;
            ensure!(
                listed.contains("hers") && listed.contains("others"),
                "{listed}"
            );
            Ok(())
        })?;
        let operations = ["Read", "Write", "Describe"];
        for operation in operations {
            self.tool(&words(&format!(
                "acls --add --allow-principal User:alice --operation {operation} \
                 --topic hers"
            )))?;
        }
        // Each of them lets alice see the topic.
        process::retried(PATIENCE, "the ACLs are applied", || {
            let listed = self.tool(&["acls", "--list", "--topic", "hers"])?;
            let is_listed =
                |it: &&str| listed.contains(&format!("operation={}", it.to_uppercase()));
            ensure!(operations.iter().all(is_listed), "{listed}");
            Ok(())
        })
    }

    fn log_in(&self, user: &str) -> Result<Http> {
        let login =
            json!({"user": user, "password": format!("{user}-secret"), "mechanism": "PLAIN"});
        let answer = self.http.send("POST", "/api/session", Some(&login))?;
        ensure!(answer.status == 200, "{user}: {}", answer.text()?);
        let cookie = answer.cookie.context("no cookie")?;
        let marks = ["HttpOnly", "SameSite=Strict", "Path=/"];
        ensure!(marks.iter().all(|mark| cookie.contains(mark)), "{cookie}");
        let value = cookie.split(';').next().unwrap_or_default();
        Ok(Http {
            address: self.http.address.clone(),
            cookie: Some(value.to_owned()),
        })
    }

    fn try_without_login(&self) -> Result<()> {
        for path in ["/api/topics", "/api/cluster", "/api/topics/hers/records"] {
            let (status, _) = self.http.refused("GET", path, None)?;
            ensure!(status == 401, "{path}: {status}");
        }
        let (status, _) = self
            .http
            .refused("DELETE", "/api/topics/hers?confirm=hers", None)?;
        ensure!(status == 401, "{status}");
        for (user, password) in [("alice", "root-secret"), ("nobody", "nobody-secret")] {
            let login = json!({"user": user, "password": password, "mechanism": "PLAIN"});
            let (status, detail) = self.http.refused("POST", "/api/session", Some(&login))?;
            ensure!(
                status == 401 && !detail.contains(password),
                "{user}: {status} {detail}"
            );
        }
        Ok(())
    }

    /// The cluster's ACLs decide, not the console.
    fn try_as_alice(&self) -> Result<Http> {
        let alice = self.log_in("alice")?;
        let session = alice.get("/api/session")?;
        ensure!(session["user"] == "alice", "{session}");
        // Kafka applies the topics and the ACLs after it has acknowledged them.
        let topics = shows(&alice, "/api/topics", None, |it| it["total"] == 1)?;
        ensure!(topics["items"][0]["name"] == "hers", "{topics}");
        let record = json!({"records": [{"key": KEY, "value": VALUE}]});
        alice.json("POST", "/api/topics/hers/records", Some(&record))?;
        let (found, _) = alice.records(&format!(
            "/api/topics/hers/records?from=beginning&text={VALUE}"
        ))?;
        ensure!(
            found.len() == 1 && found[0]["key"]["text"] == KEY,
            "{found:?}"
        );
        let settings = json!({"set": {"retention.ms": "1"}});
        let acl = json!({"resource_type": "topic", "resource_name": "others", "principal": "User:alice",
            "operation": "all", "permission": "allow"});
        for (method, path, body) in [
            ("POST", "/api/topics/others/records", Some(&record)),
            ("DELETE", "/api/topics/hers?confirm=hers", None),
            ("PATCH", "/api/topics/hers/settings", Some(&settings)),
            ("POST", "/api/acls", Some(&acl)),
            ("GET", "/api/acls", None),
        ] {
            let (status, detail) = alice.refused(method, path, body)?;
            ensure!(
                status == 403 || (status == 404 && path.contains("others")),
                "{method} {path}: {status} {detail}"
            );
        }
        let answer = alice.send("GET", "/api/topics/others/records?from=beginning", None)?;
        ensure!(answer.status != 200, "alice reads the records of others");
        let listed = self.tool(&["topics", "--list"])?;
        ensure!(
            listed.contains("hers") && listed.contains("others"),
            "{listed}"
        );
        Ok(alice)
    }

    /// Returns the HMAC of a token, which only its creation may show.
    fn try_as_root(&self) -> Result<String> {
        let root = self.log_in("root")?;
        shows(&root, "/api/topics", None, |it| it["total"] == 2)?;
        root.json("DELETE", "/api/topics/others?confirm=others", None)?;
        process::retried(PATIENCE, "a topic is deleted", || {
            let listed = self.tool(&["topics", "--list"])?;
            ensure!(!listed.contains("others"), "{listed}");
            Ok(())
        })?;
        self.try_tokens(&root)
    }

    fn try_tokens(&self, root: &Http) -> Result<String> {
        let tokens = "/api/delegation-tokens";
        let wanted = json!({"renewers": ["User:alice"], "max_lifetime_ms": 3_600_000});
        let created = root.json("POST", tokens, Some(&wanted))?;
        let text = |name: &str| created[name].as_str().unwrap_or_default().to_owned();
        let (id, hmac) = (text("token_id"), text("hmac"));
        ensure!(
            created["owner"] == "User:root" && hmac.len() > 20,
            "the new token is {created}"
        );
        let listed = shows(root, tokens, None, |it| it["total"] == 1)?;
        ensure!(
            listed["items"][0]["token_id"] == id.as_str() && !listed.to_string().contains(&hmac),
            "{listed}"
        );
        let renewed = root.json(
            "POST",
            &format!("{tokens}/{id}/renew"),
            Some(&json!({"period_ms": 60_000})),
        )?;
        ensure!(
            renewed["expires"].as_i64() < created["expires"].as_i64(),
            "{renewed} {created}"
        );
        root.json("POST", &format!("{tokens}/{id}/expire"), Some(&json!({})))?;
        let (status, detail) =
            root.refused("POST", &format!("{tokens}/unknown/renew"), Some(&json!({})))?;
        ensure!(
            status == 404 && detail.contains("token unknown"),
            "{status} {detail}"
        );
        Ok(hmac)
    }

    fn try_after_logout(&self, alice: Http) -> Result<()> {
        alice.json("DELETE", "/api/session", None)?;
        let (status, _) = alice.refused("GET", "/api/topics", None)?;
        ensure!(status == 401, "{status}");
        Ok(())
    }
}

/// Each change has a line with the person and the outcome. Contents and passwords have none.
fn check_log(log: &str, hmac: &str) -> Result<()> {
    let has = |parts: &[&str]| {
        log.lines()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    for parts in [
        ["alice", "POST /api/session", "200"],
        ["alice", "POST /api/topics/hers/records", "200"],
        ["alice", "DELETE /api/topics/hers", "403"],
        ["root", "DELETE /api/topics/others", "204"],
        ["root", "POST /api/delegation-tokens", "200"],
        ["nobody", "POST /api/session", "401"],
    ] {
        ensure!(has(&parts), "the log has no line with {parts:?}:\n{log}");
    }
    for hidden in [KEY, VALUE, "-secret", hmac] {
        ensure!(!log.contains(hidden), "the log has {hidden}:\n{log}");
    }
    Ok(())
}

/// Without logins, a console that other machines could reach does not start.
fn refuses_to_start(binary: &Path, bootstrap: &str) -> Result<()> {
    let mut command = Command::new(binary);
    command
        .args(["console", "--bootstrap-server", bootstrap])
        .args(["--listen", "0.0.0.0:0"]);
    let output = process::run_captured(&mut command)?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && printed.contains("needs a login"),
        "{}: {printed}",
        output.status
    );
    Ok(())
}
