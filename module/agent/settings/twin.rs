//! The twin's layer: which settings the cloud may set, under what names, and how each is answered
//! (contract: module twin, component `settings`). All or nothing: one refused value leaves every
//! setting as it was. Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::layers::refuse;
use super::model::Settings;
use super::tree::{Path, get, leaves_like, set};

/// Most bytes of the desired component, as compact JSON.
pub const MAX_DESIRED: usize = 4096;

/// Most unknown keys that are answered one by one: the answer must fit the reported document.
const MAX_UNKNOWN: usize = 8;

/// Longest explanation, in characters, for the same reason.
const MAX_REASON: usize = 160;

/// The settings that the twin may set: the name in files and environment, and in the twin. `*` is a
/// name that the user chooses; `.` in it is written `%2E` in the twin.
pub const SETTABLE: [(&str, &str); 34] = [
    ("mode", "mode"),
    ("log_level", "logLevel"),
    ("ladder", "ladder"),
    ("labels.*", "labels.*"),
    ("scope.locality", "scope.locality"),
    ("scope.namespaces", "scope.namespaces"),
    ("scope.exclude_namespaces", "scope.excludeNamespaces"),
    ("scope.service_selector", "scope.serviceSelector"),
    ("journal.units", "journal.units"),
    ("journal.rules.*.pattern", "journal.rules.*.pattern"),
    ("journal.rules.*.severity", "journal.rules.*.severity"),
    ("journal.rules.*.units", "journal.rules.*.units"),
    ("grace.refresh", "grace.refresh"),
    ("grace.delete", "grace.delete"),
    ("grace.refresh_on_signal", "grace.refreshOnSignal"),
    ("grace.delete_on_signal", "grace.deleteOnSignal"),
    ("budgets.per_service_per_hour", "budgets.perServicePerHour"),
    (
        "budgets.per_namespace_per_hour",
        "budgets.perNamespacePerHour",
    ),
    ("budgets.per_node_per_hour", "budgets.perNodePerHour"),
    ("budgets.max_lost_endpoints", "budgets.maxLostEndpoints"),
    ("heal.delete_leftover", "heal.deleteLeftover"),
    ("heal.load_balancers", "heal.loadBalancers"),
    ("windows.*", "windows.*"),
    ("holds.*", "holds.*"),
    ("probes.*.url", "probes.*.url"),
    ("probes.*.expect_version", "probes.*.expectVersion"),
    ("report.min_interval", "report.minInterval"),
    ("report.status_interval", "report.statusInterval"),
    (
        "report.telemetry_min_severity",
        "report.telemetryMinSeverity",
    ),
    // Sections by themselves, so that an empty one is known and changes nothing.
    ("labels", "labels"),
    ("journal.rules", "journal.rules"),
    ("windows", "windows"),
    ("holds", "holds"),
    ("probes", "probes"),
];

/// The answer to one desired property.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ack {
    /// The value that is in force on this device.
    pub value: Value,
    /// 200 applied, 400 not applied.
    pub ac: u16,
    /// Why not, for a person; empty when there is nothing to say.
    pub ad: String,
}

/// What became of a desired component.
#[derive(Clone, Debug, PartialEq)]
pub struct TwinOutcome {
    /// The settings to be put in force; `None` when something was refused and nothing changes.
    pub settings: Option<Settings>,
    /// The answers, by desired property.
    pub acks: BTreeMap<String, Ack>,
}

impl TwinOutcome {
    /// The component as it is reported, `version` being the desired `$version` that it answers.
    pub fn reported(&self, version: i64) -> Value {
        let mut component = Map::from_iter([("__t".to_owned(), json!("c"))]);
        for (key, ack) in &self.acks {
            component.insert(
                key.clone(),
                json!({"value": ack.value, "ac": ack.ac, "av": version, "ad": ack.ad}),
            );
        }
        Value::Object(component)
    }
}

impl Settings {
    /// Puts the desired component over these settings, which are those below the twin. `in_force`
    /// are the settings that hold until now: a refused property is answered with its value there.
    pub fn apply_twin(&self, in_force: &Self, desired: &Value) -> TwinOutcome {
        let base = self.to_tree();
        let empty = Map::new();
        let properties = match desired {
            Value::Object(properties) => properties,
            _ => &empty,
        };
        let mut layer = Value::Object(Map::new());
        let mut refused: BTreeMap<String, String> = BTreeMap::new();
        let mut known: Vec<String> = Vec::new();
        for (key, value) in properties {
            // `__t` marks a component, `$` the hub's own keys, null what was taken away.
            if key == "__t" || key.starts_with('$') || value.is_null() {
                continue;
            }
            match read(&mut vec![key.clone()], value, &mut layer) {
                Ok(()) => {}
                Err(reason) => {
                    refused.insert(key.clone(), reason);
                }
            }
            known.push(key.clone());
        }

        let size = desired.to_string().len();
        if size > MAX_DESIRED {
            for key in &known {
                let reason =
                    format!("the component has {size} bytes, at most {MAX_DESIRED} are taken");
                refused.insert(key.clone(), reason);
            }
        }
        for (path, value) in leaves_like(&base, &layer) {
            if let Some(reason) = refuse(&base, &path, value) {
                refused
                    .entry(top(&path))
                    .or_insert(format!("{}: {reason}", twin_name(&path)));
            }
        }
        let mut next = None;
        if refused.is_empty() {
            let mut tree = base.clone();
            for (path, value) in leaves_like(&base, &layer) {
                set(&mut tree, &path, value.clone());
            }
            match Self::deserialize_tree(tree) {
                Ok(settings) => {
                    for (path, reason) in settings.check() {
                        refused
                            .entry(top(&path))
                            .or_insert(format!("{}: {reason}", twin_name(&path)));
                    }
                    next = refused.is_empty().then_some(settings);
                }
                Err(reason) => {
                    refused.extend(known.iter().map(|key| (key.clone(), reason.clone())))
                }
            }
        }
        let acks = answer(&known, &refused, &layer, next.as_ref().unwrap_or(in_force));
        TwinOutcome {
            settings: next,
            acks,
        }
    }
}

/// Reads one desired value into the layer, under its name in files.
fn read(path: &mut Vec<String>, value: &Value, layer: &mut Value) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    let name = path.join(".");
    if value.is_array() {
        return Err(format!(
            "{name}: arrays are not taken; write {{\"name\": true}} for each item"
        ));
    }
    let exact = SETTABLE.iter().find(|(_, twin)| matches(twin, path, true));
    let deeper = SETTABLE
        .iter()
        .any(|(_, twin)| twin.split('.').count() > path.len() && matches(twin, path, false));
    if let Value::Object(entries) = value
        && deeper
    {
        for (key, value) in entries {
            path.push(key.clone());
            read(path, value, layer)?;
            path.pop();
        }
        return Ok(());
    }
    let Some((file, _)) = exact else {
        return Err(if deeper {
            format!("{name}: an object is needed")
        } else {
            format!("{name}: is not a setting that the twin may change")
        });
    };
    let segments = file.split('.').zip(path.iter()).map(|(own, given)| {
        if own == "*" {
            decode(given)
        } else {
            own.to_owned()
        }
    });
    set(layer, &Path::new(segments), decode_keys(value));
    Ok(())
}

/// Whether a path is one of the table's, or leads to one.
fn matches(row: &str, path: &[String], whole: bool) -> bool {
    let mut segments = row.split('.');
    path.iter().all(|given| {
        segments
            .next()
            .is_some_and(|own| own == "*" || own == given)
    }) && (!whole || segments.next().is_none())
}

fn answer(
    known: &[String],
    refused: &BTreeMap<String, String>,
    layer: &Value,
    in_force: &Settings,
) -> BTreeMap<String, Ack> {
    let tree = in_force.to_tree();
    let culprit = refused.keys().next();
    let mut acks = BTreeMap::new();
    let mut unknown = 0;
    // A value can be refused for what it does to another section, which then is answered as well.
    for key in known.iter().chain(refused.keys()) {
        let value = echo(key, layer, &tree);
        if value.is_none() {
            unknown += 1;
            if unknown > MAX_UNKNOWN || key.len() > 64 {
                continue;
            }
        }
        let (ac, ad) = match (refused.get(key), culprit) {
            (Some(reason), _) => (400, shorten(reason)),
            (None, Some(other)) => (
                400,
                shorten(&format!("not applied, because {other} was refused")),
            ),
            (None, None) if key == "probes" => (200, "kept; no part acts on probes yet".to_owned()),
            (None, None) => (200, String::new()),
        };
        // What is not known here is not shown back: it may be a secret in the wrong place.
        acks.insert(
            key.clone(),
            Ack {
                value: value.unwrap_or_else(|| json!("")),
                ac,
                ad,
            },
        );
    }
    acks
}

/// The values in force of what was desired under one key, in the twin's form.
fn echo(key: &str, layer: &Value, in_force: &Value) -> Option<Value> {
    let section = SETTABLE
        .iter()
        .find(|(_, twin)| twin.split('.').next() == Some(key))
        .and_then(|(file, _)| file.split('.').next())?;
    let mut out = Value::Object(Map::new());
    for (path, _) in leaves_like(in_force, layer) {
        if path.0.first().is_some_and(|first| first == section)
            && let Some(value) = get(in_force, &path)
        {
            let file: Vec<&str> = path.0.iter().map(String::as_str).collect();
            set(
                &mut out,
                &Path::new(twin_segments(&file)),
                encode_value(&path, value),
            );
        }
    }
    let shown = out.get(key).cloned();
    // A value of the wrong form names nothing below it: the property is answered as the model has it.
    let whole = || get(in_force, &Path::new([section])).filter(|value| !value.is_object());
    shown
        .or_else(|| whole().cloned())
        .or_else(|| Some(json!({})))
}

/// Lists become objects of `true`, keys lose their dots and take the twin's names.
fn encode_value(path: &Path, value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Object(
            items
                .iter()
                .filter_map(Value::as_str)
                .map(|item| (encode(item), Value::Bool(true)))
                .collect(),
        ),
        Value::Object(entries) => Value::Object(
            entries
                .iter()
                .map(|(key, value)| {
                    let mut below = path.clone();
                    below.0.push(key.clone());
                    let file: Vec<&str> = below.0.iter().map(String::as_str).collect();
                    let name = twin_segments(&file).pop().unwrap_or_default();
                    (name, encode_value(&below, value))
                })
                .collect(),
        ),
        other => other.clone(),
    }
}

/// The twin's name of a path in files; a path below or beside the table keeps its own segments.
fn twin_segments(file: &[&str]) -> Vec<String> {
    let row = SETTABLE.iter().find(|(own, _)| {
        let mut segments = own.split('.');
        file.iter().all(|given| {
            segments
                .next()
                .is_some_and(|own| own == "*" || own == *given)
        })
    });
    let twin: Vec<&str> = row
        .map(|(_, twin)| twin.split('.').collect())
        .unwrap_or_default();
    file.iter()
        .enumerate()
        .map(|(at, own)| match twin.get(at) {
            Some(&"*") | None => encode(own),
            Some(name) => (*name).to_owned(),
        })
        .collect()
}

fn twin_name(path: &Path) -> String {
    let file: Vec<&str> = path.0.iter().map(String::as_str).collect();
    twin_segments(&file).join(".")
}

fn top(path: &Path) -> String {
    let file: Vec<&str> = path.0.iter().map(String::as_str).collect();
    twin_segments(&file).into_iter().next().unwrap_or_default()
}

fn decode_keys(value: &Value) -> Value {
    match value {
        Value::Object(entries) => Value::Object(
            entries
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (decode(key), value.clone()))
                .collect(),
        ),
        other => other.clone(),
    }
}

fn decode(key: &str) -> String {
    key.replace("%2E", ".").replace("%2e", ".")
}

fn encode(key: &str) -> String {
    key.replace('.', "%2E")
}

fn shorten(reason: &str) -> String {
    if reason.chars().count() <= MAX_REASON {
        return reason.to_owned();
    }
    reason.chars().take(MAX_REASON - 1).chain(['…']).collect()
}
