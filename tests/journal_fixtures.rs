//! The lab's journal files in each variant of the format: systemd finds them sound, and systemd and
//! we read from them what was written. LZ4 and XZ files cannot be had from today's journald.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use slice_journal::{Follower, Id128, Match, Options, Start, State};
use slice_lab::journal::{Compression, Format, JournalWriter};

use crate::journal_read::{compare, read};
use crate::support::journald::MACHINE;

const BEGIN: u64 = 1_790_000_000_000_000;

fn variants() -> impl Iterator<Item = Format> {
    use Compression::{Lz4, None, Xz, Zstd};
    [None, Zstd, Lz4, Xz].into_iter().flat_map(|compression| {
        [(true, true), (true, false), (false, true), (false, false)]
            .into_iter()
            .map(move |(compact, keyed)| Format {
                compression,
                compact,
                keyed,
            })
    })
}

fn verify(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let output = Command::new("journalctl")
            .arg("--verify")
            .arg("--file")
            .arg(&path)
            .output()?;
        ensure!(
            output.status.success(),
            "{}: {}",
            path.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[test]
fn each_variant_is_sound_and_reads_as_it_was_written() -> Result<()> {
    // Large enough that the packed payload spans several blocks of each method.
    let long: String = (0..20_000).map(|i| format!("word{} ", i % 977)).collect();
    for format in variants() {
        let dir = tempfile::tempdir()?;
        let machine = dir.path().join(MACHINE);
        let mut writer = JournalWriter::create(&machine, format)?;
        let mut cursors = Vec::new();
        for n in 0..300u32 {
            let text = format!("line {n}");
            let mut fields: Vec<(&str, &[u8])> = vec![
                ("_SYSTEMD_UNIT", b"aziot-edged.service"),
                ("MESSAGE", text.as_bytes()),
            ];
            match n % 50 {
                7 => fields.push(("LONG", long.as_bytes())),
                8 => fields.push(("LONG", &long.as_bytes()[..600])),
                9 => fields.push(("RAW", b"\xff\0\n")),
                10 => fields.push(("MESSAGE", b"another")),
                _ => {}
            }
            cursors.push(writer.append(&fields, BEGIN + u64::from(n) * 1000)?);
            if n == 120 || n == 200 {
                writer.rotate()?;
            }
        }
        writer.close()?;
        verify(&machine)?;
        let context = |what: &str| format!("{what}, {format:?}");
        assert_eq!(compare(dir.path(), &[])?, 300, "{}", context("all"));
        let unit = "_SYSTEMD_UNIT=aziot-edged.service";
        assert_eq!(compare(dir.path(), &[unit])?, 300, "{}", context("unit"));
        let packed = format!("LONG={}", &long[..600]);
        assert_eq!(compare(dir.path(), &[&packed])?, 6, "{}", context("long"));
        let (entries, _) = read(Options::directories([dir.path()]))?;
        let ours: Vec<String> = entries.iter().map(|e| e.cursor.to_string()).collect();
        assert_eq!(ours, cursors, "{}", context("cursors"));
    }
    Ok(())
}

#[test]
fn a_writer_beside_us_is_followed_through_its_rotations() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let root = dir.path().join("journal");
    let mut options = Options::directories([&root]);
    options.start = Start::Tail;
    options.matches = vec![Match::new("_SYSTEMD_UNIT", "iotedge.service")?];
    let mut follower = Follower::open(options)?;
    assert_eq!(follower.status().state, State::Waiting);
    let mut writer = JournalWriter::create(root.join(MACHINE), Format::MODERN)?;
    for n in 0..200u64 {
        writer.unit_line("iotedge.service", "iotedge", &format!("line {n}"), now()?)?;
        writer.unit_line("other.service", "other", "noise", now()?)?;
        if n % 30 == 29 {
            writer.rotate()?;
        }
        let entry = follower.next(std::time::Duration::from_secs(30));
        let message = entry.as_ref().and_then(|e| e.get("MESSAGE"));
        assert_eq!(message, Some(format!("line {n}").as_bytes()));
    }
    Ok(())
}

fn now() -> Result<u64> {
    Ok(std::time::SystemTime::UNIX_EPOCH
        .elapsed()?
        .as_micros()
        .try_into()?)
}

#[test]
fn clocks_that_jump_do_not_change_the_order() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut writer = JournalWriter::create(dir.path().join(MACHINE), Format::MODERN)?;
    let hour = 3_600_000_000;
    let mut cursors = Vec::new();
    for (n, time) in [0, hour, 2 * hour, 1, 2, 3 * hour, 3]
        .into_iter()
        .enumerate()
    {
        let text = n.to_string();
        cursors.push(writer.append(&[("MESSAGE", text.as_bytes())], BEGIN + time)?);
        if n % 2 == 1 {
            writer.rotate()?;
        }
    }
    let (entries, _) = read(Options::directories([dir.path()]))?;
    let order: Vec<&[u8]> = entries.iter().filter_map(|e| e.get("MESSAGE")).collect();
    assert_eq!(order, [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]);
    // And a cursor of before the jump finds what was written after it.
    let mut options = Options::directories([dir.path()]);
    options.start = Start::After(cursors[2].parse()?);
    let (entries, _) = read(options)?;
    assert_eq!(entries.len(), 4);
    assert_ne!(entries[0].boot_id, Id128::default());
    Ok(())
}

#[test]
fn damage_costs_what_is_damaged_and_is_counted() -> Result<()> {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir()?;
    let mut sound = JournalWriter::create(dir.path().join("a"), Format::MODERN)?;
    let mut hurt = JournalWriter::create(dir.path().join("b"), Format::MODERN)?;
    for n in 0..20u64 {
        for writer in [&mut sound, &mut hurt] {
            writer.append(&[("MESSAGE", n.to_string().as_bytes())], BEGIN + n)?;
        }
    }
    let roots = || Options::directories([dir.path().join("a"), dir.path().join("b")]);
    let (entries, _) = read(roots())?;
    assert_eq!(entries.len(), 40);

    // An entry object in the middle of one file becomes something else.
    let path = hurt.path();
    let bytes = std::fs::read(&path)?;
    let entry = bytes
        .chunks(8)
        .enumerate()
        .filter(|(i, chunk)| chunk[..] == [3, 0, 0, 0, 0, 0, 0, 0] && i * 8 > 256)
        .nth(10)
        .map(|(i, _)| i as u64 * 8);
    let Some(entry) = entry else {
        anyhow::bail!("no entry object found");
    };
    let file = std::fs::File::options().write(true).open(&path)?;
    file.write_all_at(&[0xee], entry)?;
    let mut follower = Follower::open(roots())?;
    let mut count = 0;
    while follower.next(std::time::Duration::from_secs(5)).is_some() {
        count += 1;
    }
    let status = follower.status();
    assert_eq!((count, status.corrupt_entries), (39, 1), "{status:?}");
    assert!(
        status.retries > 0 && status.corrupt_files == 0,
        "{status:?}"
    );

    // A file that is cut off in the middle: the other one is read on.
    file.set_len(entry)?;
    let mut follower = Follower::open(roots())?;
    let mut count = 0;
    while follower.next(std::time::Duration::from_secs(5)).is_some() {
        count += 1;
    }
    let status = follower.status();
    assert!(count >= 20, "{count} {status:?}");
    assert!(
        status.corrupt_entries + status.corrupt_files as u64 > 0,
        "{status:?}"
    );
    Ok(())
}

#[test]
fn a_newer_format_and_a_false_name_are_alarms() -> Result<()> {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir()?;
    let mut writer = JournalWriter::create(dir.path(), Format::MODERN)?;
    writer.append(&[("MESSAGE", b"x")], BEGIN)?;
    std::fs::File::options()
        .write(true)
        .open(writer.path())?
        .write_all_at(&[0x40 | 28], 12)?;
    std::fs::write(dir.path().join("other.journal"), vec![b'#'; 4096])?;
    let follower = Follower::open(Options::directories([dir.path()]))?;
    let status = follower.status();
    assert_eq!(
        (status.unsupported_files, status.corrupt_files),
        (1, 1),
        "{status:?}"
    );
    assert_eq!(status.state, State::Waiting);
    let named = Follower::open(Options::files([writer.path()]));
    let text = named.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(text.contains("newer systemd"), "{text}");
    Ok(())
}

/// A file that is still open is quiet after half a second. A reader that has not taken all of it by
/// then must still get the rest: one-shot reads of large journals once ended early here.
#[test]
fn a_slow_reader_gets_all_of_a_file_that_has_gone_quiet() -> Result<()> {
    const ENTRIES: u32 = 1_500;
    let dir = tempfile::tempdir()?;
    let mut writer = JournalWriter::create(dir.path().join(MACHINE), Format::MODERN)?;
    for n in 0..ENTRIES {
        let text = format!("line {n}");
        let fields: [(&str, &[u8]); 2] = [
            ("_SYSTEMD_UNIT", b"aziot-edged.service"),
            ("MESSAGE", text.as_bytes()),
        ];
        writer.append(&fields, BEGIN + u64::from(n))?;
    }
    let mut options = Options::directories([dir.path()]);
    options.start = Start::Head;
    let mut follower = Follower::open(options)?;
    let mut seen = 0;
    while follower.next(std::time::Duration::ZERO).is_some() {
        seen += 1;
        if seen == 400 {
            // The passing of time is what this is about.
            std::thread::sleep(std::time::Duration::from_millis(1_200));
        }
    }
    ensure!(seen == ENTRIES, "{seen} of {ENTRIES}");
    Ok(())
}
