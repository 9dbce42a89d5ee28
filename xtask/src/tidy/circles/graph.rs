//! Cycles: the strongly connected components with more than one file.

use std::collections::{BTreeMap, BTreeSet};

/// From a file to a file, with the names that the first uses from the second.
pub type Arrows = BTreeMap<(String, String), BTreeSet<String>>;

/// Files that each reach all others.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Circle {
    /// Sorted.
    pub files: Vec<String>,
}

impl Circle {
    /// The edges within the component.
    pub fn arrows<'a>(&self, arrows: &'a Arrows) -> Vec<(&'a str, &'a str, &'a BTreeSet<String>)> {
        let is_inside = |file| self.files.binary_search(file).is_ok();
        arrows
            .iter()
            .filter(|((from, to), _)| is_inside(from) && is_inside(to))
            .map(|((from, to), names)| (from.as_str(), to.as_str(), names))
            .collect()
    }
}

pub fn circles(arrows: &Arrows) -> Vec<Circle> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        next.entry(from).or_default().push(to);
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|from| (*from, reachable(from, &next)))
        .collect();
    let leads_to = |from: &str, to: &str| reach.get(from).is_some_and(|found| found.contains(to));
    let mut found = BTreeSet::new();
    for from in next.keys().filter(|from| leads_to(from, from)) {
        let files = reach[from]
            .iter()
            .filter(|to| leads_to(to, from))
            .map(|to| (*to).to_owned())
            .collect();
        found.insert(Circle { files });
    }
    found.into_iter().collect()
}

/// The files reachable from a file by one or more edges.
fn reachable<'a>(from: &str, next: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = next.get(from).cloned().unwrap_or_default();
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(next.get(file).into_iter().flatten());
        }
    }
    found
}
