//! The API: one module for each kind of thing. `openapi.yaml` describes it.

mod acl_explanation;
mod brokers;
mod cluster;
mod cordoning;
mod groups;
mod health;
mod measure;
mod offset_reset;
mod oidc;
mod parameters;
mod produce;
mod reassignments;
mod rebalance;
mod records;
mod redrive;
mod security;
mod series;
mod session;
mod settings;
mod tokens;
mod topics;
mod transactions;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::routing::{MethodRouter, delete, get, patch, post, put};

use crate::console::Console;
use crate::guard::{LOGIN_BODY, MOST_BODY};
use crate::problem::Problem;

/// Bodies with settings and selections.
const BODY: usize = 1 << 20;

/// Paths with their methods.
#[derive(Default)]
struct Routes(Vec<(&'static str, MethodRouter<Arc<Console>>)>);

impl Routes {
    fn route(mut self, path: &'static str, methods: MethodRouter<Arc<Console>>) -> Routes {
        self.0.push((path, methods));
        self
    }
}

pub(crate) fn router() -> Router<Arc<Console>> {
    let routes = routes().0.into_iter();
    routes
        .fold(Router::new(), |router, (path, methods)| {
            let check = middleware::from_fn(move |request: Request, next: Next| {
                parameters::check(path, request, next)
            });
            router.route(path, methods.layer(check))
        })
        .route("/api/{*rest}", axum::routing::any(unknown))
        .layer(DefaultBodyLimit::max(BODY))
}

fn routes() -> Routes {
    let session = get(session::get)
        .post(session::log_in)
        .delete(session::log_out);
    let records = get(records::stream).post(produce::produce);
    // Their bodies contain the response of a preview, which has a line for each partition.
    let redrive = post(redrive::redrive);
    // A plan has a line for each partition that moves.
    let rebalance = get(rebalance::apply::progress)
        .post(rebalance::apply::start)
        .delete(rebalance::apply::cancel);
    let offsets = post(offset_reset::reset).delete(offset_reset::delete);
    Routes::default()
        .route(
            "/api/session",
            session.layer(DefaultBodyLimit::max(LOGIN_BODY)),
        )
        .route(
            "/api/session/oidc",
            post(oidc::begin).layer(DefaultBodyLimit::max(LOGIN_BODY)),
        )
        .route(
            "/api/session/oidc/code",
            post(oidc::finish).layer(DefaultBodyLimit::max(LOGIN_BODY)),
        )
        .route("/api/cluster", get(cluster::get))
        .route("/api/series", get(series::get))
        .route("/api/topics", get(topics::list).post(topics::create))
        .route("/api/topic-settings", get(settings::of_new_topics))
        .route(
            "/api/topics/{topic}",
            get(topics::get).delete(topics::delete),
        )
        .route(
            "/api/topics/{topic}/settings",
            get(settings::of_topic).patch(settings::change_topic),
        )
        .route(
            "/api/topics/{topic}/partitions",
            post(topics::add_partitions),
        )
        .route("/api/topics/{topic}/empty", post(topics::empty))
        .route(
            "/api/topics/{topic}/producers",
            get(transactions::producers),
        )
        .route(
            "/api/topics/{topic}/producers/abort",
            post(transactions::abort_hanging),
        )
        .route(
            "/api/topics/{topic}/records",
            records.layer(DefaultBodyLimit::max(MOST_BODY)),
        )
        .route(
            "/api/topics/{topic}/records/{partition}/{offset}",
            get(records::one),
        )
        .route("/api/topics/{topic}/export", get(records::export))
        .route(
            "/api/topics/{topic}/redrive",
            redrive.layer(DefaultBodyLimit::max(MOST_BODY)),
        )
        .route("/api/groups", get(groups::list))
        .route(
            "/api/groups/{group}",
            get(groups::get).delete(groups::delete),
        )
        .route(
            "/api/groups/{group}/offsets",
            offsets.layer(DefaultBodyLimit::max(MOST_BODY)),
        )
        .route(
            "/api/groups/{group}/settings",
            get(settings::of_group).patch(settings::change_group),
        )
        .route("/api/transactions", get(transactions::list))
        .route("/api/transactions/{id}", get(transactions::get))
        .route("/api/transactions/{id}/abort", post(transactions::abort))
        .route(
            "/api/quotas",
            get(security::quotas).patch(security::change_quota),
        )
        .route(
            "/api/acls",
            get(security::acls)
                .post(security::create_acl)
                .delete(security::delete_acl),
        )
        .route("/api/acls/explanation", get(acl_explanation::explain))
        .route("/api/users", get(security::users))
        .route(
            "/api/users/{user}",
            put(security::set_password).delete(security::delete_user),
        )
        .route(
            "/api/delegation-tokens",
            get(tokens::list).post(tokens::create),
        )
        .route("/api/delegation-tokens/{id}/renew", post(tokens::renew))
        .route("/api/delegation-tokens/{id}/expire", post(tokens::expire))
        .route("/api/brokers/{id}", get(brokers::get))
        .route("/api/brokers/{id}/log-dirs", patch(cordoning::cordon))
        .route(
            "/api/brokers/{id}/settings",
            get(settings::of_broker).patch(settings::change_broker),
        )
        .route(
            "/api/reassignments",
            get(reassignments::list).post(reassignments::start),
        )
        .route("/api/throttles", delete(reassignments::unthrottle))
        .route("/api/rebalance-plan", get(rebalance::plan))
        .route(
            "/api/rebalance",
            rebalance.layer(DefaultBodyLimit::max(MOST_BODY)),
        )
        .route("/api/elections", post(reassignments::elect))
        .route("/api/measure", get(measure::get))
        .route("/api/measure/results", get(measure::results))
        .route("/api/measure/results/{name}", get(measure::result))
        .route("/api/measure/results/{name}/export", get(measure::report))
        .route("/api/measure/comparison", get(measure::compare))
        .route(
            "/api/measure/run",
            post(measure::start).delete(measure::stop),
        )
        .route("/api/measure/run/output", get(measure::output))
}

async fn unknown() -> Problem {
    Problem::not_found("the API has no such path; openapi.yaml lists them")
}

#[cfg(test)]
mod tests;
