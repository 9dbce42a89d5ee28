//! Variables of `config.providers`: in dynamic settings, which are stored and described as written,
//! and in the files of tools.

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
fn the_file_of_a_tool_may_refer_to_other_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let secrets = directory.path().join("secrets");
    std::fs::write(&secrets, "id=tool\n").expect("written");
    let broker = BrokerBuilder::new().start();
    let describe = |key: &str| {
        let file = directory.path().join("client.properties");
        let text = format!(
            "config.providers=file\n\
             config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n\
             client.id=${{file:{}:{key}}}\n",
            secrets.display()
        );
        std::fs::write(&file, text).expect("written");
        let file = file.display().to_string();
        configs(&broker, &["--describe", "--command-config", &file])
    };
    let described = describe("id");
    let text = printed(&described);
    assert!(described.status.success(), "{text}");
    assert!(!text.contains("WARN"), "{text}");
    let failed = describe("none");
    assert!(!failed.status.success());
    let text = printed(&failed);
    assert!(text.contains("the file has no such key"), "{text}");
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
