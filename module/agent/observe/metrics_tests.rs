//! The text of the metrics, read as strictly as promtool reads it.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn metrics() -> Metrics {
    let metrics = Metrics::new("0.1.0", ["cache-hit".to_owned()]);
    metrics.set_findings(
        [
            (FindingKind::GhostEndpoint, Severity::Critical),
            (FindingKind::GhostEndpoint, Severity::Critical),
            (FindingKind::HighChurn, Severity::Info),
        ],
        2,
    );
    metrics.heal_ended(RemedyAction::RefreshService, HealOutcome::Healed, 3.2);
    metrics.heal_ended(RemedyAction::DeleteSlice, HealOutcome::StillStale, 90.0);
    metrics.heal_held(HoldReason::ObserveMode);
    metrics.detected(0.2);
    metrics.journal_read(17);
    metrics.signalled("cache-hit", 2);
    metrics.signalled("an operator's \"own\"\nrule", 1);
    metrics.set_hub_connected(true);
    metrics.set_outbox(5, 1);
    metrics.set_synced(Kind::Pod, true);
    metrics.set_store_written(4096);
    metrics.set_store_written(100);
    metrics.store_set_aside();
    metrics.set_closed(Some(HoldReason::Hold));
    metrics.set_watched(
        Kind::Pod,
        &Watched {
            lists: 1,
            ..Watched::default()
        },
    );
    metrics.set_units_followed(true);
    metrics.dropped(Queue::Signal);
    let ends = [
        (Credential::Token, "2026-12-01T00:00:00Z"),
        (Credential::TrustBundle, "2030-01-01T00:00:00Z"),
    ];
    metrics.set_ends(&Ends {
        at: ends.map(|(one, at)| (one, at.parse().unwrap())).into(),
        looked: true,
    });
    metrics
}

struct Family {
    kind: String,
    samples: BTreeMap<String, f64>,
}

/// A parser that accepts nothing but the text format 0.0.4 as `promtool check metrics` wants it.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let sample = regex::Regex::new(
        r#"^([a-z_][a-z0-9_]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*"))*)\})? (\S+)$"#,
    )
    .unwrap();
    assert!(text.ends_with('\n'), "the last line must end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let (name, text) = help
            .strip_prefix("# HELP ")
            .unwrap_or_else(|| panic!("HELP wanted: {help}"))
            .split_once(' ')
            .unwrap();
        assert!(text.len() > 3, "{name} has no help");
        let kind = lines
            .next()
            .unwrap()
            .strip_prefix(&format!("# TYPE {name} "))
            .unwrap()
            .to_owned();
        assert!(
            ["counter", "gauge", "histogram"].contains(&kind.as_str()),
            "{kind}"
        );
        let mut samples = BTreeMap::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let parts = sample
                .captures(line)
                .unwrap_or_else(|| panic!("no sample: {line}"));
            let suffix = parts[1]
                .strip_prefix(name)
                .unwrap_or_else(|| panic!("{line} is not of {name}"))
                .to_owned();
            let allowed: &[&str] = if kind == "histogram" {
                &["_bucket", "_sum", "_count"]
            } else {
                &[""]
            };
            assert!(allowed.contains(&suffix.as_str()), "{line}");
            let value = if &parts[3] == "+Inf" {
                f64::INFINITY
            } else {
                parts[3].parse().unwrap()
            };
            let series = line.rsplit_once(' ').unwrap().0.to_owned();
            assert!(samples.insert(series, value).is_none(), "twice: {line}");
        }
        assert!(!samples.is_empty(), "{name} has no sample");
        assert_eq!(
            kind == "counter",
            name.ends_with("_total"),
            "{name} is a {kind}"
        );
        assert!(
            families
                .insert(name.to_owned(), Family { kind, samples })
                .is_none(),
            "{name} twice"
        );
    }
    families
}

#[test]
fn the_text_is_strict_and_holds_the_contract() {
    let families = parse(&metrics().render());
    let names: BTreeSet<&str> = families.keys().map(String::as_str).collect();
    for name in [
        "slice_healer_findings",
        "endpoint_slice_stale",
        "slice_healer_heals_total",
        "slice_healer_heals_held_total",
        "slice_healer_heal_duration_seconds",
        "slice_healer_detection_seconds",
        "slice_healer_journal_entries_total",
        "slice_healer_signals_total",
        "slice_healer_hub_connected",
        "slice_healer_outbox_messages",
        "slice_healer_outbox_dropped_total",
        "slice_healer_cluster_synced",
        "slice_healer_closed",
        "slice_healer_shadow_total",
        "slice_healer_watch_events_total",
        "slice_healer_watch_lists_total",
        "slice_healer_watch_failures_total",
        "slice_healer_watch_undecodable_total",
        "slice_healer_watch_waits_total",
        "slice_healer_units_followed",
        "slice_healer_store_written_bytes_total",
        "slice_healer_build_info",
        "slice_healer_credential_end_timestamp_seconds",
    ] {
        assert!(names.contains(name), "{name} is missing");
    }
    let value = |family: &str, series: &str| families[family].samples[series];
    assert_eq!(
        value(
            "slice_healer_findings",
            "slice_healer_findings{kind=\"GhostEndpoint\",severity=\"critical\"}"
        ),
        2.0
    );
    assert_eq!(value("endpoint_slice_stale", "endpoint_slice_stale"), 2.0);
    assert_eq!(
        value(
            "slice_healer_heals_total",
            "slice_healer_heals_total{action=\"refresh-service\",outcome=\"healed\"}"
        ),
        1.0
    );
    assert_eq!(
        value(
            "slice_healer_heals_held_total",
            "slice_healer_heals_held_total{reason=\"observe-mode\"}"
        ),
        1.0
    );
    assert_eq!(
        value(
            "slice_healer_signals_total",
            "slice_healer_signals_total{rule=\"custom\"}"
        ),
        1.0
    );
    assert_eq!(
        value(
            "slice_healer_cluster_synced",
            "slice_healer_cluster_synced{resource=\"pods\"}"
        ),
        1.0
    );
    assert_eq!(
        value(
            "slice_healer_store_written_bytes_total",
            "slice_healer_store_written_bytes_total"
        ),
        4096.0
    );
    assert_eq!(
        value(
            "slice_healer_build_info",
            "slice_healer_build_info{version=\"0.1.0\"}"
        ),
        1.0
    );
    let heal = &families["slice_healer_heal_duration_seconds"];
    assert_eq!(heal.kind, "histogram");
    assert_eq!(
        heal.samples["slice_healer_heal_duration_seconds_count"], 1.0,
        "failures have no duration to heal"
    );
    assert_eq!(
        heal.samples["slice_healer_heal_duration_seconds_bucket{le=\"5\"}"],
        1.0
    );
}

#[test]
fn labels_come_from_closed_sets() {
    let metrics = metrics();
    let before = parse(&metrics.render())["slice_healer_signals_total"]
        .samples
        .len();
    for n in 0..100 {
        metrics.signalled(&format!("rule-{n}"), 1);
    }
    let after = parse(&metrics.render());
    assert_eq!(after["slice_healer_signals_total"].samples.len(), before);
    assert_eq!(
        after["slice_healer_signals_total"].samples["slice_healer_signals_total{rule=\"custom\"}"],
        101.0
    );
}

#[test]
fn what_ends_is_told_by_its_moment_and_what_does_not_end_is_not_told() {
    let metrics = metrics();
    let name = "slice_healer_credential_end_timestamp_seconds";
    let told = |metrics: &Metrics| {
        let family = parse(&metrics.render()).remove(name);
        family.map_or_else(BTreeMap::new, |family| family.samples)
    };
    let series = |credential: &str| format!("{name}{{credential=\"{credential}\"}}");
    assert_eq!(
        told(&metrics),
        BTreeMap::from([
            (series("token"), 1_796_083_200.0),
            (series("trust-bundle"), 1_893_456_000.0),
        ])
    );
    metrics.set_ends(&Ends {
        at: [(
            Credential::TrustBundle,
            "2030-01-01T00:00:00Z".parse().unwrap(),
        )]
        .into(),
        looked: true,
    });
    assert_eq!(told(&metrics).len(), 1);
}

#[test]
fn a_finding_that_is_gone_reads_zero() {
    let metrics = metrics();
    metrics.set_findings([], 0);
    let families = parse(&metrics.render());
    assert_eq!(families["slice_healer_findings"].samples.len(), 2);
    assert!(
        families["slice_healer_findings"]
            .samples
            .values()
            .all(|value| *value == 0.0)
    );
}
