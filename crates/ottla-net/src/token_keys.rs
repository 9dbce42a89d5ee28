//! Reads the keys of token issuers from `sasl.oauthbearer.jwks.endpoint.url`: at start, and then
//! periodically.
//!
//! If a source cannot be read at start, the start fails, as in Kafka. If it cannot be read later,
//! the previous keys stay in use, and the read is retried after
//! `sasl.oauthbearer.jwks.endpoint.retry.backoff.ms`, twice that, and so on.
//!
//! Kafka: `RefreshingHttpsJwks`, `JwksFileVerificationKeyResolver`.

use std::sync::Arc;
use std::time::Duration;

use ottla_context::NodeContext;
use ottla_sasl::KeySource;
use ottla_sasl::oauth_token::KeySet;
use ottla_tls::{Given, Purpose, TlsSettings, trusted_certificates};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// How often each source is checked for a due read.
const CHECK: Duration = Duration::from_secs(1);
/// The maximum duration of an HTTP exchange.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum size of a key set.
const MOST_BYTES: u64 = 1024 * 1024;

/// Reads all sources of the configuration. Blocks. The error is for people.
pub fn load_token_keys(context: &NodeContext) -> Result<(), String> {
    for source in context.config().sasl.key_sources() {
        let text = read(&source)?;
        let keys = KeySet::parse(&text).map_err(|error| of_source(&source, &error))?;
        context.token_keys.set(&source, keys);
    }
    Ok(())
}

/// Reads the sources again until the node stops: a file every second, and a URL every
/// `sasl.oauthbearer.jwks.endpoint.refresh.ms`, or when a token names an unknown key.
pub async fn keep_token_keys(context: Arc<NodeContext>) {
    let reading = async {
        let mut readers: Vec<Reader> = Vec::new();
        loop {
            ottla_sync::time::sleep(CHECK).await;
            let sources = context.config().sasl.key_sources();
            readers.retain(|reader| sources.contains(&reader.source));
            for source in sources {
                if !readers.iter().any(|reader| reader.source == source) {
                    readers.push(Reader::new(source, &context));
                }
            }
            for reader in &mut readers {
                reader.read_if_due(&context).await;
            }
        }
    };
    ottla_sync::select! {
        () = reading => {}
        () = context.stopping() => {}
    }
}

/// A source and the state of its reads.
struct Reader {
    source: KeySource,
    due_at_ms: u64,
    backoff: Duration,
    /// The text of the last read.
    last: Option<String>,
}

impl Reader {
    fn new(source: KeySource, context: &NodeContext) -> Reader {
        let now_ms = context.now_ms();
        Reader {
            due_at_ms: match context.token_keys.of(&source) {
                Some(_) if !is_file(&source) => now_ms + millis(source.refresh),
                _ => now_ms,
            },
            backoff: source.retry_backoff,
            last: None,
            source,
        }
    }

    async fn read_if_due(&mut self, context: &NodeContext) {
        let is_missing = context.token_keys.take_missing(&self.source);
        if context.now_ms() < self.due_at_ms && !is_missing {
            return;
        }
        let source = self.source.clone();
        let read = ottla_sync::task::spawn_blocking(move || read(&source)).await;
        let read = read.unwrap_or_else(|error| Err(of_source(&self.source, &error.to_string())));
        let outcome = read.and_then(|text| {
            if self.last.as_ref() != Some(&text) {
                let keys = KeySet::parse(&text);
                let keys = keys.map_err(|error| of_source(&self.source, &error))?;
                context.token_keys.set(&self.source, keys);
                self.last = Some(text);
            }
            Ok(())
        });
        let wait = match outcome {
            Ok(()) => {
                self.backoff = self.source.retry_backoff;
                match is_file(&self.source) {
                    true => CHECK,
                    false => self.source.refresh,
                }
            }
            Err(error) => {
                tracing::warn!("{error}; the previous keys stay in force");
                let wait = self.backoff;
                self.backoff = (wait * 2).min(self.source.retry_backoff_max.max(CHECK));
                wait.max(CHECK)
            }
        };
        self.due_at_ms = context.now_ms() + millis(wait);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

fn of_source(source: &KeySource, error: &str) -> String {
    format!(
        "sasl.oauthbearer.jwks.endpoint.url={}: {error}; without these keys no token can be verified",
        source.url
    )
}

fn is_file(source: &KeySource) -> bool {
    source.url.starts_with("file:")
}

/// Reads the text of a source. Blocks.
fn read(source: &KeySource) -> Result<String, String> {
    let read = match source.url.strip_prefix("file:") {
        Some(path) => read_file(path),
        None => read_url(source),
    };
    read.map_err(|error| of_source(source, &error))
}

/// Accepts `/path`, and `//path` with an empty host name.
fn read_file(path: &str) -> Result<String, String> {
    let path = path.strip_prefix("//").unwrap_or(path);
    let bytes = ottla_sync::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("is longer than {MOST_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

fn read_url(source: &KeySource) -> Result<String, String> {
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .max_redirects(0);
    if source.url.starts_with("https:") {
        config = config.tls_config(tls(source)?);
    }
    let agent = ureq::Agent::from(config.build());
    let failed = |error: ureq::Error| format!("cannot be read: {error}");
    let mut answer = agent.get(&source.url).call().map_err(failed)?;
    // A redirect is not followed, because it may lead to a server that is not configured. ureq does
    // not report it as an error.
    if !answer.status().is_success() {
        return Err(format!("cannot be read: http status: {}", answer.status()));
    }
    let body = answer.body_mut().with_config().limit(MOST_BYTES);
    body.read_to_string().map_err(failed)
}

/// How the server is authenticated: by the trust store in the JAAS entry, or by the system's.
fn tls(source: &KeySource) -> Result<TlsConfig, String> {
    let settings = TlsSettings::read("the issuer's keys", Purpose::Client, |key| {
        let value = source.ssl.get(key)?.expose().to_owned();
        Some(Given {
            key: format!("sasl.jaas.config: {key}"),
            value,
        })
    });
    let trusted = trusted_certificates(&settings).map_err(|error| error.0)?;
    let trusted = trusted
        .iter()
        .map(|it| Certificate::from_der(it).to_owned());
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(trusted.collect::<Vec<_>>()))
        .unversioned_rustls_crypto_provider(Arc::new(provider))
        .build())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::path::Path;

    use ottla_sasl::Secret;
    use ottla_testkit::certificates::{Authority, Wanted};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    fn source(url: &str) -> KeySource {
        KeySource {
            url: url.to_owned(),
            refresh: Duration::from_secs(3600),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(10),
            ssl: BTreeMap::new(),
        }
    }

    /// Answers one request, and returns the URL.
    fn serve(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        format!("http://{address}/keys")
    }

    /// The same over TLS, with a certificate of this authority.
    fn serve_over_tls(authority: &Authority, answer: &'static str) -> String {
        let issued = authority.issue(Wanted::default());
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let session = ServerConnection::new(Arc::new(config)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = StreamOwned::new(session, stream);
            // A client that does not trust this server closes the connection here.
            if stream.read(&mut [0; 4096]).is_ok() {
                stream.write_all(answer.as_bytes()).unwrap();
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
        });
        format!("https://{address}/keys")
    }

    fn trusting(url: &str, trust_store: &Path) -> KeySource {
        let ssl = [
            ("ssl.truststore.type", "PEM".to_owned()),
            ("ssl.truststore.location", trust_store.display().to_string()),
        ];
        KeySource {
            ssl: ssl
                .map(|(key, value)| (key.to_owned(), Secret::new(&value)))
                .into(),
            ..source(url)
        }
    }

    #[test]
    fn a_server_is_recognised_by_the_trust_store_of_the_jaas_entry() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let trust_store = ours.write(&dir.path().join("ours.pem"));
        let good = serve_over_tls(&ours, answer);
        assert_eq!(read(&trusting(&good, &trust_store)), Ok("{}".to_owned()));
        let stranger = serve_over_tls(&other, answer);
        let refused = read(&trusting(&stranger, &trust_store)).unwrap_err();
        assert!(refused.contains("certificate"), "{refused}");
        let nothing = read(&trusting(&good, &dir.path().join("none.pem"))).unwrap_err();
        assert!(nothing.contains("none.pem"), "{nothing}");
    }

    #[test]
    fn a_file_and_a_url_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        std::fs::write(&path, "{}").unwrap();
        for url in [
            format!("file://{}", path.display()),
            format!("file:{}", path.display()),
        ] {
            assert_eq!(read(&source(&url)), Ok("{}".to_owned()));
        }
        let body = "{\"keys\":[]}";
        let length = body.len();
        let good = serve(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(read(&source(&good)), Ok(body.to_owned()));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let gone = read(&source("file:///nowhere/keys.json")).unwrap_err();
        let expected =
            "sasl.oauthbearer.jwks.endpoint.url=file:///nowhere/keys.json: cannot be read";
        assert!(gone.starts_with(expected), "{gone}");
        let error = serve("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned());
        let refused = read(&source(&error)).unwrap_err();
        assert!(refused.contains("503"), "{refused}");
        let elsewhere =
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
        let redirected = read(&source(&serve(elsewhere.to_owned()))).unwrap_err();
        assert!(redirected.contains("302"), "{redirected}");
    }
}
