//! The command `signals` as one who types it sees it: sources, forms, exit codes.

use std::io::{BufRead, BufReader, Read as _, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use slice_lab::journal::{Format, JournalWriter};

use crate::support::journald::{MACHINE, until};

const BEGIN: u64 = 1_790_000_000_000_000;

fn healer(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slice-healer"));
    command.arg("signals").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Result<(i32, Vec<Value>, String)> {
    outcome(healer(arguments).args(["-o", "json"]).output()?)
}

fn outcome(output: Output) -> Result<(i32, Vec<Value>, String)> {
    let lines = String::from_utf8(output.stdout)?;
    let signals = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let code = output.status.code().context("killed")?;
    Ok((
        code,
        signals,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

/// A journal of ten lines in two files: three that match, one that would in another unit.
fn journal(root: &Path) -> Result<Vec<String>> {
    let mut writer = JournalWriter::create(root.join(MACHINE), Format::MODERN)?;
    let mut cursors = Vec::new();
    let gave_up = r#"E1 endpointslice_controller.go:363] "Retry budget exceeded, dropping service out of the queue" key="line1/model-endpoint" err="x""#;
    for (n, (unit, message)) in [
        ("aziot-edged.service", "started"),
        (
            "iotedge.service",
            "Cache hit for endpoint slice, skipping update",
        ),
        (
            "cron.service",
            "Cache hit for endpoint slice, skipping update",
        ),
        ("k3s.service", gave_up),
        ("k3s.service", "all quiet"),
        (
            "iotedge.service",
            "Failed to sync EndpointSlice line1/model-endpoint-abc12: conflict",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        cursors.push(writer.unit_line(unit, "test", message, BEGIN + n as u64 * 1_000_000)?);
        if n == 2 {
            writer.rotate()?;
        }
    }
    writer.close()?;
    Ok(cursors)
}

fn text(signal: &Value, field: &str) -> String {
    signal[field].as_str().unwrap_or("null").to_owned()
}

#[test]
fn a_folder_a_file_and_what_journalctl_prints_give_the_same() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cursors = journal(dir.path())?;
    let root = dir.path().to_string_lossy().into_owned();
    let (code, signals, errors) = run(&["--journal", &root])?;
    assert_eq!((code, errors.as_str()), (1, ""));
    let rules: Vec<String> = signals.iter().map(|s| text(s, "rule")).collect();
    assert_eq!(rules, ["cache-hit", "controller-gave-up", "sync-conflict"]);
    let keys = [
        "rule",
        "kind",
        "severity",
        "at",
        "unit",
        "namespace",
        "service",
        "slice",
        "pod",
        "count",
        "message",
        "cursor",
    ];
    for signal in &signals {
        let object = signal.as_object().context("an object")?;
        for key in keys {
            assert!(object.contains_key(key), "{key} is missing in {signal}");
        }
    }
    let strong = &signals[1];
    assert_eq!(text(strong, "service"), "model-endpoint");
    assert_eq!(text(strong, "namespace"), "line1");
    assert_eq!(text(strong, "severity"), "critical");
    assert_eq!(text(strong, "kind"), "failed-sync");
    assert_eq!(text(strong, "unit"), "k3s.service");
    assert_eq!(text(strong, "cursor"), cursors[3]);
    assert_eq!(strong["count"], 1);
    assert_eq!(signals[0]["service"], Value::Null);
    assert_eq!(text(&signals[2], "slice"), "model-endpoint-abc12");

    for form in ["export", "json", "json-pretty", "json-seq"] {
        let printed = Command::new("journalctl")
            .args(["--all", "-q", "-o", form, "--directory", &root])
            .output()?;
        let mut child = healer(&["--stdin", "-o", "json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        child
            .stdin
            .take()
            .context("stdin")?
            .write_all(&printed.stdout)?;
        let (code, piped, _) = outcome(child.wait_with_output()?)?;
        assert_eq!(code, 1);
        assert_eq!(piped, signals, "through journalctl -o {form}");
    }

    let file = dir.path().join(MACHINE).join("system.journal");
    let (code, of_file, _) = run(&["--file", &file.to_string_lossy()])?;
    assert_eq!((code, of_file.as_slice()), (1, &signals[1..]));

    let since = jiff::Timestamp::from_microsecond(i64::try_from(BEGIN)? + 5_000_000)?;
    let (code, late, _) = run(&["--journal", &root, "--since", &since.to_string()])?;
    assert_eq!((code, late.as_slice()), (1, &signals[2..]));
    let (code, none, _) = run(&["--journal", &root, "--since", "1h"])?;
    assert_eq!((code, none.len()), (0, 0), "the fixture is older than that");
    Ok(())
}

#[test]
fn exit_codes_tell_none_some_and_error() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut writer = JournalWriter::create(dir.path().join(MACHINE), Format::MODERN)?;
    writer.unit_line("iotedge.service", "iotedge", "all quiet", BEGIN)?;
    let root = dir.path().to_string_lossy().into_owned();
    assert_eq!(run(&["--journal", &root])?.0, 0);
    let (code, signals, errors) = run(&["--journal", "/nowhere/journal"])?;
    assert!(
        code == 2 && signals.is_empty() && errors.contains("/nowhere"),
        "{errors}"
    );
    let empty = tempfile::tempdir()?;
    assert_eq!(run(&["--journal", &empty.path().to_string_lossy()])?.0, 2);
    std::fs::write(empty.path().join("x.journal"), "no journal at all")?;
    let (code, _, errors) = run(&["--file", &empty.path().join("x.journal").to_string_lossy()])?;
    assert!(code == 2 && errors.contains("x.journal"), "{errors}");
    let mut child = healer(&["--stdin"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("stdin")?
        .write_all(b"Dec 01 edge iotedge[1]: hello\n")?;
    let (code, _, errors) = outcome(child.wait_with_output()?)?;
    assert!(code == 2 && errors.contains("-o export"), "{errors}");
    Ok(())
}

#[test]
fn rules_of_a_file_replace_the_built_in_ones_and_bad_ones_are_named() -> Result<()> {
    let dir = tempfile::tempdir()?;
    journal(dir.path())?;
    let rules = dir.path().join("rules.toml");
    std::fs::write(
        &rules,
        "[rules.quiet]\npattern = 'all (?P<pod>quiet)'\nunits = ['k3s']\n[rules.broken]\npattern = '('\n",
    )?;
    let (root, rules) = (dir.path().to_string_lossy(), rules.to_string_lossy());
    let (code, signals, errors) = run(&["--journal", &root, "--rules", &rules])?;
    assert_eq!((code, signals.len()), (1, 1));
    assert_eq!(text(&signals[0], "pod"), "quiet");
    assert_eq!(text(&signals[0], "kind"), "custom");
    assert!(errors.contains("`broken`"), "{errors}");
    Ok(())
}

#[test]
fn following_prints_lines_as_they_are_written() -> Result<()> {
    let errors = follows(Command::new(env!("CARGO_BIN_EXE_slice-healer")))?;
    ensure!(!errors.contains("polled"), "{errors}");
    Ok(())
}

#[test]
fn without_a_free_inotify_instance_it_polls_and_says_so() -> Result<()> {
    // A limit of a user namespace of its own, so that nobody else runs into it.
    let mut command = Command::new("unshare");
    command.args([
        "-Ur",
        "sh",
        "-c",
        r#"echo 0 > /proc/sys/user/max_inotify_instances && exec "$@""#,
        "sh",
        env!("CARGO_BIN_EXE_slice-healer"),
    ]);
    let errors = follows(command)?;
    ensure!(
        errors.contains("polled") && errors.contains("max_user_instances"),
        "{errors}"
    );
    Ok(())
}

/// Follows a journal that is written to and rotated; returns what was said beside the lines.
fn follows(mut command: Command) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let mut writer = JournalWriter::create(dir.path().join(MACHINE), Format::MODERN)?;
    let line = "Cache hit for endpoint slice, skipping update";
    let now = u64::try_from(jiff::Timestamp::now().as_microsecond())?;
    writer.unit_line("iotedge.service", "iotedge", line, now)?;
    let root = dir.path().to_string_lossy().into_owned();
    let mut child = command
        .args(["signals", "--journal", &root, "--follow", "-o", "json"])
        .args(["--since", "1h"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .try_for_each(|line| tx.send(line))
    });
    let next = || -> Result<Value> {
        let line = rx.recv_timeout(std::time::Duration::from_secs(60))?;
        Ok(serde_json::from_str(&line)?)
    };
    let first = next()?;
    assert_eq!(text(&first, "rule"), "cache-hit");
    let cursor = writer.unit_line("iotedge.service", "iotedge", line, now + 1)?;
    writer.rotate()?;
    let second = next()?;
    assert_eq!(text(&second, "cursor"), cursor);
    Command::new("kill")
        .args(["-s", "INT", &child.id().to_string()])
        .status()?;
    let mut code = None;
    until("the command ends", || {
        code = child.try_wait()?;
        Ok(code.is_some())
    })?;
    assert_eq!(code.and_then(|status| status.code()), Some(1));
    let mut errors = String::new();
    child
        .stderr
        .take()
        .context("stderr")?
        .read_to_string(&mut errors)?;
    Ok(errors)
}

#[test]
fn a_folder_that_may_not_be_read_is_named() -> Result<()> {
    // Where nobody may look, the program must not lie either.
    let dir = tempfile::Builder::new()
        .prefix("denied")
        .tempdir_in("/tmp")?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    let program = dir.path().join("slice-healer");
    std::fs::copy(env!("CARGO_BIN_EXE_slice-healer"), &program)?;
    let closed = dir.path().join("journal");
    journal(&closed)?;
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000))?;
    let mut command = if std::fs::metadata("/proc/self")?.uid() == 0 {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&program);
        command
    } else {
        Command::new(&program)
    };
    let output = command
        .args(["signals", "--journal"])
        .arg(&closed)
        .output()
        .context("setpriv is needed to give up root")?;
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(2),
        "{:?}: {errors}",
        output.status
    );
    ensure!(
        errors.contains(&*closed.to_string_lossy()) && errors.contains("systemd-journal"),
        "{errors}"
    );
    Ok(())
}
