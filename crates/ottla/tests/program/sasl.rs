//! A broker with SASL as an operator sets it up: credentials in files beside `server.properties`,
//! users created with the tools, and the native client with each mechanism.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ottla_testkit::{BrokerBuilder, BrokerProcess, ToolOutput, words};

const MODULES: &str = "org.apache.kafka.common.security";

/// Writes the client settings of a user.
fn client(dir: &Path, mechanism: &str, user: &str, password: &str) -> PathBuf {
    let module = match mechanism {
        "PLAIN" => "plain.PlainLoginModule",
        _ => "scram.ScramLoginModule",
    };
    let path = dir.join(format!("{mechanism}-{user}-{password}.properties"));
    let text = format!(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\ndefault.api.timeout.ms=60000\n\
         sasl.jaas.config={MODULES}.{module} required username=\"{user}\" password=\"{password}\";\n"
    );
    std::fs::write(&path, text).expect("a file");
    path
}

fn tool(broker: &BrokerProcess, settings: &Path, line: &str) -> ToolOutput {
    let (servers, settings) = (broker.bootstrap(), settings.display());
    let flags = format!("--bootstrap-server {servers} --command-config {settings}");
    ToolOutput::of(&words(&format!("{line} {flags}")), "")
}

fn succeeds(broker: &BrokerProcess, settings: &Path, line: &str) -> String {
    tool(broker, settings, line).succeeded()
}

fn fails(broker: &BrokerProcess, settings: &Path, line: &str) -> String {
    tool(broker, settings, line).failed()
}

#[test]
fn users_log_in_with_plain_and_scram() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    // PLAIN users are in Kafka's JAAS file, and a secret is in a separate file.
    let jaas = format!(
        "KafkaServer {{\n  {MODULES}.plain.PlainLoginModule required\n  username=\"node\" password=\"n\"\n  \
         user_node=\"n\" user_admin=\"a\";\n}};\n"
    );
    std::fs::write(at("jaas.conf"), jaas).expect("a file");
    std::fs::write(at("secrets"), "users=User:admin;User:node;User:ANONYMOUS\n").expect("a file");
    let options = format!(
        "-Djava.security.auth.login.config={}",
        at("jaas.conf").display()
    );
    let users = format!("${{file:{}:users}}", at("secrets").display());
    let mut broker = BrokerBuilder::new()
        .environment("KAFKA_OPTS", &options)
        .property(
            "listener.security.protocol.map",
            "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        )
        .property(
            "sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        )
        .property("sasl.mechanism.inter.broker.protocol", "PLAIN")
        .property("config.providers", "file")
        .property(
            "config.providers.file.class",
            "org.apache.kafka.common.config.provider.FileConfigProvider",
        )
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("super.users", &users)
        .start();
    let admin = client(dir.path(), "PLAIN", "admin", "a");
    succeeds(&broker, &admin, "topics --create --topic t");
    let alter = "configs --alter --entity-type users --entity-name alice";
    // One at a time: a request may contain a user only once, as in Kafka.
    for scram in [
        "SCRAM-SHA-256=[password=s]",
        "SCRAM-SHA-512=[iterations=8192,password=s]",
    ] {
        succeeds(&broker, &admin, &format!("{alter} --add-config {scram}"));
    }

    let list = "topics --list";
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let alice = client(dir.path(), mechanism, "alice", "s");
        let listed = succeeds(&broker, &alice, list);
        assert!(!listed.contains('t'), "alice may not describe it: {listed}");
        let denied = fails(&broker, &alice, "topics --create --topic u");
        assert!(denied.to_lowercase().contains("authoriz"), "{denied}");
        for (user, password) in [("alice", "wrong"), ("nobody", "s")] {
            let settings = client(dir.path(), mechanism, user, password);
            let refused = fails(&broker, &settings, list);
            assert!(
                refused.contains(&format!(
                    "invalid credentials with SASL mechanism {mechanism}"
                )),
                "{refused}"
            );
        }
    }
    let wrong = client(dir.path(), "PLAIN", "admin", "b");
    let refused = fails(&broker, &wrong, list);
    assert!(
        refused.contains("Invalid username or password"),
        "{refused}"
    );
    // What was tried, and the way out.
    let tried = format!("logging in at {} with PLAIN as admin", broker.bootstrap());
    for part in [&*tried, "check username and password in sasl.jaas.config"] {
        assert!(refused.contains(part), "{refused}");
    }
    // Once, and not for each line.
    let flags = format!(
        "--topic t --bootstrap-server {} --command-config {}",
        broker.bootstrap(),
        wrong.display()
    );
    for (more, unsent) in [
        ("", "1000 of 1000 records were not acknowledged."),
        (" --sync", ""),
    ] {
        let line = format!("console-producer {flags}{more}");
        let began = Instant::now();
        let said = ToolOutput::of(&words(&line), &"line\n".repeat(1000)).failed();
        // The broker holds each of its answers back for 100 ms, so these logins would take 100 s.
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "a login for each line"
        );
        let times = said.matches("Invalid username or password").count();
        assert_eq!(times, 1, "{said}");
        assert!(said.contains(unsent), "{said}");
    }

    // A user without rights learns which ones the explanation needs.
    let alice = client(dir.path(), "SCRAM-SHA-512", "alice", "s");
    let explain = "acls explain --principal User:alice --operation Read --topic t";
    let needed = "acls --add --allow-principal User:NAME --operation Describe --operation DescribeConfigs --cluster";
    let denied = fails(&broker, &alice, explain);
    assert!(denied.contains(needed), "{denied}");
    let half = "acls --add --allow-principal User:alice --operation Describe --cluster";
    let whole = needed.replace("NAME", "alice");
    for (rights, lacks_settings) in [(half, true), (&*whole, false)] {
        succeeds(&broker, &admin, rights);
        let ToolOutput {
            status, out, err, ..
        } = tool(&broker, &alice, explain);
        assert_eq!(status, 1, "{out}{err}");
        assert!(out.starts_with("denied: Read on Topic t"), "{out}");
        let says_so = out.contains("; it takes DescribeConfigs on the cluster");
        assert_eq!(says_so, lacks_settings, "{out}");
    }

    // An ACL applies to the principal that it names.
    let acl = "acls --add --allow-principal User:alice --operation Describe --topic t";
    succeeds(&broker, &admin, acl);
    let alice = client(dir.path(), "SCRAM-SHA-512", "alice", "s");
    assert!(succeeds(&broker, &alice, list).contains('t'));

    broker.kill();
    broker.start_again();
    assert!(succeeds(&broker, &alice, list).contains('t'));
    let printed = broker.output();
    assert!(!printed.contains("password="), "{printed}");
    assert!(broker.stop().success());
}

#[test]
fn a_caret_marks_the_error_in_a_jaas_entry() {
    let refusal = BrokerBuilder::new()
        .unformatted()
        .property(
            "listener.security.protocol.map",
            "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        )
        .property("sasl.enabled.mechanisms", "PLAIN")
        .property("sasl.mechanism.inter.broker.protocol", "PLAIN")
        .property(
            "listener.name.plaintext.plain.sasl.jaas.config",
            &format!(
                "{MODULES}.plain.PlainLoginModule required username=\"node\" password=\"hush\""
            ),
        )
        .start_refused();
    let output = &refusal.output;
    assert!(
        output.contains("JAAS config entry not terminated by semi-colon"),
        "{output}"
    );
    assert!(
        output.contains("^\n") && output.contains("add ; at the end"),
        "{output}"
    );
    assert!(!output.contains("hush"), "{output}");
}

#[test]
fn a_token_created_with_the_tool_is_valid_until_it_expires() {
    let dir = tempfile::tempdir().expect("a folder");
    let jaas = format!(
        "{MODULES}.plain.PlainLoginModule required username=\"node\" password=\"n\" user_node=\"n\" \
         user_admin=\"a\";"
    );
    let mut broker = BrokerBuilder::new()
        .property(
            "listener.security.protocol.map",
            "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        )
        .property("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512")
        .property("sasl.mechanism.inter.broker.protocol", "PLAIN")
        .property("listener.name.plaintext.plain.sasl.jaas.config", &jaas)
        .property("delegation.token.secret.key", "secret of all nodes")
        .start();
    let admin = client(dir.path(), "PLAIN", "admin", "a");
    let create = "delegation-tokens --create --max-life-time-period -1";
    let created = succeeds(&broker, &admin, create);
    let id = created
        .lines()
        .find_map(|line| line.strip_prefix("Created delegation token with tokenId : "))
        .unwrap_or_else(|| panic!("{created}"))
        .trim();
    let row = created.lines().find(|line| line.starts_with(id));
    let hmac = row.and_then(|row| row.split_whitespace().nth(1));
    let hmac = hmac.unwrap_or_else(|| panic!("{created}"));
    let with_token = |id: &str, hmac: &str| {
        let path = client(dir.path(), "SCRAM-SHA-512", id, "token");
        let text = format!(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n\
             sasl.jaas.config={MODULES}.scram.ScramLoginModule required username=\"{id}\" password=\"{hmac}\" \
             tokenauth=\"true\";\n"
        );
        std::fs::write(&path, text).expect("a file");
        path
    };
    let list = "topics --list";
    succeeds(&broker, &with_token(id, hmac), list);
    let wrong = fails(&broker, &with_token(id, "d3Jvbmc="), list);
    let unknown = fails(&broker, &with_token("unknown", hmac), list);
    for refused in [&wrong, &unknown] {
        let expected = "invalid credentials with SASL mechanism SCRAM-SHA-512";
        assert!(refused.contains(expected), "{refused}");
    }
    let begotten = fails(&broker, &with_token(id, hmac), create);
    assert!(
        begotten.contains("not allowed on PLAINTEXT/1-way SSL channels and on delegation token"),
        "{begotten}"
    );

    // The credential is stored in the cluster and survives a crash.
    broker.kill();
    broker.start_again();
    succeeds(&broker, &with_token(id, hmac), list);
    let expire = format!("delegation-tokens --expire --expiry-time-period -1 --hmac {hmac}");
    succeeds(&broker, &admin, &expire);
    fails(&broker, &with_token(id, hmac), list);
    let printed = broker.output();
    assert!(!printed.contains(hmac), "{printed}");
    assert!(broker.stop().success());
}

/// An ApiVersions request of a version that no broker has. It is answered with an error, and another
/// one may follow before the login.
const UNKNOWN_VERSIONS: &[u8] = b"\0\0\0\x0b\0\x12\x7f\xff\0\0\0\x07\xff\xff\0";
/// How long a client may take to log in.
const LOGIN_LIMIT: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it takes until a connection is closed whose client sends such requests without a pause.
/// It begins shortly before the limit and reads the answers, or begins at once and reads none.
fn time_until_closed(address: &str, reads: bool) -> Duration {
    let began = Instant::now();
    let mut socket = TcpStream::connect(address).expect("connected");
    let wait = Some(Duration::from_millis(500));
    socket.set_read_timeout(wait).expect("a socket");
    socket.set_write_timeout(wait).expect("a socket");
    if reads {
        std::thread::sleep(LOGIN_LIMIT - Duration::from_secs(1));
    }
    let requests = UNKNOWN_VERSIONS.repeat(100);
    let mut answers = vec![0; 64 * 1024];
    // A write that times out may have sent a part of a request.
    let mut sent = 0;
    loop {
        let moved = socket.write(&requests[sent..]).and_then(|written| {
            sent = (sent + written) % requests.len();
            if reads && socket.read(&mut answers)? == 0 {
                return Err(ErrorKind::ConnectionReset.into());
            }
            Ok(())
        });
        match moved.map_err(|error| error.kind()) {
            Ok(()) | Err(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => return began.elapsed(),
            Err(other) => panic!("{other}"),
        }
        let elapsed = began.elapsed();
        assert!(elapsed < LOGIN_LIMIT + PATIENCE, "open after {elapsed:?}");
    }
}

#[test]
fn a_client_that_only_asks_for_versions_is_cut_off_in_time() {
    let entry = format!(
        "{MODULES}.plain.PlainLoginModule required username=\"n\" password=\"n\" user_n=\"n\";"
    );
    let broker = BrokerBuilder::new()
        .property(
            "listener.security.protocol.map",
            "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        )
        .property("sasl.enabled.mechanisms", "PLAIN")
        .property("sasl.mechanism.inter.broker.protocol", "PLAIN")
        .property("listener.name.plaintext.plain.sasl.jaas.config", &entry)
        .start();
    let address = broker.bootstrap();
    std::thread::scope(|scope| {
        let clients = [true, false].map(|reads| {
            let address = &address;
            scope.spawn(move || time_until_closed(address, reads))
        });
        for closed in clients {
            let after = closed.join().expect("it was closed");
            assert!(after + Duration::from_secs(1) >= LOGIN_LIMIT, "{after:?}");
        }
    });
}
