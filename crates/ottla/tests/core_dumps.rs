//! A node with secrets leaves no core dump.

use std::time::{Duration, Instant};

use ottla_testkit::{BrokerBuilder, BrokerProcess};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit of this process, which its brokers inherit.
const INHERITED: u64 = 1 << 20;

/// With less, the kernel would still pass a dump to the program of `kernel.core_pattern`.
const FORBIDDEN: &str = "1";

const PATIENCE: Duration = Duration::from_secs(30);

/// The soft limit of the size of core dumps of a running broker, as the kernel shows it.
fn limit(broker: &BrokerProcess) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", broker.pid()));
    let limits = limits.expect("the broker runs");
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max core file size"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.expect("a limit").to_owned()
}

/// Waits until a running broker leaves no core dump.
fn await_forbidden(broker: &BrokerProcess) {
    let began = Instant::now();
    while limit(broker) != FORBIDDEN {
        assert!(began.elapsed() < PATIENCE, "{}", broker.output());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_node_with_secrets_leaves_no_core_dump_unless_it_is_allowed() {
    let maximum = getrlimit(Resource::Core).maximum;
    assert!(
        maximum.is_none_or(|maximum| maximum >= INHERITED),
        "the hard limit of core dumps (ulimit -Hc) is too low for this test: {maximum:?}"
    );
    let inherited = Rlimit {
        current: Some(INHERITED),
        maximum,
    };
    setrlimit(Resource::Core, inherited).expect("it is within the hard limit");
    let unchanged = INHERITED.to_string();
    let secret = ("delegation.token.secret.key", "hush");

    let mut broker = BrokerBuilder::new().start();
    assert_eq!(limit(&broker), unchanged);
    let with = BrokerBuilder::new()
        .property(secret.0, secret.1)
        .environment("OTTLA_LOG", "warn,ottla=debug")
        .start();
    assert_eq!(limit(&with), FORBIDDEN);
    let output = with.output();
    assert!(output.contains("ottla.core.dump.enable"), "{output}");
    let allowed = BrokerBuilder::new()
        .property(secret.0, secret.1)
        .property("ottla.core.dump.enable", "true")
        .start();
    assert_eq!(limit(&allowed), unchanged);

    // A secret in a dynamic setting counts at once, and at the next start once the node has read the metadata log.
    broker.tool(&[
        "configs",
        "--bootstrap-server",
        "{bootstrap}",
        "--alter",
        "--entity-type",
        "brokers",
        "--entity-name",
        "1",
        "--add-config",
        "listener.name.later.ssl.keystore.password=hush",
    ]);
    await_forbidden(&broker);
    assert!(broker.stop().success());
    broker.start_again();
    // It accepts clients just before.
    await_forbidden(&broker);

    // So do the credentials of a user, also while no listener asks for them.
    let users = BrokerBuilder::new().start();
    assert_eq!(limit(&users), unchanged);
    users.tool(&[
        "configs",
        "--bootstrap-server",
        "{bootstrap}",
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        "alice",
        "--add-config",
        "SCRAM-SHA-256=[iterations=4096,password=hush]",
    ]);
    await_forbidden(&users);
}
