use super::*;
use crate::tables::{broker_config, topic_config};

fn parse(name: &str, value: &str) -> Result<ConfigValue, InvalidValue> {
    let def = broker_config(name)
        .or_else(|| topic_config(name))
        .expect(name);
    def.parse(value)
}

#[track_caller]
fn says(name: &str, value: &str, person: &str, client: &str) {
    let error = parse(name, value).expect_err("must be refused");
    assert_eq!(error.to_string(), person);
    assert_eq!(error.kafka_message(), client);
}

#[test]
fn a_refused_value_says_what_to_give_instead() {
    says(
        "log.retention.hours",
        "abc",
        "log.retention.hours=abc: not a number; give hours, -1 for no limit",
        "Invalid value abc for configuration log.retention.hours: Not a number of type INT",
    );
    says(
        "num.partitions",
        "0",
        "num.partitions=0: too small; give a whole number, at least 1",
        "Invalid value 0 for configuration num.partitions: Value must be at least 1",
    );
    says(
        "log.retention.hours",
        "9999999999",
        "log.retention.hours=9999999999: does not fit the type of the setting; \
         give hours, -1 for no limit",
        "Invalid value 9999999999 for configuration log.retention.hours: Not a number of type INT",
    );
    says(
        "auto.create.topics.enable",
        "yes",
        "auto.create.topics.enable=yes: neither true nor false; give true or false",
        "Invalid value yes for configuration auto.create.topics.enable: \
         Expected value to be either true or false",
    );
    says(
        "compression.type",
        "brotli",
        "compression.type=brotli: unknown value; give one of uncompressed, zstd, lz4, snappy, \
         gzip, producer",
        "Invalid value brotli for configuration compression.type: String must be one of: \
         uncompressed, zstd, lz4, snappy, gzip, producer",
    );
    says(
        "min.cleanable.dirty.ratio",
        "1.5",
        "min.cleanable.dirty.ratio=1.5: too large; give a number, 0 to 1",
        "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: \
         Value must be no more than 1",
    );
    says(
        "process.roles",
        "",
        "process.roles=: empty; give one or more of broker, controller, separated by commas",
        "Configuration 'process.roles' must not be empty. Valid values include: \
         [broker, controller]",
    );
    says(
        "cleanup.policy",
        "delete,archive",
        "cleanup.policy=archive: archive is unknown; give any of compact, delete, separated by \
         commas",
        "Invalid value archive for configuration cleanup.policy: String must be one of: compact, \
         delete",
    );
    says(
        "controller.quorum.voters",
        "1@host",
        "controller.quorum.voters=1@host: 1@host is not a voter; give voters as id@host:port, \
         separated by commas",
        "Invalid value 1@host for configuration controller.quorum.voters: No voter id and address \
         in 1@host",
    );
}

#[test]
fn duplicate_items_are_skipped() {
    let items = |items: &[&str]| {
        let items = items.iter().map(|item| (*item).to_owned()).collect();
        Ok(ConfigValue::List(items))
    };
    assert_eq!(parse("log.dirs", "/b,/a,/b"), items(&["/b", "/a"]));
    assert_eq!(parse("cordoned.log.dirs", "/a,/a"), items(&["/a"]));
    let described = crate::describe::as_written(broker_config("log.dirs").unwrap(), "/b, /a,/b");
    assert_eq!(described, "/b,/a");
    let repeated = |text| broker_config("log.dirs").unwrap().repeated_item(text);
    assert_eq!(repeated("/b, /a ,/a,/b"), Some("/a".to_owned()));
    assert_eq!(repeated("/b,/a"), None);
    // Not a `ValidList` in Kafka either; it has its own error message.
    let voters = "1@h:1,1@h:1";
    assert_eq!(
        parse("controller.quorum.voters", voters),
        items(&["1@h:1", "1@h:1"])
    );
}

#[test]
fn values_are_read_as_java_reads_them() {
    assert_eq!(parse("num.partitions", " +7 "), Ok(ConfigValue::Integer(7)));
    assert_eq!(
        parse("auto.create.topics.enable", "TRUE"),
        Ok(ConfigValue::Boolean(true))
    );
    assert_eq!(
        parse("min.cleanable.dirty.ratio", "0.25f"),
        Ok(ConfigValue::Double(0.25))
    );
    assert!(parse("min.cleanable.dirty.ratio", "inf").is_err());
    assert_eq!(
        parse("log.dirs", " /a , /b "),
        Ok(ConfigValue::List(vec!["/a".into(), "/b".into()]))
    );
    assert_eq!(parse("cleanup.policy", ""), Ok(ConfigValue::List(vec![])));
    assert!(parse("leader.replication.throttled.replicas", "0:1,2:3").is_ok());
    assert!(parse("leader.replication.throttled.replicas", "*").is_ok());
    assert!(parse("leader.replication.throttled.replicas", "0-1").is_err());
}

#[test]
fn durations_of_share_groups() {
    let def = crate::tables::group_config("share.auto.offset.reset").unwrap();
    for value in [
        "latest",
        "EARLIEST",
        "by_duration:PT12H",
        "by_duration:P2DT3H4M5.6S",
    ] {
        assert!(def.parse(value).is_ok(), "{value}");
    }
    for value in [
        "",
        "newest",
        "by_duration:",
        "by_duration:P",
        "by_duration:-PT1H",
        "by_duration:PT1X",
    ] {
        assert!(def.parse(value).is_err(), "{value}");
    }
    for (value, ms) in [
        ("by_duration:PT12H", Some(43_200_000)),
        ("BY_DURATION:p2dt3h4m5.6s", Some(183_845_600)),
        ("by_duration:PT0.0125S", Some(12)),
        ("by_duration:PT7.S", Some(7_000)),
        ("by_duration:PT9223372036854775807H", None),
        ("by_duration:PT1.5H", None),
        ("latest", None),
    ] {
        assert_eq!(super::share_offset_reset_duration_ms(value), ms, "{value}");
    }
}

#[test]
fn passwords_are_not_shown() {
    let def = broker_config("ssl.key.password").unwrap();
    assert!(def.is_sensitive());
    assert_eq!(
        def.invalid("secret", String::new(), "bad").value,
        "[hidden]"
    );
}

#[test]
fn addresses() {
    assert_eq!(parse_voter("3@host:9093"), Some((3, "host".into(), 9093)));
    assert_eq!(parse_voter("-3@host:9093"), None);
    assert_eq!(parse_host_port("[::1]:9092"), Some(("::1".into(), 9092)));
    assert_eq!(parse_host_port("host"), None);
    assert_eq!(parse_host_port("host:99999"), None);
}
