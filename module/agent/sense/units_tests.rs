//! A private bus with a systemd of the test's own on it.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use zbus::message::Type;
use zbus::{Message, ObjectPath, Variant};

use super::*;

const K3S: &str = "/org/freedesktop/systemd1/unit/k3s_2eservice";
const LONG: Duration = Duration::from_secs(60);

/// A dbus-daemon, ended with the test.
struct Bus {
    daemon: Child,
    _folder: TempDir,
    address: String,
}

impl Bus {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_at(folder)
    }

    fn start_at(folder: TempDir) -> Self {
        let socket = folder.path().join("bus");
        drop(std::fs::remove_file(&socket));
        let mut daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
            .arg(format!("--address=unix:path={}", socket.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("dbus-daemon is installed (Debian: apt-get install dbus-daemon)");
        // Its address is printed once it listens.
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("unix:path="), "dbus-daemon did not start");
        // Without the guid, which is another one after a restart.
        let address = format!("unix:path={}", socket.display());
        Self {
            daemon,
            _folder: folder,
            address,
        }
    }

    /// Ends the daemon and leaves its folder for another one.
    fn stop(mut self) -> TempDir {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
        std::mem::replace(&mut self._folder, tempfile::tempdir().unwrap())
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}

type Shared = Arc<Mutex<Look>>;

/// A systemd that knows one unit, k3s.service.
struct Systemd {
    bus: Connection,
    unit: Shared,
}

impl Systemd {
    async fn start(address: &str, unit: Shared) -> Self {
        let bus = Builder::address(address).build().await.unwrap();
        let mut calls = MessageStream::from(&bus);
        bus.request_name(SYSTEMD).await.unwrap();
        let (served, shared) = (bus.clone(), Arc::clone(&unit));
        tokio::spawn(async move {
            while let Some(Ok(call)) = calls.next().await {
                if call.message_type() == Type::MethodCall {
                    answer(&served, &call, &shared).await;
                }
            }
        });
        Self { bus, unit }
    }

    /// Changes the unit, and signals it as systemd does.
    async fn change(&self, change: impl FnOnce(&mut Look)) {
        change(&mut self.unit.lock().unwrap());
        let changed: HashMap<&str, Variant<'_>> = HashMap::new();
        let body = (UNIT, changed, vec!["ActiveState"]);
        self.bus
            .emit_signal(None::<&str>, K3S, PROPERTIES, "PropertiesChanged", &body)
            .await
            .unwrap();
    }
}

async fn answer(bus: &Connection, call: &Message, unit: &Shared) {
    let look = unit.lock().unwrap().clone();
    let header = call.header();
    match header.member().unwrap().as_str() {
        "Subscribe" => bus.reply(&header, &()).await.unwrap(),
        "ListUnitsByNames" => {
            let asked: Vec<String> = call.body().deserialize().unwrap();
            let rows: Vec<_> = asked
                .iter()
                .map(|name| {
                    let known = name == "k3s.service";
                    let path = if known {
                        K3S
                    } else {
                        "/org/freedesktop/systemd1/unit/none"
                    };
                    (
                        name.as_str(),
                        "",
                        if known { "loaded" } else { "not-found" },
                        if known {
                            look.state.as_str()
                        } else {
                            "inactive"
                        },
                        "",
                        "",
                        ObjectPath::try_from(path).unwrap(),
                        0_u32,
                        "",
                        ObjectPath::try_from("/").unwrap(),
                    )
                })
                .collect();
            bus.reply(&header, &rows).await.unwrap();
        }
        "Get" => {
            let (_, name): (String, String) = call.body().deserialize().unwrap();
            let value = match name.as_str() {
                "InvocationID" => Variant::from(look.invocation),
                "MainPID" => Variant::from(look.main_pid),
                other => panic!("nobody should ask for {other}"),
            };
            bus.reply(&header, &value).await.unwrap();
        }
        other => panic!("nobody should call {other}"),
    }
}

fn running(invocation: u8, main_pid: u32) -> Look {
    Look {
        state: "active".to_owned(),
        invocation: vec![invocation; 16],
        main_pid,
    }
}

fn options(address: &str) -> Options {
    Options {
        address: Some(address.to_owned()),
        // Changes have to come by signal: no test waits for the next look.
        poll: LONG * 10,
        longest_pause: Duration::from_millis(100),
        ..Options::default()
    }
}

async fn next(rx: &mut mpsc::Receiver<UnitChange>) -> (String, String, bool) {
    let change = timeout(LONG, rx.recv())
        .await
        .expect("a change comes")
        .unwrap();
    (change.unit, change.state, change.restarted)
}

fn k3s(state: &str, restarted: bool) -> (String, String, bool) {
    ("k3s.service".to_owned(), state.to_owned(), restarted)
}

#[tokio::test]
async fn stops_starts_and_restarts_are_told_as_they_are_signalled() {
    let bus = Bus::start();
    let unit: Shared = Arc::new(Mutex::new(running(1, 100)));
    let systemd = Systemd::start(&bus.address, unit).await;
    let (tx, mut rx) = mpsc::channel(8);
    let stop = CancellationToken::new();
    let (mut state, task) = spawn(tx, stop.clone(), options(&bus.address));
    assert_eq!(
        next(&mut rx).await,
        k3s("active", false),
        "the first look is no restart"
    );
    timeout(LONG, state.wait_for(|s| *s == BusState::Following))
        .await
        .unwrap()
        .unwrap();

    // Stopped and started: the start is the restart.
    systemd
        .change(|u| {
            u.state = "inactive".to_owned();
            u.main_pid = 0;
        })
        .await;
    assert_eq!(next(&mut rx).await, k3s("inactive", false));
    systemd.change(|u| *u = running(2, 200)).await;
    assert_eq!(next(&mut rx).await, k3s("active", true));

    // So fast that no state in between was seen.
    systemd.change(|u| *u = running(3, 300)).await;
    assert_eq!(next(&mut rx).await, k3s("active", true));
    // A signal without a change is no news: the next thing told is the failure.
    systemd.change(|_| ()).await;
    systemd.change(|u| u.state = "failed".to_owned()).await;
    assert_eq!(next(&mut rx).await, k3s("failed", false));

    stop.cancel();
    timeout(LONG, task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_missing_bus_is_a_state_and_a_restart_behind_it_is_still_seen() {
    let bus = Bus::start();
    let address = bus.address.clone();
    let folder = bus.stop();
    let (tx, mut rx) = mpsc::channel(8);
    let (mut state, task) = spawn(tx, CancellationToken::new(), options(&address));
    let absent = |s: &BusState| matches!(s, BusState::Absent(why) if why.contains("mount"));
    timeout(LONG, state.wait_for(absent))
        .await
        .unwrap()
        .unwrap();

    let bus = Bus::start_at(folder);
    let unit: Shared = Arc::new(Mutex::new(running(1, 100)));
    let systemd = Systemd::start(&address, Arc::clone(&unit)).await;
    assert_eq!(next(&mut rx).await, k3s("active", false));
    timeout(LONG, state.wait_for(|s| *s == BusState::Following))
        .await
        .unwrap()
        .unwrap();

    // The whole bus goes, the unit restarts meanwhile, the bus comes back.
    drop(systemd);
    let folder = bus.stop();
    timeout(LONG, state.wait_for(absent))
        .await
        .unwrap()
        .unwrap();
    *unit.lock().unwrap() = running(2, 200);
    let _bus = Bus::start_at(folder);
    let _systemd = Systemd::start(&address, unit).await;
    assert_eq!(next(&mut rx).await, k3s("active", true));

    drop(rx);
    task.abort();
}

#[test]
fn a_restart_is_another_run_of_a_unit_that_is_up() {
    let first = running(1, 100);
    assert!(running(2, 200).restarted_since(&first));
    assert!(
        running(1, 200).restarted_since(&first),
        "another main process in the same run"
    );
    assert!(!running(1, 100).restarted_since(&first));
    let down = Look {
        state: "inactive".to_owned(),
        ..running(2, 0)
    };
    assert!(!down.restarted_since(&first));
    assert!(
        running(2, 200).restarted_since(&down.over(&first)),
        "told once it is up again"
    );
}
