//! `ottla acls explain`, `unused` and `--dry-run` on a broker with an authorizer, which writes its
//! decisions to a file or a topic.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ottla_testkit::{BrokerBuilder, BrokerProcess, ToolOutput, ottla_binary, words};

fn broker() -> BrokerBuilder {
    BrokerBuilder::new()
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("super.users", "User:ANONYMOUS;User:root")
}

fn acls(broker: &BrokerProcess, line: &str) -> Output {
    let words: Vec<&str> = line.split_whitespace().collect();
    // A subcommand precedes its flags.
    let (first, rest) = match words.split_first() {
        Some((word @ &("explain" | "unused"), rest)) => (vec![*word], rest),
        _ => (Vec::new(), &words[..]),
    };
    Command::new(ottla_binary())
        .arg("acls")
        .args(first)
        .args(["--bootstrap-server", &broker.bootstrap()])
        .args(rest)
        .stdin(Stdio::null())
        .output()
        .expect("starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The standard output of a command with this exit status.
fn with_status(status: i32, broker: &BrokerProcess, line: &str) -> String {
    let output = acls(broker, line);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{line}: {error}");
    out(&output)
}

#[test]
fn the_printed_command_fixes_an_explained_denial() {
    let broker = broker().start();
    let read = "explain --principal User:alice --operation Read --topic orders";
    let denied = with_status(1, &broker, read);
    let command = denied
        .lines()
        .find_map(|line| line.trim().strip_prefix("to allow it"))
        .unwrap_or_else(|| panic!("{denied}"));
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words[..2], ["ottla", "acls"], "{denied}");
    let mended = Command::new(ottla_binary()).args(&words[1..]).output();
    assert!(mended.expect("starts").status.success(), "{command}");
    assert_eq!(
        with_status(0, &broker, read),
        "allowed: Read on Topic orders for User:alice from any address\n  because       ALLOW Read on \
         Topic orders to User:alice from any address\nnote: when it was used last is unknown: no broker \
         has ottla.audit.topic; set it with ottla.audit.events=allowed,denied, or give --audit-file\n"
    );

    with_status(
        0,
        &broker,
        "--add --deny-principal User:* --deny-host 10.0.0.1 --operation Read --topic or \
         --resource-pattern-type prefixed",
    );
    let here = with_status(0, &broker, read);
    assert!(
        here.contains("elsewhere     DENY Read on every Topic that begins with or to everybody"),
        "{here}"
    );
    let json = with_status(1, &broker, &format!("{read} --host 10.0.0.1 --json"));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["decisions"][0]["acl"]["permission"], "DENY");
    assert_eq!(
        json["decisions"][0]["matching"].as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(
        json["decisions"][0]["toAllow"][0],
        "ottla acls --remove --deny-principal 'User:*' --deny-host 10.0.0.1 --operation Read --topic \
         or --resource-pattern-type prefixed"
    );

    // The broker reports its super users. One request explains several resources.
    let root = with_status(
        0,
        &broker,
        "explain --principal User:root --topic orders --group g --cluster --transactional-id t \
         --delegation-token d --user-principal User:bob",
    );
    assert_eq!(
        root.matches("because       it is in super.users\n").count(),
        8 + 5 + 7 + 3 + 1 + 2,
        "{root}"
    );
}

#[test]
fn rules_that_decide_nothing_are_found_in_the_audit_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("audit").display().to_string();
    let broker = broker()
        .property("ottla.audit.file", &file)
        .property("ottla.audit.events", "allowed,denied")
        .start();
    let add = "--add --allow-principal User:alice --operation Read --topic orders";
    with_status(0, &broker, add);
    let unused = format!("unused --audit-file {file}");
    let is_written = || std::fs::read_to_string(&file).is_ok_and(|it| it.contains("CreateAcls"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_written() {
        assert!(Instant::now() < deadline, "nothing is in the file");
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = with_status(0, &broker, &unused);
    assert!(
        text.starts_with("Of 1 rule, these have decided no request since 2"),
        "{text}"
    );
    assert!(
        text.contains("  ALLOW Read on Topic orders to User:alice from any address\n    to remove it  ottla acls"),
        "{text}"
    );

    // A dry run names the clients that would lose what they used.
    let denial = "--add --deny-principal User:mallory --operation All --topic orders";
    let text = with_status(
        0,
        &broker,
        &format!("{denial} --dry-run --audit-file {file}"),
    );
    assert!(text.contains("No client in the audit files (2"), "{text}");
    let used = r#"{"time":"2026-01-01T00:00:00.000Z","principal":"User:alice","host":"10.0.0.7",
        "operation":"READ","resourceType":"TOPIC","resourceName":"orders","allowed":true}"#;
    let earlier = directory.path().join("earlier").display().to_string();
    std::fs::write(&earlier, used.replace('\n', "") + "\n").expect("written");
    let removal = "--remove --topic orders --dry-run";
    let text = with_status(0, &broker, &format!("{removal} --audit-file {earlier}"));
    assert!(
        text.contains("    loses Read on Topic orders, last used 2026-01-01T00:00:00.000Z ("),
        "{text}"
    );
    let text = with_status(0, &broker, removal);
    assert!(text.contains("give --audit-file"), "{text}");

    // A file without requests that were allowed says nothing about rules.
    let other = directory.path().join("other").display().to_string();
    std::fs::write(&other, "{}\n").expect("written");
    for (name, reason) in [
        (&*other, "ottla.audit.events"),
        ("missing", "missing cannot be read"),
    ] {
        let refused = acls(&broker, &format!("unused --audit-file {name}"));
        assert_eq!(refused.status.code(), Some(2), "{name}");
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains(reason), "{error}");
    }
}

/// Waits until the output of a command contains a text.
fn until(text: &str, broker: &BrokerProcess, line: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let printed = with_status(0, broker, line);
        if printed.contains(text) {
            return printed;
        }
        assert!(Instant::now() < deadline, "{line}: {printed}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_dry_run_names_the_clients_in_the_audit_topic_that_would_lose_something() {
    // Everybody may do everything with a resource that no ACL names.
    let broker = BrokerBuilder::new()
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("allow.everyone.if.no.acl.found", "true")
        .property("ottla.audit.topic", "audit")
        .property("ottla.audit.events", "allowed,denied")
        .start();
    let servers = broker.bootstrap();
    broker.create_topic("orders", 1);
    let produce = format!("console-producer --bootstrap-server {servers} --topic orders");
    ToolOutput::of(&words(&produce), "one\n").succeeded();
    for user in ["ANONYMOUS", "alice"] {
        let add = format!("--add --allow-principal User:{user} --operation Read --topic orders");
        with_status(0, &broker, &add);
    }
    let consume = format!(
        "console-consumer --bootstrap-server {servers} --topic orders --partition 0 --offset earliest \
         --max-messages 1"
    );
    assert_eq!(ToolOutput::of(&words(&consume), "").succeeded(), "one\n");

    let denial = "--add --deny-principal User:* --operation Read --topic orders --dry-run";
    let listed = with_status(0, &broker, "--list");
    let text = until("loses Read on Topic orders, last used 2", &broker, denial);
    assert!(text.contains("Clients in the topic audit (2"), "{text}");
    assert!(
        text.contains("  User:ANONYMOUS from 127.0.0.1, last seen "),
        "{text}"
    );
    // Alice has used nothing.
    assert!(!text.contains("User:alice from 1"), "{text}");
    assert_eq!(with_status(0, &broker, "--list"), listed);

    let explain = |user: &str| {
        let line = format!("explain --principal User:{user} --operation Read --topic orders");
        with_status(0, &broker, &line)
    };
    let text = explain("ANONYMOUS");
    assert!(text.contains("  last used     2"), "{text}");
    let text = explain("alice");
    assert!(text.contains("  never used    since 2"), "{text}");
    let unused = with_status(0, &broker, "unused --audit-topic");
    assert!(unused.starts_with("Of 2 rules, these have decided no request since 2"));
    assert!(
        unused.contains("Read on Topic orders to User:alice"),
        "{unused}"
    );
    assert!(!unused.contains("to User:ANONYMOUS"), "{unused}");
    assert!(
        unused.contains(" decisions read from the topic audit, 2"),
        "{unused}"
    );

    // What was decided a moment ago is not older than an hour, and nothing is younger than tomorrow.
    until(
        "would lose something",
        &broker,
        &format!("{denial} --since PT1H"),
    );
    let text = with_status(0, &broker, &format!("{denial} --since 9999-01-01T00:00:00"));
    assert!(
        text.contains("no request that was allowed is in the topic audit"),
        "{text}"
    );
    let missing = acls(&broker, "unused --audit-topic missing");
    assert_eq!(missing.status.code(), Some(2));
    let error = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(error.contains("there is no topic missing"), "{error}");
    let without = acls(&broker, "--list --since P1D");
    let error = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(error.contains("need --dry-run"), "{error}");
}

#[test]
fn an_unknown_decision_is_neither_allowed_nor_denied() {
    let broker = broker().start();
    for (line, says) in [
        (
            "explain --principal alice --topic t",
            "principalType:principalName but got alice; write User:alice",
        ),
        (
            "explain --principal User:a --topic t --host localhost",
            "not an IP address",
        ),
        (
            "explain --principal User:a --topic t --operation Frobnicate",
            "is not an operation",
        ),
        (
            "explain --principal User:a --group g --operation Write",
            "there is no Write on a Group",
        ),
        ("explain --principal User:a", "--topic"),
    ] {
        let output = acls(&broker, line);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(error.contains(says), "{line}: {error}");
    }
    let open = BrokerBuilder::new().start();
    let text = with_status(
        0,
        &open,
        "explain --principal User:a --topic t --operation Read",
    );
    assert!(text.contains("authorizer.class.name is not set"), "{text}");
}

#[test]
fn a_dry_run_reports_changes_without_making_them() {
    let broker = broker().start();
    let add = "--add --allow-principal User:alice --operation Read --topic orders";
    assert_eq!(
        with_status(0, &broker, &format!("{add} --dry-run")),
        "Would add: ALLOW Read on Topic orders to User:alice from any address\n\nDecisions that would \
         change:\n  User:alice from any address gains Read, Describe on Topic orders\n\nNothing was \
         changed.\n"
    );
    assert_eq!(with_status(0, &broker, "--list"), "");
    with_status(0, &broker, add);
    assert_eq!(
        with_status(0, &broker, &format!("{add} --dry-run")),
        "No rule would change.\n"
    );
    // A right that another rule keeps is not lost.
    with_status(
        0,
        &broker,
        "--add --allow-principal User:* --operation Describe --topic *",
    );
    let listed = with_status(0, &broker, "--list");
    let removal = with_status(0, &broker, "--remove --topic orders --dry-run");
    assert!(
        removal.contains("User:alice from any address loses Read on Topic orders\n"),
        "{removal}"
    );
    assert_eq!(with_status(0, &broker, "--list"), listed);
}
