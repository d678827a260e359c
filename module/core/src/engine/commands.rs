//! Requests from outside: direct methods, the control socket, the command line.

use super::Engine;
use super::dry_run::Would;
use crate::event::{Command, CommandId, Now, Output, Reply, Request};
use crate::heal::gate::HoldReason;
use crate::heal::incident::Incident;
use crate::judge::{Finding, RemedyAction, Severity};
use crate::model::ServiceKey;

impl Engine {
    pub(super) fn command(&mut self, command: Command, now: Now, out: &mut Vec<Output>) {
        // The request sees what the watches know at this moment.
        self.judge_dirty(now, out);
        let reply = match command.request {
            Request::Inspect { namespace, service } => {
                Reply::Findings(self.select(namespace.as_deref(), service.as_deref()))
            }
            Request::Heal {
                service,
                action,
                dry_run,
            } => self.heal_by_hand(&service, action, dry_run, now, out),
        };
        self.reply(command.id, reply, out);
    }

    fn reply(&self, id: CommandId, reply: Reply, out: &mut Vec<Output>) {
        out.push(Output::Reply { id, reply });
    }

    fn select(&self, namespace: Option<&str>, service: Option<&str>) -> Vec<Finding> {
        let wanted = |have: Option<&str>, want: Option<&str>| want.is_none() || have == want;
        let mut all = self.findings();
        all.retain(|f| {
            wanted(f.namespace.as_deref(), namespace) && wanted(f.service.as_deref(), service)
        });
        all
    }

    /// A heal by hand needs no grace and no mode; everything else holds for it as well.
    fn heal_by_hand(
        &mut self,
        key: &ServiceKey,
        action: Option<RemedyAction>,
        dry_run: bool,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Reply {
        if !self.links.synced() {
            return Reply::Held {
                reason: HoldReason::NotSynced,
                detail: "the view of the cluster is not complete".to_owned(),
            };
        }
        if self.world.view(key).service().is_none() {
            return Reply::NotFound;
        }
        let Some(incident) = self.incidents.get(key) else {
            return self.nothing_to_heal(key);
        };
        let id = incident.id.clone();
        if dry_run {
            return self.dry_run(incident, action, now);
        }
        if let Some(active) = &self.active {
            return if active.ladder.service() == key {
                Reply::Accepted { incident: id }
            } else {
                Reply::Busy
            };
        }
        if self.policy.closed.is_none() && self.guard_tripped(now) {
            // In mode `observe` nobody else asks.
            self.ask_canary(now, out);
        }
        if let Err((reason, detail, _)) = self.may_write(key, now) {
            return Reply::Held { reason, detail };
        }
        self.announce_of(key, now, out);
        self.start(key, Some(action), now, out);
        Reply::Accepted { incident: id }
    }

    fn dry_run(&self, incident: &Incident, action: Option<RemedyAction>, now: Now) -> Reply {
        if let Err((reason, detail, _)) = self.may_write(&incident.service, now) {
            return Reply::Held { reason, detail };
        }
        match self.would_write(incident, action, now) {
            Ok(Would { action, writes, .. }) => Reply::WouldAct {
                action,
                detail: incident
                    .findings
                    .first()
                    .map(|f| format!("{} {}", f.message, f.remedy.reason))
                    .unwrap_or_default(),
                writes,
            },
            Err((reason, detail)) => Reply::Held { reason, detail },
        }
    }

    /// Why a Service without an incident is left alone: it is right, or what is wrong with it is
    /// nothing that a write to its slices mends.
    fn nothing_to_heal(&self, key: &ServiceKey) -> Reply {
        let worst = self
            .findings
            .get(key)
            .and_then(|all| all.iter().find(|f| f.severity < Severity::Info));
        match worst {
            None => Reply::NothingToDo,
            Some(f) => Reply::Held {
                reason: f.remedy.hold.unwrap_or(HoldReason::NotManaged),
                detail: format!("{} {}", f.message, f.remedy.reason),
            },
        }
    }
}
