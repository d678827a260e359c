//! Following a real journald that rotates without rest: each entry once for minutes, and neither
//! descriptors nor memory grow over a thousand rotations.
//!
//! `JOURNAL_ROTATION_SECONDS` and `JOURNAL_ROTATIONS` ask for more (`just journal-long`).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use slice_journal::{Follower, Start};

use crate::journal_follow::{number, options};
use crate::support::journald::{Journald, MACHINE, journalctl};

const PATIENCE: Duration = Duration::from_secs(60);
/// How much anonymous memory may come on top of what it was after the warm-up. A leak of one block
/// (16 KiB) or one descriptor's state a rotation would be far more.
const GROWTH_KIB: u64 = 512;
/// Rotations after which sizes have settled.
const WARM_UP: u64 = 200;
/// More entries than a follower remembers.
const REMEMBERED: u64 = 6000;

fn asked(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn each_entry_comes_once_while_journald_rotates_all_the_time() -> Result<()> {
    let span = Duration::from_secs(asked("JOURNAL_ROTATION_SECONDS", 60));
    // Vacuumed as it goes, or the sandbox would fill the memory it is in.
    let config = ["Storage=volatile", "RuntimeMaxFiles=64"];
    let journald = Journald::start(&config, &[])?;
    let client = journald.client()?;
    let mut follower = Follower::open(options(&journald.volatile(), Start::Tail)?)?;
    let begun = Instant::now();
    let (mut sent, mut seen, mut rotations) = (0u64, 0u64, 0u64);
    let mut rotated = Instant::now();
    // 250 entries a second, as a busy host writes; what is there is taken meanwhile.
    let mut due = begun;
    while begun.elapsed() < span {
        if Instant::now() >= due {
            client.send_numbered("edge", sent, 40)?;
            sent += 1;
            due += Duration::from_millis(4);
        }
        if rotated.elapsed() >= Duration::from_millis(200) {
            journald.signal("USR2")?;
            rotations += 1;
            rotated = Instant::now();
        }
        if let Some(entry) = follower.next(due.saturating_duration_since(Instant::now())) {
            ensure!(
                number(&entry) == Some(seen),
                "{:?} came, {seen} was due: {:?}",
                number(&entry),
                follower.status()
            );
            seen += 1;
        }
    }
    while seen < sent {
        let entry = follower
            .next(PATIENCE)
            .with_context(|| format!("{seen} of {sent}: {:?}", follower.status()))?;
        ensure!(number(&entry) == Some(seen), "{:?}", follower.status());
        seen += 1;
    }
    ensure!(follower.next(Duration::from_millis(300)).is_none());
    let status = follower.status();
    ensure!(
        rotations * 400 > u64::try_from(span.as_millis())?,
        "{rotations} rotations only"
    );
    ensure!(
        status.corrupt_files == 0 && status.corrupt_entries == 0 && status.files <= 8,
        "{status:?}"
    );
    // Journald has vacuumed the oldest by now; nothing is there that was not seen.
    let left = journalctl(&journald.volatile(), &["SYSLOG_IDENTIFIER=edge"])?;
    ensure!(!left.is_empty() && left.len() as u64 <= seen);
    Ok(())
}

#[test]
fn descriptors_and_memory_stay_flat_over_a_thousand_rotations() -> Result<()> {
    let rotations = asked("JOURNAL_ROTATIONS", 1000);
    let config = ["Storage=volatile", "RuntimeMaxFiles=4", "RuntimeMaxUse=16M"];
    let journald = Journald::start(&config, &[])?;
    let client = journald.client()?;
    // In a process of its own: the memory of this one is that of all tests that run in it.
    let reader = Reader::start(&journald.volatile())?;
    // What a follower remembers of entries is bounded; it is full before memory is looked at.
    for n in 0..REMEMBERED {
        client.send_numbered("noise", n, 20)?;
    }
    let mut follower = Follower::open(options(&journald.volatile(), Start::Tail)?)?;
    let (mut descriptors, mut memory) = (0, 0);
    for n in 0..rotations {
        client.send_numbered("edge", n, 20)?;
        let entry = follower.next(PATIENCE).context("an entry is missing")?;
        ensure!(number(&entry) == Some(n), "{:?}", follower.status());
        if n.is_multiple_of(4) {
            rotate_quickly(&journald)?;
        } else {
            journald.signal("USR2")?;
        }
        let files = follower.status().files;
        ensure!(files <= 8, "{files} files open after {n} rotations");
        if n == WARM_UP.min(rotations / 2) {
            reader.has_read(n)?;
            descriptors = reader.descriptors(&journald.volatile())?;
            memory = reader.anonymous_kib()?;
        }
    }
    reader.has_read(rotations - 1)?;
    let at_end = reader.descriptors(&journald.volatile())?;
    let kib = reader.anonymous_kib()?;
    ensure!(
        at_end <= descriptors.max(8),
        "{descriptors} descriptors, then {at_end}"
    );
    ensure!(
        kib <= memory + GROWTH_KIB,
        "{memory} KiB after the warm-up, {kib} KiB after {rotations} rotations"
    );
    Ok(())
}

/// `slice-healer signals --follow` on a directory: the whole reader as it ships, alone in its
/// process. Killed when dropped.
struct Reader {
    child: Child,
    out: tempfile::NamedTempFile,
    _rules: tempfile::NamedTempFile,
}

impl Reader {
    fn start(directory: &Path) -> Result<Self> {
        let rules = tempfile::NamedTempFile::new()?;
        std::fs::write(
            rules.path(),
            "[rules.n]\npattern = '^number [0-9]+'\nfields = { SYSLOG_IDENTIFIER = [\"edge\"] }\n",
        )?;
        let out = tempfile::NamedTempFile::new()?;
        let child = Command::new(env!("CARGO_BIN_EXE_slice-healer"))
            .args(["signals", "--follow", "-o", "json", "--journal"])
            .arg(directory)
            .arg("--rules")
            .arg(rules.path())
            .stdin(Stdio::null())
            .stdout(out.reopen()?)
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            child,
            out,
            _rules: rules,
        })
    }

    /// Waits until it has printed entry `n`.
    fn has_read(&self, n: u64) -> Result<()> {
        let wanted = format!("\"message\":\"number {n} ");
        crate::support::journald::until(&format!("entry {n} is printed"), || {
            Ok(std::fs::read_to_string(self.out.path())?.contains(&wanted))
        })
    }

    /// Descriptors that lead to files of `directory`, deleted ones included.
    fn descriptors(&self, directory: &Path) -> Result<usize> {
        let mut count = 0;
        for entry in std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))? {
            let target: PathBuf = std::fs::read_link(entry?.path()).unwrap_or_default();
            count += usize::from(target.starts_with(directory));
        }
        Ok(count)
    }

    fn anonymous_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("RssAnon"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(kib.context("no RssAnon")?.parse()?)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The current file is another one than before.
fn rotate_quickly(journald: &Journald) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let current = journald.volatile().join(MACHINE).join("system.journal");
    let inode = || std::fs::metadata(&current).map(|meta| meta.ino()).ok();
    let before = inode();
    journald.signal("USR2")?;
    journald.until("journald rotates", || {
        Ok(inode().is_some_and(|now| Some(now) != before))
    })
}
