//! The Plug and Play model `config/dtdl/slice-healer.json`: a foreign parser takes it, and what the
//! module reports, sends, takes and answers fits it. Nothing that is sent is made up here: documents
//! come from the product's own functions.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use slice_core::engine::{HealthState, Status};
use slice_core::event::{Event, EventType, HealEvent, HealOutcome, Reason, Reply};
use slice_core::heal::gate::HoldReason;
use slice_core::judge::{FindingKind, RemedyAction, Severity};
use slice_core::model::ServiceKey;
use slice_healer::expiry::{Credential, Ends};
use slice_healer::report::twin::{ModuleInfo, credentials, document};
use slice_healer::report::{methods, model, telemetry};
use slice_healer::settings::{Loaded, SETTABLE};

use crate::fleet;
use crate::support::controlplane::files::cache;
use crate::support::dtdl::{FILE, Model};

fn text() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    std::fs::read_to_string(path).context(FILE)
}

/// Microsoft's own parser of DTDL, on a file.
fn foreign(model: &Path) -> Result<(bool, String)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/node/dtdl.js");
    let modules = cache()?.join("peers/node/node_modules");
    ensure!(modules.exists(), "run tests/peers/setup.sh");
    let out = Command::new("node")
        .arg(script)
        .arg(model)
        .env("NODE_PATH", modules)
        .output()?;
    let said = [out.stdout, out.stderr].concat();
    Ok((
        out.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

#[test]
fn the_parser_of_dtdl_takes_the_model_and_sees_what_is_wrong() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (taken, said) = foreign(&root.join(FILE))?;
    ensure!(taken && said.contains(model::MODEL_ID), "{said}");

    let folder = tempfile::tempdir()?;
    let array = json!({"@type": "Array", "elementSchema": "string"});
    let twice = serde_json::from_str::<Value>(&text()?)?[0]["contents"][0]["name"].clone();
    for (pointer, wrong) in [
        // No arrays in properties: a twin of DTDL v2 may not hold any.
        ("/0/contents/0/schema", array),
        ("/0/contents/0/schema", json!("strng")),
        ("/0/contents/1/name", twice),
        ("/0/contents/1/name", json!("mod-ule")),
        ("/1/@id", json!("dtmi:io:slice-healer:settings;1")),
    ] {
        let mut model: Value = serde_json::from_str(&text()?)?;
        *model.pointer_mut(pointer).context(pointer)? = wrong.clone();
        let path = folder.path().join("model.json");
        std::fs::write(&path, model.to_string())?;
        let (taken, said) = foreign(&path)?;
        ensure!(!taken, "{pointer} = {wrong} was taken: {said}");
    }
    Ok(())
}

/// A module that holds something back, with what only the log tells as well.
fn status(at: Timestamp) -> Status {
    let mut status = fleet::status(at);
    status.health.state = HealthState::Blocked;
    status.health.reason = "line1/model-endpoint is stale and held back".into();
    status.cluster.detail = Some("told in the log only".into());
    status.findings.critical = 1;
    status.findings.worst = vec![(
        ServiceKey::new("line1", "model.v2"),
        FindingKind::GhostEndpoint,
    )];
    if let Some(last) = &mut status.heals.last {
        last.outcome = HealOutcome::HealedByItself;
    }
    status
}

/// One of everything that the twin may set.
fn everything() -> Value {
    json!({"__t": "c", "mode": "heal", "logLevel": "debug", "ladder": "refresh-service",
        "labels": {"site": "brno"},
        "scope": {"locality": "cluster", "namespaces": {"line1": true},
            "excludeNamespaces": {"kube-system": true}, "serviceSelector": {"app%2Eio/name": "model"}},
        "journal": {"units": {"k3s": true}, "rules": {"ours": {"pattern": "stale (?P<service>\\S+)",
            "severity": "warning", "units": {"k3s": true}}}},
        "grace": {"refresh": "PT5S", "delete": "PT1M30S", "refreshOnSignal": "PT3S", "deleteOnSignal": "PT10S"},
        "budgets": {"perServicePerHour": 6, "perNamespacePerHour": 20, "perNodePerHour": 60, "maxLostEndpoints": 1},
        "heal": {"deleteLeftover": false, "loadBalancers": "slow"},
        "windows": {"night": "Mon-Fri 22:00-05:00 Europe/Prague"},
        "holds": {"audit": "2026-12-01T10:00:00Z"},
        "probes": {"model": {"url": "http://model.line1/version", "expectVersion": "2"}},
        "report": {"minInterval": "PT1M", "statusInterval": "PT0S", "telemetryMinSeverity": "warning"}})
}

fn reported(desired: &Value) -> Result<Value> {
    let at: Timestamp = "2026-12-01T08:00:00Z".parse()?;
    let loaded = Loaded::load(None, [])?;
    let outcome = loaded.settings.apply_twin(&loaded.settings, desired);
    let info = ModuleInfo {
        version: env!("CARGO_PKG_VERSION"),
        started_at: at,
    };
    let labels = [("site".to_owned(), "brno".to_owned())];
    let ends = Ends {
        at: Credential::ALL.map(|credential| (credential, at)).into(),
        looked: true,
    };
    Ok(document(
        &info,
        at,
        &status(at),
        &labels,
        &outcome.reported(7),
        &credentials(&ends, at),
    ))
}

#[test]
fn the_reported_document_fits_in_every_state() -> Result<()> {
    let model = Model::shipped()?;
    ensure!(model.id() == model::MODEL_ID, "{}", model.id());
    let full = reported(&everything())?;
    for (name, ack) in full["settings"].as_object().context("no settings")? {
        ensure!(name == "__t" || ack["ac"] == 200, "{name}: {ack}");
    }
    model.check_reported(&full)?;
    ensure!(!full.to_string().contains('['), "{full}");
    // Each property is there, so that none of them is unheld.
    for name in model.names(None, "Property")? {
        ensure!(!full[name].is_null(), "{name} is not reported: {full}");
    }
    for name in model.names(Some("settings"), "Property")? {
        ensure!(!full["settings"][name].is_null(), "{name}: {full}");
    }
    // A refused value is answered with what is in force, and that fits as well.
    for wrong in [
        json!({"mode": "sleep"}),
        json!({"mode": ["heal"]}),
        json!({"ladder": {"first": "refresh-service"}}),
        json!({"logLevel": 7, "scope": "all", "windows": {"n": "never"}}),
        json!({"budgets": {"perServicePerHour": -1}}),
        json!({"scope": {"namespaces": ["line1"]}}),
        json!({"grace": {"refresh": "soon"}, "mode": "heal"}),
        json!({"labels": {"site": "x".repeat(4096)}}),
    ] {
        let document = reported(&wrong)?;
        let acks = &document["settings"];
        ensure!(
            acks.as_object().is_some_and(|a| a.len() > 1),
            "{wrong}: {acks}"
        );
        model
            .check_reported(&document)
            .with_context(|| format!("{wrong}: {acks}"))?;
    }
    Ok(())
}

#[test]
fn the_model_and_the_table_of_settings_name_the_same() -> Result<()> {
    let rows: BTreeSet<&str> = SETTABLE.iter().map(|(_, twin)| *twin).collect();
    let sections = ["labels", "journal.rules", "windows", "holds", "probes"];
    let rows: Vec<&str> = rows.into_iter().filter(|r| !sections.contains(r)).collect();
    let leaves = Model::shipped()?.leaves("settings")?;
    // A selector is one setting and, in the twin, a map of labels.
    let leaves: Vec<String> = leaves
        .iter()
        .map(|leaf| leaf.replace("serviceSelector.*", "serviceSelector"))
        .collect();
    ensure!(leaves == rows, "{leaves:?}\n{rows:?}");
    Ok(())
}

#[test]
fn telemetry_fits_whatever_the_event() -> Result<()> {
    let model = Model::shipped()?;
    let at: Timestamp = "2026-12-01T08:00:00Z".parse()?;
    let heal = |outcome, reason: Option<&str>| {
        Some(HealEvent {
            action: RemedyAction::DeleteSlice,
            outcome,
            reason: reason.map(|r| Reason::Detail(r.to_owned())),
            attempt: 2,
            seconds: 31.0,
        })
    };
    let full = Event {
        kind: EventType::Heal,
        at,
        severity: Severity::Critical,
        message: "right again".into(),
        service: Some(ServiceKey::new("line1", "model")),
        slice: Some("model-x".into()),
        finding: Some(FindingKind::GhostEndpoint),
        evidence: vec![("rule".into(), "stale".into())],
        heal: heal(Some(HealOutcome::NotRecreated), None),
        incident: Some("i-1".into()),
    };
    let sent = |event: &Event| -> Result<Value> {
        let message = telemetry::message("id-1".into(), event, Some("edge-7"), &[]);
        Ok(serde_json::from_str(&message.body)?)
    };
    let body = sent(&full)?;
    for name in model.names(Some(model::EVENTS), "Telemetry")? {
        ensure!(!body[name].is_null(), "{name} is not sent: {body}");
    }
    for kind in [
        EventType::Signal,
        EventType::Finding,
        EventType::Heal,
        EventType::Resolved,
        EventType::Escalated,
        EventType::Drain,
        EventType::Status,
    ] {
        for heal in [full.heal.clone(), heal(None, Some("grace")), None] {
            let event = Event {
                kind,
                heal,
                service: None,
                incident: None,
                ..full.clone()
            };
            model.check_telemetry(model::EVENTS, &sent(&event)?)?;
        }
    }
    Ok(())
}

/// A call of each method that is taken.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("ping", Value::Null),
        (
            "inspect",
            json!({"namespace": "line1", "service": "model-endpoint"}),
        ),
        ("inspect", json!({})),
        (
            "heal",
            json!({"namespace": "line1", "service": "m", "action": "delete-slice", "dryRun": true}),
        ),
        (
            "heal",
            json!({"namespace": "line1", "service": "m", "action": "auto"}),
        ),
        ("getIncidents", json!({"limit": 3})),
        (
            "getTimeline",
            json!({"namespace": "line1", "pod": "model-1"}),
        ),
        ("getTimeline", json!({})),
        ("hold", json!({"name": "audit", "minutes": 30})),
        ("release", json!({"name": "audit"})),
        ("getDeletedSlice", json!({"name": "model-x"})),
        ("getLogLevel", Value::Null),
        ("setLogLevel", json!({"level": "debug"})),
    ]
}

#[test]
fn methods_and_commands_have_the_same_names_and_payloads() -> Result<()> {
    let model = Model::shipped()?;
    let commands: BTreeSet<&str> = model.names(None, "Command")?.into_iter().collect();
    ensure!(commands == methods::NAMES.into(), "{commands:?}");
    let mut called = BTreeSet::new();
    for (name, payload) in calls() {
        model.check_command(name, "request", &payload)?;
        let asked = methods::parse(name, &payload);
        ensure!(asked.is_ok(), "{name} {payload}: {asked:?}");
        called.insert(name);
    }
    ensure!(commands == called, "{called:?}");
    // What the model does not know is not taken either.
    for (name, wrong) in [
        (
            "heal",
            json!({"namespace": "a", "service": "b", "force": true}),
        ),
        (
            "heal",
            json!({"namespace": "a", "service": "b", "action": "kill"}),
        ),
        ("inspect", json!({"namespace": 7})),
        ("getIncidents", json!({"limit": "3"})),
        ("hold", json!({"name": "audit", "minutes": "30"})),
        ("getTimeline", json!({"service": "m"})),
        ("sweep", json!({})),
    ] {
        ensure!(
            model.check_command(name, "request", &wrong).is_err(),
            "{name} {wrong}"
        );
        ensure!(methods::parse(name, &wrong).is_err(), "{name} {wrong}");
    }
    let replies = [
        Reply::Accepted {
            incident: "i-1".into(),
        },
        Reply::NothingToDo,
        Reply::WouldAct {
            action: RemedyAction::DeleteSlice,
            detail: "it would".into(),
            writes: vec!["delete endpointslices line1/model-x".into()],
        },
        Reply::Held {
            reason: HoldReason::Grace,
            detail: "later".into(),
        },
        Reply::NotFound,
        Reply::Busy,
    ];
    for reply in replies {
        let answer = methods::answer(reply);
        model.check_command("heal", "response", &answer.body)?;
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_seen() -> Result<()> {
    let model = Model::shipped()?;
    let good = reported(&everything())?;
    for (pointer, wrong) in [
        ("/health/state", json!("ok")),
        ("/findings/worst", json!(["line1/model"])),
        ("/findings/critical", json!("1")),
        ("/module/startedAt", json!("yesterday")),
        ("/settings/grace/value/refresh", json!("5s")),
        ("/settings/mode/ac", json!("200")),
        ("/settings/mode", json!("heal")),
        ("/settings/labels/value", json!({"site": ["brno"]})),
        ("/settings/__t", json!("x")),
        ("/labels", Value::Null),
        ("/heals/last/action", json!("restart")),
    ] {
        let mut document = good.clone();
        *document.pointer_mut(pointer).context(pointer)? = wrong.clone();
        ensure!(
            model.check_reported(&document).is_err(),
            "{pointer} = {wrong}"
        );
    }
    for more in [json!({"speed": 1}), json!({"ping": 1})] {
        let mut document = good.clone();
        let fields = document.as_object_mut().context("no document")?;
        fields.extend(more.as_object().context("no fields")?.clone());
        ensure!(model.check_reported(&document).is_err(), "{more}");
    }
    let bodies = [
        json!({"severity": "bad"}),
        json!({"at": 7}),
        json!({"extra": "x"}),
    ];
    for body in bodies {
        ensure!(
            model.check_telemetry(model::EVENTS, &body).is_err(),
            "{body}"
        );
    }
    Ok(())
}
