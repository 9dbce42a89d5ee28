//! Variables of `config.providers`: in dynamic settings, which are stored and described as written,
//! and in the files of tools.

use ottla_testkit::{BrokerBuilder, BrokerProcess, ToolOutput};

fn configs(broker: &BrokerProcess, arguments: &[&str]) -> ToolOutput {
    let servers = broker.bootstrap();
    let flags = ["configs", "--bootstrap-server", &servers];
    let entity = ["--entity-type", "brokers", "--entity-default"];
    ToolOutput::of(&[&flags[..], &entity, arguments].concat(), "")
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
    assert!(!described.err.contains("WARN"), "{}", described.err);
    described.succeeded();
    let text = describe("none").failed();
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
    set("some").succeeded();
    let described = configs(&broker, &["--describe"]).succeeded();
    assert!(described.contains(&limit("some")), "{described}");
    assert!(!described.contains("127.0.0.9:17"), "{described}");

    let missing = set("none").failed();
    let variable = format!("${{file:{}:none}}", file.display());
    assert!(
        missing.contains(&variable) && missing.contains("the file has no such key"),
        "{missing}"
    );
    // The message does not contain what the variable stands for.
    let wrong = set("word").failed();
    assert!(wrong.contains("is not valid"), "{wrong}");
    assert!(!wrong.contains("abc"), "{wrong}");
    let described = configs(&broker, &["--describe"]).succeeded();
    assert!(described.contains(&limit("some")), "{described}");
}
