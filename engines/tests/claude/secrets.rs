//! What the tools of the CLI find of its keys.

use roundhouse_engines::claude::Settings;
use roundhouse_engines::contract::EngineEvent;
use roundhouse_engines::mcp::{self, Transport};

use crate::host::{Host, answer};

const KEY: &str = "sk-ant-real-and-secret";

/// Settings whose only key is this variable.
fn with_key(host: &Host, name: &str) -> Settings {
    let mut settings = host.settings();
    settings.env.remove("ANTHROPIC_API_KEY");
    settings.env.insert(name.to_owned(), KEY.into());
    settings.env.insert("ANTHROPIC_CUSTOM_HEADERS".to_owned(), "X-Gateway-Key: sk-gateway-secret".into());
    settings
}

#[tokio::test]
async fn no_tool_finds_the_key_and_the_provider_gets_it() {
    for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"] {
        let host = Host::new().await;
        let mut session = host.open_with(with_key(&host, name), None).await;
        // The environment of the command, of the CLI, and of everything else of this user's that the CLI has started.
        let look = "env; for p in $$ $PPID $CLAUDE_PID; do tr '\\0' '\\n' < /proc/$p/environ; \
                    tr '\\0' '\\n' < /proc/$p/cmdline; done; echo looked";
        session.send(&format!("sleep 0 then say x; {look}")).await;
        let events = session.rest().await;

        let seen = events.iter().find_map(|event| match event {
            EngineEvent::ToolDone { result, success: true, .. } => Some(result.clone()),
            _ => None,
        });
        let seen = seen.unwrap_or_else(|| panic!("{events:?}"));
        assert!(seen.contains("looked") && seen.contains("CLAUDE_CONFIG_DIR"), "{seen}");
        assert!(!seen.contains("secret"), "{name}: {seen}");
        assert!(!answer(&events).contains("secret"));
        session.close().await;
    }
}

#[tokio::test]
async fn the_servers_of_a_session_are_not_left_on_disk() {
    let host = Host::new().await;
    let web = Transport::Http {
        url: "http://127.0.0.1:9/mcp".into(),
        headers: [("Authorization".to_owned(), "Bearer sk-mcp-secret".into())].into(),
    };
    let settings = Settings { mcp: vec![mcp::Settings::new("web", web)], ..host.settings() };
    let mut session = host.open_with(settings, None).await;
    let look = "grep -rl sk-mcp-secret $CLAUDE_CONFIG_DIR; tr '\\0' '\\n' < /proc/$PPID/cmdline; echo looked";
    session.send(&format!("sleep 0 then say x; {look}")).await;
    let events = session.rest().await;
    let seen = answer(&events);
    assert!(seen.contains("looked"), "{events:?}");
    assert!(!seen.contains("mcp-secret") && !seen.contains("mcp-0"), "{seen}");
    session.close().await;
}
