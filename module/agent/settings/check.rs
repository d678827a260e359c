//! What one value alone cannot show: limits on names and counts, and values that must fit each
//! other. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use slice_core::signal::{RuleSet, RuleSpec, SignalKind};

use super::model::{RuleSettings, Settings};
use super::tree::Path;
use super::types::Span;

/// Most labels; each becomes an application property of every message.
const MAX_LABELS: usize = 8;

/// Application properties of our own, which a label must not hide.
const RESERVED: [&str; 3] = ["schema", "type", "severity"];

/// Longest value of a label, in characters.
const MAX_LABEL_VALUE: usize = 64;

impl Settings {
    /// The tree that these settings are read from and written to.
    pub(super) fn to_tree(&self) -> Value {
        // Every key is a text and every value finite, so this cannot fail.
        serde_json::to_value(self).unwrap_or_default()
    }

    pub(super) fn deserialize_tree(tree: Value) -> Result<Self, String> {
        serde_json::from_value(tree).map_err(|error| error.to_string())
    }

    /// Everything that does not fit, with the setting it is about. Empty when all is well.
    pub fn check(&self) -> Vec<(Path, String)> {
        let mut wrong = Vec::new();
        self.check_labels(&mut wrong);
        self.check_names(&mut wrong);
        self.check_sending(&mut wrong);
        self.check_pace(&mut wrong);
        self.check_rules_and_probes(&mut wrong);
        wrong
    }

    fn check_labels(&self, wrong: &mut Vec<(Path, String)>) {
        if self.labels.len() > MAX_LABELS {
            wrong.push((
                Path::new(["labels"]),
                format!(
                    "{} labels, at most {MAX_LABELS} are allowed",
                    self.labels.len()
                ),
            ));
        }
        for (name, value) in &self.labels {
            let fine = !name.is_empty()
                && name.len() <= 32
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
            let reason = if !fine {
                "a label's name has 1 to 32 letters, digits, `_` and `-`".to_owned()
            } else if RESERVED.contains(&name.as_str()) {
                format!("`{name}` is an application property of our own; choose another name")
            } else if value.is_empty() || value.chars().count() > MAX_LABEL_VALUE {
                format!("a label's value has 1 to {MAX_LABEL_VALUE} characters")
            } else if value.chars().any(char::is_control) {
                "a label's value has no control characters".to_owned()
            } else {
                continue;
            };
            wrong.push((Path::new(["labels", name]), reason));
        }
    }

    fn check_names(&self, wrong: &mut Vec<(Path, String)>) {
        let lists = [
            ("namespaces", &self.scope.namespaces),
            ("exclude_namespaces", &self.scope.exclude_namespaces),
        ];
        for (key, names) in lists {
            for name in names.as_slice() {
                if !is_dns_label(name) {
                    wrong.push((
                        Path::new(["scope", key]),
                        format!("`{name}` cannot be the name of a namespace"),
                    ));
                }
            }
        }
        if self.journal.directories.as_slice().is_empty() {
            wrong.push((
                Path::new(["journal", "directories"]),
                "at least one folder is needed".to_owned(),
            ));
        }
        if !self.hub.trusted_roots.is_absolute() {
            wrong.push((
                Path::new(["hub", "trusted_roots"]),
                "the path must be absolute".to_owned(),
            ));
        }
        if !self.store.directory.is_absolute() {
            wrong.push((
                Path::new(["store", "directory"]),
                "the path must be absolute".to_owned(),
            ));
        }
        for (key, value, least) in [
            ("outbox_bytes", self.store.outbox_bytes, 65_536),
            ("outbox_messages", self.store.outbox_messages, 16),
        ] {
            if value < least {
                wrong.push((
                    Path::new(["store", key]),
                    format!("{value} is too small, at least {least}"),
                ));
            }
        }
    }

    fn check_sending(&self, wrong: &mut Vec<(Path, String)>) {
        let hour = std::time::Duration::from_secs(3600);
        if self.store.outbox_age.0 < hour {
            wrong.push((
                Path::new(["store", "outbox_age"]),
                "at least PT1H is needed: a hub may be away for longer than a moment".to_owned(),
            ));
        }
        if self.report.telemetry_per_second == 0 {
            wrong.push((
                Path::new(["report", "telemetry_per_second"]),
                "at least 1 is needed".to_owned(),
            ));
        }
    }

    fn check_pace(&self, wrong: &mut Vec<(Path, String)>) {
        let pace = &self.heal.pace;
        for (key, spans) in [
            ("look_again", &pace.look_again),
            ("recreate", &pace.recreate),
        ] {
            if spans.0.is_empty() || spans.0.len() > 10 {
                wrong.push((
                    Path::new(["heal", "pace", key]),
                    "1 to 10 items are needed".to_owned(),
                ));
            }
        }
        let positive = [
            (
                Path::new(["heal", "pace", "action_deadline"]),
                pace.action_deadline,
            ),
            (
                Path::new(["heal", "pace", "recreate_deadline"]),
                pace.recreate_deadline,
            ),
            (
                Path::new(["journal", "poll_interval"]),
                self.journal.poll_interval,
            ),
            (Path::new(["serve", "stale_after"]), self.serve.stale_after),
            (
                Path::new(["report", "heartbeat_min"]),
                self.report.heartbeat_min,
            ),
        ];
        for (key, span) in positive {
            if span == Span::default() {
                wrong.push((key, "must be longer than zero".to_owned()));
            }
        }
        let orders = [
            (
                "grace",
                "refresh",
                self.grace.refresh,
                "delete",
                self.grace.delete,
            ),
            (
                "grace",
                "refresh_on_signal",
                self.grace.refresh_on_signal,
                "delete_on_signal",
                self.grace.delete_on_signal,
            ),
            (
                "report",
                "heartbeat_min",
                self.report.heartbeat_min,
                "heartbeat_max",
                self.report.heartbeat_max,
            ),
        ];
        for (section, low, less, high, more) in orders {
            if less > more {
                wrong.push((
                    Path::new([section, high]),
                    format!("{more} is shorter than `{section}.{low}`, which is {less}"),
                ));
            }
        }
    }

    fn check_rules_and_probes(&self, wrong: &mut Vec<(Path, String)>) {
        for (name, rule) in &self.journal.rules {
            let (_, bad) = RuleSet::new([(name.clone(), rule.to_spec())], []);
            let reason = match bad.into_iter().next() {
                Some(bad) => last_line(&bad.why).to_owned(),
                None if rule.matches_everything() => {
                    "`pattern` matches every line; make it say more".to_owned()
                }
                None => continue,
            };
            wrong.push((Path::new(["journal", "rules", name]), reason));
        }
        for (name, probe) in &self.probes {
            let rest = ["http://", "https://"]
                .iter()
                .find_map(|scheme| probe.url.strip_prefix(scheme));
            let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
            let reason = match host {
                None | Some("") => "`url` must begin with http:// or https:// and name a host",
                Some(host) if host.contains('@') => {
                    "`url` must not hold credentials: settings are shown and reported"
                }
                Some(_) => continue,
            };
            wrong.push((Path::new(["probes", name]), reason.to_owned()));
        }
    }
}

impl RuleSettings {
    /// The rule as the core takes it. What it says of a match is always `custom`.
    pub fn to_spec(&self) -> RuleSpec {
        RuleSpec {
            pattern: self.pattern.clone(),
            kind: SignalKind::Custom,
            severity: self.severity,
            units: self.units.as_slice().to_vec(),
            fields: BTreeMap::new(),
            matches: Vec::new(),
            rejects: Vec::new(),
        }
    }

    fn matches_everything(&self) -> bool {
        regex::bytes::Regex::new(&self.pattern).is_ok_and(|regex| regex.is_match(b""))
    }
}

/// RFC 1123 label, as Kubernetes wants names of namespaces.
fn is_dns_label(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && !name.starts_with('-')
        && !name.ends_with('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The parser of regular expressions draws the place over several lines and ends with the reason.
fn last_line(text: &str) -> &str {
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or(text)
        .trim()
}
