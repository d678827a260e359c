//! Which journal line means what: rules, checked when they are put together, and one pass over a
//! line for all of them.
//!
//! Matches bytes, since a line need not be text. Knows no files: whoever reads rules from a file or
//! from the twin hands them over as [`RuleSpec`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use serde::{Deserialize, Serialize};

use super::{Signal, SignalKind};
use crate::judge::Severity;

/// Longest pattern, in bytes.
pub const MAX_PATTERN: usize = 1024;
/// Most rules in one set.
pub const MAX_RULES: usize = 256;
/// Most bytes of a message that are looked at, and that a signal carries.
const MAX_LINE: usize = 64 << 10;
const MAX_MESSAGE: usize = 512;
/// Memory that one compiled rule, and all of them together, may take.
const RULE_MEMORY: usize = 1 << 20;
const SET_MEMORY: usize = 16 << 20;
/// The groups that a pattern may name.
const GROUPS: [&str; 5] = ["namespace", "service", "slice", "pod", "node"];

/// A rule as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Regular expression on the message, with groups named `namespace`, `service`, `slice`, `pod`
    /// and `node` where the line names them.
    pub pattern: String,
    /// What a match means.
    #[serde(default = "custom")]
    pub kind: SignalKind,
    /// How much it weighs.
    #[serde(default = "info")]
    pub severity: Severity,
    /// Only entries of these units, named with or without `.service`. With `fields` empty as well:
    /// any entry that is read.
    #[serde(default)]
    pub units: Vec<String>,
    /// Only entries with one of these values in these fields, or of one of the units.
    #[serde(default)]
    pub fields: BTreeMap<String, Vec<String>>,
    /// Lines that must match.
    #[serde(default)]
    pub matches: Vec<String>,
    /// Lines that must not.
    #[serde(default)]
    pub rejects: Vec<String>,
}

fn custom() -> SignalKind {
    SignalKind::Custom
}

fn info() -> Severity {
    Severity::Info
}

/// A rule that is not in force, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule `{id}`: {why}")]
pub struct BadRule {
    /// The rule's id.
    pub id: String,
    /// What is wrong, and with which part.
    pub why: String,
}

/// A journal entry as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Its fields in any order; a name may come several times.
    pub fields: &'a [(&'a [u8], &'a [u8])],
    /// When it was written.
    pub at: Timestamp,
}

impl<'a> Line<'a> {
    fn all(&self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields
            .iter()
            .filter(move |(known, _)| *known == name.as_bytes())
            .map(|(_, value)| *value)
    }

    /// The unit that the entry is about: the one that wrote it, else the one that its writer names.
    fn unit(&self) -> Option<&'a [u8]> {
        self.all("_SYSTEMD_UNIT").next().or(self.all("UNIT").next())
    }
}

/// The rules that are in force.
#[derive(Clone, Debug)]
pub struct RuleSet {
    all: RegexSet,
    rules: Vec<Rule>,
    own: Vec<String>,
}

#[derive(Clone, Debug)]
struct Rule {
    id: String,
    regex: Regex,
    spec: RuleSpec,
}

impl RuleSet {
    /// Puts rules together. What is wrong with one is told by its id and keeps that one out, the
    /// others are in force. Of two rules with one id the later is refused.
    ///
    /// `own` are this module's names in SYSLOG_IDENTIFIER and CONTAINER_NAME: what it logs itself
    /// is never a signal, or a signal's log line would be the next signal.
    pub fn new(
        specs: impl IntoIterator<Item = (String, RuleSpec)>,
        own: impl IntoIterator<Item = String>,
    ) -> (Self, Vec<BadRule>) {
        let mut rules: Vec<Rule> = Vec::new();
        let mut bad = Vec::new();
        for (id, spec) in specs {
            let known = rules.iter().any(|rule| rule.id == id);
            let checked = match (known, rules.len() >= MAX_RULES) {
                (true, _) => Err("another rule has this id".to_owned()),
                (_, true) => Err(format!("there are {MAX_RULES} rules already")),
                _ => Rule::new(id.clone(), spec),
            };
            match checked {
                Ok(rule) => rules.push(rule),
                Err(why) => bad.push(BadRule { id, why }),
            }
        }
        let all = loop {
            let patterns = rules.iter().map(|rule| &rule.spec.pattern);
            match RegexSetBuilder::new(patterns)
                .size_limit(SET_MEMORY)
                .build()
            {
                Ok(all) => break all,
                // Each is sound by itself, so they are too many for the memory: the last one goes.
                Err(_) => match rules.pop() {
                    Some(rule) => bad.push(BadRule {
                        id: rule.id,
                        why: "all rules together take too much memory".to_owned(),
                    }),
                    None => break RegexSet::empty(),
                },
            }
        };
        let own = own.into_iter().collect();
        (Self { all, rules, own }, bad)
    }

    /// The ids of the rules in force, in the order of their definition.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.id.as_str())
    }

    /// The rules in force, by id.
    pub fn specs(&self) -> impl Iterator<Item = (&str, &RuleSpec)> {
        self.rules.iter().map(|rule| (rule.id.as_str(), &rule.spec))
    }

    /// Entries that a rule asks for by a field: to be read besides those of the units.
    pub fn wanted_fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rules.iter().flat_map(|rule| {
            rule.spec.fields.iter().flat_map(|(name, values)| {
                values.iter().map(|value| (name.as_str(), value.as_str()))
            })
        })
    }

    /// One signal for each rule that the line matches. `cursor` is asked only when one does.
    pub fn signals(&self, line: &Line<'_>, cursor: impl Fn() -> String) -> Vec<Signal> {
        if self.is_own(line) {
            return Vec::new();
        }
        let mut found: Vec<Signal> = Vec::new();
        for message in line.all("MESSAGE") {
            let message = &message[..message.len().min(MAX_LINE)];
            for index in &self.all.matches(message) {
                let rule = &self.rules[index];
                if rule.applies(line) && found.iter().all(|signal| signal.rule != rule.id) {
                    found.extend(rule.signal(line, message, &cursor));
                }
            }
        }
        found
    }

    fn is_own(&self, line: &Line<'_>) -> bool {
        ["SYSLOG_IDENTIFIER", "CONTAINER_NAME"]
            .into_iter()
            .flat_map(|name| line.all(name))
            .any(|value| self.own.iter().any(|own| own.as_bytes() == value))
    }
}

impl Rule {
    fn new(id: String, spec: RuleSpec) -> Result<Self, String> {
        let letters =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        if id.is_empty() || id.len() > 64 || !id.bytes().all(letters) {
            return Err("an id has 1 to 64 of a-z, 0-9, `-` and `_`".to_owned());
        }
        if spec.pattern.is_empty() || spec.pattern.len() > MAX_PATTERN {
            return Err(format!("`pattern` has 1 to {MAX_PATTERN} bytes"));
        }
        let regex = RegexBuilder::new(&spec.pattern)
            .size_limit(RULE_MEMORY)
            .build()
            .map_err(|error| {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default().trim();
                format!("`pattern` is no regular expression: {last}")
            })?;
        if regex.is_match(b"") {
            return Err("`pattern` matches every line; make it say more".to_owned());
        }
        let strange = |name: &&str| !GROUPS.contains(name);
        if let Some(name) = regex.capture_names().flatten().find(strange) {
            return Err(format!(
                "`pattern` has a group `{name}`; known are {GROUPS:?}"
            ));
        }
        let field = |name: &String| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        };
        if let Some(name) = spec.fields.keys().find(|name| !field(name)) {
            return Err(format!("`fields`: `{name}` is no name of a journal field"));
        }
        if let Some(line) = spec.matches.iter().find(|l| !regex.is_match(l.as_bytes())) {
            return Err(format!("`matches`: it does not match {line:?}"));
        }
        if let Some(line) = spec.rejects.iter().find(|l| regex.is_match(l.as_bytes())) {
            return Err(format!("`rejects`: it matches {line:?}"));
        }
        Ok(Self { id, regex, spec })
    }

    /// The rule is for entries of this origin.
    fn applies(&self, line: &Line<'_>) -> bool {
        if self.spec.units.is_empty() && self.spec.fields.is_empty() {
            return true;
        }
        let of_unit = line
            .unit()
            .is_some_and(|unit| self.spec.units.iter().any(|own| same_unit(own, unit)));
        let of_field = || {
            self.spec.fields.iter().any(|(name, values)| {
                line.all(name)
                    .any(|value| values.iter().any(|own| own.as_bytes() == value))
            })
        };
        of_unit || of_field()
    }

    fn signal(
        &self,
        line: &Line<'_>,
        message: &[u8],
        cursor: impl Fn() -> String,
    ) -> Option<Signal> {
        let groups = self.regex.captures(message)?;
        let group = |name| {
            groups
                .name(name)
                .and_then(|found| object_name(found.as_bytes()))
        };
        Some(Signal {
            rule: self.id.clone(),
            kind: self.spec.kind,
            severity: self.spec.severity,
            at: line.at,
            unit: line
                .unit()
                .map(|unit| String::from_utf8_lossy(unit).into_owned()),
            namespace: group("namespace"),
            service: group("service"),
            slice: group("slice"),
            pod: group("pod"),
            node: group("node"),
            count: 1,
            message: shown(message),
            cursor: cursor(),
        })
    }
}

fn same_unit(own: &str, unit: &[u8]) -> bool {
    let rest = unit.strip_prefix(own.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || (rest == b".service" && !own.ends_with(".service")))
}

/// A name that a Kubernetes object can have; a line that holds anything else names nothing.
fn object_name(bytes: &[u8]) -> Option<String> {
    let letters = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-' || *b == b'.';
    let fits = (1..=253).contains(&bytes.len()) && bytes.iter().all(letters);
    fits.then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// The message for people: text, one line, bounded, and it says when it was cut.
fn shown(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(&message[..message.len().min(MAX_MESSAGE)]);
    let mut text = text.replace(|c: char| c.is_control(), " ");
    if message.len() > MAX_MESSAGE {
        text.push('…');
    }
    text
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
