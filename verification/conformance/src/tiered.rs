//! `cargo xtask tiered`: has Apache Kafka keep segments in remote storage, and lets `ottla tier` show
//! and check them; damage must be found and named. Then Kafka and Ottla take the directory and the
//! store over from each other. Runs the stores' own tests against real servers on loopback: versitygw
//! for S3, fake-gcs-server for GCS, Azurite for Azure.
//!
//! With `--plugin`, Kafka keeps segments in the S3 server through Aiven's plugin too: plain, encrypted,
//! and compressed and encrypted. The plugin is in no registry. Unless a folder has it, it is compiled from
//! its published source.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::run_dir::RunDir;
use ottla_peers::tiered::{self, S3Server, StoreServer};
use ottla_peers::{InstalledPeer, Node, NodeOptions, Peer};
use ottla_testkit::words;
use ottla_workspace::process;
use ottla_workspace::report::Tally;
use ottla_workspace::test_programs;

const TOPIC: &str = "archived";
const RECORDS: usize = 40_000;
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub struct Options {
    /// Also compare with Aiven's plugin: compiled from its published source, or from this folder with
    /// its jars and dependencies, or with its source.
    #[arg(long, value_name = "DIR")]
    plugin: Option<Option<PathBuf>>,
    #[command(flatten)]
    run_dir: RunDir,
}

pub fn run(options: &Options) -> Result<()> {
    let dir = options.run_dir.make("tiered")?;
    let ottla = Peer::load("ottla")?.install()?;
    let mut tally = Tally::default();
    let mut step = |what: &str, outcome| {
        tally.check(what, outcome);
    };
    step(
        "Kafka's files in LocalTieredStorage",
        local_files(&dir.join("local"), &ottla),
    );
    let server = S3Server::start(&dir.join("s3"));
    match &server {
        Ok(server) => {
            let tests = store_tests("s3", &server.endpoint());
            step("the store and versitygw", tests);
            match options
                .plugin
                .as_ref()
                .map(|dir| tiered::plugin_classes(dir.as_deref()))
            {
                Some(Ok(classes)) => {
                    for form in FORMS {
                        step(
                            &format!("Kafka's objects through the plugin, in S3, {}", form.name),
                            plugin_objects(&dir, &ottla, server, &classes, form),
                        );
                    }
                }
                Some(Err(error)) => step("Aiven's plugin", Err(error)),
                None => {}
            }
        }
        Err(error) => step("versitygw", Err(anyhow::anyhow!("{error:#}"))),
    }
    drop(server);
    for (name, store, started) in [
        ("fake-gcs-server", "gcs", StoreServer::gcs(&dir.join("gcs"))),
        ("Azurite", "azure", StoreServer::azure(&dir.join("azure"))),
    ] {
        let tests = started.and_then(|server| store_tests(store, &server.endpoint()));
        step(&format!("the store and {name}"), tests);
    }
    tally.conclude(&dir, options.run_dir.keep)
}

fn local_files(dir: &Path, ottla: &InstalledPeer) -> Result<String> {
    let jars = tiered::store_jars(dir)?;
    let store = dir.join("store");
    let own = tiered::directory_settings(&store);
    // A class path understands `*` for all jars of a folder.
    let (kafka, config) = filled(dir, &[jars.join("*")], own)?;
    let judged = judge(ottla, &kafka, &config, &store, "log", "at byte ")?;
    let restored = restore(ottla, &kafka, &config)?;
    let taken = change_hands(ottla, kafka, &config)?;
    Ok(format!("{judged}; {restored}; {taken}"))
}

/// Restores the topic to a new one, twice. The first run writes all records that are in remote storage.
fn restore(ottla: &InstalledPeer, kafka: &Kafka, config: &Path) -> Result<String> {
    const RESTORED: &str = "restored";
    let run = |more: &[&str]| -> Result<(bool, String)> {
        let mut arguments = vec!["--topic", TOPIC, "--as", RESTORED];
        // Newer than every record. The active segment is only on the broker.
        arguments.extend(["--to-time", "9999-01-01T00:00:00Z"]);
        arguments.extend(["--topic-config", "remote.storage.enable=false"]);
        arguments.extend(more);
        let output = tier(ottla, kafka, config, "restore", &arguments)?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        Ok((output.status.success(), printed))
    };
    // A segment that is copied meanwhile would be in the restored topic, and not in the plan.
    wait_until_one_is_local(kafka)?;
    let (succeeded, planned) = run(&["--dry-run"])?;
    let total = planned.lines().find(|line| line.starts_with("Total: "));
    let records: usize = total
        .and_then(|line| {
            line.split(", ")
                .find_map(|part| part.strip_suffix(" records"))
        })
        .and_then(|count| count.parse().ok())
        .with_context(|| planned.clone())?;
    ensure!(
        succeeded && records > RECORDS / 2 && planned.contains("MISSING partition 0: "),
        "{planned}"
    );
    let (succeeded, refused) = run(&[])?;
    ensure!(
        !succeeded && refused.contains("--accept-missing"),
        "{refused}"
    );
    for written in [records, 0] {
        let (succeeded, printed) = run(&["--accept-missing"])?;
        let expected = format!("{RESTORED}: {written} records written, ");
        ensure!(succeeded && printed.contains(&expected), "{printed}");
    }
    read_each_once(kafka, RESTORED, records).context("the restored topic")?;
    Ok(format!("{records} records restored"))
}

/// Kafka and Ottla take the directory and the store over from each other. Each reads every record
/// once, those in remote segments only from there, and copies its own segments.
fn change_hands(ottla: &InstalledPeer, mut kafka: Kafka, config: &Path) -> Result<String> {
    let mut records = RECORDS;
    let mut turns = Vec::new();
    for side in [ottla.clone(), kafka.installed.clone(), ottla.clone()] {
        kafka.node.stop()?;
        let mut options = kafka.options.clone();
        options.port = Some(kafka.node.port());
        kafka.node = side.start(options)?;
        let name = side.name().to_owned();
        wait_until_only_remote(ottla, &kafka, config)?;
        read_each_once(&kafka, TOPIC, records).with_context(|| format!("{name} took over"))?;
        let segments_before = segments(ottla, &kafka, config)?;
        produce(&kafka, RECORDS)?;
        records += RECORDS;
        let began = Instant::now();
        // Four more segments of 1 MiB; the last is active.
        while segments(ottla, &kafka, config)? < segments_before + 3 {
            ensure!(
                began.elapsed() < PATIENCE,
                "{name} copies nothing:\n{}",
                kafka.node.output_tail()
            );
            std::thread::sleep(Duration::from_millis(500));
        }
        wait_until_only_remote(ottla, &kafka, config)?;
        read_each_once(&kafka, TOPIC, records).with_context(|| format!("{name} copied"))?;
        let verified = tier(ottla, &kafka, config, "verify", &[])?;
        let printed = String::from_utf8_lossy(&verified.stdout).into_owned();
        ensure!(
            verified.status.success() && printed.contains(" 0 problems"),
            "{name}: {printed}"
        );
        turns.push(name);
    }
    Ok(format!(
        "{records} records in the hands of {}",
        turns.join(", ")
    ))
}

/// How many segments are in remote storage, if none is being copied.
fn segments(ottla: &InstalledPeer, kafka: &Kafka, config: &Path) -> Result<u64> {
    let one = described_partition(ottla, kafka, config)?;
    ensure!(
        one["problems"].as_array().is_some_and(Vec::is_empty),
        "{one}"
    );
    Ok(one["segments"].as_u64().unwrap_or(0))
}

/// What `ottla tier describe` prints of the topic's only partition. Null before its first segment.
fn described_partition(
    ottla: &InstalledPeer,
    kafka: &Kafka,
    config: &Path,
) -> Result<serde_json::Value> {
    let bootstrap = kafka.node.bootstrap();
    let partitions = described(ottla, &bootstrap, config, TOPIC)?;
    Ok(partitions.into_iter().next().unwrap_or_default())
}

/// Waits until the broker has the active segment alone, which is never copied. Local retention keeps
/// the others until they are copied, and no longer.
fn wait_until_one_is_local(kafka: &Kafka) -> Result<()> {
    let folder = kafka.node.data_dir().join(format!("{TOPIC}-0"));
    let began = Instant::now();
    loop {
        let mut local = 0;
        for file in std::fs::read_dir(&folder)? {
            local += usize::from(file?.file_name().to_string_lossy().ends_with(".log"));
        }
        if local == 1 {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "{local} segments are local after {PATIENCE:?}:\n{}",
            kafka.node.output_tail()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until the local log begins after the remote segments.
fn wait_until_only_remote(ottla: &InstalledPeer, kafka: &Kafka, config: &Path) -> Result<()> {
    let began = Instant::now();
    loop {
        // A broker that has just started may not have leaders yet.
        let one = described_partition(ottla, kafka, config);
        let offset = |name: &str| one.as_ref().ok()?[name].as_i64();
        let ends = offset("localStartOffset").zip(offset("remoteEndOffset"));
        if ends.is_some_and(|(local_start, remote_end)| local_start > remote_end) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "after {PATIENCE:?}: {one:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// What `ottla tier describe` prints of the partitions of a topic.
pub fn described(
    ottla: &InstalledPeer,
    bootstrap: &str,
    config: &Path,
    topic: &str,
) -> Result<Vec<serde_json::Value>> {
    let mut describe = tier_command(ottla, bootstrap, config, "describe");
    let output = process::run_captured(describe.args(["--json", "--topic", topic]))?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    json["partitions"].as_array().cloned().context("partitions")
}

/// `ottla tier` with the store of a properties file.
pub fn tier_command(
    ottla: &InstalledPeer,
    bootstrap: &str,
    config: &Path,
    action: &str,
) -> Command {
    let mut command = ottla.tool("tier");
    command.args([action, "--bootstrap-server", bootstrap, "--config"]);
    command.arg(config);
    command
}

/// Kafka's console consumer reads all offsets from the first on.
fn read_each_once(kafka: &Kafka, topic: &str, records: usize) -> Result<()> {
    let count = records.to_string();
    let printed = kafka.tool(
        &words(&format!(
            "org.apache.kafka.tools.consumer.ConsoleConsumer --topic {topic} \
             --from-beginning --max-messages {count} --timeout-ms 60000 \
             --formatter-property print.offset=true \
             --formatter-property print.value=false"
        )),
        true,
    )?;
    let offsets: Vec<usize> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("Offset:")?.trim().parse().ok())
        .collect();
    ensure!(
        offsets.len() == records,
        "{} of {records} records",
        offsets.len()
    );
    let wrong = offsets
        .iter()
        .enumerate()
        .find(|(index, offset)| index != *offset);
    ensure!(wrong.is_none(), "offset {:?} is out of place", wrong);
    Ok(())
}

fn produce(kafka: &Kafka, records: usize) -> Result<()> {
    let bootstrap = format!("bootstrap.servers={}", kafka.node.bootstrap());
    let records = records.to_string();
    kafka.tool(
        &words(&format!(
            "org.apache.kafka.tools.ProducerPerformance --topic {TOPIC} \
             --num-records {records} --record-size 100 --throughput -1 \
             --producer-props {bootstrap}"
        )),
        false,
    )?;
    Ok(())
}

fn tier(
    ottla: &InstalledPeer,
    kafka: &Kafka,
    config: &Path,
    action: &str,
    more: &[&str],
) -> Result<Output> {
    let mut command = tier_command(ottla, &kafka.node.bootstrap(), config, action);
    process::run_captured(command.args(more))
}

/// A form of the plugin's objects.
#[derive(Clone, Copy)]
struct Form {
    name: &'static str,
    is_compressed: bool,
    is_encrypted: bool,
    /// Is in the message about a changed byte.
    complaint: &'static str,
}

const FORMS: [Form; 3] = [
    Form {
        name: "plain",
        is_compressed: false,
        is_encrypted: false,
        complaint: "at byte ",
    },
    Form {
        name: "encrypted",
        is_compressed: false,
        is_encrypted: true,
        complaint: "authentication tag",
    },
    Form {
        name: "compressed-and-encrypted",
        is_compressed: true,
        is_encrypted: true,
        complaint: "authentication tag",
    },
];

fn plugin_objects(
    dir: &Path,
    ottla: &InstalledPeer,
    server: &S3Server,
    classes: &[PathBuf],
    form: Form,
) -> Result<String> {
    let dir = &dir.join(form.name);
    std::fs::create_dir_all(dir)?;
    let mut own = tiered::s3_settings(&server.endpoint());
    if form.is_encrypted {
        own.extend(tiered::encryption_settings(dir)?);
    }
    own.extend([
        setting("rsm.config.chunk.size", "300000"),
        setting("rsm.config.key.prefix", &format!("{}/", form.name)),
        setting(
            "rsm.config.compression.enabled",
            &form.is_compressed.to_string(),
        ),
        setting("rsm.config.custom.metadata.fields.include", "REMOTE_SIZE"),
    ]);
    let (kafka, config) = filled(dir, classes, own)?;
    let objects = server.bucket().join(form.name);
    let judged = judge(ottla, &kafka, &config, &objects, "log", form.complaint)?;
    let taken = change_hands(ottla, kafka, &config)?;
    Ok(format!("{judged}; {taken}"))
}

fn setting(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// A broker of Kafka's with a topic, all of whose closed segments are in remote storage; and the file
/// with its settings.
fn filled(dir: &Path, classes: &[PathBuf], own: Vec<(String, String)>) -> Result<(Kafka, PathBuf)> {
    let mut overrides = own;
    overrides.extend(tiered::broker_settings());
    let installed = classes
        .iter()
        .fold(Peer::load("kafka")?.install()?, |kafka, classes| {
            kafka.with_classes(classes)
        });
    let text: String = overrides
        .iter()
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect();
    let options = NodeOptions {
        dir: dir.join("kafka"),
        overrides,
        ..NodeOptions::default()
    };
    let node = installed.start(options.clone())?;
    let kafka = Kafka {
        node,
        installed,
        options,
    };
    let config = dir.join("server.properties");
    std::fs::write(&config, text)?;
    kafka.tool(
        &words(&format!(
            "org.apache.kafka.tools.TopicCommand --create --topic {TOPIC} \
             --partitions 1 --config remote.storage.enable=true \
             --config segment.bytes=1048576 --config local.retention.bytes=1"
        )),
        true,
    )?;
    produce(&kafka, RECORDS)?;
    Ok((kafka, config))
}

struct Kafka {
    node: Node,
    installed: InstalledPeer,
    options: NodeOptions,
}

impl Kafka {
    fn tool(&self, arguments: &[&str], needs_server: bool) -> Result<String> {
        let (class, arguments) = arguments.split_first().context("a class")?;
        let mut command = self.installed.tool(class);
        command.args(arguments);
        if needs_server {
            command.args(["--bootstrap-server", &self.node.bootstrap()]);
        }
        process::output_of(&mut command)
    }
}

/// Describes and verifies, damages one log below `store`, verifies again, and repairs it.
fn judge(
    ottla: &InstalledPeer,
    kafka: &Kafka,
    config: &Path,
    store: &Path,
    suffix: &str,
    complaint: &str,
) -> Result<String> {
    let tier = |action: &str, more: &[&str]| tier(ottla, kafka, config, action, more);
    let began = Instant::now();
    let segments = loop {
        let one = described_partition(ottla, kafka, config)?;
        let segments = one["segments"].as_u64().unwrap_or(0);
        // Four segments of 1 MiB and a part of a fifth; the last is never copied.
        if segments >= 3 && one["copying"] == 0 {
            ensure!(one["topic"] == TOPIC, "{one}");
            ensure!(one["remoteStartOffset"] == 0, "{one}");
            ensure!(
                one["problems"].as_array().is_some_and(Vec::is_empty),
                "{one}"
            );
            break segments;
        }
        ensure!(began.elapsed() < PATIENCE, "after {PATIENCE:?}: {one}");
        std::thread::sleep(Duration::from_millis(500));
    };
    let text = tier("describe", &[])?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    ensure!(text.contains(TOPIC) && text.contains("Store: "), "{text}");
    let whole = tier("verify", &[])?;
    let printed = String::from_utf8_lossy(&whole.stdout).into_owned();
    ensure!(
        whole.status.success() && printed.contains(" 0 problems"),
        "{printed}{}",
        String::from_utf8_lossy(&whole.stderr)
    );
    let victim = tiered::first_file(store, suffix)?;
    let good = std::fs::read(&victim)?;
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    std::fs::write(&victim, &bad)?;
    let damaged = tier("verify", &[])?;
    std::fs::write(&victim, &good)?;
    let printed = String::from_utf8_lossy(&damaged.stdout).into_owned();
    let name = victim.file_name().unwrap_or_default().to_string_lossy();
    let found: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("PROBLEM "))
        .collect();
    ensure!(!damaged.status.success() && !found.is_empty(), "{printed}");
    ensure!(
        found
            .iter()
            .all(|line| line.contains(&*name) && line.contains(complaint)),
        "{printed}"
    );
    std::fs::remove_file(&victim)?;
    let missing = tier("verify", &["--shallow"])?;
    let printed = String::from_utf8_lossy(&missing.stdout).into_owned();
    ensure!(
        !missing.status.success() && printed.contains(&*name),
        "{printed}"
    );
    std::fs::write(&victim, &good)?;
    Ok(format!(
        "{segments} segments, whole; then damaged and missing: {name}"
    ))
}

/// The tests of a store, by the name of their module.
fn store_tests(store: &str, endpoint: &str) -> Result<String> {
    let commands = test_programs::commands("ottla-tiered-storage", &["real-stores"], &["stores"])?;
    let mut output = String::new();
    for mut command in commands {
        command
            .args(["--ignored", &format!("real_stores::{store}::")])
            .env(format!("OTTLA_{}_ENDPOINT", store.to_uppercase()), endpoint);
        output.push_str(&process::output_of(&mut command)?);
    }
    // Cargo may select a test program of another package with the same name and no test of the store.
    let mut results = output.lines().filter(|it| it.starts_with("test result"));
    match results.find(|it| !it.contains(" 0 passed")) {
        Some(result) => Ok(result.to_owned()),
        None => bail!("no test ran with the real server:\n{output}"),
    }
}
