//! The profile of a run: time and processor use of each suite and in total.
//!
//! The table is printed at the end of a run and kept in `target/test-output/profile.md`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

/// The suites that compile. All others count as working, although some of them compile a little:
/// Java programs, the examples of the documentation.
pub const COMPILING: [&str; 3] = ["binary", "test-build", "clippy"];

/// The time and processor use of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    pub suite: &'static str,
    pub wall: Duration,
    /// Processor time of all its processes that were waited for.
    pub processor: Duration,
}

impl Measured {
    /// The share of its time in which a suite with one busy thread would have waited: for an event,
    /// or for a processor that another suite used.
    fn waiting(&self) -> f64 {
        (1.0 - share(self.processor, self.wall)).max(0.0)
    }
}

/// Writes the table into a file and prints it.
pub fn report(file: &Path, measured: &[Measured], whole: Duration) -> Result<()> {
    let processors = std::thread::available_parallelism()?.get();
    let table = table(measured, whole, processors);
    std::fs::write(file, &table)?;
    print!("{table}");
    Ok(())
}

fn table(measured: &[Measured], whole: Duration, processors: usize) -> String {
    let capacity = whole * u32::try_from(processors).unwrap_or(u32::MAX);
    let (mut compiling, mut working) = (Duration::ZERO, Duration::ZERO);
    for it in measured {
        match COMPILING.contains(&it.suite) {
            true => compiling += it.processor,
            false => working += it.processor,
        }
    }
    let shares = [compiling, working].map(|time| 100.0 * share(time, capacity));
    let rest = (100.0 - shares[0] - shares[1]).max(0.0);
    let mut text = format!(
        "{processors} processors for {}: {:.0} % compiling, {:.0} % working, {rest:.0} % idle or used by others\n\n",
        shown(whole),
        shares[0],
        shares[1],
    );
    text.push_str(
        "| suite | wall | CPU | CPU / wall | waiting |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    let mut rows = measured.to_vec();
    rows.sort_by_key(|it| std::cmp::Reverse(it.wall));
    for it in rows {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.2} | {:.0} % |",
            it.suite,
            shown(it.wall),
            shown(it.processor),
            share(it.processor, it.wall),
            100.0 * it.waiting(),
        );
    }
    text
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() {
        return 0.0;
    }
    part.as_secs_f64() / whole.as_secs_f64()
}

/// With tenths of a second below a minute.
pub(super) fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(suite: &'static str, wall: u64, processor: u64) -> Measured {
        Measured {
            suite,
            wall: Duration::from_secs(wall),
            processor: Duration::from_secs(processor),
        }
    }

    #[test]
    fn the_processors_time_is_divided_into_compiling_working_and_the_rest() {
        let all = [
            measured("clippy", 30, 40),
            measured("client", 50, 20),
            measured("unit", 40, 60),
        ];
        let table = table(&all, Duration::from_secs(100), 2);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "2 processors for 1 min 40 s: 20 % compiling, 40 % working, 40 % idle or used by others"
        );
        assert_eq!(lines[4], "| client | 50.0 s | 20.0 s | 0.40 | 60 % |");
        assert_eq!(lines[5], "| unit | 40.0 s | 1 min 00 s | 1.50 | 0 % |");
    }

    #[test]
    fn a_suite_that_took_no_time_has_no_share() {
        assert!(share(Duration::ZERO, Duration::ZERO) < f64::EPSILON);
    }
}
