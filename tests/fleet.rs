//! What an operator pastes into IoT Hub: `deployment.template.json` and `config/fleet/`, held against
//! the settings, the template and the reported document. Nothing is sent anywhere.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use regex::Regex;
use serde_json::{Value, json};
use slice_core::engine::{
    ClusterState, ClusterStatus, FindingCounts, HealStatus, Health, HealthState, JournalStatus,
    LastHeal, Status,
};
use slice_core::event::{HealOutcome, JournalState};
use slice_core::heal::gate::HoldReason;
use slice_core::heal::policy::Mode;
use slice_core::judge::RemedyAction;
use slice_core::model::ServiceKey;
use slice_healer::expiry::{Credential, Ends};
use slice_healer::report::twin::{ModuleInfo, credentials, document};
use slice_healer::settings::{ENV_PREFIX, Loaded};

fn read(file: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(path).context(file.to_owned())
}

fn json_file(file: &str) -> Result<Value> {
    serde_json::from_str(&read(file)?).context(file.to_owned())
}

fn template() -> Result<Value> {
    Ok(json_file("deployment.template.json")?["modulesContent"].clone())
}

fn module(template: &Value) -> &Value {
    &template["$edgeAgent"]["properties.desired"]["modules"]["slice-healer"]
}

/// Options that are cut into `createOptions`, `createOptions01`, ... as edgeAgent joins them.
fn create_options(settings: &Value) -> Result<Value> {
    let mut text = settings["createOptions"]
        .as_str()
        .context("no text")?
        .to_owned();
    for n in 1..8 {
        if let Some(part) = settings[format!("createOptions{n:02}")].as_str() {
            text.push_str(part);
        }
    }
    Ok(serde_json::from_str(&text)?)
}

/// The settings that the environment of a module makes; fails on a name that is none.
fn loaded(module: &Value) -> Result<Loaded> {
    let env = module["env"].as_object().context("no env")?;
    let pairs = env.iter().map(|(k, v)| {
        (
            k.clone(),
            v["value"].as_str().unwrap_or_default().to_owned(),
        )
    });
    Ok(Loaded::load(None, pairs)?)
}

/// Every setting of a component must be taken by the settings as they are.
pub(crate) fn taken(component: &Value) -> Result<()> {
    let defaults = Loaded::load(None, [])?;
    let outcome = defaults.settings.apply_twin(&defaults.settings, component);
    let refused: Vec<_> = outcome
        .acks
        .iter()
        .filter(|(_, ack)| ack.ac != 200)
        .collect();
    ensure!(
        outcome.settings.is_some() && refused.is_empty(),
        "{refused:?}"
    );
    Ok(())
}

#[test]
fn the_template_names_settings_that_exist_and_binds_what_they_read() -> Result<()> {
    let template = template()?;
    let module = module(&template);
    for name in module["env"].as_object().context("no env")?.keys() {
        ensure!(name.starts_with(ENV_PREFIX), "{name}");
    }
    let settings = loaded(module)?.settings;
    let settings = serde_json::to_value(&settings)?;
    let binds: Vec<&str> = module["settings"]["createOptions"]["HostConfig"]["Binds"]
        .as_array()
        .context("no binds")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let bound = |path: &str| {
        binds
            .iter()
            .map(|b| b.split(':').nth(1).unwrap_or_default())
            .any(|target| Path::new(path).starts_with(target))
    };
    let mut read: Vec<&str> = vec![
        settings["cluster"]["kubeconfig"]
            .as_str()
            .context("no kubeconfig")?,
        settings["store"]["directory"]
            .as_str()
            .context("no store")?,
        settings["journal"]["machine_id_file"]
            .as_str()
            .context("no machine id")?,
        // Where the log goes and where D-Bus is; neither is a path in the settings by default.
        "/run/systemd/journal/socket",
        "/run/dbus/system_bus_socket",
    ];
    let journals = settings["journal"]["directories"]
        .as_array()
        .context("no folders")?;
    read.extend(journals.iter().filter_map(Value::as_str));
    for path in read {
        ensure!(bound(path), "{path} is read and not bound: {binds:?}");
    }
    // What is written to, and nothing else, is bound for writing.
    let written: BTreeSet<&str> = binds
        .iter()
        .filter(|bind| !bind.ends_with(":ro"))
        .map(|bind| bind.split(':').nth(1).unwrap_or_default())
        .collect();
    let expected = [
        "/run/dbus/system_bus_socket",
        "/run/systemd/journal",
        "/var/lib/slice-healer",
    ];
    ensure!(written == expected.into(), "{written:?}");
    let port = settings["serve"]["port"].to_string();
    let exposed = &module["settings"]["createOptions"]["ExposedPorts"];
    ensure!(
        !exposed[format!("{port}/tcp")].is_null(),
        "{port}: {exposed}"
    );
    taken(&template["slice-healer"]["properties.desired"]["settings"])
}

#[test]
fn a_name_that_is_no_setting_is_seen() -> Result<()> {
    let wrong = json!({"env": {"SLICE_HEALER__SERVE__ADRESS": {"value": "0.0.0.0"}}});
    ensure!(loaded(&wrong).is_err());
    ensure!(taken(&json!({"__t": "c", "modus": "heal"})).is_err());
    Ok(())
}

#[test]
fn the_layered_deployment_is_the_templates_module() -> Result<()> {
    let template = template()?;
    let ours = module(&template);
    let fleet = json_file("config/fleet/deployment.json")?;
    let content = &fleet["content"]["modulesContent"];
    let theirs = &content["$edgeAgent"]["properties.desired.modules.slice-healer"];
    for key in [
        "type",
        "version",
        "status",
        "restartPolicy",
        "startupOrder",
        "env",
    ] {
        ensure!(
            ours[key] == theirs[key],
            "{key}: {} and {}",
            ours[key],
            theirs[key]
        );
    }
    let mut options = ours["settings"]["createOptions"].clone();
    options["HostConfig"]["GroupAdd"] = json!(["JOURNAL_GID"]);
    ensure!(
        options == create_options(&theirs["settings"])?,
        "the options differ"
    );
    for (key, value) in theirs["settings"].as_object().context("no settings")? {
        // edgeAgent's limit of one property.
        ensure!(
            value.as_str().is_some_and(|text| text.len() <= 512),
            "{key} is too long"
        );
    }
    let image = theirs["settings"]["image"].as_str().unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    ensure!(
        image == format!("REGISTRY/slice-healer:{version}-arm64v8"),
        "{image}"
    );
    let routes = &template["$edgeHub"]["properties.desired"]["routes"];
    for (name, route) in routes.as_object().context("no routes")? {
        let theirs = &content["$edgeHub"][format!("properties.desired.routes.{name}")];
        ensure!(theirs == route, "{name}");
    }
    Ok(())
}

#[test]
fn the_lamp_is_told_of_types_and_severities_that_exist() -> Result<()> {
    let lamp = json_file("config/fleet/lamp.json")?;
    let route =
        &lamp["content"]["modulesContent"]["$edgeHub"]["properties.desired.routes.sliceHealerLamp"];
    let text = route["route"].as_str().context("no route")?;
    let form = Regex::new(
        r#"^FROM /messages/modules/slice-healer/outputs/events WHERE (.+) INTO BrokeredEndpoint\("/modules/\w+/inputs/\w+"\)$"#,
    )?;
    let condition = form.captures(text).context(text.to_owned())?[1].to_owned();
    for term in condition.split(" OR ") {
        let known = match term.split_once(" = ") {
            Some(("severity", value)) => ["'critical'", "'warning'", "'info'"].contains(&value),
            Some(("type", value)) => [
                "'signal'",
                "'finding'",
                "'heal'",
                "'resolved'",
                "'escalated'",
            ]
            .contains(&value),
            _ => false,
        };
        ensure!(known, "{term}");
    }
    ensure!(route["priority"] == 0, "the lamp comes before the cloud");
    Ok(())
}

#[test]
fn the_modes_of_the_fleet_are_taken_and_heal_wins() -> Result<()> {
    let (observe, heal) = (
        json_file("config/fleet/observe.json")?,
        json_file("config/fleet/heal.json")?,
    );
    for (file, mode) in [(&observe, "observe"), (&heal, "heal")] {
        let settings = &file["content"]["moduleContent"]["properties.desired.settings"];
        ensure!(
            settings["mode"] == mode && settings["__t"] == "c",
            "{settings}"
        );
        taken(settings)?;
        let target = file["targetCondition"].as_str().unwrap_or_default();
        ensure!(
            target.starts_with("FROM devices.modules WHERE moduleId = 'slice-healer'"),
            "{target}"
        );
    }
    ensure!(heal["priority"].as_i64() > observe["priority"].as_i64());
    Ok(())
}

/// A status with everything in it that may be there, of a module that is well.
pub(crate) fn status(at: Timestamp) -> Status {
    Status {
        mode: Mode::Heal,
        closed: Some((HoldReason::Hold, "hold \"audit\"".into())),
        health: Health {
            state: HealthState::Healthy,
            reason: "all is right".into(),
            since: at,
        },
        cluster: ClusterStatus {
            state: ClusterState::Synced,
            detail: None,
            server_version: Some("v1.34.1+k3s1".into()),
            node: Some("edge-7".into()),
            node_known: true,
            services: 3,
            slices: 3,
            endpoints: 9,
            pods: 9,
        },
        journal: JournalStatus {
            state: JournalState::Following,
            signals: 2,
            last_signal_at: Some(at),
        },
        findings: FindingCounts::default(),
        heals: HealStatus {
            last: Some(LastHeal {
                service: ServiceKey::new("line1", "model"),
                action: RemedyAction::RefreshService,
                outcome: HealOutcome::Healed,
                at,
                seconds: 3.2,
            }),
            ..HealStatus::default()
        },
    }
}

/// A reported document with everything in it that may be there.
pub(crate) fn reported() -> Result<Value> {
    let at: Timestamp = "2026-12-01T08:00:00Z".parse()?;
    let status = status(at);
    let defaults = Loaded::load(None, [])?;
    let desired = json!({"__t": "c", "mode": "heal"});
    let settings = defaults
        .settings
        .apply_twin(&defaults.settings, &desired)
        .reported(7);
    let info = ModuleInfo {
        version: env!("CARGO_PKG_VERSION"),
        started_at: at,
    };
    let ends = Ends {
        at: [
            (Credential::Token, at + SignedDuration::from_hours(24)),
            (
                Credential::ServerCertificate,
                at + SignedDuration::from_hours(24 * 60),
            ),
        ]
        .into(),
        looked: true,
    };
    let ends = credentials(&ends, at);
    Ok(document(&info, at, &status, &[], &settings, &ends))
}

/// What IoT Hub's query language can do, as far as it is used here: no join, no sub-query, no LIKE,
/// primitive values only.
pub(crate) fn check(query: &str, document: &Value) -> Result<()> {
    let form = Regex::new(
        r"^SELECT (?<select>.+?) FROM devices\.modules WHERE moduleId = 'slice-healer'(?<and>( AND .+?)*)( GROUP BY (?<group>[\w.]+))?$",
    )?;
    let parts = form
        .captures(query)
        .with_context(|| format!("not understood: {query}"))?;
    let field = Regex::new(r"properties\.reported((?:\.\w+)+)")?;
    for one in field.captures_iter(query) {
        let pointer = one[1].replace('.', "/");
        match document.pointer(&pointer) {
            Some(value) if value.is_object() || value.is_array() => {
                bail!("{pointer} is no primitive value: {query}")
            }
            Some(_) => {}
            None => bail!("{pointer} is not reported: {query}"),
        }
    }
    let term = Regex::new(
        r"^(is_defined\((?<d>[\w.]+)\)|(?<f>[\w.]+) (=|<>|<|>|<=|>=) (?<v>'[^']*'|\d+)|(?<i>[\w.]+) IN \[(?<l>'[^']*'(, '[^']*')*)\])$",
    )?;
    for text in parts["and"].split(" AND ").filter(|t| !t.is_empty()) {
        let term = term
            .captures(text)
            .with_context(|| format!("no condition: {text}"))?;
        let name = ["d", "f", "i"]
            .iter()
            .find_map(|n| term.name(n))
            .context("no field")?
            .as_str();
        ensure!(
            name.starts_with("properties.reported."),
            "{name} is not of the twin"
        );
        let values = term.name("v").or(term.name("l")).map_or("", |v| v.as_str());
        let known: &[&str] = match name.trim_start_matches("properties.reported.") {
            "health.state" => &["offline", "blocked", "healing", "degraded", "healthy"],
            "cluster.state" => &["synced", "syncing", "unreachable", "forbidden"],
            "journal.state" => &["waiting", "following", "denied"],
            "credentials.state" => &[
                "ended",
                "ends-within-30-days",
                "ends-within-90-days",
                "valid",
                "unknown",
            ],
            "module.mode" | "settings.mode.value" => &["observe", "heal"],
            _ => continue,
        };
        for value in values.split(", ").filter(|v| !v.is_empty()) {
            ensure!(
                known.contains(&value.trim_matches('\'')),
                "{name} is never {value}"
            );
        }
    }
    if let Some(group) = parts.name("group") {
        ensure!(parts["select"].starts_with(group.as_str()), "{query}");
        ensure!(parts["select"].contains("COUNT()"), "{query}");
    } else {
        ensure!(parts["select"].starts_with("deviceId"), "{query}");
    }
    Ok(())
}

#[test]
fn the_queries_ask_for_what_is_reported() -> Result<()> {
    let document = reported()?;
    let mut queries: Vec<String> = read("config/fleet/queries.sql")?
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("--"))
        .map(str::to_owned)
        .collect();
    ensure!(queries.len() >= 8, "{queries:?}");
    for file in ["deployment", "lamp", "observe", "heal"] {
        let metrics = &json_file(&format!("config/fleet/{file}.json"))?["metrics"]["queries"];
        let of_file = metrics
            .as_object()
            .with_context(|| format!("{file}: no metrics"))?;
        queries.extend(
            of_file
                .values()
                .filter_map(Value::as_str)
                .map(str::to_owned),
        );
    }
    for query in &queries {
        check(query, &document)?;
    }
    Ok(())
}

#[test]
fn a_query_that_the_hub_or_the_document_cannot_answer_is_seen() -> Result<()> {
    let document = reported()?;
    let start = "SELECT deviceId FROM devices.modules WHERE moduleId = 'slice-healer' AND ";
    for wrong in [
        "properties.reported.health.status = 'healthy'",
        "properties.reported.health.state = 'ok'",
        "properties.reported.health = 'healthy'",
        "tags.site = 'brno'",
        "properties.reported.health.reason LIKE '%x%'",
    ] {
        ensure!(
            check(&format!("{start}{wrong}"), &document).is_err(),
            "{wrong}"
        );
    }
    ensure!(check("SELECT * FROM devices JOIN devices.modules", &document).is_err());
    Ok(())
}
