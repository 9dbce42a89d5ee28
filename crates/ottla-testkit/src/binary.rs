//! Locates the `ottla` binary for process tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of the broker binary: `OTTLA_BINARY` if it is set; in the tests of its own package the
/// binary that cargo has built with them; otherwise the binary of the running test's profile, which
/// is built first so that a test never runs a stale broker. That build takes a minute if it selects
/// other features than that of the tests.
///
/// # Panics
/// If the build fails.
pub fn ottla_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let mut named = ["OTTLA_BINARY", "CARGO_BIN_EXE_ottla"]
            .iter()
            .filter_map(std::env::var_os);
        named.next().map_or_else(build, PathBuf::from)
    })
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    // <target>/<profile>/deps/<test>
    let profile_dir = test
        .parent()
        .and_then(Path::parent)
        .unwrap_or_else(|| panic!("{} is not in a target directory", test.display()));
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(words("build --quiet --package ottla --bin ottla --profile"))
        .arg(profile)
        .arg("--target-dir")
        .arg(profile_dir.parent().unwrap_or(profile_dir))
        .current_dir(root)
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the broker's binary does not build");
    profile_dir.join("ottla")
}

/// The arguments of a command line without quotes.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}
