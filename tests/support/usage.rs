//! What a process takes, as the kernel counts it.

use anyhow::{Context as _, Result};

/// A number in KiB of `/proc/PID/status`, such as `VmRSS:`.
///
/// # Errors
/// When the process has ended.
pub fn kib(pid: u32, key: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.context(key.to_owned())?.trim().trim_end_matches(" kB");
    Ok(number.parse()?)
}

/// Processor time used so far, in the kernel's ticks of 10 ms.
///
/// # Errors
/// When the process has ended.
pub fn ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("no stat line")?.1;
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<u64>);
    Ok(ticks.collect::<Result<Vec<_>, _>>()?.iter().sum())
}
