//! `ottla version`: the version of this binary.

use std::process::ExitCode;

use clap::Args;
use ottla_metadata::MetadataVersion;
use serde_json::json;

/// The Kafka release that the tools report for `--version`, because they have its options.
pub const KAFKA_VERSION: &str = "4.3.1";
/// The newest Kafka release whose protocol is spoken, with all API versions and feature levels.
pub const PROTOCOL_VERSION: &str = "4.4.0";

/// Print the version of this binary and of the protocol that it speaks.
#[derive(Args, Debug)]
pub struct VersionArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &VersionArgs) -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    let metadata_version = MetadataVersion::LATEST_PRODUCTION.to_string();
    let platform = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let build = match cfg!(debug_assertions) {
        true => "debug",
        false => "release",
    };
    match args.json {
        true => println!(
            "{:#}",
            json!({
                "version": version,
                "kafka": KAFKA_VERSION,
                "protocol": PROTOCOL_VERSION,
                "metadata.version": metadata_version,
                "platform": platform,
                "build": build,
            })
        ),
        false => println!(
            "Ottla {version} ({platform}, {build} build)\nApache Kafka {PROTOCOL_VERSION} protocol, metadata.version up to \
             {metadata_version}"
        ),
    }
    ExitCode::SUCCESS
}
