//! Makes a history of real clients for `ottla_testkit::client_histories`, and checks it: `cargo xtask exactly-once --work
//! histories` starts it, and kills brokers meanwhile.
//!
//! `client_histories BOOTSTRAP REPLICAS SEED FILE` makes the topics, says `ready`, and has processes send and poll until its
//! standard input ends. Then each ends what it has begun, two readers read everything, and what the check finds is printed:
//! `wrong: ` before what may not be, `seen: ` before what Kafka's transactions do not promise to be absent. The history is
//! written to the file.

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
/// How many sentences of each kind are printed.
const TOLD: usize = 5;

fn main() -> ExitCode {
    // On one thread: a consumer's listeners and interceptors need not be such that several threads could look at them.
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
    // Where nothing works nothing wrong can be seen.
    for (what, is_there) in [
        ("committed", has_committed(&history)),
        ("polled", has_polled(&history)),
    ] {
        if !is_there {
            wrong.push(format!("nothing was {what}"));
        }
    }
    for (kind, sentences) in client_histories::check(&history).iter() {
        let shown = sentences[..sentences.len().min(TOLD)].join("; ");
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

/// A thread waits for it: the runtime would not end before a read that never comes to its end.
async fn wait_for_the_end_of_input() -> Result<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let end = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = tell.send(end);
    });
    told.await.context("the thread that reads the input")??;
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

/// By those that sent at the same time; the readers at the end come after them.
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
