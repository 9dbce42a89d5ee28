//! `ottla install-scripts DIR`: links with the names of Kafka's scripts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use super::{Outcome, SCRIPTS, markdown};

/// Create links with the names of Kafka's scripts, so that callers of kafka-topics.sh call this
/// binary.
///
/// Existing files that are not links to an Ottla binary are kept and listed. Unsupported scripts get no
/// link; `--table` lists them with the reason.
#[derive(Args, Debug)]
#[command(override_usage = "ottla install-scripts <DIR>\n       ottla install-scripts --table")]
pub struct InstallScriptsArgs {
    /// The directory for the links; it is created if missing.
    #[arg(value_name = "DIR", required_unless_present = "table")]
    dir: Option<PathBuf>,
    /// Print the table of Kafka's scripts without creating links.
    #[arg(long, conflicts_with = "dir")]
    table: bool,
}

pub fn run(args: &InstallScriptsArgs) -> ExitCode {
    let Some(dir) = &args.dir else {
        print!("{}", markdown());
        return ExitCode::SUCCESS;
    };
    match install(dir) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The outcome for one link.
enum Linked {
    Made,
    /// The link already pointed to this binary.
    Kept,
    /// The link pointed to another Ottla binary, and was replaced.
    Moved(PathBuf),
    /// Another file has this name.
    Taken,
}

fn install(dir: &Path) -> anyhow::Result<ExitCode> {
    let binary = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .context("cannot find the path of this binary")?;
    std::fs::create_dir_all(dir).with_context(|| {
        format!(
            "{}: cannot create the directory; give another one",
            dir.display()
        )
    })?;
    let (mut made, mut kept) = (0, 0);
    let mut taken = Vec::new();
    for script in SCRIPTS {
        if !matches!(script.outcome, Outcome::Serves(..)) {
            continue;
        }
        let path = dir.join(format!("{}.sh", script.name));
        match link(&path, &binary)? {
            Linked::Made => {
                made += 1;
                println!("{} -> {}", path.display(), binary.display());
            }
            Linked::Kept => kept += 1,
            Linked::Moved(before) => {
                made += 1;
                println!(
                    "{} -> {} (was {})",
                    path.display(),
                    binary.display(),
                    before.display()
                );
            }
            Linked::Taken => taken.push(path.display().to_string()),
        }
    }
    println!(
        "{made} links created in {}, {kept} existed already.",
        dir.display()
    );
    if taken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "Kept, because they are not links to an Ottla binary: {}. Move them away, or give another \
         directory.",
        taken.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

fn link(path: &Path, binary: &Path) -> anyhow::Result<Linked> {
    let before = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            let target = std::fs::read_link(path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            if target == binary {
                return Ok(Linked::Kept);
            }
            if target.file_name() != Some("ottla".as_ref()) {
                return Ok(Linked::Taken);
            }
            std::fs::remove_file(path)
                .with_context(|| format!("{} cannot be replaced", path.display()))?;
            Some(target)
        }
        Ok(_) => return Ok(Linked::Taken),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => bail!("{}: {error}", path.display()),
    };
    std::os::unix::fs::symlink(binary, path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    Ok(before.map_or(Linked::Made, Linked::Moved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_this_product_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("ottla");
        let path = dir.path().join("kafka-topics.sh");
        assert!(matches!(link(&path, &binary).unwrap(), Linked::Made));
        assert!(matches!(link(&path, &binary).unwrap(), Linked::Kept));
        let newer = dir.path().join("newer/ottla");
        assert!(matches!(link(&path, &newer).unwrap(), Linked::Moved(before) if before == binary));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/opt/kafka/bin/kafka-topics.sh", &path).unwrap();
        assert!(matches!(link(&path, &binary).unwrap(), Linked::Taken));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "#!/bin/sh").unwrap();
        assert!(matches!(link(&path, &binary).unwrap(), Linked::Taken));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "#!/bin/sh");
    }
}
