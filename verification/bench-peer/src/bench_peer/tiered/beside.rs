//! What runs beside the tail of a topic while its latency is measured: readers of old records; and as
//! a control, processes that only use the processors. What the control costs is the machine's part.
//!
//! Three priorities, because readers and store are on this machine, and share its processors with the
//! broker: the same as the broker's; niceness 19; and idle, which leaves a processor at once when any
//! other process wants it, as if readers and store were on other machines. Niceness is not enough for
//! that: since Linux 6.6, a process that wakes up waits for the end of the slice of the running one.
//!
//! In use, readers and store do have machines of their own. So the readers are also measured at fixed
//! rates, which leave processor time unused on average. While a chunk is received, store and broker may still
//! keep one processor busy each. So 40 MB/s are also measured with readers and store of idle priority, and 250,
//! about what Kafka's cold readers reach without a limit: what remains of the effect then is the broker's.

use std::io::Read;
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ottla_workspace::process::{self, OwnedChild};

use crate::bench_peer::load::{number_at, report};

const SPINNERS: usize = 10;
/// Until everything runs.
const BEGIN: Duration = Duration::from_secs(2);
/// For the last responses of the readers.
const END: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    Normal,
    Nice,
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Spinners(Priority),
    /// With [`Priority::Idle`], the store is idle too. They read this many MB/s together, or as fast as they
    /// can.
    ColdReaders(Priority, Option<u32>),
}

/// In the order of the measurement. Readers are last, those that read the most after the others: the
/// memory after them is measured too.
pub const CASES: [(&str, Option<Beside>); 11] = [
    ("", None),
    (
        " with spinning processes",
        Some(Beside::Spinners(Priority::Normal)),
    ),
    (
        " with spinning processes at nice 19",
        Some(Beside::Spinners(Priority::Nice)),
    ),
    (
        " with spinning processes of idle priority",
        Some(Beside::Spinners(Priority::Idle)),
    ),
    (
        " with cold readers at 40 MB/s",
        Some(Beside::ColdReaders(Priority::Normal, Some(40))),
    ),
    (
        " with cold readers at 40 MB/s and store of idle priority",
        Some(Beside::ColdReaders(Priority::Idle, Some(40))),
    ),
    (
        " with cold readers at 100 MB/s",
        Some(Beside::ColdReaders(Priority::Normal, Some(100))),
    ),
    (
        " with cold readers at 250 MB/s and store of idle priority",
        Some(Beside::ColdReaders(Priority::Idle, Some(250))),
    ),
    (
        " with cold readers",
        Some(Beside::ColdReaders(Priority::Normal, None)),
    ),
    (
        " with cold readers at nice 19",
        Some(Beside::ColdReaders(Priority::Nice, None)),
    ),
    (
        " with cold readers and store of idle priority",
        Some(Beside::ColdReaders(Priority::Idle, None)),
    ),
];

impl Priority {
    fn launcher(self) -> Vec<String> {
        let words: &[&str] = match self {
            Priority::Normal => &[],
            Priority::Nice => &["nice", "-n", "19"],
            Priority::Idle => &["chrt", "--idle", "0"],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }
}

/// Ends when dropped, but only [`Running::end`] gives the store its priority back.
pub enum Running {
    Spinners(Vec<OwnedChild>),
    ColdReaders {
        process: OwnedChild,
        /// They read until it is closed.
        input: ChildStdin,
        output: ChildStdout,
        idle_store: Option<u32>,
    },
}

impl Beside {
    /// `readers` gives the command of the readers, from the words that start it and the rate in MB/s.
    /// `store` is the process of the store, if it has one.
    pub fn start(
        self,
        readers: impl FnOnce(Vec<String>, Option<u32>) -> Result<Command>,
        store: Option<u32>,
    ) -> Result<Running> {
        let running = match self {
            Beside::Spinners(priority) => {
                let spin = || {
                    let mut command = Command::new("sh");
                    command.args(["-c", "while :; do :; done"]);
                    OwnedChild::start(&mut process::started_by(&priority.launcher(), command))
                };
                let spinners: Result<Vec<_>> = (0..SPINNERS).map(|_| spin()).collect();
                Running::Spinners(spinners?)
            }
            Beside::ColdReaders(priority, rate) => {
                let idle_store = store.filter(|_| priority == Priority::Idle);
                if let Some(store) = idle_store {
                    set_policy(store, "--idle")?;
                }
                Running::read(readers(priority.launcher(), rate)?, idle_store)?
            }
        };
        std::thread::sleep(BEGIN);
        Ok(running)
    }
}

impl Running {
    fn read(mut command: Command, idle_store: Option<u32>) -> Result<Running> {
        let (process, input, output) = OwnedChild::converse(&mut command)?;
        Ok(Running::ColdReaders {
            process,
            input,
            output,
            idle_store,
        })
    }

    /// Fails if it has ended before. Returns the MB/s of readers.
    pub fn end(self) -> Result<Option<f64>> {
        match self {
            Running::Spinners(spinners) => {
                for mut spinner in spinners {
                    let ended = spinner.try_wait()?;
                    ensure!(ended.is_none(), "a spinning process ended: {ended:?}");
                    spinner.kill()?;
                }
                Ok(None)
            }
            Running::ColdReaders {
                mut process,
                input,
                mut output,
                idle_store,
            } => {
                let ended = process.try_wait()?;
                ensure!(ended.is_none(), "the cold readers ended early: {ended:?}");
                if let Some(store) = idle_store {
                    set_policy(store, "--other").context(
                        "the S3 server cannot have its priority back; this needs CAP_SYS_NICE, or \
                         `ulimit -e 20`",
                    )?;
                }
                drop(input);
                let mut printed = String::new();
                output.read_to_string(&mut printed)?;
                let status = process.wait(END)?.context("the cold readers do not end")?;
                ensure!(status.success(), "the cold readers failed: {status}");
                number_at(&report(&printed)?, "/megabytes_per_second").map(Some)
            }
        }
    }
}

/// Changes the scheduling policy of all threads of a process.
fn set_policy(pid: u32, policy: &str) -> Result<()> {
    let mut command = Command::new("chrt");
    command.args(["--all-tasks", policy, "--pid", "0", &pid.to_string()]);
    process::output_of(&mut command).map(drop)
}
