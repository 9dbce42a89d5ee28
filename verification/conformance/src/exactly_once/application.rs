//! A Java process that is killed and restarted repeatedly, with the output of all its runs.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::Signal;

use ottla_workspace::process::OwnedChild;

pub(super) struct Application {
    pub(super) name: String,
    words: Vec<String>,
    output: PathBuf,
    child: OwnedChild,
}

impl Application {
    pub(super) fn start(dir: &Path, name: &str, words: Vec<String>) -> Result<Application> {
        let output = dir.join(format!("{name}.out"));
        let child = launch(&words, &output).with_context(|| name.to_owned())?;
        Ok(Application {
            name: name.to_owned(),
            words,
            output,
            child,
        })
    }

    pub(super) fn kill_and_start(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child = launch(&self.words, &self.output).with_context(|| self.name.clone())?;
        Ok(())
    }

    /// Makes the JVM print a thread dump into its output.
    pub(super) fn print_threads(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(_) => Ok(()),
            None => self.child.signal(Signal::QUIT),
        }
    }

    /// The exit status, if the process ended by itself.
    pub(super) fn ended(&mut self) -> Result<Option<String>> {
        let status = self.child.try_wait()?;
        Ok(status.map(|status| format!("{} ended by itself: {status}", self.name)))
    }

    /// The number of output lines with this prefix.
    pub(super) fn count(&self, beginning: &str) -> Result<usize> {
        let printed = std::fs::read_to_string(&self.output)?;
        let lines = printed.lines();
        Ok(lines.filter(|line| line.starts_with(beginning)).count())
    }
}

fn launch(words: &[String], output: &Path) -> Result<OwnedChild> {
    let output = OpenOptions::new().create(true).append(true).open(output)?;
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .stdout(output.try_clone()?)
        .stderr(output);
    OwnedChild::start(&mut command)
}
