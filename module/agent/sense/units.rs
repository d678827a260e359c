//! Follows the host's units that a node's health hangs on, over the system bus: a restarted k3s or
//! aziot-edged explains gaps, and an untracked slice.
//!
//! Only reads. A bus or a systemd that is not there is a state, looked for again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use slice_core::event::UnitChange;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use zbus::connection::Builder;
use zbus::{Connection, MessageStream, OwnedObjectPath, OwnedVariant};

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// For one answer, and for connecting.
const DEADLINE: Duration = Duration::from_secs(10);

/// The units that matter on a node with IoT Edge and Kubernetes.
pub const UNITS: [&str; 6] = [
    "aziot-edged.service",
    "iotedge.service",
    "k3s.service",
    "k3s-agent.service",
    "kubelet.service",
    "containerd.service",
];

/// How units are followed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The bus; without one `DBUS_SYSTEM_BUS_ADDRESS`, then the system's usual socket.
    pub address: Option<String>,
    /// Which units.
    pub units: Vec<String>,
    /// How often to look although nothing was signalled.
    pub poll: Duration,
    /// The longest pause between two attempts to connect.
    pub longest_pause: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: None,
            units: UNITS.map(str::to_owned).to_vec(),
            poll: Duration::from_secs(60),
            longest_pause: Duration::from_secs(60),
        }
    }
}

/// Whether units are seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BusState {
    /// Not tried yet.
    #[default]
    Connecting,
    /// Units are followed.
    Following,
    /// There is no bus, or no systemd on it; the text says why.
    Absent(String),
}

/// Starts following. The first look at each unit that exists is sent as well, so that its state is
/// known; it is no restart.
pub fn spawn(
    tx: mpsc::Sender<UnitChange>,
    shutdown: CancellationToken,
    options: Options,
) -> (watch::Receiver<BusState>, JoinHandle<()>) {
    let (state, seen) = watch::channel(BusState::default());
    let task = tokio::spawn(async move {
        let mut watcher = Watcher {
            tx,
            state,
            options,
            known: BTreeMap::new(),
        };
        shutdown.run_until_cancelled(watcher.run()).await;
    });
    (seen, task)
}

/// What a unit looked like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    state: String,
    /// Another one with every start.
    invocation: Vec<u8>,
    /// Zero while there is no main process.
    main_pid: u32,
}

impl Look {
    /// Whether the unit was started again since `earlier`.
    fn restarted_since(&self, earlier: &Self) -> bool {
        let up = matches!(self.state.as_str(), "active" | "reloading" | "refreshing");
        let other_run = !self.invocation.is_empty()
            && !earlier.invocation.is_empty()
            && self.invocation != earlier.invocation;
        let other_process =
            self.main_pid != 0 && earlier.main_pid != 0 && self.main_pid != earlier.main_pid;
        up && (other_run || other_process)
    }

    /// What is to be compared with next time. A unit that is down has not been started again yet,
    /// so the run before stays what its next start is compared with.
    fn over(self, earlier: &Self) -> Self {
        let up = matches!(self.state.as_str(), "active" | "reloading" | "refreshing");
        if up {
            self
        } else {
            Self {
                state: self.state,
                ..earlier.clone()
            }
        }
    }
}

/// Nobody listens any more.
struct Closed;

struct Watcher {
    tx: mpsc::Sender<UnitChange>,
    state: watch::Sender<BusState>,
    options: Options,
    /// Outlives connections: a restart of the bus must not hide the restart of a unit.
    known: BTreeMap<String, Look>,
}

impl Watcher {
    async fn run(&mut self) {
        let first = Duration::from_secs(1).min(self.options.longest_pause);
        let mut pause = first;
        loop {
            let reason = match self.connection().await {
                Ok(Closed) => return,
                Err(error) => error.to_string(),
            };
            if *self.state.borrow() == BusState::Following {
                pause = first;
            }
            self.tell(BusState::Absent(format!(
                "{reason}; mount /run/dbus/system_bus_socket to see the host's units"
            )));
            sleep(pause).await;
            pause = (pause * 2).min(self.options.longest_pause);
        }
    }

    /// One connection, until it fails.
    async fn connection(&mut self) -> zbus::Result<Closed> {
        let builder = match self.options.address.as_deref() {
            Some(address) => Builder::address(address),
            None => Builder::system(),
        };
        let connecting = builder.method_timeout(DEADLINE).build();
        let late = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer from the bus");
        let bus = timeout(DEADLINE, connecting).await.map_err(late)??;
        // systemd signals nothing before somebody has asked for it.
        bus.call_method(
            Some(SYSTEMD),
            "/org/freedesktop/systemd1",
            Some(MANAGER),
            "Subscribe",
            &(),
        )
        .await?;
        loop {
            let units = self.listed(&bus).await?;
            // Listened to before the look, so that no change falls between the two.
            let mut changes = Vec::new();
            for (_, path, _) in &units {
                let rule = format!(
                    "type='signal',interface='{PROPERTIES}',member='PropertiesChanged',path='{path}'"
                );
                changes.push(MessageStream::for_match_rule(rule.as_str(), &bus, None).await?);
            }
            let mut changes = stream::select_all(changes);
            loop {
                if self.look(&bus).await? {
                    return Ok(Closed);
                }
                self.tell(BusState::Following);
                if changes.is_empty() {
                    sleep(self.options.poll).await;
                    break;
                }
                match timeout(self.options.poll, changes.next()).await {
                    Ok(Some(change)) => drop(change?),
                    Ok(None) => return Err(zbus::Error::Failure("the bus is closed".to_owned())),
                    // Units that were installed meanwhile are listened to from now on.
                    Err(_) => break,
                }
            }
        }
    }

    /// The units that exist: name, path, state.
    async fn listed(
        &self,
        bus: &Connection,
    ) -> zbus::Result<Vec<(String, OwnedObjectPath, String)>> {
        type Row = (
            String,
            String,
            String,
            String,
            String,
            String,
            OwnedObjectPath,
            u32,
            String,
            OwnedObjectPath,
        );
        let answer = bus
            .call_method(
                Some(SYSTEMD),
                "/org/freedesktop/systemd1",
                Some(MANAGER),
                "ListUnitsByNames",
                &self.options.units,
            )
            .await?;
        let rows: Vec<Row> = answer.body().deserialize()?;
        let loaded = rows.into_iter().filter(|row| row.2 != "not-found");
        Ok(loaded.map(|row| (row.0, row.6, row.3)).collect())
    }

    /// Looks at every unit and sends what has changed; tells whether nobody listens any more.
    async fn look(&mut self, bus: &Connection) -> zbus::Result<bool> {
        for (unit, path, state) in self.listed(bus).await? {
            let invocation = property(bus, &path, UNIT, "InvocationID").await?;
            // Units that are no services have no main process.
            let main_pid = property(bus, &path, SERVICE, "MainPID")
                .await
                .unwrap_or_default();
            let now = Look {
                state,
                invocation,
                main_pid,
            };
            let earlier = self.known.get(&unit);
            let restarted = earlier.is_some_and(|e| now.restarted_since(e));
            if !restarted && earlier.is_some_and(|e| e.state == now.state) {
                // A main process that was found later is no news, but is remembered.
                let kept = earlier.map_or_else(|| now.clone(), |e| now.clone().over(e));
                self.known.insert(unit, kept);
                continue;
            }
            info!(unit, state = now.state, restarted, "unit");
            let change = UnitChange {
                unit: unit.clone(),
                state: now.state.clone(),
                restarted,
                at: Timestamp::now(),
            };
            let kept = earlier.map_or_else(|| now.clone(), |e| now.clone().over(e));
            self.known.insert(unit, kept);
            if self.tx.send(change).await.is_err() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn tell(&self, state: BusState) {
        self.state.send_if_modified(|now| {
            let news = *now != state;
            if news {
                debug!(?state, "system bus");
                *now = state;
            }
            news
        });
    }
}

async fn property<T>(
    bus: &Connection,
    path: &OwnedObjectPath,
    interface: &str,
    name: &str,
) -> zbus::Result<T>
where
    T: TryFrom<OwnedVariant>,
    T::Error: Into<zbus::Error>,
{
    let answer = bus
        .call_method(
            Some(SYSTEMD),
            path,
            Some(PROPERTIES),
            "Get",
            &(interface, name),
        )
        .await?;
    let value: OwnedVariant = answer.body().deserialize()?;
    T::try_from(value).map_err(Into::into)
}

#[cfg(test)]
#[path = "units_tests.rs"]
mod tests;
