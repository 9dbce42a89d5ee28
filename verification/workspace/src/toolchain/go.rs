//! The Go version required by `conformance/go/go.mod`: the Go on the `PATH` if it is recent enough,
//! otherwise a release that the older Go downloads from Go's module proxy.
//!
//! Go 1.21 and later would download it automatically, unless Debian disables that. Go 1.19, in
//! Debian 12, cannot even parse the file. Every version, asked for the toolchain module by name,
//! downloads it and verifies it against Go's checksum database.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{GO, Version, require};
use crate::process;

/// The option of `go build` and `go install` that links without symbols and debug information.
pub const STRIPPED: &str = "-ldflags=-s -w";

/// The path of a `go` that can build the module in this folder.
pub fn for_module(module: &Path) -> Result<PathBuf> {
    let found = require(&GO)?;
    let file = module.join("go.mod");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let wanted =
        go_line(&text).with_context(|| format!("{} has no line `go VERSION`", file.display()))?;
    if Version::first_in(wanted).is_some_and(|wanted| found >= wanted) {
        return Ok(PathBuf::from(GO.program));
    }
    bring(wanted).with_context(|| {
        format!(
            "`go` is of version {found}, {} asks for {wanted}, and that could not be fetched; install it from \
             https://go.dev/dl and put it on the PATH",
            file.display()
        )
    })
}

/// The version in the line `go 1.26.0` of a go.mod.
fn go_line(text: &str) -> Option<&str> {
    text.lines()
        .find_map(|line| line.trim().strip_prefix("go "))
        .map(str::trim)
}

fn bring(wanted: &str) -> Result<PathBuf> {
    let ask = |arguments: &[&str]| -> Result<String> {
        let mut command = Command::new(GO.program);
        // Outside any module, because an old Go would fail to parse its go.mod.
        command.args(arguments).current_dir(std::env::temp_dir());
        Ok(process::output_of(&mut command)?.trim().to_owned())
    };
    let (os, architecture) = (ask(&["env", "GOOS"])?, ask(&["env", "GOARCH"])?);
    let answer = ask(&[
        "mod",
        "download",
        "-json",
        &module_of(wanted, &os, &architecture),
    ])?;
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    let dir = answer["Dir"]
        .as_str()
        .context("go mod download named no directory")?;
    let dir = Path::new(dir);
    // Files of a module are not executable.
    make_executable(&dir.join("bin"))?;
    make_executable(&dir.join("pkg/tool").join(format!("{os}_{architecture}")))?;
    Ok(dir.join("bin").join(GO.program))
}

fn module_of(wanted: &str, os: &str, architecture: &str) -> String {
    format!("golang.org/toolchain@v0.0.1-go{wanted}.{os}-{architecture}")
}

fn make_executable(folder: &Path) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let file = entry?.path();
        if file.is_file() {
            std::fs::set_permissions(&file, Permissions::from_mode(0o755))
                .with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_required_version_is_read_from_the_module() {
        let text = "module ottla/conformance\n\ngo 1.26.0\n\nrequire (\n\tgo.example/x v1.0.0\n)\n";
        assert_eq!(go_line(text), Some("1.26.0"));
        assert_eq!(go_line("module x\n"), None);
        assert_eq!(
            module_of("1.26.0", "linux", "arm64"),
            "golang.org/toolchain@v0.0.1-go1.26.0.linux-arm64"
        );
    }

    #[test]
    fn files_of_a_folder_become_executable() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("compile");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        make_executable(dir.path()).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        assert!(make_executable(&dir.path().join("none")).is_err());
    }
}
