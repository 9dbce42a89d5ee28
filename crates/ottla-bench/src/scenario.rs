//! A scenario: the measurement, its parameters, and the published figures.
//!
//! A scenario is a TOML file. Sweeps, scales and the command line set values at paths of the file,
//! so everything in it can be changed; the changed file is parsed again and yields one point of the
//! sweep. This module does no I/O and reads no clock.

pub mod document;
pub mod point;
pub mod published;
pub mod quantities;
pub mod shipped;
pub mod sweep;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use toml::Value;

pub use document::{Document, ScenarioError};
pub use point::{Load, PointSpec};
pub use published::{Plot, Published};
pub use sweep::{At, Sweep};

use document::Section;
use published::is_swept;

/// A scenario, before its sweep is expanded.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// `linkedin-2014/message-size`, or the path of a file.
    pub name: String,
    pub title: String,
    /// The question that a run answers.
    pub question: String,
    /// The hardware of the published figures.
    pub published_on: String,
    pub sweeps: Vec<Sweep>,
    pub published: Vec<Published>,
    pub plots: Vec<Plot>,
    /// Values that change the size of a run, by the scale's name, with their paths.
    pub scales: BTreeMap<String, Vec<(String, Value)>>,
    /// The text of the file, recorded in the result.
    pub text: String,
    document: Document,
}

/// Changes to the file, in the order in which they are applied: scale, then command line.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Changes {
    /// `None` for the published size.
    pub scale: Option<String>,
    pub settings: Vec<(String, Value)>,
}

/// One point of a scenario's sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The swept values, by path; empty without a sweep.
    pub at: At,
    /// The file's original values, where the command line overrides them; published figures are
    /// looked up by these.
    pub published_at: At,
    pub spec: PointSpec,
}

impl Scenario {
    /// Parses a scenario and all of its points, so that every error is found before anything runs.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Scenario, ScenarioError> {
        let document = Document::parse(file, text)?;
        let root = document.root();
        let title = root.required_text("title")?;
        let question = root.text("question")?.unwrap_or_default();
        let published_on = root.text("published_on")?.unwrap_or_default();
        let sweeps = Sweep::read_all(root.sections("sweep")?)?;
        let published = Published::read_all(root.sections("published")?, &sweeps)?;
        let plots = Plot::read_all(root.sections("plot")?, &sweeps)?;
        let scales = read_scales(&root.section("scale")?)?;
        point::read_keys_only(&root);
        root.finish()?;
        let scenario = Scenario {
            name: name.to_owned(),
            title,
            question,
            published_on,
            sweeps,
            published,
            plots,
            scales,
            text: text.to_owned(),
            document,
        };
        let published_size = scenario.points(&Changes::default())?;
        for scale in scenario.scales.keys() {
            let changes = Changes {
                scale: Some(scale.clone()),
                ..Changes::default()
            };
            scenario.points(&changes)?;
        }
        for published in &scenario.published {
            let is_met = |point: &Point| sweep::agrees(&published.at, &point.published_at);
            if !published_size.iter().any(is_met) {
                return Err(scenario.document.error(
                    "published.at",
                    &format!("{:?}", published.at),
                    "no point of the sweep is there",
                ));
            }
        }
        Ok(scenario)
    }

    /// The points of the sweep with these changes.
    pub fn points(&self, changes: &Changes) -> Result<Vec<Point>, ScenarioError> {
        let mut document = self.document.clone();
        let mut sweeps = self.sweeps.clone();
        // An override of one of several values that are swept together applies to each step.
        let mut throughout = At::new();
        for (path, value) in self.all_changes(changes) {
            let refused = |sentence: String| {
                self.document
                    .error(path, &document::shown(value), &sentence)
            };
            match path.strip_prefix("sweep.") {
                Some(key) => Sweep::replace(&mut sweeps, key, value).map_err(refused)?,
                None if Sweep::is_of_several(&sweeps, path) => {
                    throughout.insert(path.clone(), value.clone());
                }
                None if is_swept(&sweeps, path) => {
                    let only = Value::Array(vec![value.clone()]);
                    Sweep::replace(&mut sweeps, path, &only).map_err(refused)?;
                }
                None => document.set(path, value.clone())?,
            }
        }
        let mut points = Vec::new();
        for published_at in sweep::product(&sweeps) {
            let mut at = published_at.clone();
            at.extend(throughout.clone());
            let mut document = document.clone();
            for (path, value) in &at {
                document.set(path, value.clone())?;
            }
            points.push(Point {
                spec: PointSpec::read(&document)?,
                at,
                published_at,
            });
        }
        Ok(points)
    }

    fn all_changes<'a>(
        &'a self,
        changes: &'a Changes,
    ) -> impl Iterator<Item = &'a (String, Value)> {
        let of_scale = changes
            .scale
            .as_ref()
            .and_then(|name| self.scales.get(name));
        of_scale.into_iter().flatten().chain(&changes.settings)
    }

    /// How a run with these changes differs from the published one, one sentence each.
    pub fn differences(&self, changes: &Changes) -> Vec<String> {
        let mut last: BTreeMap<&str, &Value> = BTreeMap::new();
        for (path, value) in self.all_changes(changes) {
            last.insert(path, value);
        }
        let sentence = |(path, value): (&str, &Value)| {
            let new = document::plain(value);
            match (path.strip_prefix("sweep."), self.document.get(path)) {
                (Some(key), _) => match value {
                    Value::Integer(count) => Some(format!("{key} at {count} values only")),
                    _ => Some(format!("{key} over {new} only")),
                },
                (None, _) if is_swept(&self.sweeps, path) => {
                    Some(format!("{path} {new} throughout"))
                }
                (None, Some(old)) if old == value => None,
                (None, Some(old)) => {
                    Some(format!("{path} {new} instead of {}", document::plain(old)))
                }
                (None, None) => Some(format!("{path} {new}")),
            }
        };
        last.into_iter().filter_map(sentence).collect()
    }

    /// The published figures of a point.
    pub fn published_about<'a>(&'a self, point: &'a Point) -> impl Iterator<Item = &'a Published> {
        let is_there =
            move |published: &&Published| sweep::agrees(&published.at, &point.published_at);
        self.published.iter().filter(is_there)
    }
}

fn read_scales(
    section: &Section<'_>,
) -> Result<BTreeMap<String, Vec<(String, Value)>>, ScenarioError> {
    let mut scales = BTreeMap::new();
    for (name, value) in section.table() {
        let Some(table) = value.as_table() else {
            let sentence = "not accepted; give a table of paths in quotes and their values";
            return Err(section.error(name, sentence));
        };
        let values = table
            .iter()
            .map(|(path, value)| (path.clone(), value.clone()));
        scales.insert(name.clone(), values.collect());
    }
    Ok(scales)
}
