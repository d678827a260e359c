//! The journal rules in force: the built-in ones or a file's, and what the settings add.
//!
//! Reads files and settings; what a rule means and whether it is sound is the core's.

use std::path::Path;

use anyhow::{Context as _, Result};
use slice_core::signal::{BadRule, Line, RuleSet, RuleSpec, Signal};
use slice_journal::{Entry, Match};

use super::journal::{Matcher, unit_matches};
use crate::settings::JournalSettings;

/// The rules that are built in; also the form that a file of rules has.
pub const BUILT_IN: &str = include_str!("../../../config/journal-rules.toml");

/// Rules in force, and those that are not.
#[derive(Clone, Debug)]
pub struct Rules {
    /// In force.
    pub set: RuleSet,
    /// Refused, with the reason; for the one who wrote them.
    pub bad: Vec<BadRule>,
    built_in: Vec<String>,
}

impl Rules {
    /// The built-in rules alone.
    pub fn built_in(module: &str) -> Self {
        let (specs, bad) = parse(BUILT_IN).unwrap_or_default();
        Self::assemble(specs, bad, Vec::new(), module)
    }

    /// The rules of a file alone, such as one that is being written.
    ///
    /// # Errors
    /// When the file cannot be read or is no TOML; a bad rule is in [`Rules::bad`].
    pub fn of_file(path: &Path, module: &str) -> Result<Self> {
        let (specs, bad) = read(path)?;
        Ok(Self::assemble(specs, bad, Vec::new(), module))
    }

    /// The rules that the settings ask for. A file that cannot be read is told and leaves the
    /// built-in rules in force: a wrong path must not make the module deaf.
    pub fn of_settings(settings: &JournalSettings, module: &str) -> Self {
        let file = settings.rules_file.get().map(|path| read(Path::new(path)));
        let built_in = || parse(BUILT_IN).unwrap_or_default();
        let (specs, bad) = match file {
            None => built_in(),
            Some(Ok(rules)) => rules,
            Some(Err(error)) => {
                let (specs, mut bad) = built_in();
                bad.push(BadRule {
                    id: "journal.rules_file".to_owned(),
                    why: format!("{error:#}; the built-in rules are used"),
                });
                (specs, bad)
            }
        };
        let added = settings
            .rules
            .iter()
            .map(|(id, rule)| (id.clone(), rule.to_spec()));
        Self::assemble(specs, bad, added.collect(), module)
    }

    fn assemble(
        specs: Vec<(String, RuleSpec)>,
        mut bad: Vec<BadRule>,
        added: Vec<(String, RuleSpec)>,
        module: &str,
    ) -> Self {
        let built_in: Vec<String> = specs.iter().map(|(id, _)| id.clone()).collect();
        let all = specs.into_iter().chain(added);
        let (set, refused) = RuleSet::new(all, [module.to_owned()]);
        bad.extend(refused);
        Self { set, bad, built_in }
    }

    /// Ids that metrics may name: not those that a twin can make up.
    pub fn metric_ids(&self) -> Vec<String> {
        self.built_in.clone()
    }

    /// What to follow: the entries of `units`, and those that a rule asks for by a field.
    ///
    /// # Errors
    /// When a unit's name cannot be in a journal.
    pub fn matches<'a>(
        &self,
        units: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<Match>, slice_journal::Error> {
        let mut matches = unit_matches(units)?;
        for (name, value) in self.set.wanted_fields() {
            matches.push(Match::new(name, value)?);
        }
        Ok(matches)
    }

    /// Fields that rules look at, besides those that are always decoded.
    pub fn fields(&self) -> Vec<String> {
        let wanted = self.set.wanted_fields();
        let mut names: Vec<String> = wanted.map(|(name, _)| name.to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// For the journal's thread.
    pub fn matcher(&self) -> Matcher {
        let set = self.set.clone();
        Box::new(move |entry| signals(&set, entry))
    }
}

/// The signals of one entry.
pub fn signals(set: &RuleSet, entry: &Entry) -> Vec<Signal> {
    let fields: Vec<(&[u8], &[u8])> = entry
        .fields
        .iter()
        .map(|field| (field.name(), field.value()))
        .collect();
    let at = i64::try_from(entry.realtime_usec)
        .ok()
        .and_then(|usec| jiff::Timestamp::from_microsecond(usec).ok())
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let line = Line {
        fields: &fields,
        at,
    };
    set.signals(&line, || entry.cursor.to_string())
}

type Parsed = (Vec<(String, RuleSpec)>, Vec<BadRule>);

fn read(path: &Path) -> Result<Parsed> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the rules file {} cannot be read", path.display()))?;
    parse(&text).with_context(|| format!("the rules file {}", path.display()))
}

/// Rule by rule, so that one of the wrong form does not take the others with it.
fn parse(text: &str) -> Result<Parsed> {
    let mut table: toml::Table = text.parse().context("is no TOML")?;
    let rules = match table.remove("rules") {
        Some(toml::Value::Table(rules)) => rules,
        Some(_) => anyhow::bail!("`rules` is no table: write [rules.ID]"),
        None => toml::Table::new(),
    };
    if let Some(key) = table.keys().next() {
        anyhow::bail!("unknown key `{key}`: rules are written as [rules.ID]");
    }
    let (mut specs, mut bad) = (Vec::new(), Vec::new());
    for (id, value) in rules {
        match value.try_into::<RuleSpec>() {
            Ok(spec) => specs.push((id, spec)),
            Err(error) => bad.push(BadRule {
                id,
                why: error.message().to_owned(),
            }),
        }
    }
    Ok((specs, bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_rules_are_in_force_and_each_shows_what_it_takes() {
        let rules = Rules::built_in("slice-healer");
        assert_eq!(rules.bad, []);
        assert!(rules.metric_ids().len() >= 10);
        for (id, spec) in rules.set.specs() {
            assert!(!spec.matches.is_empty() && !spec.rejects.is_empty(), "{id}");
        }
    }

    #[test]
    fn one_bad_rule_is_refused_and_unknown_keys_are_named() {
        let (specs, bad) = parse(
            "[rules.good]\npattern = 'x'\n[rules.bad]\npatern = 'x'\n[rules.odd]\npattern = 'y'\nkind = 'odd'\n",
        )
        .unwrap();
        assert_eq!(specs.len(), 1);
        let named: Vec<&str> = bad.iter().map(|bad| bad.id.as_str()).collect();
        assert_eq!(named, ["bad", "odd"]);
        assert!(bad[0].why.contains("patern"), "{}", bad[0]);
        assert!(parse("[rule.x]\npattern = 'x'\n").is_err());
        assert!(parse("rules = 3").is_err());
    }

    #[test]
    fn settings_add_rules_and_a_lost_file_leaves_the_built_in_ones() {
        let none = std::iter::empty::<(String, String)>();
        let mut settings = crate::settings::Loaded::load(None, none)
            .unwrap()
            .settings
            .journal;
        let added = serde_json::json!({"pattern": "old model", "severity": "warning"});
        settings
            .rules
            .insert("model".to_owned(), serde_json::from_value(added).unwrap());
        let rules = Rules::of_settings(&settings, "slice-healer");
        assert_eq!(rules.bad, []);
        assert_eq!(rules.set.ids().last(), Some("model"));
        assert!(!rules.metric_ids().contains(&"model".to_owned()));

        settings.rules_file = crate::settings::Unset("/nowhere/rules.toml".to_owned());
        let rules = Rules::of_settings(&settings, "slice-healer");
        assert_eq!(rules.bad[0].id, "journal.rules_file");
        assert!(rules.set.ids().any(|id| id == "cache-hit"));
    }
}
