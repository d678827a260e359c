//! How often heals may happen: budgets by the hour, the cool-down of a Service, and the breaker.
//!
//! Counted on wall-clock time, because the counts outlive the process. A clock that jumps back
//! makes charges lie in the future; those still count, so a jump never opens the gate wider.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::gate::HoldReason;
use super::policy::{Budgets, Pace};
use super::record::{Charge, Ended, History};
use crate::event::HealOutcome;
use crate::model::ServiceKey;

/// What budgets and cool-downs look back on.
const WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// How many heals in a row must have failed their proof for the breaker to open.
const BREAKER_FAILURES: usize = 3;
/// How long the breaker stays open after the last of them.
const BREAKER_OPEN: SignedDuration = SignedDuration::from_mins(10);
/// The longest cool-down of a Service.
const MAX_COOL_DOWN: Duration = Duration::from_secs(3600);

/// The books on past heals.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    charges: VecDeque<Charge>,
    ended: VecDeque<Ended>,
}

impl Ledger {
    /// Takes up what an earlier process left.
    pub fn new(history: &History) -> Self {
        Self {
            charges: history.charges.clone().into(),
            ended: history.ended.clone().into(),
        }
    }

    /// Whether one more heal of this Service fits, and if not, why and until when.
    ///
    /// `slow` multiplies the cool-down, for Services whose refresh has a price.
    pub fn check(
        &self,
        service: &ServiceKey,
        budgets: &Budgets,
        pace: &Pace,
        slow: u32,
        now: Timestamp,
    ) -> Result<(), (HoldReason, Timestamp)> {
        if let Some(until) = self.breaker_until(now) {
            return Err((HoldReason::BreakerOpen, until));
        }
        if let Some(until) = self
            .cool_down_until(service, pace, slow)
            .filter(|t| *t > now)
        {
            return Err((HoldReason::CoolDown, until));
        }
        let of_service = |c: &Charge| c.service == *service;
        let of_namespace = |c: &Charge| c.service.namespace == service.namespace;
        self.fits(
            HoldReason::BudgetService,
            budgets.per_service_per_hour,
            now,
            of_service,
        )?;
        self.fits(
            HoldReason::BudgetNamespace,
            budgets.per_namespace_per_hour,
            now,
            of_namespace,
        )?;
        self.fits(
            HoldReason::BudgetNode,
            budgets.per_node_per_hour,
            now,
            |_| true,
        )
    }

    /// Puts a heal on the books.
    pub fn charge(&mut self, charge: Charge) {
        let horizon = earlier(charge.at, WINDOW);
        self.charges.retain(|c| c.at >= horizon);
        self.charges.push_back(charge);
    }

    /// Writes down how a heal ended.
    pub fn end(&mut self, ended: Ended) {
        let horizon = earlier(ended.at, WINDOW);
        self.ended.retain(|e| e.at >= horizon);
        self.ended.push_back(ended);
    }

    /// Until when the breaker is open, if it is.
    pub fn breaker_until(&self, now: Timestamp) -> Option<Timestamp> {
        let last: Vec<&Ended> = self.ended.iter().rev().take(BREAKER_FAILURES).collect();
        let tripped =
            last.len() == BREAKER_FAILURES && last.iter().all(|e| failed_proof(e.outcome));
        let until = later(last.first()?.at, BREAKER_OPEN);
        (tripped && until > now).then_some(until)
    }

    fn cool_down_until(&self, service: &ServiceKey, pace: &Pace, slow: u32) -> Option<Timestamp> {
        let heals: Vec<&Ended> = self
            .ended
            .iter()
            .filter(|e| e.service == *service)
            .collect();
        let last = heals.last()?;
        // One heal that worked is the normal case after a redeployment and costs nothing; the
        // second within the hour says that something keeps breaking it.
        let repeats = heals.len() as u32 - u32::from(last.outcome.is_success());
        if repeats == 0 {
            return (slow > 1).then(|| later(last.at, signed(pace.cool_down * slow)));
        }
        let factor = 1_u32.checked_shl(repeats - 1).unwrap_or(u32::MAX);
        let wait = pace
            .cool_down
            .saturating_mul(slow)
            .saturating_mul(factor)
            .min(MAX_COOL_DOWN);
        Some(later(last.at, signed(wait)))
    }

    fn fits(
        &self,
        reason: HoldReason,
        limit: u32,
        now: Timestamp,
        counts: impl Fn(&Charge) -> bool,
    ) -> Result<(), (HoldReason, Timestamp)> {
        let used: Vec<Timestamp> = self
            .recent(now)
            .filter(|c| counts(c))
            .map(|c| c.at)
            .collect();
        if used.len() < limit as usize {
            return Ok(());
        }
        // The next heal fits when the oldest charge is an hour old.
        let oldest = used.iter().min().copied().unwrap_or(now);
        Err((reason, later(oldest, WINDOW)))
    }

    fn recent(&self, now: Timestamp) -> impl Iterator<Item = &Charge> {
        let horizon = earlier(now, WINDOW);
        self.charges.iter().filter(move |c| c.at >= horizon)
    }
}

/// Outcomes that say "we wrote, and it is not right": they, and only they, open the breaker.
fn failed_proof(outcome: HealOutcome) -> bool {
    matches!(
        outcome,
        HealOutcome::NotVerified | HealOutcome::StillStale | HealOutcome::NotRecreated
    )
}

fn signed(d: Duration) -> SignedDuration {
    SignedDuration::try_from(d).unwrap_or(SignedDuration::MAX)
}

fn later(t: Timestamp, d: SignedDuration) -> Timestamp {
    t.checked_add(d).unwrap_or(Timestamp::MAX)
}

fn earlier(t: Timestamp, d: SignedDuration) -> Timestamp {
    t.checked_sub(d).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::RemedyAction;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("line1", name)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn ended(name: &str, seconds: i64, outcome: HealOutcome) -> Ended {
        Ended {
            service: key(name),
            at: at(seconds),
            action: RemedyAction::RefreshService,
            outcome,
            seconds: 1.0,
        }
    }

    fn check(ledger: &Ledger, name: &str, seconds: i64) -> Result<(), HoldReason> {
        ledger
            .check(
                &key(name),
                &Budgets::default(),
                &Pace::default(),
                1,
                at(seconds),
            )
            .map_err(|(reason, _)| reason)
    }

    #[test]
    fn a_service_has_so_many_heals_an_hour() {
        let mut ledger = Ledger::default();
        for i in 0..i64::from(Budgets::default().per_service_per_hour) {
            assert_eq!(check(&ledger, "a", i), Ok(()));
            ledger.charge(Charge {
                service: key("a"),
                at: at(i),
            });
        }
        assert_eq!(check(&ledger, "a", 10), Err(HoldReason::BudgetService));
        assert_eq!(check(&ledger, "b", 10), Ok(()));
        assert_eq!(check(&ledger, "a", 3600), Err(HoldReason::BudgetService));
        assert_eq!(check(&ledger, "a", 3601), Ok(()));
    }

    #[test]
    fn the_books_outlive_the_process() {
        let charges = (0..6)
            .map(|i| Charge {
                service: key("a"),
                at: at(i),
            })
            .collect();
        let ledger = Ledger::new(&History {
            charges,
            ..History::default()
        });
        assert_eq!(check(&ledger, "a", 10), Err(HoldReason::BudgetService));
    }

    #[test]
    fn a_clock_that_jumps_back_does_not_open_the_gate() {
        let mut ledger = Ledger::default();
        for i in 0..6 {
            ledger.charge(Charge {
                service: key("a"),
                at: at(i),
            });
        }
        assert_eq!(
            check(&ledger, "a", -100_000),
            Err(HoldReason::BudgetService)
        );
    }

    #[test]
    fn one_heal_that_worked_costs_no_cool_down_and_failures_double_it() {
        let mut ledger = Ledger::default();
        ledger.end(ended("a", 0, HealOutcome::Healed));
        assert_eq!(check(&ledger, "a", 1), Ok(()));
        ledger.end(ended("a", 10, HealOutcome::StillStale));
        assert_eq!(check(&ledger, "a", 10 + 119), Err(HoldReason::CoolDown));
        assert_eq!(check(&ledger, "a", 10 + 121), Ok(()));
    }

    #[test]
    fn three_failed_proofs_in_a_row_open_the_breaker_for_all() {
        let mut ledger = Ledger::default();
        for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
            ledger.end(ended(name, i as i64, HealOutcome::StillStale));
        }
        assert_eq!(check(&ledger, "z", 10), Err(HoldReason::BreakerOpen));
        assert_eq!(check(&ledger, "z", 700), Ok(()));
        ledger.end(ended("c", 3, HealOutcome::Healed));
        assert_eq!(check(&ledger, "z", 10), Ok(()));
    }
}
