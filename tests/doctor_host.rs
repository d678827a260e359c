//! `doctor` as the user of the image, on a host that gives it nothing: what may not be read or written is
//! named with what to do. Needs root, as the other tests of the real thing do.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The user of the image (see the Dockerfiles).
const USER: u32 = 64200;

/// The program where another user may start it: the build's folder may be closed to others.
fn program(folder: &Path) -> Result<std::path::PathBuf> {
    let path = folder.join("slice-healer");
    std::fs::copy(env!("CARGO_BIN_EXE_slice-healer"), &path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}

#[test]
fn what_the_modules_user_may_not_touch_is_named_with_the_fix() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let state = folder.path().join("state");
    std::fs::create_dir(&state)?;
    std::fs::set_permissions(&state, Permissions::from_mode(0o755))?;
    // As journald leaves it: the folder may be listed, the files are root's and the group's.
    let journal = folder.path().join("journal");
    let machine = journal.join("0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(&machine)?;
    let file = machine.join("system.journal");
    std::fs::write(&file, "closed")?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o640))?;

    let out = Command::new(program(folder.path())?)
        .uid(USER)
        .gid(USER)
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("SLICE_HEALER__STORE__DIRECTORY", &state)
        .env("SLICE_HEALER__JOURNAL__DIRECTORIES", &journal)
        .env("SLICE_HEALER__DBUS__ADDRESS", "unix:path=/nonexistent/bus")
        .current_dir("/")
        .args(["doctor", "-o", "json"])
        .output()
        .context("tests of the real thing run as root")?;
    ensure!(out.status.code() == Some(1), "{out:?}");
    let document: Value = serde_json::from_slice(&out.stdout)?;
    let checks = document["checks"].as_array().context("no checks")?;
    for (id, status, fix) in [
        ("state-directory", "fail", "64200"),
        ("journal", "fail", "getent group systemd-journal"),
        ("dbus", "warn", "/run/dbus/system_bus_socket"),
        ("kubeconfig", "fail", "config/kubernetes"),
    ] {
        let check = checks.iter().find(|check| check["id"] == id);
        let check = check.with_context(|| format!("{id}: {document}"))?;
        ensure!(check["status"] == status, "{check}");
        let told = check["fix"].as_str().unwrap_or_default();
        ensure!(told.contains(fix), "{check}");
    }
    Ok(())
}
