//! Scripts, recipes and workflows as text: the shell takes them, and what they call is there. Runs
//! none of them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use serde_json::Value;

use super::snippets::is_shell;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(root().join(file)).context(file.to_owned())
}

/// The names of the recipes that `just` knows.
pub(crate) fn recipes() -> Result<Vec<String>> {
    let head = Regex::new(r"(?m)^([a-z][a-z0-9-]*)(?: [^:\n]*)?:(?:$| )")?;
    let text = read("justfile")?;
    Ok(head
        .captures_iter(&text)
        .map(|one| one[1].to_owned())
        .collect())
}

/// Every file that begins with `#!` and a shell.
fn scripts() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = [".ci", "config", "tests", "tools"]
        .iter()
        .map(|folder| root().join(folder))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("node_modules") && !path.ends_with("target") {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path)
                && text.starts_with("#!")
                && text.lines().next().is_some_and(|line| line.ends_with("sh"))
            {
                found.push(path);
            }
        }
    }
    ensure!(found.len() >= 8, "{found:?}");
    Ok(found)
}

/// Our own files and recipes that a command line calls.
fn calls_what_is_there(text: &str) -> Result<()> {
    let ours = Regex::new(r"(?:^|[\s;&(])((?:tests|tools|\.ci)/[\w./-]+)")?;
    for found in ours.captures_iter(text) {
        ensure!(
            root().join(&found[1]).exists(),
            "{} is not there",
            &found[1]
        );
    }
    let just = Regex::new(r"(?:^|[\s;&])just ([a-z][a-z0-9-]*)")?;
    let known = recipes()?;
    for found in just.captures_iter(text) {
        ensure!(
            known.iter().any(|one| *one == found[1]),
            "no recipe {}",
            &found[1]
        );
    }
    Ok(())
}

#[test]
fn scripts_are_shell_stop_at_a_failure_and_may_be_run() -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    for path in scripts()? {
        let text = std::fs::read_to_string(&path)?;
        let name = path.strip_prefix(root())?.display().to_string();
        is_shell(&text).context(name.clone())?;
        let code: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .collect();
        calls_what_is_there(&code.join("\n")).context(name.clone())?;
        ensure!(
            code.iter().any(|line| line.starts_with("set -e")),
            "{name} goes on after a failure"
        );
        let mode = std::fs::metadata(&path)?.permissions().mode();
        ensure!(mode & 0o111 != 0, "{name} may not be run");
    }
    Ok(())
}

#[test]
fn recipes_call_what_is_there() -> Result<()> {
    ensure!(recipes()?.len() > 20, "{:?}", recipes()?);
    for line in read("justfile")?
        .lines()
        .filter(|line| line.starts_with("    "))
    {
        calls_what_is_there(line).context(line.to_owned())?;
    }
    Ok(())
}

#[test]
fn workflows_run_the_same_recipes() -> Result<()> {
    let mut commands = Vec::new();
    for file in [".github/workflows/ci.yml", ".github/workflows/release.yml"] {
        let workflow: Value = serde_saphyr::from_str(&read(file)?).context(file)?;
        ensure!(
            workflow["permissions"]["contents"] == "read",
            "{file} may write"
        );
        let jobs = workflow["jobs"].as_object().context("no jobs")?;
        for (name, job) in jobs {
            let steps = job["steps"].as_array().context(name.clone())?;
            for step in steps {
                let (run, uses) = (step["run"].as_str(), step["uses"].as_str());
                ensure!(run.is_some() != uses.is_some(), "{file}: {name}: {step}");
                if let Some(run) = run {
                    is_shell(run).with_context(|| format!("{file}: {name}: {run}"))?;
                    calls_what_is_there(run).with_context(|| format!("{file}: {name}"))?;
                    commands.push(run.to_owned());
                }
            }
        }
    }
    for needed in [".ci/run", "just qemu", "just release"] {
        ensure!(
            commands.iter().any(|one| one == needed),
            "{needed}: {commands:?}"
        );
    }
    let ci = read(".github/workflows/ci.yml")?;
    ensure!(
        ci.contains("check advisories"),
        "nobody asks for advisories"
    );
    Ok(())
}

#[test]
fn a_call_of_what_is_not_there_is_seen() -> Result<()> {
    ensure!(calls_what_is_there("nice tests/nothing.sh").is_err());
    ensure!(calls_what_is_there("just nothing").is_err());
    ensure!(is_shell("for x in; do").is_err());
    Ok(())
}
