//! The project's goals, and whether the results meet them.
//!
//! The median over all measurements decides; those that miss the goal are mentioned.

use super::table::{Results, spread};

/// The bound of a goal.
#[derive(Debug, Clone, Copy)]
enum Bound {
    /// Ottla's value is at most this fraction of the peer's, in the same round.
    RatioAtMost(f64),
    RatioAtLeast(f64),
    /// Ottla's value is at least this fraction of the second side's, in the same round.
    RatioToSecondAtLeast(f64),
    /// The second of three sides, which is Ottla as well, is at most this fraction of the first.
    RatioOfSecondAtMost(f64),
    /// Ottla's own value is at most this.
    AtMost(f64),
    AtLeast(f64),
}

/// The measure's name in the table, its bound, and the bound in words.
struct Goal(&'static str, Bound, &'static str);

const TENTH: f64 = 0.1;
const EIGHTH: f64 = 0.125;
const FIFTH: f64 = 0.2;
const QUARTER: f64 = 0.25;
const THIRD: f64 = 1.0 / 3.0;
const HALF: f64 = 0.5;
/// Windows with a roll differ from windows without one by no more than windows differ anyway.
const NOT_VISIBLE: f64 = 1.5;

/// A hundred times as much costs no more than runs differ anyway.
const FLAT: f64 = 1.2;

use Bound::{
    AtLeast, AtMost, RatioAtLeast, RatioAtMost, RatioOfSecondAtMost, RatioToSecondAtLeast,
};

#[rustfmt::skip]
const GOALS: &[Goal] = &[
    Goal("ProducerPerformance: broker CPU s per GB of payload", RatioAtMost(TENTH), "≤ 1/10"),
    Goal("ProducerPerformance: records/s", RatioAtLeast(1.3), "≥ 1.3 ×"),
    Goal("ConsumerPerformance: broker CPU s per GB of payload", RatioAtMost(FIFTH), "≤ 1/5"),
    Goal("64 KiB batches: broker CPU s per GB", AtMost(0.6), "≤ 0.6"),
    Goal("64 KiB beside the bare loop: broker / loop", AtMost(1.3), "≤ 1.3"),
    Goal("8 KiB beside the bare loop: broker / loop", AtMost(1.4), "≤ 1.4"),
    Goal("fetch 1 MiB: broker CPU s per GB", AtMost(0.35), "≤ 0.35"),
    Goal("end to end: p50, µs", RatioAtMost(HALF), "≤ 1/2"),
    Goal("end to end: p99, µs", RatioAtMost(HALF), "≤ 1/2"),
    Goal("end to end: p99.9, µs", RatioAtMost(HALF), "≤ 1/2"),
    Goal("produce at 10,000 records/s: p50, µs", RatioAtMost(HALF), "≤ 1/2"),
    Goal("produce at 10,000 records/s: p99, µs", RatioAtMost(HALF), "≤ 1/2"),
    Goal("produce at 10,000 records/s: p99.9, µs", RatioAtMost(HALF), "≤ 1/2"),
    Goal("transaction of one record: p50, µs", RatioAtMost(HALF), "≤ 1/2"),
    Goal("transactions of 100 ms: part of idempotent", AtLeast(0.9), "≥ 0.9"),
    Goal("1,000 consumer members of 100 groups: settled after, ms", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("1,000 classic members of 100 groups: settled after, ms", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("100,000 offsets: exec to all served, ms", AtMost(1000.0), "under 1 s"),
    Goal("start-up: exec to first answer, ms", AtMost(50.0), "≤ 50 ms"),
    Goal("memory at rest, MB", AtMost(25.0), "≤ 25 MB"),
    Goal("memory after the load, MB", AtMost(100.0), "≤ 100 MB"),
    Goal("start-2000: exec to all partitions served, ms", RatioAtMost(TENTH), "≤ 1/10"),
    Goal("start-2000: exec to all partitions served, ms", AtMost(500.0), "under 500 ms (to be said)"),
    Goal("recovery: exec to all partitions served, ms", RatioAtMost(FIFTH), "≤ 1/5"),
    Goal("compaction: CPU s", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("compaction: time, s", RatioAtMost(1.0), "no longer"),
    Goal("rolls: produce p99.9, µs", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("rolls: p99.9 with a roll / without", AtMost(NOT_VISIBLE), "no roll visible: ≤ 1.5"),
    Goal("rolls: median of the maxima with a roll / without", AtMost(NOT_VISIBLE), "no roll visible: ≤ 1.5"),
    Goal("producer: records/s", AtLeast(3_000_000.0), "≥ 3 million"),
    Goal("producer: records/s", RatioAtLeast(4.0), "≥ 4 × Kafka's Java tool"),
    Goal("producer: records/s", RatioToSecondAtLeast(1.0), "≥ librdkafka"),
    Goal("consumer: records/s", AtLeast(5_000_000.0), "≥ 5 million"),
    Goal("consumer: records/s", RatioAtLeast(4.0), "≥ 4 × Kafka's Java tool"),
    Goal("consumer: records/s", RatioToSecondAtLeast(1.0), "≥ librdkafka"),
    Goal("failover: election: fenced to the first accepted write, ms", RatioAtMost(HALF), "all Ottla: ≤ 1/2"),
    Goal("failover: election: fenced to the first accepted write, ms", RatioOfSecondAtMost(1.0), "under Kafka's controller: no longer"),
    Goal("security: TLS, 64 KiB batches: broker CPU s per GB", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("security: TLS, fetch 1 MiB: broker CPU s per GB", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("security: one connection on one core, 64 KiB batches: TLS / plaintext", AtLeast(0.7), "≥ 0.7"),
    Goal("security: one connection on one core, fetch 1 MiB: TLS / plaintext", AtLeast(0.5), "≥ 0.5"),
    Goal("security: one core, new TLS connections: a second", RatioAtLeast(5.0), "≥ 5 ×"),
    Goal("security: one core, resumed TLS connections: a second", RatioAtLeast(5.0), "≥ 5 ×"),
    Goal("security: one core, SCRAM-SHA-256 logins: a second", RatioAtLeast(3.0), "≥ 3 ×"),
    Goal("security: produce at 10,000 records/s, p99: TLS / plaintext", AtMost(1.5), "≤ 1.5 × plaintext's"),
    Goal("cluster: Java producer, acks=1: records/s", RatioAtLeast(3.0), "≥ 3 ×"),
    Goal("cluster: Java producer, acks=all: records/s", RatioAtLeast(3.0), "≥ 3 ×"),
    Goal("cluster: Java producer, acks=all / acks=1", AtLeast(0.9), "≥ 0.9"),
    Goal("cluster: three native producers, acks=1: records/s", AtLeast(2_024_032.0), "≥ 2,024,032"),
    Goal("cluster: three native producers, acks=1 and batches of 64 kB: records/s", AtLeast(2_024_032.0), "≥ 2,024,032"),
    Goal("cluster: Java producer, acks=1: CPU s per GB, all brokers", RatioAtMost(EIGHTH), "≤ 1/8"),
    Goal("cluster: Java producer, acks=all: CPU s per GB, all brokers", RatioAtMost(EIGHTH), "≤ 1/8"),
    Goal("cluster: end to end, acks=all: p50, ms", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("cluster: end to end, acks=all: p99, ms", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("cluster: end to end, acks=all: p99.9, ms", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("cluster: first second of a new topic: p99.9, longest of 5, ms", AtMost(50.0), "≤ 50 ms"),
    Goal("cluster: first second of an election: p99.9, longest of 5, ms", AtMost(50.0), "≤ 50 ms"),
    Goal("cluster: first second of a reassignment: p99.9, longest of 5, ms", AtMost(50.0), "≤ 50 ms"),
    Goal("cluster: memory after the producers, the largest broker, MB", RatioAtMost(EIGHTH), "≤ 1/8"),
    Goal("cluster: many partitions: creation, led and in sync everywhere, ms", RatioAtMost(QUARTER), "≤ 1/4"),
    Goal("cluster: many partitions: idle, all brokers, % of a core", RatioAtMost(QUARTER), "≤ 1/4"),
    Goal("cluster: many partitions: restart, stop to all in sync, ms", RatioAtMost(QUARTER), "≤ 1/4"),
    Goal("cluster: many partitions: failover, fenced to writes by all, ms", RatioAtMost(QUARTER), "≤ 1/4"),
    Goal("partitions: not created, written, read and restarted", AtMost(0.0), "none of 200,000 with 20,000 handles"),
    Goal("partitions: memory of each, idle, bytes", AtMost(2048.0), "≤ 2 KB"),
    Goal("partitions: idle, % of a core", AtMost(1.0), "≤ 1 % with 100,000"),
    Goal("partitions: start after a stop, exec to all served, ms", AtMost(3000.0), "≤ 3 s with 100,000"),
    Goal("partitions: start after kill -9, exec to all served, ms", AtMost(10_000.0), "≤ 10 s with 100,000"),
    Goal("scale: produce, broker CPU s per GB, many partitions / 10", AtMost(1.5), "≤ 1.5"),
    Goal("scale: memory of a connection, bytes", AtMost(3072.0), "≤ 3 KB"),
    Goal("scale: CPU of a request at 10,000 connections, µs", AtMost(15.0), "≤ 15 µs"),
    Goal("scale: broker CPU s per GB, 1,000 consumers / 1", AtMost(1.2), "≤ 1.2"),
    Goal("stored: produce, broker CPU s per GB, most / least", AtMost(FLAT), "flat: ≤ 1.2"),
    Goal("stored: tail, p50, most / least", AtMost(FLAT), "flat: ≤ 1.2"),
    Goal("stored: catch-up, broker CPU s per GB, most / least", AtMost(FLAT), "flat: ≤ 1.2"),
    Goal("stored: start, most / least", AtMost(FLAT), "flat: ≤ 1.2"),
    Goal("100000 classic members of 10000 groups: broker, % of a core", AtMost(15.0), "≤ 15 %"),
    Goal("100000 consumer members of 10000 groups: broker, % of a core", AtMost(15.0), "≤ 15 %"),
    Goal("100000 classic members of 10000 groups: heartbeat p99, ms", AtMost(5.0), "≤ 5 ms"),
    Goal("100000 consumer members of 10000 groups: heartbeat p99, ms", AtMost(5.0), "≤ 5 ms"),
    Goal("a group of 10000 members: one leaves, settled after, ms", AtMost(2000.0), "≤ 2 s"),
    Goal("a group of 10000 members: produce p99 meanwhile / before", AtMost(2.0), "≤ 2 ×"),
    Goal("tiered: upload, plain: broker CPU s per GB", RatioAtMost(QUARTER), "≤ 1/4"),
    Goal("tiered: upload, zstd and encryption: broker CPU s per GB", RatioAtMost(THIRD), "≤ 1/3"),
    Goal("tiered: cold read: MB/s", RatioAtLeast(2.0), "≥ 2 ×"),
    Goal("tiered: cold read: broker CPU s per GB", RatioAtMost(QUARTER), "≤ 1/4"),
    Goal("tiered: first byte of a cold read: round trips", AtMost(2.0), "≤ 2"),
    Goal("tiered: tail producers: p99 with cold readers at 40 MB/s / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail producers: p99 with cold readers at 40 MB/s and store of idle priority / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail producers: p99 with cold readers at 250 MB/s and store of idle priority / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail producers: p99 with cold readers at 100 MB/s / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail producers: p99 with cold readers / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail producers: p99 with cold readers at nice 19 / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail producers: p99 with cold readers and store of idle priority / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail consumers: p99 with cold readers at 40 MB/s / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail consumers: p99 with cold readers at 40 MB/s and store of idle priority / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail consumers: p99 with cold readers at 250 MB/s and store of idle priority / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail consumers: p99 with cold readers at 100 MB/s / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail consumers: p99 with cold readers / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail consumers: p99 with cold readers at nice 19 / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: tail consumers: p99 with cold readers and store of idle priority / without", AtMost(1.2), "≤ 1.2"),
    Goal("tiered: memory 15 s after one reader: growth / caches that are set", AtMost(1.0), "what is set"),
    Goal("tiered: memory 15 s after the cold readers: growth / caches that are set", AtMost(1.0), "what is set"),
];

/// A table of the goals whose measures exist; empty if there are none.
pub fn markdown(results: &Results) -> String {
    let rows: Vec<String> = GOALS.iter().filter_map(|goal| row(goal, results)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading = "| measure | goal | measured | |\n| --- | --- | --- | --- |\n";
    format!("{heading}{}", rows.concat())
}

fn row(Goal(measure, bound, words): &Goal, results: &Results) -> Option<String> {
    let values = match bound {
        RatioAtMost(_) | RatioAtLeast(_) => results.ratios(0, measure),
        RatioToSecondAtLeast(_) => results.ratios(1, measure),
        RatioOfSecondAtMost(_) => results.ratios_between(1, 0, measure),
        AtMost(_) | AtLeast(_) => results.side(results.last_side(), measure),
    };
    let median = median_of(&values)?;
    let is_met = |value: f64| match bound {
        RatioAtMost(most) | RatioOfSecondAtMost(most) | AtMost(most) => value <= *most,
        RatioAtLeast(least) | RatioToSecondAtLeast(least) | AtLeast(least) => value >= *least,
    };
    let missed = values.iter().filter(|value| !is_met(**value)).count();
    let verdict = match (is_met(median), missed) {
        (true, 0) => "met".to_owned(),
        (true, _) => format!(
            "met by the median, missed in {missed} of {} measurements",
            values.len()
        ),
        (false, _) if missed == values.len() => "missed".to_owned(),
        (false, _) => format!("missed, in {missed} of {} measurements", values.len()),
    };
    Some(format!(
        "| {measure} | {words} | {} | {verdict} |\n",
        spread(&values)
    ))
}

fn median_of(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| super::table::median(&sorted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_judged_by_the_median_and_lists_each_round() {
        let mut results = Results::new(&["Kafka", "Ottla"]);
        for (round, (theirs, ours)) in [(10.0, 1.0), (10.0, 3.0), (10.0, 4.0)]
            .into_iter()
            .enumerate()
        {
            results.add(0, round, "compaction: CPU s".to_owned(), theirs);
            results.add(1, round, "compaction: CPU s".to_owned(), ours);
            results.add(1, round, "memory at rest, MB".to_owned(), 30.0);
        }
        let text = markdown(&results);
        let met = "| compaction: CPU s | ≤ 1/3 | 0.300 (0.100–0.400) | met by the median, missed in 1 of 3 measurements |";
        assert!(text.contains(met), "{text}");
        assert!(
            text.contains("| memory at rest, MB | ≤ 25 MB | 30.0 (30.0–30.0) | missed |"),
            "{text}"
        );
        assert!(!text.contains("records/s"), "{text}");

        let mut clients = Results::new(&["Java", "librdkafka", "Ottla"]);
        for (side, rate) in [1e6, 3.5e6, 3e6].into_iter().enumerate() {
            clients.add(side, 0, "producer: records/s".to_owned(), rate);
        }
        let text = markdown(&clients);
        for line in [
            "| ≥ 3 million | 3,000,000 | met |",
            "| ≥ 4 × Kafka's Java tool | 3.00 | missed |",
            "| ≥ librdkafka | 0.857 | missed |",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let mut clusters = Results::new(&["Kafka", "both", "Ottla"]);
        let measure = "failover: election: fenced to the first accepted write, ms";
        for (side, time) in [100.0, 110.0, 40.0].into_iter().enumerate() {
            clusters.add(side, 0, measure.to_owned(), time);
        }
        let text = markdown(&clusters);
        for line in [
            "| all Ottla: ≤ 1/2 | 0.400 | met |",
            "| under Kafka's controller: no longer | 1.10 | missed |",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(markdown(&Results::new(&["a", "b"])), "");
    }
}
