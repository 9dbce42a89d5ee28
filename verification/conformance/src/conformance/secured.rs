//! Nodes whose clients log in: listeners with TLS, with SASL and with both, an authorizer, quotas and delegation tokens. The
//! certificates and OAuth tokens are made here, and the users, rights and quotas by `conformance/java/secured/SetUp.java`.
//!
//! The plain listener stays, for the node itself and for super users: `User:ANONYMOUS` is one.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use ottla_peers::secured::{MODULES, scram_listener_entry};
use ottla_peers::{InstalledPeer, NodeOptions};
use ottla_testkit::certificates::{Authority, Wanted};
use ottla_testkit::lease_range;
use ottla_testkit::tokens::TokenIssuer;
use ottla_workspace::{process, workspace};

use super::clients::{Client, Nodes};
use super::side::{Logins, OVERRIDES, Side};

/// Users of PLAIN on every listener with SASL; all but `root` are made for SCRAM too. The password
/// is the name with the suffix `-secret`.
const USERS: [&str; 5] = ["root", "alice", "carol", "reader", "member"];
/// How long the failure of a login is kept from the client; the scripts see whether it was.
const FAILURE_DELAY_MS: &str = "400";
/// How long a session lasts on the listener `REAUTH`.
const SESSION_MS: &str = "1500";

/// The listeners for clients, with their protocols.
const LISTENERS: [(&str, &str); 5] = [
    ("SASL", "SASL_PLAINTEXT"),
    ("SASLSSL", "SASL_SSL"),
    ("SSL", "SSL"),
    ("REAUTH", "SASL_PLAINTEXT"),
    (OAUTH, "SASL_PLAINTEXT"),
];
/// Where nothing but an OAuth token lets in.
const OAUTH: &str = "OAUTH";
const AUDIENCE: &str = "kafka";
const ISSUER: &str = "https://issuer";

/// Starts a node and sets it up for all clients.
pub(super) fn start(
    peer: &InstalledPeer,
    label: &str,
    out: &Path,
    set_up: &[String],
) -> Result<Side> {
    let dir = out.join(format!("secured-{label}"));
    workspace::make_empty(&dir)?;
    let dir = dir.canonicalize()?;
    let port = lease_range(2)?;
    let mut ports = vec![port];
    for _ in LISTENERS {
        ports.push(lease_range(1)?);
    }
    issue_certificates(&dir);
    issue_tokens(&dir)?;
    let settings = settings(&dir, &ports);
    let overrides = OVERRIDES
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .chain(settings)
        .collect();
    let node = peer.start(NodeOptions {
        dir: dir.clone(),
        port: Some(port),
        overrides,
        // Kafka reads the keys of tokens from nowhere else.
        environment: vec![(
            "JAVA_TOOL_OPTIONS".to_owned(),
            format!(
                "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={}",
                keys_url(&dir)
            ),
        )],
        ..NodeOptions::default()
    })?;
    let mut command = Command::new(&set_up[0]);
    command.args(&set_up[1..]).arg(node.bootstrap());
    command.args(Client::on(Nodes::Secured).map(Client::name));
    process::output_of(&mut command).with_context(|| format!("cannot set up {label}"))?;

    let at = |index: usize| format!("127.0.0.1:{}", ports[index + 1]);
    let place = json!({
        "sasl": at(0),
        "saslssl": at(1),
        "ssl": at(2),
        "reauth": at(3),
        "oauth": at(4),
        "certificates": dir,
    });
    let file = dir.join("place.json");
    std::fs::write(&file, place.to_string())?;
    write_logins(&dir)?;
    Ok(Side {
        label: label.to_owned(),
        peer: peer.clone(),
        node,
        arguments: vec![file.display().to_string()],
        logins: Some(Logins {
            bootstrap: at(1),
            dir,
        }),
        ports,
    })
}

/// `authority.pem` signs the broker's certificate and all certificates of clients except
/// `foreign.pem`, which `stranger.pem` signs.
fn issue_certificates(dir: &Path) {
    let authority = Authority::new("authority");
    let stranger = Authority::new("stranger");
    authority.write(&dir.join("authority.pem"));
    stranger.write(&dir.join("stranger.pem"));
    let of_client = Wanted {
        common_name: "alice",
        names: &[],
        ..Wanted::default()
    };
    let expired = Wanted {
        is_expired: true,
        ..of_client
    };
    for (name, issuer, wanted) in [
        ("broker", &authority, Wanted::default()),
        ("client", &authority, of_client),
        ("expired", &authority, expired),
        ("foreign", &stranger, of_client),
    ] {
        let issued = issuer.issue(wanted);
        issued.write(&dir.join(format!("{name}.pem")));
        // Some clients take the two halves apart.
        for (half, text) in [("key", &issued.key), ("crt", &issued.certificate)] {
            let path = dir.join(name).with_extension(half);
            std::fs::write(path, text).expect("half of a key store");
        }
    }
}

fn keys_url(dir: &Path) -> String {
    format!("file://{}", dir.join("keys.json").display())
}

/// `keys.json` has the key of the trusted issuer. Each token is in its own file; all tokens are
/// alice's.
fn issue_tokens(dir: &Path) -> Result<()> {
    let issuer = TokenIssuer::new("key");
    issuer.write_keys(&dir.join("keys.json"));
    let stranger = TokenIssuer::new("key");
    let unknown = TokenIssuer::new("unknown");
    let good = json!({ "aud": AUDIENCE, "iss": ISSUER });
    let with = |name: &str, value: serde_json::Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let far = 4_000_000_000_u64;
    for (name, issuer, seconds, claims) in [
        ("valid", &issuer, 3600, good.clone()),
        ("expired", &issuer, -60, good.clone()),
        ("early", &issuer, 3600, with("nbf", json!(far))),
        ("audience", &issuer, 3600, with("aud", json!(["other"]))),
        ("nobody", &issuer, 3600, json!({ "iss": ISSUER })),
        ("issuer", &issuer, 3600, with("iss", json!("https://other"))),
        ("stranger", &stranger, 3600, good.clone()),
        ("unknown-key", &unknown, 3600, good.clone()),
        ("scopes", &issuer, 3600, with("scope", json!(["a", "a"]))),
    ] {
        let token = issuer.token("alice", seconds, &claims);
        std::fs::write(dir.join(name).with_extension("jwt"), token)?;
    }
    Ok(())
}

fn settings(dir: &Path, ports: &[u16]) -> Vec<(String, String)> {
    let at = |name: &str, port: u16| format!("{name}://127.0.0.1:{port}");
    let mut advertised = vec![at("PLAINTEXT", ports[0])];
    let mut protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned();
    for ((name, protocol), port) in LISTENERS.iter().zip(&ports[1..]) {
        advertised.push(at(name, *port));
        protocols += &format!(",{name}:{protocol}");
    }
    let advertised = advertised.join(",");
    let controller = at("CONTROLLER", ports[0] + 1);
    let store = |name: &str| dir.join(name).display().to_string();
    let (key_store, trust_store) = (store("broker.pem"), store("authority.pem"));
    let users = USERS.map(|user| format!(" user_{user}=\"{user}-secret\""));
    let plain = format!(
        "{MODULES}.plain.PlainLoginModule required{};",
        users.concat()
    );
    let scram = scram_listener_entry();
    let oauth = format!("{MODULES}.oauthbearer.OAuthBearerLoginModule required;");
    let handler = format!("{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler");
    let keys = keys_url(dir);
    let listeners = format!("{advertised},{controller}");
    let mut settings: Vec<(String, String)> = [
        ("listeners", &*listeners),
        ("advertised.listeners", &advertised),
        ("listener.security.protocol.map", &protocols),
        (
            "sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        ),
        // One mechanism of Kafka's is not enabled here.
        (
            "listener.name.sasl.sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256",
        ),
        ("listener.name.oauth.sasl.enabled.mechanisms", "OAUTHBEARER"),
        ("listener.name.oauth.oauthbearer.sasl.jaas.config", &oauth),
        (
            "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class",
            &handler,
        ),
        ("sasl.oauthbearer.jwks.endpoint.url", &keys),
        ("sasl.oauthbearer.expected.audience", AUDIENCE),
        ("sasl.oauthbearer.expected.issuer", ISSUER),
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.location", &key_store),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.location", &trust_store),
        ("listener.name.ssl.ssl.client.auth", "required"),
        (
            "listener.name.ssl.ssl.principal.mapping.rules",
            "RULE:^CN=(.*?),O=.*$/$1/,DEFAULT",
        ),
        (
            "connection.failed.authentication.delay.ms",
            FAILURE_DELAY_MS,
        ),
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", "User:ANONYMOUS;User:root"),
        ("delegation.token.secret.key", "a secret of all nodes"),
        // Clients are held back for a second or two, and not for eleven.
        ("quota.window.num", "2"),
        ("controller.quota.window.num", "2"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    for (name, protocol) in LISTENERS {
        if !protocol.starts_with("SASL") || name == OAUTH {
            continue;
        }
        let name = name.to_lowercase();
        for (mechanism, jaas) in [
            ("plain", &plain),
            ("scram-sha-256", &scram),
            ("scram-sha-512", &scram),
        ] {
            let key = |last: &str| format!("listener.name.{name}.{mechanism}.{last}");
            settings.push((key("sasl.jaas.config"), jaas.clone()));
            if name == "reauth" {
                settings.push((key("connections.max.reauth.ms"), SESSION_MS.to_owned()));
            }
        }
    }
    settings
}

/// Writes the files with which the tools of users log in.
fn write_logins(dir: &Path) -> Result<()> {
    let write = |file: &str, user: &str, password: &str| {
        let trust_store = dir.join("authority.pem").display().to_string();
        let text = format!(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n\
             ssl.truststore.location={trust_store}\n\
             sasl.jaas.config={MODULES}.plain.PlainLoginModule required username=\"{user}\" password=\"{password}\";\n"
        );
        std::fs::write(dir.join(file).with_extension("properties"), text)
    };
    for user in USERS {
        write(user, user, &format!("{user}-secret"))?;
    }
    write("wrong", "alice", "wrong")?;
    Ok(())
}
