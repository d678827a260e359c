//! A control group with little memory and little processor, on either version of the kernel's interface.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const ROOT: &str = "/sys/fs/cgroup";
/// In which the processor's share is counted, in microseconds. A short one spreads the share evenly.
const PERIOD: u64 = 10_000;

/// The group. Removed when dropped, once nothing runs in it.
pub struct Group {
    memory: PathBuf,
    cpu: PathBuf,
    unified: bool,
}

impl Group {
    /// Makes a group of so many bytes and thousandths of a core.
    ///
    /// # Errors
    /// When the kernel's interface is not there or may not be written to.
    pub fn make(name: &str, bytes: u64, millicores: u64) -> Result<Self> {
        let unified = Path::new(ROOT).join("cgroup.controllers").exists();
        let of = |controller: &str| {
            let root = Path::new(ROOT);
            if unified {
                root.join(name)
            } else {
                root.join(controller).join(name)
            }
        };
        let group = Self {
            memory: of("memory"),
            cpu: of("cpu"),
            unified,
        };
        for folder in group.folders() {
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        let quota = PERIOD * millicores / 1000;
        if unified {
            let all = Path::new(ROOT).join("cgroup.subtree_control");
            fs::write(&all, "+memory +cpu").with_context(|| all.display().to_string())?;
            write(&group.memory.join("memory.max"), bytes)?;
            fs::write(group.cpu.join("cpu.max"), format!("{quota} {PERIOD}"))?;
        } else {
            write(&group.memory.join("memory.limit_in_bytes"), bytes)?;
            write(&group.cpu.join("cpu.cfs_period_us"), PERIOD)?;
            write(&group.cpu.join("cpu.cfs_quota_us"), quota)?;
        }
        Ok(group)
    }

    /// What a process has to enter.
    pub fn folders(&self) -> Vec<PathBuf> {
        if self.unified {
            vec![self.memory.clone()]
        } else {
            vec![self.memory.clone(), self.cpu.clone()]
        }
    }

    /// The most memory that was charged to it, in bytes: pages of files that were read included.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn peak(&self) -> Result<u64> {
        let name = if self.unified {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        let text = fs::read_to_string(self.memory.join(name)).context(name)?;
        Ok(text.trim().parse()?)
    }

    /// How many processes the kernel killed in it for want of memory.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn killed(&self) -> Result<u64> {
        let name = if self.unified {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = fs::read_to_string(self.memory.join(name))?;
        let line = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        Ok(line.with_context(|| text.clone())?.trim().parse()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in self.folders() {
            let _ = fs::remove_dir(folder);
        }
    }
}

fn write(path: &Path, number: u64) -> Result<()> {
    fs::write(path, number.to_string()).with_context(|| path.display().to_string())
}
