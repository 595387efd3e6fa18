//! Extractors that name what is wrong: an unreadable path, query or body is 400, a readable but wrong body 422.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Bytes, HttpBody as _};
use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, RawPathParams, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use roundhouse_shared::code::Code;
use roundhouse_shared::problem::{FieldProblem, Problem};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;

use crate::problem::ApiProblem;

/// How long a client may take to send a body.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// The one parameter of a path.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

/// The two parameters of a path, in order.
#[derive(Debug)]
pub(crate) struct Paths<A, B>(pub(crate) A, pub(crate) B);

impl<S, T> FromRequestParts<S> for Path<T>
where
    S: Send + Sync,
    T: FromStr<Err: Display> + Send,
{
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        Ok(Self(parameter(&parameters(parts, state).await?, 0)?))
    }
}

impl<S, A, B> FromRequestParts<S> for Paths<A, B>
where
    S: Send + Sync,
    A: FromStr<Err: Display> + Send,
    B: FromStr<Err: Display> + Send,
{
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        let params = parameters(parts, state).await?;
        Ok(Self(parameter(&params, 0)?, parameter(&params, 1)?))
    }
}

async fn parameters<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<RawPathParams, ApiProblem> {
    RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|rejection| Problem::field("path", rejection.body_text()).unreadable().into())
}

fn parameter<T: FromStr<Err: Display>>(params: &RawPathParams, n: usize) -> Result<T, ApiProblem> {
    let Some((name, value)) = params.iter().nth(n) else {
        return Err(ApiProblem::new(Code::NotFound));
    };
    value.parse().map_err(|error: T::Err| Problem::field(name, error.to_string()).unreadable().into())
}

/// The parameters of a query.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiProblem> {
        let uri = &parts.uri;
        if uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(Problem::field("query", "must not contain NUL").unreadable().into());
        }
        let parsed = axum::extract::Query::<T>::try_from_uri(uri).map_err(|rejection| {
            // The cause reads `parameter: what is wrong`.
            let text = std::error::Error::source(&rejection).map(ToString::to_string).unwrap_or_default();
            let (name, why) = text.split_once(": ").unwrap_or(("query", &text));
            Problem::field(name, why).unreadable()
        })?;
        Ok(Self(parsed.0))
    }
}

/// A JSON body.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiProblem> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(is_json) {
            return Err(ApiProblem::new(Code::UnsupportedMediaType));
        }
        let body = match tokio::time::timeout(BODY_WAIT, Bytes::from_request(request, state)).await {
            Ok(Ok(body)) => body,
            Ok(Err(BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)))) => {
                return Err(ApiProblem::new(Code::PayloadTooLarge));
            }
            Ok(Err(_)) | Err(_) => {
                let detail = "the body did not arrive";
                return Err(Problem::with_detail(Code::InvalidRequest, detail).unreadable().into());
            }
        };
        Ok(Self(parse(&body)?))
    }
}

impl<S, T> OptionalFromRequest<S> for Json<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = ApiProblem;

    /// `None` where the request says nothing of a body.
    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, ApiProblem> {
        if !request.headers().contains_key(CONTENT_TYPE) && request.body().is_end_stream() {
            return Ok(None);
        }
        <Self as FromRequest<S>>::from_request(request, state).await.map(Some)
    }
}

fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// Reads a body; the error names the field.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // The reader takes an array for an object whose fields have no names.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    if !is_object && serde_json::from_slice::<IgnoredAny>(body).is_ok() {
        return Err(Problem::field("body", "must be an object"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        match error.inner().classify() {
            // Some wrong types look like wrong JSON to the reader: what is JSON is readable.
            Category::Syntax if serde_json::from_slice::<serde_json::Value>(body).is_ok() => {
                Problem::field(path, "has the wrong type")
            }
            _ => explain(&path, error.inner()),
        }
    })?;
    json.end().map_err(|error| explain(".", &error))?;
    Ok(parsed)
}

fn explain(path: &str, error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    match error.classify() {
        Category::Data => {
            // The place in the text helps nobody who is told the field.
            let why = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why);
            let missing = why.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
            let path = match (path, missing) {
                (".", Some(field)) => field.to_owned(),
                (parent, Some(field)) => format!("{parent}.{field}"),
                (".", None) => "body".to_owned(),
                (path, None) => path.to_owned(),
            };
            Problem::field(path, why)
        }
        Category::Syntax | Category::Eof | Category::Io => {
            let detail = format!("the body is not JSON: {text}");
            let fields = match path {
                "." => Vec::new(),
                path => vec![FieldProblem { path: path.to_owned(), message: text }],
            };
            Problem { fields, ..Problem::with_detail(Code::InvalidRequest, detail).unreadable() }
        }
    }
}

/// How many entries a list may be asked for.
const LIMIT_MOST: i64 = 200;
const LIMIT_DEFAULT: i64 = 50;

/// How many entries to list.
pub(crate) fn limit(asked: Option<i64>) -> Result<i64, Problem> {
    match asked {
        None => Ok(LIMIT_DEFAULT),
        Some(limit @ 1..=LIMIT_MOST) => Ok(limit),
        Some(_) => Err(Problem::field("limit", format!("must be between 1 and {LIMIT_MOST}")).unreadable()),
    }
}
