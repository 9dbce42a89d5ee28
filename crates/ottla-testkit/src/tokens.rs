//! An issuer of OAuth tokens of a test's own: its key, the set in which the key is public, tokens that it signs, and an
//! endpoint that hands them out.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ottla_ports::lease_ports;
use serde_json::{Value, json};

use crate::BrokerBuilder;

/// Where Kafka's classes for OAuth tokens are.
pub const PACKAGE: &str = "org.apache.kafka.common.security.oauthbearer";

/// A broker with ACLs, one of whose listeners accepts the tokens of this issuer for the audience `kafka`, by the keys
/// in this file and the class of [`PACKAGE`] with this name. On the other one, all clients may do everything.
pub fn broker_with_tokens(keys: &Path, handler: &str, issuer: &str) -> BrokerBuilder {
    let handler = format!("{PACKAGE}.{handler}");
    let url = format!("file://{}", keys.display());
    let module = format!("{PACKAGE}.OAuthBearerLoginModule required;");
    let prefix = "listener.name.out.oauthbearer";
    let [port, inside, controller] = lease_ports().expect("free ports");
    let out = format!("OUT://127.0.0.1:{port},IN://127.0.0.1:{inside}");
    BrokerBuilder::new()
        .port(port)
        .property(
            "listeners",
            &format!("{out},CONTROLLER://127.0.0.1:{controller}"),
        )
        .property("advertised.listeners", &out)
        .property(
            "controller.quorum.bootstrap.servers",
            &format!("127.0.0.1:{controller}"),
        )
        .property(
            "listener.security.protocol.map",
            "OUT:SASL_PLAINTEXT,IN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        )
        .property("inter.broker.listener.name", "IN")
        .property("sasl.enabled.mechanisms", "OAUTHBEARER")
        .property(
            &format!("{prefix}.sasl.server.callback.handler.class"),
            &handler,
        )
        .property(&format!("{prefix}.sasl.jaas.config"), &module)
        .property("sasl.oauthbearer.jwks.endpoint.url", &url)
        .property("sasl.oauthbearer.expected.audience", "kafka")
        .property("sasl.oauthbearer.expected.issuer", issuer)
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("super.users", "User:admin;User:ANONYMOUS")
}

/// An issuer of tokens, with its own signing key.
pub struct TokenIssuer {
    key_id: String,
    key: EncodingKey,
}

impl TokenIssuer {
    pub fn new(key_id: &str) -> TokenIssuer {
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(kind, &SystemRandom::new()).expect("a key");
        TokenIssuer {
            key_id: key_id.to_owned(),
            key: EncodingKey::from_ec_der(key.as_ref()),
        }
    }

    /// Its JSON Web Key Set.
    pub fn keys(&self) -> String {
        let key = Jwk::from_encoding_key(&self.key, Algorithm::ES256).expect("a public key");
        let mut key = serde_json::to_value(key).expect("JSON");
        key["kid"] = json!(self.key_id);
        key["use"] = json!("sig");
        json!({ "keys": [key] }).to_string()
    }

    /// Writes its JSON Web Key Set; all of it or nothing is seen.
    pub fn write_keys(&self, path: &Path) -> PathBuf {
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, self.keys()).expect("written");
        std::fs::rename(&unfinished, path).expect("renamed");
        path.to_path_buf()
    }

    /// A token of this subject that is valid from now on for `seconds`, which may be negative. Contains the claims of
    /// `more` too.
    pub fn token(&self, subject: &str, seconds: i64, more: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("after 1970").as_secs() as i64;
        let mut claims = json!({ "sub": subject, "iat": now - 600, "exp": now + seconds });
        for (name, value) in more.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.key_id.clone());
        encode(&header, &claims, &self.key).expect("a token")
    }
}

/// A token endpoint over HTTP: a client with the ID `x` and the secret `x-secret` gets a token of the subject `x`.
pub struct TokenEndpoint {
    url: String,
    granted: Arc<AtomicUsize>,
}

impl TokenEndpoint {
    /// Tokens are valid for `seconds`. The endpoint runs until the process ends.
    pub fn start(issuer: TokenIssuer, seconds: i64, claims: Value) -> TokenEndpoint {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let granted = Arc::<AtomicUsize>::default();
        let granted_there = Arc::clone(&granted);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = match user_of(&stream) {
                    Some(user) => {
                        granted_there.fetch_add(1, Ordering::Relaxed);
                        let token = issuer.token(&user, seconds, &claims);
                        response("200 OK", &json!({ "access_token": token }))
                    }
                    None => response("401 Unauthorized", &json!({ "error": "invalid_client" })),
                };
                // A client may have gone.
                let _ = (&stream).write_all(answer.as_bytes());
            }
        });
        TokenEndpoint {
            url: format!("http://{address}/token"),
            granted,
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The number of tokens so far.
    pub fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }
}

/// The ID of the client, if its secret is right.
fn user_of(stream: &TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream).lines();
    let mut authorization = None;
    loop {
        let line = lines.next()?.ok()?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case("authorization")
        {
            authorization = Some(value.to_owned());
        }
    }
    let authorization = authorization?;
    let encoded = authorization.strip_prefix("Basic ")?;
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()?;
    let (id, secret) = decoded.split_once(':')?;
    (secret == format!("{id}-secret")).then(|| id.to_owned())
}

fn response(status: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}
