//! The journal of runs: which seeds this process has begun, and which have ended.
//!
//! A process that is ended by a signal cannot print the seed that it was running, and the test
//! harness loses what its tests have printed. `cargo xtask test` therefore names a file, to which
//! each run appends a line before it begins and another one after its end.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::thread;

/// The variable with the path of the file. Without it, there is no journal.
const VARIABLE: &str = "OTTLA_SEED_JOURNAL";

/// A run that has begun. It has ended when this is dropped.
pub(super) struct OpenRun {
    journal: Option<&'static File>,
}

impl OpenRun {
    /// Writes `begin THREAD SEED NAME`. The harness gives a test's thread the name of the test.
    pub(super) fn begin(seed: u64) -> OpenRun {
        let run = OpenRun { journal: journal() };
        let thread = thread::current();
        let name = thread.name().unwrap_or("a thread without a name");
        run.append(&format!("begin {:?} {seed} {name}\n", thread.id()));
        run
    }

    /// In one write, because other threads append too. A journal that cannot be written must not
    /// fail a run.
    fn append(&self, line: &str) {
        if let Some(mut journal) = self.journal {
            let _ = journal.write_all(line.as_bytes());
        }
    }
}

impl Drop for OpenRun {
    /// Writes `end THREAD`.
    fn drop(&mut self) {
        self.append(&format!("end {:?}\n", thread::current().id()));
    }
}

fn journal() -> Option<&'static File> {
    static JOURNAL: OnceLock<Option<File>> = OnceLock::new();
    let open = || {
        let path = std::env::var_os(VARIABLE)?;
        OpenOptions::new().append(true).open(path).ok()
    };
    JOURNAL.get_or_init(open).as_ref()
}
