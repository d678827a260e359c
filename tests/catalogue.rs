//! The catalogue of known cases: objects as kubectl prints them in, findings out, through the built
//! binary. Each case also says what a naive tool does wrong and which findings and heals must
//! therefore never be there. See `tests/cases/README.md`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// Fewer than this and cases got lost.
const AT_LEAST: usize = 53;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The public report that the case comes from.
    #[serde(rename = "source")]
    _source: String,
    args: Vec<String>,
    /// Fields that each finding must have; a finding may have more.
    findings: Vec<serde_json::Map<String, Value>>,
    /// What a naive tool does.
    naive: String,
    never: Never,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Never {
    kinds: Vec<String>,
    remedies: Vec<String>,
}

fn cases() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    ensure!(cases.len() >= AT_LEAST, "only {} cases", cases.len());
    Ok(cases)
}

fn inspect(objects: &Path, args: &[String], output: &str) -> Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_slice-healer"))
        .arg("inspect")
        .arg("-f")
        .arg(objects)
        .args(args)
        .args(["-o", output])
        .env_remove("KUBECONFIG")
        .output()
        .context("cannot run the binary")
}

/// What of a finding a case may speak of, flattened to one level.
fn flat(finding: &Value) -> Value {
    let mut flat = finding.clone();
    if let Some(map) = flat.as_object_mut() {
        let action = map.get("remedy").and_then(|r| r.get("action")).cloned();
        map.insert("remedy".into(), action.unwrap_or_default());
        map.remove("message");
        map.remove("evidence");
    }
    flat
}

fn has(finding: &Value, expected: &serde_json::Map<String, Value>) -> bool {
    expected
        .iter()
        .all(|(key, value)| finding.get(key) == Some(value))
}

fn check(folder: &Path) -> Result<()> {
    let case: Case = serde_json::from_str(&std::fs::read_to_string(folder.join("expected.json"))?)?;
    let objects = folder.join("objects.yaml");
    let output = inspect(&objects, &case.args, "json")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let look: Value = serde_json::from_slice(&output.stdout).with_context(|| stderr.to_string())?;
    let found: Vec<Value> = look["findings"]
        .as_array()
        .context("no findings")?
        .iter()
        .map(flat)
        .collect();

    let shown = serde_json::to_string_pretty(&found)?;
    ensure!(
        found.len() == case.findings.len(),
        "{} findings, not {}: {shown}",
        found.len(),
        case.findings.len()
    );
    for expected in &case.findings {
        ensure!(
            found.iter().filter(|f| has(f, expected)).count() == 1,
            "not exactly one {}: {shown}",
            Value::Object(expected.clone())
        );
    }
    for finding in &found {
        let of = |key: &str| finding[key].as_str().unwrap_or_default();
        ensure!(
            !case.never.kinds.iter().any(|k| k == of("kind")),
            "a naive tool's mistake ({}): {shown}",
            case.naive
        );
        ensure!(
            !case.never.remedies.iter().any(|r| r == of("remedy")),
            "a naive tool's mistake ({}): {shown}",
            case.naive
        );
    }
    let bad = found.iter().any(|f| f["severity"] != "info");
    ensure!(
        output.status.code() == Some(i32::from(bad)),
        "exit code {:?}",
        output.status.code()
    );
    for finding in look["findings"].as_array().into_iter().flatten() {
        let text = |key: &str| finding[key].as_str().unwrap_or_default();
        ensure!(
            !text("message").is_empty(),
            "a finding without a message: {finding}"
        );
        ensure!(
            finding["remedy"]["reason"] != "",
            "a remedy without a reason: {finding}"
        );
    }

    let again = inspect(&objects, &case.args, "json")?;
    ensure!(
        again.stdout == output.stdout,
        "two looks at the same objects differ"
    );
    let table = inspect(&objects, &case.args, "table")?;
    let table = String::from_utf8(table.stdout)?;
    for line in table.lines() {
        ensure!(
            line.chars().count() <= 100,
            "wider than 100 columns: {line}"
        );
    }
    ensure!(!table.contains('\u{1b}'), "colour without a terminal");
    Ok(())
}

#[test]
fn every_case_is_judged_as_it_says() -> Result<()> {
    let mut failed = Vec::new();
    let mut kinds = BTreeSet::new();
    for folder in cases()? {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if let Err(error) = check(&folder) {
            failed.push(format!("{name}: {error:#}"));
        }
        let case: Case =
            serde_json::from_str(&std::fs::read_to_string(folder.join("expected.json"))?)?;
        kinds.extend(
            case.findings
                .iter()
                .filter_map(|f| f["kind"].as_str().map(str::to_owned)),
        );
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    ensure!(kinds.len() >= 15, "the cases show only {kinds:?}");
    Ok(())
}
