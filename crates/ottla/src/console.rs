//! `ottla console`: serves the console of any cluster; and the console that `ottla server` serves
//! beside its broker.
//!
//! Beside a broker, the console has its own thread with a lower priority, which starts when the
//! page is opened for the first time. Until then there is nothing but its listener.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use ottla_broker::{Broker, RunningBroker};
use ottla_client::{ClientConfig, SaslMechanism, ScramMechanism, SecurityProtocol};
use ottla_config::{BrokerConfig, Properties, SecurityProtocol as ListenerProtocol};
use ottla_console::{
    Activity, ConsoleConfig, FromBroker, Latency, ListenerConnections, MeasureConfig, OidcConfig,
    RegistryConfig, RequestTimes, SlowRequest,
};
use ottla_protocol::ApiKey;
use ottla_types::ErrorCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::logging::start_logging;
use crate::stop_signals::StopSignals;
use crate::tools;

/// The setting that turns the console beside a broker off, and its value for that.
const LISTENER: &str = "ottla.console.listener";
const OFF: &str = "none";
/// The schema registry beside a broker, and the file with its settings.
const REGISTRY: &str = "ottla.console.schema.registry";
const REGISTRY_CONFIG: &str = "ottla.console.schema.registry.config";
/// The identity provider beside a broker, and the names to which it sends browsers back.
const OIDC_ISSUER: &str = "ottla.console.oidc.issuer";
const OIDC_CLIENT_ID: &str = "ottla.console.oidc.client.id";
const OIDC_CONFIG: &str = "ottla.console.oidc.config";
const PUBLIC_NAMES: &str = "ottla.console.public.names";
/// How much the priority of the console's thread beside a broker is lowered.
const NICENESS: i32 = 5;
/// How long a server is tried at the start.
const REACHED_WITHIN: Duration = Duration::from_secs(5);
/// After an error of the listener, which is mostly a lack of file handles.
const PAUSE: Duration = Duration::from_millis(100);

/// Serve a web page to inspect and administer a cluster, of Ottla or of Apache Kafka.
#[derive(Args, Debug)]
pub struct ConsoleArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: String,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// Address of the page. Users must log in unless it is a loopback address.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9080")]
    listen: String,
    /// Refuse every change.
    #[arg(long)]
    read_only: bool,
    /// Require users to log in as SASL users of the cluster on a loopback address too.
    #[arg(long)]
    login: bool,
    /// Name of a reverse proxy under which browsers reach the page; repeatable. Users must log in.
    #[arg(long, value_name = "NAME")]
    public_name: Vec<String>,
    /// Identity provider (OpenID Connect) for logins. The cluster needs OAUTHBEARER, and the console a --public-name.
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    oidc_issuer: Option<String>,
    /// Client ID of the console at the identity provider.
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    oidc_client_id: Option<String>,
    /// Properties file for the identity provider: client.secret, scope, user.claim, clock.skew.seconds, audience,
    /// resource, ssl.*
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    oidc_config: Option<String>,
    /// Schema registry with Confluent's API, for records of Avro, Protobuf and JSON Schema.
    #[arg(long, value_name = "URL")]
    schema_registry: Option<String>,
    /// Properties file for the schema registry: basic.auth.user.info, bearer.auth.token, ssl.*
    #[arg(long, value_name = "FILE", requires = "schema_registry")]
    schema_registry_config: Option<String>,
    /// Show the results of `ottla bench` in this directory, and run benchmarks unless users log in.
    #[arg(long, value_name = "DIR")]
    bench_dir: Option<PathBuf>,
}

pub fn run(args: &ConsoleArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let served = match runtime {
        Ok(runtime) => runtime.block_on(serve(args)),
        Err(error) => Err(format!("cannot start threads: {error}")),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("ottla: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until a stop signal.
async fn serve(args: &ConsoleArgs) -> Result<(), String> {
    let config_file = args.command_config.as_deref();
    let client = tools::config_without_credentials(
        &args.bootstrap_server,
        config_file,
        "ottla-console",
        None,
    );
    let (client, _) = client.map_err(|error| format!("{error:#}"))?;
    let registry = registry(
        ("--schema-registry", args.schema_registry.as_deref()),
        (
            "--schema-registry-config",
            args.schema_registry_config.as_deref(),
        ),
    )?;
    let oidc = oidc(
        ("--oidc-issuer", args.oidc_issuer.as_deref()),
        ("--oidc-client-id", args.oidc_client_id.as_deref()),
        ("--oidc-config", args.oidc_config.as_deref()),
    )?;
    let config = ConsoleConfig {
        login: args.login,
        read_only: args.read_only,
        public_names: args.public_name.clone(),
        oidc,
        registry,
        measure: measure_config(args)?,
        ..ConsoleConfig::new(client)
    };
    start_logging()?;
    let mut signals = StopSignals::listen()
        .map_err(|error| format!("cannot install signal handlers: {error}"))?;
    let listener = ottla_console::bind(&args.listen, "--listen").await?;
    let address = address_of(&listener)?;
    config.check(address)?;
    println!(
        "Console of {} on http://{address}",
        config.client.bootstrap_servers.join(",")
    );
    if let Some(dir) = args.bench_dir.as_deref().filter(|dir| !dir.exists()) {
        eprintln!(
            "WARN --bench-dir {}: it does not exist; there are no results before a benchmark creates it",
            dir.display()
        );
    }
    let servers = config.client.bootstrap_servers.clone();
    tokio::spawn(async move {
        if let Some(warning) = connection_warning(&servers).await {
            eprintln!("WARN {warning}");
        }
    });
    if config.needs_login(address) {
        match &config.oidc {
            Some(_) => println!("Log in at the identity provider, under the public name."),
            None => println!("Log in as a SASL user of the cluster."),
        }
    }
    tokio::select! {
        served = ottla_console::serve(listener, config) => served,
        () = signals.next() => Ok(()),
    }
}

/// A warning if no server accepts a connection. The console starts nevertheless, and has no credentials where people log in
/// themselves, so this is all that can be found out.
async fn connection_warning(servers: &[String]) -> Option<String> {
    let mut reason = String::new();
    for server in servers {
        reason = match timeout(REACHED_WITHIN, TcpStream::connect(server)).await {
            Ok(Ok(_)) => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", REACHED_WITHIN.as_secs()),
        };
    }
    Some(format!(
        "cannot connect to {}: {reason}; the page shows the cluster as soon as a broker runs there",
        servers.join(", ")
    ))
}

/// The schema registry with this URL and this file of settings, each with the name of its option.
fn registry(
    (url_option, url): (&str, Option<&str>),
    (file_option, file): (&str, Option<&str>),
) -> Result<Option<RegistryConfig>, String> {
    let Some(url) = url else {
        return match file {
            Some(file) => Err(format!("{file_option}={file}: set {url_option} as well")),
            None => Ok(None),
        };
    };
    let properties = match file {
        Some(file) => tools::read_properties(file)
            .map_err(|error| format!("{file_option}={file}: {error:#}"))?,
        None => Properties::new(file_option),
    };
    let registry = RegistryConfig::new(url, &properties.clone().into_map());
    registry.map(Some).map_err(|error| {
        // Of a setting of the file, or of the URL.
        let setting = error.split(':').next().unwrap_or_default();
        match properties.get(setting) {
            Some(_) => format!("{}: {error}", properties.place(setting)),
            None => format!("{url_option}: {error}"),
        }
    })
}

/// The identity provider with this issuer, client ID and file of settings, each with the name of its option.
fn oidc(
    (issuer_option, issuer): (&str, Option<&str>),
    (id_option, client_id): (&str, Option<&str>),
    (file_option, file): (&str, Option<&str>),
) -> Result<Option<OidcConfig>, String> {
    let Some(issuer) = issuer else {
        return match (client_id, file) {
            (Some(id), _) => Err(format!("{id_option}={id}: set {issuer_option} as well")),
            (None, Some(file)) => Err(format!("{file_option}={file}: set {issuer_option} as well")),
            (None, None) => Ok(None),
        };
    };
    let client_id = client_id.ok_or_else(|| {
        format!("{issuer_option}={issuer}: set {id_option} as well, to that of the console there")
    })?;
    let settings = match file {
        Some(file) => tools::load_properties(file)
            .map_err(|error| format!("{file_option}={file}: {error:#}"))?,
        None => BTreeMap::new(),
    };
    let oidc = OidcConfig::new(issuer, client_id, &settings);
    oidc.map(Some).map_err(|error| match file {
        Some(file) => format!("{issuer_option} with {file_option}={file}: {error}"),
        None => format!("{issuer_option}: {error}"),
    })
}

fn oidc_beside_server(config: &BrokerConfig) -> Result<Option<OidcConfig>, String> {
    let oidc = oidc(
        (OIDC_ISSUER, config.ottla_console_oidc_issuer.as_deref()),
        (
            OIDC_CLIENT_ID,
            config.ottla_console_oidc_client_id.as_deref(),
        ),
        (OIDC_CONFIG, config.ottla_console_oidc_config.as_deref()),
    )?;
    if oidc.is_some() && config.ottla_console_public_names.is_empty() {
        return Err(format!(
            "{OIDC_ISSUER}: set {PUBLIC_NAMES} as well, to the names under which browsers reach the console"
        ));
    }
    Ok(oidc)
}

fn registry_beside_server(config: &BrokerConfig) -> Result<Option<RegistryConfig>, String> {
    registry(
        (REGISTRY, config.ottla_console_schema_registry.as_deref()),
        (
            REGISTRY_CONFIG,
            config.ottla_console_schema_registry_config.as_deref(),
        ),
    )
}

fn measure_config(args: &ConsoleArgs) -> Result<Option<MeasureConfig>, String> {
    let Some(dir) = &args.bench_dir else {
        return Ok(None);
    };
    if dir.exists() && !dir.is_dir() {
        return Err(format!(
            "--bench-dir {}: it is not a directory; give one, or a path that is not there yet",
            dir.display()
        ));
    }
    let program = std::env::current_exe()
        .map_err(|error| format!("--bench-dir: cannot find the path of this binary: {error}"))?;
    Ok(Some(MeasureConfig {
        program,
        dir: dir.clone(),
        command_config: args.command_config.as_ref().map(PathBuf::from),
    }))
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, String> {
    listener
        .local_addr()
        .map_err(|error| format!("the console has no address: {error}"))
}

/// Binds the listener of the console beside a broker, before the broker starts. If the address is
/// the default one and in use, by the console of another node for example, any free port serves.
pub async fn bind_beside_server(
    config: &BrokerConfig,
    is_address_given: bool,
) -> Result<Option<TcpListener>, String> {
    let wanted = &config.ottla_console_listener;
    if wanted == OFF || !config.process_roles.broker {
        return Ok(None);
    }
    // Refused before anything starts.
    registry_beside_server(config)?;
    let needs_login =
        oidc_beside_server(config)?.is_some() || !config.ottla_console_public_names.is_empty();
    match ottla_console::bind(wanted, LISTENER).await {
        Ok(listener) => {
            let has_logins = config
                .listeners
                .iter()
                .any(|it| !it.is_controller && it.protocol == ListenerProtocol::SaslPlaintext);
            if needs_login && !has_logins {
                return Err(format!(
                    "{PUBLIC_NAMES}={}: a console with a public name needs logins, and no listener is \
                     SASL_PLAINTEXT; add one, or remove {PUBLIC_NAMES} and {OIDC_ISSUER}",
                    config.ottla_console_public_names.join(",")
                ));
            }
            if !address_of(&listener)?.ip().is_loopback() && !has_logins {
                return Err(format!(
                    "{LISTENER}={wanted}: a console on this address needs logins, and no listener is SASL_PLAINTEXT; \
                     add one, give a loopback address, or {OFF}"
                ));
            }
            Ok(Some(listener))
        }
        Err(error) if is_address_given => Err(format!("{error}, or {OFF}")),
        // A machine without a loopback address can do without a console.
        Err(_) => Ok(ottla_console::bind("127.0.0.1:0", LISTENER).await.ok()),
    }
}

/// Serves the console of a running broker's cluster. Returns its address; `None` if clients without
/// certificates cannot connect to the broker.
pub fn serve_beside_server(
    listener: TcpListener,
    running: &RunningBroker,
) -> Result<Option<SocketAddr>, String> {
    let address = address_of(&listener)?;
    let settings = running.broker().config();
    let public_names = settings.ottla_console_public_names.clone();
    // Other clients reach a console with a public name through a proxy on this machine.
    let is_local = address.ip().is_loopback() && public_names.is_empty();
    let Some(Access {
        client,
        login_listener,
    }) = access(running, is_local)
    else {
        return Ok(None);
    };
    let config = ConsoleConfig {
        login: login_listener.is_some(),
        accepted_mechanisms: login_listener
            .map(|name| from_broker(running, move |broker| mechanisms_of(broker, &name))),
        read_only: settings.ottla_console_read_only,
        public_names,
        oidc: oidc_beside_server(&settings)?,
        registry: registry_beside_server(&settings)?,
        latencies: Some(from_broker(running, latencies_of)),
        activity: Some(from_broker(running, |broker| vec![activity_of(broker)])),
        ..ConsoleConfig::new(client)
    };
    config
        .check(address)
        .map_err(|error| format!("{LISTENER}: {error}"))?;
    tokio::spawn(async move {
        let first = loop {
            match listener.accept().await {
                Ok(first) => break first,
                Err(error) => {
                    tracing::debug!("the console cannot accept a connection: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        start_thread(listener, first, config);
    });
    Ok(Some(address))
}

/// The console does not keep a stopped broker alive.
fn from_broker<T: 'static>(
    running: &RunningBroker,
    read: impl Fn(&Broker) -> Vec<T> + Send + Sync + 'static,
) -> FromBroker<T> {
    let broker = Arc::downgrade(running.broker());
    FromBroker::new(move || {
        let broker = broker.upgrade();
        broker.map(|it| read(&it)).unwrap_or_default()
    })
}

/// The mechanisms that a listener accepts, with the current dynamic settings.
fn mechanisms_of(broker: &Broker, listener: &str) -> Vec<SaslMechanism> {
    let config = broker.config();
    let sasl = config.sasl.listener(listener);
    let enabled = sasl.iter().flat_map(|it| &it.mechanisms);
    enabled.map(|it| it.mechanism).collect()
}

fn latencies_of(broker: &Broker) -> Vec<Latency> {
    let latencies = broker.request_latencies().into_iter();
    let named = latencies.filter_map(|it| {
        let (p50, p99) = match it.api_key {
            ApiKey::Produce => ("Produce p50", "Produce p99"),
            ApiKey::Fetch => ("Fetch p50", "Fetch p99"),
            _ => return None,
        };
        let latency = |name, ms| Latency { name, ms };
        Some([latency(p50, it.p50_ms), latency(p99, it.p99_ms)])
    });
    named.flatten().collect()
}

fn activity_of(broker: &Broker) -> Activity {
    let connections = broker.open_connections().into_iter();
    let connections = connections.map(|(listener, open)| ListenerConnections { listener, open });
    let requests = broker.request_activity().into_iter();
    let requests = requests.map(|it| RequestTimes {
        api: it.api_key.name(),
        count: it.count,
        p50_ms: it.p50_ms,
        p99_ms: it.p99_ms,
        own_p99_ms: it.own_p99_ms,
    });
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let slow_requests = broker.slow_requests().into_iter();
    let slow_requests = slow_requests.map(|it| SlowRequest {
        api: it.api_key.name(),
        api_version: it.origin.api_version,
        sent: it
            .sent
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64),
        client_id: it.origin.client_id,
        principal: it.origin.principal,
        peer: it.origin.peer.to_string(),
        error: (it.origin.error != ErrorCode::None).then(|| it.origin.error.name()),
        total_ms: ms(it.total),
        local_ms: ms(it.local),
        remote_ms: ms(it.remote),
        response_send_ms: ms(it.response_send),
    });
    Activity {
        broker_id: broker.config().node_id,
        connections: connections.collect(),
        requests: requests.collect(),
        slow_requests: slow_requests.collect(),
    }
}

fn start_thread(listener: TcpListener, first: (TcpStream, SocketAddr), config: ConsoleConfig) {
    let serve = move || -> std::io::Result<()> {
        // On Linux, the priority is that of the calling thread alone.
        let _ = rustix::process::nice(NICENESS);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stream, peer) = first;
        let (listener, stream) = (listener.into_std()?, stream.into_std()?);
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            let first = (TcpStream::from_std(stream)?, peer);
            ottla_console::serve_from(listener, Some(first), config)
                .await
                .map_err(std::io::Error::other)
        })
    };
    let thread = std::thread::Builder::new().name("console".into());
    let started = thread.spawn(move || {
        if let Err(error) = serve() {
            tracing::warn!("the console stopped: {error}");
        }
    });
    if let Err(error) = started {
        tracing::warn!("the console cannot start: {error}");
    }
}

/// How a client reaches a broker of this process.
struct Access {
    client: ClientConfig,
    /// The listener, if it needs a login.
    login_listener: Option<String>,
}

/// With an authorizer, and for other machines, listeners with logins come first, because without one
/// everybody is anonymous.
fn access(running: &RunningBroker, is_loopback: bool) -> Option<Access> {
    let config = running.broker().config();
    let plain = |protocol| {
        let mut listeners = running.listeners().iter();
        listeners.find(|it| !it.is_controller && it.protocol == protocol)
    };
    let open = plain(ListenerProtocol::Plaintext);
    let with_login = plain(ListenerProtocol::SaslPlaintext);
    let (listener, needs_login) = match (open, with_login) {
        (Some(open), None) => (open, false),
        (Some(open), Some(_)) if is_loopback && !config.has_authorizer() => (open, false),
        (_, Some(with_login)) => (with_login, true),
        (None, None) => return None,
    };
    let mut address = listener.local_addr;
    if address.ip().is_unspecified() {
        let loopback: std::net::IpAddr = match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    let mut client = ClientConfig {
        bootstrap_servers: vec![address.to_string()],
        ..ClientConfig::default()
    };
    let login_listener = needs_login.then(|| {
        client.security.protocol = SecurityProtocol::SaslPlaintext;
        // The person chooses; this is the first choice.
        client.security.sasl_mechanism = Some(SaslMechanism::Scram(ScramMechanism::Sha512));
        listener.name.to_string()
    });
    Some(Access {
        client,
        login_listener,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cluster_that_cannot_be_reached_is_a_warning() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap().to_string();
        let closed = "127.0.0.1:1".to_owned();
        let warning = connection_warning(std::slice::from_ref(&closed))
            .await
            .unwrap();
        assert!(
            warning.starts_with("cannot connect to 127.0.0.1:1: "),
            "{warning}"
        );
        assert!(connection_warning(&[closed, open]).await.is_none());
    }

    #[test]
    fn an_identity_provider_needs_an_issuer_and_a_client() {
        let of = |issuer, id, file| oidc(("--issuer", issuer), ("--id", id), ("--file", file));
        let issuer = Some("https://id.example");
        assert!(of(None, None, None).unwrap().is_none());
        assert!(of(issuer, Some("console"), None).unwrap().is_some());
        for (refused, says) in [
            (
                of(None, Some("console"), None),
                "--id=console: set --issuer",
            ),
            (of(None, None, Some("f")), "--file=f: set --issuer"),
            (
                of(issuer, None, None),
                "--issuer=https://id.example: set --id",
            ),
            (
                of(Some("id.example"), Some("c"), None),
                "--issuer: issuer id.example",
            ),
            (of(issuer, Some("c"), Some("/no/such")), "--file=/no/such"),
        ] {
            let refused = refused.unwrap_err();
            assert!(refused.starts_with(says), "{refused}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oidc.properties");
        let file = path.to_str();
        std::fs::write(&path, "client.secret=hush\n").unwrap();
        assert!(of(issuer, Some("c"), file).unwrap().is_some());
        std::fs::write(&path, "client.secrets=hush\n").unwrap();
        let refused = of(issuer, Some("c"), file).unwrap_err();
        assert!(refused.contains("client.secrets:"), "{refused}");
        assert!(!refused.contains("hush"), "{refused}");
    }

    #[test]
    fn a_schema_registry_needs_a_url_and_optionally_a_file() {
        let of = |url, file| registry(("--url", url), ("--file", file));
        assert!(of(None, None).unwrap().is_none());
        assert!(of(Some("http://127.0.0.1:8081"), None).unwrap().is_some());
        let refused = of(None, Some("f")).unwrap_err();
        assert!(
            refused.contains("--file=f") && refused.contains("--url"),
            "{refused}"
        );
        let refused = of(Some("127.0.0.1:8081"), None).unwrap_err();
        assert!(refused.starts_with("--url: 127.0.0.1:8081"), "{refused}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.properties");
        let file = path.to_str().unwrap();
        assert!(of(Some("http://a"), Some(file)).unwrap_err().contains(file));
        std::fs::write(&path, "basic.auth.user.info=ann:secret\n").unwrap();
        assert!(of(Some("http://a"), Some(file)).unwrap().is_some());
        std::fs::write(&path, "basic.auth.user=ann\n").unwrap();
        let refused = of(Some("http://a"), Some(file)).unwrap_err();
        let begin = format!("{file} line 1: basic.auth.user: ");
        assert!(refused.starts_with(&begin), "{refused}");
    }

    #[test]
    fn the_results_directory_is_an_argument() {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            console: ConsoleArgs,
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let given = ["x", "--bootstrap-server", "b:1", "--bench-dir"];
        let config = |dir: &str| {
            let line = given.iter().copied().chain([dir]);
            measure_config(&Line::try_parse_from(line).ok().unwrap().console)
        };
        let refused = config(path).err().unwrap();
        assert!(refused.contains("it is not a directory"), "{refused}");
        assert!(config(&format!("{path}-new")).is_ok());
    }
}
