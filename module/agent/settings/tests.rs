//! The layers together: what wins, what is refused, what is answered.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use slice_core::heal::policy::{Locality, Mode, Policy, Step};

use super::tree::{Path, get, leaves};
use super::*;

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn load(file: Option<&str>, pairs: &[(&str, &str)]) -> Result<Loaded, SettingsError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("settings.toml");
    if let Some(text) = file {
        std::fs::write(&path, text).unwrap();
    }
    Loaded::load(file.map(|_| path.as_path()), env(pairs))
}

fn defaults() -> Settings {
    load(None, &[]).unwrap().settings
}

fn problems(result: Result<Loaded, SettingsError>) -> Vec<Problem> {
    match result {
        Err(SettingsError::Wrong(problems)) => problems,
        other => panic!("expected wrong settings, got {other:?}"),
    }
}

#[test]
fn the_documented_default_is_the_default_policy() {
    assert_eq!(defaults().to_policy(), Policy::default());
}

#[test]
fn the_default_file_documents_every_setting() {
    let documented: BTreeSet<String> = leaves(&toml::from_str::<Value>(DEFAULT).unwrap())
        .iter()
        .map(|(path, _)| path.to_string())
        .collect();
    let known: BTreeSet<String> = leaves(&defaults().to_tree())
        .iter()
        .map(|(path, _)| path.to_string())
        .collect();
    assert_eq!(documented, known);
    let lines: Vec<&str> = DEFAULT.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let is_key = line.split_once(" = ").is_some_and(|(key, _)| {
            !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        });
        // heartbeat_max is told together with heartbeat_min, outbox_messages with outbox_bytes.
        let pair = ["heartbeat_max", "outbox_messages"]
            .iter()
            .any(|key| line.starts_with(key));
        if is_key && !pair {
            assert!(lines[at - 1].starts_with('#'), "undocumented: {line}");
        }
    }
}

#[test]
fn what_is_marked_in_the_default_file_is_what_the_twin_may_set() {
    let mut section = String::new();
    let mut marked = BTreeSet::new();
    let mut pending = false;
    for line in DEFAULT.lines() {
        if line.starts_with("# (twin)") {
            pending = true;
        } else if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = format!("{name}.");
            if pending {
                marked.insert(format!("{section}*"));
            }
            pending = false;
        } else if let Some((key, _)) = line
            .split_once(" = ")
            .filter(|_| !line.starts_with(['#', ' ']))
        {
            if pending {
                marked.insert(format!("{section}{key}"));
            }
            pending = false;
        }
    }
    let settable: BTreeSet<String> = SETTABLE
        .iter()
        .filter(|(file, _)| {
            !SETTABLE
                .iter()
                .any(|(other, _)| other.starts_with(&format!("{file}.")))
        })
        .map(|(file, _)| {
            file.split_once(".*")
                .map_or((*file).to_owned(), |(table, _)| format!("{table}.*"))
        })
        .collect();
    assert_eq!(marked, settable);
}

#[test]
fn the_table_of_names_is_one_rule() {
    let tree = defaults().to_tree();
    for (file, twin) in SETTABLE {
        let camel: String = file
            .split('.')
            .map(|segment| {
                let mut parts = segment.split('_');
                let first = parts.next().unwrap_or_default().to_owned();
                parts.fold(first, |mut all, part| {
                    all.push_str(&part[..1].to_uppercase());
                    all.push_str(&part[1..]);
                    all
                })
            })
            .collect::<Vec<_>>()
            .join(".");
        assert_eq!(camel, twin);
        let fixed = Path::new(file.split('.').take_while(|segment| *segment != "*"));
        assert!(get(&tree, &fixed).is_some(), "{file} is no setting");
    }
}

#[test]
fn later_layers_win_and_types_come_out_right() {
    let loaded = load(
        Some("mode = \"heal\"\n[serve]\nport = 1\n[labels]\nsite = \"brno\"\n[grace]\nrefresh = \"7s\"\n"),
        &[
            ("SLICE_HEALER__SERVE__PORT", "0"),
            ("SLICE_HEALER__SCOPE__EXCLUDE_NAMESPACES", "a, b"),
            ("SLICE_HEALER__HEAL__CANARY", "false"),
            ("SLICE_HEALER__LABELS__LINE", "7"),
            ("SLICE_HEALER__LADDER", "delete-slice"),
            ("SLICE_HEALER__SCOPE__SERVICE_SELECTOR", "app=model"),
            ("SLICE_HEALER__HEAL__PACE__RECREATE", "PT1S,2s"),
            ("UNRELATED__SERVE__PORT", "9"),
        ],
    )
    .unwrap();
    let settings = &loaded.settings;
    assert_eq!(settings.mode, Mode::Heal);
    assert_eq!(settings.serve.port, 0);
    assert_eq!(settings.scope.exclude_namespaces.as_slice(), ["a", "b"]);
    assert!(!settings.heal.canary);
    assert_eq!(
        settings.labels.get("site").map(String::as_str),
        Some("brno")
    );
    assert_eq!(settings.labels.get("line").map(String::as_str), Some("7"));
    assert_eq!(settings.ladder.0, [Step::DeleteSlice]);
    assert_eq!(settings.heal.pace.recreate.0.len(), 2);
    assert_eq!(
        settings.to_policy().scope.service_selector,
        [("app".to_owned(), "model".to_owned())]
    );

    let rows = loaded.rows(settings);
    let origin = |key: &str| {
        rows.iter()
            .find(|row| row.key == key)
            .unwrap()
            .origin
            .clone()
    };
    assert_eq!(
        origin("serve.port"),
        "environment SLICE_HEALER__SERVE__PORT"
    );
    assert!(
        origin("grace.refresh").starts_with("file /"),
        "{}",
        origin("grace.refresh")
    );
    assert!(origin("labels.site").starts_with("file /"));
    assert_eq!(
        origin("labels.line"),
        "environment SLICE_HEALER__LABELS__LINE"
    );
    assert_eq!(
        origin("scope.service_selector"),
        "environment SLICE_HEALER__SCOPE__SERVICE_SELECTOR"
    );
    assert_eq!(origin("grace.delete"), "default");
}

#[test]
fn every_mistake_is_told_with_key_layer_and_what_would_be_right() {
    let found = problems(load(
        Some(
            "mode = \"healing\"\nspeed = 3\n[grace]\nrefresh = 5\nwait = \"5s\"\n[journal.rules.x]\npatern = \"p\"\n",
        ),
        &[
            ("SLICE_HEALER__SERVE__PORT", "http"),
            ("SLICE_HEALER__HEALER", "x"),
        ],
    ));
    let told: Vec<String> = found.iter().map(Problem::to_string).collect();
    let has = |parts: &[&str]| {
        assert!(
            told.iter()
                .any(|line| parts.iter().all(|part| line.contains(part))),
            "{parts:?} not in {told:#?}"
        );
    };
    has(&["mode (file ", "`healing`", "`observe` or `heal`"]);
    has(&["speed (file ", "unknown field", "`mode`"]);
    has(&["grace.refresh (file ", "PT5S"]);
    has(&["grace.wait (file ", "unknown field `wait`", "`refresh`"]);
    has(&["journal.rules.x (file ", "unknown field `patern`"]);
    has(&[
        "serve.port (environment SLICE_HEALER__SERVE__PORT)",
        "\"http\"",
        "u16",
    ]);
    has(&["healer (environment SLICE_HEALER__HEALER)", "unknown field"]);
    assert_eq!(told.len(), 7, "{told:#?}");
}

#[test]
fn an_unknown_key_does_not_show_its_value() {
    let error = load(
        None,
        &[(
            "SLICE_HEALER__HUB__CONNECTION_STRING",
            "SharedAccessKey=secret",
        )],
    )
    .unwrap_err();
    assert!(error.to_string().contains("hub.connection_string"));
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn values_must_fit_each_other() {
    let found = problems(load(
        Some(
            "[grace]\nrefresh = \"1m\"\n[labels]\ntype = \"x\"\n[scope]\nnamespaces = [\"Line1\"]\n[probes.p]\nurl = \"http://user:pw@host/\"\n[journal.rules.bad]\npattern = \"(\"\n[journal.rules.all]\npattern = \".*\"\n",
        ),
        &[("SLICE_HEALER__STORE__DIRECTORY", "state")],
    ));
    let keys: Vec<String> = found
        .iter()
        .map(|problem| problem.key.to_string())
        .collect();
    assert_eq!(
        keys,
        [
            "labels.type",
            "scope.namespaces",
            "store.directory",
            "grace.delete",
            "journal.rules.all",
            "journal.rules.bad",
            "probes.p"
        ]
    );
    assert!(!format!("{found:?}").contains("pw@"), "{found:?}");
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_named() {
    let missing =
        Loaded::load(Some(std::path::Path::new("/nonexistent/s.toml")), env(&[])).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/s.toml"));
    let broken = load(Some("mode = "), &[]).unwrap_err();
    assert!(matches!(broken, SettingsError::Syntax { .. }), "{broken}");
}

#[test]
fn the_twin_applies_over_the_layers_and_is_answered() {
    let base = load(Some("[labels]\nsite = \"brno\"\n"), &[])
        .unwrap()
        .settings;
    let desired = json!({
        "__t": "c",
        "mode": "heal",
        "logLevel": "debug",
        "labels": {"line": "line1"},
        "scope": {"locality": "cluster", "excludeNamespaces": {"kube-system": true, "a": true}, "serviceSelector": {"app%2Ekubernetes%2Eio/name": "m"}},
        "journal": {"units": {"iotedge%2Eservice": true}, "rules": {"r": {"pattern": "x+"}}},
        "grace": {"refresh": "5s"},
        "probes": {"p": {"url": "http://h/", "expectVersion": "v2"}},
        "holds": null,
        "$version": 7,
    });
    let outcome = base.apply_twin(&base, &desired);
    let settings = outcome.settings.clone().unwrap();
    assert_eq!(settings.mode, Mode::Heal);
    assert_eq!(settings.scope.locality, Locality::Cluster);
    assert_eq!(settings.labels.len(), 2);
    assert_eq!(
        settings.scope.exclude_namespaces.as_slice(),
        ["a", "kube-system"]
    );
    assert_eq!(
        settings
            .scope
            .service_selector
            .0
            .get("app.kubernetes.io/name")
            .unwrap(),
        "m"
    );
    assert_eq!(settings.journal.units.as_slice(), ["iotedge.service"]);
    assert_eq!(
        outcome.reported(7),
        json!({
            "__t": "c",
            "mode": {"value": "heal", "ac": 200, "av": 7, "ad": ""},
            "logLevel": {"value": "debug", "ac": 200, "av": 7, "ad": ""},
            "labels": {"value": {"line": "line1"}, "ac": 200, "av": 7, "ad": ""},
            "scope": {"value": {"locality": "cluster", "excludeNamespaces": {"kube-system": true, "a": true}, "serviceSelector": {"app%2Ekubernetes%2Eio/name": "m"}}, "ac": 200, "av": 7, "ad": ""},
            "journal": {"value": {"units": {"iotedge%2Eservice": true}, "rules": {"r": {"pattern": "x+", "severity": "info", "units": {}}}}, "ac": 200, "av": 7, "ad": ""},
            "grace": {"value": {"refresh": "PT5S"}, "ac": 200, "av": 7, "ad": ""},
            "probes": {"value": {"p": {"url": "http://h/", "expectVersion": "v2"}}, "ac": 200, "av": 7, "ad": "kept; no part acts on probes yet"},
        })
    );
    let rows = load(Some("[labels]\nsite = \"brno\"\n"), &[])
        .unwrap()
        .rows(&settings);
    let twin: Vec<&str> = rows
        .iter()
        .filter(|row| row.origin == "twin")
        .map(|row| row.key.as_str())
        .collect();
    assert!(
        twin.contains(&"mode") && twin.contains(&"labels.line") && !twin.contains(&"labels.site")
    );
}

#[test]
fn one_refused_property_leaves_everything_as_it_was() {
    let base = defaults();
    let mut in_force = base.clone();
    in_force.mode = Mode::Heal;
    for (bad, key, reason) in [
        (json!({"color": "red"}), "color", "not a setting"),
        (json!({"serve": {"port": 1}}), "serve", "not a setting"),
        (json!({"heal": {"canary": false}}), "heal", "heal.canary"),
        (json!({"grace": {"refresh": 5}}), "grace", "grace.refresh"),
        (json!({"scope": {"namespaces": ["a"]}}), "scope", "arrays"),
        (
            json!({"scope": {"namespaces": {"a": false}}}),
            "scope",
            "`true`",
        ),
        (json!({"scope": "node"}), "scope", "an object"),
        (
            json!({"grace": {"refresh": "PT2M"}}),
            "grace",
            "grace.delete",
        ),
        (
            json!({"journal": {"rules": {"r": {"pattern": "("}}}}),
            "journal",
            "journal.rules.r",
        ),
        (
            json!({"journal": {"rules": {"not an id": {"pattern": "x"}}}}),
            "journal",
            "journal.rules.not an id",
        ),
        (json!({"windows": {"w": "always"}}), "windows", "windows.w"),
        (
            json!({"budgets": {"perServicePerHour": -1}}),
            "budgets",
            "budgets.perServicePerHour",
        ),
    ] {
        let mut desired = bad.clone();
        desired["mode"] = json!("observe");
        let outcome = base.apply_twin(&in_force, &desired);
        assert_eq!(outcome.settings, None, "{bad}");
        let ack = &outcome.acks[key];
        assert_eq!(ack.ac, 400, "{bad}");
        assert!(ack.ad.contains(reason), "{bad}: {}", ack.ad);
        let mode = &outcome.acks["mode"];
        assert_eq!(
            (mode.ac, &mode.value),
            (400, &json!("heal")),
            "the value in force is told"
        );
        assert!(mode.ad.contains(key), "{}", mode.ad);
    }
}

#[test]
fn a_component_that_is_too_large_is_refused_whole() {
    let base = defaults();
    let long = "x".repeat(MAX_DESIRED);
    let outcome = base.apply_twin(&base, &json!({"mode": "heal", "secretStuff": long}));
    assert_eq!(outcome.settings, None);
    assert!(
        outcome
            .acks
            .values()
            .all(|ack| ack.ac == 400 && ack.ad.contains("4096"))
    );
    let many: serde_json::Map<String, Value> =
        (0..300).map(|n| (format!("key{n}"), json!(n))).collect();
    let outcome = base.apply_twin(&base, &Value::Object(many));
    assert!(outcome.reported(1).to_string().len() < 4096);
    assert!(!outcome.acks.is_empty());
}

#[test]
fn an_empty_or_missing_component_is_the_layers_below() {
    let base = load(None, &[("SLICE_HEALER__MODE", "heal")])
        .unwrap()
        .settings;
    for desired in [
        json!({}),
        Value::Null,
        json!({"__t": "c", "mode": null, "labels": {}, "scope": {}}),
    ] {
        let outcome = base.apply_twin(&defaults(), &desired);
        assert_eq!(outcome.settings.as_ref(), Some(&base), "{desired}");
        assert!(outcome.acks.values().all(|ack| ack.ac == 200));
    }
}

#[test]
fn holds_and_windows_close() {
    let mut settings = defaults();
    let now = "2026-12-01T12:00:00Z".parse().unwrap();
    let none = std::collections::BTreeMap::new();
    assert_eq!(settings.closed_at(now, &none), None);
    settings
        .windows
        .insert("night".to_owned(), "* 22:00-05:00 UTC".parse().unwrap());
    assert_eq!(settings.closed_at(now, &none), Some(Closed::OutsideWindow));
    settings
        .windows
        .insert("noon".to_owned(), "* 11:00-13:00 UTC".parse().unwrap());
    assert_eq!(settings.closed_at(now, &none), None);
    let until = "2026-12-01T13:30:00Z".parse().unwrap();
    settings.holds.insert("audit".to_owned(), until);
    assert_eq!(
        settings.closed_at(now, &none),
        Some(Closed::Hold {
            name: "audit".to_owned(),
            until
        })
    );
    assert_eq!(
        settings.closed_at(until, &none),
        Some(Closed::OutsideWindow),
        "a hold ends at its time"
    );
    let later = "2026-12-01T15:00:00Z".parse().unwrap();
    let by_hand = std::collections::BTreeMap::from([("shift".to_owned(), later)]);
    assert_eq!(
        settings.closed_at(now, &by_hand),
        Some(Closed::Hold {
            name: "shift".to_owned(),
            until: later
        }),
        "the one that ends last is told"
    );
}

#[test]
fn the_schema_knows_every_setting() {
    let schema = schema();
    assert_eq!(schema["additionalProperties"], json!(false));
    for (path, _) in leaves(&defaults().to_tree()) {
        let mut at = &schema;
        for segment in &path.0 {
            if let Some(name) = at["$ref"].as_str() {
                at = &schema["$defs"][name.trim_start_matches("#/$defs/")];
            }
            at = &at["properties"][segment];
        }
        assert!(at.is_object(), "{path} is not in the schema");
    }
}
