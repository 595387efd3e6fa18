//! The configuration: defaults, then the file, then the environment, then flags.
//!
//! Every value keeps its source, so that what is wrong can be said with key and place. Each crate has its section's struct
//! beside its code; here are those that belong to none.

mod agent;
mod check;
mod check_agents;
mod environment;
mod error;
mod keys;
mod load;
mod mask;
mod mcp;
mod print;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use roundhouse_shared::units::{Size, Span};
use roundhouse_shared::{redis, store, telemetry};
use serde::{Deserialize, Serialize};

pub(crate) use agent::{ASK_USER, AgentSettings, SPAWN_AGENT};
pub(crate) use check::Role;
pub(crate) use environment::Environment;
pub(crate) use error::ConfigError;
pub(crate) use load::{Flag, Loaded, load};
pub(crate) use mask::{shown_url, shown_variable};
pub(crate) use print::example;

/// All settings of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) data: Data,
    pub(crate) store: store::Settings,
    pub(crate) redis: redis::Settings,
    pub(crate) log: telemetry::Settings,
    pub(crate) worker: roundhouse_worker::Settings,
    pub(crate) limits: Limits,
    pub(crate) workspaces: Workspaces,
    pub(crate) agents: BTreeMap<String, AgentSettings>,
}

/// The `[server]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) listen: String,
    pub(crate) public_hosts: Vec<String>,
    pub(crate) public_origins: Vec<String>,
    pub(crate) body_limit: Size,
    pub(crate) insecure_bind: bool,
}

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Data {
    pub(crate) dir: PathBuf,
}

/// The `[limits]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) injection_timeout: Span,
    pub(crate) json_wait_timeout: Span,
    pub(crate) turn_timeout: Span,
    pub(crate) interaction_timeout: Span,
    pub(crate) cancel_grace: Span,
    pub(crate) no_progress: Span,
    pub(crate) worker_gap: Span,
}

/// The `[workspaces]` section.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Workspaces {
    pub(crate) roots: Vec<PathBuf>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7700".to_owned(),
            public_hosts: Vec::new(),
            public_origins: Vec::new(),
            body_limit: Size(1 << 20),
            insecure_bind: false,
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self { dir: PathBuf::from("./data") }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            injection_timeout: Span::from_secs(5 * 60),
            json_wait_timeout: Span::from_secs(10 * 60),
            turn_timeout: Span::from_secs(2 * 60 * 60),
            interaction_timeout: Span::from_secs(60 * 60),
            cancel_grace: Span::from_secs(5),
            no_progress: Span::from_secs(10 * 60),
            worker_gap: Span::from_secs(5 * 60),
        }
    }
}

impl Server {
    /// Where a client on this host finds the server.
    pub(crate) fn local_url(&self) -> String {
        match self.listen.parse::<SocketAddr>() {
            Ok(mut address) if address.ip().is_unspecified() => {
                let loopback: IpAddr =
                    if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
                address.set_ip(loopback);
                format!("http://{address}")
            }
            _ => format!("http://{}", self.listen),
        }
    }

    /// Whether only this host can reach the address.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.listen.parse::<SocketAddr>() {
            Ok(address) => address.ip().is_loopback(),
            Err(_) => is_localhost(&self.listen),
        }
    }
}

/// Whether a text is an address to listen on.
fn is_address(text: &str) -> bool {
    text.parse::<SocketAddr>().is_ok() || is_localhost(text)
}

fn is_localhost(text: &str) -> bool {
    text.strip_prefix("localhost:").is_some_and(|port| port.parse::<u16>().is_ok())
}
