//! Who may connect, and what a session keeps: authentication, takeover, stored subscriptions.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::hub::Peer;
use super::mqtt::{Connect, Packet};
use super::sas::{Audience, SasToken, Username};
use super::state::{Closer, Live, Outgoing};
use super::topics::Subject;
use super::world::World;

/// A client that may come in.
pub(crate) struct Admitted {
    pub(crate) peer: Peer,
    pub(crate) token_expires: i64,
}

impl World {
    /// Judges a CONNECT as edgeHub does.
    ///
    /// # Errors
    /// The CONNACK code and the reason.
    pub(crate) fn admit(
        &self,
        connection: u64,
        connect: &Connect,
    ) -> Result<Admitted, (u8, String)> {
        if connect.level != 4 {
            return Err((1, format!("protocol level {}", connect.level)));
        }
        let refuse = |reason: &str| (5, reason.to_owned());
        let username = connect
            .username
            .as_deref()
            .ok_or_else(|| refuse("no user name"))?;
        let username = Username::parse(username).map_err(refuse)?;
        let module = username
            .module
            .ok_or_else(|| refuse("leaf devices are not known here"))?;
        if connect.client_id != format!("{}/{module}", username.device) {
            return Err(refuse("client id and user name differ"));
        }
        let keys = self.look(|state| state.modules.get(&module).map(|found| found.keys.clone()));
        let keys = keys.filter(|_| username.device == self.options.device_id);
        let keys = keys.ok_or_else(|| refuse("unknown device or module"))?;
        let password = connect.password.as_deref().map(String::from_utf8_lossy);
        let token =
            SasToken::parse(&password.ok_or_else(|| refuse("no password"))?).map_err(refuse)?;
        let audience = Audience {
            hosts: &[&self.options.hub_host, &self.options.gateway_host],
            device: &self.options.device_id,
            module: &module,
        };
        token
            .verify(&[&keys[0], &keys[1]], &audience)
            .map_err(refuse)?;
        let skew = i64::try_from(self.options.clock_skew.as_secs()).unwrap_or(0);
        if token.expires + skew < self.clock.now().as_second() {
            return Err(refuse("the token has expired"));
        }
        let others = self.look(|state| {
            state
                .live
                .keys()
                .filter(|client| **client != connect.client_id)
                .count()
        });
        if others >= self.options.max_clients {
            return Err((3, "too many clients".into()));
        }
        let client = connect.client_id.clone();
        let peer = Peer {
            connection,
            client,
            module,
            model_id: username.model_id,
        };
        Ok(Admitted {
            peer,
            token_expires: token.expires,
        })
    }

    /// Opens the session: ends an older connection of the same client, restores or deletes what was
    /// stored, and queues CONNACK before anything else can be queued.
    pub(crate) fn open_session(
        self: &Arc<Self>,
        admitted: &Admitted,
        clean: bool,
        outbox: &mpsc::Sender<Outgoing>,
        closer: &Closer,
    ) {
        let Peer {
            connection,
            client,
            module,
            ..
        } = admitted.peer.clone();
        self.change(|state| {
            if let Some(old) = state.live.remove(&client) {
                old.closer.close("taken over by a new connection");
                state.counters.taken_over += 1;
                state
                    .modules
                    .get_mut(&module)
                    .into_iter()
                    .for_each(|m| m.inputs.recall());
            }
            let stored = if clean {
                state.sessions.remove(&client);
                None
            } else {
                state.sessions.get(&client).cloned()
            };
            let present = stored.is_some();
            // The queue is new and empty, so there is room.
            let _ = outbox.try_send(Outgoing::Packet(Packet::ConnAck(present, 0)));
            state.counters.connected += 1;
            state.live.insert(
                client.clone(),
                Live {
                    connection,
                    module: module.clone(),
                    filters: stored.unwrap_or_default(),
                    clean,
                    token_expires: admitted.token_expires,
                    outbox: outbox.clone(),
                    closer: closer.clone(),
                    calls: Default::default(),
                    unacked: VecDeque::new(),
                },
            );
        });
        self.resume(&module);
    }

    /// Grants subscriptions and answers with SUBACK. QoS 2 is granted as 1; filters that mean nothing
    /// are granted and never match.
    pub(crate) fn subscribe(self: &Arc<Self>, peer: &Peer, id: u16, filters: Vec<(String, u8)>) {
        self.change(|state| {
            let Some(live) = state.live.get_mut(&peer.client) else {
                return;
            };
            let granted: Vec<u8> = filters.iter().map(|(_, qos)| (*qos).min(1)).collect();
            live.filters.extend(
                filters
                    .into_iter()
                    .map(|(filter, qos)| (filter, qos.min(1))),
            );
            if !live.clean {
                state
                    .sessions
                    .insert(peer.client.clone(), live.filters.clone());
            }
            let _ = live
                .outbox
                .try_send(Outgoing::Packet(Packet::SubAck(id, granted)));
        });
        self.resume(&peer.module);
    }

    /// Takes subscriptions back and answers with UNSUBACK.
    pub(crate) fn unsubscribe(&self, peer: &Peer, id: u16, filters: &[String]) {
        self.change(|state| {
            let Some(live) = state.live.get_mut(&peer.client) else {
                return;
            };
            live.filters.retain(|filter, _| !filters.contains(filter));
            if !live.clean {
                state
                    .sessions
                    .insert(peer.client.clone(), live.filters.clone());
            }
            let _ = live.outbox.try_send(Outgoing::Packet(Packet::UnsubAck(id)));
        });
    }

    /// The client acknowledges the oldest message that waits for it. Ids say nothing: they repeat.
    pub(crate) fn acknowledged(self: &Arc<Self>, peer: &Peer) {
        let input = self.change(|state| {
            let input = state.live.get_mut(&peer.client)?.unacked.pop_front()??;
            state.modules.get_mut(&peer.module)?.inputs.done(input);
            Some(input)
        });
        if input.is_some() {
            self.pump_inputs(&peer.module);
        }
    }

    /// The connection is gone. Does nothing when a newer one has taken its place.
    pub(crate) fn close_session(&self, peer: &Peer, reason: &str) {
        self.change(|state| {
            if state
                .live
                .get(&peer.client)
                .is_some_and(|live| live.connection == peer.connection)
            {
                state.live.remove(&peer.client);
                state
                    .modules
                    .get_mut(&peer.module)
                    .into_iter()
                    .for_each(|m| m.inputs.recall());
            }
            state
                .packets
                .event(peer.connection, Some(&peer.client), "closed", reason);
        });
    }

    /// Starts what waits for subscriptions that are there now.
    fn resume(self: &Arc<Self>, module: &str) {
        let device = &self.options.device_id;
        if self.look(|state| state.listens(device, module, Subject::Methods)) {
            self.replay_calls(module);
        }
        self.pump_inputs(module);
    }
}
