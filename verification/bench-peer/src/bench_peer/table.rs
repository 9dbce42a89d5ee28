//! The results as a table: the median over the rounds with minimum and maximum, and the ratio
//! within each round. A measure may have several values in a round, which are compared in order.
//!
//! Sides are measured in turn: two brokers, or several clients of one. The last side is Ottla, and
//! is the numerator of the ratios.

use std::collections::BTreeMap;

use super::machine::Noise;

#[derive(Debug)]
pub struct Results {
    /// The sides' names, Ottla last.
    names: Vec<String>,
    /// In the order in which they were first measured.
    measures: Vec<String>,
    /// Measure and round to the values of each side.
    values: BTreeMap<(String, usize), Vec<Vec<f64>>>,
    noise: Vec<Noise>,
    /// Shown with the conditions.
    notes: Vec<String>,
}

impl Results {
    pub fn new(names: &[&str]) -> Results {
        Results {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            measures: Vec::new(),
            values: BTreeMap::new(),
            noise: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The index of Ottla's side.
    pub fn last_side(&self) -> usize {
        self.names.len() - 1
    }

    pub fn add(&mut self, side: usize, round: usize, measure: String, value: f64) {
        if !self.measures.contains(&measure) {
            self.measures.push(measure.clone());
        }
        let sides = self.values.entry((measure, round)).or_default();
        sides.resize(self.names.len(), Vec::new());
        sides[side].push(value);
    }

    pub fn add_noise(&mut self, noise: Noise) {
        self.noise.push(noise);
    }

    /// Adds facts about the conditions that the measurement reveals, and measures that failed.
    pub fn add_note(&mut self, note: String) {
        println!("    {note}");
        self.notes.push(note);
    }

    /// Prints the results of one side in one round.
    pub fn print_turn(&self, side: usize, round: usize) {
        for measure in &self.measures {
            let sides = self.values.get(&(measure.clone(), round));
            let values = sides.map_or(&[][..], |sides| &sides[side][..]);
            if !values.is_empty() {
                println!("    {measure}: {}", spread(values));
            }
        }
    }

    /// The values of one side, by round.
    pub fn side(&self, side: usize, measure: &str) -> Vec<f64> {
        let rounds = self.values.iter().filter(|((name, _), _)| name == measure);
        rounds
            .flat_map(|(_, sides)| &sides[side])
            .copied()
            .collect()
    }

    /// Ottla's value divided by another side's, by round.
    pub fn ratios(&self, side: usize, measure: &str) -> Vec<f64> {
        self.ratios_between(self.last_side(), side, measure)
    }

    /// One side's value divided by another's, by round.
    pub fn ratios_between(&self, of: usize, to: usize, measure: &str) -> Vec<f64> {
        let rounds = self.values.iter().filter(|((name, _), _)| name == measure);
        let ratios = rounds.flat_map(|(_, sides)| {
            let pairs = sides[of].iter().zip(&sides[to]);
            pairs.map(|(of, to)| of / to)
        });
        ratios.filter(|ratio| ratio.is_finite()).collect()
    }

    pub fn markdown(&self, conditions: &[String]) -> String {
        let ours = &self.names[self.last_side()];
        let others = &self.names[..self.last_side()];
        let mut text = String::new();
        for line in conditions.iter().chain(&self.notes) {
            text.push_str(&format!("- {line}\n"));
        }
        let gaps: Vec<f64> = self
            .noise
            .iter()
            .map(|noise| noise.longest_gap_ms)
            .collect();
        let lost: Vec<f64> = self.noise.iter().map(|noise| noise.lost_percent).collect();
        text.push_str(&format!(
            "- the machine's own noise, a thread that only looks at the clock for 2 s before each run: longest gap \
             {} ms, {} % of the time lost\n\n",
            spread(&gaps),
            spread(&lost)
        ));
        let ratios = others.iter().map(|name| format!("{ours} / {name}"));
        let heads: Vec<String> = self.names.iter().cloned().chain(ratios).collect();
        text.push_str(&format!("| measure | {} |\n", heads.join(" | ")));
        text.push_str(&format!("| ---{} |\n", " | ---".repeat(heads.len())));
        for measure in &self.measures {
            let values = (0..self.names.len()).map(|side| spread(&self.side(side, measure)));
            let ratios = (0..others.len()).map(|side| spread(&self.ratios(side, measure)));
            let cells: Vec<String> = values.chain(ratios).collect();
            text.push_str(&format!("| {measure} | {} |\n", cells.join(" | ")));
        }
        text
    }
}

/// The median, with minimum and maximum if there are several values.
pub fn spread(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.as_slice() {
        [] => "–".to_owned(),
        [one] => number(*one),
        [lowest, .., highest] => {
            format!(
                "{} ({}–{})",
                number(median(&sorted)),
                number(*lowest),
                number(*highest)
            )
        }
    }
}

pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Formats a number with about three significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 10_000.0 => {
            let digits = format!("{value:.0}");
            let mut grouped = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index) % 3 == 0 && !grouped.ends_with('-') {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_medians_and_ratios_within_a_round() {
        let mut results = Results::new(&["Apache Kafka", "Ottla"]);
        for (round, (theirs, ours)) in [(10.0, 1.0), (20.0, 4.0), (30.0, 2.0)]
            .into_iter()
            .enumerate()
        {
            results.add(0, round, "CPU".to_owned(), theirs);
            results.add(1, round, "CPU".to_owned(), ours);
        }
        let text = results.markdown(&["commit x".to_owned()]);
        let row = "| CPU | 20.0 (10.0–30.0) | 2.00 (1.00–4.00) | 0.100 (0.067–0.200) |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn the_last_of_several_sides_is_compared_with_each() {
        let mut results = Results::new(&["Java", "librdkafka", "Ottla"]);
        for (side, value) in [2.0, 4.0, 8.0].into_iter().enumerate() {
            results.add(side, 0, "rate".to_owned(), value);
        }
        let text = results.markdown(&[]);
        assert!(
            text.contains(
                "| measure | Java | librdkafka | Ottla | Ottla / Java | Ottla / librdkafka |"
            ),
            "{text}"
        );
        assert!(
            text.contains("| rate | 2.00 | 4.00 | 8.00 | 4.00 | 2.00 |"),
            "{text}"
        );
    }

    #[test]
    fn an_unmeasured_side_is_not_zero() {
        let mut results = Results::new(&["a", "b"]);
        results.add(0, 0, "x".to_owned(), 5.0);
        assert!(results.markdown(&[]).contains("| x | 5.00 | – | – |"));
    }

    #[test]
    fn several_values_of_a_round_are_compared_in_order() {
        let mut results = Results::new(&["a", "b"]);
        for (theirs, ours) in [(10.0, 1.0), (20.0, 4.0)] {
            results.add(0, 0, "x".to_owned(), theirs);
            results.add(1, 0, "x".to_owned(), ours);
        }
        let text = results.markdown(&[]);
        let row = "| x | 15.0 (10.0–20.0) | 2.50 (1.00–4.00) | 0.150 (0.100–0.200) |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn numbers_have_about_three_digits() {
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!(number(123.4), "123");
        assert_eq!(number(0.0123), "0.012");
        assert_eq!(median(&[1.0, 2.0, 3.0, 10.0]), 2.5);
    }
}
