//! `ottla install-scripts DIR`: links with the names of Kafka's scripts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use super::{Outcome, SCRIPTS, markdown};

/// Make links with the names of Kafka's scripts, so that what calls kafka-topics.sh calls this binary.
///
/// What stands there already and is not a link to an Ottla binary is left alone and named. Scripts that
/// are not served get no link; `--table` prints which they are, and why.
#[derive(Args, Debug)]
pub struct InstallScriptsArgs {
    /// The folder for the links; it is made if it does not exist.
    #[arg(value_name = "DIR", required_unless_present = "table")]
    dir: Option<PathBuf>,
    /// Print the table of Kafka's scripts and make no links.
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

/// What became of a link.
enum Linked {
    Made,
    /// It was there already, to this binary.
    Kept,
    /// It was there, to another Ottla binary.
    Moved(PathBuf),
    /// Something else has the name.
    Taken,
}

fn install(dir: &Path) -> anyhow::Result<ExitCode> {
    let binary = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .context("the path of this binary is not known")?;
    std::fs::create_dir_all(dir)
        .with_context(|| format!("{}: cannot be made; give a folder", dir.display()))?;
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
        "{made} links made in {}, {kept} were there already.",
        dir.display()
    );
    if taken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "Left alone, because they are not links to an Ottla binary: {}. Move them away, or give another \
         folder.",
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
        .with_context(|| format!("{} cannot be made", path.display()))?;
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
