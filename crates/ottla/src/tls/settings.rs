//! The settings for the certificates: a listener's lines of `server.properties`, and the settings
//! of clients in Java, of librdkafka, and in Go.

use std::path::{Path, PathBuf};

use ottla_config::property_line;

use super::new_files::NewFile;

/// The login module of SCRAM.
pub const SCRAM_MODULE: &str = "org.apache.kafka.common.security.scram.ScramLoginModule";
/// The SASL mechanism of users.
pub const MECHANISM: &str = "SCRAM-SHA-512";

/// A key store or trust store: PEM, or PKCS12 if it has a password.
pub struct Store {
    pub path: PathBuf,
    pub password: Option<String>,
}

impl Store {
    /// The settings that refer to the store, for brokers and Java clients; `kind` is `keystore` or
    /// `truststore`.
    pub fn lines(&self, kind: &str) -> String {
        let format = match self.password {
            Some(_) => "PKCS12",
            None => "PEM",
        };
        let mut text = property_line(&format!("ssl.{kind}.type"), format);
        text.push_str(&property_line(
            &format!("ssl.{kind}.location"),
            &shown(&self.path),
        ));
        if let Some(password) = &self.password {
            text.push_str(&property_line(&format!("ssl.{kind}.password"), password));
        }
        text
    }
}

/// The lines of a broker's listener.
pub fn listener(host: &str, port: u16, key_store: &Store, trust: &Store) -> String {
    format!(
        "# Lines for the broker's server.properties. Nodes use TLS between each other too. Append the node's other \
         listeners\n# to listeners and to the map, such as CONTROLLER://:9093.\n\
         listeners=SSL://:{port}\n\
         listener.security.protocol.map=SSL:SSL,CONTROLLER:SSL\n\
         {}\
         security.inter.broker.protocol=SSL\n{}{}",
        property_line(
            "advertised.listeners",
            &format!("SSL://{}", address(host, port))
        ),
        key_store.lines("keystore"),
        trust.lines("truststore")
    )
}

/// `host:port`, with an IPv6 address in brackets.
pub fn address(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The connection settings of a client.
pub struct ClientSettings<'a> {
    pub bootstrap_servers: &'a str,
    pub trust: &'a Store,
    /// The authority's certificate in PEM, for non-Java clients.
    pub authority: &'a Path,
    /// Name and password, if the client authenticates.
    pub user: Option<(&'a str, &'a str)>,
}

impl ClientSettings<'_> {
    /// One file for each kind of client; a file with a password is readable for its owner only.
    pub fn files(&self, dir: &Path, name: &str) -> [NewFile; 3] {
        let file = |extension: &str, text: String| {
            let path = dir.join(format!("{name}.{extension}"));
            match self.user {
                Some(_) => NewFile::secret(path, text),
                None => NewFile::public(path, text),
            }
        };
        [
            file("properties", self.java()),
            file("librdkafka.conf", self.librdkafka()),
            file("go", self.franz_go()),
        ]
    }

    fn java(&self) -> String {
        let mut text = "# For clients in Java, and for the tools: --command-config.\n".to_owned();
        text.push_str(&property_line("bootstrap.servers", self.bootstrap_servers));
        match self.user {
            Some((user, password)) => {
                let login =
                    format!("{SCRAM_MODULE} required username=\"{user}\" password=\"{password}\";");
                text.push_str("security.protocol=SASL_SSL\n");
                text.push_str(&property_line("sasl.mechanism", MECHANISM));
                text.push_str(&property_line("sasl.jaas.config", &login));
            }
            None => text.push_str("security.protocol=SSL\n"),
        }
        text.push_str(&self.trust.lines("truststore"));
        text
    }

    fn librdkafka(&self) -> String {
        let mut text = format!(
            "# For clients on librdkafka: C, C++, Python, .NET, kcat -F.\nbootstrap.servers={}\n",
            self.bootstrap_servers
        );
        text.push_str(&match self.user {
            Some((user, password)) => format!(
                "security.protocol=sasl_ssl\nsasl.mechanisms={MECHANISM}\nsasl.username={user}\n\
                 sasl.password={password}\n"
            ),
            None => "security.protocol=ssl\n".to_owned(),
        });
        text.push_str(&format!("ssl.ca.location={}\n", self.authority.display()));
        text
    }

    fn franz_go(&self) -> String {
        let servers: Vec<String> = self.bootstrap_servers.split(',').map(quoted).collect();
        let (import, login) = match self.user {
            Some((user, password)) => (
                "\n\t\"github.com/twmb/franz-go/pkg/sasl/scram\"",
                format!(
                    "\t\tkgo.SASL(scram.Auth{{User: {}, Pass: {}}}.AsSha512Mechanism()),\n",
                    quoted(user),
                    quoted(password)
                ),
            ),
            None => ("", String::new()),
        };
        format!(
            "// Options of franz-go for this cluster: kgo.NewClient(options...)\n\
             package main\n\n\
             import (\n\
             \t\"crypto/tls\"\n\
             \t\"crypto/x509\"\n\
             \t\"errors\"\n\
             \t\"os\"\n\n\
             \t\"github.com/twmb/franz-go/pkg/kgo\"{import}\n\
             )\n\n\
             func clientOptions() ([]kgo.Opt, error) {{\n\
             \tpem, err := os.ReadFile({})\n\
             \tif err != nil {{\n\
             \t\treturn nil, err\n\
             \t}}\n\
             \tauthorities := x509.NewCertPool()\n\
             \tif !authorities.AppendCertsFromPEM(pem) {{\n\
             \t\treturn nil, errors.New(\"the authority's certificate cannot be read\")\n\
             \t}}\n\
             \treturn []kgo.Opt{{\n\
             \t\tkgo.SeedBrokers({}),\n\
             \t\tkgo.DialTLSConfig(&tls.Config{{RootCAs: authorities, MinVersion: tls.VersionTLS12}}),\n\
             {login}\
             \t}}, nil\n\
             }}\n",
            quoted(&shown(self.authority)),
            servers.join(", "),
        )
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A Go string literal; JSON's escapes are valid in Go.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(path: &str, password: Option<&str>) -> Store {
        Store {
            path: PathBuf::from(path),
            password: password.map(str::to_owned),
        }
    }

    fn client<'a>(trust: &'a Store, user: Option<(&'a str, &'a str)>) -> ClientSettings<'a> {
        ClientSettings {
            bootstrap_servers: "a:1,b:2",
            trust,
            authority: Path::new("/tls/ca.crt"),
            user,
        }
    }

    #[test]
    fn special_characters_are_escaped_for_java() {
        for value in ["/a b/c", " leading", "C:\\x", "/päth/\u{1f511}", "a=b:c#d!"] {
            let text = property_line("key", value);
            assert!(text.is_ascii());
            let read = ottla_config::Properties::parse_bytes(text.as_bytes(), "test").unwrap();
            assert_eq!(read.value("key"), Some(value), "{text}");
        }
    }

    #[test]
    fn the_native_client_accepts_the_settings_of_java() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        let authority = crate::tls::authority::Authority::new(1).unwrap();
        std::fs::write(&path, authority.pem()).unwrap();
        let pem = store(&path.display().to_string(), None);
        let text = client(&pem, Some(("alice", "hush"))).java();
        let settings = ottla_config::Properties::parse(&text, "test").unwrap();
        let settings = settings.into_map();
        assert_eq!(settings["security.protocol"], "SASL_SSL");
        let mut config = ottla_client::ClientConfig::default();
        assert_eq!(config.apply(&settings).unwrap(), Vec::<String>::new());
        assert_eq!(config.bootstrap_servers, ["a:1", "b:2"]);
        let without_login = client(&pem, None).java();
        assert!(without_login.contains("security.protocol=SSL\n"));
        assert!(!without_login.contains("sasl"));
    }

    #[test]
    fn other_clients_have_their_own_settings() {
        let pem = store("/tls/ca.crt", None);
        let with_login = client(&pem, Some(("alice", "hush")));
        assert_eq!(
            with_login.librdkafka().lines().skip(1).collect::<Vec<_>>(),
            [
                "bootstrap.servers=a:1,b:2",
                "security.protocol=sasl_ssl",
                "sasl.mechanisms=SCRAM-SHA-512",
                "sasl.username=alice",
                "sasl.password=hush",
                "ssl.ca.location=/tls/ca.crt",
            ]
        );
        let go = with_login.franz_go();
        assert!(go.contains("kgo.SeedBrokers(\"a:1\", \"b:2\"),"), "{go}");
        assert!(
            go.contains("scram.Auth{User: \"alice\", Pass: \"hush\"}.AsSha512Mechanism()"),
            "{go}"
        );
        let without_login = client(&pem, None).franz_go();
        assert!(!without_login.contains("scram"), "{without_login}");
    }

    #[test]
    fn a_pkcs12_store_has_its_password() {
        let trust = store("/tls/truststore.p12", Some("open"));
        let key_store = store("/tls/broker-1.p12", Some("hush"));
        let text = listener("::1", 9093, &key_store, &trust);
        for line in [
            "advertised.listeners=SSL://[::1]:9093",
            "ssl.keystore.type=PKCS12",
            "ssl.keystore.location=/tls/broker-1.p12",
            "ssl.keystore.password=hush",
            "ssl.truststore.type=PKCS12",
            "ssl.truststore.location=/tls/truststore.p12",
            "ssl.truststore.password=open",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}:\n{text}");
        }
    }
}
