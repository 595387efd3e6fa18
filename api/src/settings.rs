//! What the HTTP side is told: its own section of the configuration, and the limits that it shares with others.

use std::net::IpAddr;

use roundhouse_shared::units::{Size, Span};
use roundhouse_shared::workspaces::Workspaces;
use serde::{Deserialize, Serialize};

/// The `[server]` section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where to listen.
    pub listen: String,
    /// Origins whose pages may call from a browser (CORS); closed by default.
    pub public_origins: Vec<String>,
    /// Host names beside this machine's own under which clients reach this server: `host`, or `host:port` for that port
    /// alone. Requests that name another host are refused (DNS rebinding).
    pub public_hosts: Vec<String>,
    /// Most bytes of a request's body.
    pub body_limit: Size,
    /// How many files the process may have open: it bounds the connections that are served at once. Found at start.
    #[serde(skip)]
    pub open_files: u64,
    /// How long the head of a request may take from its first byte, and the first byte of a connection.
    #[serde(skip)]
    pub head_timeout: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7700".to_owned(),
            public_origins: Vec::new(),
            public_hosts: Vec::new(),
            body_limit: Size(1 << 20),
            // What a Linux process has unless somebody says otherwise.
            open_files: 1024,
            head_timeout: Span::from_secs(10),
        }
    }
}

impl Settings {
    /// Whether only this host can reach the address.
    pub fn is_loopback(&self) -> bool {
        let host = self.listen.rsplit_once(':').map_or(self.listen.as_str(), |(host, _)| host);
        is_loopback(host)
    }
}

/// Whether a host's name, without a port, means this host and no other.
pub(crate) fn is_loopback(host: &str) -> bool {
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    plain.eq_ignore_ascii_case("localhost") || plain.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// What other sections say that the HTTP side needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long a request waits until the model has a message that was sent while the agent worked.
    pub injection_timeout: Span,
    /// How long a JSON request waits for the answer to a message with a turn of its own.
    pub json_wait_timeout: Span,
    /// How long messages for an agent are admitted after its last worker was seen.
    pub worker_gap: Span,
    /// Where sessions may work.
    pub workspaces: Workspaces,
}
