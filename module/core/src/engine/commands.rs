//! Requests from outside: direct methods, the control socket, the command line.

use super::Engine;
use crate::event::{Command, CommandId, Now, Output, Reply, Request};
use crate::heal::explain::explain;
use crate::heal::gate::HoldReason;
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
            let first = &incident.findings[0];
            return Reply::WouldAct {
                action: action.unwrap_or(first.remedy.action),
                detail: format!("{} {}", first.message, first.remedy.reason),
            };
        }
        if let Some(active) = &self.active {
            return if active.ladder.service() == key {
                Reply::Accepted { incident: id }
            } else {
                Reply::Busy
            };
        }
        if let Err((reason, until)) = self.budget(key, now.wall) {
            return Reply::Held {
                reason,
                detail: format!("{} until {until}", explain(reason)),
            };
        }
        if let Some(detail) = self.guard_holds(now) {
            return Reply::Held {
                reason: HoldReason::CanaryFailed,
                detail,
            };
        }
        self.start(key, Some(action), now, out);
        Reply::Accepted { incident: id }
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
