//! Where sessions may work, and that the place is still the one when a turn begins.

use serde_json::{Value, json};

use crate::support::{Deployment, Kind, Options, on, text};

on!(a_directory_that_became_a_link_is_not_followed: Embedded, Distributed);
async fn a_directory_that_became_a_link_is_not_followed(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("root");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::create_dir_all(dir.path().join("outside")).unwrap();
    let env = vec![("ROUNDHOUSE_WORKSPACE_ROOTS", root.display().to_string())];
    let deployment = Deployment::with(kind, Options { env, ..Options::default() }).await;
    let client = deployment.client();
    let place = root.join("later");
    let created = client.post("/sessions", &json!({"agent": "tooled", "cwd": place})).await;
    let session = text(&created.json()["id"]);
    std::os::unix::fs::symlink("../outside", &place).unwrap();

    let refused = client.chat_with("tooled", Some(&session), "sleep 0 then say hi").await;

    assert_eq!(refused.code(), "422 CWD_NOT_ALLOWED", "{}", refused.body);
    std::fs::remove_file(&place).unwrap();
    assert_eq!(client.says("tooled", &session, "sleep 0 then say hi").await.trim(), "hi");
    assert!(place.is_dir());
    deployment.end().await;
}

on!(no_session_works_in_the_data_directory_but_in_its_own_workspace: Embedded, Distributed);
async fn no_session_works_in_the_data_directory_but_in_its_own_workspace(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let data = deployment.data_dir().canonicalize().unwrap();
    let other = client.session_with("tooled").await;
    client.says("tooled", &other, "sleep 0 then say hi").await;
    let own = data.join("workspaces").join(&other);
    assert!(own.is_dir());
    for cwd in [data.clone(), data.join("claude"), data.join("workspaces"), own, data.join("new")] {
        let refused = client.post("/sessions", &json!({"agent": "tooled", "cwd": cwd})).await;
        assert_eq!(refused.code(), "422 CWD_NOT_ALLOWED", "{}", cwd.display());
        let fork = client.post(&format!("/sessions/{other}/fork"), &json!({"cwd": cwd})).await;
        assert_eq!(fork.code(), "422 CWD_NOT_ALLOWED", "{}", cwd.display());
    }
    assert_eq!(client.session(&other).await["cwd"], Value::Null);
    deployment.end().await;
}
