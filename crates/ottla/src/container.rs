//! `ottla container-run`: starts a node in a container with the environment variables of Kafka's
//! image.
//!
//! Settings come from a mounted `server.properties` and from variables
//! (`KAFKA_LOG_RETENTION_HOURS`), which override the file. Without either, the node is a combined
//! node on localhost:9092. The log directories are formatted with `CLUSTER_ID` unless they already
//! are. Kafka: `KafkaDockerWrapper`, and the scripts of `apache/kafka`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ottla_config::{BrokerConfig, Properties, property_line};
use ottla_metadata::MetadataVersion;
use ottla_storage::format::{FormatOptions, InitialQuorum, format};

use crate::owner_file::write_for_owner;
use crate::server;

/// The prefix of variables that are settings.
const PREFIX: &str = "KAFKA_";
const CLUSTER_ID_VARIABLE: &str = "CLUSTER_ID";
/// As in Kafka's image.
const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";
/// Variables with the prefix of settings that configure the JVM and its logs.
const NOT_SETTINGS: &[&str] = &[
    "KAFKA_VERSION",
    "KAFKA_HEAP_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_OPTS",
    "KAFKA_JMX_OPTS",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_JMX_HOSTNAME",
];
/// Variables that name a file of secrets, and the setting that receives its path.
const SECRET_FILES: &[(&str, &str)] = &[
    ("KAFKA_SSL_KEYSTORE_FILENAME", "ssl.keystore.location"),
    ("KAFKA_SSL_TRUSTSTORE_FILENAME", "ssl.truststore.location"),
];
/// Variables that name a file with a password.
const SECRET_WORDS: &[(&str, &str)] = &[
    ("KAFKA_SSL_KEY_CREDENTIALS", "ssl.key.password"),
    ("KAFKA_SSL_KEYSTORE_CREDENTIALS", "ssl.keystore.password"),
    (
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS",
        "ssl.truststore.password",
    ),
];
/// A development node, as Kafka's image without settings.
const DEFAULTS: &[(&str, &str)] = &[
    ("process.roles", "broker,controller"),
    ("node.id", "1"),
    ("controller.quorum.voters", "1@localhost:9093"),
    ("controller.listener.names", "CONTROLLER"),
    ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
    ("advertised.listeners", "PLAINTEXT://localhost:9092"),
    (
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    ),
    ("log.dirs", "/tmp/kraft-combined-logs"),
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
];

/// Where the settings in force are written, unless `--final-configs-dir` names another directory.
const FINAL_CONFIGS_DIR: &str = "/opt/kafka/config";
/// The file there.
const FINAL_CONFIG: &str = "server.properties";

/// Start a node in a container, with the environment variables of Kafka's image.
#[derive(Args, Debug)]
pub struct ContainerRunArgs {
    /// The directory where a server.properties may be mounted.
    #[arg(long, value_name = "DIR", default_value = "/mnt/shared/config")]
    mounted_configs_dir: PathBuf,
    /// The directory with keystores and passwords.
    #[arg(long, value_name = "DIR", default_value = "/etc/kafka/secrets")]
    secrets_dir: PathBuf,
    /// Directory to which the settings in force are written.
    #[arg(long, value_name = "DIR", default_value = FINAL_CONFIGS_DIR)]
    final_configs_dir: PathBuf,
}

pub fn run(args: &ContainerRunArgs) -> ExitCode {
    match prepare(args) {
        Ok(file) => server::run(server::ServerArgs::in_container(file)),
        Err(sentence) => {
            eprintln!("ottla: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// The file with the settings in force of a running node, from the arguments after `container-run`.
pub fn final_config(arguments: &[String]) -> PathBuf {
    const OPTION: &str = "--final-configs-dir";
    let given = arguments.iter().zip(1_usize..).find_map(|(word, next)| {
        match word.strip_prefix(OPTION)?.strip_prefix('=') {
            Some(directory) => Some(directory),
            None => arguments.get(next).map(String::as_str),
        }
    });
    Path::new(given.unwrap_or(FINAL_CONFIGS_DIR)).join(FINAL_CONFIG)
}

/// Writes the configuration file and formats the log directories.
fn prepare(args: &ContainerRunArgs) -> Result<PathBuf, String> {
    let environment = environment(std::env::vars_os())?;
    let mounted = args.mounted_configs_dir.join("server.properties");
    let mounted = match mounted.exists() {
        true => Some(server::read_properties(Some(&mounted), &[])?),
        false => None,
    };
    let settings = settings(mounted.as_ref(), &environment, &args.secrets_dir)?;
    let file = args.final_configs_dir.join(FINAL_CONFIG);
    let at = |error: std::io::Error| {
        format!(
            "{}: {error}; mount a directory that can be written",
            file.display()
        )
    };
    std::fs::create_dir_all(&args.final_configs_dir).map_err(at)?;
    write_for_owner(&file, &text_of(&settings)).map_err(at)?;
    let properties = server::read_properties(Some(&file), &[])?;
    let (config, _) =
        BrokerConfig::from_properties(&properties).map_err(|error| error.to_string())?;
    let options = FormatOptions {
        cluster_id: match environment.get(CLUSTER_ID_VARIABLE) {
            Some(id) if !id.is_empty() => id.clone(),
            _ => CLUSTER_ID.to_owned(),
        },
        quorum: first_quorum(&settings, config.process_roles.controller)?,
        metadata_version: MetadataVersion::DEFAULT,
        feature_levels: Default::default(),
        scram_records: Vec::new(),
        ignore_formatted: true,
    };
    format(&config, &options).map_err(|error| error.to_string())?;
    Ok(file)
}

/// The variables that are read, as text. The error names the first that is not UTF-8.
fn environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<String, String>, String> {
    // Other variables may contain any bytes, for example a path.
    let is_read = |name: &OsString| {
        let name = name.as_encoded_bytes();
        name.starts_with(PREFIX.as_bytes()) || name == CLUSTER_ID_VARIABLE.as_bytes()
    };
    let text = |(name, value): (OsString, OsString)| {
        let not_text = |part: &str| {
            format!(
                "{}={}: the {part} is not UTF-8; set it to text in UTF-8",
                name.display(),
                value.display()
            )
        };
        let name_text = name.to_str().ok_or_else(|| not_text("name"))?;
        let value_text = value.to_str().ok_or_else(|| not_text("value"))?;
        Ok((name_text.to_owned(), value_text.to_owned()))
    };
    variables
        .filter(|(name, _)| is_read(name))
        .map(text)
        .collect()
}

/// The effective settings: the file, overridden by variables, overridden by secrets; the defaults
/// if there are none.
fn settings(
    mounted: Option<&Properties>,
    environment: &BTreeMap<String, String>,
    secrets: &Path,
) -> Result<BTreeMap<String, String>, String> {
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    if let Some(mounted) = mounted {
        settings.extend(mounted.clone().into_map());
    }
    for (name, value) in environment {
        let is_secret = SECRET_FILES
            .iter()
            .chain(SECRET_WORDS)
            .any(|(it, _)| it == name);
        if let Some(key) = key_of(name)
            && !is_secret
        {
            settings.insert(key, value.clone());
        }
    }
    for (name, key) in SECRET_FILES {
        if let Some(file) = environment.get(*name) {
            let path = secrets.join(file);
            if !path.exists() {
                return Err(format!(
                    "{name}={file}: {} does not exist; mount it",
                    path.display()
                ));
            }
            settings.insert((*key).to_owned(), path.display().to_string());
        }
    }
    for (name, key) in SECRET_WORDS {
        if let Some(file) = environment.get(*name) {
            let path = secrets.join(file);
            let word = std::fs::read_to_string(&path)
                .map_err(|error| format!("{name}={file}: {}: {error}; mount it", path.display()))?;
            // As a shell's `$(cat FILE)`: blanks may belong to the password.
            let word = word.trim_end_matches(['\r', '\n']);
            settings.insert((*key).to_owned(), word.to_owned());
        }
    }
    if settings.is_empty() {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        settings.extend(DEFAULTS.iter().map(owned));
    }
    if !settings.contains_key("listeners")
        && let Some(advertised) = settings.get("advertised.listeners")
    {
        let listeners = on_every_interface(advertised);
        settings.insert("listeners".into(), listeners);
    }
    Ok(settings)
}

/// `KAFKA_LOG_RETENTION_HOURS` -> `log.retention.hours`; a double underscore means an underscore, a
/// triple one a hyphen.
fn key_of(variable: &str) -> Option<String> {
    let name = variable.strip_prefix(PREFIX)?;
    if NOT_SETTINGS.contains(&variable) || name.is_empty() {
        return None;
    }
    let dotted = name.to_lowercase().replace('_', ".");
    Some(dotted.replace("...", "-").replace("..", "_"))
}

/// `PLAINTEXT://broker:9092` -> `PLAINTEXT://0.0.0.0:9092`, for each element of a list.
fn on_every_interface(advertised: &str) -> String {
    let listener = |listener: &str| match (listener.split_once("://"), listener.rsplit_once(':')) {
        (Some((name, _)), Some((_, port))) => format!("{name}://0.0.0.0:{port}"),
        _ => listener.to_owned(),
    };
    let listeners: Vec<String> = advertised
        .split(',')
        .map(|it| listener(it.trim()))
        .collect();
    listeners.join(",")
}

/// The initial voters. Kafka's image formats for static voters only; here a controller that is its
/// own quorum needs no `controller.quorum.voters`.
fn first_quorum(
    settings: &BTreeMap<String, String>,
    is_controller: bool,
) -> Result<InitialQuorum, String> {
    let is_given = |key: &str| {
        settings
            .get(key)
            .is_some_and(|value| !value.trim().is_empty())
    };
    if is_given("controller.quorum.voters") {
        return Ok(InitialQuorum::Static);
    }
    if !is_controller {
        return Ok(InitialQuorum::None);
    }
    let bootstrap = settings.get("controller.quorum.bootstrap.servers");
    match bootstrap.map(|servers| servers.trim()) {
        None | Some("") => Ok(InitialQuorum::Standalone),
        Some(server) if is_of_this_machine(server) => Ok(InitialQuorum::Standalone),
        Some(servers) => Err(format!(
            "controller.quorum.bootstrap.servers={servers} names other controllers; a container then \
             needs controller.quorum.voters \
             (KAFKA_CONTROLLER_QUORUM_VOTERS=1@first:9093,2@second:9093,3@third:9093)"
        )),
    }
}

/// Whether `server` is one `host:port`, and the host an address of this machine. Without this
/// check, two controllers that name the first one would become two quorums.
fn is_of_this_machine(server: &str) -> bool {
    let host = server.rsplit_once(':').map(|(host, _)| host);
    host.is_some_and(|host| UdpSocket::bind((host.trim_matches(['[', ']']), 0)).is_ok())
}

/// In the format of properties files.
fn text_of(settings: &BTreeMap<String, String>) -> String {
    let lines = settings
        .iter()
        .map(|(key, value)| property_line(key, value));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        variables.iter().map(owned).collect()
    }

    #[test]
    fn variables_become_settings_by_the_rules_of_kafkas_image() {
        for (variable, key) in [
            ("KAFKA_LOG_RETENTION_HOURS", Some("log.retention.hours")),
            ("KAFKA_A__B", Some("a_b")),
            ("KAFKA_A___B", Some("a-b")),
            ("KAFKA_HEAP_OPTS", None),
            ("KAFKA_LOG4J_ROOT_LOGLEVEL", None),
            ("KAFKA_", None),
            ("HOME", None),
        ] {
            assert_eq!(key_of(variable).as_deref(), key, "{variable}");
        }
    }

    #[test]
    fn the_error_names_a_variable_that_is_not_text() {
        let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let read = |name: &[u8], value: &[u8]| {
            let given = [
                (owned(name), owned(value)),
                (owned(b"PWD"), owned(b"/\xff")),
            ];
            environment(given.into_iter())
        };
        let good = read(b"KAFKA_NODE_ID", b"1").unwrap();
        assert_eq!(good, of(&[("KAFKA_NODE_ID", "1")]));
        for (name, value, part) in [
            (&b"KAFKA_LOG_DIRS"[..], &b"/d\xff"[..], "the value"),
            (b"CLUSTER_ID", b"\xff", "the value"),
            (b"KAFKA_\xff", b"1", "the name"),
        ] {
            let refused = read(name, value).unwrap_err();
            let start = String::from_utf8_lossy(name);
            assert!(refused.starts_with(&*start), "{refused}");
            assert!(
                refused.contains(&format!("{part} is not UTF-8")),
                "{refused}"
            );
        }
    }

    #[test]
    fn the_properties_file_is_found_by_the_arguments() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            final_config(&words).display().to_string()
        };
        assert_eq!(of(&[]), "/opt/kafka/config/server.properties");
        for words in [
            &["--final-configs-dir", "/c"][..],
            &["--secrets-dir=/s", "--final-configs-dir=/c"],
        ] {
            assert_eq!(of(words), "/c/server.properties", "{words:?}");
        }
    }

    #[test]
    fn variables_override_the_file_and_defaults_fill_in() {
        let secrets = Path::new("/nowhere");
        let found = settings(None, &of(&[("HOME", "/")]), secrets).unwrap();
        assert_eq!(found["advertised.listeners"], "PLAINTEXT://localhost:9092");
        let mounted = Properties::parse("node.id=7\nlog.dirs=/d\n", "s.properties").unwrap();
        let environment = of(&[("KAFKA_NODE_ID", "8"), ("KAFKA_OPTS", "-Dx")]);
        let found = settings(Some(&mounted), &environment, secrets).unwrap();
        assert_eq!(found, of(&[("node.id", "8"), ("log.dirs", "/d")]));
    }

    #[test]
    fn listeners_are_derived_from_advertised_listeners() {
        let environment = of(&[(
            "KAFKA_ADVERTISED_LISTENERS",
            "PLAINTEXT://broker:9092, EXTERNAL://h:1",
        )]);
        let found = settings(None, &environment, Path::new("/nowhere")).unwrap();
        assert_eq!(
            found["listeners"],
            "PLAINTEXT://0.0.0.0:9092,EXTERNAL://0.0.0.0:1"
        );
    }

    #[test]
    fn secrets_are_files_with_contents() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("k.pem"), "").unwrap();
        std::fs::write(dir.path().join("word"), "secret \n").unwrap();
        let environment = of(&[
            ("KAFKA_SSL_KEYSTORE_FILENAME", "k.pem"),
            ("KAFKA_SSL_KEY_CREDENTIALS", "word"),
        ]);
        let found = settings(None, &environment, dir.path()).unwrap();
        assert_eq!(found["ssl.key.password"], "secret ");
        assert_eq!(
            found["ssl.keystore.location"],
            dir.path().join("k.pem").display().to_string()
        );
        let missing = of(&[("KAFKA_SSL_KEYSTORE_FILENAME", "other.pem")]);
        let refused = settings(None, &missing, dir.path()).unwrap_err();
        assert!(refused.contains("other.pem"), "{refused}");
    }

    #[test]
    fn a_standalone_controller_needs_no_voters() {
        let quorum = |settings: &[(&str, &str)]| first_quorum(&of(settings), true);
        assert!(matches!(quorum(&[]), Ok(InitialQuorum::Standalone)));
        let voters = [("controller.quorum.voters", "1@h:1")];
        assert!(matches!(quorum(&voters), Ok(InitialQuorum::Static)));
        let bootstrap = |servers: &str| quorum(&[("controller.quorum.bootstrap.servers", servers)]);
        let itself = ["localhost:9093", "127.0.0.1:9093", "[::1]:9093"];
        let is_standalone =
            |servers: &&str| matches!(bootstrap(servers), Ok(InitialQuorum::Standalone));
        assert!(itself.iter().filter(|it| is_standalone(it)).count() >= 2);
        // 192.0.2.0/24 is reserved for documentation: RFC 5737.
        for others in ["a:1,b:1", "192.0.2.1:9093", "localhost:9093,192.0.2.1:9093"] {
            let refused = bootstrap(others).unwrap_err();
            assert!(
                refused.contains("KAFKA_CONTROLLER_QUORUM_VOTERS"),
                "{refused}"
            );
        }
        assert!(matches!(
            first_quorum(&of(&[]), false),
            Ok(InitialQuorum::None)
        ));
    }

    #[test]
    fn values_round_trip() {
        let given = of(&[("a", " b\\c"), ("d", "e\r\nf"), ("p\u{e4}ss", "\u{20ac} ")]);
        let text = text_of(&given);
        // As the server reads it.
        let read = Properties::parse_bytes(text.as_bytes(), "s.properties").unwrap();
        assert_eq!(read.into_map(), given, "{text}");
    }
}
