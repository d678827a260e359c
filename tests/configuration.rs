//! Settings as people give them: every file, every name in the environment, and the schema that an
//! editor checks a file with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use slice_healer::settings::{DEFAULT, ENV_PREFIX, Loaded, Row, schema};

use crate::support::controlplane::files::cache;

/// The settings with their origins.
pub(crate) fn rows(file: Option<&Path>, env: &[(String, String)]) -> Result<Vec<Row>> {
    let loaded = Loaded::load(file, env.to_vec())?;
    Ok(loaded.rows(&loaded.settings))
}

/// The variable of a setting.
pub(crate) fn variable(key: &str) -> String {
    let name = key.replace('.', "__").to_uppercase();
    format!("{ENV_PREFIX}{name}")
}

fn by_key(rows: Vec<Row>) -> BTreeMap<String, (Value, String)> {
    let rows = rows.into_iter();
    rows.map(|row| (row.key, (row.value, row.origin))).collect()
}

/// A file of settings, with a name that says that it is TOML.
pub(crate) fn file(folder: &Path, text: &str) -> Result<PathBuf> {
    let path = folder.join("settings.toml");
    std::fs::write(&path, text)?;
    Ok(path)
}

#[test]
fn the_shipped_default_is_a_settings_file() -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/default.toml");
    let text = std::fs::read_to_string(&path)?;
    ensure!(text == DEFAULT, "another default is compiled in");
    let (given, compiled) = (by_key(rows(Some(&path), &[])?), by_key(rows(None, &[])?));
    for (key, (value, _)) in &compiled {
        ensure!(given[key].0 == *value, "{key}: {:?}", given[key]);
    }
    let from_file = |row: &&(Value, String)| row.1.contains("default.toml");
    // A table of names that is empty has no key that a file could give.
    ensure!(given.values().filter(from_file).count() > 50, "{given:?}");
    Ok(())
}

/// Comments of the default file that show a setting are settings.
#[test]
fn the_examples_in_the_default_file_are_taken() -> Result<()> {
    let mut examples = Vec::new();
    let mut section = String::new();
    let mut example: Option<String> = None;
    for line in DEFAULT.lines() {
        match line.strip_prefix("#   ") {
            Some(shown) => {
                let so_far = example.get_or_insert_default();
                so_far.push_str(shown);
                so_far.push('\n');
            }
            None if line.starts_with('[') => {
                section = line.to_owned();
                // The examples of a table stand above its name.
                if let Some(text) = example.take() {
                    let own = text.starts_with('[');
                    let head = if own {
                        String::new()
                    } else {
                        format!("{section}\n")
                    };
                    examples.push(format!("{head}{text}"));
                }
            }
            None => {}
        }
    }
    if let Some(text) = example.take() {
        examples.push(text);
    }
    ensure!(examples.len() == 4, "{section}: {examples:#?}");
    let folder = tempfile::tempdir()?;
    for text in examples {
        let path = file(folder.path(), &text)?;
        let given = rows(Some(&path), &[]).with_context(|| text.clone())?;
        let taken = given.iter().any(|row| row.origin.contains("settings.toml"));
        ensure!(taken, "{text}");
    }
    Ok(())
}

#[test]
fn every_setting_has_a_name_in_the_environment() -> Result<()> {
    let defaults = rows(None, &[])?;
    ensure!(defaults.len() > 50, "{}", defaults.len());
    for row in &defaults {
        let text = match &row.value {
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                let items = items.iter().filter_map(Value::as_str);
                items.collect::<Vec<_>>().join(",")
            }
            // Tables of names: labels and the like, each of whose names is a setting.
            Value::Object(table) if table.is_empty() => continue,
            other => other.to_string(),
        };
        let name = variable(&row.key);
        let given = by_key(rows(None, &[(name.clone(), text.clone())])?);
        let (value, origin) = &given[&row.key];
        ensure!(*value == row.value, "{name}={text} gives {value}");
        ensure!(*origin == format!("environment {name}"), "{name}: {origin}");
    }
    // The tables of names.
    for (key, text) in [
        ("labels.site", "brno"),
        ("scope.service_selector", "app=model,tier=edge"),
        ("windows.night", "Mon-Fri 22:00-05:00 Europe/Prague"),
        ("holds.audit", "2026-12-24T06:00:00Z"),
        ("probes.model.url", "http://model.line1.svc:8080/version"),
        (
            "journal.rules.mine.pattern",
            "model (?P<service>\\S+) is old",
        ),
    ] {
        let name = variable(key);
        let given = rows(None, &[(name.clone(), text.to_owned())]).context(name.clone())?;
        let origin = format!("environment {name}");
        ensure!(
            given.iter().any(|row| row.origin == origin),
            "{name}: {given:?}"
        );
    }
    Ok(())
}

/// `config --schema` as an editor uses it, judged by a foreign validator.
#[test]
fn the_schema_takes_what_the_loader_takes_and_refuses_what_it_refuses() -> Result<()> {
    let printed = Command::new(env!("CARGO_BIN_EXE_slice-healer"))
        .args(["config", "--schema"])
        .env_clear()
        .output()?;
    ensure!(printed.status.success(), "{printed:?}");
    ensure!(serde_json::from_slice::<Value>(&printed.stdout)? == schema());
    let folder = tempfile::tempdir()?;
    let schema = folder.path().join("schema.json");
    std::fs::write(&schema, &printed.stdout)?;
    let python = cache()?.join("py/manifest/bin/python");
    ensure!(python.exists(), "run tests/manifest.sh");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let valid = |path: &Path| -> Result<(bool, String)> {
        let judged = Command::new(&python)
            .arg(root.join("tests/schema.py"))
            .args([schema.as_path(), path])
            .output()?;
        let said = String::from_utf8_lossy(&[judged.stdout, judged.stderr].concat()).into_owned();
        Ok((judged.status.success(), said))
    };
    let (taken, said) = valid(&root.join("config/default.toml"))?;
    ensure!(taken, "{said}");
    for (text, right) in [
        ("mode = \"heal\"", true),
        (
            "[grace]\nrefresh = \"7s\"\n[heal.pace]\nlook_again = [\"PT1S\"]",
            true,
        ),
        ("[scope]\nservice_selector = { app = \"model\" }", true),
        ("[journal.rules.ours]\npattern = 'x'", true),
        ("[probes.model]\nurl = \"http://h/\"", true),
        ("mode = \"heel\"", false),
        ("[grace]\nrefersh = \"7s\"", false),
        ("[serve]\nport = \"many\"", false),
        ("[journal.rules.ours]\nseverity = \"info\"", false),
        ("[probes.model]\nexpect_version = \"v2\"", false),
        ("[graces]\nrefresh = \"7s\"", false),
    ] {
        let path = file(folder.path(), text)?;
        let (taken, said) = valid(&path)?;
        ensure!(taken == right, "the schema on {text}: {said}");
        ensure!(
            rows(Some(&path), &[]).is_ok() == right,
            "the loader on {text}"
        );
    }
    Ok(())
}
