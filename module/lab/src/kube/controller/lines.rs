//! What the controller writes to its log, and who reads that.
//!
//! The lines of kube-controller-manager are worded and laid out as the real one's (klog); the line
//! of the cache hit is the one that operators report from `journalctl -u iotedge`.

use std::fmt;

use jiff::Timestamp;

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// systemd unit that it comes from.
    pub unit: &'static str,
    /// Syslog identifier.
    pub identifier: &'static str,
    /// Text without a line end.
    pub message: String,
}

/// Where log lines go: a journal, or a test's list. Called from the controller's task: it must not
/// block for long.
pub trait LogSink: Send + Sync {
    /// Takes one line.
    fn line(&self, line: LogLine);
}

impl<F: Fn(LogLine) + Send + Sync> LogSink for F {
    fn line(&self, line: LogLine) {
        self(line);
    }
}

/// Drops everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLog;

impl LogSink for NoLog {
    fn line(&self, _: LogLine) {}
}

/// The whole text of the cache hit, as reported: it names no Service.
pub const CACHE_HIT: &str = "Cache hit for endpoint slice, skipping update";

/// A slice that the runtime's cache takes for right.
pub(super) fn cache_hit() -> LogLine {
    LogLine {
        unit: "iotedge.service",
        identifier: "iotedge",
        message: CACHE_HIT.to_owned(),
    }
}

/// A sync that failed and will be tried again.
pub(super) fn retrying(namespace: &str, service: &str, error: &dyn fmt::Display) -> LogLine {
    let text = "Error syncing endpoint slices for service, retrying";
    klog(358, text, namespace, service, error)
}

/// A Service that is given up until something about it changes.
pub(super) fn dropped(namespace: &str, service: &str, error: &dyn fmt::Display) -> LogLine {
    let text = "Retry budget exceeded, dropping service out of the queue";
    klog(363, text, namespace, service, error)
}

fn klog(
    line: u32,
    text: &str,
    namespace: &str,
    service: &str,
    error: &dyn fmt::Display,
) -> LogLine {
    let time = Timestamp::now().strftime("%m%d %H:%M:%S%.6f");
    let error = error.to_string().replace('"', "\\\"");
    LogLine {
        unit: "k3s.service",
        identifier: "k3s",
        message: format!(
            "I{time}       1 endpointslice_controller.go:{line}] \"{text}\" \
             key=\"{namespace}/{service}\" err=\"{error}\""
        ),
    }
}
