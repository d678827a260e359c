//! `slice-healer run` as a process of its own, with a state directory of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use slice_lab::edge::Edge;
use tempfile::TempDir;

use super::wait::{Look, eventually};

/// How long the module may take to go down (docker kills after 10 s).
const GOING_DOWN: Duration = Duration::from_secs(10);
/// How long the twin may take on a slow machine.
pub const REPORTED: Duration = Duration::from_secs(90);

/// Settings of a module under test.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    variables: BTreeMap<String, String>,
    groups: Vec<PathBuf>,
    deaf_to_file_size: bool,
    /// A program with arguments that starts the module, in place of starting it directly.
    starter: Vec<String>,
}

impl Setup {
    /// Mode heal, any free port, nothing of the host that runs the tests.
    pub fn new(kubeconfig: &Path) -> Self {
        Self::default()
            .set("MODE", "heal")
            .set("CLUSTER__KUBECONFIG", &kubeconfig.display().to_string())
            .set("SERVE__PORT", "0")
            .set("DBUS__ENABLED", "never")
            .set("JOURNAL__DIRECTORIES", "/nonexistent/journal")
    }

    /// One setting, by the name that its variable has behind the prefix.
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.variables
            .insert(format!("SLICE_HEALER__{key}"), value.to_owned());
        self
    }

    /// A variable as it is.
    pub fn variable(mut self, key: &str, value: &str) -> Self {
        self.variables.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Variables as they are.
    pub fn variables(mut self, all: impl IntoIterator<Item = (String, String)>) -> Self {
        self.variables.extend(all);
        self
    }

    /// With an emulated device's hub, as the module that the device knows by the product's name.
    ///
    /// # Errors
    /// When the device does not know it.
    pub fn reporting_to(self, edge: &Edge) -> Result<Self> {
        let port = edge.mqtt_port().to_string();
        Ok(self
            .set("HUB__GATEWAY_PORT", &port)
            .variables(edge.module_env("slice-healer")?))
    }

    /// Runs it inside control groups from its first instruction on: their folders, one of each
    /// hierarchy.
    pub fn within(mut self, groups: &[PathBuf]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    /// A limit on the size of its files makes its writes fail instead of ending it.
    pub fn deaf_to_file_size(mut self) -> Self {
        self.deaf_to_file_size = true;
        self
    }

    /// The command; `SLICE_HEALER_BINARY` names another build than the one under test.
    fn command(&self) -> Command {
        let binary = std::env::var_os("SLICE_HEALER_BINARY")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_slice-healer").into());
        if self.deaf_to_file_size {
            // What is ignored stays so over `exec`; writes then fail with EFBIG.
            let mut shell = Command::new("sh");
            shell.args(["-c", r#"trap '' XFSZ; exec "$@""#, "sh"]);
            shell.arg(binary);
            return shell;
        }
        if let [program, rest @ ..] = self.starter.as_slice() {
            let mut command = Command::new(program);
            command.args(rest).arg(binary);
            return command;
        }
        if self.groups.is_empty() {
            return Command::new(binary);
        }
        let mut shell = Command::new("sh");
        // The shell enters the groups and becomes the module, under the same process id.
        let enter = r#"binary=$1; shift
            while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done
            shift; exec "$binary" "$@""#;
        shell.args(["-c", enter, "sh"]).arg(binary);
        shell.args(&self.groups).arg("--");
        shell
    }

    /// Has the module started by another program, such as one that enters a namespace.
    pub fn started_by(mut self, starter: Vec<String>) -> Self {
        self.starter = starter;
        self
    }

    /// Starts the module.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(&self) -> Result<Module> {
        self.start_in(TempDir::new()?)
    }

    /// Starts the module on a state directory that is there.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start_in(&self, state: TempDir) -> Result<Module> {
        Module::start(self.clone(), state)
    }
}

/// A running module. Killed when dropped.
pub struct Module {
    setup: Setup,
    state: TempDir,
    child: Child,
    log: PathBuf,
}

impl Module {
    fn start(setup: Setup, state: TempDir) -> Result<Self> {
        let log = state.path().join("log");
        let out = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)?;
        let child = setup
            .command()
            .arg("run")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("SLICE_HEALER__STORE__DIRECTORY", state.path())
            .envs(&setup.variables)
            .stdin(Stdio::null())
            .stderr(out.try_clone()?)
            .stdout(out)
            .spawn()
            .context("slice-healer run")?;
        Ok(Self {
            setup,
            state,
            child,
            log,
        })
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its state directory.
    pub fn directory(&self) -> &Path {
        self.state.path()
    }

    /// The variables that it runs with.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.setup.variables
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of its log that holds all of `texts`; returns the line.
    ///
    /// # Errors
    /// When `deadline` passes, with the end of the log.
    pub async fn await_line(&mut self, texts: &[&str], deadline: Duration) -> Result<String> {
        let (line, _) = eventually(&format!("log line with {texts:?}"), deadline, async || {
            if let Some(status) = self.child.try_wait()? {
                bail!("the module has ended ({status}):\n{}", self.log());
            }
            let log = self.log();
            let found = log
                .lines()
                .find(|line| texts.iter().all(|t| line.contains(t)));
            Ok(match found {
                Some(line) => Look::Done(line.to_owned()),
                None => Look::NotYet(tail(&log)),
            })
        })
        .await?;
        Ok(line)
    }

    /// Waits until it says that a Service's budget is used up.
    ///
    /// # Errors
    /// As [`Self::await_line`].
    pub async fn await_spent_budget(&mut self, deadline: Duration) -> Result<String> {
        let texts = ["kind=heal", "outcome=held", "as often as an hour allows"];
        self.await_line(&texts, deadline).await
    }

    /// SIGKILL, without any goodbye; the state directory stays.
    ///
    /// # Errors
    /// When the process cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it anew on the same state.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn restart(mut self) -> Result<Self> {
        let _ = self.kill();
        let setup = self.setup.clone();
        let state = std::mem::replace(&mut self.state, TempDir::new()?);
        Self::start(setup, state)
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn terminate(&mut self) -> Result<(ExitStatus, Duration)> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        eventually("the module goes down", GOING_DOWN, async || {
            Ok(match self.child.try_wait()? {
                Some(status) => Look::Done(status),
                None => Look::NotYet(tail(&self.log())),
            })
        })
        .await
    }
}

/// Waits until the cloud has a reported document of which something holds; returns the document.
///
/// # Errors
/// When [`REPORTED`] passes, with what was reported last and the module's log.
pub async fn reported(
    edge: &Edge,
    module: &Module,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Result<Value> {
    edge.wait_for(|view| holds(&view.reported()), REPORTED)
        .await
        .with_context(|| {
            let document = edge.cloud().reported();
            format!("{what}; reported {document}\n{}", module.log())
        })?;
    Ok(edge.cloud().reported())
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
