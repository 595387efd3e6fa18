//! What others of the same user see of the server.

use crate::support::{Deployment, Kind, Options, on};

on!(tools_cannot_read_the_servers_environment_or_are_said_to: Embedded, Distributed);
async fn tools_cannot_read_the_servers_environment_or_are_said_to(kind: Kind) {
    let env = vec![("A_KEY_OF_THE_SERVER", "sk-of-the-server".to_owned())];
    let deployment = Deployment::with(kind, Options { env, ..Options::default() }).await;
    let client = deployment.client();

    let read = "sleep 0 then say x; tr '\\0' '\\n' < /proc/$PPID/environ | grep A_KEY; id -u";
    let result = client.chat_with("tooled", None, read).await.json();

    let content = result["content"].as_str().unwrap();
    let process = deployment.workers.iter().chain(&deployment.apis).next().unwrap();
    if nix::unistd::Uid::effective().is_root() {
        process.logged(&["WARN", "uid 0"]).await;
    } else {
        assert!(!content.contains("sk-of-the-server"), "{content}");
    }
    // Not from the command's own environment either way.
    let own = client.chat_with("tooled", None, "sleep 0 then say x; env").await.json();
    assert!(!own["content"].as_str().unwrap().contains("sk-of-the-server"), "{own}");
    deployment.end().await;
}
