//! The table of goals and results.

use anyhow::{Result, ensure};

/// A line of the table.
pub struct Line {
    what: String,
    goal: String,
    measured: String,
    /// `None` for a figure without a goal.
    is_met: Option<bool>,
}

impl Line {
    pub fn new(what: &str, goal: &str, measured: String, is_met: bool) -> Line {
        Line {
            what: what.to_owned(),
            goal: goal.to_owned(),
            measured,
            is_met: Some(is_met),
        }
    }

    pub fn shown(what: &str, measured: String) -> Line {
        Line {
            what: what.to_owned(),
            goal: String::new(),
            measured,
            is_met: None,
        }
    }

    pub fn is_missed(&self) -> bool {
        self.is_met == Some(false)
    }
}

pub fn print(lines: &[Line]) {
    let width = |of: fn(&Line) -> &String| {
        let widths = lines.iter().map(|it| of(it).chars().count());
        widths.max().unwrap_or(0)
    };
    let (what, goal) = (width(|it| &it.what), width(|it| &it.goal));
    println!();
    for line in lines {
        let verdict = match line.is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        println!(
            "{:what$}  {:goal$}  {verdict:6}  {}",
            line.what, line.goal, line.measured
        );
    }
}

/// The middle, the least and the most.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(values: &[f64]) -> Result<Spread> {
        ensure!(!values.is_empty(), "nothing was measured");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Ok(Spread {
            median: sorted[sorted.len() / 2],
            least: sorted[0],
            most: sorted[sorted.len() - 1],
        })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = usize::from(self.most < 100.0);
        let Spread {
            median,
            least,
            most,
        } = self;
        write!(f, "{median:.places$} ({least:.places$} to {most:.places$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_median() {
        let spread = Spread::of(&[3.0, 1.0, 200.0]).unwrap();
        assert_eq!(spread.to_string(), "3 (1 to 200)");
        assert!(Spread::of(&[]).is_err());
    }
}
