//! Whatever happens, and however often the process is killed in the middle of it, no budget is ever
//! exceeded: a heal is on the books, on disk, before its first write.

use std::time::Duration;

use crate::rig::{Character, Kill, Rig};
use proptest::prelude::*;
use slice_core::event::{Act, CanaryAnswer};
use slice_core::heal::policy::{Budgets, Mode, Pace, Policy};
use slice_core::heal::record::{History, Record};

const SERVICES: usize = 4;
const HOUR: Duration = Duration::from_secs(3600);
/// A heal of the rig's refreshes this often before it gives up.
const REFRESHES: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    /// Time passes.
    Pass(u32),
    /// The controller sleeps through a redeployment of one Service.
    Redeploy(usize),
    /// It catches up.
    CatchUp,
    /// It goes deaf, or hears again.
    Hears(bool),
    /// The process is killed at a later write, and started anew.
    Kill { writes: u32, done: bool },
    /// The process ends and starts anew.
    Restart,
    /// Somebody sets the clock back.
    ClockBack(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..900_u32).prop_map(Step::Pass),
        4 => (0..SERVICES).prop_map(Step::Redeploy),
        1 => Just(Step::CatchUp),
        1 => any::<bool>().prop_map(Step::Hears),
        3 => (0..3_u32, any::<bool>()).prop_map(|(writes, done)| Step::Kill { writes, done }),
        1 => Just(Step::Restart),
        1 => (1..7200_u32).prop_map(Step::ClockBack),
    ]
}

fn name(i: usize) -> String {
    format!("svc-{i}")
}

/// The rig under test, with when each write was made on a clock that nobody sets.
struct Watched {
    rig: Rig,
    policy: Policy,
    seen: usize,
    writes: Vec<(Duration, String, bool)>,
    charged: Vec<Duration>,
    records: usize,
}

impl Watched {
    fn note(&mut self) {
        for act in &self.rig.acts[self.seen..] {
            match act {
                Act::Refresh { service, .. } => {
                    let entry = (self.rig.now.mono, service.name.to_string(), false);
                    self.writes.push(entry);
                }
                Act::Delete { service, .. } => {
                    let entry = (self.rig.now.mono, service.name.to_string(), true);
                    self.writes.push(entry);
                }
                _ => {}
            }
        }
        self.seen = self.rig.acts.len();
        for record in &self.rig.records[self.records..] {
            if matches!(record, Record::Charge(_)) {
                self.charged.push(self.rig.now.mono);
            }
        }
        self.records = self.rig.records.len();
    }

    fn pass(&mut self, seconds: u32) {
        // In small pieces, so that the moment of each write is known to a second.
        for _ in 0..seconds {
            self.rig.pass(1.0);
            self.note();
            if self.rig.dead {
                self.rig.restart(self.policy.clone());
                self.note();
            }
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Pass(seconds) => self.pass(*seconds),
            Step::Redeploy(i) => self.rig.replace_pod(&name(*i)),
            Step::CatchUp => self.rig.write_slices(),
            Step::Hears(hears) => {
                self.rig.controller = if *hears {
                    Character::Right
                } else {
                    Character::Deaf
                };
            }
            Step::Kill { writes, done } => {
                self.rig.kill = Some(Kill {
                    writes: *writes,
                    done: *done,
                });
            }
            Step::Restart => self.rig.restart(self.policy.clone()),
            Step::ClockBack(seconds) => {
                self.rig.now.wall -= jiff::SignedDuration::from_secs(i64::from(*seconds));
            }
        }
        self.note();
        if self.rig.dead {
            self.rig.restart(self.policy.clone());
            self.note();
        }
    }

    /// The most of `times` that lie within one hour.
    fn most(times: impl Iterator<Item = Duration>) -> usize {
        let times: Vec<Duration> = times.collect();
        let within = |i: usize| {
            times[i..]
                .iter()
                .take_while(|t| **t < times[i] + HOUR)
                .count()
        };
        (0..times.len()).map(within).max().unwrap_or(0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_history_of_kills_and_restarts_exceeds_a_budget(
        steps in prop::collection::vec(step(), 1..40),
        of_service in 1..4_u32,
        of_node in 1..6_u32,
    ) {
        let policy = Policy {
            mode: Mode::Heal,
            budgets: Budgets {
                per_service_per_hour: of_service,
                per_namespace_per_hour: of_node + 1,
                per_node_per_hour: of_node,
                ..Budgets::default()
            },
            pace: Pace { cool_down: Duration::from_secs(1), ..Pace::default() },
            ..Policy::default()
        };
        let mut rig = Rig::empty(Character::Deaf, policy.clone(), &History::default());
        // Only refreshes: each heal makes two, whatever happens.
        rig.canary = CanaryAnswer::Unanswered;
        for i in 0..SERVICES {
            rig.service(&name(i));
            rig.pod_of(&name(i), &format!("{}-0", name(i)), &format!("10.244.2.{i}"));
        }
        rig.write_slices();
        rig.sync();
        let mut watched = Watched {
            rig,
            policy,
            seen: 0,
            writes: Vec::new(),
            charged: Vec::new(),
            records: 0,
        };
        for step in &steps {
            watched.take(step);
        }
        watched.pass(600);

        prop_assert!(watched.writes.iter().all(|(_, _, delete)| !delete));
        let all = Watched::most(watched.writes.iter().map(|(at, ..)| *at));
        prop_assert!(all <= of_node as usize * REFRESHES, "{all} refreshes within an hour");
        for i in 0..SERVICES {
            let own = watched.writes.iter().filter(|(_, n, _)| *n == name(i));
            let most = Watched::most(own.map(|(at, ..)| *at));
            prop_assert!(most <= of_service as usize * REFRESHES, "{most} refreshes of {}", name(i));
        }
        let charged = Watched::most(watched.charged.iter().copied());
        prop_assert!(charged <= of_node as usize, "{charged} charges within an hour");
    }
}
