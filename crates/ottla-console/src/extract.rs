//! Bodies, queries and paths of requests, whose errors are problems.

use std::fmt;
use std::marker::PhantomData;

use axum::extract::{self, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, SeqAccess, Visitor};

use crate::problem::Problem;

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Problem> {
        let axum::Json(body) = axum::Json::from_request(request, state).await?;
        Ok(Body(body))
    }
}

pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>, Problem> {
        let extract::Query(query) = extract::Query::from_request_parts(parts, state).await?;
        Ok(Query(query))
    }
}

/// The parameters in the path, decoded.
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Problem> {
        let extract::Path(path) = extract::Path::from_request_parts(parts, state).await?;
        Ok(Path(path))
    }
}

/// Deserializes a list of at most `MOST` items, for a list whose items take many times the memory of their text: `{}` can
/// be an item, and the memory of a body is reserved by its length.
pub(crate) fn at_most<'de, const MOST: usize, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(AtMost::<MOST, T>(PhantomData))
}

struct AtMost<const MOST: usize, T>(PhantomData<T>);

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for AtMost<MOST, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MOST {
                return Err(Error::invalid_length(MOST + 1, &self));
            }
            list.push(item);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Pair {
        #[serde(default, deserialize_with = "at_most::<2, _, _>")]
        items: Vec<Option<u8>>,
    }

    #[test]
    fn a_list_that_is_too_long_is_refused_at_the_first_item_too_many() {
        let count = |text: &str| {
            let parsed = serde_json::from_str::<Pair>(text);
            parsed.map(|it| it.items.len()).map_err(|it| it.to_string())
        };
        assert_eq!(count("{}"), Ok(0));
        assert_eq!(count(r#"{"items": [null, 7]}"#), Ok(2));
        // What follows is not read.
        let refused = count(r#"{"items": [null, 7, 8, "no number"]}"#).unwrap_err();
        assert!(refused.contains("at most 2 items"), "{refused}");
        assert!(count(r#"{"items": 1}"#).is_err());
    }
}
