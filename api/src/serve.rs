//! The router with its layers, and serving it until the process stops.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use roundhouse_shared::code::Code;
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::connections::{Connections, capacity};
use crate::guard::{Rules, cors, guard};
use crate::problem::ApiProblem;
use crate::request::frame;
use crate::settings::Settings;
use crate::{pages, routes};

/// Everything that is served.
pub fn router(app: App) -> Router {
    let limit = usize::try_from(app.settings.body_limit.0).unwrap_or(usize::MAX);
    let settings = app.settings.clone();
    let (routes, _) = routes::all().split_for_parts();
    let router = routes
        .merge(pages::routes())
        .fallback(|| async { ApiProblem::new(Code::NotFound) })
        .method_not_allowed_fallback(|| async { ApiProblem::new(Code::MethodNotAllowed) })
        .with_state(Arc::new(app))
        .layer(DefaultBodyLimit::max(limit));
    framed(router, &settings)
}

/// The layers that every request goes through, whatever it asks for.
fn framed(mut router: Router, settings: &Settings) -> Router {
    if let Some(cors) = cors(settings) {
        router = router.layer(cors);
    }
    router
        .layer(from_fn_with_state(Rules::new(settings), guard))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(frame))
}

#[expect(clippy::needless_pass_by_value, reason = "the layer's signature")]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("no text"), "a handler panicked");
    ApiProblem::new(Code::Internal).into_response()
}

/// Serves until the process stops. Softly: no new connections, session streams end, and what waits for an answer
/// gets it. Hard: everything ends.
pub async fn serve(listener: TcpListener, app: App) {
    let lifecycle = app.lifecycle.clone();
    let (most, head_timeout) = (capacity(app.settings.open_files), app.settings.head_timeout.0);
    Connections::new(router(app), lifecycle, most, head_timeout).serve(listener).await;
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_problem_without_its_text() {
        let router = Router::new().route("/", get(|| async { panic!("secret") as &str }));
        let router = framed(router, &Settings::default());
        let request = Request::get("/").header("host", "localhost").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 500);
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains(r#""code":"INTERNAL""#) && !text.contains("secret"), "{text}");
    }
}
