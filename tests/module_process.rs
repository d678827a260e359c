//! The module as a process of its own beside a real journald, with neither hub nor cluster: what it
//! logs and where, what it answers to the commands beside it, how it ends.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;

use crate::support::journald::{Journald, journalctl, until};

const PRODUCT: &str = env!("CARGO_BIN_EXE_slice-healer");
const MODULE: &str = "healer-under-test";
/// What a drain may take (README) and as much again for a busy machine.
const DRAIN: Duration = Duration::from_secs(16);

/// A running module; killed when dropped.
struct Module(Child);

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Settings of a module that has a state directory and nothing else.
fn settings(state: &Path, command: &mut Command) {
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", state)
        .env("IOTEDGE_MODULEID", MODULE)
        .env("SLICE_HEALER__STORE__DIRECTORY", state)
        .env("SLICE_HEALER__SERVE__PORT", "0")
        .env("SLICE_HEALER__HUB__ENABLED", "never")
        .env("SLICE_HEALER__DBUS__ENABLED", "never")
        .env("SLICE_HEALER__LABELS__SITE", "brno");
}

/// Starts `run` where the host's /run is the sandbox's.
fn start(journald: &Journald, state: &Path) -> Result<Module> {
    let run = journald.volatile();
    let run = run
        .parent()
        .and_then(Path::parent)
        .context("no /run in the sandbox")?;
    let root = is_root()?;
    let mut command = Command::new("unshare");
    settings(state, &mut command);
    let child = command
        .arg(if root { "-m" } else { "-Urm" })
        .args(["--propagation", "private", "sh", "-c"])
        .arg("mount --bind \"$1\" /run && exec \"$2\" run")
        .args(["sh".as_ref(), run.as_os_str(), PRODUCT.as_ref()])
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(state.join("stdout.log"))?)
        .stderr(std::fs::File::create(state.join("stderr.log"))?)
        .spawn()?;
    Ok(Module(child))
}

fn is_root() -> Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

/// A command beside the module.
fn beside(state: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(PRODUCT);
    settings(state, &mut command);
    Ok(command.args(arguments).stdin(Stdio::null()).output()?)
}

fn terminate(module: &mut Module) -> Result<i32> {
    let status = Command::new("kill")
        .args(["-s", "TERM", &module.0.id().to_string()])
        .status()?;
    ensure!(status.success(), "kill: {status}");
    let begun = Instant::now();
    loop {
        if let Some(status) = module.0.try_wait()? {
            return status.code().context("ended by a signal");
        }
        if begun.elapsed() > DRAIN {
            bail!("still running {DRAIN:?} after SIGTERM");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn it_logs_to_stdout_and_journal_answers_beside_it_and_ends_in_order() -> Result<()> {
    let journald = Journald::start(&["Storage=volatile"], &[])?;
    let state = tempfile::tempdir()?;
    let log = || std::fs::read_to_string(state.path().join("stdout.log")).unwrap_or_default();
    for round in 1..=2 {
        let mut module = start(&journald, state.path())?;
        until("the module answers on its control socket", || {
            ensure!(
                module.0.try_wait()?.is_none(),
                "the module ended:\n{}\n{}",
                log(),
                std::fs::read_to_string(state.path().join("stderr.log"))?
            );
            Ok(beside(state.path(), &["health"])?.status.success())
        })?;

        let shown = beside(state.path(), &["config"])?;
        let text = String::from_utf8(shown.stdout)?;
        let site = text
            .lines()
            .find(|line| line.starts_with("labels.site"))
            .context("no labels.site")?;
        ensure!(
            site.contains("\"brno\"") && site.ends_with("# environment SLICE_HEALER__LABELS__SITE"),
            "{site}"
        );
        let doctor = beside(state.path(), &["doctor", "-o", "json"])?;
        let document: serde_json::Value = serde_json::from_slice(&doctor.stdout)?;
        ensure!(document["schema"] == "slice-healer/doctor/v1");
        ensure!(
            doctor.status.code() == Some(1),
            "there is no kubeconfig: {:?}",
            doctor.status
        );

        ensure!(terminate(&mut module)? == 0, "round {round}:\n{}", log());
        ensure!(
            !beside(state.path(), &["health"])?.status.success(),
            "nobody is there any more"
        );
    }

    // edgeAgent's form, as its documentation describes it.
    let form =
        Regex::new(r"^<[3-7]> \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+00:00 \[[A-Z]{3}\] - .")?;
    let lines = log();
    ensure!(lines.lines().count() > 2, "{lines}");
    for line in lines.lines() {
        ensure!(form.is_match(line), "{line}");
    }

    journald.signal("RTMIN+1")?;
    let own = format!("SYSLOG_IDENTIFIER={MODULE}");
    let started = Regex::new("^slice-healer starts")?;
    until("the module's entries are in the journal", || {
        let entries = journalctl(&journald.volatile(), &[&own])?;
        let mut starts = 0;
        for (_, fields) in &entries {
            let one = |name: &str| {
                let value = fields.get(name).and_then(|values| values.first());
                String::from_utf8_lossy(value.map_or(b"", Vec::as_slice)).into_owned()
            };
            ensure!(one("CONTAINER_NAME") == MODULE, "{fields:?}");
            if started.is_match(&one("MESSAGE")) {
                ensure!(
                    one("PRIORITY") == "5" && !one("VERSION").is_empty(),
                    "{fields:?}"
                );
                starts += 1;
            }
        }
        Ok(starts == 2)
    })
}

#[test]
fn settings_that_do_not_load_end_run_with_1_and_config_with_2() -> Result<()> {
    let state = tempfile::tempdir()?;
    for (command, code) in [("run", 1), ("config", 2), ("doctor", 2)] {
        let mut product = Command::new(PRODUCT);
        settings(state.path(), &mut product);
        let output = product
            .env("SLICE_HEALER__MODE", "heel")
            .env("SLICE_HEALER__SERVE__PROT", "1")
            .arg(command)
            .output()?;
        let error = String::from_utf8(output.stderr)?;
        ensure!(
            output.status.code() == Some(code),
            "{command}: {:?}",
            output.status
        );
        ensure!(output.stdout.is_empty(), "{command} wrote to stdout");
        for part in [
            "SLICE_HEALER__MODE",
            "`observe`",
            "SLICE_HEALER__SERVE__PROT",
        ] {
            ensure!(error.contains(part), "{command}: {part} is not in {error}");
        }
    }
    Ok(())
}
