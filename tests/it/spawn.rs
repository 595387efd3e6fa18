//! Which agents an agent may start, and that none of them may do more than it.

use serde_json::json;

use crate::support::{Client, Deployment, Kind, ORACLE, Options, agent, on, text, until};

/// Agents on the oracle.
fn agents(all: &[(&str, &str)]) -> Options {
    let agents = all.iter().map(|(name, more)| agent(name, &format!("{ORACLE}/v1"), more)).collect();
    Options { workers: 2, agents, ..Options::default() }
}

async fn told(client: &Client, agent: &str, message: &str) -> String {
    text(&client.chat_with(agent, None, message).await.json()["content"])
}

const SPAWNS: &str = "tools = [\"shell\", \"spawn_agent\"]";

on!(an_agent_starts_those_that_it_lists_and_without_a_list_itself: Embedded, Distributed);
async fn an_agent_starts_those_that_it_lists_and_without_a_list_itself(kind: Kind) {
    let listed = format!("{SPAWNS}\nspawn = [\"oracle\"]");
    let deployment = Deployment::with(kind, agents(&[("listed", &listed), ("alone", SPAWNS)])).await;
    let client = deployment.client();

    assert_eq!(told(client, "listed", "spawn oracle: say here").await.trim(), "here");
    let refused = told(client, "listed", "spawn tooled: say here").await;
    assert!(refused.contains("there is no agent \"tooled\" that this agent may start"), "{refused}");
    assert_eq!(told(client, "alone", "spawn alone: say here").await.trim(), "here");
    let refused = told(client, "alone", "spawn oracle: say here").await;
    assert!(refused.contains("there are: alone"), "{refused}");
    // The model is told whom it may start.
    let request = deployment.oracle.requests().last().unwrap().json();
    let tools = request["tools"].as_array().unwrap();
    let spawn = tools.iter().find(|tool| tool["function"]["name"] == "spawn_agent").unwrap();
    assert_eq!(spawn["function"]["parameters"]["properties"]["agent"]["enum"], json!(["alone"]));
    deployment.end().await;
}

on!(a_child_and_its_children_may_do_no_more_than_those_above_them: Embedded, Distributed);
async fn a_child_and_its_children_may_do_no_more_than_those_above_them(kind: Kind) {
    let bound = format!("{SPAWNS}\nspawn = [\"free\"]\npermissions = {{ deny = [\"shell(sleep)\"] }}");
    let free = format!("{SPAWNS}\nspawn = [\"free\"]");
    let deployment = Deployment::with(kind, agents(&[("bound", &bound), ("free", &free)])).await;
    let (client, other) = (deployment.client(), deployment.other());
    let run = "sleep 0 then say ran";

    assert_eq!(told(client, "free", run).await.trim(), "ran", "by itself it may");
    let child = told(client, "bound", &format!("spawn free: {run}")).await;
    assert!(child.contains("is not permitted"), "{child}");
    let grandchild = told(client, "bound", &format!("spawn free: spawn free: {run}")).await;
    assert!(grandchild.contains("is not permitted"), "{grandchild}");

    // In a later turn of the child, on whichever worker.
    let sessions = other.items("/sessions?limit=100").await;
    let child = sessions.iter().find(|session| !session["parentSessionId"].is_null()).unwrap();
    let later = other.chat_with("free", Some(&text(&child["id"])), run).await.json();
    assert!(text(&later["content"]).contains("is not permitted"), "{later}");
    deployment.end().await;
}

on!(a_child_asks_where_its_parent_would_have_to: Embedded, Distributed);
async fn a_child_asks_where_its_parent_would_have_to(kind: Kind) {
    let careful = format!("{SPAWNS}\nspawn = [\"tooled\"]\npermissions = {{ ask = [\"shell\"] }}");
    let deployment = Deployment::with(kind, agents(&[("careful", &careful)])).await;
    let client = deployment.client();
    let parent = client.session_with("careful").await;
    let caller = client.waiting_with("careful", &parent, "spawn tooled: sleep 0 then say allowed");
    let child = until("a child", async || client.children_of(&parent).await.pop()).await;

    let question = client.asked(&child).await;
    client.decide(&child, &question, &json!({"decision": "allow"})).await;

    assert_eq!(text(&caller.result().await["content"]).trim(), "allowed");
    deployment.end().await;
}
