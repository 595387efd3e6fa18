//! The `OpenAPI` document, made from the handlers, and the table of errors as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use roundhouse_shared::code::Code;
use utoipa::openapi::response::Response;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, OpenApi};

use crate::problem::ProblemBody;
use crate::request::PROBLEM_JSON;
use crate::routes;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Roundhouse",
        description = "Runs AI agents as durable jobs. Errors are problems (RFC 9457) with a stable `code`.",
        license(name = "Apache-2.0")
    ),
    components(schemas(ProblemBody)),
    tags(
        (name = "chat", description = "Agents, and messages for them"),
        (name = "sessions", description = "Conversations"),
        (name = "jobs", description = "Admitted pieces of work"),
        (name = "operations", description = "What operators look at"),
    )
)]
struct Document;

/// The document with nothing in it yet.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// The `OpenAPI` document as JSON: pretty, and the same for the same code.
pub fn openapi_json() -> String {
    let mut document = document();
    document.merge(routes::all().into_openapi());
    // Plain data with string keys always serialises.
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// `docs/errors.md`: every code with its status and meaning.
pub fn errors_markdown() -> String {
    let mut text = String::from(
        "# Errors\n\n\
         Every error is `application/problem+json` (RFC 9457). Match on `code`: it is stable; the texts are not.\n\
         Each code has a page at `/problems/{code}`, which is also the error's `type`.\n\n\
         <!-- Generated from shared/src/code.rs: UPDATE_DOCS=1 cargo test -p roundhouse-api -->\n\n\
         | code | status | title | meaning |\n|---|---|---|---|\n",
    );
    for code in Code::ALL {
        let status = match code {
            Code::InvalidRequest => "400, 422".to_owned(),
            code => code.status().to_string(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{code}` | {status} | {} | {} |", code.title(), code.meaning());
    }
    text
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident: $($code:ident),*;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                responses(&[$(Code::$code),*])
            }
        }
    )*};
}

problems! {
    /// What can go wrong with any reading.
    ReadProblems: ;
    /// With a list.
    ListProblems: InvalidRequest;
    /// With one session.
    SessionProblems: InvalidRequest, SessionNotFound;
    /// With what a session has.
    SessionListProblems: InvalidRequest, SessionNotFound;
    /// With a change of a session.
    ChangeProblems: InvalidRequest, SessionNotFound, PayloadTooLarge, UnsupportedMediaType;
    /// With what needs an idle session.
    BusyProblems: InvalidRequest, SessionNotFound, SessionBusy;
    /// With a new session.
    AgentProblems: InvalidRequest, CwdNotAllowed, AgentNotFound, PayloadTooLarge, UnsupportedMediaType;
    /// With one message of a session.
    MessageProblems: InvalidRequest, SessionNotFound, MessageNotFound, SessionBusy;
    /// With a trim or a reset.
    CutProblems: InvalidRequest, SessionNotFound, MessageNotFound, SessionBusy, IdempotencyConflict, ClaudeForkFailed,
        EngineForkFailed, WorkerLost, EngineUnavailable;
    /// With a fork.
    ForkProblems: InvalidRequest, CwdNotAllowed, SessionNotFound, MessageNotFound, SessionBusy, NoForkAnchor,
        IdempotencyConflict, PayloadTooLarge, UnsupportedMediaType, ClaudeForkFailed, EngineForkFailed, WorkerLost,
        EngineUnavailable;
    /// With one question.
    InteractionProblems: InvalidRequest, SessionNotFound, InteractionNotFound, InteractionResolved,
        PayloadTooLarge, UnsupportedMediaType;
    /// With one job.
    JobProblems: InvalidRequest, JobNotFound;
    /// With a message.
    ChatProblems: InvalidRequest, EmptyMessage, CwdNotAllowed, AgentNotFound, SessionNotFound, SessionBusy,
        IdempotencyConflict, PayloadTooLarge, UnsupportedMediaType, EngineFailed, WorkerLost, EngineUnavailable,
        InjectionTimeout;
}

/// What every operation can answer.
const COMMON: [Code; 3] = [Code::Forbidden, Code::Internal, Code::StoreUnavailable];

fn responses(codes: &[Code]) -> BTreeMap<String, RefOr<Response>> {
    let mut by_status: BTreeMap<u16, String> = BTreeMap::new();
    for code in codes.iter().chain(&COMMON) {
        let mut statuses = vec![code.status()];
        if *code == Code::InvalidRequest {
            statuses.push(400);
        }
        for status in statuses {
            let text = by_status.entry(status).or_default();
            if !text.is_empty() {
                text.push_str("; ");
            }
            let _ = write!(text, "`{code}`: {}", code.title());
        }
    }
    let schema = || Ref::from_schema_name("Problem");
    by_status
        .into_iter()
        .map(|(status, description)| {
            let content = ContentBuilder::new().schema(Some(schema())).build();
            let response = ResponseBuilder::new().description(description).content(PROBLEM_JSON, content);
            (status.to_string(), RefOr::T(response.build()))
        })
        .collect()
}
