//! The cost of TLS and logins: one node with a listener for each protocol, with the same P-256
//! certificate, cipher suite and users for every broker.
//!
//! A turn has two parts. In the first the broker has the whole machine, as in the group `node`. In
//! the second it is started again on the same directory, held to one core by `taskset`; the load
//! generator has the other cores, so that it neither takes from the broker nor limits it as long as
//! the broker's core is busy, which is shown. Plaintext and TLS alternate, and each round begins
//! with the other one.
//!
//! New connections count once ApiVersions is answered over them, and logins once the broker has proved
//! that it knows the credential. The generator verifies the broker's certificate, but derives the salted
//! password of SCRAM once: each client of a cluster would pay for that on its own machine.
//!
//! A peer that does not survive a turn is reported and lacks its figures; Ottla's failure is an error.

mod node;

use anyhow::{Context, Result};
use serde_json::Value;

use super::broker;
use super::disk::Scratch;
use super::load::number_at;
use super::setting::Setting;
use super::table::Results;
use node::{Cores, Listener, Secured, Started};

const COMPARED: [Listener; 2] = [Listener::Plain, Listener::Tls];
/// How often plaintext and TLS are measured in a turn.
const TURNS: usize = 2;
/// The part of `--gigabytes` that a run on one core produces.
const ON_ONE_CORE: f64 = 0.4;
const WARM_UP: f64 = 0.3;

pub fn settings_in_words(gigabytes: f64) -> String {
    format!(
        "{} {}, a P-256 certificate, SCRAM-SHA-256 with 4096 iterations; {gigabytes} GB over TLS with 4 connections; \
         p99 of {TURNS} × 5 s; one connection with {TURNS} × {} GB and new connections of 4 threads for 5 s after 4 s, \
         with the broker on one core and the load generator on the others",
        node::TLS_VERSION,
        node::CIPHER_SUITE,
        gigabytes * ON_ONE_CORE
    )
}

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let cores = Cores::of_this_machine()?;
    setting.alternate(results, |side, round, results| {
        let peer = setting.sides[side];
        let mut turn = Turn {
            gigabytes: setting.options.gigabytes_or(1.0),
            round,
            measured: Vec::new(),
        };
        let bytes = turn.gigabytes * 1e9 * 3.0 + 500e6;
        let scratch = Scratch::new(&format!("security-{}", peer.id()), bytes as u64)?;
        let outcome = Secured::prepare(setting, peer, scratch.path())
            .and_then(|secured| turn.measure(&secured, &cores));
        for (measure, value) in turn.measured {
            results.add(side, round, format!("security: {measure}"), value);
        }
        setting.or_noted(side, round, results, outcome)
    })
}

struct Turn {
    gigabytes: f64,
    round: usize,
    measured: Vec<(String, f64)>,
}

impl Turn {
    fn measure(&mut self, secured: &Secured<'_>, cores: &Cores) -> Result<()> {
        let mut started = secured.start(None)?;
        self.throughput(&started).context("throughput with TLS")?;
        self.latency(&started).context("latency with TLS")?;
        broker::stop(&mut started.node)?;

        let mut started = secured.start(Some(cores))?;
        self.one_connection(&started).context("one connection")?;
        for (name, listener, flag) in [
            ("new TLS connections", Listener::Tls, "--no-resumption"),
            ("resumed TLS connections", Listener::Tls, ""),
            ("SCRAM-SHA-256 logins", Listener::Scram, ""),
        ] {
            self.connections(&started, name, listener, flag)
                .context(name)?;
        }
        broker::stop(&mut started.node)
    }

    fn add(&mut self, measure: &str, value: f64) {
        self.measured.push((measure.to_owned(), value));
    }

    fn throughput(&mut self, started: &Started<'_>) -> Result<()> {
        let bytes = self.gigabytes * 1e9;
        let report = started.load(
            Listener::Tls,
            &format!(
                "produce --topic tls --batch-bytes 65536 --bytes {bytes:.0} --warmup-bytes {:.0}",
                bytes * WARM_UP
            ),
        )?;
        self.add_throughput("TLS, 64 KiB batches", &report)?;
        let report = started.load(
            Listener::Tls,
            "fetch --topic tls --fetch-bytes 1048576 --delete-topic",
        )?;
        self.add_throughput("TLS, fetch 1 MiB", &report)
    }

    fn add_throughput(&mut self, name: &str, report: &Value) -> Result<()> {
        let rate = number_at(report, "/megabytes_per_second")?;
        let cpu = number_at(report, "/broker/cpu_seconds_per_gb")?;
        self.add(&format!("{name}: MB/s"), rate);
        self.add(&format!("{name}: broker CPU s per GB"), cpu);
        Ok(())
    }

    /// The p99 of plaintext and of TLS, and how they relate.
    fn latency(&mut self, started: &Started<'_>) -> Result<()> {
        let name = "produce at 10,000 records/s, p99";
        self.compare(name, "µs", started, |started, listener| {
            let report = started.load(
                listener,
                "produce-latency --topic latency --rate 10000 --seconds 5 --warmup-seconds 1",
            )?;
            number_at(&report, "/latency/p99_us")
        })
    }

    fn one_connection(&mut self, started: &Started<'_>) -> Result<()> {
        let bytes = self.gigabytes * ON_ONE_CORE * 1e9;
        let produce = |bytes: f64| {
            format!("produce --topic one --connections 1 --batch-bytes 65536 --bytes {bytes:.0}")
        };
        for listener in COMPARED {
            started.load(listener, &produce(bytes * WARM_UP))?;
        }
        let name = "one connection on one core, 64 KiB batches";
        self.compare(name, "MB/s", started, |started, listener| {
            let report = started.load(listener, &produce(bytes))?;
            number_at(&report, "/megabytes_per_second")
        })?;
        let name = "one connection on one core, fetch 1 MiB";
        self.compare(name, "MB/s", started, |started, listener| {
            let report = started.load(
                listener,
                "fetch --topic one --connections 1 --fetch-bytes 1048576",
            )?;
            number_at(&report, "/megabytes_per_second")
        })
    }

    /// Measures plaintext and TLS in turns; the mean of each counts.
    fn compare(
        &mut self,
        name: &str,
        unit: &str,
        started: &Started<'_>,
        measure: impl Fn(&Started<'_>, Listener) -> Result<f64>,
    ) -> Result<()> {
        let mut sums = [0.0; 2];
        for turn in 0..TURNS * COMPARED.len() {
            let which = (turn + self.round) % COMPARED.len();
            sums[which] += measure(started, COMPARED[which])?;
        }
        let [plain, tls] = sums.map(|sum| sum / TURNS as f64);
        self.add(&format!("{name}: plaintext, {unit}"), plain);
        self.add(&format!("{name}: TLS, {unit}"), tls);
        self.add(&format!("{name}: TLS / plaintext"), tls / plain);
        Ok(())
    }

    fn connections(
        &mut self,
        started: &Started<'_>,
        name: &str,
        listener: Listener,
        flag: &str,
    ) -> Result<()> {
        let report = started.load(
            listener,
            &format!("connect --threads 4 --seconds 5 --warmup-seconds 4 {flag}"),
        )?;
        let number = |pointer| number_at(&report, pointer);
        self.add(
            &format!("one core, {name}: a second"),
            number("/connections_per_second")?,
        );
        self.add(
            &format!("one core, {name}: a CPU second of the broker"),
            number("/connections")? / number("/broker_cpu_seconds")?,
        );
        self.add(
            &format!("one core, {name}: the broker's core is busy, %"),
            number("/broker_cpu_seconds")? / number("/seconds")? * 100.0,
        );
        if listener == Listener::Tls {
            self.add(
                &format!("one core, {name}: resumed, %"),
                number("/resumed_part")? * 100.0,
            );
        }
        Ok(())
    }
}
