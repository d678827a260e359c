//! The rules that ship, on the lines that the real controller logged and that incidents quoted.

use anyhow::{Context as _, Result};
use slice_core::judge::Severity;
use slice_core::signal::{Line, Signal};
use slice_healer::sense::rules::Rules;

fn signals(rules: &Rules, unit: &str, message: &str) -> Vec<Signal> {
    let fields: [(&[u8], &[u8]); 2] = [
        (b"_SYSTEMD_UNIT", unit.as_bytes()),
        (b"MESSAGE", message.as_bytes()),
    ];
    let line = Line {
        fields: &fields,
        at: jiff::Timestamp::UNIX_EPOCH,
    };
    rules.set.signals(&line, String::new)
}

/// Which rule takes a captured line of the controller, told by what the line says.
fn expected(line: &str) -> Option<&'static str> {
    [
        (
            "\"Error syncing endpoint slices for service, retrying\"",
            "controller-retry",
        ),
        ("reason: 'FailedToUpdateEndpointSlices'", "controller-event"),
        ("\"Retry budget exceeded", "controller-gave-up"),
        ("\"Unhandled Error\"", "controller-unhandled"),
        ("\"label changed\"", "slice-relabelled"),
    ]
    .into_iter()
    .find(|(text, _)| line.contains(text))
    .map(|(_, rule)| rule)
}

#[test]
fn what_the_real_controller_logs_is_taken_for_what_it_means() -> Result<()> {
    let rules = Rules::built_in("slice-healer");
    let captured = include_str!("fixtures/kcm-log-lines.txt");
    let lines: Vec<&str> = captured
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert!(lines.len() >= 10, "{} lines captured", lines.len());
    for line in &lines {
        let found = signals(&rules, "k3s.service", line);
        let names: Vec<&str> = found.iter().map(|signal| signal.rule.as_str()).collect();
        assert_eq!(names, Vec::from_iter(expected(line)), "{line}");
        for signal in &found {
            let service = signal.service_key().context("no Service is named")?;
            assert!(
                line.contains(&format!("{service}")) || line.contains("Namespace:"),
                "{service} is not in {line}"
            );
        }
    }
    let severities = |wanted| {
        let all = lines
            .iter()
            .flat_map(|line| signals(&rules, "k3s.service", line));
        all.filter(|signal| signal.severity == wanted).count()
    };
    assert_eq!(
        severities(Severity::Critical),
        1,
        "giving up is the strong one"
    );
    assert!(severities(Severity::Info) >= 3, "retries are hints");
    Ok(())
}

#[test]
fn what_incidents_quoted_is_taken() {
    let rules = Rules::built_in("slice-healer");
    for (line, rule) in [
        ("Cache hit for endpoint slice, skipping update", "cache-hit"),
        ("Failed to sync EndpointSlice: conflict", "sync-conflict"),
        (
            "Model version mismatch: expected v2.1, got v2.0",
            "version-mismatch",
        ),
        ("\"GET / HTTP/2.0\" 502 0", "bad-gateway"),
    ] {
        let found = signals(&rules, "iotedge.service", line);
        assert_eq!(found.len(), 1, "{line}");
        assert_eq!(
            (found[0].rule.as_str(), found[0].service_key()),
            (rule, None)
        );
    }
}
