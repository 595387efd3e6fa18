//! Reading the configuration, layer by layer.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use figment::error::Kind;
use figment::providers::Serialized;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider, Source};
use roundhouse_shared::domain::EngineKind;

use super::agent::{self, LATER_ENGINES};
use super::error::{Complaint, Complaints, Place, nearest, slips};
use super::keys::{self, FILE_VARIABLE, KEYS};
use super::{Config, ConfigError, Environment, print};

/// The file that is read where none is named.
const DEFAULT_FILE: &str = "roundhouse.toml";

/// A key that a flag sets.
#[derive(Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: String,
}

/// The configuration, and where its values come from.
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) environment: Environment,
    layers: Figment,
}

/// Reads the configuration. `file` is the one that a flag names; relative paths are relative to `cwd`.
pub(crate) fn load(
    file: Option<&Path>,
    flags: &[Flag],
    environment: Environment,
    cwd: &Path,
) -> Result<Loaded, ConfigError> {
    let mut layers = Figment::from(Serialized::defaults(Config::default()));
    let mut complaints = Vec::new();
    if let Some((path, text)) = find_file(file, &environment, cwd)? {
        let data = parse(&path, &text)?;
        layers = layers.merge(Layer { kind: FILE, name: path.display().to_string(), data });
    }
    complaints.extend(environment.strangers().map(|name| {
        let known = KEYS.iter().map(|key| key.variable).chain([FILE_VARIABLE]);
        Complaint::UnknownVariable { name: name.to_owned(), near: nearest(name, known) }
    }));
    for key in KEYS {
        if let Some(text) = environment.get(key.variable) {
            layers = set(layers, VARIABLE, key.variable, key, text, &mut complaints);
        }
    }
    for flag in flags {
        if let Some(key) = keys::find(flag.key) {
            layers = set(layers, FLAG, flag.name, key, &flag.value, &mut complaints);
        }
    }
    complaints.extend(agent_complaints(&layers));
    if !complaints.is_empty() {
        return Err(ConfigError::Wrong(Complaints(complaints)));
    }
    match layers.extract::<Config>() {
        Ok(config) => {
            let loaded = Loaded { config, environment, layers };
            loaded.check()?;
            Ok(loaded)
        }
        Err(errors) => {
            let complaints = errors.into_iter().map(|error| complaint(&layers, &error)).collect();
            Err(ConfigError::Wrong(Complaints(complaints)))
        }
    }
}

impl fmt::Debug for Loaded {
    /// Without the values: there are secrets among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

impl Loaded {
    /// Where the value of a key was set.
    pub(super) fn place(&self, key: &str) -> Place {
        place(&self.layers, key)
    }
}

const FILE: &str = "file";
const VARIABLE: &str = "variable";
const FLAG: &str = "flag";

/// A source of values: the file, one variable, or one flag.
struct Layer {
    kind: &'static str,
    name: String,
    data: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::from(self.kind, Source::Custom(self.name.clone()))
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.data.clone()))
    }
}

fn find_file(
    named: Option<&Path>,
    environment: &Environment,
    cwd: &Path,
) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let named = named.map(Path::to_owned).or_else(|| environment.get(FILE_VARIABLE).map(PathBuf::from));
    let path = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    match std::fs::read_to_string(cwd.join(&path)) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfigError::Unreadable { path, source }),
    }
}

fn parse(path: &Path, text: &str) -> Result<Dict, ConfigError> {
    let syntax = |what: String| ConfigError::Syntax { path: path.to_owned(), what };
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        // Without the line itself, which may hold a secret.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let message = error.message().trim().replace('\n', "; ");
        syntax(format!("line {}: {message}", before.matches('\n').count() + 1))
    })?;
    let value = Value::serialize(table).map_err(|error| syntax(error.to_string()))?;
    Ok(value.into_dict().unwrap_or_default())
}

/// Adds a value that was given as text.
fn set(
    layers: Figment,
    kind: &'static str,
    name: &str,
    key: &keys::Key,
    text: &str,
    complaints: &mut Vec<Complaint>,
) -> Figment {
    let Some(value) = key.form.read(text) else {
        let place =
            if kind == FLAG { Place::Flag(name.to_owned()) } else { Place::Variable(name.to_owned()) };
        complaints.push(Complaint::WrongValue {
            key: key.path.to_owned(),
            place,
            found: format!("{text:?}"),
            expected: key.form.expected(),
        });
        return layers;
    };
    let data = figment::util::nest(key.path, value).into_dict().unwrap_or_default();
    layers.merge(Layer { kind, name: name.to_owned(), data })
}

fn place(layers: &Figment, key: &str) -> Place {
    let mut key = key;
    loop {
        if let Some(metadata) = layers.find_metadata(key) {
            let name = metadata.source.as_ref().and_then(Source::custom).unwrap_or_default().to_owned();
            return match metadata.name.as_ref() {
                FILE => Place::File(name),
                VARIABLE => Place::Variable(name),
                FLAG => Place::Flag(name),
                _ => Place::Default,
            };
        }
        match key.rsplit_once('.') {
            Some((parent, _)) => key = parent,
            None => return Place::Default,
        }
    }
}

/// Engines come first: what else an agent of another engine is told would only confuse. Then which keys an agent of this
/// engine has.
fn agent_complaints(layers: &Figment) -> Vec<Complaint> {
    let agents = layers.find_value("agents").ok().and_then(Value::into_dict).unwrap_or_default();
    let wrong = agents.iter().flat_map(|(name, agent)| {
        let Some(engine) = agent.find_ref("engine").and_then(Value::as_str) else { return Vec::new() };
        if let Some(engine) = EngineKind::from_name(engine) {
            return key_complaints(layers, name, agent, engine);
        }
        let note = if LATER_ENGINES.contains(&engine) { ", which is not in this version" } else { "" };
        let key = format!("agents.{name}.engine");
        vec![Complaint::WrongValue {
            place: place(layers, &key),
            found: format!("{engine:?}{note}"),
            expected: agent::expected("engine").unwrap_or_default().to_owned(),
            key,
        }]
    });
    wrong.collect()
}

/// Keys that an agent of this engine does not have, and those that it has to have.
fn key_complaints(layers: &Figment, name: &str, agent: &Value, engine: EngineKind) -> Vec<Complaint> {
    let (required, known) = agent::keys_of(engine);
    let key = |part: &str| format!("agents.{name}.{part}");
    let set = agent.as_dict().into_iter().flat_map(Dict::keys).map(String::as_str);
    let unknown =
        set.filter(|part| !known.contains(part)).map(|part| unknown_key(layers, key(part), &key(""), known));
    let missing = required.iter().filter(|part| agent.find_ref(part).is_none()).map(|part| {
        let expected = agent::expected(part).unwrap_or("set").to_owned();
        Complaint::Missing { place: place(layers, &key(part)), key: key(part), expected }
    });
    unknown.chain(missing).collect()
}

/// A key that is none; `known` are those that there are below `parent`.
fn unknown_key(layers: &Figment, key: String, parent: &str, known: &[&str]) -> Complaint {
    let all = KEYS.iter().map(|key| key.path.to_owned());
    let siblings = known.iter().map(|known| format!("{parent}{known}"));
    let candidates: Vec<String> = siblings.chain(all).collect();
    let mut near = slips(&key, candidates.iter().map(String::as_str));
    near.dedup();
    Complaint::UnknownKey {
        place: place(layers, &key),
        near,
        known: known.iter().map(|known| (*known).to_owned()).collect(),
        key,
    }
}

/// An error of figment in our words.
fn complaint(layers: &Figment, error: &figment::Error) -> Complaint {
    // The path of an unknown key has it as its last part already.
    let parent = match (&error.kind, error.path.split_last()) {
        (Kind::UnknownField(name, _), Some((last, parent))) if last == name => parent,
        _ => error.path.as_slice(),
    };
    let below = |name: &str| {
        let path = parent.iter().map(String::as_str).chain([name]);
        path.collect::<Vec<_>>().join(".")
    };
    match &error.kind {
        Kind::UnknownField(name, known) => unknown_key(layers, below(name), &below(""), known),
        Kind::MissingField(name) => {
            let key = below(name);
            let expected = agent::expected(name).unwrap_or("set").to_owned();
            Complaint::Missing { place: place(layers, &key), key, expected }
        }
        kind => {
            let key = error.path.join(".");
            let found = layers
                .find_value(&key)
                .map_or_else(|_| "wrong".to_owned(), |value| print::shown(&key, &value));
            let expected = expected(&key).unwrap_or_else(|| match kind {
                Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => expected.clone(),
                other => other.to_string(),
            });
            Complaint::WrongValue { place: place(layers, &key), key, found, expected }
        }
    }
}

/// What would be right for a key.
pub(super) fn expected(key: &str) -> Option<String> {
    if let Some(key) = keys::find(key) {
        return Some(key.form.expected());
    }
    match key.split('.').collect::<Vec<_>>().as_slice() {
        ["agents", _, "mcp", ..] => agent::expected("mcp").map(str::to_owned),
        ["agents", _, name] => agent::expected(name).map(str::to_owned),
        ["agents", _] => Some("a table: [agents.NAME] with engine, and what that needs".to_owned()),
        [section] => Some(format!("a table: [{section}]")),
        _ => None,
    }
}
