//! Published figures, and plot definitions.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::document::Section;
use super::sweep::{At, Sweep};
use super::{ScenarioError, document};
use crate::figures;

/// Published figures of a point, or of all points that match it.
#[derive(Clone, PartialEq, Debug)]
pub struct Published {
    pub at: At,
    pub figures: IndexMap<String, f64>,
    /// Which of several published runs it refers to, or other published statements.
    pub note: String,
}

impl Published {
    pub fn read_all(
        sections: Vec<Section<'_>>,
        sweeps: &[Sweep],
    ) -> Result<Vec<Published>, ScenarioError> {
        let read = |section: Section<'_>| {
            let at = section.section("at")?;
            for path in at.table().keys() {
                if !is_swept(sweeps, path) {
                    return Err(at.error(path, "is not swept"));
                }
            }
            let at = at.table().iter();
            let at = at
                .map(|(path, value)| (path.clone(), value.clone()))
                .collect();
            let table = section.section("figures")?;
            let mut figures = IndexMap::new();
            for (name, value) in table.table() {
                if figures::known(name).is_none() {
                    return Err(table.error(name, "is not a figure of a run"));
                }
                let number = value.as_float().or(value.as_integer().map(|it| it as f64));
                let Some(number) = number else {
                    return Err(table.error(name, "not accepted; give a number"));
                };
                figures.insert(name.clone(), number);
            }
            let note = section.text("note")?.unwrap_or_default();
            if figures.is_empty() && note.is_empty() {
                return Err(section.error("figures", "is missing; give figures, or a note"));
            }
            section.finish()?;
            Ok(Published { at, figures, note })
        };
        sections.into_iter().map(read).collect()
    }
}

/// A plot over the points of a sweep, or over the time of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plot {
    pub title: String,
    /// The path of a sweep, `time`, or `stored` for the size of the topic.
    pub x: String,
    /// The figures, one line each.
    pub y: Vec<String>,
    /// A second sweep, with a line for each of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default)]
    pub logarithmic_x: bool,
    #[serde(default)]
    pub logarithmic_y: bool,
    #[serde(default)]
    pub trend: bool,
}

impl Plot {
    pub fn read_all(
        sections: Vec<Section<'_>>,
        sweeps: &[Sweep],
    ) -> Result<Vec<Plot>, ScenarioError> {
        let read = |section: Section<'_>| {
            let plot = Plot {
                title: section.required_text("title")?,
                x: section.required_text("x")?,
                y: section.texts("y")?,
                by: section.text("by")?,
                logarithmic_x: section.boolean("logarithmic_x")?,
                logarithmic_y: section.boolean("logarithmic_y")?,
                trend: section.boolean("trend")?,
            };
            if !matches!(plot.x.as_str(), "time" | "stored") && !is_swept(sweeps, &plot.x) {
                let sentence = "is not swept; give the path of a sweep, time or stored";
                return Err(section.error("x", sentence));
            }
            if plot.by.as_ref().is_some_and(|by| !is_swept(sweeps, by)) {
                return Err(section.error("by", "is not swept"));
            }
            if plot.y.is_empty() {
                return Err(section.error("y", "is missing; give the names of figures"));
            }
            if let Some(unknown) = plot.y.iter().find(|name| figures::known(name).is_none()) {
                return Err(section.error("y", format!("`{unknown}` is not a figure of a run")));
            }
            section.finish()?;
            Ok(plot)
        };
        sections.into_iter().map(read).collect()
    }
}

/// Whether a sweep sets this path.
pub fn is_swept(sweeps: &[Sweep], path: &str) -> bool {
    sweeps
        .iter()
        .any(|sweep| sweep.keys.iter().any(|key| key == path))
}

/// A point of the sweep as text: `batch.size 65536, acks 1`; empty without a sweep.
pub fn shown_at(at: &At) -> String {
    let name = |path: &str| match path.split_once(".settings.") {
        Some((_, setting)) => setting.to_owned(),
        None => path.replace('.', " "),
    };
    let shown = at
        .iter()
        .map(|(path, value)| format!("{} {}", name(path), document::plain(value)));
    shown.collect::<Vec<_>>().join(", ")
}
