//! Problems as responses: `application/problem+json`, with what only a request knows.
//!
//! A handler's error travels in the response's extensions; the outermost layer ([`crate::request`]) writes it down,
//! because it knows the request's id and path. So there is one place that says what an error looks like.

use axum::http::{Extensions, StatusCode};
use axum::response::{IntoResponse, Response};
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::{JobId, SessionId};
use roundhouse_shared::problem::{FieldProblem, Problem};
use roundhouse_shared::store::StoreError;
use serde::Serialize;

use crate::request::Context;

/// An error on its way to the client, with what it is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiProblem {
    pub(crate) problem: Problem,
    session: Option<SessionId>,
    job: Option<JobId>,
}

impl ApiProblem {
    pub(crate) const fn new(code: Code) -> Self {
        Self { problem: Problem::new(code), session: None, job: None }
    }

    /// The same, about a job that was admitted.
    pub(crate) const fn about(mut self, session: SessionId, job: JobId) -> Self {
        (self.session, self.job) = (Some(session), Some(job));
        self
    }

    /// What an extension of a response says.
    pub(crate) fn take(extensions: &mut Extensions) -> Option<Self> {
        extensions.remove()
    }

    pub(crate) fn body(&self, context: &Context) -> ProblemBody {
        ProblemBody {
            session_id: self.session,
            job_id: self.job,
            correlation_id: self.job,
            instance: Some(context.path.to_string()),
            request_id: Some(context.id.to_string()),
            ..ProblemBody::from(self.problem.clone())
        }
    }
}

impl From<Problem> for ApiProblem {
    fn from(problem: Problem) -> Self {
        Self { problem, session: None, job: None }
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status());
        let mut response = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// An error as the client reads it (RFC 9457).
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// Where the code is explained: `/problems/{code}`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// What happened, in a few words.
    pub(crate) title: String,
    /// The HTTP status.
    pub(crate) status: u16,
    /// What is wrong with this request, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// The path of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<String>,
    /// The stable code, to match on.
    pub(crate) code: Code,
    /// The request's id, also in the header `x-request-id` and in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    /// The fields that are wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fields: Vec<FieldProblem>,
    /// The session that the error is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<SessionId>,
    /// The job that the error is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) job_id: Option<JobId>,
    /// The job's id again: it is the correlation id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) correlation_id: Option<JobId>,
}

impl From<Problem> for ProblemBody {
    fn from(problem: Problem) -> Self {
        Self {
            kind: format!("/problems/{}", problem.code),
            title: problem.code.title().to_owned(),
            status: problem.status(),
            detail: problem.detail,
            instance: None,
            code: problem.code,
            request_id: None,
            fields: problem.fields,
            session_id: None,
            job_id: None,
            correlation_id: None,
        }
    }
}

/// A problem with a code of its own that names a field.
pub(crate) fn field_problem(code: Code, path: &str, message: impl Into<String>) -> Problem {
    Problem { code, ..Problem::field(path, message) }
}

/// The code that stands for an error of a library's making.
pub(crate) const fn code_of(status: StatusCode) -> Code {
    match status {
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
        StatusCode::PAYLOAD_TOO_LARGE => Code::PayloadTooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
        status if status.as_u16() < 500 => Code::InvalidRequest,
        _ => Code::Internal,
    }
}
