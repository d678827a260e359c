//! Carries out what the engine wants: on disk first, then acts, then replies and events.

use std::time::Duration;

use slice_core::event::{Act, Action, ActionId, Event, EventType, Outcome, Output, Reply};
use slice_core::heal::gate::{HoldReason, REFRESH};
use slice_core::judge::RemedyAction;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use super::{Incoming, Pump, Waiting};
use crate::act::recorder::Note;
use crate::app::books::Batch;
use crate::serve::ControlReply;

impl Pump {
    pub(super) async fn carry_out(&mut self, outputs: Vec<Output>) {
        let mut batch = Batch::default();
        let mut actions = Vec::new();
        let mut events = Vec::new();
        let mut replies = Vec::new();
        for output in outputs {
            match output {
                Output::Persist(record) => batch.records.push(record),
                Output::Act(action) => actions.push(action),
                Output::Emit(event) => events.push(event),
                Output::Reply { id, reply } => replies.push((id, reply)),
            }
        }
        let node = self.engine.node().map(str::to_owned);
        for event in &events {
            let settings = self.desired.in_force();
            batch
                .messages
                .extend(self.teller.tell(event, node.as_deref(), settings));
        }
        let persisted = self.persist(batch).await;
        for action in actions {
            match &persisted {
                Err(why) if is_write(&action.act) => {
                    // Without the intent on disk a crash could repeat the write without limit.
                    let text = format!("not begun, the state could not be written: {why}");
                    self.spawn_done(action.id, Outcome::Failed(text));
                }
                _ => {
                    self.note_action(&action.act);
                    self.spawn(action);
                }
            }
        }
        // First the replies: who asked for a heal follows the events that come after.
        for (id, reply) in replies {
            if let Some(who) = self.waiting.remove(&id) {
                self.reply(who, reply);
            }
        }
        for event in events {
            self.timeline.note(&event);
            self.note(&event);
            self.tell_follower(&event);
            // Nobody listening is no error.
            let _ = self.events.send(event);
        }
    }

    fn reply(&mut self, who: Waiting, reply: Reply) {
        match (who, reply) {
            (Waiting::Asked(asked), reply) => {
                let _ = asked.send(reply);
            }
            (Waiting::Method(method), reply) => {
                let answer = crate::report::methods::answer(reply);
                method.respond(answer.status, answer.body);
            }
            (Waiting::Control(responder), Reply::Accepted { incident }) => {
                self.following.insert(incident, responder);
            }
            (Waiting::Control(responder), reply) => {
                self.tasks.spawn(responder.reply(reply.into()));
            }
        }
    }

    fn tell_follower(&mut self, event: &Event) {
        let Some(incident) = &event.incident else {
            return;
        };
        if let Some(follower) = self.following.get(incident) {
            follower.event(event.message.clone());
        }
        let (EventType::Heal, Some(heal)) = (event.kind, &event.heal) else {
            return;
        };
        let Some(follower) = self.following.remove(incident) else {
            return;
        };
        let reply = ControlReply::of_heal(heal, event.message.clone());
        self.tasks.spawn(follower.reply(reply));
    }

    async fn persist(&mut self, batch: Batch) -> Result<(), String> {
        let mut batch = self.unsaved.with(batch);
        let told = !batch.messages.is_empty();
        if batch.is_empty() {
            self.save_cursor(false).await;
            return Ok(());
        }
        // Whatever is written takes the cursor along.
        batch.cursor = self.cursor.take();
        let cursor = batch.cursor.clone();
        match self.books.commit(batch.clone()).await {
            Ok(()) => {
                self.cursor_saved = Instant::now();
                if told {
                    self.outbox_filled.notify_one();
                }
                Ok(())
            }
            Err(why) => {
                error!(error = %why, "the state could not be written; nothing is healed until it can");
                self.cursor = self.cursor.take().or(cursor);
                self.unsaved.keep(batch);
                Err(why.to_string())
            }
        }
    }

    pub(super) async fn save_cursor(&mut self, now: bool) {
        let every = self.desired.in_force().journal.commit_interval.0;
        // A position on disk says that everything before it is.
        if !self.unsaved.is_empty() {
            return;
        }
        if self.cursor.is_none() || (!now && self.cursor_saved.elapsed() < every) {
            return;
        }
        let batch = Batch {
            cursor: self.cursor.take(),
            ..Batch::default()
        };
        let cursor = batch.cursor.clone();
        if let Err(why) = self.books.commit(batch).await {
            warn!(error = %why, "the journal position could not be written");
            self.cursor = cursor;
        }
        self.cursor_saved = Instant::now();
    }

    fn spawn(&mut self, action: Action) {
        debug!(?action, "begins");
        let actor = self.actor.clone();
        let tx = self.tx.clone();
        self.tasks.spawn(async move {
            let id = action.id;
            let outcome = actor.run(action).await;
            // The pump being gone means that the process is ending.
            let _ = tx.send(Incoming::Done(id, outcome)).await;
        });
    }

    fn spawn_done(&mut self, id: ActionId, outcome: Outcome) {
        let tx = self.tx.clone();
        self.tasks.spawn(async move {
            let _ = tx.send(Incoming::Done(id, outcome)).await;
        });
    }

    /// Tells on the Service itself, where `kubectl describe` shows it. `observe` writes nothing,
    /// not even that.
    fn note(&mut self, event: &Event) {
        let (Some(service), Some(heal)) = (&event.service, &event.heal) else {
            return;
        };
        let observed = heal.held() == Some(HoldReason::ObserveMode);
        if event.kind != EventType::Heal || observed {
            return;
        }
        let Some(uid) = self.engine.service_uid(service) else {
            return;
        };
        let note = Note {
            service: service.clone(),
            uid,
            warning: !heal
                .outcome
                .is_some_and(slice_core::event::HealOutcome::is_success),
            reason: match heal.outcome {
                None => "SliceHealHeld".to_owned(),
                Some(o) if o.is_success() => "SliceHealed".to_owned(),
                Some(_) => "SliceHealFailed".to_owned(),
            },
            action: camel(heal.action.as_str()),
            text: event.message.clone(),
        };
        self.record(note);
    }

    /// Tells of a write on the Service that it is made for.
    fn note_action(&mut self, act: &Act) {
        let (service, action, reason, text) = match act {
            Act::Refresh { service, .. } => (
                service,
                RemedyAction::RefreshService,
                "SliceRefresh",
                format!("annotation {REFRESH} is written, so that the controller looks anew"),
            ),
            Act::Delete { service, slice, .. } => (
                service,
                RemedyAction::DeleteSlice,
                "SliceDelete",
                format!(
                    "EndpointSlice {slice} is deleted; refreshes follow until a new one is there"
                ),
            ),
            _ => return,
        };
        let Some(uid) = self.engine.service_uid(service) else {
            return;
        };
        self.record(Note {
            service: service.clone(),
            uid,
            warning: false,
            reason: reason.to_owned(),
            action: camel(action.as_str()),
            text,
        });
    }

    fn record(&mut self, note: Note) {
        let Some(recorder) = self.recorder.clone() else {
            return;
        };
        self.tasks.spawn(async move {
            if let Err(why) = recorder.record(&note, Duration::from_secs(10)).await {
                debug!(error = why, "no Kubernetes Event was written");
            }
        });
    }
}

fn is_write(act: &Act) -> bool {
    matches!(act, Act::Refresh { .. } | Act::Delete { .. })
}

/// `refresh-service` → `RefreshService`.
fn camel(text: &str) -> String {
    text.split('-')
        .map(|word| {
            let mut chars = word.chars();
            chars.next().map_or_else(String::new, |first| {
                first.to_ascii_uppercase().to_string() + chars.as_str()
            })
        })
        .collect()
}
