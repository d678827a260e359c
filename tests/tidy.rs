//! The house rules that neither Cargo nor clippy keeps: who may name whom, how long a file is,
//! what must never be written down. Reads the tree; runs nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;

/// What is not ours: built, fetched, or Git's (a file in a worktree).
const NOT_OURS: [&str; 6] = [
    ".git",
    "target",
    "node_modules",
    "__pycache__",
    "fuzz",
    "venv",
];

/// A file is one idea; what is longer is two.
const LONGEST: usize = 500;

/// What may be longer, each with its reason.
const LONGER: [&str; 0] = [];

/// The crates that the pure core may use: none of them does any input or output.
const PURE: [&str; 8] = [
    "jiff",
    "regex",
    "serde",
    "serde_json",
    "siphasher",
    "sha2",
    "thiserror",
    "tracing",
];

/// The parts of the agent that must not know each other: only `app.rs` knows them all.
const PARTS: [&str; 5] = ["act", "report", "sense", "serve", "store"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All our files as (path from the root with `/`, text); what is not text is left out.
fn files() -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if NOT_OURS.iter().any(|not| name == *not) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                let path = entry
                    .path()
                    .strip_prefix(root())?
                    .to_string_lossy()
                    .into_owned();
                found.push((path, text));
            }
        }
    }
    ensure!(
        found.len() > 20,
        "only {} files under {}",
        found.len(),
        root().display()
    );
    found.sort();
    Ok(found)
}

fn rust_files() -> Result<Vec<(String, String)>> {
    Ok(files()?
        .into_iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .collect())
}

fn none(faults: &[String], rule: &str) -> Result<()> {
    ensure!(faults.is_empty(), "{rule}:\n{}", faults.join("\n"));
    Ok(())
}

#[test]
fn a_file_holds_one_idea_and_says_which() -> Result<()> {
    let mut faults = Vec::new();
    for (path, text) in rust_files()? {
        if !text.starts_with("//! ") {
            faults.push(format!("{path}: no //! header"));
        }
        let lines = text.lines().count();
        if lines > LONGEST && !LONGER.contains(&path.as_str()) {
            faults.push(format!("{path}: {lines} lines, more than {LONGEST}"));
        }
    }
    none(
        &faults,
        "each file begins with what it does and never does, and is not long",
    )
}

/// Every way to a heal (loop, method, control socket, command line, sweep) ends in the ladder, and the
/// ladder asks the gate: nobody else may make up a write.
#[test]
fn only_the_ladder_decides_writes() -> Result<()> {
    const ALLOWED: [&str; 4] = [
        "module/agent/act/mod.rs",
        "module/agent/app/pump/carry.rs",
        "module/core/src/event.rs",
        "module/core/src/heal/ladder/rung.rs",
    ];
    let writes = Regex::new(r"\bAct::(Refresh|Delete)\b|\bPlan::(Refresh|Delete) \{")?;
    let faults: Vec<String> = rust_files()?
        .into_iter()
        .filter(|(path, _)| path.starts_with("module/"))
        .filter(|(path, _)| !path.contains("/tests") && !path.ends_with("_tests.rs"))
        .filter(|(path, _)| !ALLOWED.contains(&path.as_str()))
        .filter(|(path, _)| {
            // The plan is where the gate is asked, and the dry run only reads it.
            ![
                "module/core/src/heal/plan.rs",
                "module/core/src/engine/dry_run.rs",
            ]
            .contains(&path.as_str())
        })
        .filter(|(_, text)| writes.is_match(text))
        .map(|f| f.0)
        .collect();
    none(&faults, "writes are decided in one place")?;
    let plan = fs::read_to_string(root().join("module/core/src/heal/plan.rs"))?;
    ensure!(plan.contains("gate::refresh(") && plan.contains("gate::delete("));
    Ok(())
}

#[test]
fn no_test_is_switched_off() -> Result<()> {
    let off = concat!("#[ig", "nore");
    let faults: Vec<_> = rust_files()?
        .into_iter()
        .filter(|(_, text)| text.contains(off))
        .map(|f| f.0)
        .collect();
    none(&faults, "a test that is not run proves nothing")
}

#[test]
fn nothing_names_a_machine_or_a_mirror() -> Result<()> {
    // Put together here so that this file does not find itself.
    let folders = concat!(r"(^|[^\w$}*.])/(ro", "ot|wo", r"rk|home/\w+)/");
    let settings = concat!("GOPR", "OXY=|index", "-url|regis", "try *= *\"?https?:");
    let forbidden = Regex::new(&format!("{folders}|{settings}"))?;
    let mut faults = Vec::new();
    for (path, text) in files()? {
        for (n, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| forbidden.is_match(line))
        {
            faults.push(format!("{path}:{}: {}", n + 1, line.trim()));
        }
    }
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let index = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let foreign = |line: &&str| line.starts_with("source = ") && *line != index;
    faults.extend(
        lock.lines()
            .filter(foreign)
            .map(|line| format!("Cargo.lock: {line}")),
    );
    none(&faults, "what is written here must hold on every machine")
}

/// The dependencies of a crate, without those of its tests.
fn dependencies(manifest: &str) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(root().join(manifest)).context(manifest.to_owned())?;
    let parsed: toml::Table = text.parse()?;
    let of = |table: &toml::Table, key: &str| -> Vec<String> {
        let names = table.get(key).and_then(toml::Value::as_table);
        names
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect()
    };
    let mut found: BTreeSet<String> = of(&parsed, "dependencies").into_iter().collect();
    found.extend(of(&parsed, "build-dependencies"));
    for target in parsed
        .get("target")
        .and_then(toml::Value::as_table)
        .into_iter()
        .flatten()
    {
        found.extend(
            target
                .1
                .as_table()
                .into_iter()
                .flat_map(|t| of(t, "dependencies")),
        );
    }
    Ok(found)
}

#[test]
fn the_core_decides_and_touches_nothing() -> Result<()> {
    let used = dependencies("module/core/Cargo.toml")?;
    let mut faults: Vec<String> = used
        .iter()
        .filter(|name| !PURE.contains(&name.as_str()))
        .map(|name| format!("module/core/Cargo.toml: {name}"))
        .collect();
    // A clock, an environment, a file, a socket, a process: all of that is given to the core.
    let touch = Regex::new(
        r"std::(env|fs|io|os|process|thread)\b|\b(Tcp|Udp)\w+|ToSocketAddrs|(SystemTime|Instant|Timestamp|Zoned)::now",
    )?;
    for (path, text) in rust_files()? {
        if path.starts_with("module/core/src/") {
            faults.extend(
                touch
                    .find_iter(&text)
                    .map(|m| format!("{path}: {}", m.as_str())),
            );
        }
    }
    none(&faults, "the core is a function of (state, input, now)")
}

#[test]
fn the_libraries_know_nothing_of_each_other() -> Result<()> {
    let mut faults = Vec::new();
    for name in ["core", "journal", "hub", "lab"] {
        let manifest = format!("module/{name}/Cargo.toml");
        let ours = dependencies(&manifest)?
            .into_iter()
            .filter(|used| used.starts_with("slice-"));
        faults.extend(ours.map(|used| format!("{manifest}: {used}")));
    }
    none(&faults, "core, journal, hub and lab import none of ours")
}

#[test]
fn only_one_command_knows_the_lab() -> Result<()> {
    let product = |path: &str| path.starts_with("module/") && !path.starts_with("module/lab/");
    let lab = Regex::new(r"\bslice_lab::|\buse slice_lab\b")?;
    let faults: Vec<String> = rust_files()?
        .into_iter()
        .filter(|(path, text)| product(path) && lab.is_match(outside_tests(text)))
        .filter(|(path, _)| path != "module/agent/cmd/lab.rs" && !is_test_file(path))
        .map(|(path, _)| path)
        .collect();
    none(&faults, "only module/agent/cmd/lab.rs names slice_lab")
}

#[test]
fn the_parts_of_the_agent_do_not_import_each_other() -> Result<()> {
    let mut faults = Vec::new();
    for (path, text) in rust_files()? {
        let Some((part, _)) = path
            .strip_prefix("module/agent/")
            .and_then(|p| p.split_once('/'))
        else {
            continue;
        };
        if !PARTS.contains(&part) {
            continue;
        }
        let mut others: Vec<&str> = PARTS.into_iter().filter(|other| *other != part).collect();
        others.extend(["app", "cli", "cmd"]);
        for named in crate_modules(&text)? {
            if others.contains(&named.as_str()) {
                faults.push(format!("{path}: crate::{named}"));
            }
        }
    }
    none(
        &faults,
        "act, report, sense, serve and store import core and settings only",
    )
}

/// The top-level modules that a file names with `crate::`, alone or in braces.
fn crate_modules(text: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for one in Regex::new(r"\bcrate::(\w+)")?.captures_iter(text) {
        found.insert(one[1].to_owned());
    }
    for group in Regex::new(r"\bcrate::\{")?.find_iter(text) {
        let mut depth = 0_usize;
        let mut word = String::new();
        let mut path_goes_on = false;
        for c in text[group.end()..].chars() {
            match c {
                '{' => depth += 1,
                '}' | ',' if depth == 0 => {
                    found.insert(std::mem::take(&mut word));
                    path_goes_on = false;
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                ':' if depth == 0 => path_goes_on = true,
                c if depth == 0 && !path_goes_on && (c.is_alphanumeric() || c == '_') => {
                    word.push(c);
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

#[test]
fn names_in_braces_are_seen() -> Result<()> {
    let text =
        "use crate::{act::{self, Writer}, settings::Scope,\n    store};\nuse crate::serve::X;";
    let seen = crate_modules(text)?;
    let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    ensure!(seen == ["act", "serve", "settings", "store"], "{seen:?}");
    Ok(())
}

/// The text before the file's unit tests, which may know more than the code.
fn outside_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

fn is_test_file(path: &str) -> bool {
    ["_tests.rs", "/tests.rs"]
        .iter()
        .any(|end| path.ends_with(end))
        || ["/tests/", "/examples/"]
            .iter()
            .any(|part| path.contains(part))
}

#[test]
fn every_shipped_settings_file_is_loaded_by_a_test_or_the_product() -> Result<()> {
    let all = files()?;
    let named = |name: &str| {
        let here = "tests/tidy.rs";
        let reader = |path: &str| {
            path != here && [".rs", ".sh", ".py"].iter().any(|end| path.ends_with(end))
        };
        all.iter()
            .any(|(path, text)| reader(path) && text.contains(name))
    };
    let mut faults = Vec::new();
    for (path, _) in &all {
        let file = PathBuf::from(path);
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let shipped = path.starts_with("config/") || name == "deployment.template.json";
        if !shipped || path.ends_with(".md") {
            continue;
        }
        // A folder that is read as a whole counts for what is in it.
        let folder = file
            .parent()
            .map(|f| f.to_string_lossy().into_owned())
            .unwrap_or_default();
        let known = named(&name) || (folder.contains('/') && named(&folder));
        if !known {
            faults.push(path.clone());
        }
    }
    none(&faults, "what nobody loads may be broken")
}

#[test]
fn every_dependency_has_a_reason_in_the_architecture() -> Result<()> {
    let reasons = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let mut faults = Vec::new();
    for folder in [
        "",
        "module/core/",
        "module/journal/",
        "module/hub/",
        "module/lab/",
    ] {
        let manifest = format!("{folder}Cargo.toml");
        let used = dependencies(&manifest)?;
        ensure!(!used.is_empty(), "{manifest} names no dependency");
        let silent = used.iter().filter(|name| !reasons.contains(name.as_str()));
        faults.extend(silent.map(|name| format!("{manifest}: {name}")));
    }
    none(&faults, "ARCHITECTURE.md says why each dependency is there")
}

/// What the README tells a person to run is there.
#[test]
fn the_readme_names_files_and_settings_that_exist() -> Result<()> {
    let readme = fs::read_to_string(root().join("README.md"))?;
    let default = fs::read_to_string(root().join("config/default.toml"))?;
    let mut faults = Vec::new();
    let path = Regex::new(r"`((?:tests|config|module|docs|\.ci)/[A-Za-z0-9_./*-]+)`")?;
    for found in path.captures_iter(&readme) {
        let name = found[1].trim_end_matches('/').replace("/*", "");
        if !root().join(&name).exists() {
            faults.push(name);
        }
    }
    let setting =
        Regex::new(r"`(heal|cluster|serve|hub|report|journal)\.((?:[a-z_]+\.)?[a-z_]+)`")?;
    for found in setting.captures_iter(&readme) {
        let key = found[2].rsplit('.').next().unwrap_or_default().to_owned();
        let camel = key.contains(|c: char| c.is_uppercase());
        let reported = ["state"].contains(&key.as_str());
        if !camel && !reported && !default.contains(&format!("\n{key} =")) {
            faults.push(found[0].to_owned());
        }
    }
    none(&faults, "README.md names what exists")
}
