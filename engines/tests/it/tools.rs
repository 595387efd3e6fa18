//! A source of tools that do nothing but what tests need.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use roundhouse_engines::openai::Settings;
use roundhouse_engines::tools::{ToolContext, ToolOutcome, ToolSource, ToolSpec};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

/// `echo` returns its arguments, `shell` its command, `speak` says two things meanwhile, `fail` fails, `huge` returns
/// a lot, and `hang` never ends.
#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) ran: Mutex<Vec<String>>,
    /// Told when `hang` has begun.
    pub(crate) hangs: Notify,
    /// Closed when the future of `hang` is dropped.
    pub(crate) dropped: Mutex<Option<mpsc::UnboundedSender<()>>>,
}

/// Says that it was dropped.
struct Dropped(#[expect(dead_code, reason = "its drop is what counts")] Option<mpsc::UnboundedSender<()>>);

pub(crate) const NAMES: [&str; 6] = ["echo", "fail", "hang", "huge", "shell", "speak"];

#[async_trait]
impl ToolSource for Fake {
    fn tools(&self) -> Vec<ToolSpec> {
        let spec = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: format!("The tool {name}."),
            input_schema: json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}),
        };
        NAMES.into_iter().rev().map(spec).collect()
    }

    async fn call(&self, name: &str, input: Value, context: &ToolContext) -> ToolOutcome {
        self.ran.lock().unwrap().push(format!("{name} {input}"));
        match name {
            "echo" => ToolOutcome::success(input.to_string()),
            "shell" => ToolOutcome::success(format!("ran {}", input["command"])),
            "fail" => ToolOutcome::failure("it is broken\0"),
            "huge" => ToolOutcome::success("é".repeat(100_000)),
            "speak" => {
                for text in ["one", "two"] {
                    context.output.send(text.to_owned()).await.unwrap();
                }
                ToolOutcome::success(context.cwd.display().to_string())
            }
            _ => {
                let _dropped = Dropped(self.dropped.lock().unwrap().take());
                self.hangs.notify_one();
                std::future::pending().await
            }
        }
    }
}

/// Settings with these tools.
pub(crate) fn with_tools(settings: Settings) -> (Settings, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    (Settings { sources: vec![Arc::<Fake>::clone(&fake)], ..settings }, fake)
}
