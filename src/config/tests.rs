//! What a user sees of the configuration.

mod errors;
mod mcp;

use std::fs;
use std::path::Path;

use roundhouse_shared::domain::EngineKind;

use super::agent::keys_of;
use super::keys::KEYS;
use super::*;

/// Loads a file's text with variables.
fn loaded(file: &str, variables: impl Into<Environment>) -> Result<Loaded, String> {
    let dir = tempfile::tempdir().unwrap();
    if !file.is_empty() {
        fs::write(dir.path().join("roundhouse.toml"), file).unwrap();
    }
    load(None, &[], variables.into(), dir.path()).map_err(|error| crate::terminal::chain(&error))
}

const AGENT: &str = "[agents.a]\nengine = 'openai'\nbase_url = 'http://h/v1'\nmodel = 'm'\n";

#[test]
fn variables_of_tests_and_of_kubernetes_are_not_ours() {
    let variables = [
        ("ROUNDHOUSE_TEST_REDIS_URL", "x"),
        ("ROUNDHOUSE_SERVICE_HOST", "10.0.0.1"),
        ("ROUNDHOUSE_PORT", "tcp://10.0.0.1:7700"),
        ("ROUNDHOUSE_PORT_7700_TCP_ADDR", "10.0.0.1"),
    ];
    assert!(loaded("", variables).is_ok());
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("other.toml");
    fs::write(&file, "[worker]\nslots = 2\nsweep = '3s'\n[data]\ndir = 'file'\n").unwrap();
    let variables =
        [("ROUNDHOUSE_SLOTS", "4"), ("ROUNDHOUSE_DATA_DIR", "variable"), ("ROUNDHOUSE_SWEEP", " ")];
    let flag = Flag { name: "--slots", key: "worker.slots", value: "6".to_owned() };

    let Loaded { config, .. } = load(Some(&file), &[flag], variables.into(), dir.path()).unwrap();

    assert_eq!(config.worker.slots, 6);
    assert_eq!(config.data.dir, Path::new("variable"));
    assert_eq!(config.worker.sweep, Span::from_secs(3), "an empty variable is none");
    assert_eq!(config.worker.max_attempts, Config::default().worker.max_attempts);
}

#[test]
fn a_file_that_is_named_has_to_be_there() {
    assert_eq!(loaded("", []).unwrap().config, Config::default());
    let named = loaded("", [("ROUNDHOUSE_CONFIG", "nowhere.toml")]).unwrap_err();
    assert!(named.starts_with("the configuration nowhere.toml cannot be read: No such file"), "{named}");
}

#[test]
fn every_variable_sets_its_key() {
    let values = |key: &keys::Key| match key.path {
        "server.listen" => "localhost:1",
        "store.url" => "sqlite:a",
        "redis.url" => "redis://h",
        "log.format" => "json",
        "server.public_hosts" => "agents.example, agents.example:8443",
        "server.public_origins" => "https://a.example, https://b.example",
        "workspaces.roots" => "/a,/b",
        _ => match key.form {
            keys::Form::Span => "7s",
            keys::Form::Size => "7KiB",
            keys::Form::Count => "7",
            keys::Form::Switch => "true",
            _ => "seven",
        },
    };
    for key in KEYS {
        let loaded = loaded("", [(key.variable, values(key))]).unwrap();
        assert_ne!(loaded.config, Config::default(), "{}", key.path);
        let line = format!("# in the variable {}", key.variable);
        assert!(loaded.to_toml().contains(&line), "{}", key.path);
    }
}

#[test]
fn the_table_of_keys_is_whole() {
    let table = toml::Table::try_from(Config::default()).unwrap();
    let sections = table.iter().filter(|(name, _)| *name != "agents");
    let mut keys: Vec<String> = sections
        .flat_map(|(section, keys)| {
            keys.as_table().unwrap().keys().map(move |key| format!("{section}.{key}"))
        })
        .collect();
    let mut named: Vec<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    keys.sort();
    named.sort();
    assert_eq!(keys, named);
}

#[test]
fn processes_of_their_own_need_what_they_share() {
    let alone = loaded("", []).unwrap();
    assert!(alone.check_role(Role::Up).is_ok());
    assert_eq!(
        alone.check_role(Role::Worker).unwrap_err().to_string(),
        "`roundhouse worker` needs Redis, and `redis.url` is empty: queue and bus are in process, and api and worker must be \
         one process; set `redis.url` (ROUNDHOUSE_REDIS_URL), or run `roundhouse up`\n`roundhouse worker` needs Postgres, and \
         `store.url` is \"sqlite\": a file of one process; set `store.url` (ROUNDHOUSE_DATABASE_URL) to postgres://…, or run \
         `roundhouse up`"
    );
    let shared = [("ROUNDHOUSE_REDIS_URL", "redis://h"), ("ROUNDHOUSE_DATABASE_URL", "postgres://h/d")];
    let shared = loaded("", shared).unwrap();
    assert!(shared.check_role(Role::Worker).is_ok() && shared.check_role(Role::Api).is_ok());
}

#[test]
fn an_open_address_is_refused_unless_it_is_meant() {
    let open = loaded("", [("ROUNDHOUSE_LISTEN", "0.0.0.0:7700")]).unwrap();
    let said = open.check_role(Role::Up).unwrap_err().to_string();
    assert!(
        said.starts_with(
            "`server.listen` is 0.0.0.0:7700, set in the variable ROUNDHOUSE_LISTEN: others can reach"
        ),
        "{said}"
    );
    let meant = [("ROUNDHOUSE_LISTEN", "0.0.0.0:7700"), ("ROUNDHOUSE_INSECURE_BIND", "true")];
    assert!(loaded("", meant).unwrap().check_role(Role::Up).is_ok());
    for local in ["127.0.0.2:1", "[::1]:1", "localhost:1"] {
        assert!(loaded("", [("ROUNDHOUSE_LISTEN", local)]).unwrap().check_role(Role::Up).is_ok(), "{local}");
    }
    assert_eq!(open.config.server.local_url(), "http://127.0.0.1:7700");
}

#[test]
fn the_effective_configuration_shows_sources_and_no_secret() {
    let file =
        format!("{AGENT}extra_headers = {{ X-Key = 'secret' }}\n").replace("http://h", "http://u:secret@h");
    let variables = [
        ("ROUNDHOUSE_DATABASE_URL", "postgres://u:secret@h/d?application_name=a&password=secret"),
        ("ROUNDHOUSE_REDIS_URL", "redis://:secret@h"),
        ("OPENAI_API_KEY", "secret"),
    ];
    let loaded = loaded(&file, variables).unwrap();

    let text = loaded.to_toml();

    assert!(!text.contains("secret") && !format!("{loaded:?}").contains("\"secret\""), "{text}");
    for line in [
        "listen = \"127.0.0.1:7700\"\n",
        "url = \"postgres://u:***@h/d?application_name=a&password=***\"  # in the variable ROUNDHOUSE_DATABASE_URL\n",
        "url = \"redis://:***@h\"  # in the variable ROUNDHOUSE_REDIS_URL\n",
        "[agents.a]  # in roundhouse.toml\n",
        "base_url = \"http://***@h/v1\"\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(toml::from_str::<Config>(&text).is_ok(), "{text}");
}

#[test]
fn a_key_in_place_of_its_variable_is_refused_and_not_repeated() {
    for key in
        ["AKIAIOSFODNN7EXAMPLE", "sk_live_abcdefgh", "sk-abcdef", "AIzaSyA_abcdefgh", "Xk3dPq92LmvR7tZaQw51"]
    {
        let error = loaded(&format!("{AGENT}api_key_env = '{key}'\n"), []).unwrap_err();
        assert!(error.contains("`agents.a.api_key_env`") && !error.contains(key), "{error}");
    }
    assert!(loaded(&format!("{AGENT}api_key_env = 'my_company_2024_key'\n"), []).is_ok());
}

#[test]
fn the_example_file_has_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("roundhouse.toml.example");
    let example = print::example();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &example).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), example, "run with UPDATE_DOCS=1");
    assert_eq!(loaded(&example, []).unwrap().config, Config::default());

    let (_, agents) = example.split_once("#\n# [agents").unwrap();
    let agents = format!("[agents{}", agents.replace("\n# ", "\n"));
    let agent = &loaded(&agents, []).unwrap().config.agents["assistant"];
    assert!(agent.prices.is_some() && agent.max_tries.is_some());
    assert!(agent.builtins().is_ok() && agent.engine_permissions().is_ok());
}

#[test]
fn the_documentation_names_every_key_and_variable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let text = fs::read_to_string(path).unwrap();
    let defaults = toml::Table::try_from(Config::default()).unwrap();
    for key in KEYS {
        let default = &defaults[key.section()][key.name()];
        let row = format!("| `{}` | `{default}` | `{}` |", key.path, key.variable);
        assert!(text.contains(&row), "{row}");
    }
    for key in [EngineKind::OpenAi, EngineKind::ClaudeCli].map(|engine| keys_of(engine).1).concat() {
        assert!(text.contains(&format!("| `{key}` |")), "{key}");
    }
}
