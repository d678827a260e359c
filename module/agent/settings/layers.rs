//! The layers below the twin: compiled default, file, environment. Reads the file and is handed the
//! environment; finds every mistake in one go and says where it was made.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};

use config::{Config, ConfigError, File, FileFormat, Source, Value as LayerValue, ValueKind};
use serde_json::Value;

use super::model::Settings;
use super::tree::{Path, get, leaves, set};

/// The compiled default, which documents every setting.
pub const DEFAULT: &str = include_str!("../../../config/default.toml");

/// How environment variables of settings begin.
pub const ENV_PREFIX: &str = "SLICE_HEALER__";

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The compiled default.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// The module twin.
    Twin,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Twin => f.write_str("twin"),
        }
    }
}

impl Origin {
    fn encode(&self) -> Option<String> {
        match self {
            Self::Default | Self::Twin => None,
            Self::File(path) => Some(path.to_string_lossy().into_owned()),
            Self::Env(name) => Some(format!("${name}")),
        }
    }

    fn decode(text: Option<&str>) -> Self {
        match text {
            None => Self::Default,
            Some(text) => match text.strip_prefix('$') {
                Some(name) => Self::Env(name.to_owned()),
                None => Self::File(PathBuf::from(text)),
            },
        }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which setting.
    pub key: Path,
    /// Where it was made.
    pub origin: Origin,
    /// What is wrong, with what would be right.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.key, self.origin, self.reason)
    }
}

/// Why the settings do not load.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings file {path}: {source}; check the path and its rights", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the settings file {path} is not TOML: {reason}", path = path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// Values are wrong; all of them are listed.
    #[error("{} wrong; nothing was loaded:\n  {}", count(.0), lines(.0))]
    Wrong(Vec<Problem>),
}

fn count(problems: &[Problem]) -> String {
    match problems.len() {
        1 => "1 setting is".to_owned(),
        n => format!("{n} settings are"),
    }
}

fn lines(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(Problem::to_string)
        .collect::<Vec<_>>()
        .join("\n  ")
}

/// The settings below the twin, and where each came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub settings: Settings,
    origins: BTreeMap<Path, Origin>,
}

/// One setting in force.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Its name, dotted.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Where it came from.
    pub origin: String,
}

impl Loaded {
    /// Reads the layers: the compiled default, then the file, then the variables that begin with
    /// [`ENV_PREFIX`].
    ///
    /// # Errors
    /// The file cannot be read or is not TOML, or any value is wrong; then all mistakes are told.
    pub fn load(
        file: Option<&FilePath>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let default = from_toml(DEFAULT, &Origin::Default)?;
        let base = json(&default);
        let mut layers = vec![default];
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
                path: path.to_owned(),
                source,
            })?;
            layers.push(from_toml(&text, &Origin::File(path.to_owned()))?);
        }
        layers.push(from_env(env, &base));

        let mut problems: Vec<Problem> = layers
            .iter()
            .skip(1)
            .flat_map(|layer| mistakes(layer, &base))
            .collect();
        if problems.is_empty() {
            let merged = merge(layers).map_err(|error| unexpected(&error.to_string()))?;
            let settings: Settings = serde_json::from_value(json(&merged))
                .map_err(|error| unexpected(&error.to_string()))?;
            let origins = origins(&merged);
            problems = settings
                .check()
                .into_iter()
                .map(|(key, reason)| Problem {
                    origin: origin_of(&origins, &key),
                    key,
                    reason,
                })
                .collect();
            if problems.is_empty() {
                return Ok(Self { settings, origins });
            }
        }
        Err(SettingsError::Wrong(problems))
    }

    /// Every setting of `in_force` (these, or these with a twin over them) and where it came from.
    pub fn rows(&self, in_force: &Settings) -> Vec<Row> {
        let below = self.settings.to_tree();
        leaves(&in_force.to_tree())
            .into_iter()
            .map(|(key, value)| {
                let origin = if get(&below, &key) == Some(value) {
                    origin_of(&self.origins, &key)
                } else {
                    Origin::Twin
                };
                Row {
                    key: key.to_string(),
                    value: value.clone(),
                    origin: origin.to_string(),
                }
            })
            .collect()
    }
}

/// A default that does not load is a mistake of ours, which a test catches; it is still no panic.
fn unexpected(reason: &str) -> SettingsError {
    SettingsError::Wrong(vec![Problem {
        key: Path(Vec::new()),
        origin: Origin::Default,
        reason: reason.to_owned(),
    }])
}

fn origin_of(origins: &BTreeMap<Path, Origin>, key: &Path) -> Origin {
    let exact = origins.get(key);
    let below = || {
        origins
            .iter()
            .filter(|(path, _)| path.0.starts_with(&key.0))
            .map(|(_, o)| o)
            .max()
    };
    exact.or_else(below).cloned().unwrap_or(Origin::Default)
}

/// A layer as the `config` crate takes it.
#[derive(Clone, Debug)]
struct Layer(LayerValue);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<config::Map<String, LayerValue>, ConfigError> {
        match &self.0.kind {
            ValueKind::Table(table) => Ok(table.clone()),
            _ => Ok(config::Map::new()),
        }
    }
}

fn merge(layers: Vec<LayerValue>) -> Result<LayerValue, ConfigError> {
    let builder = layers
        .into_iter()
        .fold(Config::builder(), |builder, layer| {
            builder.add_source(Layer(layer))
        });
    Ok(builder.build()?.cache)
}

fn from_toml(text: &str, origin: &Origin) -> Result<LayerValue, SettingsError> {
    let table = File::from_str(text, FileFormat::Toml)
        .collect()
        .map_err(|error| SettingsError::Syntax {
            path: match origin {
                Origin::File(path) => path.clone(),
                _ => PathBuf::from("config/default.toml"),
            },
            reason: error.to_string(),
        })?;
    Ok(with_origin(
        LayerValue::new(None, ValueKind::Table(table)),
        origin.encode().as_ref(),
    ))
}

fn with_origin(value: LayerValue, origin: Option<&String>) -> LayerValue {
    let kind = match value.kind {
        ValueKind::Table(table) => ValueKind::Table(
            table
                .into_iter()
                .map(|(key, value)| (key, with_origin(value, origin)))
                .collect(),
        ),
        other => other,
    };
    LayerValue::new(origin, kind)
}

/// Variables are texts; what the default holds at the same place says what type is meant.
fn from_env(env: impl IntoIterator<Item = (String, String)>, base: &Value) -> LayerValue {
    let mut root = LayerValue::new(None, config::Map::<String, LayerValue>::new());
    let mut variables: Vec<(String, String)> = env
        .into_iter()
        .filter(|(name, _)| name.starts_with(ENV_PREFIX))
        .collect();
    variables.sort();
    for (name, text) in variables {
        let segments: Vec<String> = name[ENV_PREFIX.len()..]
            .split("__")
            .map(str::to_lowercase)
            .collect();
        let kind = typed(&text, get(base, &Path(segments.clone())));
        let value = LayerValue::new(Origin::Env(name).encode().as_ref(), kind);
        insert(&mut root, &segments, value);
    }
    root
}

fn typed(text: &str, default: Option<&Value>) -> ValueKind {
    let text = text.trim();
    let read = match default {
        Some(Value::Bool(_)) => text.parse().ok().map(ValueKind::Boolean),
        Some(Value::Number(_)) => text.parse().ok().map(ValueKind::I64),
        _ => None,
    };
    read.unwrap_or_else(|| ValueKind::String(text.to_owned()))
}

fn insert(at: &mut LayerValue, segments: &[String], value: LayerValue) {
    let Some((first, rest)) = segments.split_first() else {
        *at = value;
        return;
    };
    if !matches!(at.kind, ValueKind::Table(_)) {
        at.kind = ValueKind::Table(config::Map::new());
    }
    if let ValueKind::Table(table) = &mut at.kind {
        insert(table.entry(first.clone()).or_default(), rest, value);
    }
}

/// Tries each value of a layer alone on the default tree: serde's own message then says what is
/// wrong and what would be right, and one mistake does not hide another.
fn mistakes(layer: &LayerValue, base: &Value) -> Vec<Problem> {
    let origins = origins(layer);
    leaves(&json(layer))
        .into_iter()
        .filter_map(|(key, value)| {
            let reason = refuse(base, &key, value)?;
            Some(Problem {
                origin: origin_of(&origins, &key),
                key,
                reason,
            })
        })
        .collect()
}

/// Why a value cannot stand at a place, if it cannot.
pub(super) fn refuse(base: &Value, key: &Path, value: &Value) -> Option<String> {
    let mut tree = base.clone();
    set(&mut tree, key, value.clone());
    Settings::deserialize_tree(tree).err()
}

fn origins(value: &LayerValue) -> BTreeMap<Path, Origin> {
    fn collect(value: &LayerValue, path: &mut Vec<String>, all: &mut BTreeMap<Path, Origin>) {
        match &value.kind {
            ValueKind::Table(table) if !table.is_empty() => {
                for (key, value) in table {
                    path.push(key.clone());
                    collect(value, path, all);
                    path.pop();
                }
            }
            _ => {
                all.insert(Path(path.clone()), Origin::decode(value.origin()));
            }
        }
    }
    let mut all = BTreeMap::new();
    collect(value, &mut Vec::new(), &mut all);
    all
}

fn json(value: &LayerValue) -> Value {
    match &value.kind {
        ValueKind::Nil => Value::Null,
        ValueKind::Boolean(value) => Value::from(*value),
        ValueKind::I64(value) => Value::from(*value),
        ValueKind::I128(value) => Value::from(value.to_string()),
        ValueKind::U64(value) => Value::from(*value),
        ValueKind::U128(value) => Value::from(value.to_string()),
        ValueKind::Float(value) => Value::from(*value),
        ValueKind::String(value) => Value::from(value.as_str()),
        ValueKind::Table(table) => Value::Object(
            table
                .iter()
                .map(|(key, value)| (key.clone(), json(value)))
                .collect(),
        ),
        ValueKind::Array(items) => Value::Array(items.iter().map(json).collect()),
    }
}
