//! What a user sees of a configuration that is wrong.

use super::{AGENT, loaded};

fn error(file: &str) -> String {
    loaded(file, []).err().unwrap_or_else(|| panic!("{file:?} was taken"))
}

#[test]
fn what_is_wrong_in_a_file_is_said_with_key_place_and_what_would_be_right() {
    let span = "it has to be a length of time, like \"500ms\", \"30s\", \"5m\" or \"2h\"";
    let cases = [
        ("[worker]\nlease = 30", format!("`worker.lease` is 30, set in roundhouse.toml; {span}")),
        ("[worker]\nlease = '30 s'", format!("`worker.lease` is \"30 s\", set in roundhouse.toml; {span}")),
        (
            "[worker]\nlease = '100ms'",
            "`worker.lease` is 100ms, set in roundhouse.toml; it has to be at least 300ms".to_owned(),
        ),
        (
            "[worker]\nslots = 0",
            "`worker.slots` is 0, set in roundhouse.toml; it has to be at least 1".to_owned(),
        ),
        (
            "[worker]\nslots = -1",
            "`worker.slots` is -1, set in roundhouse.toml; it has to be a whole number that is not negative, like 8"
                .to_owned(),
        ),
        (
            "[worker]\nsweep = '0s'",
            "`worker.sweep` is 0ms, set in roundhouse.toml; it has to be longer than nothing, like \"2s\"".to_owned(),
        ),
        (
            "[server]\nlisten = 'example.org:80'",
            "`server.listen` is \"example.org:80\", set in roundhouse.toml; it has to be an IP address and a port, like \
             \"127.0.0.1:7700\""
                .to_owned(),
        ),
        (
            "[server]\nlisen = 'x'",
            "`server.lisen`, set in roundhouse.toml, is not a key; did you mean `server.listen`?".to_owned(),
        ),
        ("[servr]\nlisten = 'x'", "`servr`, set in roundhouse.toml, is not a key; did you mean `server`?".to_owned()),
        ("[log]\nformat = 'xml'", "`log.format` is \"xml\", set in roundhouse.toml; it has to be \"text\" or \"json\"".to_owned()),
        (
            "[store]\nurl = 'mysql://u:secret@h/d?password=secret'",
            "`store.url` is \"mysql://u:***@h/d?password=***\", set in roundhouse.toml; it has to be \"sqlite\", \
             \"sqlite:<path>\" or \"postgres://…\""
                .to_owned(),
        ),
        ("server = 3", "`server` is 3, set in roundhouse.toml; it has to be a table: [server]".to_owned()),
        (
            "[worker]\nshutdown_grace = '1s'",
            "`worker.shutdown_grace` is 1s, set in roundhouse.toml, and `limits.cancel_grace` is 5s, set by default; the \
             first has to be at least as long as the second"
                .to_owned(),
        ),
        (
            "[workspaces]\nroots = ['here']",
            "`workspaces.roots` is \"here\", set in roundhouse.toml; it has to be absolute paths".to_owned(),
        ),
        (
            "a = 1\nb = [",
            "the configuration roundhouse.toml is not TOML: line 2: invalid array; expected `]`".to_owned(),
        ),
    ];
    for (file, said) in cases {
        assert_eq!(error(file), said, "{file}");
    }
}

#[test]
fn what_is_wrong_with_an_agent_is_said_as_well() {
    let agent = |key: &str| format!("{AGENT}{key}\n");
    let cases = [
        (
            "[agents.a]\nengine = 'codex'\ncommand = ['codex']".to_owned(),
            "`agents.a.engine` is \"codex\", which is not in this version, set in roundhouse.toml; it has to be \"openai\" \
             or \"claude-cli\", the engines of this version",
        ),
        (
            "[agents.a]\nengine = 'opnai'".to_owned(),
            "`agents.a.engine` is \"opnai\", set in roundhouse.toml; it has to be \"openai\" or \"claude-cli\", the engines of \
             this version",
        ),
        (
            "[agents.a]\nengine = 'claude-cli'\nbase_url = 'http://h/v1'".to_owned(),
            "`agents.a.base_url`, set in roundhouse.toml, is not a key; there are `engine`, `command`, `env`, `api_key_env`, `model`, \
             `instructions`, `tools`, `mcp`, `permissions`, `permission_mode`, `setting_sources`, `slash_commands`, \
             `max_iterations`, `turn_timeout`, `max_cost`, `prices`",
        ),
        (
            "[agents.a]\nengine = 'claude-cli'\npermission_mode = 'yolo'".to_owned(),
            "`agents.a.permission_mode` is \"yolo\", set in roundhouse.toml; it has to be \"default\", \"acceptEdits\", \"plan\" or \
             \"bypassPermissions\"",
        ),
        (
            "[agents.a]\nengine = 'claude-cli'\ncommand = []".to_owned(),
            "`agents.a.command` is empty, set in roundhouse.toml; it has to be a list: the program and its first arguments, like \
             [\"claude\"]",
        ),
        (
            "[agents.a]\nengine = 'openai'\nmodel = 'm'".to_owned(),
            "`agents.a.base_url` is missing in roundhouse.toml; it has to be the address of an OpenAI-compatible API, like \
             \"http://127.0.0.1:11434/v1\"",
        ),
        (
            agent("modle = 'm'"),
            "`agents.a.modle`, set in roundhouse.toml, is not a key; did you mean `agents.a.model`?",
        ),
        (
            agent("sandbox = 'none'"),
            "`agents.a.sandbox`, set in roundhouse.toml, is not a key; there are `engine`, `base_url`, `api_key_env`, `model`, \
             `instructions`, `context_window`, `compat`, `tools`, `spawn`, `mcp`, `permissions`, `max_iterations`, `turn_timeout`, `max_cost`, `max_tries`, \
             `prices`, `extra_headers`, `extra_body`",
        ),
        (
            agent("prices = { input = 'x', output = 1 }"),
            "`agents.a.prices.input` is \"x\", set in roundhouse.toml; it has to be f64",
        ),
        (
            agent("extra_headers = { X-Key = 12345 }"),
            "`agents.a.extra_headers.X-Key` is set, set in roundhouse.toml; it has to be a string",
        ),
        (
            agent("max_tries = 0"),
            "`agents.a.max_tries` is 0, set in roundhouse.toml; it has to be a whole number from 1, like 4",
        ),
        (
            AGENT.replace("agents.a", "agents.'a/b'"),
            "`agents.a/b`, set in roundhouse.toml, cannot be a name: it has to be letters, digits, `-`, `_` or `.`, at \
             most 64",
        ),
        (
            AGENT.replace("http://", "ftp://"),
            "`agents.a.base_url` is \"ftp://h/v1\", set in roundhouse.toml; it has to be the address of an \
             OpenAI-compatible API, like \"http://127.0.0.1:11434/v1\"",
        ),
    ];
    for (file, said) in cases {
        assert_eq!(error(&file), said, "{file}");
    }
}

#[test]
fn what_an_agent_cannot_have_is_said() {
    let agent = |key: &str| format!("{AGENT}{key}\n");
    let cases = [
        (
            agent("tools = ['shel']"),
            "`agents.a.tools` is wrong (there is no built-in tool `shel`: there are edit_file, list_files, read_file, \
             search_files, shell, write_file, ask_user, spawn_agent), set in roundhouse.toml; it has to be a list of \
             tools, like [\"shell\", \"read_file\", \"ask_user\"]",
        ),
        (
            agent("tools = ['spawn_agent']\nspawn = ['a', 'b']"),
            "`agents.a.spawn` is wrong (there is no agent \"b\"), set in roundhouse.toml; it has to be a list of agents of \
             this configuration, like [\"reviewer\"]",
        ),
        (
            agent("spawn = ['a']"),
            "`agents.a.spawn` is set in roundhouse.toml, and `agents.a.tools` has no `spawn_agent`, so nothing would ever \
             be started",
        ),
        (
            agent("permissions = { default = 'maybe' }"),
            "`agents.a.permissions` is wrong (unknown variant `maybe`, expected one of `allow`, `ask`, `deny`), set in \
             roundhouse.toml; it has to be a table like { default = \"allow\", ask = [\"shell\"], deny = \
             [\"shell(rm)\"] } of allow, ask or deny",
        ),
        (
            agent("max_iterations = 0"),
            "`agents.a.max_iterations` is 0, set in roundhouse.toml; it has to be a whole number from 1",
        ),
        (
            agent("context_window = 0"),
            "`agents.a.context_window` is 0, set in roundhouse.toml; it has to be a number of tokens from 1",
        ),
        (
            agent("max_cost = -1.0"),
            "`agents.a.max_cost` is out of range, set in roundhouse.toml; it has to be a sum in US dollars from 0 to \
             1000000000",
        ),
        (
            agent("max_cost = 0.5"),
            "`agents.a.max_cost` is set in roundhouse.toml, and `agents.a.prices` is not: without prices no cost is known, \
             and nothing would ever reach the limit; set `agents.a.prices`, or leave `agents.a.max_cost` out",
        ),
    ];
    for (file, said) in cases {
        assert_eq!(error(&file), said, "{file}");
    }
}

#[test]
fn what_is_wrong_in_the_environment_is_said_with_the_variable() {
    let wrong = |name, value| loaded("", [(name, value)]).unwrap_err();
    assert_eq!(
        wrong("ROUNDHOUSE_SLOTS", "many"),
        "`worker.slots` is \"many\", set in the variable ROUNDHOUSE_SLOTS; it has to be a whole number that is not \
         negative, like 8"
    );
    assert_eq!(
        wrong("ROUNDHOUSE_INSECURE_BIND", "yes"),
        "`server.insecure_bind` is \"yes\", set in the variable ROUNDHOUSE_INSECURE_BIND; it has to be true or false"
    );
    let unknown = wrong("ROUNDHOUSE_DATABSE_URL", "x");
    assert!(
        unknown.starts_with(
            "ROUNDHOUSE_DATABSE_URL is not a variable of Roundhouse; nearest are `ROUNDHOUSE_DATABASE_URL`"
        ),
        "{unknown}"
    );
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let said = loaded("[worker]\nslots = 0\nlease = '1ms'", []).unwrap_err();
    assert_eq!(said.lines().count(), 2, "{said}");
}
