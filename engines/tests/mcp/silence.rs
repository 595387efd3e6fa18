//! Servers that never answer.

use std::collections::BTreeMap;
use std::time::Duration;

use roundhouse_engines::mcp::{InvalidServer, Server, Settings, Transport};
use roundhouse_engines::tools::ToolSource;
use tokio::net::TcpListener;

use super::support::{command, patient, server, unavailable};

const DEADLINE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_program_that_never_answers_costs_a_deadline_and_then_nothing() {
    let server = server(Settings { connect_timeout: DEADLINE, ..command("sleep", &["100000"]) });

    server.prepare().await;

    let says = "The MCP server `every` is unavailable: it did not answer within 200ms";
    assert_eq!(unavailable(&server).await, says);
    assert_eq!(server.tools(), []);
}

#[tokio::test]
async fn an_address_that_never_answers_costs_a_deadline() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let transport = Transport::Http { url, headers: BTreeMap::new() };

    let server = server(Settings { connect_timeout: DEADLINE, ..patient("every", transport) });

    let says = "The MCP server `every` is unavailable: it did not answer within 200ms";
    assert_eq!(unavailable(&server).await, says);
}

#[test]
fn settings_that_make_no_server_are_refused() {
    let http = |url: &str, header: &str| Transport::Http {
        url: url.to_owned(),
        headers: BTreeMap::from([(header.to_owned(), "value".into())]),
    };
    let refused = |name: &str, transport| Server::new(Settings::new(name, transport)).unwrap_err();
    for name in ["", "a b", "a__b", "grüße", &"n".repeat(33)] {
        assert_eq!(refused(name, http("http://h", "X")), InvalidServer::Name(name.to_owned()));
    }
    for url in ["", "h", "ftp://h/", "http://"] {
        assert_eq!(refused("a", http(url, "X")), InvalidServer::Url("a".to_owned()), "{url}");
    }
    let header = refused("a", http("http://h", "a b"));
    assert_eq!(header.to_string(), "`a b` of the MCP server `a` cannot be a header");
    let Settings { transport, .. } = command("", &[]);
    assert_eq!(refused("a", transport), InvalidServer::Command("a".to_owned()));
}
