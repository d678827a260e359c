//! Driving the emulated device: faults, drops, restarts, certificates, the clock, input messages.

use std::time::Duration;

use super::device::Edge;
use super::error::EdgeError;
use super::faults::Faults;
use super::listener::Listener;
use super::message::InputMessage;

impl Edge {
    /// Changes the faults in force; they hold until changed back.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        self.world.change(|state| change(&mut state.faults));
    }

    /// Drops every connection of modules without a word.
    pub fn drop_connections(&self) {
        self.world
            .change(|state| state.close_all("the test asked for a drop"));
    }

    /// Stops edgeHub: the port closes and every connection ends. What a restart loses depends on
    /// `persistent_storage`.
    pub async fn stop_hub(&self) {
        let mut hub = self.hub.lock().await;
        if let Some(listener) = hub.take() {
            listener.stop(&self.world).await;
            if !self.world.options.persistent_storage {
                self.world.change(|state| state.wipe_store());
            }
        }
    }

    /// Starts edgeHub again on the same port.
    ///
    /// # Errors
    /// When the port has been taken in the meantime.
    pub async fn start_hub(&self) -> Result<(), EdgeError> {
        let mut hub = self.hub.lock().await;
        if hub.is_none() {
            *hub = Some(Listener::start(&self.world, self.mqtt).await?.0);
        }
        Ok(())
    }

    /// Stops and starts edgeHub.
    ///
    /// # Errors
    /// When the port has been taken in the meantime.
    pub async fn restart(&self) -> Result<(), EdgeError> {
        self.stop_hub().await;
        self.start_hub().await
    }

    /// Makes a new root, Edge CA and server certificate, as a renewal of the Edge CA does: the trust
    /// bundle changes and edgeHub restarts.
    ///
    /// # Errors
    /// When a certificate cannot be made or the port has been taken.
    pub async fn rotate_certificates(&self) -> Result<(), EdgeError> {
        self.stop_hub().await;
        self.world.rotate_pki()?;
        self.start_hub().await
    }

    /// Forgets the twins, sessions and messages that edgeHub has stored; the cloud keeps its own.
    pub fn wipe_store(&self) {
        self.world.change(|state| state.wipe_store());
    }

    /// Lets the hub's clock jump forward: tokens age, and so do the times between twin reads.
    pub fn advance_clock(&self, by: Duration) {
        self.world.clock.advance(by);
        // Wakes whoever waits for a time of day.
        self.world.change(|_| ());
    }

    /// Takes back every jump of the hub's clock, so that tokens of now are good again.
    pub fn reset_clock(&self) {
        self.world.clock.reset();
        self.world.change(|_| ());
    }

    /// Puts a message on a module's input, as a route from another module does.
    ///
    /// # Errors
    /// When the device has no such module.
    pub fn send_input(
        &self,
        module: &str,
        input: &str,
        body: impl Into<bytes::Bytes>,
        properties: &[(&str, &str)],
    ) -> Result<(), EdgeError> {
        let device = self.world.options.device_id.clone();
        let properties = properties
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        let system = [
            ("cdid".to_owned(), device),
            ("cmid".to_owned(), "lab".to_owned()),
        ]
        .into();
        let body = body.into();
        let known = self.world.change(|state| {
            state.messages += 1;
            let id = state.messages;
            let found = state.modules.get_mut(module)?;
            found.inputs.push(InputMessage {
                id,
                input: input.to_owned(),
                properties,
                system,
                body,
            });
            Some(())
        });
        known.ok_or_else(|| EdgeError::UnknownModule(module.to_owned()))?;
        self.world.pump_inputs(module);
        Ok(())
    }
}
