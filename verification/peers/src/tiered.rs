//! The requirements of tiered storage besides a broker: servers of object stores, the jars of Kafka's
//! own store, and Aiven's plugin with its settings.

mod servers;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ottla_workspace::process;
use ottla_workspace::{toolchain, workspace};

use super::description::{class_path, resolve_with_maven};
use servers::BUCKET;
pub use servers::{S3Server, StoreServer};

/// Of Kafka's release that the peer `kafka` is of.
const TEST_JAR: &str = "org.apache.kafka:kafka-storage:4.3.1:jar:test";

const PLUGIN_SOURCE: &str = "https://github.com/Aiven-Open/tiered-storage-for-apache-kafka.git";
/// The last release without Iceberg.
const PLUGIN_TAG: &str = "v1.0.0";
/// Its modules that S3 and directories need.
const PLUGIN_MODULES: [&str; 5] = [
    "commons",
    "core",
    "storage/core",
    "storage/filesystem",
    "storage/s3",
];
/// The dependencies of these modules in that release, besides Kafka.
const PLUGIN_DEPENDENCIES: [&str; 9] = [
    "org.bouncycastle:bcprov-jdk18on:1.80",
    "com.fasterxml.jackson.core:jackson-databind:2.19.0",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.19.0",
    "com.github.luben:zstd-jni:1.5.6-9",
    "com.github.ben-manes.caffeine:caffeine:3.2.0",
    "commons-io:commons-io:2.19.0",
    "com.bucket4j:bucket4j_jdk11-core:8.14.0",
    "software.amazon.awssdk:s3:2.31.13",
    "software.amazon.awssdk:sts:2.31.13",
];

/// The version of Kafka that the release is compiled with. Newer ones have moved classes that only
/// `compression.heuristic.enabled` needs.
const PLUGIN_KAFKA: [&str; 2] = [
    "org.apache.kafka:kafka-clients:3.8.0",
    "org.apache.kafka:kafka-storage-api:3.8.0",
];

/// A folder with the jar of Kafka's `LocalTieredStorage`.
pub fn store_jars(dir: &Path) -> Result<PathBuf> {
    let jars = dir.join("jars");
    std::fs::create_dir_all(&jars)?;
    process::output_of(
        toolchain::maven()?
            .arg("dependency:copy")
            .arg(format!("-Dartifact={TEST_JAR}"))
            .arg(format!("-DoutputDirectory={}", jars.display())),
    )?;
    Ok(jars)
}

/// The class path entries for Aiven's plugin, from a folder with its jars, from a folder with its
/// source, or from its published source.
pub fn plugin_classes(given: Option<&Path>) -> Result<Vec<PathBuf>> {
    let is_source = |dir: &Path| dir.join("core/src/main/java").is_dir();
    match given {
        Some(dir) if is_source(dir) => compiled_plugin(dir),
        Some(jars) => Ok(vec![jars.canonicalize()?.join("*")]),
        None => {
            let source = plugin_folder().join("source");
            if !is_source(&source) {
                workspace::make_empty(&source)?;
                process::output_of(
                    Command::new("git")
                        .args(["clone", "--quiet", "--depth", "1", "--branch", PLUGIN_TAG])
                        .arg(PLUGIN_SOURCE)
                        .arg(&source),
                )
                .context("the source of Aiven's plugin cannot be fetched")?;
            }
            compiled_plugin(&source)
        }
    }
}

fn plugin_folder() -> PathBuf {
    workspace::target_dir()
        .join("peers/aiven-plugin")
        .join(PLUGIN_TAG)
}

fn compiled_plugin(source: &Path) -> Result<Vec<PathBuf>> {
    toolchain::require(&toolchain::JAVAC)?;
    let folder = plugin_folder();
    let dependencies = PLUGIN_DEPENDENCIES.map(str::to_owned);
    let libs = resolve_with_maven(&folder, &dependencies)?;
    let of_kafka = resolve_with_maven(&folder.join("kafka"), &PLUGIN_KAFKA.map(str::to_owned))?;
    let classes = folder.join("classes");
    workspace::make_empty(&classes)?;
    let mut compile = Command::new("javac");
    compile
        .args(["-nowarn", "-proc:none", "-cp"])
        .arg(format!("{}:{}", class_path(&libs)?, class_path(&of_kafka)?))
        .arg("-d")
        .arg(&classes);
    for module in PLUGIN_MODULES {
        compile.args(files_below(
            &source.join(module).join("src/main/java"),
            "java",
        )?);
    }
    process::output_of(&mut compile).context("Aiven's plugin does not compile")?;
    Ok(vec![classes, libs.join("*")])
}

/// The files with this extension below a folder, sorted.
pub fn files_below(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// By default, a broker deletes no local segment in the first 30 seconds, and everything would be read from its disk.
pub const LOCAL_RETENTION_SOON: (&str, &str) = ("log.initial.task.delay.ms", "500");

/// Settings of a single broker with tiered storage, without the settings of its store.
pub fn broker_settings() -> Vec<(String, String)> {
    [
        ("remote.log.storage.system.enable", "true"),
        ("remote.log.metadata.manager.listener.name", "PLAINTEXT"),
        (
            "rlmm.config.remote.log.metadata.topic.replication.factor",
            "1",
        ),
        ("rlmm.config.remote.log.metadata.topic.min.isr", "1"),
        ("rlmm.config.remote.log.metadata.topic.num.partitions", "3"),
        ("remote.log.manager.task.interval.ms", "500"),
        LOCAL_RETENTION_SOON,
        ("log.retention.check.interval.ms", "500"),
    ]
    .map(owned)
    .to_vec()
}

/// Settings of a store in a directory, in the layout of `LocalTieredStorage`.
pub fn directory_settings(dir: &Path) -> Vec<(String, String)> {
    let dir = dir.display().to_string();
    [
        (
            "remote.log.storage.manager.class.name",
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        ),
        ("rsm.config.dir", dir.as_str()),
    ]
    .map(owned)
    .to_vec()
}

/// Settings of a store in S3 through Aiven's plugin, but for `rsm.config.chunk.size`.
pub fn s3_settings(endpoint: &str) -> Vec<(String, String)> {
    let storage = [
        (
            "backend.class",
            "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        ),
        ("s3.bucket.name", BUCKET),
        ("s3.region", "us-east-1"),
        ("s3.endpoint.url", endpoint),
        ("s3.path.style.access.enabled", "true"),
        ("aws.access.key.id", S3Server::ID),
        ("aws.secret.access.key", S3Server::SECRET),
    ];
    let mut settings = vec![owned((
        "remote.log.storage.manager.class.name",
        "io.aiven.kafka.tieredstorage.RemoteStorageManager",
    ))];
    for (key, value) in storage {
        settings.push((format!("rsm.config.storage.{key}"), value.to_owned()));
    }
    settings
}

/// Settings that encrypt the plugin's uploads, with a new key pair in `dir`.
pub fn encryption_settings(dir: &Path) -> Result<Vec<(String, String)>> {
    let (public, private) = (dir.join("public.pem"), dir.join("private.pem"));
    process::output_of(
        Command::new("openssl")
            .args(["genpkey", "-quiet", "-algorithm", "RSA"])
            .args(["-pkeyopt", "rsa_keygen_bits:2048", "-out"])
            .arg(&private),
    )?;
    process::output_of(
        Command::new("openssl")
            .args(["pkey", "-pubout", "-in"])
            .arg(&private)
            .arg("-out")
            .arg(&public),
    )?;
    let (public, private) = (public.display().to_string(), private.display().to_string());
    let encryption = [
        ("enabled", "true"),
        ("key.pair.id", "k1"),
        ("key.pairs", "k1"),
        ("key.pairs.k1.public.key.file", public.as_str()),
        ("key.pairs.k1.private.key.file", private.as_str()),
    ];
    Ok(encryption
        .map(|(key, value)| (format!("rsm.config.encryption.{key}"), value.to_owned()))
        .to_vec())
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// The first file with this extension below a folder.
pub fn first_file(folder: &Path, extension: &str) -> Result<PathBuf> {
    match files_below(folder, extension)?.into_iter().next() {
        Some(path) => Ok(path),
        None => bail!("no .{extension} is below {}", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_below_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        for name in ["b.log", "a/c.log", "a/d.index"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = files_below(dir.path(), "log").unwrap();
        let expected = ["a/c.log", "b.log"].map(|name| dir.path().join(name));
        assert_eq!(found, expected);
        assert_eq!(first_file(dir.path(), "log").unwrap(), expected[0]);
        assert!(first_file(dir.path(), "txt").is_err());
    }
}
