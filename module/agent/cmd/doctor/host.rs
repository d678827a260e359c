//! The host: state directory and file, clock, D-Bus and unit states.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use zbus::Connection;
use zbus::connection::Builder;

use super::{Check, Look};
use crate::settings::Enabled;
use crate::store::{FILE, Limits, Store, StoreError};

/// No build of this program is older; a clock that says so was never set.
const BUILT_AFTER: &str = "2026-01-01T00:00:00Z";

/// Where journald takes entries.
const LOG_SOCKET: &str = "/run/systemd/journal/socket";

/// How long the bus may take.
const BUS: Duration = Duration::from_secs(5);

pub(super) async fn checks(look: &Look) -> Vec<Check> {
    let mut checks = vec![
        directory(&look.settings.store.directory),
        state(look),
        clock(look.now),
        log_socket(Path::new(LOG_SOCKET)),
    ];
    checks.extend(dbus(look).await);
    checks
}

fn directory(directory: &Path) -> Check {
    let id = "state-directory";
    let shown = directory.display();
    let fix = "bind a writable directory of the host there, owned by the module's user (64200), or set store.directory";
    if !directory.is_dir() {
        return Check::fail(id, format!("{shown} is not there"), fix);
    }
    let probe = directory.join(format!(".doctor-{}", std::process::id()));
    let written = fs::File::create(&probe).and_then(|mut file| {
        file.write_all(b"probe")?;
        file.sync_all()
    });
    // The probe may not exist, or belong to a file system that went read-only meanwhile.
    let _ = fs::remove_file(&probe);
    match written {
        Ok(()) => Check::ok(id, format!("{shown} can be written")),
        Err(error) => Check::fail(id, format!("{shown} cannot be written: {error}"), fix),
    }
}

fn state(look: &Look) -> Check {
    let id = "state-format";
    let directory = &look.settings.store.directory;
    let path = directory.join(FILE);
    if !path.exists() {
        return Check::ok(id, "there is no state file yet; the first start makes it");
    }
    // A copy is looked at: opening a damaged file would move it aside.
    let Ok(copy) = copy(&path) else {
        return Check::warn(
            id,
            format!("{} cannot be read", path.display()),
            "run doctor as root or as the module's user",
        );
    };
    let store = &look.settings.store;
    let limits = Limits {
        bytes: store.outbox_bytes,
        messages: store.outbox_messages,
    };
    match Store::open(copy.0.as_path(), limits) {
        Ok((store, found)) => match found.set_aside {
            None => Check::ok(
                id,
                format!(
                    "{} is whole, {} messages wait in it",
                    path.display(),
                    store.stats().outbox_messages
                ),
            ),
            Some((_, reason)) => Check::warn(
                id,
                format!("{} is of no use: {reason}", path.display()),
                "the next start moves it aside under a name that says so, and begins anew",
            ),
        },
        Err(StoreError::InUse { .. }) => Check::ok(id, "in use by the running module"),
        Err(error) => Check::fail(id, error.to_string(), "check the disk"),
    }
}

/// A directory that goes with its owner.
struct Copy(std::path::PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        // What is left lies in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(path: &Path) -> std::io::Result<Copy> {
    let name = format!(
        "slice-healer-doctor-{}-{}",
        std::process::id(),
        uuid::Uuid::new_v4()
    );
    let copy = Copy(std::env::temp_dir().join(name));
    fs::create_dir(&copy.0)?;
    fs::copy(path, copy.0.join(FILE))?;
    Ok(copy)
}

fn clock(now: Timestamp) -> Check {
    let id = "clock";
    let shown = now.strftime("%Y-%m-%dT%H:%M:%SZ");
    let earliest: Timestamp = BUILT_AFTER.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    let fix = "set up time synchronisation on the host (systemd-timesyncd or chrony); tokens and certificates depend on it";
    if now < earliest {
        return Check::fail(
            id,
            format!("the clock says {shown}, before this program was built"),
            fix,
        );
    }
    if Path::new("/run/systemd/timesync").is_dir()
        && !Path::new("/run/systemd/timesync/synchronized").exists()
    {
        return Check::warn(
            id,
            format!("the clock says {shown} and was not synchronised since boot"),
            fix,
        );
    }
    Check::ok(id, format!("the clock says {shown}"))
}

/// Whether the module's own log gets into the host's journal.
fn log_socket(path: &Path) -> Check {
    use std::os::unix::fs::FileTypeExt as _;
    let id = "log-socket";
    let is_socket = fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        return Check::ok(id, format!("{} takes log entries", path.display()));
    }
    Check::warn(
        id,
        format!(
            "{} is not there: the module's log is on standard output only",
            path.display()
        ),
        "bind /run/systemd/journal of the host into the container",
    )
}

async fn dbus(look: &Look) -> Vec<Check> {
    let dbus = &look.settings.dbus;
    if dbus.enabled == Enabled::Never {
        return vec![
            Check::skipped("dbus", "dbus.enabled is never"),
            Check::skipped("units", "dbus.enabled is never"),
        ];
    }
    let connection = match tokio::time::timeout(BUS, connect(dbus.address.get())).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return no_bus(look, &error.to_string()),
        Err(_) => return no_bus(look, "it does not answer"),
    };
    let mut checks = vec![Check::ok("dbus", "the system bus answers")];
    let mut states = Vec::new();
    for unit in dbus.units.as_slice() {
        match tokio::time::timeout(BUS, active_state(&connection, unit)).await {
            Ok(Ok(state)) => states.push((unit, state)),
            Ok(Err(error)) => {
                checks.push(Check::warn(
                    "units",
                    format!("unit states cannot be read: {error}"),
                    "is systemd on this bus?",
                ));
                return checks;
            }
            Err(_) => {
                checks.push(Check::warn(
                    "units",
                    "systemd does not answer on the bus",
                    "is systemd on this bus?",
                ));
                return checks;
            }
        }
    }
    // A unit that is not installed reads as inactive: one of iotedge and aziot-edged always is.
    let failed: Vec<String> = states
        .iter()
        .filter(|(_, state)| state == "failed")
        .map(|(unit, _)| (*unit).clone())
        .collect();
    let active: Vec<String> = states
        .iter()
        .filter(|(_, state)| state == "active")
        .map(|(unit, _)| (*unit).clone())
        .collect();
    checks.push(if !failed.is_empty() {
        Check::fail(
            "units",
            format!("failed: {}", failed.join(", ")),
            "systemctl status and journalctl -u on the host say why",
        )
    } else if active.is_empty() {
        Check::warn(
            "units",
            "none of the units in dbus.units is active on this host",
            "name this host's units in dbus.units",
        )
    } else {
        Check::ok("units", format!("active: {}", active.join(", ")))
    });
    checks
}

fn no_bus(look: &Look, reason: &str) -> Vec<Check> {
    let message =
        format!("the system bus cannot be used: {reason}; restarts of units will not be seen");
    let fix = "bind /run/dbus/system_bus_socket of the host into the container, or set dbus.enabled to never";
    let check = match look.settings.dbus.enabled {
        Enabled::Always => Check::fail("dbus", message, fix),
        Enabled::Auto | Enabled::Never => Check::warn("dbus", message, fix),
    };
    vec![check, Check::skipped("units", "needs the system bus")]
}

async fn connect(address: Option<&str>) -> zbus::Result<Connection> {
    match address {
        Some(address) => Builder::address(address).build().await,
        None => Connection::system().await,
    }
}

async fn active_state(connection: &Connection, unit: &str) -> zbus::Result<String> {
    let manager = zbus::Proxy::new(
        connection,
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
    )
    .await?;
    let path: zbus::OwnedObjectPath = manager.call("LoadUnit", &(unit,)).await?;
    let proxy = zbus::Proxy::new(
        connection,
        "org.freedesktop.systemd1",
        path,
        "org.freedesktop.systemd1.Unit",
    )
    .await?;
    proxy.get_property("ActiveState").await
}
