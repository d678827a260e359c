//! A network of the test's own: the test runs itself again inside a new namespace.
//!
//! There every port is free, and what is done to routes and packet filters is done to nobody else.
//! Nothing of the outer network can be reached.

use anyhow::{Context as _, Result, ensure};

/// Set in the process that runs inside the namespace.
const INSIDE: &str = "SLICE_HEALER_INSIDE";

/// True inside a network of its own. Otherwise runs the test `name` there, as a process, and returns
/// false when it has passed. Needs root or unprivileged user namespaces.
///
/// # Errors
/// When the test fails inside, with all it said, or no namespace can be made.
pub fn inside(name: &str) -> Result<bool> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(true);
    }
    let root = rustix::process::geteuid().is_root();
    let namespace: &[&str] = if root {
        &["--net"]
    } else {
        &["--net", "--user", "--map-root-user"]
    };
    let script = r#"ip link set lo up && exec "$0" "$1" --exact --nocapture --test-threads=1"#;
    let output = std::process::Command::new("unshare")
        .args(namespace)
        .args(["sh", "-c", script])
        .arg(std::env::current_exe()?)
        .arg(name)
        .env(INSIDE, "1")
        // What it measures, and why it failed, is seen as it comes.
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("unshare (package util-linux)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{name} failed in its namespace:\n{text}"
    );
    ensure!(
        text.contains("1 passed"),
        "{name} is no test of this binary:\n{text}"
    );
    Ok(false)
}
