//! The tools that a server lists: read entry by entry, so that a bad one takes no other with it.

use std::collections::HashSet;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, Extensions, ListToolsRequest, ListToolsRequestMethod, PaginatedRequestParams, ServerResult,
};
use rmcp::service::{Peer, ServiceError};
use serde_json::Value;

use super::reasons::reason;
use super::settings::Settings;
use super::{names, schema};
use crate::tools::{LeftOut, ToolSpec};

/// The most tools of one server that are offered, and the most pages that are asked for.
const MAX_TOOLS: usize = 256;
const MAX_PAGES: usize = 64;
/// The longest description that a model gets.
const DESCRIPTION_BYTES: usize = 8 * 1024;
/// The most of a name that is quoted.
const NAME_BYTES: usize = 128;

/// A tool of a server.
#[derive(Debug)]
pub(super) struct Listed {
    /// Its name there.
    pub(super) original: String,
    pub(super) spec: ToolSpec,
}

/// What a server has listed.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) tools: Vec<Listed>,
    /// What is not offered, and why.
    pub(super) left_out: Vec<LeftOut>,
}

/// Asks for all pages. An error is for the model.
pub(super) async fn list(peer: &Peer<RoleClient>, settings: &Settings) -> Result<Listing, String> {
    let mut entries = Vec::new();
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let request =
            ListToolsRequest { method: ListToolsRequestMethod, params, extensions: Extensions::default() };
        let page = match peer.send_request(ClientRequest::ListToolsRequest(request)).await {
            Ok(page) => page,
            // It has none, and does not know the question.
            Err(ServiceError::McpError(error)) if error.code.0 == METHOD_NOT_FOUND => break,
            Err(error) => return Err(format!("it does not list its tools: {}", reason(&error, settings))),
        };
        let (found, next) = read(page)?;
        entries.extend(found);
        // One that is named twice leads in a circle.
        cursor = next.filter(|next| cursors.insert(next.clone()));
        if cursor.is_none() || entries.len() > MAX_TOOLS {
            break;
        }
    }
    let listing = Listing::of(settings, entries);
    for LeftOut { tool, reason, .. } in &listing.left_out {
        tracing::warn!(server = settings.name, tool, reason, "a tool of an MCP server is not offered");
    }
    Ok(listing)
}

/// JSON-RPC's word for a request that is not known.
const METHOD_NOT_FOUND: i32 = -32601;

/// The entries of a page, and where the next one begins. A list with an entry that is no tool is no list to the library, which
/// then passes it on as it came.
fn read(page: ServerResult) -> Result<(Vec<Value>, Option<String>), String> {
    match page {
        ServerResult::ListToolsResult(page) => {
            let entries = page.tools.into_iter().filter_map(|tool| serde_json::to_value(tool).ok());
            Ok((entries.collect(), page.next_cursor))
        }
        ServerResult::CustomResult(page) => match &page.0["tools"] {
            Value::Array(entries) => Ok((entries.clone(), page.0["nextCursor"].as_str().map(str::to_owned))),
            Value::Null => Ok((Vec::new(), None)),
            _ => Err("its list of tools is no list".to_owned()),
        },
        ServerResult::EmptyResult(_) => Ok((Vec::new(), None)),
        _ => Err("it answers something else than its tools".to_owned()),
    }
}

impl Listing {
    fn of(settings: &Settings, entries: Vec<Value>) -> Self {
        let mut left_out = Vec::new();
        let mut leave = |tool: &str, reason: String| {
            let tool = tool[..tool.floor_char_boundary(NAME_BYTES)].to_owned();
            left_out.push(LeftOut { source: settings.name.clone(), tool, reason });
        };
        let (mut known, mut good) = (HashSet::new(), Vec::new());
        for (place, entry) in entries.into_iter().enumerate() {
            let Some(name) = entry["name"].as_str().filter(|name| !name.trim().is_empty()) else {
                leave(&format!("#{place}"), "it has no name".to_owned());
                continue;
            };
            if good.len() == MAX_TOOLS {
                leave(name, format!("only {MAX_TOOLS} tools of a server are offered"));
                break;
            }
            match schema::mended(entry.get("inputSchema")) {
                Ok(_) if known.contains(name) => {
                    leave(name, "another tool of the server has its name".to_owned());
                }
                Ok(schema) => {
                    known.insert(name.to_owned());
                    good.push((name.to_owned(), description(&entry), schema));
                }
                Err(reason) => leave(name, reason),
            }
        }
        let names = names::wire_names(&settings.name, good.iter().map(|(name, ..)| &**name));
        let tools = names.into_iter().zip(good).map(|(name, (original, description, input_schema))| Listed {
            original,
            spec: ToolSpec { name, description, input_schema },
        });
        Self { tools: tools.collect(), left_out }
    }
}

fn description(entry: &Value) -> String {
    let text = ["description", "title"].iter().find_map(|name| entry[*name].as_str()).unwrap_or_default();
    text[..text.floor_char_boundary(DESCRIPTION_BYTES)].to_owned()
}
