//! Three copiers in two groups: one with manually assigned partitions, and two that share their
//! group's partitions.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::application::Application;
use super::{PARTITIONS, Stage};
use crate::seeded::Seeded;
use ottla_peers::java;
use ottla_workspace::process::{self, OwnedChild};

const SOURCE: &str = "source";
const TARGETS: [&str; 2] = ["copy-assigned", "copy-subscribed"];
/// Records per second.
const RATE: &str = "2000";
/// How long an incomplete copy may make no progress after the last kill. It exceeds the sum of the
/// clients' sequential timeouts: 20 s for a response, 30 s to close, 6 s for the session and 10 s
/// for the transaction.
const PATIENCE_SECONDS: &str = "120";
/// After its input has ended, the filler waits for its last acknowledgements.
const FILLER_PATIENCE: Duration = Duration::from_secs(180);

/// A copier process and its target topic.
struct Copier {
    application: Application,
    target: &'static str,
}

pub(super) fn run(stage: &mut Stage, kills: usize, random: &mut Seeded) -> Result<Vec<String>> {
    let (kafka, bootstrap) = (stage.kafka.clone(), stage.cluster.bootstrap());
    let with = |class: &str, arguments: &[&str]| -> Result<Vec<String>> {
        let mut words = java::program(&kafka, "exactlyonce", class)?;
        words.push(bootstrap.clone());
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        Ok(words)
    };
    let (replicas, partitions) = (stage.replicas().to_string(), PARTITIONS.to_string());
    let fill = with(
        "Fill",
        &[&replicas, &partitions, RATE, SOURCE, TARGETS[0], TARGETS[1]],
    )?;
    let mut command = Command::new(&fill[0]);
    command.args(&fill[1..]);
    let (mut filler, input, output) = OwnedChild::converse(&mut command)?;
    let mut output_lines = BufReader::new(output).lines();
    let ready = output_lines
        .next()
        .context("the topics were not created")??;
    ensure!(ready == "ready", "the filler said {ready}");

    let mut copiers = Vec::new();
    for (name, target, way) in [
        ("alone", TARGETS[0], "assigned"),
        ("first", TARGETS[1], "subscribed"),
        ("second", TARGETS[1], "subscribed"),
    ] {
        let words = with("Copier", &[name, target, SOURCE, target, way, "classic"])?;
        let application = Application::start(&stage.dir, name, words)?;
        copiers.push(Copier {
            application,
            target,
        });
    }
    stage.say("copiers are started");
    std::thread::sleep(Duration::from_secs(3));
    for number in 0..kills {
        std::thread::sleep(Duration::from_millis(500 + random.below(2500)));
        // In turn, so that a short run covers all of them.
        match number % 2 {
            0 => stage.kill_broker(random)?,
            _ => {
                let at = random.below(copiers.len() as u64) as usize;
                let copier = &mut copiers[at].application;
                copier.kill_and_start()?;
                stage.say(&format!("copier `{}` killed", copier.name()));
            }
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    drop(input);
    let counts: Vec<String> = output_lines
        .map(|line| Ok(line?.split_whitespace().last().unwrap_or("0").to_owned()))
        .collect::<Result<_>>()?;
    let status = filler.wait(FILLER_PATIENCE)?;
    ensure!(
        status.is_some_and(|status| status.success()) && counts.len() == PARTITIONS,
        "the filler ended with {status:?} and {counts:?}"
    );
    stage.say(&format!("filled: {}", counts.join(" + ")));

    let mut wrong = Vec::new();
    for target in TARGETS {
        let mut arguments = vec![target, PATIENCE_SECONDS];
        arguments.extend(counts.iter().map(String::as_str));
        let words = with("CheckCopy", &arguments)?;
        wrong.extend(finish(stage, &mut copiers, target, &words)?);
    }
    let mut ended = [0; 3];
    for copier in &mut copiers {
        wrong.extend(copier.application.ended()?);
        for (sum, beginning) in ended
            .iter_mut()
            .zip(["committed", "aborted", "begins again"])
        {
            *sum += copier.application.count(beginning)?;
        }
    }
    let [committed, aborted, begun_again] = ended;
    stage.say(&format!(
        "{committed} transactions committed, {aborted} aborted, {begun_again} times begun again"
    ));
    ensure!(committed > 0, "nothing was copied");
    Ok(wrong)
}

/// Checks a copy until it is complete, and returns the violations. Copiers may be slow, but a copy
/// without progress while all brokers are up is a violation. Thread dumps are then taken and the
/// copiers restarted, which shows whether the missing records were lost or merely stuck.
fn finish(
    stage: &Stage,
    copiers: &mut [Copier],
    target: &str,
    check: &[String],
) -> Result<Vec<String>> {
    let first = checked(stage, target, check)?;
    if !first.is_stuck() {
        return Ok(first.findings());
    }
    let mut wrong = first.findings();
    for copier in copiers.iter_mut().filter(|it| it.target == target) {
        copier.application.print_threads()?;
    }
    for copier in copiers.iter_mut().filter(|it| it.target == target) {
        wrong.extend(copier.application.ended()?);
        copier.application.kill_and_start()?;
    }
    let second = checked(stage, target, check)?;
    wrong.extend(second.findings_of_new_copiers());
    Ok(wrong)
}

/// Reads a copy until it is complete or has made no progress for the patience period.
fn checked(stage: &Stage, target: &str, check: &[String]) -> Result<Checked> {
    let mut command = Command::new(&check[0]);
    command.args(&check[1..]);
    let checked = process::run_captured(&mut command)?;
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    stage.say(&format!(
        "{target}: {}",
        printed.lines().last().unwrap_or_default()
    ));
    let errors = String::from_utf8_lossy(&checked.stderr);
    Ok(Checked::of(target, &printed, &errors, checked.status))
}

/// The result of reading a copy.
#[derive(Debug)]
struct Checked {
    /// Records that are not the next number of their partition, or the failure of the check itself.
    wrong: Vec<String>,
    /// Partitions whose end is missing.
    missing: Vec<String>,
}

impl Checked {
    /// Parses the output and exit status of `CheckCopy`, whose errors are shown if it said nothing.
    fn of(target: &str, printed: &str, errors: &str, status: ExitStatus) -> Checked {
        let said = |prefix: &str| -> Vec<String> {
            let lines = printed.lines();
            let findings = lines.filter_map(|line| line.strip_prefix(prefix));
            findings.map(str::to_owned).collect()
        };
        let (mut wrong, missing) = (said("wrong: "), said("missing: "));
        if !status.success() && wrong.is_empty() && missing.is_empty() {
            wrong.push(format!(
                "the check of {target} ended with {status}: {errors}"
            ));
        }
        Checked { wrong, missing }
    }

    /// Whether the records are correct but incomplete. If a record is wrong, the end may be missing
    /// because the check stopped.
    fn is_stuck(&self) -> bool {
        self.wrong.is_empty() && !self.missing.is_empty()
    }

    /// The findings when the copiers ran without a restart.
    fn findings(&self) -> Vec<String> {
        self.say_of_missing("nothing comes")
    }

    /// The findings after a restart of the copiers, because new copiers may deliver missing
    /// records.
    fn findings_of_new_copiers(&self) -> Vec<String> {
        self.say_of_missing("lost")
    }

    fn say_of_missing(&self, what: &str) -> Vec<String> {
        let missing = self.missing.iter().map(|it| format!("{what}: {it}"));
        self.wrong.iter().cloned().chain(missing).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const MISSING: &str = "missing: copy-1 ends with 6 at offset 9, and should with 11";

    fn checked(lines: &[&str], code: i32) -> Checked {
        let status = ExitStatus::from_raw(code << 8);
        Checked::of("copy", &lines.join("\n"), "no broker", status)
    }

    #[test]
    fn a_complete_copy_is_no_finding() {
        let whole = checked(&["read 20"], 0);
        assert!(!whole.is_stuck());
        assert_eq!(whole.findings(), [""; 0]);
    }

    /// The copiers are then restarted. The result is reported separately, and the need for a
    /// restart remains a finding.
    #[test]
    fn a_stalled_copy_is_a_finding() {
        let stuck = checked(&[MISSING, "read 15"], 1);
        assert!(stuck.is_stuck());
        let ends = "copy-1 ends with 6 at offset 9, and should with 11";
        assert_eq!(stuck.findings(), [format!("nothing comes: {ends}")]);

        assert_eq!(stuck.findings_of_new_copiers(), [format!("lost: {ends}")]);
        assert_eq!(checked(&["read 20"], 0).findings_of_new_copiers(), [""; 0]);
    }

    /// Duplicates and gaps are permanent, so there is no wait for the copiers and no restart.
    #[test]
    fn a_wrong_copy_is_not_reported_as_stalled() {
        let wrong = checked(
            &[
                "wrong: copy-0 at offset 4: 2 in place of 3",
                MISSING,
                "read 15",
            ],
            1,
        );
        assert!(!wrong.is_stuck());
        assert_eq!(wrong.findings().len(), 2);
    }

    #[test]
    fn a_check_that_fails_without_output_is_a_finding() {
        let broken = checked(&[], 1);
        assert!(!broken.is_stuck());
        assert_eq!(
            broken.findings(),
            ["the check of copy ended with exit status: 1: no broker"]
        );
    }
}
