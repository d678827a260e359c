//! Every code block of the documents, and every command, file, setting and twin property that they
//! name: parsed and accepted by what it is meant for. Runs nothing of it but `bash -n`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser as _;
use kube::api::DynamicObject;
use regex::Regex;
use serde_json::Value;
use slice_healer::cli::Cli;
use slice_healer::settings::SETTABLE;

use crate::recipes::recipes;
use crate::{configuration, fleet};

/// A fenced block.
#[derive(Debug)]
struct Block {
    place: String,
    language: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What operators read: README, `docs/` and the READMEs of `config/`, with path and text.
fn documents() -> Result<Vec<(String, String)>> {
    let mut paths = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    let mut folders = vec![root().join("docs"), root().join("config")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root())?.to_string_lossy().into_owned();
        Ok((name, std::fs::read_to_string(&path)?))
    };
    paths.into_iter().map(read).collect()
}

fn blocks() -> Result<Vec<Block>> {
    let mut found = Vec::new();
    for (name, text) in documents()? {
        let mut open: Option<Block> = None;
        for (n, line) in text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), open.take()) {
                (Some(language), None) => {
                    open = Some(Block {
                        place: format!("{name}:{}", n + 1),
                        language: language.to_owned(),
                        text: String::new(),
                    });
                }
                (Some(_), Some(block)) => found.push(block),
                (None, Some(mut block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => {}
            }
        }
        ensure!(open.is_none(), "{name}: a block is not closed");
    }
    ensure!(found.len() >= 8, "{found:?}");
    Ok(found)
}

/// `bash -n` on a script.
pub(crate) fn is_shell(text: &str) -> Result<()> {
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    bash.stdin
        .take()
        .context("no stdin")?
        .write_all(text.as_bytes())?;
    let judged = bash.wait_with_output()?;
    ensure!(
        judged.status.success(),
        "{}\n{text}",
        String::from_utf8_lossy(&judged.stderr)
    );
    Ok(())
}

/// Values one after the other; a desired component must be taken by the settings.
fn is_json(text: &str) -> Result<()> {
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value?;
        if let Some(desired) = value.get("properties.desired") {
            fleet::taken(&desired["settings"])?;
        }
    }
    Ok(())
}

#[test]
fn every_block_is_what_it_says() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for block in blocks()? {
        let judged = match block.language.as_str() {
            // Pictures and what a command prints.
            "" | "text" => Ok(()),
            "sh" | "bash" => is_shell(&block.text),
            "toml" => configuration::file(folder.path(), &block.text)
                .and_then(|path| configuration::rows(Some(&path), &[]).map(drop)),
            "json" => is_json(&block.text),
            "yaml" => serde_saphyr::from_multiple::<DynamicObject>(&block.text)
                .map(drop)
                .map_err(Into::into),
            "sql" => {
                let query = block.text.split_whitespace().collect::<Vec<_>>().join(" ");
                fleet::check(&query, &fleet::reported()?)
            }
            other => bail!("{}: nobody checks blocks of `{other}`", block.place),
        };
        judged.with_context(|| block.place.clone())?;
    }
    Ok(())
}

#[test]
fn a_block_that_is_wrong_is_seen() -> Result<()> {
    ensure!(is_shell("if true; then echo 'open").is_err());
    ensure!(is_json("{\"a\": }").is_err());
    let wrong = r#"{"properties.desired": {"settings": {"__t": "c", "modus": "heal"}}}"#;
    ensure!(is_json(wrong).is_err());
    ensure!(command("slice-healer inspect --nothing").is_err());
    ensure!(command("slice-healer verify S --expect-version V").is_ok());
    Ok(())
}

/// All that stands in backticks or in a shell block, one command or name each.
fn spoken() -> Result<Vec<(String, String)>> {
    let tick = Regex::new(r"`([^`]+)`")?;
    let fence = Regex::new(r"(?s)```.*?```")?;
    let mut found = Vec::new();
    for (name, text) in documents()? {
        let prose = fence.replace_all(&text, "");
        // A span may go over the end of a line.
        let prose = prose.replace("\n  ", " ").replace('\n', " ");
        found.extend(tick.captures_iter(&prose).map(|one| {
            (
                name.clone(),
                one[1].split_whitespace().collect::<Vec<_>>().join(" "),
            )
        }));
    }
    for block in blocks()?.into_iter().filter(|b| b.language == "sh") {
        let joined = block.text.replace("\\\n", " ");
        found.extend(
            joined
                .lines()
                .map(|line| (block.place.clone(), line.trim().to_owned())),
        );
    }
    Ok(found)
}

/// A command line of ours, as far as the command line parser judges it.
fn command(line: &str) -> Result<()> {
    let line = line.split('#').next().unwrap_or(line);
    let words = line
        .split_whitespace()
        .take_while(|word| !["|", ">", "&&"].contains(word));
    // Both of `heal|observe` and `[--all]` are ways to write, not arguments.
    let words = words.filter(|word| !word.contains(['[', '|', '…']));
    let words: Vec<&str> = words.collect();
    let named = words.len() == 2;
    match Cli::try_parse_from(words) {
        Ok(_) => Ok(()),
        Err(error) if !error.use_stderr() => Ok(()),
        // `slice-healer hold`: the name of a command, not one to be typed.
        Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument && named => {
            Ok(())
        }
        Err(error) => bail!("{error}"),
    }
}

#[test]
fn every_command_of_ours_is_one() -> Result<()> {
    let ours = Regex::new(r"(?:^|\s|/)(slice-healer (?:[a-z-].*))$")?;
    let mut seen = 0;
    for (place, text) in spoken()? {
        let Some(found) = ours.captures(&text) else {
            continue;
        };
        let line = &found[1];
        // Somebody else's argument: `iotedge logs slice-healer`, a namespace of kubectl's.
        if ["kubectl", "az ", "iotedge", "mkdir", "journalctl"]
            .iter()
            .any(|other| text.contains(other))
        {
            continue;
        }
        command(line).with_context(|| format!("{place}: {text}"))?;
        seen += 1;
    }
    ensure!(seen >= 8, "only {seen} commands found");
    Ok(())
}

#[test]
fn every_file_and_recipe_that_is_named_is_there() -> Result<()> {
    let path =
        Regex::new(r"^(?:\./)?((?:tests|config|module|docs|tools|\.ci|\.github)/[\w./*-]+)")?;
    let link = Regex::new(r"\]\(([\w./-]+?)(?:#[\w-]+)?\)")?;
    let recipe = Regex::new(r"(?:^|\s)just ([a-z][a-z0-9-]*)")?;
    let recipes = recipes()?;
    let mut faults = Vec::new();
    for (place, text) in spoken()? {
        for word in text.split_whitespace() {
            let Some(found) = path.captures(word) else {
                continue;
            };
            let name = found[1].trim_end_matches(['/', '.']);
            let name = name.split("/*").next().unwrap_or(name);
            let name = name.split('*').next().unwrap_or(name).trim_end_matches('_');
            let made = name.starts_with("config/deployment.");
            let shortened = name.ends_with("real");
            if !made && !shortened && !root().join(name).exists() {
                faults.push(format!("{place}: {word}"));
            }
        }
        for found in recipe.captures_iter(&text) {
            if !recipes.iter().any(|known| *known == found[1]) {
                faults.push(format!("{place}: just {}", &found[1]));
            }
        }
    }
    for (name, text) in documents()? {
        let folder = root().join(&name);
        let folder = folder.parent().context("no folder")?;
        for found in link.captures_iter(&text).filter(|l| !l[1].contains("://")) {
            if !folder.join(&found[1]).exists() {
                faults.push(format!("{name}: link to {}", &found[1]));
            }
        }
    }
    ensure!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

#[test]
fn every_setting_and_property_that_is_named_is_one() -> Result<()> {
    let settings = configuration::rows(None, &[])?;
    let keys: BTreeSet<&str> = settings.iter().map(|row| row.key.as_str()).collect();
    let sections: BTreeSet<&str> = keys
        .iter()
        .filter_map(|key| key.split('.').next())
        .collect();
    let is_setting = |name: &str| {
        keys.contains(name) || keys.iter().any(|key| key.starts_with(&format!("{name}.")))
    };
    let in_twin = |name: &str| {
        let name = name.trim_start_matches("settings.");
        let of_table = |twin: &str| twin == name || twin.starts_with(&format!("{name}."));
        SETTABLE.iter().any(|(_, twin)| of_table(twin))
    };
    let document = fleet::reported()?;
    let is_reported = |name: &str| {
        let name = name.trim_start_matches("reported.");
        document
            .pointer(&format!("/{}", name.replace('.', "/")))
            .is_some()
    };
    let dotted = Regex::new(r"^([a-z]+(?:\.[a-zA-Z_]+)+)(?: = .*)?$")?;
    let variable = Regex::new(r"\bSLICE_HEALER__[A-Z_]+\b")?;
    let mut faults = Vec::new();
    let mut seen = 0;
    for (place, text) in spoken()? {
        if let Some(found) = dotted.captures(&text) {
            let name = &found[1];
            let first = name.split('.').next().unwrap_or_default();
            let known = sections.contains(first) || ["reported", "settings"].contains(&first);
            let ours = known || document.get(first).is_some();
            let extension = [
                "toml", "json", "yaml", "sh", "md", "redb", "sock", "py", "rs",
            ];
            let is_file = extension.contains(&name.rsplit('.').next().unwrap_or_default());
            if ours && !is_file {
                seen += 1;
                if !(is_setting(name) || in_twin(name) || is_reported(name)) {
                    faults.push(format!("{place}: {name}"));
                }
            }
        }
        for found in variable.find_iter(&text) {
            // The pattern itself, and what is only its beginning.
            if found.as_str() == "SLICE_HEALER__SECTION__KEY" {
                continue;
            }
            seen += 1;
            if !keys
                .iter()
                .any(|key| configuration::variable(key) == found.as_str())
            {
                faults.push(format!("{place}: {}", found.as_str()));
            }
        }
    }
    ensure!(faults.is_empty(), "{faults:#?}");
    ensure!(seen >= 25, "only {seen} names found");
    Ok(())
}
