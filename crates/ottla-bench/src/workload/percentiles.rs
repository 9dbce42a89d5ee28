//! Writes a distribution as text, in the format of HdrHistogram's percentile files (`.hgrm`), which
//! its plotter reads: value, percentile, number of records at or below it, and 1/(1-percentile).

use std::io::{self, Write};

use super::latencies::Latencies;

const TICKS_PER_HALF_DISTANCE: u32 = 5;
const NS_PER_US: f64 = 1000.0;

/// Writes the distribution, values in microseconds.
pub fn write_percentiles(latencies: &Latencies, out: &mut impl Write) -> io::Result<()> {
    let histogram = latencies.histogram();
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut below = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        below += step.count_since_last_iteration();
        let value = step.value_iterated_to().min(histogram.max()) as f64 / NS_PER_US;
        let quantile = step.quantile_iterated_to();
        write!(out, "{value:12.3} {quantile:2.12} {below:10}")?;
        if quantile < 1.0 {
            writeln!(out, " {:14.2}", 1.0 / (1.0 - quantile))?
        } else {
            writeln!(out)?
        }
    }
    writeln!(
        out,
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]",
        histogram.mean() / NS_PER_US,
        histogram.stdev() / NS_PER_US
    )?;
    writeln!(
        out,
        "#[Max     = {:12.3}, Total count    = {:12}]",
        histogram.max() as f64 / NS_PER_US,
        histogram.len()
    )?;
    writeln!(
        out,
        "#[Buckets = {:12}, SubBuckets     = {:12}]",
        histogram.buckets(),
        histogram.distinct_values() / (usize::from(histogram.buckets()) + 1) * 2
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_every_record_and_ends_at_the_maximum() {
        let mut latencies = Latencies::default();
        for microseconds in 1..=1000 {
            latencies.record_ns(microseconds * 1000);
        }
        let mut text = Vec::new();
        write_percentiles(&latencies, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let numbers = line.split_whitespace().map(|word| word.parse().unwrap());
                numbers.collect()
            })
            .collect();
        assert!(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"));
        assert_eq!(rows[0][2], 1.0);
        let last = rows.last().unwrap();
        assert!((last[0] - 1000.0).abs() <= 1.0, "{last:?}");
        assert_eq!((last[1], last[2]), (1.0, 1000.0));
        let median = rows.iter().find(|row| row[1] >= 0.5).unwrap();
        assert!(
            (median[0] - 500.0).abs() <= 1.0 && median[3] == 2.0,
            "{median:?}"
        );
        assert!(text.contains("Total count    =         1000]"));
    }
}
