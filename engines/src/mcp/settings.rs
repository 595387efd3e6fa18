//! What a server is configured with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::openai::Secret;

/// The longest name of a server: some of the 64 characters of a tool's name have to be left for the tool.
const MAX_NAME: usize = 32;

/// Settings of one MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What its tools' names begin with: letters, digits, `-` and `_`, but no `__`.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// How long it may take to start, to answer and to list its tools.
    pub connect_timeout: Duration,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// How long it is not tried after it could not be reached; if it ends twice within that time, it is not there.
    pub back_off: Duration,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// Started by us; it speaks over its standard input and output.
    Command {
        /// The program, looked up in the `PATH` that it gets.
        program: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its working directory. It serves all sessions of the agent, so it is none of theirs.
        cwd: PathBuf,
        /// What it gets beyond the variables that every process gets.
        environment: BTreeMap<String, Secret>,
    },
    /// Streamable HTTP.
    Http {
        /// Its address: `http://…` or `https://…`.
        url: String,
        /// Sent with each request.
        headers: BTreeMap<String, Secret>,
    },
}

/// A server cannot be what its settings say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidServer {
    /// The name cannot be part of a tool's name.
    #[error(
        "`{0}` cannot name an MCP server: it has to be letters, digits, `-` and `_`, at most 32, without `__`"
    )]
    Name(String),
    /// There is no program.
    #[error("the command of the MCP server `{0}` is empty")]
    Command(String),
    /// The address is none.
    #[error("the url of the MCP server `{0}` is no address like \"http://127.0.0.1:3001/mcp\"")]
    Url(String),
    /// A variable cannot have that name or value.
    #[error("`{variable}` of the MCP server `{server}` cannot be a variable")]
    Variable {
        /// The server.
        server: String,
        /// The variable.
        variable: String,
    },
    /// A header cannot have that name or value.
    #[error("`{header}` of the MCP server `{server}` cannot be a header")]
    Header {
        /// The server.
        server: String,
        /// The header.
        header: String,
    },
}

impl Settings {
    /// Settings with the usual times: 20 seconds to connect, 5 minutes a call, 30 seconds of back-off.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            transport,
            connect_timeout: Duration::from_secs(20),
            call_timeout: Duration::from_mins(5),
            back_off: Duration::from_secs(30),
        }
    }

    /// Whether this can be a server. Asks nobody.
    pub fn check(&self) -> Result<(), InvalidServer> {
        let name = &self.name;
        let is_taken = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_taken) || name.contains("__") {
            return Err(InvalidServer::Name(name.clone()));
        }
        match &self.transport {
            Transport::Command { program, .. } if program.is_empty() => {
                Err(InvalidServer::Command(name.clone()))
            }
            Transport::Command { environment, .. } => {
                let odd = |name: &str, value: &str| {
                    name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
                };
                match environment.iter().find(|(name, value)| odd(name, value.reveal())) {
                    Some((variable, _)) => {
                        Err(InvalidServer::Variable { server: name.clone(), variable: variable.clone() })
                    }
                    None => Ok(()),
                }
            }
            Transport::Http { url, headers } => {
                address(name, url)?;
                header_map(name, headers).map(drop)
            }
        }
    }
}

/// The address as one.
pub(super) fn address(server: &str, url: &str) -> Result<Url, InvalidServer> {
    let parsed = Url::parse(url).ok();
    parsed
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| InvalidServer::Url(server.to_owned()))
}

/// The headers as the client takes them, marked as secrets.
pub(super) fn header_map(
    server: &str,
    headers: &BTreeMap<String, Secret>,
) -> Result<HeaderMap, InvalidServer> {
    let mut map = HeaderMap::new();
    for (header, value) in headers {
        let invalid = || InvalidServer::Header { server: server.to_owned(), header: header.clone() };
        let name = HeaderName::try_from(header).map_err(|_| invalid())?;
        let mut value = HeaderValue::from_str(value.reveal()).map_err(|_| invalid())?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    Ok(map)
}
