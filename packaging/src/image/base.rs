//! The base layer: a shell, common tools for container scripts, and the libraries that they and the
//! binary need, copied from the build machine.
//!
//! A shell is needed because Testcontainers starts Kafka's image with a bash script that it copies
//! into the container, and because users write entry points and health checks. The licences of the
//! copied files and a list of their packages are included.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use ottla_workspace::process::{is_on_path, output_of, run_captured};

use crate::binary::Binary;
use crate::contents::{Contents, Entry, Item, Role};

const PROGRAMS: &[&str] = &[
    "bash", "sh", "basename", "cat", "chmod", "chown", "cp", "cut", "date", "dirname", "echo",
    "env", "expr", "false", "find", "grep", "head", "id", "ln", "ls", "mkdir", "mktemp", "mv",
    "printf", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "sleep", "sort", "stat", "tail",
    "tee", "test", "timeout", "touch", "tr", "true", "uname", "uniq", "wc", "xargs",
];
/// Programs without which the image cannot replace Kafka's.
const NEEDED: &[&str] = &["bash", "sh", "sleep"];
/// Libraries that glibc loads by name at run time, in versions that still have them as separate
/// files.
const LOADED: &[&str] = &["libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"];
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The package list, in Debian's format.
pub const PACKAGES: &str = "/usr/share/ottla/base-packages";

pub fn layer(binary: &Binary) -> Result<Contents> {
    let mut files = BTreeMap::new();
    for name in PROGRAMS {
        match on_path(name) {
            Some(path) => _ = files.insert(format!("/usr/bin/{name}"), path),
            None => ensure!(
                !NEEDED.contains(name),
                "there is no `{name}` on the PATH, which the image needs a copy of"
            ),
        }
    }
    let programs: Vec<PathBuf> = files.values().cloned().collect();
    for library in libraries(&binary.path, &programs)? {
        files.insert(in_usr(&library), library);
    }
    if Path::new(CERTIFICATES).exists() {
        files.insert(CERTIFICATES.to_owned(), CERTIFICATES.into());
    }
    let mut all = Contents::new();
    let mut put = |path: String, item, mode| {
        let role = Role::Plain;
        all.insert(path, Entry { item, mode, role })
    };
    for (path, from) in &files {
        let bytes = fs::read(from).with_context(|| from.display().to_string())?;
        let mode = if path.starts_with("/etc/") {
            0o644
        } else {
            0o755
        };
        put(path.clone(), Item::File(bytes), mode);
    }
    for folder in ["bin", "sbin", "lib", "lib64"] {
        put(format!("/usr/{folder}"), Item::Directory, 0o755);
        put(
            format!("/{folder}"),
            Item::Link(format!("usr/{folder}")),
            0o777,
        );
    }
    for folder in ["/proc", "/sys", "/dev", "/run", "/root"] {
        put(folder.to_owned(), Item::Directory, 0o755);
    }
    let packages = packages(files.values())?;
    let mut list = String::new();
    for (name, version) in &packages {
        list.push_str(&format!("{name} {version}\n"));
        let licence = format!("/usr/share/doc/{name}/copyright");
        if let Ok(bytes) = fs::read(&licence) {
            put(licence, Item::File(bytes), 0o644);
        }
    }
    put(PACKAGES.to_owned(), Item::File(list.into_bytes()), 0o644);
    Ok(all)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(name));
    found.find(|path| path.is_file())?.canonicalize().ok()
}

/// The libraries of these programs and the dynamic loader, according to `ldd`.
fn libraries(binary: &Path, programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    ensure!(
        is_on_path("ldd"),
        "there is no `ldd`, which finds libraries; it comes with glibc (libc-bin)"
    );
    let mut found = BTreeSet::new();
    for program in programs.iter().map(PathBuf::as_path).chain([binary]) {
        // `ldd` fails for statically linked programs.
        let output = run_captured(Command::new("ldd").arg(program))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(
            !printed.contains("not found"),
            "libraries of {} are missing:\n{printed}",
            program.display()
        );
        found.extend(printed.lines().filter_map(library));
    }
    let folders: BTreeSet<PathBuf> = found
        .iter()
        .filter_map(|it| it.parent())
        .map(Path::to_owned)
        .collect();
    let loaded = folders
        .iter()
        .flat_map(|folder| LOADED.iter().map(|name| folder.join(name)));
    let loaded: Vec<PathBuf> = loaded.filter(|path| path.exists()).collect();
    found.extend(loaded);
    Ok(found)
}

/// The path in a line of `ldd`: `libc.so.6 => /lib/…/libc.so.6 (0x…)`, or for the loader
/// `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn library(line: &str) -> Option<PathBuf> {
    let line = line.trim();
    let path = line.split_once("=> ").map_or(line, |(_, path)| path);
    let path = path.split_whitespace().next()?;
    path.starts_with('/').then(|| path.into())
}

/// The path of a library in the image, where `/lib` and `/lib64` are symbolic links.
fn in_usr(path: &Path) -> String {
    let path = path.display().to_string();
    match path.starts_with("/lib") {
        true => format!("/usr{path}"),
        false => path,
    }
}

/// Names and versions of these files' Debian packages; empty on other systems.
fn packages<'a>(files: impl Iterator<Item = &'a PathBuf>) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    if !is_on_path("dpkg-query") {
        return Ok(found);
    }
    let mut search = Command::new("dpkg-query");
    search.arg("--search");
    for file in files {
        // With merged `/usr`, dpkg's database may have a path below `/lib` that is now below
        // `/usr/lib`, or vice versa.
        for path in [file.clone(), file.canonicalize()?] {
            let path = path.display().to_string();
            let other = match path.strip_prefix("/usr/") {
                Some(rest) => format!("/{rest}"),
                None => format!("/usr{path}"),
            };
            search.args([path, other]);
        }
    }
    // It fails if a path has no package, but prints the others: `libc6:amd64: /lib/…`.
    let output = run_captured(&mut search)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let is_of_package = |line: &&str| !line.starts_with("diversion ");
    let names = printed
        .lines()
        .filter(is_of_package)
        .filter_map(|line| line.split([':', ',']).next());
    let names: BTreeSet<&str> = names.collect();
    if names.is_empty() {
        return Ok(found);
    }
    let mut show = Command::new("dpkg-query");
    show.args(["--show", "--showformat=${Package} ${Version}\n"]);
    for line in output_of(show.args(names))?.lines() {
        if let Some((name, version)) = line.split_once(' ') {
            found.insert(name.to_owned(), version.to_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_prints() {
        let printed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tstatically linked\n";
        let found: Vec<String> = printed
            .lines()
            .filter_map(library)
            .map(|it| in_usr(&it))
            .collect();
        assert_eq!(
            found,
            [
                "/usr/lib/x86_64-linux-gnu/libc.so.6",
                "/usr/lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert_eq!(
            in_usr(Path::new("/usr/lib/libm.so.6")),
            "/usr/lib/libm.so.6"
        );
    }
}
