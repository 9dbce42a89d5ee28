//! The binary to package: stripped, with its architecture and library requirements.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;

use ottla_workspace::process::{is_on_path, output_of};
use ottla_workspace::workspace;

/// Architectures that are packaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    pub fn debian(self) -> &'static str {
        match self {
            Architecture::X86_64 => "amd64",
            Architecture::Aarch64 => "arm64",
        }
    }

    pub fn rpm(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
        }
    }
}

#[derive(Debug)]
pub struct Binary {
    /// The built binary, which can be executed here.
    pub path: PathBuf,
    /// The stripped binary.
    pub bytes: Vec<u8>,
    pub architecture: Architecture,
    /// The newest glibc version whose symbols it uses, as `2.34`; `None` if it is statically
    /// linked.
    pub glibc: Option<String>,
    /// Whether it needs GCC's `libgcc_s.so.1`.
    pub needs_libgcc: bool,
}

impl Binary {
    /// Reads and strips a binary.
    pub fn read(path: &Path) -> Result<Binary> {
        let path = path
            .canonicalize()
            .with_context(|| format!("{}: give the path of an ottla binary", path.display()))?;
        let bytes = stripped(&path)?;
        let architecture = architecture(&bytes).with_context(|| format!("{}", path.display()))?;
        Ok(Binary {
            architecture,
            glibc: newest_glibc(&bytes),
            needs_libgcc: memmem::find(&bytes, b"\0libgcc_s.so.1\0").is_some(),
            bytes,
            path,
        })
    }

    /// Builds the release binary.
    pub fn build() -> Result<Binary> {
        let mut cargo = workspace::cargo();
        cargo.args([
            "rustc",
            "--profile",
            "dist",
            "--package",
            "ottla",
            "--bin",
            "ottla",
            "--locked",
        ]);
        // Rust links with LLVM's linker here. It keeps functions with the same machine code once.
        if cfg!(all(
            target_arch = "x86_64",
            target_os = "linux",
            target_env = "gnu"
        )) {
            cargo.args(["--", "-C", "link-arg=-Wl,--icf=all"]);
        }
        let status = cargo.status().context("cannot start cargo")?;
        ensure!(status.success(), "the binary does not build");
        Binary::read(&workspace::target_dir().join("dist/ottla"))
    }

    /// The same, with only its first bytes packaged, for checks that do not run it.
    pub fn cut(&self, length: usize) -> Binary {
        let length = length.min(self.bytes.len());
        Binary {
            path: self.path.clone(),
            bytes: self.bytes[..length].to_vec(),
            glibc: self.glibc.clone(),
            ..*self
        }
    }

    /// Its output when run with these arguments.
    pub fn output(&self, arguments: &[&str]) -> Result<String> {
        output_of(Command::new(&self.path).args(arguments))
    }
}

/// Cargo keeps the symbol table, which is most of the file. `strip` is part of binutils, which
/// every C compiler needs.
fn stripped(path: &Path) -> Result<Vec<u8>> {
    ensure!(
        is_on_path("strip"),
        "there is no `strip`, which leaves out the symbols; it comes with: sudo apt-get install binutils"
    );
    let folder = tempfile::tempdir()?;
    let to = folder.path().join("ottla");
    output_of(Command::new("strip").arg("-o").arg(&to).arg(path))?;
    Ok(std::fs::read(&to)?)
}

/// Reads the header of an ELF file: class at byte 4, byte order at 5, machine at 18.
fn architecture(bytes: &[u8]) -> Result<Architecture> {
    ensure!(
        bytes.len() > 64 && bytes.starts_with(b"\x7fELF\x02\x01"),
        "not an ELF file of 64 bits, little-endian; give a binary for Linux"
    );
    match u16::from_le_bytes([bytes[18], bytes[19]]) {
        62 => Ok(Architecture::X86_64),
        183 => Ok(Architecture::Aarch64),
        other => bail!("ELF machine {other}: there are packages for x86_64 (62) and aarch64 (183)"),
    }
}

/// Symbol versions are strings in the file: `GLIBC_2.34`.
fn newest_glibc(bytes: &[u8]) -> Option<String> {
    const PREFIX: &[u8] = b"\0GLIBC_2.";
    let minors = memmem::find_iter(bytes, PREFIX).filter_map(|at| {
        let rest = &bytes[at + PREFIX.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits])
            .ok()?
            .parse::<u32>()
            .ok()
    });
    minors.max().map(|minor| format!("2.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 65];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    #[test]
    fn the_machine_is_read_from_the_header_and_others_are_refused() {
        assert_eq!(architecture(&elf(62)).unwrap(), Architecture::X86_64);
        assert_eq!(architecture(&elf(183)).unwrap(), Architecture::Aarch64);
        let refused = architecture(&elf(243)).unwrap_err().to_string();
        assert!(refused.contains("243"), "{refused}");
        assert!(architecture(b"#!/bin/sh\n").is_err());
    }

    #[test]
    fn the_newest_glibc_is_by_number_and_not_by_letter() {
        let table = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0";
        assert_eq!(newest_glibc(table).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc(b"static"), None);
    }
}
