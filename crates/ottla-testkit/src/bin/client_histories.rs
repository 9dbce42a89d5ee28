//! Generates and checks a history of real clients for `ottla_testkit::client_histories`. `cargo
//! xtask exactly-once --work histories` starts this program and kills brokers while it runs.
//!
//! `client_histories BOOTSTRAP REPLICAS SEED FILE` creates the topics, prints `ready`, and runs
//! client processes that send and poll until standard input ends. Then each process completes its
//! open operation, two readers read all logs, and the findings are printed: `wrong: ` marks a
//! violation, `seen: ` an anomaly that Kafka's transactions do not rule out. The history is written
//! to FILE.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ottla_testkit::client_histories::workload::{self, Scene};
use ottla_testkit::client_histories::{self, Operation, Outcome, Step};
use tokio::task::LocalSet;

const WORKERS: u32 = 6;
/// Maximum number of findings printed per kind.
const SHOWN: usize = 5;

fn main() -> ExitCode {
    // Single-threaded, because a consumer's listeners and interceptors need not be `Sync`.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| LocalSet::new().block_on(&runtime, run()));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, replicas, seed, file] = arguments.as_slice() else {
        bail!("BOOTSTRAP REPLICAS SEED FILE");
    };
    let (replicas, seed): (i16, u64) = (replicas.parse()?, seed.parse()?);
    let began = Instant::now();
    let scene = Arc::new(Scene {
        bootstrap: bootstrap.clone(),
        clock: Box::new(move || began.elapsed().as_micros() as u64),
        is_over: AtomicBool::new(false),
        pause: Duration::ZERO,
    });
    scene.create_topics(replicas).await?;
    println!("ready");
    let workers = (0..WORKERS).map(|process| {
        let seed = seed * 100 + u64::from(process);
        tokio::task::spawn_local(workload::work(scene.clone(), process, seed))
    });
    let workers: Vec<_> = workers.collect();
    wait_for_the_end_of_input().await?;
    scene.is_over.store(true, Ordering::Relaxed);

    let mut history = Vec::new();
    let mut wrong = Vec::new();
    for (process, worker) in workers.into_iter().enumerate() {
        let (operations, fault) = worker.await?;
        history.extend(operations);
        wrong.extend(fault.map(|fault| format!("process {process}: {fault}")));
    }
    for process in [100, 101] {
        let (operations, faults) = workload::read_all(&scene, process).await?;
        history.extend(operations);
        wrong.extend(faults);
    }
    write_down(file, &history)?;
    println!("{}", counts(&history));
    // A history without successful operations cannot show a violation.
    for (what, is_there) in [
        ("committed", has_committed(&history)),
        ("polled", has_polled(&history)),
    ] {
        if !is_there {
            wrong.push(format!("nothing was {what}"));
        }
    }
    for (kind, sentences) in client_histories::check(&history).iter() {
        let shown = sentences[..sentences.len().min(SHOWN)].join("; ");
        let line = format!("{kind}: {}: {shown}", sentences.len());
        match kind.is_promised_absent() {
            true => wrong.push(line),
            false => println!("seen: {line}"),
        }
    }
    for line in &wrong {
        println!("wrong: {line}");
    }
    Ok(wrong.is_empty())
}

/// A separate thread reads, because dropping the runtime would block on a pending read of standard
/// input.
async fn wait_for_the_end_of_input() -> Result<()> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let end = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = sender.send(end);
    });
    receiver
        .await
        .context("the thread that reads the input")??;
    Ok(())
}

fn write_down(file: &str, history: &[Operation]) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(file).context(file.to_owned())?);
    for operation in history {
        writeln!(out, "{operation:?}")?;
    }
    Ok(out.flush()?)
}

fn has_committed(history: &[Operation]) -> bool {
    let is_sent = |step: &Step| matches!(step, Step::Sent { .. });
    history
        .iter()
        .any(|it| it.outcome == Outcome::Committed && it.steps.iter().any(is_sent))
}

/// Considers only the processes that also send; the final readers come after them.
fn has_polled(history: &[Operation]) -> bool {
    let mut steps = history
        .iter()
        .filter(|operation| operation.process < WORKERS)
        .flat_map(|operation| &operation.steps);
    steps.any(|step| matches!(step, Step::Polled { records, .. } if !records.is_empty()))
}

fn counts(history: &[Operation]) -> String {
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut sent, mut polled) = (0, 0);
    for operation in history {
        let steps = operation.steps.iter();
        let sends = steps.filter(|step| matches!(step, Step::Sent { .. }));
        let sends = sends.count();
        sent += sends;
        for step in &operation.steps {
            if let Step::Polled { records, .. } = step {
                polled += records.len();
            }
        }
        if sends > 0 {
            let outcome = match operation.outcome {
                Outcome::Committed => "committed",
                Outcome::Aborted => "aborted",
                Outcome::Unknown => "of unknown end",
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    format!("transactions: {outcomes:?}, {sent} values sent, {polled} records polled")
}
