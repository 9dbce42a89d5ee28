//! A metric for exposition: name, help, type, and its values by label.

use std::borrow::Cow;
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Monotonic until the broker restarts.
    Counter,
    Gauge,
}

/// A metric with all its samples.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// The Prometheus name, without the `_total` suffix that counters get there.
    pub name: String,
    pub help: &'static str,
    pub kind: Kind,
    pub samples: Vec<Sample>,
}

/// Key and value.
pub type Label = (Cow<'static, str>, String);

#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    pub labels: Vec<Label>,
    pub value: f64,
}

impl Family {
    pub fn new(kind: Kind, name: impl Into<String>, help: &'static str) -> Family {
        Family {
            name: name.into(),
            help,
            kind,
            samples: Vec::new(),
        }
    }

    pub fn counter(name: impl Into<String>, help: &'static str) -> Family {
        Family::new(Kind::Counter, name, help)
    }

    pub fn gauge(name: impl Into<String>, help: &'static str) -> Family {
        Family::new(Kind::Gauge, name, help)
    }

    /// Counters with one value each: name, help and value.
    pub fn counters<N: Into<String>, const COUNT: usize>(
        rows: [(N, &'static str, f64); COUNT],
    ) -> [Family; COUNT] {
        rows.map(|(name, help, value)| Family::counter(name, help).value(value))
    }

    /// Gauges with one value each: name, help and value.
    pub fn gauges<N: Into<String>, const COUNT: usize>(
        rows: [(N, &'static str, f64); COUNT],
    ) -> [Family; COUNT] {
        rows.map(|(name, help, value)| Family::gauge(name, help).value(value))
    }

    /// Adds a sample without labels.
    pub fn value(self, value: f64) -> Family {
        self.sample([] as [(&str, String); 0], value)
    }

    pub fn sample<K: Into<Cow<'static, str>>>(
        mut self,
        labels: impl IntoIterator<Item = (K, String)>,
        value: f64,
    ) -> Family {
        self.push(labels, value);
        self
    }

    pub fn push<K: Into<Cow<'static, str>>>(
        &mut self,
        labels: impl IntoIterator<Item = (K, String)>,
        value: f64,
    ) {
        let labels = labels.into_iter().map(|(key, value)| (key.into(), value));
        self.samples.push(Sample {
            labels: labels.collect(),
            value,
        });
    }
}

impl fmt::Display for Sample {
    /// All labels as one string: `topic=orders,partition=3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.labels.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}
