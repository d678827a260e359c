//! A real journald in a mount namespace of its own: as root, or in a user namespace without.
//!
//! Its /run, /var/log and machine id are folders of a temporary directory that the test sees under
//! [`Journald::volatile`] and [`Journald::persistent`]. The host's journal is never touched.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The machine id that the sandbox's journald believes in.
pub const MACHINE: &str = "5a1ce5a1ce5a1ce5a1ce5a1ce5a1ce00";
const DEADLINE: Duration = Duration::from_secs(60);

/// A running journald; killed with its directory when dropped.
pub struct Journald {
    dir: tempfile::TempDir,
    child: Child,
    env: Vec<(String, String)>,
}

impl Journald {
    /// Starts one with these lines in its `[Journal]` section and these variables.
    pub fn start(config: &[&str], env: &[(&str, &str)]) -> Result<Self> {
        // In memory, as /run is: on a disk journald does not finish its move to /var. And short,
        // as socket addresses must be.
        let dir = tempfile::Builder::new()
            .prefix("jd")
            .tempdir_in("/dev/shm")?;
        let run = dir.path().join("run");
        fs::create_dir_all(run.join("systemd/journal"))?;
        fs::create_dir_all(run.join("systemd/journald.conf.d"))?;
        fs::create_dir_all(run.join("log/journal"))?;
        fs::create_dir_all(dir.path().join("varlog"))?;
        fs::write(dir.path().join("machine-id"), format!("{MACHINE}\n"))?;
        let quiet = "ReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\nRateLimitBurst=0\n";
        fs::write(
            run.join("systemd/journald.conf.d/test.conf"),
            format!("[Journal]\n{quiet}{}\n", config.join("\n")),
        )?;
        let env: Vec<_> = env
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        let child = spawn(dir.path(), &env)?;
        let journald = Self { dir, child, env };
        journald.ready()?;
        Ok(journald)
    }

    /// Where /run/log/journal is.
    pub fn volatile(&self) -> PathBuf {
        self.dir.path().join("run/log/journal")
    }

    /// Where /var/log/journal is, once it is made.
    pub fn persistent(&self) -> PathBuf {
        self.dir.path().join("varlog/journal")
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name (`USR2` rotates, `USR1` flushes, `RTMIN+1` syncs).
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status()?;
        ensure!(status.success(), "kill -s {name}: {status}");
        Ok(())
    }

    /// Kills it without warning and starts it again on the same directories.
    pub fn crash(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        for socket in ["socket", "stdout"] {
            let _ = fs::remove_file(self.socket(socket));
        }
        self.child = spawn(self.dir.path(), &self.env)?;
        self.ready()
    }

    /// A socket for entries with any fields but the trusted ones.
    pub fn client(&self) -> Result<Client> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(DEADLINE))?;
        Ok(Client {
            socket,
            path: self.socket("socket"),
        })
    }

    /// A stdout stream of `unit`, as systemd would open it. One unit a process and journald: the
    /// first contact decides what journald takes the process for.
    pub fn stream(&self, identifier: &str, unit: &str) -> Result<UnixStream> {
        let before = self.descriptors()?;
        let mut stream = UnixStream::connect(self.socket("stdout"))?;
        // What is sent before journald has accepted carries no credentials, hence no unit.
        self.until("journald accepts the stream", || {
            Ok(self.descriptors()? > before)
        })?;
        stream.write_all(format!("{identifier}\n{unit}\n6\n1\n0\n0\n0\n").as_bytes())?;
        Ok(stream)
    }

    /// It has moved its journal from /run to /var.
    pub fn has_flushed(&self) -> bool {
        self.socket("flushed").exists()
    }

    /// How many descriptors it has open.
    fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid()))?.count())
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.dir.path().join("run/systemd/journal").join(name)
    }

    /// Its sockets are made anew, and its journal is open. Nothing is sent: the first contact of
    /// this process is the test's own.
    fn ready(&self) -> Result<()> {
        let machine = |directory: PathBuf| directory.join(MACHINE).join("system.journal");
        self.until("journald takes entries", || {
            Ok(self.socket("socket").exists()
                && self.socket("stdout").exists()
                && (machine(self.volatile()).exists() || machine(self.persistent()).exists()))
        })
    }

    /// Waits for a condition on this journald.
    pub fn until(&self, what: &str, holds: impl FnMut() -> Result<bool>) -> Result<()> {
        until(&format!("{what} (journald {})", self.pid()), holds)
    }
}

impl Drop for Journald {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition.
pub fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > DEADLINE {
            bail!("{what}: not within {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The first thing in the namespace is a shell that mounts and then becomes journald, so that the
/// child's process id is journald's.
fn spawn(dir: &Path, env: &[(String, String)]) -> Result<Child> {
    const SETUP: &str = r#"
        set -e
        mount --bind "$1/run" /run
        mount --bind "$1/varlog" /var/log
        mount --bind "$1/machine-id" /etc/machine-id
        exec /lib/systemd/systemd-journald"#;
    let root = fs::metadata("/proc/self")?.uid() == 0;
    Command::new("unshare")
        .arg(if root { "-m" } else { "-Urm" })
        .args(["--propagation", "private", "sh", "-c", SETUP, "sh"])
        .arg(dir)
        .envs(env.iter().map(|(k, v)| (k, v)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("unshare and systemd-journald are needed (as root, or with user namespaces)")
}

/// Writes entries in journald's native protocol.
pub struct Client {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Client {
    /// Sends one entry. A journald that is not there right now is an error.
    pub fn send(&self, fields: &[(&str, &[u8])]) -> Result<()> {
        let mut datagram = Vec::new();
        for (name, value) in fields {
            datagram.extend_from_slice(name.as_bytes());
            if value.contains(&b'\n') {
                datagram.push(b'\n');
                datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
            } else {
                datagram.push(b'=');
            }
            datagram.extend_from_slice(value);
            datagram.push(b'\n');
        }
        // With a time limit the call is not taken up again by itself after a signal, such as the end
        // of another test's child.
        loop {
            match self.socket.send_to(&datagram, &self.path) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    /// Sends entries `numbers` of a series: an identifier, a number, and `padding` bytes that
    /// differ from entry to entry.
    pub fn send_numbered(&self, identifier: &str, number: u64, padding: usize) -> Result<()> {
        let digits = number.to_string();
        let message: String = digits.chars().cycle().take(padding).collect();
        self.send(&[
            ("SYSLOG_IDENTIFIER", identifier.as_bytes()),
            ("NUMBER", digits.as_bytes()),
            ("MESSAGE", format!("number {number} {message}").as_bytes()),
        ])
    }
}

/// The fields of an entry, each with its values in a fixed order.
pub type Fields = BTreeMap<String, Vec<Vec<u8>>>;

/// What `journalctl` reads from `directory`: cursor and fields of each entry.
pub fn journalctl(directory: &Path, arguments: &[&str]) -> Result<Vec<(String, Fields)>> {
    let output = Command::new("journalctl")
        .arg("--directory")
        .arg(directory)
        .args(["--all", "--quiet", "-o", "json"])
        .args(arguments)
        .output()?;
    ensure!(
        output.status.success(),
        "journalctl: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
        .stdout
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(line)?;
            let mut cursor = String::new();
            let mut fields = Fields::new();
            for (name, value) in object {
                match name.as_str() {
                    "__CURSOR" => cursor = value.as_str().unwrap_or_default().to_owned(),
                    name if name.starts_with("__") => {}
                    _ => {
                        let mut values = values(&value)?;
                        values.sort();
                        fields.insert(name, values);
                    }
                }
            }
            Ok((cursor, fields))
        })
        .collect()
}

/// A string, an array of bytes, or an array of those where a field has several values.
fn values(value: &serde_json::Value) -> Result<Vec<Vec<u8>>> {
    use serde_json::Value;
    let bytes = |items: &[Value]| -> Option<Vec<u8>> {
        items
            .iter()
            .map(|item| item.as_u64().and_then(|byte| u8::try_from(byte).ok()))
            .collect()
    };
    match value {
        Value::String(text) => Ok(vec![text.clone().into_bytes()]),
        Value::Array(items) => match bytes(items) {
            Some(bytes) => Ok(vec![bytes]),
            None => items.iter().map(|v| Ok(values(v)?.concat())).collect(),
        },
        other => bail!("journalctl printed {other} as a field"),
    }
}
