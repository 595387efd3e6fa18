//! What is an answer and what is not: sub-agents, work in the background, summaries; and what it all has used.

use roundhouse_engines::claude::Settings;
use roundhouse_engines::contract::{AssistantMessage, EngineEvent, Usage};
use roundhouse_engines::openai::Prices;
use roundhouse_oracle::RecordedRequest;

use crate::host::{Host, Session, answer, done};
use crate::model::{Model, shell, text};

fn messages(events: &[EngineEvent]) -> Vec<&AssistantMessage> {
    let messages = events.iter().filter_map(|event| match event {
        EngineEvent::MessageDone(message) => Some(message),
        _ => None,
    });
    messages.collect()
}

/// Tokens of requests, as the oracle has told them: input without what was cached, output, cached.
fn provider(requests: &[RecordedRequest]) -> (u64, u64, u64) {
    requests.iter().filter_map(|request| request.usage).fold((0, 0, 0), |(input, output, cache), usage| {
        (
            input + usage.input_tokens - usage.cached_tokens,
            output + usage.output_tokens,
            cache + usage.cached_tokens,
        )
    })
}

fn tokens(usage: &Usage) -> (u64, u64, u64) {
    (usage.input_tokens, usage.output_tokens, usage.cache_tokens)
}

#[tokio::test]
async fn a_turn_with_a_tool_is_told_step_by_step() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let message = session.send("sleep 0 then say slept").await;
    let events = session.rest().await;
    let kinds: Vec<_> = events
        .iter()
        .map(|event| format!("{event:?}").split(['(', ' ']).next().unwrap().to_owned())
        .collect();
    assert_eq!(
        kinds,
        ["Delivered", "MessageDone", "ToolStarted", "ToolDone", "Delta", "MessageDone", "TurnDone"],
        "{events:#?}"
    );
    let [calling, last] = messages(&events)[..] else { panic!("{events:?}") };
    assert_eq!((&*calling.content, &*last.content), ("", "slept"));
    let [call] = &calling.tool_calls[..] else { panic!("{calling:?}") };
    assert!(matches!(&events[2], EngineEvent::ToolStarted(started) if started.id == call.id));
    assert!(
        matches!(&events[3], EngineEvent::ToolDone { id, name, success: true, result, .. } if *id == call.id && name == "Bash" && result == "slept"),
        "{events:?}"
    );
    let done = done(&events);
    assert_eq!((done.iterations, done.answered), (2, vec![message.id]));

    // Anchors are entries of the transcript.
    let native = session.native();
    session.close().await;
    let projects = host.path("config").join("projects");
    let folder = std::fs::read_dir(projects).unwrap().next().unwrap().unwrap().path();
    let transcript = crate::host::read(folder.join(format!("{native}.jsonl")));
    for message in [calling, last] {
        let anchor = message.anchor.as_ref().unwrap();
        assert!(transcript.contains(&format!("\"uuid\":\"{anchor}\"")), "{anchor}");
    }
}

#[tokio::test]
async fn a_message_that_calls_two_tools_is_one_model_call() {
    let host = Host::new().await;
    let calls = vec![shell("toolu_1", "echo a"), shell("toolu_2", "echo b")];
    let model = Model::start([calls, vec![text("both")]]).await;
    let mut settings = host.settings();
    settings.env.insert("ANTHROPIC_BASE_URL".to_owned(), model.url.as_str().into());
    let mut session = host.open_with(settings, None).await;

    session.send("use two tools").await;
    let events = session.rest().await;

    assert_eq!(answer(&events), "both");
    let calls: Vec<_> = messages(&events).iter().map(|message| message.tool_calls.len()).collect();
    assert_eq!(calls, [2, 0]);
    // Each of its answers has cost 5.
    assert_eq!((done(&events).iterations, done(&events).usage.output_tokens), (2, 10));
}

#[tokio::test]
async fn usage_is_of_each_turn_alone_also_after_a_resume_and_is_what_the_provider_has_told() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let mut costs = vec![];
    for round in 0..4 {
        if round == 3 {
            let native = session.native();
            session.close().await;
            session = host.resume(&native).await;
        }
        let before = host.requests().len();
        session.send("sleep 0 then say slept").await;
        let events = session.rest().await;
        let used = done(&events).usage;
        assert_eq!(tokens(&used), provider(&host.requests()[before..]), "round {round}");
        let sum = messages(&events).iter().fold((0, 0, 0), |sum, message| {
            let (input, output, cache) = tokens(&message.usage);
            (sum.0 + input, sum.1 + output, sum.2 + cache)
        });
        assert_eq!(sum, tokens(&used), "round {round}");
        costs.push(used.cost_nanos.unwrap());
    }
    // The first has nothing in the cache. The others cost about the same; a running total would grow by as much each time.
    let (least, most) = (costs[1..].iter().min().unwrap(), costs[1..].iter().max().unwrap());
    assert!(*least > 0 && *most < least * 3 / 2, "{costs:?}");
}

#[tokio::test]
async fn a_cost_that_the_cli_does_not_know_comes_from_prices() {
    let host = Host::new().await;
    let prices = Prices { input: 1.0, output: 2.0, cache: Some(0.5) };
    let settings = Settings { prices: Some(prices), ..host.settings() };
    let mut session = host.open_with(settings, None).await;
    session.send("say hi").await;
    let events = session.rest().await;
    let (input, output, cache) = provider(&host.requests());
    let expected = i64::try_from(input * 1000 + output * 2000 + cache * 500).unwrap();
    assert_eq!(messages(&events)[0].usage.cost_nanos, Some(expected));
}

#[tokio::test]
async fn a_sub_agent_is_shown_under_its_call_and_is_no_answer() {
    let host = Host::new().await;
    let mut session = host.open().await;
    session.send("spawn helper: sleep 0 then say inside").await;
    let events = session.rest().await;
    let [calling, last] = messages(&events)[..] else { panic!("{events:#?}") };
    let call = &calling.tool_calls[0];
    assert_eq!(call.name, "Agent");
    assert!(last.content.contains("inside"), "{last:?}");
    let outputs: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            EngineEvent::ToolOutput { id, text } => Some((&**id, &**text)),
            _ => None,
        })
        .collect();
    assert!(outputs.iter().all(|(id, _)| *id == call.id), "{outputs:?}");
    assert!(outputs.iter().any(|(_, text)| text.starts_with("Bash ")), "{outputs:?}");
    let started = events.iter().filter(|event| matches!(event, EngineEvent::ToolStarted(_))).count();
    assert_eq!(started, 1, "{events:?}");
    // The sub-agent's calls of the model are paid for too.
    assert_eq!(host.requests().len(), 4);
    assert_eq!(tokens(&done(&events).usage), provider(&host.requests()));
}

#[tokio::test]
async fn what_a_task_in_the_background_brings_answers_nobody() {
    let host = Host::new().await;
    let mut session = host.open().await;
    session.send("spawn-async helper: say from the background").await;
    let first = session.rest().await;
    assert!(!answer(&first).is_empty());
    // The turn that the CLI begins by itself.
    let by_itself = |request: &RecordedRequest| request.json().to_string().contains("task-notification");
    host.oracle.wait_for(by_itself, crate::host::TOO_LONG).await.unwrap();
    let message = session.send("say asked for").await;
    let events = session.rest().await;
    assert_eq!(done(&events).answered, [message.id]);
    assert!(answer(&events).ends_with("asked for"), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, EngineEvent::Autonomous(_))), "{events:#?}");
}

#[tokio::test]
async fn a_summary_is_said_and_the_turn_goes_on_with_it() {
    let host = Host::new().await;
    let settings = Settings { slash_commands: true, ..host.settings() };
    let mut session = host.open_with(settings, None).await;
    session.chat("X = 5").await;
    session.send("/compact").await;
    let events = session.rest().await;
    assert!(
        events.iter().any(|event| matches!(event, EngineEvent::Compacted { replaced: 0, summary, .. } if !summary.is_empty())),
        "{events:#?}"
    );
    done(&events);
    let paid = done(&events).usage;
    assert!(paid.output_tokens > 0 && paid.cost_nanos > Some(0), "{paid:?}");
    session.chat("say after").await;
}

#[tokio::test]
async fn a_command_of_the_cli_answers_with_its_text() {
    let host = Host::new().await;
    let settings = Settings { slash_commands: true, ..host.settings() };
    let mut session: Session = host.open_with(settings, None).await;
    let said = session.chat("/cost").await;
    assert!(said.contains("cost"), "{said}");
    assert_eq!(host.requests().len(), 0);
}
