//! `cargo xtask codegen`: regenerates the schema files of `ottla-protocol` from Kafka's published
//! jars.
//!
//! The jars are resolved by Maven coordinates. The build script of `ottla-protocol` generates Rust
//! code from the schema files. With `--check` nothing is written and a difference is an error.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use ottla_peers::resolve_with_maven;
use ottla_workspace::workspace;

/// The Kafka version whose schemas are used.
const KAFKA_VERSION: &str = "4.4.0";

/// The artefacts that contain schemas.
const ARTEFACTS: [&str; 7] = [
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
    "kafka-raft",
    "kafka-storage",
];

#[derive(clap::Args)]
pub struct Options {
    /// Write nothing; fail if the committed files differ from the generated ones.
    #[arg(long)]
    check: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let folder = workspace::target_dir().join("codegen");
    let coordinates: Vec<String> = ARTEFACTS
        .iter()
        .map(|name| format!("org.apache.kafka:{name}:{KAFKA_VERSION}"))
        .collect();
    let libs = resolve_with_maven(&folder, &coordinates)?;
    let jars: Vec<PathBuf> = ARTEFACTS
        .iter()
        .map(|name| libs.join(format!("{name}-{KAFKA_VERSION}.jar")))
        .collect();
    let schemas = ottla_protocol_codegen::import(&jars)?;

    let schema_folder = workspace::root().join("crates/ottla-protocol/schema");
    for (name, text) in &schemas {
        let path = schema_folder.join(format!("{name}.schema"));
        if !options.check {
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
            println!("{}", path.display());
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(text) {
            bail!(
                "{} differs from Kafka's jars; run `cargo xtask codegen`",
                path.display()
            );
        }
    }
    if options.check {
        println!("{} schema files agree with Kafka's jars", schemas.len());
    }
    Ok(())
}
