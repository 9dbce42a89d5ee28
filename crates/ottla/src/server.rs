//! `ottla server`: runs a broker until it receives a stop signal.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use ottla_broker::{Broker, RunningBroker, StartError, StopStep};
use ottla_config::{BrokerConfig, Properties, SecurityProtocol, single_node_properties};
use ottla_storage::log_dirs::THREADS_PER_DIRECTORY;
use ottla_storage::preflight::{Finding, Preflight, Severity, Unformatted};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::console;
use crate::core_dumps;
use crate::heap;
use crate::logging::start_logging;
use crate::low_priority::lower_priority;
use crate::node_properties;
use crate::output_lines::{print_error_line, print_line};
use crate::stop_signals::StopSignals;
use crate::version::PROTOCOL_VERSION;

/// Data directory and listeners without a configuration file.
const DEFAULT_DATA_DIR: &str = "./ottla-data";
const DEFAULT_LISTENER: &str = "127.0.0.1:9092";
const DEFAULT_CONTROLLER: &str = "127.0.0.1:9093";
/// Blocking threads for work that does not wait for a log directory. Each directory adds its own,
/// for flushes, writeback and reads that miss the page cache, so a hanging directory cannot take
/// threads from other directories. More threads would not help, and each holds about 0.7 MB until
/// ten seconds after its last task.
const OTHER_BLOCKING_THREADS: usize = 8;
/// The same for the threads of the store of tiered storage: for encryption, compression and cached
/// chunks. Each upload adds one, so uploads from a directory that hangs take none of them from reads.
const STORE_BLOCKING_THREADS: usize = 8;
/// A slow stop reports its pending step after this time, and again after each of the following
/// pauses.
const NOTICED_STOP: Duration = Duration::from_secs(2);
const STOP_REPORTS: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
pub struct ServerArgs {
    /// Kafka's configuration file.
    #[arg(value_name = "SERVER.PROPERTIES")]
    properties: Option<PathBuf>,
    /// A setting that overrides the file; repeatable.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Exit when this parent process exits.
    #[arg(long, value_name = "PROCESS", hide = true)]
    ends_with: Option<i32>,
    /// Log what blocks a network thread for this many milliseconds or longer (10 without a value). Sets
    /// ottla.trace.stalls.ms.
    #[arg(long, value_name = "MS", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    trace_stalls: Option<u32>,
    /// Whether to print the line that users of Kafka's image wait for.
    #[arg(skip)]
    announces_running: bool,
}

impl ServerArgs {
    /// The arguments for a node in a container.
    pub fn in_container(properties: PathBuf) -> ServerArgs {
        ServerArgs {
            properties: Some(properties),
            overrides: Vec::new(),
            ends_with: None,
            trace_stalls: None,
            announces_running: true,
        }
    }

    /// Whether a configuration file is given.
    pub fn names_a_file(&self) -> bool {
        self.properties.is_some()
    }
}

/// Runs until SIGINT, SIGTERM or SIGHUP, or until the broker fails. If it cannot start or continue, prints the
/// reason in one sentence.
pub fn run(args: ServerArgs) -> ExitCode {
    match try_run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            print_error_line(format_args!("ottla: {sentence}"));
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
    // Without a file, the directory is formatted automatically. With one, formatting sets the
    // cluster ID and is left to `ottla storage format`, as in Kafka.
    let unformatted = match args.properties {
        None => Unformatted::Formatted,
        Some(_) => Unformatted::Refused,
    };
    look_first(&properties, unformatted)?;
    let (config, _) =
        BrokerConfig::from_properties(&properties).map_err(|error| error.to_string())?;
    start_logging()?;
    core_dumps::forbid_with_secrets(&config);
    raise_open_files_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(
            OTHER_BLOCKING_THREADS + THREADS_PER_DIRECTORY * config.log_dirs.len(),
        )
        .on_thread_park(heap::on_thread_park)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    let is_console_wanted = properties.get("ottla.console.listener").is_some();
    let console = runtime.block_on(console::bind_beside_server(&config, is_console_wanted))?;
    let store_threads = store_threads(&config)?;
    let served = runtime.block_on(serve(
        config,
        unformatted,
        store_threads.as_ref(),
        console,
        args.announces_running,
    ));
    // It does not wait for a store that hangs.
    if let Some(store_threads) = store_threads {
        store_threads.shutdown_background();
    }
    served
}

/// The threads for work at the store of tiered storage, if the settings enable it. Producers and
/// consumers of new records come first: otherwise consumers of old records, whose records are
/// received, decrypted, decompressed, checked and sent here, would take all processors from them.
fn store_threads(config: &BrokerConfig) -> Result<Option<Runtime>, String> {
    if !config.remote_log_storage_system_enable || !config.process_roles.broker {
        return Ok(None);
    }
    let uploads = usize::try_from(config.remote_log_manager_copier_thread_pool_size).unwrap_or(0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("remote-storage")
        .max_blocking_threads(STORE_BLOCKING_THREADS + uploads)
        .on_thread_start(lower_priority)
        .on_thread_park(heap::on_thread_park)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    Ok(Some(runtime))
}

/// Makes the kernel send this process a stop signal when its parent exits for any reason.
fn end_with(parent: i32) -> Result<(), String> {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| format!("cannot watch parent process {parent}: {error}"))?;
    // The parent may have exited before.
    match getppid().map(Pid::as_raw_pid) {
        Some(pid) if pid == parent => Ok(()),
        _ => Err(format!("parent process {parent} has exited")),
    }
}

/// The checks of `ottla preflight`: of the settings and directories, and of the files and stores that
/// the start opens.
pub fn examine(properties: &Properties, unformatted: Unformatted) -> Preflight {
    let mut preflight = Preflight::of(properties, unformatted);
    let config = BrokerConfig::examine(properties).config;
    let problems = config.iter().flat_map(ottla_broker::start_problems);
    preflight.findings.extend(problems.map(|problem| Finding {
        severity: Severity::Refuses,
        subject: "start",
        place: properties.place(&problem.setting),
        what: problem.what,
        change: Some(problem.change).filter(|it| !it.is_empty()),
        accept: None,
    }));
    preflight.findings.sort_by_key(|finding| finding.severity);
    // Listeners with the same stores have the same problems.
    preflight.findings.dedup();
    preflight
}

/// Runs the checks of `ottla preflight` before anything is changed. Fails on refusals and prints
/// warnings.
fn look_first(properties: &Properties, unformatted: Unformatted) -> Result<(), String> {
    let preflight = examine(properties, unformatted);
    let of = |severity| move |finding: &&Finding| finding.severity == severity;
    for warning in preflight.findings.iter().filter(of(Severity::Warns)) {
        print_error_line(format_args!("ottla: {warning}"));
    }
    refusals(&preflight).map_or(Ok(()), Err)
}

/// The refusals, each on a line of its own, as if it were the only one; `None` without any.
pub fn refusals(preflight: &Preflight) -> Option<String> {
    let sentences: Vec<String> = preflight.refusals().map(Finding::to_string).collect();
    (!sentences.is_empty()).then(|| sentences.join("\nottla: "))
}

/// The properties file with the overrides applied; without a file, the properties of a single-node
/// cluster.
pub fn read_properties(file: Option<&Path>, overrides: &[String]) -> Result<Properties, String> {
    let mut properties = match file {
        Some(path) => read_file(path)?,
        None => properties_without_a_file(),
    };
    node_properties::override_with(&mut properties, overrides)?;
    if file.is_none() {
        keep_controller_listener(&mut properties);
    }
    node_properties::complete(&mut properties)?;
    Ok(properties)
}

/// The settings of a server without a file, before its overrides.
pub fn properties_without_a_file() -> Properties {
    single_node_properties(DEFAULT_DATA_DIR, DEFAULT_LISTENER, DEFAULT_CONTROLLER)
}

/// Without a file, the user need not configure the controller: an override of `listeners` may omit
/// its listener.
fn keep_controller_listener(properties: &mut Properties) {
    let Some(listeners) = properties.get("listeners") else {
        return;
    };
    let speaks_plaintext_only = !listeners.value.to_uppercase().contains("SSL://")
        && !listeners.value.to_uppercase().contains("SASL_");
    if !speaks_plaintext_only && properties.get("listener.security.protocol.map").is_none() {
        // The default map includes the controller's listener only if all listeners are plaintext.
        let protocols = SecurityProtocol::ALL.map(|it| format!("{0}:{0}", it.name()));
        let map = format!("CONTROLLER:PLAINTEXT,{}", protocols.join(","));
        properties.set("listener.security.protocol.map", &map);
    }
    let Some(listeners) = properties.get("listeners") else {
        return;
    };
    let mut each = listeners.value.split(',');
    if !each.any(|listener| listener.trim_start().starts_with("CONTROLLER://")) {
        // The kernel picks the port, so that several such nodes can run on one machine.
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

/// Raises the limit of open files to the hard limit, because a partition keeps files of its
/// segments open. Java does the same (`MaxFDLimit`).
pub fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

async fn serve(
    config: BrokerConfig,
    unformatted: Unformatted,
    store_threads: Option<&Runtime>,
    console: Option<TcpListener>,
    announces_running: bool,
) -> Result<(), String> {
    let mut signals = StopSignals::listen()
        .map_err(|error| format!("cannot install signal handlers: {error}"))?;
    let starting = Broker::start_on(config, unformatted, store_threads);
    let Some(running) = start(starting, &mut signals).await? else {
        return Ok(());
    };
    // The metadata is known now, and may have secrets too, or later.
    tokio::spawn(core_dumps::forbid_once_secret(Arc::clone(running.broker())));
    let console = match console {
        Some(listener) => console::serve_beside_server(listener, &running)?,
        None => None,
    };
    introduce(&running, console);
    let store_threads = store_threads.map(|threads| threads.handle().clone());
    tokio::spawn(heap::keep_small(store_threads));
    if announces_running {
        print_line(format_args!(
            "Node {}: Transitioning from RECOVERY to RUNNING.",
            running.broker().config().node_id
        ));
    }
    tokio::select! {
        () = signals.next() => {}
        () = running.broker().stopping() => {}
    }
    stop(running, &mut signals).await
}

/// Starts the broker. If a stop is requested during start-up, the broker is stopped cleanly once it has started, so
/// that the next start need not recover its logs; the result is then `None`.
async fn start(
    starting: impl Future<Output = Result<RunningBroker, StartError>>,
    signals: &mut StopSignals,
) -> Result<Option<RunningBroker>, String> {
    tokio::pin!(starting);
    tokio::select! {
        started = &mut starting => return started.map(Some).map_err(|error| error.0),
        () = signals.next() => {}
    }
    print_line("Stopping once start-up is complete. A second signal kills the process.");
    tokio::select! {
        started = &mut starting => {
            let running = started.map_err(|error| error.0)?;
            stop(running, signals).await.map(|()| None)
        }
        () = signals.next() => {
            print_error_line("ottla: killed during start-up; the next start recovers the logs");
            // Loading logs cannot be interrupted, and dropping the runtime would wait for it. Recovery handles a
            // kill at this point.
            std::process::exit(1)
        }
    }
}

/// Stops cleanly. On another signal it no longer waits for other nodes: when a whole cluster stops,
/// the last node cannot hand over its partitions.
async fn stop(running: RunningBroker, signals: &mut StopSignals) -> Result<(), String> {
    print_line("Stopping.");
    let broker = Arc::clone(running.broker());
    let stopping = running.stop();
    tokio::pin!(stopping);
    tokio::select! {
        () = &mut stopping => {}
        () = report_stop(&broker) => {}
        () = signals.next() => {
            print_line("No longer waiting for other nodes.");
            broker.hurry();
            stopping.await;
        }
    }
    print_line("Stopped.");
    let failure = broker.failure().map(str::to_owned);
    // The process ends. Freeing the state of 100,000 partitions one by one would take seconds.
    std::mem::forget(broker);
    failure.map_or(Ok(()), Err)
}

/// Reports the pending step of a slow stop, first after a few seconds and then every ten seconds.
/// Never returns.
async fn report_stop(broker: &Broker) {
    let began = Instant::now();
    let mut pause = NOTICED_STOP;
    loop {
        tokio::time::sleep(pause).await;
        pause = STOP_REPORTS;
        if let Some(step) = broker.stop_step() {
            print_line(stop_text(step, began.elapsed()));
        }
    }
}

fn stop_text(step: StopStep, waited: Duration) -> String {
    let way_out = match step.needs_others() {
        true => "; a second signal no longer waits for other nodes",
        false => "",
    };
    format!(
        "Waiting for {} ({} s){way_out}.",
        step.description(),
        waited.as_secs()
    )
}

/// Prints the version, the listeners and the data directories.
fn introduce(running: &RunningBroker, console: Option<SocketAddr>) {
    let config = running.broker().config();
    print_line(format_args!(
        "Ottla {}, node {}, Apache Kafka {PROTOCOL_VERSION} protocol",
        env!("CARGO_PKG_VERSION"),
        config.node_id
    ));
    for listener in running.listeners() {
        print_line(format_args!(
            "Listening on {} ({})",
            listener.local_addr, listener.name
        ));
    }
    for listener in running.added_listeners() {
        print_line(format_args!(
            "Listening on {} ({}, of the dynamic settings)",
            listener.local_addr, listener.name
        ));
    }
    if let Some(address) = running.http_addr() {
        print_line(format_args!("Metrics and health on http://{address}"));
    }
    if let Some(address) = console {
        print_line(format_args!("Console on http://{address}"));
    }
    print_line(format_args!(
        "Data directory: {}",
        config.log_dirs.join(", ")
    ));
    print_line(format_args!("Limits: {}", running.broker().limits()));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL_STORE: &str = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage";

    #[test]
    fn each_refusal_is_one_line_with_its_place() {
        let text = "node.id=-7\nprocess.roles=broker\nnum.partitions=x\n";
        let properties = Properties::parse(text, "server.properties").unwrap();
        let refused = look_first(&properties, Unformatted::Refused).unwrap_err();
        let lines: Vec<&str> = refused.split("\nottla: ").collect();
        assert!(lines.len() >= 2, "{refused}");
        let is_there = |line: &str| lines.iter().any(|it| it.starts_with(line));
        assert!(
            is_there("server.properties line 1: node.id=-7"),
            "{refused}"
        );
        assert!(
            is_there("server.properties line 3: num.partitions=x"),
            "{refused}"
        );
    }

    #[test]
    fn files_opened_by_the_start_are_checked_with_their_line() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let mut properties =
            single_node_properties(data.to_str().unwrap(), DEFAULT_LISTENER, DEFAULT_CONTROLLER);
        let before = examine(&properties, Unformatted::Formatted);
        assert!(before.is_possible(), "{:?}", before.findings);
        for (key, value) in [
            ("remote.log.storage.system.enable", "true"),
            ("remote.log.storage.manager.class.name", LOCAL_STORE),
            ("rsm.config.dri", "/nowhere"),
            ("rsm.config.dir", "/nowhere"),
        ] {
            properties.set(key, value);
        }
        let refused = look_first(&properties, Unformatted::Formatted).unwrap_err();
        let begin = "--override rsm.config.dri: rsm.config.dri: this store has no such setting";
        assert!(refused.starts_with(begin), "{refused}");
        assert!(!data.exists());
    }

    #[test]
    fn uploads_that_hang_leave_threads_to_reads_from_the_store() {
        let mut properties = properties_without_a_file();
        properties.set("remote.log.storage.system.enable", "true");
        properties.set("remote.log.storage.manager.class.name", LOCAL_STORE);
        let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
        let threads = store_threads(&config).unwrap().expect("it is enabled");
        let disk = Arc::new(std::sync::Mutex::new(()));
        let hanging = disk.lock().unwrap();
        for _ in 0..config.remote_log_manager_copier_thread_pool_size {
            let disk = Arc::clone(&disk);
            threads.spawn_blocking(move || drop(disk.lock()));
        }
        let (read, has_read) = std::sync::mpsc::channel();
        threads.spawn_blocking(move || read.send(()));
        let has_read = has_read.recv_timeout(Duration::from_secs(60));
        drop(hanging);
        has_read.expect("a thread is left");
    }

    #[test]
    fn a_slow_stop_reports_its_pending_step() {
        let waited = Duration::from_millis(12_345);
        assert_eq!(
            stop_text(StopStep::Quorum, waited),
            "Waiting for another controller to lead the metadata quorum (12 s); a second signal no longer waits for \
             other nodes."
        );
        let text = stop_text(StopStep::Logs, waited);
        assert_eq!(text, "Waiting for the logs to be written to disk (12 s).");
    }
}
