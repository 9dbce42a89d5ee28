//! Links with the names of Kafka's scripts: created, called, and used to start and stop a server.
//! Also a node in a container.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use ottla_testkit::{lease_ports, ottla_binary, words};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn installed(folder: &Path) -> Output {
    Command::new(ottla_binary())
        .arg("install-scripts")
        .arg(folder)
        .output()
        .expect("the binary starts")
}

#[test]
fn links_act_as_scripts() {
    let folder = tempfile::tempdir().expect("a folder");
    let bin = folder.path().join("bin");
    let first = installed(&bin);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(text(&first.stdout).contains("kafka-topics.sh -> "));
    let help = Command::new(bin.join("kafka-topics.sh"))
        .arg("--help")
        .output()
        .expect("the link starts");
    assert!(
        text(&help.stdout).contains("Usage: kafka-topics.sh [OPTIONS]"),
        "{}",
        text(&help.stdout)
    );
    let class = Command::new(bin.join("kafka-run-class.sh"))
        .args(["kafka.tools.StorageTool", "random-uuid"])
        .output()
        .expect("the link starts");
    assert_eq!(text(&class.stdout).trim().len(), 22);

    // A second run changes nothing; an unrelated file is kept.
    let again = installed(&bin);
    assert!(
        text(&again.stdout).starts_with("0 links created"),
        "{}",
        text(&again.stdout)
    );
    let topics = bin.join("kafka-topics.sh");
    std::fs::remove_file(&topics).expect("the link");
    std::fs::write(&topics, "mine").expect("a file");
    let refused = installed(&bin);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("kafka-topics.sh"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(std::fs::read_to_string(&topics).expect("the file"), "mine");
}

#[test]
fn unsupported_scripts_print_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, reason) in [
        ("connect-standalone.sh", "Kafka Connect is a Java framework"),
        ("kafka-nonsense.sh", "is not a script of Apache Kafka 4.3"),
    ] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(ottla_binary(), &link).expect("a link");
        let ran = Command::new(link)
            .arg("--list")
            .output()
            .expect("it starts");
        assert_eq!(ran.status.code(), Some(1));
        let said = text(&ran.stderr);
        assert!(
            said.contains(reason) && said.contains("kafka-topics.sh"),
            "{said}"
        );
    }
}

/// A node ID that no other server on the machine has, because `server-stop` examines all servers.
/// `test` is another number for each test.
fn node_id(test: u32) -> String {
    (test * 1_000_000_000 + std::process::id()).to_string()
}

#[test]
fn a_server_is_started_and_stopped_by_scripts() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bin, id) = (folder.path().join("bin"), node_id(1));
    assert!(installed(&bin).status.success());
    let properties = folder.path().join("server.properties");
    let data = folder.path().join("data");
    std::fs::write(
        &properties,
        format!(
            "process.roles=broker,controller\nnode.id={id}\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n\
             controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={}\n",
            data.display()
        ),
    )
    .expect("the properties");
    let script = |name: &str, arguments: &[&str]| {
        Command::new(bin.join(name))
            .args(arguments)
            .current_dir(folder.path())
            .env("KAFKA_HEAP_OPTS", "-Xmx1G")
            .output()
            .expect("the script starts")
    };
    let formatted = script(
        "kafka-storage.sh",
        &words("format --standalone -t T3R0bGFQcm9jZXNzVGVzdA -c server.properties"),
    );
    assert!(formatted.status.success(), "{}", text(&formatted.stderr));
    let usage = script("kafka-server-start.sh", &[]);
    assert_eq!(usage.status.code(), Some(1));
    assert!(
        text(&usage.stdout).starts_with("USAGE: "),
        "{}",
        text(&usage.stdout)
    );

    let started = script("kafka-server-start.sh", &["-daemon", "server.properties"]);
    assert!(started.status.success(), "{}", text(&started.stderr));
    let output = folder.path().join("logs/kafkaServer.out");
    let said = || std::fs::read_to_string(&output).unwrap_or_default();
    wait_until("the server listens", || said().contains("Listening on"));
    assert!(
        said().contains("KAFKA_HEAP_OPTS is set and has no effect"),
        "{}",
        said()
    );

    let no_process = script("kafka-server-stop.sh", &["--node-id=999999999"]);
    assert_eq!(no_process.status.code(), Some(1));
    let stopped = script("kafka-server-stop.sh", &["--node-id", &id]);
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    wait_until("the server has stopped", || said().contains("Stopped."));
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not so: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A container node configured with the variables of Kafka's image, with its directories in this
/// folder.
fn container(folder: &Path, id: &str, port: u16) -> Child {
    let output = File::create(folder.join("output")).expect("a file");
    Command::new(ottla_binary())
        .arg("container-run")
        .arg("--mounted-configs-dir")
        .arg(folder.join("mounted"))
        .arg("--final-configs-dir")
        .arg(folder.join("config"))
        .env("KAFKA_NODE_ID", id)
        .env("KAFKA_PROCESS_ROLES", "broker,controller")
        .env(
            "KAFKA_LISTENERS",
            format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"),
        )
        .env(
            "KAFKA_ADVERTISED_LISTENERS",
            format!("PLAINTEXT://127.0.0.1:{port}"),
        )
        .env("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER")
        .env(
            "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS",
            "127.0.0.1:9093",
        )
        .env("KAFKA_LOG_DIRS", folder.join("data"))
        .env("CLUSTER_ID", "Cq0ZTqVSQ3aPPuXhHRDbLA")
        .stdout(output.try_clone().expect("one file for both"))
        .stderr(output)
        .spawn()
        .expect("the binary starts")
}

#[test]
fn a_container_starts_with_the_environment_of_the_kafka_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let [port] = lease_ports().expect("a free port");
    let (id, mounted) = (node_id(2), folder.path().join("mounted"));
    std::fs::create_dir(&mounted).expect("a directory");
    std::fs::write(
        mounted.join("server.properties"),
        "node.id=1\nnum.partitions=3\n",
    )
    .expect("a file");
    for start in 0..2 {
        let mut node = container(folder.path(), &id, port);
        let began = Instant::now();
        let output = || std::fs::read_to_string(folder.path().join("output")).unwrap_or_default();
        while !output().contains("Transitioning from RECOVERY to RUNNING") {
            let ended = node.try_wait().expect("a child");
            assert!(
                ended.is_none() && began.elapsed() < Duration::from_secs(60),
                "start {start}: {ended:?}\n{}",
                output()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        // As `kafka-server-stop.sh` in the container.
        let stopped = Command::new(ottla_binary())
            .args(["server-stop", "--node-id", &id])
            .output()
            .expect("the binary starts");
        if !stopped.status.success() {
            node.kill().expect("it runs");
        }
        assert!(stopped.status.success(), "{}", text(&stopped.stdout));
        assert!(node.wait().expect("it ends").success(), "{}", output());
    }
    let identity = std::fs::read_to_string(folder.path().join("data/meta.properties"));
    let identity = identity.expect("it is formatted");
    assert!(
        identity.contains("cluster.id=Cq0ZTqVSQ3aPPuXhHRDbLA"),
        "{identity}"
    );
    assert!(identity.contains(&format!("node.id={id}")), "{identity}");
    let config = std::fs::read_to_string(folder.path().join("config/server.properties"));
    assert!(
        config
            .expect("it is written")
            .contains("num.partitions=3\n")
    );
}
