//! The TLS and SASL listeners of the Kafka broker that the client's tests use.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use ottla_testkit::lease_ports;
use ottla_workspace::{process, toolchain};

const PASSWORD: &str = "keystore-secret";

/// `alice` authenticates with PLAIN; the tests create the SCRAM users. The broker's certificate is
/// self-signed.
pub struct Listeners {
    port: u16,
    sasl: u16,
    ssl: u16,
    sasl_ssl: u16,
    keystore: PathBuf,
    certificate: PathBuf,
}

impl Listeners {
    /// Finds free ports and creates a certificate.
    pub fn prepare(port: u16, dir: &Path) -> Result<Listeners> {
        let [sasl, ssl, sasl_ssl] = lease_ports()?;
        let listeners = Listeners {
            port,
            sasl,
            ssl,
            sasl_ssl,
            keystore: dir.join("keystore.p12"),
            certificate: dir.join("certificate.pem"),
        };
        toolchain::require(&toolchain::JAVAC)?;
        let keytool = |action: &[&str]| {
            let mut command = Command::new("keytool");
            command
                .args(action)
                .args(["-alias", "broker", "-storetype", "PKCS12"])
                .args(["-storepass", PASSWORD, "-keystore"])
                .arg(&listeners.keystore);
            command
        };
        let subject = [
            "-dname",
            "CN=broker",
            "-ext",
            "san=ip:127.0.0.1,dns:localhost",
        ];
        let kind = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1"];
        process::output_of(keytool(&kind).args(subject).args(["-validity", "30"]))?;
        process::output_of(
            keytool(&["-exportcert", "-rfc"])
                .arg("-file")
                .arg(&listeners.certificate),
        )?;
        Ok(listeners)
    }

    /// The broker's settings.
    pub fn settings(&self) -> Vec<(String, String)> {
        let at = |name: &str, port: u16| format!("{name}://127.0.0.1:{port}");
        let clients = [
            at("PLAINTEXT", self.port),
            at("SASL", self.sasl),
            at("SSL", self.ssl),
            at("SASLSSL", self.sasl_ssl),
        ]
        .join(",");
        let controller = at("CONTROLLER", self.port + 1);
        let mut settings = vec![
            ("listeners".to_owned(), format!("{clients},{controller}")),
            ("advertised.listeners".to_owned(), clients),
            (
                "listener.security.protocol.map".to_owned(),
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SSL:SSL,SASLSSL:SASL_SSL"
                    .to_owned(),
            ),
            (
                "sasl.enabled.mechanisms".to_owned(),
                "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned(),
            ),
            ("ssl.keystore.type".to_owned(), "PKCS12".to_owned()),
            (
                "ssl.keystore.location".to_owned(),
                self.keystore.display().to_string(),
            ),
            ("ssl.keystore.password".to_owned(), PASSWORD.to_owned()),
            ("ssl.key.password".to_owned(), PASSWORD.to_owned()),
        ];
        let modules = "org.apache.kafka.common.security";
        let scram = format!("{modules}.scram.ScramLoginModule required;");
        let plain =
            format!("{modules}.plain.PlainLoginModule required user_alice=\"alice-secret\";");
        for listener in ["sasl", "saslssl"] {
            let key =
                |mechanism: &str| format!("listener.name.{listener}.{mechanism}.sasl.jaas.config");
            settings.push((key("plain"), plain.clone()));
            settings.push((key("scram-sha-256"), scram.clone()));
            settings.push((key("scram-sha-512"), scram.clone()));
        }
        settings
    }

    /// The environment variables for the tests.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let at = |port: u16| format!("127.0.0.1:{port}");
        vec![
            ("OTTLA_CLIENT_SASL_PLAINTEXT", at(self.sasl)),
            ("OTTLA_CLIENT_SSL", at(self.ssl)),
            ("OTTLA_CLIENT_SASL_SSL", at(self.sasl_ssl)),
            (
                "OTTLA_CLIENT_TRUSTSTORE",
                self.certificate.display().to_string(),
            ),
        ]
    }
}
