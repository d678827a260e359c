//! The whole loop, every part at once: a real control plane goes stale, a real journald tells a line,
//! slice-healer heals, and the fleet reads it in the twin and in telemetry.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use slice_lab::edge::{Edge, EdgeOptions};

use crate::support::controlplane::{ControlPlane, Options};
use crate::support::dtdl::Model;
use crate::support::journald::Journald;
use crate::support::module::{Setup, reported};
use crate::support::product;
use crate::support::stale::{self, Change, PROMPT, Stale};

/// How long anything may take on a slow machine.
const LONG: Duration = Duration::from_secs(90);

fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "whole loop: {text}");
}

/// A module with a hub, in scope of this state alone.
async fn setup(plane: &ControlPlane, state: &Stale, edge: &Edge) -> Result<Setup> {
    let kubeconfig = product::install(plane).await?;
    let setup = Setup::new(&kubeconfig)
        .set("SCOPE__NAMESPACES", &state.namespace)
        .set("SCOPE__LOCALITY", "cluster")
        .set("REPORT__MIN_INTERVAL", "PT1S")
        .reporting_to(edge)?;
    Ok(setup)
}

fn events(edge: &Edge, kind: &str) -> Vec<Value> {
    let all = edge.telemetry();
    all.iter()
        .filter_map(|t| t.json())
        .filter(|b| b["type"] == kind)
        .collect()
}

/// All that the cloud has of this module fits the Plug and Play model that it announced.
fn fits_the_model(edge: &Edge) -> Result<()> {
    let model = Model::shipped()?;
    let document = edge.cloud().reported();
    model
        .check_reported(&document)
        .with_context(|| document.to_string())?;
    for record in edge.telemetry() {
        ensure!(record.model_id.as_deref() == Some(model.id()), "{record:?}");
        let component = record.system.get("sub").context("no component")?;
        let body = record.json().context("no JSON")?;
        model.check_telemetry(component, &body)?;
    }
    Ok(())
}

#[tokio::test]
async fn from_a_journal_line_to_the_twin() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let edge = Edge::start(EdgeOptions::quick()).await?;
    let journald = Journald::start(&[], &[])?;
    let (state, left) =
        stale::admission_backoff(&plane, Change::Redeployment, Duration::from_secs(100)).await?;
    edge.cloud()
        .set_desired(json!({"settings": {"__t": "c", "mode": "observe",
        "labels": {"site": "brno", "line": "line1"}}}))?;
    let mut module = setup(&plane, &state, &edge)
        .await?
        .set(
            "JOURNAL__DIRECTORIES",
            &journald.volatile().display().to_string(),
        )
        .start()?;

    // The twin says observe, and observe it is, although the environment says heal.
    let seen = reported(&edge, &module, "observing", |r| {
        r["heals"]["shadow"] == 1 && r["health"]["state"] == "blocked"
    })
    .await?;
    ensure!(seen["schema"] == "slice-healer/twin/v1", "{seen}");
    ensure!(
        seen["settings"]["mode"]["value"] == "observe" && seen["settings"]["mode"]["ac"] == 200,
        "{seen}"
    );
    ensure!(
        seen["labels"]["site"] == "brno" && seen["cluster"]["state"] == "synced",
        "{seen}"
    );
    ensure!(
        seen["cluster"]["serverVersion"] == plane.version(),
        "{seen}"
    );
    state.stays_wrong(Duration::from_secs(2)).await?;

    // What ends one day is in the twin too: the test's token within hours, before every certificate.
    let seen = reported(&edge, &module, "what ends", |r| {
        r["credentials"]["state"] == "ends-within-30-days"
    })
    .await?;
    let ends = &seen["credentials"]["ends"];
    for credential in [
        "ca-certificate",
        "token",
        "server-certificate",
        "trust-bundle",
        "gateway-certificate",
    ] {
        ensure!(ends[credential].is_string(), "{credential}: {seen}");
    }
    ensure!(
        seen["credentials"]["first"] == "token"
            && seen["credentials"]["firstEnds"] == ends["token"],
        "{seen}"
    );

    // A line of the seeds, by the unit that the seeds name.
    let mut unit = journald.stream("aziot-edged", "iotedge.service")?;
    unit.write_all(b"Cache hit for endpoint slice, skipping update\n")?;
    let seen = reported(&edge, &module, "the journal line", |r| {
        r["journal"]["signals"] == 1
    })
    .await?;
    ensure!(
        seen["journal"]["state"] == "following" && seen["journal"]["lastSignalAt"].is_string(),
        "{seen}"
    );

    // An operator lets it go.
    edge.cloud()
        .patch_desired(json!({"settings": {"mode": "heal"}}))?;
    let took = state
        .await_right(LONG)
        .await
        .with_context(|| module.log())?;
    note(&format!(
        "right {took:.1?} after mode heal came by twin; the controller had {left:.0?} to go"
    ));
    let seen = reported(&edge, &module, "healed", |r| {
        r["heals"]["succeeded"] == 1 && r["health"]["state"] == "healthy"
    })
    .await?;
    ensure!(seen["heals"]["last"]["outcome"] == "healed", "{seen}");
    ensure!(
        seen["heals"]["last"]["action"] == "refresh-service",
        "{seen}"
    );
    ensure!(
        seen.to_string().len() <= 8 * 1024 && !seen.to_string().contains('['),
        "{seen}"
    );

    // What the fleet's alarms are made of.
    edge.wait_for(
        |v| {
            v.telemetry()
                .iter()
                .any(|t| t.json().is_some_and(|b| b["heal"]["outcome"] == "healed"))
        },
        LONG,
    )
    .await?;
    ensure!(
        events(&edge, "signal").len() == 1,
        "{:?}",
        events(&edge, "signal")
    );
    let findings = events(&edge, "finding");
    ensure!(
        findings
            .iter()
            .any(|f| f["kind"] == "GhostEndpoint" && f["severity"] == "critical"),
        "{findings:?}"
    );
    let record = edge.telemetry().into_iter().next().context("telemetry")?;
    ensure!(
        record.content_type() == Some("application/json"),
        "{record:?}"
    );
    ensure!(
        record
            .properties
            .iter()
            .any(|(k, v)| k == "site" && v == "brno"),
        "{record:?}"
    );

    // A wrong setting is answered, and changes nothing.
    edge.cloud()
        .patch_desired(json!({"settings": {"mode": "sleep", "logLevel": "debug"}}))?;
    let seen = reported(&edge, &module, "refused", |r| {
        r["settings"]["mode"]["ac"] == 400
    })
    .await?;
    ensure!(
        seen["module"]["mode"] == "heal" && seen["settings"]["mode"]["value"] == "heal",
        "{seen}"
    );
    fits_the_model(&edge)?;

    let (status, took) = module.terminate().await?;
    ensure!(
        status.success() && took < Duration::from_secs(8),
        "{status} after {took:?}"
    );
    edge.wait_for(
        |v| {
            v.telemetry()
                .iter()
                .any(|t| t.json().is_some_and(|b| b["type"] == "drain"))
        },
        PROMPT,
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn methods_ask_and_heal_while_it_only_observes() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let edge = Edge::start(EdgeOptions::quick()).await?;
    let state = stale::phase_only(plane).await?;
    let mut module = setup(plane, &state, &edge)
        .await?
        .set("MODE", "observe")
        // Its one Lease is for others that share the control plane as well.
        .set("HEAL__LEASE", "false")
        .set("REPORT__STATUS_INTERVAL", "PT1S")
        .start()?;
    module
        .await_line(&["kind=heal", "outcome=held"], LONG)
        .await?;
    edge.wait_for(
        |v| {
            let on_status =
                |t: &&slice_lab::edge::TelemetryRecord| t.output.as_deref() == Some("status");
            v.telemetry()
                .iter()
                .any(|t| on_status(&t) && t.json().is_some_and(|b| b["type"] == "status"))
        },
        LONG,
    )
    .await?;
    let limit = Duration::from_secs(10);
    let model = Model::shipped()?;
    let call = async |name: &str, payload: Value| {
        let answer = edge.invoke_method(name, payload, limit).await;
        if answer.status == 200 || answer.status == 202 {
            let fits = model.check_command(name, "response", &answer.payload);
            assert!(fits.is_ok(), "{name}: {fits:?}");
        }
        (answer.status, answer.payload)
    };

    let (status, body) = call("ping", json!(null)).await;
    ensure!(
        status == 200 && body["health"] == "blocked",
        "{status} {body}"
    );
    let (status, body) = call("inspect", json!({"namespace": state.namespace})).await;
    ensure!(
        status == 200 && body["findings"][0]["kind"] == "TerminalPod",
        "{status} {body}"
    );
    let (status, body) = call("inspect", json!({"nameSpace": "x"})).await;
    ensure!(
        status == 400
            && body["error"]
                .as_str()
                .is_some_and(|e| e.contains("nameSpace")),
        "{status} {body}"
    );
    let (status, _) = call("selfDestruct", json!({})).await;
    ensure!(status == 404, "{status}");
    let (status, body) = call(
        "heal",
        json!({"namespace": state.namespace, "service": "nobody"}),
    )
    .await;
    ensure!(status == 404, "{status} {body}");
    let target = json!({"namespace": state.namespace, "service": stale::SERVICE});
    let mut dry = target.clone();
    dry["dryRun"] = true.into();
    let (status, body) = call("heal", dry).await;
    ensure!(
        status == 200 && body["wouldDo"] == "refresh-service",
        "{status} {body}"
    );
    state.stays_wrong(Duration::from_secs(2)).await?;

    let (status, body) = call("heal", target.clone()).await;
    ensure!(status == 202, "{status} {body}\n{}", module.log());
    state
        .await_right(LONG)
        .await
        .with_context(|| module.log())?;
    let incident = body["incident"].clone();
    edge.wait_for(
        |v| {
            v.telemetry().iter().any(|t| {
                t.json()
                    .is_some_and(|b| b["incident"] == incident && b["heal"]["outcome"] == "healed")
            })
        },
        LONG,
    )
    .await
    .with_context(|| module.log())?;
    let (status, body) = call("heal", target).await;
    ensure!(
        status == 200 && body["outcome"] == "nothing-to-do",
        "{status} {body}"
    );
    fits_the_model(&edge)?;
    Ok(())
}

#[tokio::test]
async fn events_wait_for_a_hub_that_is_away_and_survive_a_kill() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let edge = Edge::start(EdgeOptions::quick()).await?;
    edge.stop_hub().await;
    let state = stale::phase_only(plane).await?;
    let mut module = setup(plane, &state, &edge)
        .await?
        .set("HEAL__LEASE", "false")
        .start()?;
    state
        .await_right(LONG)
        .await
        .with_context(|| module.log())?;
    module
        .await_line(&["kind=heal", "outcome=healed"], LONG)
        .await?;
    module.kill()?;
    let module = module.restart()?;
    edge.start_hub().await?;
    edge.wait_for(
        |v| {
            v.telemetry()
                .iter()
                .any(|t| t.json().is_some_and(|b| b["heal"]["outcome"] == "healed"))
        },
        LONG,
    )
    .await
    .with_context(|| module.log())?;
    Ok(())
}
