//! `ottla preflight` for operators and scripts: its result, its exit status, and a server that
//! refuses with the same message.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use ottla_testkit::ottla_binary;

const FILE: &str = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n\
    listeners=PLAINTEXT://127.0.0.1:8390,CONTROLLER://127.0.0.1:8391\n\
    controller.quorum.voters=1@127.0.0.1:8391\n";

struct Node {
    dir: tempfile::TempDir,
}

impl Node {
    /// A node with a properties file that is formatted and was never started.
    fn new(more: &str) -> Node {
        let dir = tempfile::tempdir().expect("a directory");
        let node = Node { dir };
        let data = node.dir.path().join("data");
        node.write(&format!("{FILE}log.dirs={}\n", data.display()));
        let file = node.file();
        let file = file.to_str().expect("a path of characters");
        let cluster_id = "MkU3OEVBNTcwNTJENDM2Qg";
        let formatted = run(&["storage", "format", "-t", cluster_id, "-c", file]);
        assert!(formatted.status.success(), "{formatted:?}");
        node.write(&format!("{FILE}log.dirs={}\n{more}", data.display()));
        node
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("server.properties")
    }

    fn write(&self, text: &str) {
        fs::write(self.file(), text).expect("the file");
    }

    fn preflight(&self, more: &[&str]) -> Output {
        let file = self.file();
        let mut arguments = vec!["preflight", file.to_str().expect("a path")];
        arguments.extend(more);
        run(&arguments)
    }

    /// The content and modification time of every file.
    fn content(&self) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
        let mut content = BTreeMap::new();
        list(self.dir.path(), &mut content);
        content
    }
}

fn list(dir: &Path, content: &mut BTreeMap<PathBuf, (Vec<u8>, SystemTime)>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            list(&path, content);
        } else {
            let changed = fs::metadata(&path).and_then(|it| it.modified());
            let bytes = fs::read(&path).expect("a file");
            content.insert(path, (bytes, changed.expect("a time")));
        }
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(ottla_binary())
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_exit_status_is_the_result_and_no_file_changes() {
    let node = Node::new("");
    let before = node.content();
    let possible = node.preflight(&[]);
    assert_eq!(possible.status.code(), Some(0), "{possible:?}");
    let said = text(&possible.stdout);
    assert!(said.ends_with("Ottla can take this node over.\n"), "{said}");
    assert!(said.starts_with("Node 1 of cluster MkU3OEVBNTcwNTJENDM2Qg, metadata.version 4.3-IV0"));

    let refused = node.preflight(&["--override", "node.id=2", "--json"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said: serde_json::Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert_eq!(said["possible"], false);
    assert_eq!(said["findings"][0]["severity"], "refuses");

    for wrong in [vec!["preflight", "/not/there"], vec!["preflight"]] {
        let unreadable = run(&wrong);
        assert_eq!(unreadable.status.code(), Some(2), "{unreadable:?}");
    }
    assert_eq!(node.content(), before);
}

#[test]
fn a_damaged_file_of_a_log_is_a_problem() {
    let node = Node::new("");
    let log = node.dir.path().join("data/orders-0");
    fs::create_dir(&log).expect("a directory");
    fs::write(log.join("partition.metadata"), "version: 0\ntopic_id: x").expect("a file");
    let refused = node.preflight(&["--json"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said: serde_json::Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    let finding = &said["findings"][0];
    assert_eq!(finding["subject"], "logs", "{said}");
    let what = finding["what"].as_str().unwrap_or_default();
    assert!(
        what.contains("orders-0/partition.metadata: line 2"),
        "{what}"
    );
}

#[test]
fn a_missing_kerberos_key_is_found() {
    let settings = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,\
                    EXTRA:SASL_PLAINTEXT\n\
                    listeners=PLAINTEXT://127.0.0.1:8390,CONTROLLER://127.0.0.1:8391,\
                    EXTRA://127.0.0.1:8392\n\
                    listener.name.extra.sasl.enabled.mechanisms=GSSAPI\n\
                    sasl.kerberos.service.name=kafka\n\
                    listener.name.extra.gssapi.sasl.jaas.config=\
                    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true \
                    storeKey=true keyTab=\"/nowhere/kafka.keytab\" principal=\"kafka/localhost@X\";\n";
    let node = Node::new(settings);
    let refused = node.preflight(&["--json"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said: serde_json::Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    let finding = &said["findings"][0];
    assert_eq!(finding["severity"], "refuses", "{said}");
    assert_eq!(finding["subject"], "start", "{said}");
    let what = finding["what"].as_str().unwrap_or_default();
    assert!(
        what.starts_with("listener EXTRA with SASL GSSAPI: "),
        "{what}"
    );
}

#[test]
fn the_doctor_names_all_that_the_start_would_refuse() {
    let node = Node::new("");
    let file = node.file();
    let file = file.to_str().expect("a path");
    let voters = "controller.quorum.voters=2@127.0.0.1:8391";
    let overrides = ["--override", "node.id=2", "--override", voters];
    let foreign = run(&[&["doctor", file][..], &overrides].concat());
    assert_eq!(foreign.status.code(), Some(1), "{foreign:?}");
    // Lines are wrapped.
    let said = text(&foreign.stdout);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = "the directory belongs to node 1, but node.id is 2";
    assert!(said.contains(sentence), "{said}");

    node.write("log.dirs=/nowhere\n");
    let unusable = run(&["doctor", file]);
    assert_eq!(unusable.status.code(), Some(2), "{unusable:?}");
    let said = text(&unusable.stderr);
    for setting in ["controller.listener.names", "node.id", "process.roles"] {
        assert!(said.contains(&format!("{setting} is missing")), "{said}");
    }
}

#[test]
fn the_server_refuses_with_the_sentence_of_preflight_and_touches_nothing() {
    let node = Node::new("authorizer.class.name=org.example.Authorizer\n");
    let before = node.content();
    let said: serde_json::Value =
        serde_json::from_slice(&node.preflight(&["--json"]).stdout).expect("JSON");
    let finding = &said["findings"][0];
    let part = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    let sentence = format!("{}: {}; {}", part("place"), part("what"), part("change"));
    let file = node.file();
    let refused = run(&["server", file.to_str().expect("a path")]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(text(&refused.stderr), format!("ottla: {sentence}\n"));
    assert_eq!(node.content(), before);
}
