//! Lines for the journal that become events, written while a module is disturbed in other ways.
//!
//! Writes and counts; what became of the lines is for the test to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::journald::Journald;

/// Lines that name one Service each, and one line that only repeats itself and is counted.
pub const RULES: &str = r#"
[rules.named]
severity = "warning"
pattern = '^stale (?P<service>s[0-9]+)$'
fields = { SYSLOG_IDENTIFIER = ["edge"] }

[rules.repeated]
severity = "warning"
pattern = '^again$'
fields = { SYSLOG_IDENTIFIER = ["edge"] }

[rules.last]
severity = "warning"
pattern = '^that was all$'
fields = { SYSLOG_IDENTIFIER = ["edge"] }
"#;

/// Writes both kinds of line in turn, and has journald rotate now and then.
pub struct Writer {
    thread: JoinHandle<Result<()>>,
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
}

impl Writer {
    /// Starts with `pause` between two pairs of lines.
    ///
    /// # Errors
    /// When journald's socket cannot be reached.
    pub fn start(journald: Arc<Journald>, pause: Duration) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let written = Arc::new(AtomicU64::new(0));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&written));
        let client = journald.client()?;
        let thread = std::thread::spawn(move || {
            let send = |text: &str| {
                client.send(&[("SYSLOG_IDENTIFIER", b"edge"), ("MESSAGE", text.as_bytes())])
            };
            while !stopped.load(Ordering::Relaxed) {
                let n = count.load(Ordering::Relaxed);
                send(&format!("stale s{n}"))?;
                send("again")?;
                count.store(n + 1, Ordering::Relaxed);
                if n % 100 == 99 {
                    journald.signal("USR2")?;
                }
                std::thread::sleep(pause);
            }
            send("that was all")
        });
        Ok(Self {
            thread,
            stop,
            written,
        })
    }

    /// Stops after one last line; how many pairs of lines were written.
    ///
    /// # Errors
    /// When a line could not be written.
    pub fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the writer panicked")??;
        Ok(self.written.load(Ordering::Relaxed))
    }
}
