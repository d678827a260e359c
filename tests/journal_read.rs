//! What the journal reader reads from a real journald's files is what journalctl reads from them:
//! the same entries, the same fields, byte by byte, in each variant of the format.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use slice_journal::{Cursor, Entry, Fields as Wanted, Follower, Match, Options, Start, StartedBy};

use crate::support::journald::{Fields, Journald, MACHINE, journalctl, until};

/// Everything that is there now.
pub(crate) fn read(options: Options) -> Result<(Vec<Entry>, Follower)> {
    let mut follower = Follower::open(options)?;
    let mut entries = Vec::new();
    while let Some(entry) = follower.next(Duration::ZERO) {
        entries.push(entry);
    }
    Ok((entries, follower))
}

fn fields(entry: &Entry) -> Fields {
    let mut fields = Fields::new();
    for field in &entry.fields {
        let name = String::from_utf8_lossy(field.name()).into_owned();
        fields.entry(name).or_default().push(field.value().to_vec());
    }
    fields.values_mut().for_each(|values| values.sort());
    fields
}

pub(crate) fn compare(directory: &Path, matches: &[&str]) -> Result<usize> {
    let mut options = Options::directories([directory]);
    options.matches = matches
        .iter()
        .map(|text| Match::parse(text))
        .collect::<Result<_, _>>()?;
    options.limits.value_bytes = 1 << 20;
    options.limits.entry_bytes = 1 << 22;
    let (ours, follower) = read(options)?;
    let mut arguments = Vec::new();
    for text in matches {
        if !arguments.is_empty() {
            arguments.push("+");
        }
        arguments.push(text);
    }
    let theirs = journalctl(directory, &arguments)?;
    for (ours, (cursor, theirs)) in ours.iter().zip(&theirs) {
        ensure!(
            ours.cursor.to_string() == *cursor,
            "we have {}, journalctl {cursor}",
            ours.cursor
        );
        ensure!(fields(ours) == *theirs, "fields of {cursor} differ");
    }
    ensure!(
        ours.len() == theirs.len(),
        "{} entries of {} ({matches:?}): {:?}",
        ours.len(),
        theirs.len(),
        follower.status()
    );
    Ok(ours.len())
}

#[test]
fn each_variant_reads_as_journalctl_reads_it() -> Result<()> {
    for (keyed, compact) in [("1", "1"), ("0", "1"), ("1", "0"), ("0", "0")] {
        let env = [
            ("SYSTEMD_JOURNAL_KEYED_HASH", keyed),
            ("SYSTEMD_JOURNAL_COMPACT", compact),
        ];
        let journald = Journald::start(&["Storage=volatile"], &env)?;
        let client = journald.client()?;
        let long = "x".repeat(3000) + &"compressible ".repeat(2000);
        for number in 0..400u32 {
            let identifier = format!("module-{}", number % 3);
            let text = format!("line {number}");
            let mut entry = vec![
                ("SYSLOG_IDENTIFIER", identifier.as_bytes()),
                ("MESSAGE", text.as_bytes()),
            ];
            match number % 7 {
                1 => entry.push(("MESSAGE", b"a second message")),
                2 => entry.push(("RAW", b"\xff\xfe not UTF-8 \0 with zero")),
                3 => entry.push(("LINES", b"two\nlines")),
                4 => entry.push(("LONG", long.as_bytes())),
                5 => entry.push(("EMPTY", b"")),
                _ => {}
            }
            client.send(&entry)?;
            if number % 150 == 149 {
                rotate(&journald)?;
            }
        }
        let directory = journald.volatile();
        until("all entries are in the files", || {
            Ok(journalctl(&directory, &["MESSAGE=line 399"])?.len() == 1)
        })?;
        let all = compare(&directory, &[])?;
        assert!(all >= 400, "{all}");
        assert_eq!(compare(&directory, &["SYSLOG_IDENTIFIER=module-1"])?, 133);
        let union = compare(
            &directory,
            &[
                "SYSLOG_IDENTIFIER=module-1",
                "EMPTY=",
                "MESSAGE=line 3",
                "UNIT=none",
            ],
        )?;
        assert!(union > 133 && union < 400, "{union}");
        // A directory given directly, and a match on a packed field.
        let machine = directory.join(MACHINE);
        let packed = format!("LONG={long}");
        assert_eq!(compare(&machine, &[&packed])?, 57);
    }
    Ok(())
}

/// Rotates and waits for the new file.
pub(crate) fn rotate(journald: &Journald) -> Result<()> {
    let files = || -> Result<usize> {
        let machine = journald.volatile().join(MACHINE);
        Ok(std::fs::read_dir(machine)?.count())
    };
    let before = files()?;
    journald.signal("USR2")?;
    journald.until("journald rotates", || Ok(files()? > before))
}

#[test]
fn positions_lead_to_the_entries_that_journalctl_finds() -> Result<()> {
    let journald = Journald::start(&["Storage=volatile"], &[])?;
    let client = journald.client()?;
    for number in 0..300 {
        client.send_numbered("edge", number, 10)?;
        if number % 100 == 99 {
            rotate(&journald)?;
        }
    }
    let directory = journald.volatile();
    until("all entries are in the files", || {
        Ok(journalctl(&directory, &["NUMBER=299"])?.len() == 1)
    })?;
    let options = |start| -> Result<Options> {
        let mut options = Options::directories([&directory]);
        options.matches = vec![Match::new("SYSLOG_IDENTIFIER", "edge")?];
        options.fields = Wanted::Only(vec!["NUMBER".to_owned()]);
        options.start = start;
        Ok(options)
    };
    let (all, _) = read(options(Start::Head)?)?;
    assert_eq!(all.len(), 300);
    for at in [0, 1, 99, 100, 101, 250, 299] {
        let entry = &all[at];
        assert_eq!(entry.fields.len(), 1);
        assert_eq!(entry.get("NUMBER"), Some(at.to_string().as_bytes()));
        let (rest, follower) = read(options(Start::After(entry.cursor))?)?;
        assert_eq!(rest, all[at + 1..], "after {at}");
        assert_eq!(follower.status().started_by, Some(StartedBy::Cursor));

        // The same place as another journal would name it: by boot and monotonic time.
        let foreign = Cursor {
            seqnum: Some((slice_journal::Id128([7; 16]), 1)),
            ..entry.cursor
        };
        let (rest, follower) = read(options(Start::After(foreign))?)?;
        assert_eq!(rest, all[at + 1..], "after {at} by boot");
        assert_eq!(follower.status().started_by, Some(StartedBy::CursorBoot));

        let since = entry.realtime_usec;
        let (rest, _) = read(options(Start::Since(since))?)?;
        let expected: Vec<_> = all
            .iter()
            .filter(|entry| entry.realtime_usec >= since)
            .cloned()
            .collect();
        assert_eq!(rest, expected, "since {at}");
    }
    // Nothing of this cursor is known but its time, and then not even that can be right.
    let stranger = |realtime| Cursor {
        seqnum: Some((slice_journal::Id128([7; 16]), 1)),
        monotonic: Some((slice_journal::Id128([8; 16]), 1)),
        realtime: Some(realtime),
        xor_hash: Some(1),
    };
    let (rest, follower) = read(options(Start::After(stranger(all[149].realtime_usec)))?)?;
    assert!(
        rest.len() <= 150 && rest.last() == all.last(),
        "{}",
        rest.len()
    );
    assert_eq!(follower.status().started_by, Some(StartedBy::CursorTime));
    let (rest, follower) = read(options(Start::After(stranger(u64::MAX / 2)))?)?;
    assert_eq!(
        rest, all,
        "a cursor from the future is younger than nothing"
    );
    assert_eq!(follower.status().started_by, Some(StartedBy::CursorAhead));
    let (rest, _) = read(options(Start::Tail)?)?;
    assert!(rest.is_empty());

    // The cursor's own file is vacuumed: the next entry that is left, not the one after it.
    let status = std::process::Command::new("journalctl")
        .arg("--directory")
        .arg(&directory)
        .args(["--quiet", "--vacuum-files=2"])
        .status()?;
    assert!(status.success());
    let (left, _) = read(options(Start::Head)?)?;
    assert!(left.len() < all.len() && !left.is_empty());
    let (rest, _) = read(options(Start::After(all[3].cursor))?)?;
    assert_eq!(rest, left);
    Ok(())
}

#[test]
fn limits_cut_and_say_so() -> Result<()> {
    let journald = Journald::start(&["Storage=volatile"], &[])?;
    let long = "packed text ".repeat(5000);
    journald.client()?.send(&[
        ("SYSLOG_IDENTIFIER", b"edge"),
        ("MESSAGE", long.as_bytes()),
        ("SHORT", b"1234567890"),
    ])?;
    let directory = journald.volatile();
    until("the entry is in the file", || {
        Ok(journalctl(&directory, &["SHORT=1234567890"])?.len() == 1)
    })?;
    let mut options = Options::directories([&directory]);
    options.matches = vec![Match::new("SHORT", "1234567890")?];
    options.limits.value_bytes = 10;
    let (entries, follower) = read(options.clone())?;
    assert_eq!(entries[0].get("MESSAGE"), Some(&long.as_bytes()[..10]));
    assert_eq!(entries[0].get("SHORT"), Some(&b"1234567890"[..]));
    let cut: Vec<_> = entries[0].fields.iter().filter(|f| f.truncated).collect();
    assert!(cut.iter().any(|f| f.name() == b"MESSAGE"));
    assert!(
        cut.iter()
            .all(|f| f.name() != b"SHORT" && f.value().len() == 10)
    );
    assert!(entries[0].truncated);
    assert_eq!(follower.status().truncated, 1);

    options.limits.fields = 2;
    let (entries, _) = read(options)?;
    assert!(entries[0].truncated && entries[0].fields.len() == 2);
    Ok(())
}
