//! The shared core of the emulator: options, clock, certificates, the state behind its lock, the
//! signal that something changed, and the tasks. Holds the lock only for synchronous work.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::clock::Clock;
use super::error::EdgeError;
use super::inputs::InputStore;
use super::options::EdgeOptions;
use super::pki::Pki;
use super::record::PacketLog;
use super::routes::Route;
use super::state::{Counters, Module, State};
use super::twin::ModuleTwin;

/// What every task of the emulator shares.
pub(crate) struct World {
    pub(crate) options: EdgeOptions,
    pub(crate) clock: Clock,
    pub(crate) routes: Vec<Route>,
    /// Present and earlier generation of certificates.
    pki: Mutex<(Arc<Pki>, Option<Arc<Pki>>)>,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    /// Ends every task.
    pub(crate) stop: CancellationToken,
    tasks: TaskTracker,
}

impl World {
    /// Makes identities and certificates. Listens on nothing yet.
    ///
    /// # Errors
    /// When a route does not parse, a certificate cannot be made, or the journal file not be opened.
    pub(crate) fn new(options: EdgeOptions) -> Result<Arc<Self>, EdgeError> {
        let routes = options
            .routes
            .iter()
            .map(|route| Route::parse(route))
            .collect::<Result<_, _>>()?;
        let pki = Pki::new(&options.device_id, &options.gateway_host)?;
        let file = options.journal_file.as_ref().map(|path| {
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|source| EdgeError::File {
                    path: path.display().to_string(),
                    source,
                })
        });
        let modules = options
            .modules
            .iter()
            .map(|name| (name.clone(), Module::new()))
            .collect();
        let state = State {
            modules,
            live: Default::default(),
            sessions: Default::default(),
            upstream: Default::default(),
            telemetry: Vec::new(),
            wanting_sync: Default::default(),
            packets: PacketLog::new(options.journal_limit, file.transpose()?),
            faults: Default::default(),
            counters: Counters::default(),
            connections: 0,
            messages: 0,
        };
        Ok(Arc::new(Self {
            options,
            clock: Clock::default(),
            routes,
            pki: Mutex::new((Arc::new(pki), None)),
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Changes the state and wakes whoever waits for a change.
    pub(crate) fn change<R>(&self, action: impl FnOnce(&mut State) -> R) -> R {
        let result = action(&mut self.lock());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// Looks at the state without waking anybody.
    pub(crate) fn look<R>(&self, action: impl FnOnce(&State) -> R) -> R {
        action(&self.lock())
    }

    /// Wakes at every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The certificates in force.
    pub(crate) fn pki(&self) -> Arc<Pki> {
        Arc::clone(&self.pki.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// The certificates before the last rotation.
    pub(crate) fn outdated_pki(&self) -> Option<Arc<Pki>> {
        self.pki
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .1
            .clone()
    }

    /// Replaces root, Edge CA and server certificate.
    ///
    /// # Errors
    /// When a certificate cannot be made.
    pub(crate) fn rotate_pki(&self) -> Result<(), EdgeError> {
        let new = Arc::new(Pki::new(
            &self.options.device_id,
            &self.options.gateway_host,
        )?);
        let mut pki = self.pki.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut pki.0, new);
        pki.1 = Some(old);
        Ok(())
    }

    /// Runs a task until it ends or the emulator stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Ends every task and waits for their end.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of a test's own condition while it looks must not spoil the emulator.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Module {
    fn new() -> Self {
        Self {
            keys: [random_key(), random_key()],
            generation: uuid::Uuid::new_v4().simple().to_string(),
            twin: ModuleTwin::new(),
            inputs: InputStore::default(),
            held: Vec::new(),
        }
    }

    /// The primary key as a connection string carries it.
    pub(crate) fn primary_key(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(&self.keys[0])
    }
}

fn random_key() -> Vec<u8> {
    let (one, two) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    [one.into_bytes(), two.into_bytes()].concat()
}
