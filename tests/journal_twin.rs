//! Journal rules that come by twin while the module runs: a new rule makes a signal of the next line
//! that it matches, a bad one is refused by its name and leaves the others, one that is taken back
//! is silent again. The follower starts anew each time and loses nothing.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use slice_lab::edge::{Edge, EdgeOptions};

use crate::support::journald::Journald;
use crate::support::module::{Module, Setup, reported};

const LONG: Duration = Duration::from_secs(90);

fn rule(pattern: &str) -> Value {
    json!({"pattern": pattern, "severity": "warning", "units": {"iotedge": true}})
}

fn patch(edge: &Edge, rules: Value) -> Result<()> {
    let patch = json!({"settings": {"journal": {"rules": rules}}});
    edge.cloud().patch_desired(patch)?;
    Ok(())
}

/// Messages of the signals that the cloud has, oldest first.
fn told(edge: &Edge) -> Vec<String> {
    edge.telemetry()
        .iter()
        .filter_map(|record| record.json())
        .filter(|body| body["type"] == "signal")
        .map(|body| body["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

async fn until_told(edge: &Edge, module: &Module, message: &str) -> Result<()> {
    edge.wait_for(
        |view| {
            view.telemetry()
                .iter()
                .filter_map(|record| record.json())
                .any(|body| body["type"] == "signal" && body["message"] == message)
        },
        LONG,
    )
    .await
    .with_context(|| format!("{message}; told {:?}\n{}", told(edge), module.log()))
}

#[tokio::test]
async fn a_rule_of_the_twin_is_in_force_at_once_and_a_bad_one_is_refused_by_name() -> Result<()> {
    let edge = Edge::start(EdgeOptions::quick()).await?;
    let journald = Journald::start(&["Storage=volatile"], &[])?;
    edge.cloud()
        .set_desired(json!({"settings": {"__t": "c"}}))?;
    let setup = Setup::new(Path::new("/nonexistent/kubeconfig"))
        .set("MODE", "observe")
        .set("REPORT__MIN_INTERVAL", "PT1S")
        .reporting_to(&edge)?
        .set(
            "JOURNAL__DIRECTORIES",
            &journald.volatile().display().to_string(),
        );
    let module = setup.start()?;
    reported(&edge, &module, "following", |r| {
        r["journal"]["state"] == "following"
    })
    .await?;

    let mut unit = journald.stream("aziot-edged", "iotedge.service")?;
    patch(&edge, json!({"weights": rule("^weights of yesterday")}))?;
    reported(&edge, &module, "the rule is taken", |r| {
        let journal = &r["settings"]["journal"];
        journal["ac"] == 200 && journal["value"]["rules"]["weights"].is_object()
    })
    .await?;
    unit.write_all(b"weights of yesterday 1\n")?;
    until_told(&edge, &module, "weights of yesterday 1").await?;

    // A pattern that is none: refused by the rule's name, and what is in force stays.
    patch(&edge, json!({"broken": rule("(")}))?;
    reported(&edge, &module, "the bad rule is refused", |r| {
        let journal = &r["settings"]["journal"];
        let why = journal["ad"].as_str().unwrap_or_default();
        journal["ac"] == 400
            && why.contains("journal.rules.broken")
            && journal["value"]["rules"]["weights"].is_object()
            && journal["value"]["rules"]["broken"].is_null()
    })
    .await?;
    unit.write_all(b"weights of yesterday 2\n")?;
    until_told(&edge, &module, "weights of yesterday 2").await?;

    // Taken back; a line for another rule shows that the reading has come past the one before it.
    let change = json!({"weights": null, "broken": null, "other": rule("^other")});
    patch(&edge, change)?;
    reported(&edge, &module, "the other rule is taken", |r| {
        let journal = &r["settings"]["journal"];
        journal["ac"] == 200
            && journal["value"]["rules"]["weights"].is_null()
            && journal["value"]["rules"]["other"].is_object()
    })
    .await?;
    unit.write_all(b"weights of yesterday 3\nother line\n")?;
    until_told(&edge, &module, "other line").await?;

    let told = told(&edge);
    let expected = [
        "weights of yesterday 1",
        "weights of yesterday 2",
        "other line",
    ];
    ensure!(told == expected, "{told:?}\n{}", module.log());
    Ok(())
}
