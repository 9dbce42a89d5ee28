//! A Java process that is killed and restarted repeatedly, with the output of all its runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::Signal;

use ottla_workspace::process::LoggedChild;

/// The line after the threads in a dump of HotSpot.
const END_OF_DUMP: &str = "JNI global ref";
/// The longest wait for a thread dump.
const PRINTING: Duration = Duration::from_secs(60);

pub(super) struct Application {
    words: Vec<String>,
    output: PathBuf,
    process: LoggedChild,
}

impl Application {
    pub(super) fn start(dir: &Path, name: &str, words: Vec<String>) -> Result<Application> {
        let output = dir.join(format!("{name}.out"));
        let process = launch(&words, name, &output)?;
        Ok(Application {
            words,
            output,
            process,
        })
    }

    pub(super) fn name(&self) -> &str {
        self.process.name()
    }

    pub(super) fn kill_and_start(&mut self) -> Result<()> {
        self.process.kill()?;
        let name = self.process.name().to_owned();
        self.process = launch(&self.words, &name, &self.output)?;
        Ok(())
    }

    /// Makes the JVM print a thread dump into its output, and waits until it is there or the JVM seems
    /// to print none.
    pub(super) fn print_threads(&mut self) -> Result<()> {
        if self.process.try_wait()?.is_some() {
            return Ok(());
        }
        let before = self.count(END_OF_DUMP)?;
        self.process.signal(Signal::QUIT)?;
        let began = Instant::now();
        while self.count(END_OF_DUMP)? == before
            && self.process.try_wait()?.is_none()
            && began.elapsed() < PRINTING
        {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// The exit status and the last lines, if the process ended by itself.
    pub(super) fn ended(&mut self) -> Result<Option<String>> {
        let status = self.process.try_wait()?;
        Ok(status.map(|_| self.process.state()))
    }

    /// The number of output lines with this prefix.
    pub(super) fn count(&self, beginning: &str) -> Result<usize> {
        let printed = self.process.printed()?;
        let lines = printed.lines();
        Ok(lines.filter(|line| line.starts_with(beginning)).count())
    }
}

fn launch(words: &[String], name: &str, output: &Path) -> Result<LoggedChild> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    LoggedChild::start(&mut command, name, output)
}
