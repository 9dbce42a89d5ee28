//! The loaded TLS configuration of a listener or client. A reload replaces it as a whole, subject
//! to Kafka's rules for permitted changes.
//!
//! Kafka: `SslFactory`, from which rules and messages are taken.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ottla_sync::{ArcSwap, Mutex};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use crate::TlsError;
use crate::certificate::CertificateFacts;
use crate::principal_mapper::PrincipalMapper;
use crate::rustls_config::{self, Configs};
use crate::settings::{ClientAuth, Purpose, TlsSettings};
use crate::store::{FileStamp, KeyStore, TrustStore};

pub struct TlsContext {
    loaded: ArcSwap<Loaded>,
    /// Held during a reload.
    reloading: Mutex<()>,
}

impl std::fmt::Debug for TlsContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsContext({:?})", self.loaded.load().settings)
    }
}

struct Loaded {
    settings: TlsSettings,
    configs: Configs,
    mapper: PrincipalMapper,
    /// Alias and contents of the certificate of each key.
    entries: Vec<(String, CertificateFacts)>,
    /// Alias and chain of each key, its own certificate first.
    chains: Vec<(String, Vec<CertificateFacts>)>,
    /// The setting of the key store.
    keystore_key: &'static str,
    has_truststore: bool,
    stamps: Vec<FileStamp>,
    warnings: Vec<String>,
}

/// The result of a reload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reloaded {
    /// Neither settings nor files have changed.
    Unchanged,
    Replaced,
}

impl TlsContext {
    /// Loads the stores that the settings name. Blocks.
    pub fn load(settings: TlsSettings) -> Result<TlsContext, TlsError> {
        let loaded = Loaded::load(settings)?;
        if loaded.settings.purpose == Purpose::ListenerOfNodes {
            connects(&loaded.configs, &loaded.configs).map_err(|reason| {
                loaded.keystore_error(format!(
                    "A client SSLEngine created with the provided settings can't connect to a server SSLEngine \
                     created with those settings. Nodes connect to each other over {}, so its trust store must trust \
                     its own certificate: {reason}",
                    loaded.settings.owner
                ))
            })?;
        }
        Ok(TlsContext {
            loaded: ArcSwap::from_pointee(loaded),
            reloading: Mutex::default(),
        })
    }

    /// The configuration of a listener; `None` for a client.
    pub fn server(&self) -> Option<Arc<ServerConfig>> {
        self.loaded.load().configs.server.clone()
    }

    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.loaded.load().configs.client)
    }

    /// Verifies the certificate chain of a client again, its own certificate first. For a resumed
    /// session, whose handshake verifies none: each session brings the ticket of the next one, so a
    /// client could otherwise connect long after its certificate has expired.
    pub fn verify_again(
        &self,
        shown: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<(), TlsError> {
        let loaded = self.loaded.load();
        let (Some(verifier), Some((leaf, intermediates))) =
            (&loaded.configs.client_verifier, shown.split_first())
        else {
            return Ok(());
        };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(now);
        let verified = verifier.verify_client_cert(leaf, intermediates, now);
        verified.map(drop).map_err(|error| {
            TlsError(format!(
                "the certificate of the session that it resumes is not accepted any more: {error}"
            ))
        })
    }

    /// The name of the principal for a certificate chain, the peer's own certificate first; `None`
    /// without a certificate. The error is for the log.
    pub fn principal(&self, shown: &[CertificateDer<'_>]) -> Result<Option<String>, TlsError> {
        let Some(leaf) = shown.first() else {
            return Ok(None);
        };
        let facts = CertificateFacts::of(leaf)?;
        let mapped = self.loaded.load().mapper.name(&facts.subject);
        mapped.map(Some).map_err(|error| {
            TlsError(format!(
                "Failed to map name for '{}' based on SSL principal mapping rules: {error}",
                facts.subject
            ))
        })
    }

    /// The certificate of each key, with the alias of the key.
    pub fn certificates(&self) -> Vec<(String, CertificateFacts)> {
        self.loaded.load().entries.clone()
    }

    /// The certificates that peers are shown for each key, its own first, with the alias of the key.
    pub fn chains(&self) -> Vec<(String, Vec<CertificateFacts>)> {
        self.loaded.load().chains.clone()
    }

    /// Whether clients of a listener have to present certificates.
    pub fn client_auth(&self) -> ClientAuth {
        // It was checked when the settings were loaded.
        let auth = self.loaded.load().settings.client_auth();
        auth.unwrap_or_default()
    }

    /// Problems with a configuration that is in use nevertheless.
    pub fn warnings(&self) -> Vec<String> {
        self.loaded.load().warnings.clone()
    }

    /// Reloads if settings or files have changed and the change is permitted. Otherwise the
    /// previous configuration stays in use. Blocks.
    pub fn reload(&self, settings: TlsSettings) -> Result<Reloaded, TlsError> {
        let _reloading = self.reloading.lock();
        match self.replacement(settings)? {
            None => Ok(Reloaded::Unchanged),
            Some(replacement) => {
                self.loaded.store(Arc::new(replacement));
                Ok(Reloaded::Replaced)
            }
        }
    }

    /// Whether [`TlsContext::reload`] would accept the settings. Blocks.
    pub fn check(&self, settings: TlsSettings) -> Result<(), TlsError> {
        self.replacement(settings).map(drop)
    }

    fn replacement(&self, settings: TlsSettings) -> Result<Option<Loaded>, TlsError> {
        let current = self.loaded.load_full();
        if current.settings == settings && !current.stamps.iter().any(FileStamp::is_outdated) {
            return Ok(None);
        }
        let next = Loaded::load(settings)?;
        current.may_become(&next)?;
        Ok(Some(next))
    }
}

impl Loaded {
    fn load(settings: TlsSettings) -> Result<Loaded, TlsError> {
        let keystore = KeyStore::load(&settings)?;
        let truststore = TrustStore::load(&settings)?;
        let configs = rustls_config::build(&settings, keystore.as_ref(), truststore.as_ref())?;
        let rules = settings
            .text("ssl.principal.mapping.rules")
            .unwrap_or("DEFAULT");
        let mapper = PrincipalMapper::parse(rules)
            .map_err(|error| settings.error("ssl.principal.mapping.rules", error))?;
        let origins = [
            keystore.as_ref().map(|it| &it.origin),
            truststore.as_ref().map(|it| &it.origin),
        ];
        let stamps = origins
            .into_iter()
            .flatten()
            .filter_map(|it| it.stamp.clone())
            .collect();
        let now = ottla_sync::time::wall_clock();
        let warnings = keystore
            .as_ref()
            .map(|it| rustls_config::out_of_time(&settings, it, now));
        let keystore_key = keystore.as_ref().map(|it| it.origin.key);
        let identities = keystore.into_iter().flat_map(|it| it.identities);
        let chains = identities.map(|it| {
            let chain = it.chain.into_iter().map(|certificate| certificate.facts);
            (it.alias, chain.collect::<Vec<_>>())
        });
        let chains: Vec<_> = chains.collect();
        let entries = chains.iter().filter_map(|(alias, chain)| {
            let leaf = chain.first()?;
            Some((alias.clone(), leaf.clone()))
        });
        Ok(Loaded {
            entries: entries.collect(),
            chains,
            keystore_key: keystore_key.unwrap_or("ssl.keystore.location"),
            has_truststore: truststore.is_some(),
            settings,
            configs,
            mapper,
            stamps,
            warnings: warnings.unwrap_or_default(),
        })
    }

    /// An error about the key store, with the subject and the dates of each certificate in it.
    fn keystore_error(&self, message: String) -> TlsError {
        let own: Vec<String> = self.entries.iter().map(|it| it.1.describe()).collect();
        let own = own.join(", ");
        let message = format!("{message}; the key store has the certificate of {own}");
        self.settings.error(self.keystore_key, message)
    }

    /// Checks Kafka's rules for changes. There are none for clients.
    fn may_become(&self, next: &Loaded) -> Result<(), TlsError> {
        if self.settings.purpose == Purpose::Client {
            return Ok(());
        }
        let refused = |reason: String| Err(next.settings.error(next.keystore_key, reason));
        let (old, new) = (&self.entries, &next.entries);
        if old.is_empty() && !new.is_empty() {
            return refused("Cannot add SSL keystore to an existing listener for which no keystore was configured.".into());
        }
        if !old.is_empty() && new.is_empty() {
            return refused("Cannot remove the SSL keystore from an existing listener for which a keystore was configured.".into());
        }
        let keeps_names = !next.settings.is_true("ssl.allow.dn.changes");
        let keeps_alternatives = !next.settings.is_true("ssl.allow.san.changes");
        if (keeps_names || keeps_alternatives) && old.len() != new.len() {
            return refused(format!(
                "Keystore entries do not match, existing store contains {} entries, new store contains {} entries",
                old.len(),
                new.len()
            ));
        }
        for ((old_alias, old), (new_alias, new)) in old.iter().zip(new) {
            if keeps_names && !old.subject.eq_ignore_ascii_case(&new.subject) {
                return refused(format!(
                    "Keystore DistinguishedName does not match:  existing={{alias={old_alias}, DN={}}}, \
                     new={{alias={new_alias}, DN={}}}; give ssl.allow.dn.changes=true if that is intended",
                    old.subject, new.subject
                ));
            }
            let has_all = old
                .alternative_names
                .iter()
                .all(|name| new.alternative_names.contains(name));
            if keeps_alternatives && !has_all {
                return refused(format!(
                    "Keystore SubjectAltNames do not match:  existing={{alias={old_alias}, SAN={:?}}}, \
                     new={{alias={new_alias}, SAN={:?}}}; give ssl.allow.san.changes=true if that is intended",
                    old.alternative_names, new.alternative_names
                ));
            }
        }
        if !self.has_truststore && next.has_truststore {
            return Err(next.settings.error(
                "ssl.truststore.location",
                "Cannot add SSL truststore to an existing listener for which no truststore was configured.",
            ));
        }
        if self.settings.purpose == Purpose::ListenerOfNodes {
            for (client, server, failed_step) in [
                (
                    &self.configs,
                    &next.configs,
                    "trust the new certificate with the trust store in force",
                ),
                (
                    &next.configs,
                    &self.configs,
                    "trust the certificate in force with the new trust store",
                ),
            ] {
                connects(client, server).map_err(|reason| {
                    let message = format!("other nodes could not {failed_step}: {reason}");
                    next.keystore_error(message)
                })?;
            }
        }
        Ok(())
    }
}

/// Performs a handshake in memory between a client of one configuration and a server of another.
/// The host name is not verified, as in Kafka.
fn connects(client: &Configs, server: &Configs) -> Result<(), String> {
    let Some(server) = &server.server else {
        return Ok(());
    };
    let name = ServerName::try_from("localhost").map_err(|error| error.to_string())?;
    let client = Arc::clone(&client.client_of_any_name);
    let mut client = ClientConnection::new(client, name).map_err(|it| it.to_string())?;
    let mut server = ServerConnection::new(Arc::clone(server)).map_err(|it| it.to_string())?;
    let mut bytes = Vec::new();
    for _ in 0..10 {
        if !client.is_handshaking()
            && !server.is_handshaking()
            && !client.wants_write()
            && !server.wants_write()
        {
            return Ok(());
        }
        pass(
            &mut bytes,
            |it| client.write_tls(it),
            |it| server.read_tls(it),
        )?;
        server
            .process_new_packets()
            .map_err(|error| format!("the server says: {error}"))?;
        pass(
            &mut bytes,
            |it| server.write_tls(it),
            |it| client.read_tls(it),
        )?;
        client
            .process_new_packets()
            .map_err(|error| format!("the client says: {error}"))?;
    }
    Err("the handshake does not end".to_owned())
}

fn pass(
    bytes: &mut Vec<u8>,
    mut write: impl FnMut(&mut dyn Write) -> std::io::Result<usize>,
    mut read: impl FnMut(&mut dyn Read) -> std::io::Result<usize>,
) -> Result<(), String> {
    bytes.clear();
    while write(bytes).map_err(|error| error.to_string())? > 0 {}
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        read(&mut rest).map_err(|error| error.to_string())?;
    }
    Ok(())
}
