//! `ottla completions` and `ottla man-pages`: files for shells and for `man`, generated from the
//! definition of the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

/// Print the completions for a shell.
///
/// bash: ottla completions bash > /etc/bash_completion.d/ottla
///
/// zsh: ottla completions zsh > "${fpath[1]}/_ottla"
///
/// fish: ottla completions fish > ~/.config/fish/completions/ottla.fish
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write a manual page for each command.
///
/// To read them: man -l DIR/ottla-topics.1
#[derive(Args, Debug)]
pub struct ManPagesArgs {
    /// The directory for the pages; it is created if missing.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn run(args: &CompletionsArgs, mut definition: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition, "ottla", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

pub fn write_man_pages(args: &ManPagesArgs, definition: clap::Command) -> ExitCode {
    let written = std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(definition, &args.dir));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "ottla: {}: {error}; give another directory",
                args.dir.display()
            );
            ExitCode::FAILURE
        }
    }
}
