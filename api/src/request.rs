//! The outermost layer: every request has an id and a span, and every error leaves as a problem.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use roundhouse_shared::problem::Problem;
use tracing::Instrument as _;

use crate::problem::{ApiProblem, code_of};

pub(crate) const PROBLEM_JSON: &str = "application/problem+json";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id that is taken over from a client.
const REQUEST_ID_MOST: usize = 128;

/// After how many seconds to try again, where the code does not say.
const RETRY_SECONDS: u16 = 5;

/// What an error says of the request it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) id: Arc<str>,
    pub(crate) path: Arc<str>,
}

impl<S: Send + Sync> FromRequestParts<S> for Context {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<Self>().cloned();
        Ok(known.unwrap_or_else(|| Self { id: "".into(), path: parts.uri.path().into() }))
    }
}

/// Gives the request its id and span, and writes down its error.
pub(crate) async fn frame(mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let context = Context { id: request_id(request.headers()), path: request.uri().path().into() };
    request.extensions_mut().insert(context.clone());
    let span = tracing::info_span!(
        "request",
        request.id = &*context.id,
        method = request.method().as_str(),
        path = &*context.path
    );
    async {
        let mut response = told(next.run(request).await, &context);
        tell_when_to_retry(&mut response);
        if let Ok(id) = HeaderValue::from_str(&context.id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        tracing::debug!(status = response.status().as_u16(), ms = started.elapsed().as_millis(), "answered");
        response
    }
    .instrument(span)
    .await
}

/// The client's own id where it is sane, so that its log and ours can be joined.
fn request_id(headers: &HeaderMap) -> Arc<str> {
    let sane = |id: &&str| {
        !id.is_empty()
            && id.len() <= REQUEST_ID_MOST
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
    };
    match headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(sane) {
        Some(id) => id.into(),
        None => uuid::Uuid::now_v7().to_string().into(),
    }
}

/// The response with its problem written down. An error that a library made becomes a problem here.
fn told(mut response: Response, context: &Context) -> Response {
    let problem = match ApiProblem::take(response.extensions_mut()) {
        Some(problem) => problem,
        None if is_bare_error(&response) => {
            let status = response.status();
            let problem = Problem::new(code_of(status));
            let status = (problem.status() != status.as_u16()).then_some(status.as_u16());
            ApiProblem::from(Problem { status, ..problem })
        }
        None => return response,
    };
    if let Some(after) = problem.problem.code.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after));
    }
    // Plain data of ours with string keys always serialises.
    let body = serde_json::to_vec(&problem.body(context)).unwrap_or_default();
    *response.body_mut() = Body::from(body);
    response.headers_mut().remove(CONTENT_LENGTH);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    response
}

/// Every refusal that passes by itself says when to try again, also one that is no problem, as of `/readyz`.
fn tell_when_to_retry(response: &mut Response) {
    let passes = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
    if passes.contains(&response.status()) && !response.headers().contains_key(RETRY_AFTER) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
    }
}

fn is_bare_error(response: &Response) -> bool {
    let status = response.status();
    let is_ours = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/");
    (status.is_client_error() || status.is_server_error())
        && !response.headers().get(CONTENT_TYPE).is_some_and(is_ours)
}
