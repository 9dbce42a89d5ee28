//! Pages of lists: search, order, and a part of the result.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::problem::Problem;

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 100_000;

#[derive(Deserialize, Default, Debug)]
pub(crate) struct ListQuery {
    #[serde(default)]
    search: String,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
    #[serde(default)]
    sort: String,
    #[serde(default)]
    order: String,
}

/// A part of a list.
#[derive(Serialize, Debug)]
pub(crate) struct Page<T> {
    /// The number of items that match the search.
    pub(crate) total: usize,
    /// When this was the state of the cluster, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) as_of: Option<i64>,
    pub(crate) items: Vec<T>,
}

/// All items, for lists that are short by nature.
#[derive(Serialize, Debug)]
pub(crate) struct Items<T> {
    pub(crate) items: Vec<T>,
}

/// The sort key of an item.
#[derive(PartialEq, PartialOrd, Debug)]
pub(crate) enum SortKey {
    Number(Option<f64>),
    Text(String),
}

impl ListQuery {
    /// Whether an item with this name matches the search.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.search.is_empty() || name.to_lowercase().contains(&self.search.to_lowercase())
    }

    /// The page of items that match. `key_of` returns `None` for a field that items cannot be
    /// ordered by. Without `sort`, the order is kept.
    pub(crate) fn page<T>(
        &self,
        mut items: Vec<T>,
        key_of: impl Fn(&T, &str) -> Option<SortKey>,
    ) -> Result<Page<T>, Problem> {
        if !self.sort.is_empty() {
            let mut keyed = Vec::with_capacity(items.len());
            for item in items {
                let key = key_of(&item, &self.sort).ok_or_else(|| {
                    Problem::invalid(
                        "sort",
                        format!(
                            "sort={}: not a field of this list that it can be ordered by",
                            self.sort
                        ),
                    )
                })?;
                keyed.push((key, item));
            }
            let compare =
                |one: &SortKey, other: &SortKey| one.partial_cmp(other).unwrap_or(Ordering::Equal);
            match &*self.order {
                "" | "asc" => keyed.sort_by(|(one, _), (other, _)| compare(one, other)),
                "desc" => keyed.sort_by(|(one, _), (other, _)| compare(other, one)),
                other => {
                    return Err(Problem::invalid(
                        "order",
                        format!("order={other}: give asc or desc"),
                    ));
                }
            }
            items = keyed.into_iter().map(|(_, item)| item).collect();
        }
        let total = items.len();
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
        let items = items.into_iter().skip(self.offset).take(limit);
        Ok(Page {
            total,
            as_of: None,
            items: items.collect(),
        })
    }

    /// As [`ListQuery::page`], for a list that is already ordered.
    pub(crate) fn page_in_order<T>(&self, items: Vec<T>) -> Result<Page<T>, Problem> {
        self.page(items, |_, _| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(sort: &str, order: &str, offset: usize, limit: Option<usize>) -> ListQuery {
        ListQuery {
            offset,
            limit,
            sort: sort.into(),
            order: order.into(),
            ..ListQuery::default()
        }
    }

    #[test]
    fn a_page_is_a_part_of_the_ordered_matches() {
        let key_of =
            |item: &f64, field: &str| (field == "size").then_some(SortKey::Number(Some(*item)));
        let items = || vec![3.0, 1.0, 2.0];
        let page = query("size", "desc", 1, Some(1))
            .page(items(), key_of)
            .unwrap();
        assert_eq!((page.total, page.items), (3, vec![2.0]));
        let page = query("", "", 0, None).page(items(), key_of).unwrap();
        assert_eq!(page.items, items());
        assert!(query("colour", "", 0, None).page(items(), key_of).is_err());
        assert!(
            query("size", "down", 0, None)
                .page(items(), key_of)
                .is_err()
        );
    }

    #[test]
    fn the_page_is_bounded() {
        let items: Vec<usize> = (0..MAX_LIMIT + 5).collect();
        let page = query("", "", 0, Some(usize::MAX))
            .page_in_order(items)
            .unwrap();
        assert_eq!((page.total, page.items.len()), (MAX_LIMIT + 5, MAX_LIMIT));
    }

    #[test]
    fn a_search_ignores_case() {
        let query = ListQuery {
            search: "Ord".into(),
            ..ListQuery::default()
        };
        assert!(query.matches("myORDers") && !query.matches("other"));
    }
}
