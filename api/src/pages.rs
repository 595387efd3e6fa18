//! What people look at: the entry, the explanation of each error, and the documentation's viewer.

use axum::Json as Reply;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use axum::{Router, http::HeaderValue};
use roundhouse_shared::code::Code;
use serde_json::{Value, json};
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::app::Shared;
use crate::extract::Path;
use crate::openapi::openapi_json;
use crate::problem::ApiProblem;

/// The pages' routes.
pub(crate) fn routes() -> Router<Shared> {
    // Asked where it comes from: nothing is fetched from anywhere else.
    let viewer = SwaggerUi::new("/docs").config(Config::from("/openapi.json").validator_url("none"));
    let document = openapi_json();
    let serve_document = move || {
        let document = document.clone();
        async move { ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], document) }
    };
    Router::new()
        .route("/", get(index))
        .route("/openapi.json", get(serve_document))
        .route("/problems/{code}", get(problem))
        .merge(viewer)
}

async fn index(State(app): State<Shared>) -> Reply<Value> {
    Reply(json!({
        "name": "roundhouse",
        "version": app.version,
        "links": {
            "agents": "/agents",
            "sessions": "/sessions",
            "jobs": "/jobs",
            "queues": "/queues",
            "workers": "/workers",
            "docs": "/docs",
            "openapi": "/openapi.json",
            "health": "/healthz",
            "readiness": "/readyz",
        },
    }))
}

async fn problem(Path(name): Path<String>) -> Result<impl IntoResponse, ApiProblem> {
    let code = Code::from_name(&name).ok_or(ApiProblem::new(Code::NotFound))?;
    let (status, title, meaning) = (code.status(), escaped(code.title()), escaped(code.meaning()));
    Ok(Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{code}</title>\n\
         <h1>{title}</h1>\n<p><code>{code}</code>, status {status}</p>\n<p>{meaning}</p>\n</html>\n"
    )))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
