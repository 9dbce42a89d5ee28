//! `ottla tls init`: sets up TLS for a cluster without a certificate authority in one command. It
//! creates an authority, a certificate for each broker, and the settings of the brokers' listeners
//! and of the clients. `ottla tls principal` is in a file of its own.
//!
//! It keeps no state: its output belongs to the user, and a second run on the same directory is
//! refused.

pub mod authority;
pub mod new_files;
mod principal;
pub mod settings;
pub mod stores;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use authority::Authority;
use new_files::NewFile;
use settings::{ClientSettings, Store};

use crate::paragraphs::wrap;

/// Differs from the ports of the plaintext and the controller listener in examples.
const PORT: u16 = 9094;
/// Names of a broker on this machine.
pub const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Days that a broker's certificate is valid: the maximum that all clients accept.
pub const DAYS: u16 = 825;

/// Create certificates and the settings for them; print the principal of a certificate.
#[derive(Args, Debug)]
pub struct TlsArgs {
    #[command(subcommand)]
    command: TlsCommand,
}

#[derive(Subcommand, Debug)]
enum TlsCommand {
    Init(InitArgs),
    Principal(principal::PrincipalArgs),
}

/// Create an authority, a certificate for each broker, and the settings of listeners and clients.
///
/// Existing files are never overwritten.
#[derive(Args, Debug)]
struct InitArgs {
    /// Directory for the files.
    #[arg(long, value_name = "DIRECTORY", default_value = "./ottla-tls")]
    dir: PathBuf,
    /// Host names and addresses of a broker, separated by commas; repeat the option for each
    /// broker. The default is one broker on this machine: localhost,127.0.0.1,::1.
    #[arg(long, value_name = "NAMES")]
    broker: Vec<String>,
    /// Port of the brokers' TLS listeners.
    #[arg(long, value_name = "PORT", default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Format of key stores and trust stores. Clients of Kafka before 2.7 read PKCS12 only.
    #[arg(long, value_enum, default_value_t = StoreFormat::Pem)]
    store: StoreFormat,
    /// How many days the brokers' certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum StoreFormat {
    Pem,
    Pkcs12,
}

pub fn run(args: TlsArgs) -> ExitCode {
    let text = match args.command {
        TlsCommand::Init(args) => init(&args),
        TlsCommand::Principal(args) => principal::principal(&args),
    };
    match text {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(sentence) => {
            eprintln!("ottla: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the files and returns the text to print.
fn init(args: &InitArgs) -> Result<String, String> {
    let brokers = brokers(&args.broker)?;
    let dir = std::path::absolute(&args.dir)
        .map_err(|error| format!("--dir {}: {error}", args.dir.display()))?;
    let files = files(&dir, &brokers, args)?;
    new_files::write(&files)?;
    Ok(introduction(&dir, &brokers, args.store))
}

/// The names of each broker.
fn brokers(given: &[String]) -> Result<Vec<Vec<String>>, String> {
    if given.is_empty() {
        return Ok(vec![LOCAL_NAMES.map(str::to_owned).to_vec()]);
    }
    let names = |list: &String| {
        let names = list.split(',').map(|name| {
            let name = name.trim();
            match authority::is_host(name) {
                true => Ok(name.to_owned()),
                false => Err(format!(
                    "--broker {list}: `{name}` is neither a host name nor an address; give names without ports, \
                     for example --broker kafka-1.example.com,10.0.0.1"
                )),
            }
        });
        names.collect()
    };
    given.iter().map(names).collect()
}

fn broker_name(index: usize) -> String {
    format!("broker-{}", index + 1)
}

fn files(dir: &Path, brokers: &[Vec<String>], args: &InitArgs) -> Result<Vec<NewFile>, String> {
    let authority = Authority::new(args.days)?;
    let certificate = dir.join("ca.crt");
    let mut files = vec![
        NewFile::public(certificate.clone(), authority.pem()),
        NewFile::secret(dir.join("ca.key"), authority.key_pem()),
    ];
    // Clients need only the password of the trust store.
    let (trust, password) = match args.store {
        StoreFormat::Pem => (pem_store(certificate.clone()), None),
        StoreFormat::Pkcs12 => {
            let (path, password) = (dir.join("truststore.p12"), stores::random_password());
            let store = stores::trust_store(authority.der(), &password)?;
            files.push(NewFile::public(path.clone(), store));
            let password = Some(password);
            (Store { path, password }, Some(stores::random_password()))
        }
    };
    for (index, names) in brokers.iter().enumerate() {
        let issued = authority.issue(names)?;
        let name = broker_name(index);
        let (extension, bytes) = match &password {
            None => ("pem", issued.pem().into_bytes()),
            Some(password) => {
                let store = stores::key_store(&issued, authority.der(), password)?;
                ("p12", store)
            }
        };
        let key_store = Store {
            path: dir.join(format!("{name}.{extension}")),
            password: password.clone(),
        };
        files.push(NewFile::secret(key_store.path.clone(), bytes));
        let text = settings::listener(&names[0], args.port, &key_store, &trust);
        files.push(NewFile::secret(
            dir.join(format!("{name}.properties")),
            text,
        ));
    }
    let client = ClientSettings {
        bootstrap_servers: &bootstrap_servers(brokers, args.port),
        trust: &trust,
        authority: &certificate,
        user: None,
    };
    files.extend(client.files(dir, "client"));
    Ok(files)
}

fn pem_store(path: PathBuf) -> Store {
    Store {
        path,
        password: None,
    }
}

fn bootstrap_servers(brokers: &[Vec<String>], port: u16) -> String {
    let servers: Vec<String> = brokers
        .iter()
        .map(|names| settings::address(&names[0], port))
        .collect();
    servers.join(",")
}

fn introduction(dir: &Path, brokers: &[Vec<String>], store: StoreFormat) -> String {
    let extension = match store {
        StoreFormat::Pem => "pem",
        StoreFormat::Pkcs12 => "p12",
    };
    let mut text = format!("TLS files are in {}.\n\n", dir.display());
    let mut line = |file: &str, what: &str| {
        text.push_str(&format!("  {file:<24}{what}\n"));
    };
    line("ca.crt", "the authority, which clients trust");
    line("ca.key", "its private key; do not copy it to the brokers");
    for (index, names) in brokers.iter().enumerate() {
        let name = broker_name(index);
        let what = format!("key and certificate of {}", names.join(", "));
        line(&format!("{name}.{extension}"), &what);
        line(
            &format!("{name}.properties"),
            "lines for the broker's server.properties",
        );
    }
    line("client.properties", "Java clients and --command-config");
    line("client.librdkafka.conf", "clients on librdkafka; kcat -F");
    line("client.go", "options of franz-go");
    text.push('\n');
    let last = format!(
        "Copy the {extension} and properties files to the brokers, and adjust the paths in the properties files. \
         Replaced certificates are read without a restart."
    );
    wrap(&mut text, "", "", &last);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn args(dir: &Path, broker: &[&str], store: StoreFormat) -> InitArgs {
        InitArgs {
            dir: dir.to_path_buf(),
            broker: broker.iter().map(|names| (*names).to_owned()).collect(),
            port: 9093,
            store,
            days: 30,
        }
    }

    fn settings_of(path: &Path) -> BTreeMap<String, String> {
        let bytes = std::fs::read(path).unwrap();
        let name = path.display().to_string();
        let properties = ottla_config::Properties::parse_bytes(&bytes, &name);
        properties.unwrap().into_map()
    }

    #[test]
    fn every_broker_has_its_own_store_and_keys_are_private() {
        for (store, key_store) in [
            (StoreFormat::Pem, "broker-2.pem"),
            (StoreFormat::Pkcs12, "broker-2.p12"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let dir = dir.path().join("new");
            let brokers = ["a.example.com,10.0.0.1", "b.example.com"];
            let text = init(&args(&dir, &brokers, store)).unwrap();
            assert!(text.contains("key and certificate of a.example.com, 10.0.0.1"));
            let (_, last) = text.rsplit_once("\n\n").unwrap();
            assert!(last.starts_with("Copy the ") && last.ends_with("restart.\n"));
            assert!(
                last.lines()
                    .all(|line| line.chars().count() <= crate::paragraphs::WIDTH)
            );
            let mode = |name: &str| {
                let metadata = std::fs::metadata(dir.join(name)).unwrap();
                metadata.permissions().mode() & 0o777
            };
            for name in ["ca.key", key_store, "broker-2.properties"] {
                assert_eq!(mode(name), 0o600, "{name}");
            }
            let listener = settings_of(&dir.join("broker-2.properties"));
            assert_eq!(
                listener["ssl.keystore.location"],
                dir.join(key_store).display().to_string()
            );
            assert_eq!(listener["advertised.listeners"], "SSL://b.example.com:9093");
            let client = settings_of(&dir.join("client.properties"));
            assert_eq!(
                client["bootstrap.servers"],
                "a.example.com:9093,b.example.com:9093"
            );
        }
    }

    #[test]
    fn existing_files_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let args = args(dir.path(), &[], StoreFormat::Pem);
        std::fs::write(dir.path().join("broker-1.pem"), "precious").unwrap();
        let refused = init(&args).unwrap_err();
        assert!(
            refused.contains("broker-1.pem exists already") && refused.contains("--dir"),
            "{refused}"
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        std::fs::remove_file(dir.path().join("broker-1.pem")).unwrap();
        init(&args).unwrap();
        let key = std::fs::read(dir.path().join("ca.key")).unwrap();
        init(&args).unwrap_err();
        assert_eq!(std::fs::read(dir.path().join("ca.key")).unwrap(), key);
    }

    #[test]
    fn a_port_among_the_names_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("new");
        let refused = init(&args(&dir, &["kafka-1:9093"], StoreFormat::Pem)).unwrap_err();
        assert!(
            refused.contains("`kafka-1:9093` is neither a host name nor an address"),
            "{refused}"
        );
        assert!(!dir.exists());
    }
}
