//! One component of a control plane, and what a test may do to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail};

use super::files;
use super::process::Process;

/// A component that can be stopped, started again with the same arguments, and frozen.
#[derive(Debug)]
pub struct Component {
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    process: Mutex<Option<Process>>,
}

impl Component {
    /// A component that does not run yet.
    pub(super) fn new(name: &str, args: Vec<String>, logs: &Path) -> Result<Self> {
        Ok(Self {
            program: files::binary(name)?,
            args,
            log: logs.join(format!("{name}.log")),
            process: Mutex::new(None),
        })
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it; it is not yet ready when this returns.
    ///
    /// # Errors
    /// When it runs already, or the program cannot be started.
    pub fn start(&self) -> Result<()> {
        let mut process = self.process();
        if process.is_some() {
            bail!("{} runs already", self.program.display());
        }
        *process = Some(Process::spawn(&self.program, &self.args, &self.log)?);
        Ok(())
    }

    /// Kills it, as a power cut would; nothing happens when it does not run.
    pub fn stop(&self) {
        drop(self.process().take());
    }

    /// Freezes it: connections stay open, nobody answers.
    pub fn pause(&self) -> Result<()> {
        self.running(Process::pause)
    }

    /// Lets a frozen one go on.
    pub fn resume(&self) -> Result<()> {
        self.running(Process::resume)
    }

    fn running(&self, act: fn(&Process) -> Result<()>) -> Result<()> {
        act(self.process().as_ref().context("not started")?)
    }

    /// Fails, with the end of its log, when it has ended by itself.
    pub fn check_alive(&self) -> Result<()> {
        match self.process().as_ref() {
            Some(process) if !process.is_alive() => {
                bail!("{} ended:\n{}", self.program.display(), process.log_tail())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Everything it has logged since the control plane was made, across restarts.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Its log file.
    pub fn log_path(&self) -> &Path {
        &self.log
    }
}
