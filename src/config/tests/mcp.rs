//! MCP servers in the configuration.

use super::{AGENT, Loaded, loaded};

fn with(mcp: &str) -> Result<Loaded, String> {
    loaded(&format!("{AGENT}mcp = {mcp}\n"), [])
}

#[test]
fn servers_are_read_and_their_secrets_are_never_shown() {
    let loaded = with(
        "{ files = { command = ['npx', 'server'], env = { KEY = 'hidden' } }, \
         web = { url = 'https://u:hidden@h/mcp?token=hidden', headers = { X-Key = 'hidden' } } }",
    )
    .unwrap();

    let servers = loaded.config.agents["a"].mcp_servers().unwrap();

    assert_eq!(servers.iter().map(|server| &*server.name).collect::<Vec<_>>(), ["files", "web"]);
    let text = loaded.to_toml();
    assert!(text.contains("npx") && text.contains("https://***@h/mcp?token=***"), "{text}");
    assert!(!text.contains("hidden"), "{text}");
}

#[test]
fn what_is_wrong_with_a_server_is_said() {
    for (mcp, said) in [
        ("{ x = {} }", "`x` has neither `command` nor `url`"),
        ("{ x = { command = ['a'], url = 'http://h' } }", "`x` has both `command` and `url`"),
        ("{ x = { command = [] } }", "`x` has an empty `command`"),
        ("{ x = { url = 'h' } }", "the url of the MCP server `x` is no address"),
        ("{ x = { url = 'http://h', env = { A = 'b' } } }", "`x` has `env` but no `command`"),
        ("{ x = { command = ['a'], headers = { A = 'b' } } }", "`x` has `headers` but no `url`"),
        ("{ a__b = { command = ['a'] } }", "`a__b` cannot name an MCP server"),
    ] {
        let error = with(mcp).unwrap_err();
        assert!(error.contains(&format!("`agents.a.mcp` is wrong ({said}")), "{mcp}: {error}");
        assert!(error.contains("it has to be a table like { files = { command = "), "{mcp}: {error}");
    }
    let error = with("{ x = { comand = ['a'] } }").unwrap_err();
    assert!(
        error.contains("`agents.a.mcp.x.comand`") && error.contains("`agents.a.mcp.x.command`"),
        "{error}"
    );
    let error = with("{ x = { command = 'hidden' } }").unwrap_err();
    assert!(error.contains("`agents.a.mcp.x.command` is set") && !error.contains("hidden"), "{error}");
}
