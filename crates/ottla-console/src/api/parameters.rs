//! The query parameters of each path and method.
//!
//! A request with another parameter is refused. A mistyped filter would otherwise be ignored, and the answer would
//! contain too much. The names are those of the fields that the handlers read.

use axum::extract::{Query, Request};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

use super::acl_explanation::Question;
use super::groups::GroupsQuery;
use super::measure::ComparisonQuery;
use super::rebalance::PlanQuery;
use super::records::{ExportQuery, OneQuery, StreamQuery};
use super::security::UserDeletion;
use super::series::SeriesQuery;
use super::topics::{Confirmation, TopicsQuery};
use super::transactions::TransactionsQuery;
use crate::list::ListQuery;
use crate::problem::Problem;
use crate::records::filter::FilterQuery;
use crate::records::selection::SelectionQuery;

/// Characters of an unknown parameter that are shown.
const LONGEST_SHOWN: usize = 100;
/// In a link, instead of the header of the page.
const DOWNLOAD: &[&str] = &["download"];

/// Refuses a request of this route with an unknown parameter.
pub(super) async fn check(path: &'static str, request: Request, next: Next) -> Response {
    match refusal(path, request.method(), request.uri()) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn refusal(path: &str, method: &Method, uri: &Uri) -> Option<Problem> {
    // A query that is not well-formed is refused by the handler.
    let Query(given) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    let known = of(path, method);
    let is_known = |name: &str| known.contains(&name);
    let (unknown, _) = given.into_iter().find(|(name, _)| !is_known(name))?;
    let shown: String = unknown.chars().take(LONGEST_SHOWN).collect();
    let accepted = match known.is_empty() {
        true => "none".to_owned(),
        false => known.join(", "),
    };
    Some(Problem::unknown_parameter(format!(
        "{shown}: {method} {path} has no such parameter; it has {accepted}"
    )))
}

/// The parameters of a route.
pub(super) fn of(path: &str, method: &Method) -> Vec<&'static str> {
    let method = match *method == Method::HEAD {
        true => "GET",
        false => method.as_str(),
    };
    let records = || {
        [
            names::<StreamQuery>(),
            names::<SelectionQuery>(),
            names::<FilterQuery>(),
        ]
        .concat()
    };
    let list = names::<ListQuery>;
    match (method, path) {
        ("GET", "/api/series") => names::<SeriesQuery>().to_vec(),
        ("GET", "/api/topics") => [list(), names::<TopicsQuery>()].concat(),
        ("GET", "/api/groups") => [list(), names::<GroupsQuery>()].concat(),
        ("GET", "/api/transactions") => [list(), names::<TransactionsQuery>()].concat(),
        (
            "GET",
            "/api/quotas"
            | "/api/acls"
            | "/api/users"
            | "/api/delegation-tokens"
            | "/api/reassignments",
        ) => list().to_vec(),
        ("DELETE", "/api/topics/{topic}" | "/api/groups/{group}") => {
            names::<Confirmation>().to_vec()
        }
        ("DELETE", "/api/users/{user}") => names::<UserDeletion>().to_vec(),
        ("GET", "/api/topics/{topic}/records") => records(),
        ("GET", "/api/topics/{topic}/records/{partition}/{offset}") => names::<OneQuery>().to_vec(),
        ("GET", "/api/topics/{topic}/export") => {
            let own = names::<ExportQuery>().iter().chain(DOWNLOAD).copied();
            let mut all = records();
            for name in own {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
            all
        }
        ("GET", "/api/acls/explanation") => names::<Question>().to_vec(),
        ("GET", "/api/rebalance-plan") => names::<PlanQuery>().to_vec(),
        ("GET", "/api/measure/comparison") => names::<ComparisonQuery>().to_vec(),
        ("GET", "/api/measure/results/{name}/export") => DOWNLOAD.to_vec(),
        _ => Vec::new(),
    }
}

/// The names of a struct's fields, as `serde` knows them.
pub(super) fn names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // Ends with an error in any case.
    let _ = T::deserialize(FieldNames(&mut names));
    names
}

/// Takes the names of the fields, and has no values.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("there are no values"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("there are no fields"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
