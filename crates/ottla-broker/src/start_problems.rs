//! Checks before a start: files and stores that the settings name. Settings and directories are
//! checked elsewhere.
//!
//! `ottla preflight` and `ottla doctor` show it without a start. Changes nothing.

use ottla_config::BrokerConfig;
use ottla_net::{check_audit_file, check_kerberos};
use ottla_remote::check_settings;

use crate::audit_topic::check_audit_topic;

/// Less is a mistake in the unit. With little more, the start warns of too little memory.
const LEAST_MEMORY_BYTES: i64 = 64 << 20;

/// Something that the start refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartProblem {
    /// The setting that is to blame.
    pub setting: String,
    pub what: String,
    /// The way out; empty if `what` contains it.
    pub change: String,
}

impl StartProblem {
    fn new(setting: &str, message: &str) -> StartProblem {
        let (what, change) = message.rsplit_once("; ").unwrap_or((message, ""));
        StartProblem {
            setting: setting.to_owned(),
            what: what.to_owned(),
            change: change.to_owned(),
        }
    }

    /// Of a message that starts with its setting.
    fn of_message(message: &str) -> StartProblem {
        let setting = message.split(['=', ':', ',']).next().unwrap_or_default();
        StartProblem::new(setting.trim(), message)
    }
}

/// Everything that the start would refuse. Blocks: reads files.
pub fn start_problems(config: &BrokerConfig) -> Vec<StartProblem> {
    let mut problems = Vec::new();
    let memory = config.ottla_memory_max_bytes;
    if (1..LEAST_MEMORY_BYTES).contains(&memory) {
        problems.push(StartProblem::of_message(&format!(
            "ottla.memory.max.bytes={memory}: a node without partitions needs more; give bytes, at least \
             {LEAST_MEMORY_BYTES}, or -1 for the memory of the machine"
        )));
    }
    for checked in [check_audit_file(config), check_audit_topic(config)] {
        if let Err(message) = checked {
            problems.push(StartProblem::of_message(&message));
        }
    }
    for (listener, _) in config.sasl.kerberos_services() {
        if let Err(message) = check_kerberos(config, |it| it == listener) {
            problems.push(StartProblem::new(
                &login_setting(config, listener),
                &message,
            ));
        }
    }
    if let Err(message) = check_settings(config) {
        problems.push(StartProblem::of_message(&message));
    }
    problems
}

/// The setting with the Kerberos login of a listener.
fn login_setting(config: &BrokerConfig, listener: &str) -> String {
    let (listener, key) = (listener.to_lowercase(), "sasl.jaas.config");
    let own = [
        format!("listener.name.{listener}.gssapi.{key}"),
        format!("listener.name.{listener}.{key}"),
        "ottla.jaas.file".to_owned(),
    ];
    let mut given = own.into_iter().filter(|it| config.setting(it).is_some());
    given.next().unwrap_or_else(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use ottla_config::Properties;

    use super::*;

    const NODE: &str = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n\
        listeners=A://localhost:1,C://localhost:4\ninter.broker.listener.name=A\n\
        controller.quorum.bootstrap.servers=localhost:4\nlog.dirs=/data\n";

    fn problems(more: &str) -> Vec<StartProblem> {
        let properties = Properties::parse(&format!("{NODE}{more}"), "x").unwrap();
        let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
        start_problems(&config)
    }

    const PLAINTEXT: &str = "listener.security.protocol.map=A:PLAINTEXT,C:PLAINTEXT\n";
    const TIERED: &str = "remote.log.storage.system.enable=true\n\
        remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage\n";

    #[test]
    fn a_node_without_files_and_stores_has_no_problems() {
        assert!(problems(PLAINTEXT).is_empty());
    }

    #[test]
    fn store_settings_are_checked_if_the_store_is_used() {
        let missing = problems(&format!("{PLAINTEXT}{TIERED}"));
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert_eq!(missing[0].setting, "rsm.config.dir");
        let misspelt = format!("{PLAINTEXT}{TIERED}rsm.config.dir=/nowhere\nrsm.config.dri=/x\n");
        let found = problems(&misspelt);
        assert_eq!(found[0].setting, "rsm.config.dri", "{found:?}");
        assert!(problems(&format!("{PLAINTEXT}rsm.config.dri=/x\n")).is_empty());
        assert!(problems(&misspelt.replace("rsm.config.dri=/x\n", "")).is_empty());
    }

    #[test]
    fn an_audit_file_that_cannot_be_written_is_refused() {
        let authorizer =
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n";
        let file = "ottla.audit.file=/no/such/directory/audit.json\n";
        let found = problems(&format!("{PLAINTEXT}{authorizer}{file}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].setting, "ottla.audit.file");
        assert!(found[0].change.ends_with("or remove the line"), "{found:?}");
        // Without an authorizer, nothing is decided.
        assert!(problems(&format!("{PLAINTEXT}{file}")).is_empty());
    }

    #[test]
    fn an_audit_topic_that_cannot_be_written_is_refused() {
        let authorizer =
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n";
        let with = |name: &str| {
            let topic = format!("ottla.audit.topic={name}\n");
            problems(&format!("{PLAINTEXT}{authorizer}{topic}"))
        };
        assert!(with("audit").is_empty());
        for wrong in ["a b", "__consumer_offsets", "__cluster_metadata"] {
            let found = with(wrong);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].setting, "ottla.audit.topic");
            assert!(found[0].change.starts_with("give the name"), "{found:?}");
        }
    }

    #[test]
    fn memory_in_a_wrong_unit_is_refused() {
        let with = |value: &str| problems(&format!("{PLAINTEXT}ottla.memory.max.bytes={value}\n"));
        assert_eq!(with("512")[0].setting, "ottla.memory.max.bytes");
        for good in ["-1", "268435456"] {
            assert!(with(good).is_empty());
        }
    }

    #[test]
    fn a_missing_keytab_is_reported_for_its_listener() {
        let login = "listener.name.a.gssapi.sasl.jaas.config";
        let found = problems(&format!(
            "listeners=A://localhost:1,I://localhost:3,C://localhost:4\n\
             inter.broker.listener.name=I\n\
             listener.security.protocol.map=A:SASL_PLAINTEXT,I:PLAINTEXT,C:PLAINTEXT\n\
             sasl.kerberos.service.name=kafka\n\
             {login}=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true \
             keyTab=\"/nowhere/kafka.keytab\" principal=\"kafka/localhost@X\";\n",
        ));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].setting, login);
    }
}
