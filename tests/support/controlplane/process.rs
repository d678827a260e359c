//! One child process that cannot outlive the tests.
//!
//! A static is never dropped and a killed test runs no destructor, so dropping is not enough: a
//! small shell stands between the test and the child. It is the child's parent, holds the read end
//! of a pipe whose other end is ours, and kills the child when that end is closed, for whatever
//! reason. As the parent it also keeps the pid from being given to somebody else.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

/// `$1` is the log, the rest the child.
const KEEPER: &str = r#"
log=$1; shift
"$@" </dev/null >>"$log" 2>&1 &
echo $!
exec >/dev/null
read -r _
kill -KILL $! 2>/dev/null
wait $!
"#;

/// `$1` is the folder. Its last user may be dying at the same moment, so once may not be enough.
const SWEEPER: &str = r#"
read -r _
while [ -e "$1" ]; do rm -rf "$1" || sleep 0.1; done
"#;

/// A running (or ended) child and where it logs.
#[derive(Debug)]
pub struct Process {
    keeper: Child,
    pid: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; its output is appended to `log`.
    ///
    /// # Errors
    /// When the shell cannot be started. A program that ends at once is seen by [`Self::is_alive`].
    pub fn spawn(program: &Path, args: &[String], log: &Path) -> Result<Self> {
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(log)
            .arg(program)
            .args(args)
            // Logs are compared with our clock.
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A Ctrl-C in the terminal ends the test, and that ends the child; not the keeper first.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let mut line = String::new();
        let out = keeper.stdout.take().context("the keeper has no stdout")?;
        BufReader::new(out).read_line(&mut line)?;
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("no pid of {}: {line:?}", program.display()))?;
        Ok(Self {
            keeper,
            pid,
            log: log.to_owned(),
        })
    }

    /// Whether the child runs (a stopped one does, a zombie does not).
    pub fn is_alive(&self) -> bool {
        let path = format!("/proc/{}/stat", self.pid.as_raw_nonzero());
        // The state follows the command name, which is in brackets and may hold anything.
        fs::read_to_string(path)
            .ok()
            .and_then(|stat| Some(stat.rsplit_once(") ")?.1.starts_with(['Z', 'X'])))
            == Some(false)
    }

    /// Freezes the child: its sockets stay open and nobody answers.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen child go on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.pid, signal)
            .with_context(|| format!("signal {signal:?} to {}", self.log.display()))
    }

    /// The end of the log, for error messages.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

impl Drop for Process {
    /// Kills the child, as a power cut would, and waits until it is gone.
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// A folder that is removed with its owner, also when that is killed.
#[derive(Debug)]
pub struct Scratch(Child);

impl Scratch {
    /// Has `folder` removed when the value is dropped or this process ends.
    ///
    /// # Errors
    /// When the shell cannot be started.
    pub fn of(folder: &Path) -> Result<Self> {
        let sweeper = Command::new("sh")
            .args(["-c", SWEEPER, "sweeper"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self(sweeper))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
