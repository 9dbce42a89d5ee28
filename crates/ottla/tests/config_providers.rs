//! Variables of `config.providers` in dynamic settings: stored and described as written, replaced by
//! the broker.

use std::process::{Command, Output, Stdio};

use ottla_testkit::{BrokerBuilder, BrokerProcess, ottla_binary};

fn configs(broker: &BrokerProcess, arguments: &[&str]) -> Output {
    Command::new(ottla_binary())
        .args(["configs", "--bootstrap-server", &broker.bootstrap()])
        .args(["--entity-type", "brokers", "--entity-default"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("starts")
}

fn printed(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

#[test]
fn a_dynamic_setting_may_refer_to_a_file_of_the_broker() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("limits");
    std::fs::write(&file, "some=17\nword=abc\n").expect("written");
    let broker = BrokerBuilder::new()
        .property("config.providers", "file")
        .property(
            "config.providers.file.class",
            "org.apache.kafka.common.config.provider.FileConfigProvider",
        )
        .start();
    let limit = |key: &str| format!("127.0.0.9:${{file:{}:{key}}}", file.display());
    let set = |key: &str| {
        let change = format!("max.connections.per.ip.overrides={}", limit(key));
        configs(&broker, &["--alter", "--add-config", &change])
    };
    let done = set("some");
    assert!(done.status.success(), "{}", printed(&done));
    let described = printed(&configs(&broker, &["--describe"]));
    assert!(described.contains(&limit("some")), "{described}");
    assert!(!described.contains("127.0.0.9:17"), "{described}");

    let missing = printed(&set("none"));
    let variable = format!("${{file:{}:none}}", file.display());
    assert!(
        missing.contains(&variable) && missing.contains("the file has no such key"),
        "{missing}"
    );
    // The message does not contain what the variable stands for.
    let wrong = printed(&set("word"));
    assert!(wrong.contains("is not valid"), "{wrong}");
    assert!(!wrong.contains("abc"), "{wrong}");
    let described = printed(&configs(&broker, &["--describe"]));
    assert!(described.contains(&limit("some")), "{described}");
}
