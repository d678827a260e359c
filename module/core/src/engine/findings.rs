//! Findings that stand: a difference that lives for a moment is a rollout, and nobody is told.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Engine;
use crate::event::{Event, EventType, Now, Output};
use crate::heal::record::Record;
use crate::judge::{Finding, FindingKind, Severity};
use crate::model::ServiceKey;

/// What is told as one: a slice with fifty ghosts is one message, not fifty.
type GroupKey = (ServiceKey, FindingKind, Option<String>);

#[derive(Debug)]
struct Group {
    since: Duration,
    told: bool,
    severity: Severity,
}

/// Since when each group of findings has been seen, and whether it was told.
#[derive(Debug, Default)]
pub(super) struct Standing {
    groups: BTreeMap<GroupKey, Group>,
}

impl Standing {
    pub(super) fn next_due(&self, grace: Duration) -> Option<Duration> {
        self.groups
            .values()
            .filter(|g| !g.told)
            .map(|g| g.since + grace)
            .min()
    }

    /// Slices with a finding that matters to traffic.
    pub(super) fn stale_slices(&self) -> usize {
        let slices: std::collections::BTreeSet<_> = self
            .groups
            .iter()
            .filter(|(_, g)| g.told && g.severity < Severity::Info)
            .filter_map(|((key, _, slice), _)| slice.as_ref().map(|s| (&key.namespace, s)))
            .collect();
        slices.len()
    }

    /// Counts and the worst Services, of what stands for at least the grace.
    pub(super) fn told(&self) -> impl Iterator<Item = (&ServiceKey, FindingKind, Severity)> {
        self.groups
            .iter()
            .filter(|(_, g)| g.told)
            .map(|((service, kind, _), g)| (service, *kind, g.severity))
    }
}

impl Engine {
    /// Takes up a judgement of one Service.
    pub(super) fn judged(
        &mut self,
        key: ServiceKey,
        findings: Vec<Finding>,
        fingerprint: u64,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        let mut seen: BTreeMap<GroupKey, Severity> = BTreeMap::new();
        for f in &findings {
            let group = (key.clone(), f.kind, f.slice.clone());
            let severity = seen.entry(group).or_insert(f.severity);
            *severity = (*severity).min(f.severity);
        }
        let low = (key.clone(), FindingKind::ALL[0], None);
        let gone: Vec<GroupKey> = self
            .standing
            .groups
            .range(low..)
            .take_while(|((k, _, _), _)| *k == key)
            .filter(|(g, _)| !seen.contains_key(*g))
            .map(|(g, _)| g.clone())
            .collect();
        for group in gone {
            if let Some(old) = self.standing.groups.remove(&group)
                && old.told
            {
                out.push(Output::Emit(self.resolved(&group, &old, now)));
            }
        }
        for (group, severity) in seen {
            self.standing
                .groups
                .entry(group)
                .and_modify(|g| g.severity = severity)
                .or_insert(Group {
                    since: now.mono,
                    told: false,
                    severity,
                });
        }
        self.update_incident(&key, &findings, fingerprint, now, out);
        let cut_off = self.interrupted.as_ref().is_some_and(|i| i.service == key);
        if cut_off && !self.incidents.contains_key(&key) {
            // What an earlier process had begun came right without us.
            self.interrupted = None;
            out.push(Output::Persist(Record::Intent(None)));
        }
        if findings.is_empty() {
            self.findings.remove(&key);
        } else {
            self.findings.insert(key, findings);
        }
    }

    /// Tells what has stood for the grace.
    pub(super) fn announce(&mut self, now: Now, out: &mut Vec<Output>) {
        let grace = self.policy.grace.refresh;
        let due: Vec<GroupKey> = self
            .standing
            .groups
            .iter()
            .filter(|(_, g)| !g.told && now.mono >= g.since + grace)
            .map(|(k, _)| k.clone())
            .collect();
        self.tell(due, now, out);
    }

    /// Tells what is not told yet of one Service.
    pub(super) fn announce_of(&mut self, key: &ServiceKey, now: Now, out: &mut Vec<Output>) {
        let low = (key.clone(), FindingKind::ALL[0], None);
        let due: Vec<GroupKey> = self
            .standing
            .groups
            .range(low..)
            .take_while(|((k, _, _), _)| k == key)
            .filter(|(_, g)| !g.told)
            .map(|(k, _)| k.clone())
            .collect();
        self.tell(due, now, out);
    }

    fn tell(&mut self, groups: Vec<GroupKey>, now: Now, out: &mut Vec<Output>) {
        for group in groups {
            if let Some(g) = self.standing.groups.get_mut(&group) {
                g.told = true;
            }
            if let Some(event) = self.opened(&group, now) {
                out.push(Output::Emit(event));
            }
        }
    }

    fn opened(&self, (key, kind, slice): &GroupKey, now: Now) -> Option<Event> {
        let of_group = |f: &&Finding| f.kind == *kind && f.slice == *slice;
        let findings = self.findings.get(key)?;
        let first = findings.iter().find(of_group)?;
        let addresses: Vec<&str> = findings
            .iter()
            .filter(of_group)
            .flat_map(|f| f.addresses.iter().map(String::as_str))
            .collect();
        let mut evidence = Vec::new();
        if !addresses.is_empty() {
            let shown = addresses
                .iter()
                .take(10)
                .copied()
                .collect::<Vec<_>>()
                .join(" ");
            evidence.push(("addresses".to_owned(), shown));
            evidence.push(("endpoints".to_owned(), addresses.len().to_string()));
        }
        if let Some(pod) = &first.pod {
            evidence.push(("pod".to_owned(), pod.clone()));
        }
        if let Some(g) = self
            .standing
            .groups
            .get(&(key.clone(), *kind, slice.clone()))
        {
            let seconds = now.mono.saturating_sub(g.since).as_secs_f64();
            evidence.push(("seconds".to_owned(), format!("{seconds:.3}")));
        }
        evidence.push(("remedy".to_owned(), first.remedy.action.as_str().to_owned()));
        evidence.push(("remedyReason".to_owned(), first.remedy.reason.clone()));
        let incident = self.incidents.get(key);
        if let Some(i) = incident.filter(|i| !i.signals.is_empty()) {
            evidence.push(("signals".to_owned(), i.signals.join(" ")));
        }
        if let Some(u) = self.units.iter().rev().find(|u| u.restarted) {
            evidence.push((
                "unitRestarted".to_owned(),
                format!("{} at {}", u.unit, u.at),
            ));
        }
        Some(Event {
            kind: EventType::Finding,
            at: now.wall,
            severity: first.severity,
            message: first.message.clone(),
            service: Some(key.clone()),
            slice: slice.clone(),
            finding: Some(*kind),
            evidence,
            heal: None,
            incident: incident.map(|i| i.id.clone()),
        })
    }

    fn resolved(&self, (key, kind, slice): &GroupKey, group: &Group, now: Now) -> Event {
        let seconds = now.mono.saturating_sub(group.since).as_secs_f64();
        Event {
            kind: EventType::Resolved,
            at: now.wall,
            severity: Severity::Info,
            message: format!("{kind} of {key} is gone after {seconds:.1} s"),
            service: Some(key.clone()),
            slice: slice.clone(),
            finding: Some(*kind),
            evidence: vec![("seconds".to_owned(), format!("{seconds:.3}"))],
            heal: None,
            incident: self.incidents.get(key).map(|i| i.id.clone()),
        }
    }
}
