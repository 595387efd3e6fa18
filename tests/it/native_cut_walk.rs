//! After every cut, what is displayed is what the agent is shown: tried by a random walk, on every engine.

use serde_json::{Value, json};

use crate::support::{Client, Deployment, Engine, Gate, Kind, Waiting, on_every_engine, text, until};

const STEPS: usize = 25;

/// Numbers that look random, and are the same in every run.
struct Dice(u64);

impl Dice {
    /// One of the numbers below `n`.
    fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

on_every_engine!(what_is_displayed_is_what_is_shown_wherever_one_cuts: Embedded);
async fn what_is_displayed_is_what_is_shown_wherever_one_cuts(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let client = deployment.client();
    let agent = engine.asking();
    let mut dice = Dice(6);
    let mut session = client.session_with(agent).await;
    ask(client, agent, &session, "X = 1").await;
    for step in 0..STEPS {
        let what = match dice.roll(6) {
            0 => {
                ask(client, agent, &session, &format!("add {step} to x")).await;
                "a chat"
            }
            1 => {
                ask(client, agent, &session, &format!("sleep 0 then say step {step}")).await;
                "a tool"
            }
            2 => {
                injection(&deployment, engine, &session, step).await;
                "a message while a tool ran"
            }
            cut => {
                let messages = client.items(&format!("/sessions/{session}/messages?limit=200")).await;
                // Before the first word of the model there is nothing to remember.
                let first = messages.iter().position(|message| message["role"] == "assistant").unwrap();
                let at = &messages[first + dice.roll(messages.len() - first)];
                let what = if cut == 3 { "a fork" } else { "a trim" };
                if cut == 3 {
                    let forked = client.fork(&session, &json!({ "upToMessageId": at["id"] })).await;
                    is_native(engine, &forked.json());
                    session = text(&forked.json()["sessionId"]);
                } else {
                    let trimmed = client.trim(&session, at["id"].as_i64().unwrap()).await;
                    is_native(engine, &trimmed.json());
                }
                ask(client, agent, &session, "what is x").await;
                what
            }
        };
        client.counts(&session).await;
        let displayed = deployment.displayed_before_its_answer(client, &session).await;
        assert_eq!(deployment.shown_last(), displayed, "step {step}: {what}");
    }
    deployment.end().await;
}

fn is_native(engine: Engine, cut: &Value) {
    assert_eq!(cut["claudeForked"], engine == Engine::Claude, "{cut}");
}

/// Says something and allows whatever the agent wants to do about it.
async fn ask(client: &Client, agent: &str, session: &str, message: &str) {
    let asked = client.waiting_with(agent, session, message);
    allow(client, session, &asked).await;
    asked.result().await;
}

async fn allow(client: &Client, session: &str, until_over: &Waiting) {
    let path = format!("/sessions/{session}/interactions");
    until("a turn to end", async || {
        for question in client.items(&path).await {
            let answer = client.decide(session, &question, &json!({ "decision": "allow" })).await;
            assert!([200, 409].contains(&answer.status), "{}", answer.body);
        }
        until_over.is_over().then_some(())
    })
    .await;
}

/// Says something while a tool runs, and so within its turn.
async fn injection(deployment: &Deployment, engine: Engine, session: &str, step: usize) {
    let (client, agent) = (deployment.client(), engine.asking());
    let gate = Gate::closed();
    let first = client.waiting_with(agent, session, &format!("sleep 0 then say gate {step}"));
    let question = client.asked(session).await;
    let input = json!({ "command": gate.command(&format!("gate {step}")) });
    client.decide(session, &question, &json!({ "decision": "allow", "updatedInput": input })).await;
    until("the tool to run", async || (0 < gate.begun()).then_some(())).await;
    let said = format!("say meanwhile {step}");
    let second = client.waiting_with(agent, session, &said);
    deployment.in_reach(engine, session, &said).await;
    gate.open();
    allow(client, session, &first).await;
    allow(client, session, &second).await;
    first.result().await;
    second.result().await;
}
