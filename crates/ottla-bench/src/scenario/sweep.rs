//! The sweeps of a scenario: values for one path, or for several at once.

use indexmap::IndexMap;
use toml::Value;

use super::ScenarioError;
use super::document::Section;

/// A position in a sweep: values by path.
pub type At = IndexMap<String, Value>;

/// One axis of a sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct Sweep {
    /// The paths that are set; several paths change together.
    pub keys: Vec<String>,
    /// For each step, one value per path.
    pub steps: Vec<Vec<Value>>,
}

impl Sweep {
    pub fn read_all(sections: Vec<Section<'_>>) -> Result<Vec<Sweep>, ScenarioError> {
        sections.into_iter().map(Sweep::read).collect()
    }

    /// `key` with `values`, or with `from`, `to`, `steps` and `spacing`; or `keys` with rows of
    /// `values`.
    fn read(section: Section<'_>) -> Result<Sweep, ScenarioError> {
        let key = section.text("key")?;
        let keys = section.texts("keys")?;
        let (keys, is_single) = match (key, keys.is_empty()) {
            (Some(key), true) => (vec![key], true),
            (None, false) => (keys, false),
            _ => return Err(section.error("key", "give either `key` or `keys`")),
        };
        let sweep = match section.value("values") {
            Some(Value::Array(values)) if is_single => Sweep {
                keys,
                steps: values.iter().map(|value| vec![value.clone()]).collect(),
            },
            Some(Value::Array(rows)) => {
                let row = |row: &Value| {
                    row.as_array()
                        .filter(|row| row.len() == keys.len())
                        .cloned()
                };
                let Some(steps) = rows.iter().map(row).collect() else {
                    let sentence = format!("not accepted; give rows of {} values", keys.len());
                    return Err(section.error("values", sentence));
                };
                Sweep { keys, steps }
            }
            Some(_) => return Err(section.error("values", "not accepted; give a list")),
            None if is_single => Sweep {
                keys,
                steps: read_range(&section)?,
            },
            None => return Err(section.error("values", "is missing; give rows of values")),
        };
        if sweep.steps.is_empty() {
            return Err(section.error("values", "is empty; give at least one value"));
        }
        section.finish()?;
        Ok(sweep)
    }

    /// Whether a path is one of several that change together.
    pub fn is_of_several(sweeps: &[Sweep], path: &str) -> bool {
        let mut of_several = sweeps.iter().filter(|sweep| sweep.keys.len() > 1);
        of_several.any(|sweep| sweep.keys.iter().any(|key| key == path))
    }

    /// Replaces the values of the sweep with this key: by a list, or by a number of steps, which
    /// thins it out.
    pub fn replace(sweeps: &mut [Sweep], key: &str, value: &Value) -> Result<(), String> {
        let Some(sweep) = sweeps
            .iter_mut()
            .find(|it| it.keys.iter().any(|k| k == key))
        else {
            return Err("nothing of this name is swept".to_owned());
        };
        match value {
            Value::Integer(count @ 1..) => {
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                sweep.steps = thinned(&sweep.steps, count);
                Ok(())
            }
            Value::Array(values) if sweep.keys.len() == 1 && !values.is_empty() => {
                sweep.steps = values.iter().map(|value| vec![value.clone()]).collect();
                Ok(())
            }
            _ => Err("not accepted; give a list of values, or how many of them to keep".to_owned()),
        }
    }
}

/// This many of the steps, including the first and the last, as evenly spaced as possible.
fn thinned(steps: &[Vec<Value>], count: usize) -> Vec<Vec<Value>> {
    if count >= steps.len() {
        return steps.to_vec();
    }
    let last = steps.len() - 1;
    let index = |at: usize| match count {
        1 => last,
        _ => (at * last + (count - 1) / 2) / (count - 1),
    };
    (0..count).map(|at| steps[index(at)].clone()).collect()
}

fn read_range(section: &Section<'_>) -> Result<Vec<Vec<Value>>, ScenarioError> {
    let need = |key: &'static str| {
        let value = section.count(key)?;
        value.ok_or_else(|| {
            section.error(
                key,
                "is missing; give `values`, or `from`, `to` and `steps`",
            )
        })
    };
    let (from, to, steps) = (need("from")?, need("to")?, need("steps")?);
    if from >= to {
        return Err(section.error("to", "must be above `from`"));
    }
    if !(2..=10_000).contains(&steps) {
        return Err(section.error("steps", "not accepted; give 2 to 10000"));
    }
    let is_logarithmic = match section.text("spacing")?.as_deref() {
        None | Some("even") => false,
        Some("logarithmic") if from > 0 => true,
        Some("logarithmic") => {
            return Err(section.error("from", "must be above 0 if the spacing is logarithmic"));
        }
        Some(_) => return Err(section.error("spacing", "give even or logarithmic")),
    };
    let value = |step: u64| {
        let part = step as f64 / (steps - 1) as f64;
        let (from, to) = (from as f64, to as f64);
        let value = if is_logarithmic {
            from * (to / from).powf(part)
        } else {
            from + (to - from) * part
        };
        vec![Value::Integer(value.round() as i64)]
    };
    let mut values: Vec<Vec<Value>> = (0..steps).map(value).collect();
    values.dedup();
    Ok(values)
}

/// All combinations; the last sweep varies fastest.
pub fn product(sweeps: &[Sweep]) -> Vec<At> {
    let mut all = vec![At::new()];
    for sweep in sweeps {
        let mut next = Vec::new();
        for at in &all {
            for step in &sweep.steps {
                let mut at = at.clone();
                at.extend(sweep.keys.iter().cloned().zip(step.iter().cloned()));
                next.push(at);
            }
        }
        all = next;
    }
    all
}

/// Whether a possibly incomplete set of sweep values matches a point.
pub fn agrees(open: &At, point: &At) -> bool {
    open.iter()
        .all(|(path, value)| point.get(path) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Document;

    fn sweeps(text: &str) -> Result<Vec<Sweep>, String> {
        let document = Document::parse("a.toml", text).unwrap();
        let sections = document.root().sections("sweep").unwrap();
        Sweep::read_all(sections).map_err(|error| error.to_string())
    }

    #[test]
    fn sweeps_are_the_product_of_values_paths_and_ranges() {
        let all = sweeps(
            "[[sweep]]\nkeys = ['a', 'b']\nvalues = [[1, 1], [2, 5]]\n\
             [[sweep]]\nkey = 'c'\nfrom = 1\nto = 100\nsteps = 3\nspacing = 'logarithmic'",
        )
        .unwrap();
        let points = product(&all);
        assert_eq!(points.len(), 6);
        let last = &points[5];
        assert_eq!(
            (&last["a"], &last["b"], &last["c"]),
            (&2.into(), &5.into(), &100.into())
        );
        assert_eq!(points[1]["c"], Value::Integer(10));
        assert!(agrees(&At::from([("b".to_owned(), 5.into())]), last));
        assert!(!agrees(&At::from([("b".to_owned(), 1.into())]), last));
    }

    #[test]
    fn invalid_sweeps_are_refused_with_a_reason() {
        for (text, sentence) in [
            ("[[sweep]]\nvalues = [1]", "`key` or `keys`"),
            ("[[sweep]]\nkey = 'a'\nvalues = []", "at least one value"),
            (
                "[[sweep]]\nkey = 'a'\nfrom = 5\nto = 1\nsteps = 2",
                "above `from`",
            ),
            (
                "[[sweep]]\nkeys = ['a', 'b']\nvalues = [[1]]",
                "rows of 2 values",
            ),
        ] {
            let error = sweeps(text).unwrap_err();
            assert!(error.contains(sentence), "{error}");
        }
    }

    #[test]
    fn a_reduced_sweep_keeps_its_ends() {
        let mut all = sweeps("[[sweep]]\nkey = 'a'\nfrom = 1\nto = 200\nsteps = 200").unwrap();
        Sweep::replace(&mut all, "a", &Value::Integer(3)).unwrap();
        let values: Vec<i64> = all[0]
            .steps
            .iter()
            .filter_map(|it| it[0].as_integer())
            .collect();
        assert_eq!((values[0], values[2], values.len()), (1, 200, 3));
        assert!(Sweep::replace(&mut all, "b", &Value::Integer(3)).is_err());
    }
}
