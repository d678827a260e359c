//! Our reader and libsystemd on the same files: the same entries in the same order, each with the
//! same fields in the same order, byte by byte.
//!
//! libsystemd runs in `tests/oracles/systemd`, a process of its own. Both print one form; the two
//! texts are compared whole.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use slice_journal::{Follower, Options};
use slice_lab::journal::{Compression, Format, JournalWriter};

use crate::journal_read::rotate;
use crate::support::controlplane::files::cache;
use crate::support::journald::{Journald, MACHINE, journalctl, until};

fn oracle() -> Result<PathBuf> {
    let path = cache()?.join("oracles/systemd/debug/systemd-oracle");
    ensure!(
        path.exists(),
        "{} is missing; run tests/oracles/setup.sh",
        path.display()
    );
    Ok(path)
}

fn journal_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.to_string_lossy();
        if name.ends_with(".journal") || name.ends_with(".journal~") {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "no journal in {}", directory.display());
    Ok(files)
}

/// What we read, in the oracle's form.
fn ours(files: &[PathBuf]) -> Result<Vec<u8>> {
    let mut options = Options::files(files);
    options.limits.value_bytes = 16 << 20;
    options.limits.entry_bytes = 64 << 20;
    let mut follower = Follower::open(options)?;
    let mut out = Vec::new();
    while let Some(entry) = follower.next(std::time::Duration::ZERO) {
        out.extend_from_slice(format!("{}\n", entry.cursor).as_bytes());
        for field in &entry.fields {
            out.extend_from_slice(field.name());
            out.extend_from_slice(format!(" {}\n", field.value().len()).as_bytes());
            out.extend_from_slice(field.value());
            out.push(b'\n');
        }
        out.push(b'\n');
    }
    let status = follower.status();
    ensure!(
        status.corrupt_entries == 0 && status.unreadable_fields == 0 && status.truncated == 0,
        "{status:?}"
    );
    Ok(out)
}

/// Compares; gives how many bytes were the same.
fn same(directory: &Path) -> Result<usize> {
    let files = journal_files(directory)?;
    let output = Command::new(oracle()?)
        .arg("entries")
        .args(&files)
        .output()?;
    ensure!(
        output.status.success(),
        "the oracle: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (ours, theirs) = (ours(&files)?, output.stdout);
    if let Some(at) = ours.iter().zip(&theirs).position(|(a, b)| a != b) {
        let show = |bytes: &[u8]| {
            let around = &bytes[at.saturating_sub(200)..bytes.len().min(at + 80)];
            String::from_utf8_lossy(around).into_owned()
        };
        anyhow::bail!(
            "different at byte {at}; ours:\n{}\nlibsystemd's:\n{}",
            show(&ours),
            show(&theirs)
        );
    }
    ensure!(
        ours.len() == theirs.len(),
        "ours is {} bytes, libsystemd's {}",
        ours.len(),
        theirs.len()
    );
    Ok(ours.len())
}

#[test]
fn files_of_a_real_journald_read_the_same() -> Result<()> {
    for (keyed, compact) in [("1", "1"), ("0", "1"), ("1", "0"), ("0", "0")] {
        let env = [
            ("SYSTEMD_JOURNAL_KEYED_HASH", keyed),
            ("SYSTEMD_JOURNAL_COMPACT", compact),
        ];
        let mut journald = Journald::start(&["Storage=volatile"], &env)?;
        let client = journald.client()?;
        let long = "packs well ".repeat(4000);
        for number in 0..300u32 {
            let text = format!("line {number}");
            let mut entry = vec![
                ("SYSLOG_IDENTIFIER", "edge".as_bytes()),
                ("MESSAGE", text.as_bytes()),
            ];
            match number % 6 {
                1 => entry.push(("MESSAGE", b"a second message")),
                2 => entry.push(("RAW", b"\xff\xfe no UTF-8 \0 with zero")),
                3 => entry.push(("LINES", b"two\nlines")),
                4 => entry.push(("LONG", &long.as_bytes()[number as usize..])),
                5 => entry.push(("EMPTY", b"")),
                _ => {}
            }
            client.send(&entry)?;
            if number % 100 == 99 {
                rotate(&journald)?;
            }
        }
        let directory = journald.volatile();
        until("all entries are in the files", || {
            Ok(journalctl(&directory, &["MESSAGE=line 299"])?.len() == 1)
        })?;
        // A file that was never closed is among them, under the name that journald gives those.
        journald.crash()?;
        client.send(&[("MESSAGE", b"after the crash")])?;
        until("journald writes again", || {
            Ok(journalctl(&directory, &["MESSAGE=after the crash"])?.len() == 1)
        })?;
        // Two readers of one state need it to stand still.
        journald.signal("STOP")?;
        let stat = format!("/proc/{}/stat", journald.pid());
        until("journald stands still", || {
            Ok(std::fs::read_to_string(&stat)?.contains(") T "))
        })?;
        let machine = directory.join(MACHINE);
        let bytes = same(&machine)?;
        ensure!(bytes > 1_500_000, "only {bytes} bytes were compared");
    }
    Ok(())
}

#[test]
fn files_of_each_compression_read_the_same() -> Result<()> {
    use Compression::{Lz4, None, Xz, Zstd};
    let long: String = (0..20_000).map(|i| format!("word{} ", i % 977)).collect();
    for compression in [None, Zstd, Lz4, Xz] {
        for (compact, keyed) in [(true, true), (true, false), (false, true), (false, false)] {
            let dir = tempfile::tempdir()?;
            let machine = dir.path().join(MACHINE);
            let format = Format {
                compression,
                compact,
                keyed,
            };
            let mut writer = JournalWriter::create(&machine, format)?;
            for n in 0..40u32 {
                let text = format!("line {n}");
                let cut = long.len() - n as usize * 1000;
                writer.append(
                    &[
                        ("_SYSTEMD_UNIT", b"aziot-edged.service"),
                        ("MESSAGE", text.as_bytes()),
                        ("LONG", &long.as_bytes()[..cut]),
                        ("RAW", b"\xff\0\n"),
                    ],
                    1_790_000_000_000_000 + u64::from(n) * 1000,
                )?;
                if n == 20 {
                    writer.rotate()?;
                }
            }
            writer.close()?;
            let bytes = same(&machine)?;
            ensure!(bytes > 1_000_000, "only {bytes} bytes: {format:?}");
        }
    }
    Ok(())
}
