//! Bodies, queries and paths of requests, whose errors are problems.

use axum::extract::{self, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

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
