//! The security set-up of a local cluster: users with their passwords in `secrets.properties`,
//! certificates in `tls`, and client settings in `clients`.
//!
//! The passwords are written first and never changed; everything else is created once, atomically,
//! and kept.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ottla_config::{Properties, property_line};
use ottla_protocol::metadata_records::MetadataRecord;

use crate::tls::authority::Authority;
use crate::tls::new_files::{self, NewFile};
use crate::tls::settings::{ClientSettings, MECHANISM, SCRAM_MODULE, Store};
use crate::tls::{DAYS, LOCAL_NAMES, stores};
use crate::tools::storage::scram_record;

const SECRETS_FILE: &str = "secrets.properties";
/// The user as which nodes authenticate to each other.
const NODE: &str = "node";
/// A super user.
pub const ADMIN: &str = "admin";
/// A user with only the permissions that ACLs grant.
pub const USER: &str = "alice";
const USERS: [&str; 3] = [NODE, ADMIN, USER];

/// The security of a cluster. `Debug` shows no password.
pub struct Secured {
    dir: PathBuf,
    /// Users and their passwords.
    passwords: Vec<(&'static str, String)>,
}

impl fmt::Debug for Secured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secured({})", self.dir.display())
    }
}

impl Secured {
    /// Opens the set-up in a cluster's directory, or creates it. `bootstrap_servers` and `nodes`
    /// describe the cluster.
    pub fn open(
        dir: &Path,
        bootstrap_servers: &str,
        nodes: impl Iterator<Item = u16>,
    ) -> Result<Secured, String> {
        let secured = Secured {
            dir: dir.to_path_buf(),
            passwords: passwords(&dir.join(SECRETS_FILE))?,
        };
        make_whole(&dir.join("tls"), |dir| certificates(dir, nodes))?;
        make_whole(&dir.join("clients"), |dir| {
            secured.write_clients(dir, bootstrap_servers)
        })?;
        Ok(secured)
    }

    fn password(&self, user: &str) -> &str {
        let found = self.passwords.iter().find(|(name, _)| *name == user);
        found.map_or("", |(_, password)| password)
    }

    /// The file with a user's client settings, for Java and `--command-config`.
    pub fn client_file(&self, user: &str) -> PathBuf {
        self.dir.join("clients").join(format!("{user}.properties"))
    }

    /// The SCRAM credentials with which a node is formatted.
    pub fn credentials(&self) -> Result<Vec<MetadataRecord>, String> {
        let credential = |(name, password): &(&str, String)| {
            scram_record(&format!("{MECHANISM}=[name={name},password={password}]"))
                .map_err(|error| error.to_string())
        };
        self.passwords.iter().map(credential).collect()
    }

    /// The security settings of a node's `server.properties`.
    pub fn node_lines(&self, node: u16) -> String {
        let login = format!(
            "{SCRAM_MODULE} required username=\"{NODE}\" password=\"{}\";",
            self.password(NODE)
        );
        let mut text = format!(
            "security.inter.broker.protocol=SASL_SSL\n\
             sasl.enabled.mechanisms={MECHANISM}\n\
             sasl.mechanism.inter.broker.protocol={MECHANISM}\n\
             sasl.mechanism.controller.protocol={MECHANISM}\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:{NODE};User:{ADMIN}\n"
        );
        for listener in ["sasl_ssl", "controller"] {
            let key = format!(
                "listener.name.{listener}.{}.sasl.jaas.config",
                MECHANISM.to_lowercase()
            );
            text.push_str(&property_line(&key, &login));
        }
        text.push_str(&pem(key_store(&self.dir.join("tls"), node)).lines("keystore"));
        text.push_str(&pem(self.authority()).lines("truststore"));
        text
    }

    fn authority(&self) -> PathBuf {
        self.dir.join("tls").join("ca.crt")
    }

    fn write_clients(&self, dir: &Path, bootstrap_servers: &str) -> Result<(), String> {
        let authority = self.authority();
        let trust = pem(authority.clone());
        let of_user = |user| {
            let client = ClientSettings {
                bootstrap_servers,
                trust: &trust,
                authority: &authority,
                user: Some((user, self.password(user))),
            };
            client.files(dir, user)
        };
        let files: Vec<NewFile> = [ADMIN, USER].into_iter().flat_map(of_user).collect();
        new_files::write(&files)
    }
}

/// The authority, and a certificate for each node.
fn certificates(dir: &Path, nodes: impl Iterator<Item = u16>) -> Result<(), String> {
    let authority = Authority::new(DAYS)?;
    let names = LOCAL_NAMES.map(str::to_owned);
    let mut files = vec![
        NewFile::public(dir.join("ca.crt"), authority.pem()),
        NewFile::secret(dir.join("ca.key"), authority.key_pem()),
    ];
    for node in nodes {
        let issued = authority.issue(&names)?;
        files.push(NewFile::secret(key_store(dir, node), issued.pem()));
    }
    new_files::write(&files)
}

fn key_store(dir: &Path, node: u16) -> PathBuf {
    dir.join(format!("node-{node}.pem"))
}

fn pem(path: PathBuf) -> Store {
    Store {
        path,
        password: None,
    }
}

/// The passwords in the file, which is created if missing.
fn passwords(file: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let at = |error: std::io::Error| format!("{}: {error}", file.display());
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut text =
                "# The users of a cluster created by `ottla cluster start --secure`.\n".to_owned();
            for user in USERS {
                let key = format!("{user}.password");
                text.push_str(&property_line(&key, &stores::random_password()));
            }
            let unfinished = file.with_extension("unfinished");
            match fs::remove_file(&unfinished) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(error)),
                _ => {}
            }
            new_files::write(&[NewFile::secret(unfinished.clone(), text.clone())])?;
            fs::rename(unfinished, file).map_err(at)?;
            text
        }
        Err(error) => return Err(at(error)),
    };
    let name = file.display().to_string();
    let properties = Properties::parse(&text, &name).map_err(|error| error.to_string())?;
    let password = |user| {
        let key = format!("{user}.password");
        let value = properties.value(&key).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| {
            format!("{name}: {key} is missing; put it back, or give another directory with --dir")
        })?;
        Ok((user, value.to_owned()))
    };
    USERS.into_iter().map(password).collect()
}

/// Creates a directory with all its contents atomically, or leaves an existing one unchanged.
fn make_whole(dir: &Path, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    if dir.exists() {
        return Ok(());
    }
    let at = |error: std::io::Error| format!("{}: {error}", dir.display());
    let unfinished = dir.with_extension("unfinished");
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(error)),
        _ => {}
    }
    fill(&unfinished)?;
    fs::rename(unfinished, dir).map_err(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn open(dir: &Path) -> Secured {
        Secured::open(dir, "127.0.0.1:1", [1, 101].into_iter()).unwrap()
    }

    #[test]
    fn existing_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        // Left by an interrupted start.
        fs::create_dir(dir.join("tls.unfinished")).unwrap();
        fs::write(dir.join("tls.unfinished/ca.key"), "half").unwrap();
        let first = open(dir);
        let key = fs::read(dir.join("tls/node-101.pem")).unwrap();
        let second = open(dir);
        assert_eq!(second.passwords, first.passwords);
        assert_eq!(fs::read(dir.join("tls/node-101.pem")).unwrap(), key);
        assert!(!dir.join("tls.unfinished").exists());
        for secret in [SECRETS_FILE, "tls/ca.key", "clients/alice.properties"] {
            let mode = fs::metadata(dir.join(secret)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{secret}");
        }
        fs::write(dir.join(SECRETS_FILE), "node.password=x\n").unwrap();
        let refused = Secured::open(dir, "", [].into_iter()).unwrap_err();
        assert!(refused.contains("admin.password is missing"), "{refused}");
    }

    #[test]
    fn users_match_the_credentials() {
        let folder = tempfile::tempdir().unwrap();
        let secured = open(folder.path());
        let name = |record: &MetadataRecord| match record {
            MetadataRecord::UserScramCredential(record) => record.name.to_string(),
            other => panic!("{other:?}"),
        };
        let names: Vec<String> = secured.credentials().unwrap().iter().map(name).collect();
        assert_eq!(names, USERS);
        let lines = secured.node_lines(1);
        assert!(lines.contains("super.users=User:node;User:admin\n"));
        assert!(!lines.contains(secured.password(USER)));
    }
}
