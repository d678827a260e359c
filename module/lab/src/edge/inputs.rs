//! Messages for the inputs of local modules: kept until acknowledged, at most twenty on their way,
//! sent again when no PUBACK comes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::message::{Bag, InputMessage};
use super::state::ToModule;
use super::topics::Subject;
use super::world::World;

/// Unacknowledged messages after which edgeHub sends nothing more.
const WINDOW: usize = 20;

/// One module's waiting messages, oldest first.
#[derive(Debug, Default)]
pub(crate) struct InputStore {
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    message: InputMessage,
    /// Number of the delivery that is on its way.
    under_way: Option<u64>,
    deliveries: u64,
}

impl InputStore {
    /// Keeps a message.
    pub(crate) fn push(&mut self, message: InputMessage) {
        self.waiting.push_back(Waiting {
            message,
            under_way: None,
            deliveries: 0,
        });
    }

    /// Messages without PUBACK.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &InputMessage> {
        self.waiting.iter().map(|waiting| &waiting.message)
    }

    /// A PUBACK came.
    pub(crate) fn done(&mut self, id: u64) {
        self.waiting.retain(|waiting| waiting.message.id != id);
    }

    /// The connection is gone: everything is to be sent again.
    pub(crate) fn recall(&mut self) {
        self.waiting
            .iter_mut()
            .for_each(|waiting| waiting.under_way = None);
    }

    /// The time for a PUBACK is over; true when the message was still on its way by this delivery.
    fn expire(&mut self, id: u64, delivery: u64) -> bool {
        let found = self
            .waiting
            .iter_mut()
            .find(|waiting| waiting.message.id == id && waiting.under_way == Some(delivery));
        found.map(|waiting| waiting.under_way = None).is_some()
    }

    /// The next message to send and the number of this delivery.
    fn next(&mut self) -> Option<(InputMessage, u64)> {
        if self
            .waiting
            .iter()
            .filter(|waiting| waiting.under_way.is_some())
            .count()
            >= WINDOW
        {
            return None;
        }
        let waiting = self
            .waiting
            .iter_mut()
            .find(|waiting| waiting.under_way.is_none())?;
        waiting.deliveries += 1;
        waiting.under_way = Some(waiting.deliveries);
        Some((waiting.message.clone(), waiting.deliveries))
    }
}

impl World {
    /// Sends what may be sent to a module's inputs and watches for the PUBACKs.
    pub(crate) fn pump_inputs(self: &Arc<Self>, module: &str) {
        let device = self.options.device_id.clone();
        let sent = self.change(|state| {
            let mut sent = Vec::new();
            while state.listens(&device, module, Subject::Inputs) {
                let next = state
                    .modules
                    .get_mut(module)
                    .and_then(|found| found.inputs.next());
                let Some((message, delivery)) = next else {
                    break;
                };
                let id = message.id;
                state.counters.redelivered += u64::from(delivery > 1);
                let bag = Bag {
                    properties: message.properties,
                    system: message.system,
                };
                let base = format!("devices/{device}/modules/{module}/inputs/{}", message.input);
                let topic = format!("{base}/{}", bag.encode());
                let subject = Subject::Inputs;
                let to = ToModule {
                    subject,
                    topic,
                    payload: message.body,
                    input: Some(id),
                };
                match state.send(&device, module, to) {
                    Some(0) => state
                        .modules
                        .get_mut(module)
                        .into_iter()
                        .for_each(|m| m.inputs.done(id)),
                    Some(_) => sent.push((id, delivery)),
                    // Not subscribed to this input, or the outbox is full: it stays "on its way" until
                    // its time is over and is tried again then.
                    None => sent.push((id, delivery)),
                }
            }
            sent
        });
        for (id, delivery) in sent {
            let (world, module) = (Arc::clone(self), module.to_owned());
            self.spawn(async move {
                tokio::time::sleep(world.options.message_ack_timeout).await;
                let expired = world.change(|state| {
                    state
                        .modules
                        .get_mut(&module)
                        .is_some_and(|m| m.inputs.expire(id, delivery))
                });
                if expired {
                    world.pump_inputs(&module);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn message(id: u64) -> InputMessage {
        InputMessage {
            id,
            input: "alarm".into(),
            properties: Default::default(),
            system: Default::default(),
            body: Bytes::new(),
        }
    }

    #[test]
    fn the_window_closes_at_twenty_and_opens_by_acknowledgement() {
        let mut store = InputStore::default();
        (1..=25).for_each(|id| store.push(message(id)));
        let sent: Vec<_> = std::iter::from_fn(|| store.next())
            .map(|(m, _)| m.id)
            .collect();
        assert_eq!(sent, (1..=20).collect::<Vec<_>>());
        store.done(1);
        assert_eq!(store.next().map(|(m, n)| (m.id, n)), Some((21, 1)));
        assert!(store.next().is_none());
    }

    #[test]
    fn an_expired_or_recalled_message_is_sent_again_first() {
        let mut store = InputStore::default();
        (1..=2).for_each(|id| store.push(message(id)));
        assert_eq!(store.next().map(|(m, n)| (m.id, n)), Some((1, 1)));
        assert!(store.expire(1, 1));
        assert!(!store.expire(1, 1), "a delivery expires once");
        assert_eq!(store.next().map(|(m, n)| (m.id, n)), Some((1, 2)));
        assert!(
            !store.expire(1, 1),
            "the timer of an earlier delivery counts no more"
        );
        store.recall();
        assert_eq!(store.next().map(|(m, n)| (m.id, n)), Some((1, 3)));
    }
}
