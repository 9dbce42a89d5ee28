//! `ottla server`: runs a broker until it is told to stop.

use std::env::VarError;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ottla_broker::{Broker, RunningBroker};
use ottla_config::{BrokerConfig, Properties, single_node_properties};
use ottla_storage::log_dirs::THREADS_PER_DIRECTORY;
use ottla_storage::preflight::{Finding, Preflight, Severity, Unformatted};
use tracing_subscriber::EnvFilter;

use crate::stop_signals::StopSignals;

/// Where the data goes and where clients come in when no file says otherwise.
const DEFAULT_DATA_DIR: &str = "./ottla-data";
const DEFAULT_LISTENER: &str = "127.0.0.1:9092";
const DEFAULT_CONTROLLER: &str = "127.0.0.1:9093";
/// Threads for work that keeps one for long without a log directory's disk. Each directory adds those that it may hold,
/// for flushes, writeback, reads that miss the page cache: so none that hangs takes them from the others. More would only
/// wait beside each other, and each keeps about 0.7 MB for the ten seconds that it is kept after its last work.
const OTHER_BLOCKING_THREADS: usize = 8;

#[derive(Args, Debug)]
pub struct ServerArgs {
    /// Kafka's configuration file.
    #[arg(value_name = "SERVER.PROPERTIES")]
    properties: Option<PathBuf>,
    /// A setting that goes before the one in the file; may be given more than once.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Ends when the process with this id does, which has started it.
    #[arg(long, value_name = "PROCESS", hide = true)]
    ends_with: Option<i32>,
    /// Names what keeps a thread that serves sockets for so many milliseconds or longer (10 if no number is given): sets
    /// ottla.trace.stalls.ms.
    #[arg(long, value_name = "MS", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    trace_stalls: Option<u32>,
}

impl ServerArgs {
    /// Whether a configuration file is given.
    pub fn names_a_file(&self) -> bool {
        self.properties.is_some()
    }
}

/// Runs until SIGINT, SIGTERM or SIGHUP, or until the broker cannot go on. What keeps it from starting or from
/// going on is said in one sentence.
pub fn run(args: ServerArgs) -> ExitCode {
    match try_run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("ottla: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(args: &ServerArgs) -> Result<(), String> {
    if let Some(parent) = args.ends_with {
        end_with(parent)?;
    }
    let mut properties = read_properties(args.properties.as_deref(), &args.overrides)?;
    if let Some(ms) = args.trace_stalls {
        properties.set("ottla.trace.stalls.ms", &ms.to_string());
    }
    // Without a file there is nobody who could have formatted the directory; with one, formatting
    // decides of a cluster id and is left to `ottla storage format`, as with Kafka.
    let unformatted = match args.properties {
        None => Unformatted::Formatted,
        Some(_) => Unformatted::Refused,
    };
    look_first(&properties, unformatted)?;
    let (config, _) =
        BrokerConfig::from_properties(&properties).map_err(|error| error.to_string())?;
    start_logging()?;
    raise_open_files_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(
            OTHER_BLOCKING_THREADS + THREADS_PER_DIRECTORY * config.log_dirs.len(),
        )
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    runtime.block_on(serve(config, unformatted))
}

/// Asks the kernel to stop this process, as an operator would, when its parent ends in whatever way.
fn end_with(parent: i32) -> Result<(), String> {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| format!("cannot be told when process {parent} ends: {error}"))?;
    // It may have ended before.
    match getppid().map(Pid::as_raw_pid) {
        Some(pid) if pid == parent => Ok(()),
        _ => Err(format!(
            "process {parent}, which has started this one, has ended"
        )),
    }
}

/// Looks at everything before anything is touched, as `ottla preflight` does: refuses what it refuses, and
/// says what it warns of.
fn look_first(properties: &Properties, unformatted: Unformatted) -> Result<(), String> {
    let preflight = Preflight::of(properties, unformatted);
    let of = |severity| move |finding: &&Finding| finding.severity == severity;
    for warning in preflight.findings.iter().filter(of(Severity::Warns)) {
        eprintln!("ottla: {warning}");
    }
    let mut refusals = preflight.refusals();
    let Some(first) = refusals.next() else {
        return Ok(());
    };
    Err(match refusals.count() {
        0 => first.to_string(),
        more => format!("{first} (and {more} more: ottla preflight names all)"),
    })
}

/// A properties file with overrides laid over it; without a file, those of a node of its own.
pub fn read_properties(file: Option<&Path>, overrides: &[String]) -> Result<Properties, String> {
    let mut properties = match file {
        Some(path) => read_file(path)?,
        None => single_node_properties(DEFAULT_DATA_DIR, DEFAULT_LISTENER, DEFAULT_CONTROLLER),
    };
    for given in overrides {
        let (key, value) = given.split_once('=').ok_or_else(|| {
            format!(
                "--override {given}: give it as key=value, for example --override num.partitions=6"
            )
        })?;
        properties.set(key.trim(), value.trim());
    }
    if file.is_none() {
        keep_controller_listener(&mut properties);
    }
    Ok(properties)
}

/// Without a file the controller is the node's own business: whoever overrides where clients come in need
/// not know that there is one.
fn keep_controller_listener(properties: &mut Properties) {
    let Some(listeners) = properties.get("listeners") else {
        return;
    };
    if !listeners.value.contains("CONTROLLER://") {
        // A port of the kernel's choice: several such nodes may run on a machine.
        let listeners = format!("{},CONTROLLER://127.0.0.1:0", listeners.value);
        properties.set("listeners", &listeners);
    }
}

fn read_file(path: &Path) -> Result<Properties, String> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| {
        format!("{name}: cannot be read: {error}; give the path of a server.properties")
    })?;
    Properties::parse_bytes(&bytes, &name).map_err(|error| error.to_string())
}

/// Takes all the open files that this process may have: a partition holds some for each of its segments, and
/// the limit that a shell starts with is made for other programs. Java does the same (`MaxFDLimit`).
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
}

/// To standard error: lines for people where that is a terminal, and a JSON object a line otherwise, for
/// whatever collects logs. `OTTLA_LOG_FORMAT` (`text` or `json`) and `OTTLA_LOG` (a level, or levels by module)
/// say otherwise.
fn start_logging() -> Result<(), String> {
    let level = setting_from_env("OTTLA_LOG")?.unwrap_or_else(|| "warn".to_owned());
    let filter = EnvFilter::try_new(&level).map_err(|error| {
        format!("OTTLA_LOG={level}: {error}; give a level, for example OTTLA_LOG=info")
    })?;
    let is_json = match setting_from_env("OTTLA_LOG_FORMAT")?.as_deref() {
        Some("json") => true,
        Some("text") => false,
        Some(other) => {
            return Err(format!(
                "OTTLA_LOG_FORMAT={other}: unknown format; give text or json"
            ));
        }
        None => !std::io::stderr().is_terminal(),
    };
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match is_json {
        true => logging.json().flatten_event(true).init(),
        false => logging.with_target(false).compact().init(),
    }
    Ok(())
}

/// `None` where it is not set, or empty.
fn setting_from_env(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(value)) => Err(format!("{name}={}: not a text", value.display())),
    }
}

async fn serve(config: BrokerConfig, unformatted: Unformatted) -> Result<(), String> {
    let mut signals =
        StopSignals::listen().map_err(|error| format!("cannot wait for signals: {error}"))?;
    let Some(running) = start(config, unformatted, &mut signals).await? else {
        return Ok(());
    };
    introduce(&running);
    tokio::select! {
        () = signals.next() => {}
        () = running.broker().stopping() => {}
    }
    stop(running, &mut signals).await
}

/// Starts the broker. One that is asked to stop before it has started is stopped in order when it has, so that the next
/// start finds its logs as an orderly stop leaves them; `None` then.
async fn start(
    config: BrokerConfig,
    unformatted: Unformatted,
    signals: &mut StopSignals,
) -> Result<Option<RunningBroker>, String> {
    let starting = async {
        match unformatted {
            Unformatted::Formatted => Broker::format_and_start(config).await,
            Unformatted::Refused => Broker::start(config).await,
        }
    };
    tokio::pin!(starting);
    tokio::select! {
        started = &mut starting => return started.map(Some).map_err(|error| error.0),
        () = signals.next() => {}
    }
    println!("Stopping when the start is through; a second signal ends it at once.");
    tokio::select! {
        started = &mut starting => {
            let running = started.map_err(|error| error.0)?;
            stop(running, signals).await.map(|()| None)
        }
        () = signals.next() => {
            eprintln!("ottla: ended during the start; the next one recovers the logs");
            // What loads logs cannot be broken off, and a runtime that is dropped waits for it. To be killed here
            // is what recovery is made for.
            std::process::exit(1)
        }
    }
}

/// Stops in order. A signal meanwhile, and it waits for no other node any more: of a cluster that stops as a whole,
/// somebody is the last, and has nobody to give its partitions to.
async fn stop(running: RunningBroker, signals: &mut StopSignals) -> Result<(), String> {
    println!("Stopping.");
    let broker = Arc::clone(running.broker());
    let stopping = running.stop();
    tokio::pin!(stopping);
    tokio::select! {
        () = &mut stopping => {}
        () = signals.next() => {
            println!("Waiting for no other node any more.");
            broker.hurry();
            stopping.await;
        }
    }
    println!("Stopped.");
    match broker.failure() {
        Some(reason) => Err(reason.to_owned()),
        None => Ok(()),
    }
}

/// What it is, where it listens, where its data is.
fn introduce(running: &RunningBroker) {
    let config = running.broker().config();
    println!(
        "Ottla {}, node {}, speaks the protocol of Apache Kafka 4.3.1.",
        env!("CARGO_PKG_VERSION"),
        config.node_id
    );
    for listener in running.listeners() {
        println!("Listens on {} ({}).", listener.local_addr, listener.name);
    }
    if let Some(address) = running.http_addr() {
        println!("Shows its metrics and health on http://{address}.");
    }
    println!("Keeps its data in {}.", config.log_dirs.join(", "));
}
