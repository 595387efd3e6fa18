//! `roundhouse health`: whether a server is ready, as an exit code.

use std::process::ExitCode;
use std::time::Duration;

use crate::http::{self, HttpError};
use crate::terminal::{chain, complain, harmless};

/// A container's health check has 5 seconds.
const DEADLINE: Duration = Duration::from_secs(4);

pub(super) async fn run(server: &str) -> ExitCode {
    match ready(server).await {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(state)) => {
            complain(&format!("not ready: {}", harmless(&state)));
            ExitCode::FAILURE
        }
        Err(error) => {
            complain(&format!("no answer: {}", chain(&error)));
            ExitCode::FAILURE
        }
    }
}

/// `None`, or what the server says instead of being ready.
async fn ready(server: &str) -> Result<Option<String>, HttpError> {
    let url = http::below(&http::url(server)?, &["readyz"])?;
    let response = http::client(&url)?.get(url).timeout(DEADLINE).send().await?;
    let status = response.status();
    if status == 200 {
        return Ok(None);
    }
    let body = response.text().await?;
    Ok(Some(format!("{status} {}", body.trim())))
}
