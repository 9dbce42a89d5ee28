//! Sampled series in memory, bounded in length and number.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::samples::{Sample, Unit};
use crate::sampling::{Sampling, SeriesRoom};

/// Four hours at the shortest interval.
const SAMPLES: usize = 1440;
/// Of one session.
const SERIES: usize = 4000;

/// A series of one thing, parallel to the sample times.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// `None` where it is unknown.
    pub(crate) values: Vec<Option<f64>>,
}

/// A part of the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// Exclusive, in milliseconds since 1970.
    pub(crate) since: i64,
    /// Inclusive.
    pub(crate) until: i64,
    /// Samples within the same step become one; 0 keeps all.
    pub(crate) step_ms: i64,
}

pub(super) struct History {
    times: VecDeque<i64>,
    /// By the thing and the name of the series.
    lines: BTreeMap<(String, String), Line>,
    sampling: Sampling,
    /// Whether the newest sample has a series for which there is no room.
    is_full: bool,
}

struct Line {
    unit: Unit,
    /// As long as the times; NaN where unknown.
    values: VecDeque<f32>,
    _room: SeriesRoom,
}

impl History {
    pub(super) fn new(sampling: Sampling) -> History {
        History {
            times: VecDeque::new(),
            lines: BTreeMap::new(),
            sampling,
            is_full: false,
        }
    }

    pub(super) fn add(&mut self, at: i64, samples: Vec<Sample>) {
        // The clock was set back. Without this, there would be no samples until the old time is reached again.
        while self.times.back().is_some_and(|last| *last >= at) {
            self.times.pop_back();
            for line in self.lines.values_mut() {
                line.values.pop_back();
            }
        }
        // Before the new ones are added, so that no series grows beyond its room.
        if self.times.len() == SAMPLES {
            self.times.pop_front();
            for line in self.lines.values_mut() {
                line.values.pop_front();
            }
            // The series of objects that are gone.
            self.lines
                .retain(|_, line| line.values.iter().any(|it| !it.is_nan()));
        }
        self.times.push_back(at);
        for line in self.lines.values_mut() {
            line.values.push_back(f32::NAN);
        }
        self.is_full = false;
        for sample in samples {
            self.set(sample);
        }
    }

    /// Its approximate memory.
    pub(super) fn bytes(&self) -> usize {
        let lines = self.lines.iter().map(|((of, name), line)| {
            let values = line.values.capacity() * size_of::<f32>();
            size_of::<((String, String), Line)>() + of.len() + name.len() + values
        });
        self.times.capacity() * size_of::<i64>() + lines.sum::<usize>()
    }

    fn set(&mut self, sample: Sample) {
        let key = (sample.of, sample.name);
        if let Some(last) = self.lines.get_mut(&key).and_then(|it| it.values.back_mut()) {
            *last = sample.value as f32;
            return;
        }
        let room = (self.lines.len() < SERIES).then(|| self.sampling.room());
        let Some(room) = room.flatten() else {
            self.is_full = true;
            return;
        };
        let mut values = VecDeque::with_capacity(SAMPLES);
        values.extend(std::iter::repeat_n(f32::NAN, self.times.len() - 1));
        values.push_back(sample.value as f32);
        let line = Line {
            unit: sample.unit,
            values,
            _room: room,
        };
        self.lines.insert(key, line);
    }

    /// Whether some series are missing because there is no room for them.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.times = VecDeque::new();
        self.lines.clear();
        self.is_full = false;
    }

    /// The times in a range, and the series of a thing at these times. A step has the time of its
    /// last sample.
    pub(super) fn read(&self, of: &str, range: Range) -> (Vec<i64>, Vec<Series>) {
        let first = self.times.partition_point(|time| *time <= range.since);
        let end = self.times.partition_point(|time| *time <= range.until);
        let step_of = |index: usize| match range.step_ms {
            ..=0 => index as i64,
            step => self.times[index].div_euclid(step),
        };
        // The first index after each step.
        let ends: Vec<usize> = (first + 1..=end)
            .filter(|&next| next == end || step_of(next) != step_of(next - 1))
            .collect();
        let times = ends.iter().map(|next| self.times[next - 1]).collect();
        let of_thing = self.lines.iter().filter(|((it, _), _)| it == of);
        let series = of_thing.map(|((_, name), line)| {
            let mut begin = first;
            let values = ends.iter().map(|&end| {
                let step: Vec<f32> = line.values.range(begin..end).copied().collect();
                begin = end;
                line.unit.merged(&step).map(f64::from)
            });
            Series {
                name: name.clone(),
                unit: line.unit,
                values: values.collect(),
            }
        });
        (times, series.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(of: &str, unit: Unit, value: f64) -> Sample {
        Sample {
            of: of.to_owned(),
            name: "it".to_owned(),
            unit,
            value,
        }
    }

    fn rate(of: &str, value: f64) -> Sample {
        sample(of, Unit::RecordsPerSecond, value)
    }

    fn history() -> History {
        History::new(Sampling::new(None))
    }

    fn since(since: i64) -> Range {
        Range {
            since,
            until: i64::MAX,
            step_ms: 0,
        }
    }

    #[test]
    fn a_series_has_gaps_where_nothing_was_known() {
        let mut history = history();
        history.add(10, Vec::new());
        history.add(20, vec![rate("topic/a", 2.0)]);
        history.add(30, Vec::new());
        let (times, series) = history.read("topic/a", since(0));
        assert_eq!(times, [10, 20, 30]);
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].values, [None, Some(2.0), None]);
        let (times, series) = history.read("topic/a", since(20));
        assert_eq!((times, &*series[0].values), (vec![30], &[None][..]));
        assert!(history.read("topic/b", since(0)).1.is_empty());
    }

    #[test]
    fn samples_continue_when_the_clock_is_set_back() {
        let mut history = history();
        for (at, value) in [
            (10, 1.0),
            (20, 2.0),
            (30, 3.0),
            (15, 4.0),
            (15, 5.0),
            (25, 6.0),
        ] {
            history.add(at, vec![rate("topic/a", value)]);
        }
        let (times, series) = history.read("topic/a", since(0));
        assert_eq!(times, [10, 15, 25]);
        assert_eq!(series[0].values, [Some(1.0), Some(5.0), Some(6.0)]);
    }

    #[test]
    fn a_range_has_one_value_for_each_step() {
        let mut history = history();
        for (at, value) in [(10, 1.0), (20, 3.0), (39, 7.0), (40, 5.0), (50, 9.0)] {
            let lag = sample("group/g", Unit::Records, value);
            history.add(at, vec![rate("topic/a", value), lag]);
        }
        let range = Range {
            since: 10,
            until: 40,
            step_ms: 20,
        };
        let (times, series) = history.read("topic/a", range);
        assert_eq!(times, [39, 40]);
        assert_eq!(series[0].values, [Some(5.0), Some(5.0)]);
        let (_, series) = history.read("group/g", range);
        assert_eq!(series[0].values, [Some(7.0), Some(5.0)]);
        let nothing = Range {
            until: 10,
            ..since(40)
        };
        let (times, series) = history.read("topic/a", nothing);
        assert!(times.is_empty() && series[0].values.is_empty());
    }

    #[test]
    fn old_samples_and_the_series_of_gone_topics_are_dropped() {
        let mut history = history();
        history.add(1, vec![rate("topic/gone", 1.0), rate("topic/a", 1.0)]);
        let capacity = |history: &History| {
            let line = &history.lines[&("topic/a".to_owned(), "it".to_owned())];
            line.values.capacity()
        };
        let (before, bytes) = (capacity(&history), history.bytes());
        assert!(bytes >= 2 * SAMPLES * size_of::<f32>(), "{bytes}");
        for at in 2..=SAMPLES as i64 * 2 {
            history.add(at, vec![rate("topic/a", 1.0)]);
        }
        let (times, series) = history.read("topic/gone", since(0));
        assert_eq!((times.len(), times[0]), (SAMPLES, SAMPLES as i64 + 1));
        assert!(series.is_empty());
        assert_eq!(capacity(&history), before, "a series keeps to its room");
        // The memory of one series and the times, which doubles when they grow.
        let most = SAMPLES * size_of::<f32>() + 2 * SAMPLES * size_of::<i64>();
        assert!(history.bytes() < most + 1024, "{}", history.bytes());
        history.clear();
        assert_eq!(history.bytes(), 0);
    }

    #[test]
    fn there_are_so_many_series_and_no_more() {
        let sampling = Sampling::new(None);
        let mut history = History::new(sampling.clone());
        let names = (0..SERIES * 2).map(|it| format!("topic/{it}"));
        history.add(1, names.map(|it| rate(&it, 1.0)).collect());
        assert_eq!(history.lines.len(), SERIES);
        assert!(history.is_full());
        // What one session forgets is room for others.
        let rest: Vec<SeriesRoom> = std::iter::from_fn(|| sampling.room()).collect();
        assert!(sampling.room().is_none());
        history.clear();
        assert!(sampling.room().is_some() && !history.is_full());
        assert!(history.read("topic/0", since(0)).0.is_empty());
        drop(rest);
    }
}
