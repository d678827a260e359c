//! Tries corruptions and keeps the score: recall and precision by kind.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::Value;
use slice_core::judge::FindingKind;

use super::Corruption;
use super::bench::{Bench, Due};
use crate::differential::number;

/// How often each corruption is tried, on different targets; `SLICE_HEALER_CORRUPTIONS` says otherwise.
const TIMES: usize = 2;
/// Corruptions that a random cluster may have no target for, such as a Service of which no rule is broken already.
const WITHOUT_TARGET: usize = 2;

/// What was due, what of it was found, and what was found beside it.
#[derive(Default)]
pub(super) struct Score {
    table: BTreeMap<FindingKind, [usize; 3]>,
    wrong: Vec<String>,
    tried: usize,
    without_target: Vec<String>,
}

impl Score {
    pub(super) fn corrupt(
        &mut self,
        corruptions: &[(&str, Corruption)],
        lists: &[Value],
        seed: u64,
        find: impl Fn(&[Value]) -> Result<Vec<Due>>,
    ) -> Result<()> {
        let times = number("SLICE_HEALER_CORRUPTIONS")?.map_or(TIMES, |n| n as usize);
        for (at, (what, corrupt)) in corruptions.iter().enumerate() {
            let mut done = 0;
            for time in 0..times {
                let rng = StdRng::seed_from_u64(seed ^ (((at * times + time) as u64) << 32));
                let mut bench = Bench {
                    lists: lists.to_vec(),
                    rng,
                };
                let Some(mut due) = corrupt(&mut bench) else {
                    continue;
                };
                ensure!(!due.is_empty(), "nothing follows from: {what}");
                let mut made = find(&bench.lists).with_context(|| (*what).to_owned())?;
                due.sort();
                made.sort();
                done += 1;
                self.note(what, &due, &made);
            }
            if done == 0 {
                self.without_target.push((*what).to_owned());
            }
            self.tried += done;
        }
        Ok(())
    }

    fn note(&mut self, what: &str, due: &[Due], made: &[Due]) {
        for one in due {
            let entry = self.table.entry(one.kind).or_default();
            entry[0] += 1;
            entry[1] += usize::from(made.contains(one));
        }
        for one in made {
            self.table.entry(one.kind).or_default()[2] += usize::from(!due.contains(one));
        }
        if due != made {
            self.wrong
                .push(format!("{what}: due {due:?}\n  made {made:?}"));
        }
    }

    pub(super) fn tell(&self) -> Result<()> {
        let mut report = format!(
            "mutation: {} corruptions, {} judged wrong\n",
            self.tried,
            self.wrong.len()
        );
        for (kind, [due, hit, extra]) in &self.table {
            let recall = *hit as f64 / (*due).max(1) as f64;
            let precision = *hit as f64 / (hit + extra).max(1) as f64;
            report += &format!(
                "  {:<20} recall {recall:.2} precision {precision:.2} ({due})\n",
                kind.as_str()
            );
        }
        let without = &self.without_target;
        if !without.is_empty() {
            report += &format!("  no target for: {}\n", without.join(", "));
        }
        std::io::stderr().write_all(report.as_bytes())?;
        ensure!(
            without.len() <= WITHOUT_TARGET,
            "no target for: {}",
            without.join(", ")
        );
        ensure!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        Ok(())
    }
}
