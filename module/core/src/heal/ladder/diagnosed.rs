//! What a diagnosis and the canary's answer mean for the heal.

use super::{Ctx, End, Ladder, Next, Phase};
use crate::event::{Act, CanaryAnswer};
use crate::heal::clues::Clues;
use crate::heal::diagnose::{Verdict, diagnose};
use crate::heal::gate::HoldReason;

/// How many notes of a diagnosis go into a sentence.
const NOTES: usize = 2;

impl Ladder {
    pub(super) fn diagnosed(&mut self, clues: &Clues, ctx: &Ctx<'_>, next: &mut Next) {
        let found = diagnose(&self.service, &self.uid, clues);
        // What was found before this heal wrote anything says nothing of what its writes will meet.
        let of_old = std::mem::take(&mut self.diagnose_first);
        self.diagnosed = !of_old;
        next.story
            .extend(found.notes.iter().map(|n| format!("diagnosis: {n}")));
        self.notes = found.notes;
        match found.verdict {
            // It was so after the refreshes of an earlier heal. Refresh, and then ask again.
            Verdict::Contested(_) if of_old => self.read(Phase::Reread, next),
            Verdict::Wedged(text) | Verdict::Contested(text) => {
                self.finish(End::Held(HoldReason::Wedged, text), next)
            }
            Verdict::NoLeader(text) if ctx.policy.canary => {
                next.story.push(format!("diagnosis: {text}"));
                self.no_leader = Some(text);
                self.go(Phase::Canary, Act::Canary, next);
            }
            Verdict::NoLeader(text) => {
                self.finish(End::Held(HoldReason::CanaryFailed, text), next);
            }
            Verdict::Clear => {
                next.story
                    .push("diagnosis: nothing speaks against the next step".to_owned());
                self.read(Phase::Reread, next);
            }
        }
    }

    pub(super) fn canary_answered(&mut self, answer: CanaryAnswer, next: &mut Next) {
        let text = match answer {
            CanaryAnswer::Answered => {
                next.story
                    .push("the slice controller answered the canary".to_owned());
                // A Lease that nobody renews is a leftover, then.
                self.no_leader = None;
                self.canary_ok = true;
                return self.read(Phase::Reread, next);
            }
            CanaryAnswer::Absent(what) => match self.no_leader.take() {
                Some(text) => text,
                None => format!(
                    "a delete needs proof that the slice controller works, and there is no canary \
                     to ask: {what}; apply config/kubernetes, or set heal.canary = false"
                ),
            },
            CanaryAnswer::Unanswered => match self.no_leader.take() {
                Some(text) => format!("the slice controller did not answer the canary: {text}"),
                None => {
                    "the slice controller did not answer the canary: a deleted slice might not \
                         come back"
                        .to_owned()
                }
            },
        };
        self.finish(End::Held(HoldReason::CanaryFailed, text), next);
    }

    /// A sentence, with what the diagnosis found.
    pub(super) fn with_notes(&self, text: String) -> String {
        if self.notes.is_empty() {
            return text;
        }
        let shown: Vec<&str> = self.notes.iter().take(NOTES).map(String::as_str).collect();
        format!("{text}; {}", shown.join("; "))
    }
}
