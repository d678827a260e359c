//! Damaged journal files: whatever stands in them, reading ends, and in bounded memory.
//!
//! Mutations of files in each variant, from a fixed seed; `JOURNAL_DAMAGE_ROUNDS` asks for more.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use slice_journal::{Follower, Match, Options};
use slice_lab::journal::{Compression, Format, JournalWriter};

/// Entries in a sound file.
const ENTRIES: u64 = 40;
/// Far more than a file of this size takes; a loop would not end at all.
const PATIENCE: Duration = Duration::from_secs(60);

fn sound(format: Format) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let mut writer = JournalWriter::create(dir.path(), format)?;
    let long = "a long message that packs well, ".repeat(60);
    for n in 0..ENTRIES {
        let text = format!("{n} {}", if n % 4 == 0 { &long } else { "short" });
        writer.append(
            &[
                ("_SYSTEMD_UNIT", b"iotedge.service"),
                ("MESSAGE", text.as_bytes()),
            ],
            1_790_000_000_000_000 + n,
        )?;
    }
    let path = writer.path();
    writer.close()?;
    Ok(std::fs::read(path)?)
}

/// Changes some bytes, preferably where structure is: numbers that the file itself contains.
fn hurt(bytes: &mut Vec<u8>, random: &mut StdRng) {
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..5) {
            0 => bytes[at] = random.random(),
            1 => bytes[at] ^= 1 << random.random_range(0..8),
            2 | 3 => {
                let (at, from) = (at & !7, random.random_range(0..bytes.len()) & !7);
                if at + 8 <= bytes.len() && from + 8 <= bytes.len() {
                    bytes.copy_within(from..from + 8, at);
                }
            }
            _ => {
                let at = at & !7;
                let number = [0u64, 1, 7, 8, 1 << 20, 1 << 40, u64::MAX][random.random_range(0..7)];
                if at + 8 <= bytes.len() {
                    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
                }
            }
        }
    }
    if random.random_range(0..10) == 0 {
        let length = random.random_range(0..bytes.len());
        bytes.truncate(length);
    }
}

fn read(path: &std::path::Path, matched: bool) -> Result<u64> {
    let mut options = Options::directories(path.parent());
    options.inotify = false;
    if matched {
        options.matches = vec![Match::new("_SYSTEMD_UNIT", "iotedge.service")?];
    }
    let begun = Instant::now();
    let mut follower = Follower::open(options)?;
    let mut count = 0;
    while follower.next(Duration::ZERO).is_some() {
        count += 1;
        ensure!(count <= 100 * ENTRIES, "entries without end");
    }
    ensure!(begun.elapsed() < PATIENCE, "took {:?}", begun.elapsed());
    Ok(count)
}

#[test]
fn reading_a_damaged_file_ends() -> Result<()> {
    let rounds = std::env::var("JOURNAL_DAMAGE_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(150u64);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("system.journal");
    let (mut damaged, mut read_on) = (0u64, 0u64);
    for compression in [
        Compression::None,
        Compression::Zstd,
        Compression::Lz4,
        Compression::Xz,
    ] {
        for (compact, keyed) in [(true, true), (false, false)] {
            let whole = sound(Format {
                compression,
                compact,
                keyed,
            })?;
            for round in 0..rounds {
                let mut random = StdRng::seed_from_u64(round);
                let mut bytes = whole.clone();
                hurt(&mut bytes, &mut random);
                let file = std::fs::File::create(&path)?;
                file.write_all_at(&bytes, 0)?;
                let count = read(&path, random.next_u32() % 2 == 0)?;
                damaged += u64::from(count != ENTRIES);
                read_on += u64::from(count > 0);
            }
        }
    }
    let all = rounds * 8;
    ensure!(
        damaged > all / 20,
        "only {damaged} of {all} files were really hurt"
    );
    ensure!(
        read_on > all / 2,
        "only {read_on} of {all} files gave anything"
    );
    Ok(())
}
