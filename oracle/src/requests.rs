//! `GET /requests` and `DELETE /requests`: the record over HTTP.

use std::{borrow::Cow, collections::BTreeMap};

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse, response::Response};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    answer::Model,
    log::{Protocol, RecordedRequest},
    usage::Usage,
};

/// An entry as it is shown; see [`RecordedRequest`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    seq: u64,
    protocol: Protocol,
    start_n: u64,
    end_n: Option<u64>,
    started_ms: u64,
    ended_ms: Option<u64>,
    in_flight: bool,
    client_gone: bool,
    status: Option<u16>,
    usage: Option<Usage>,
    headers: BTreeMap<&'a str, Cow<'a, str>>,
    body: Sent<'a>,
}

/// A body: JSON as it was sent, else as text.
#[derive(Serialize)]
#[serde(untagged)]
enum Sent<'a> {
    Json(&'a RawValue),
    Text(Cow<'a, str>),
}

impl<'a> Entry<'a> {
    fn new(request: &'a RecordedRequest) -> Entry<'a> {
        let headers = request.headers.iter();
        Entry {
            seq: request.seq,
            protocol: request.protocol,
            start_n: request.start_n,
            end_n: request.end_n,
            started_ms: request.started_ms,
            ended_ms: request.ended_ms,
            in_flight: request.in_flight(),
            client_gone: request.client_gone,
            status: request.status,
            usage: request.usage,
            headers: headers
                .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
                .collect(),
            body: serde_json::from_slice(&request.body)
                .map_or_else(|_| Sent::Text(String::from_utf8_lossy(&request.body)), Sent::Json),
        }
    }
}

/// All entries, oldest first.
pub(crate) async fn list(State(model): State<Model>) -> Response {
    let requests = model.log().requests();
    Json(requests.iter().map(Entry::new).collect::<Vec<_>>()).into_response()
}

/// Forgets all entries.
pub(crate) async fn clear(State(model): State<Model>) -> StatusCode {
    model.log().clear();
    StatusCode::NO_CONTENT
}
