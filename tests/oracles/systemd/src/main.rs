//! Reads journal files with libsystemd and prints what it finds; an oracle and a yardstick.
//!
//! `systemd-oracle entries FILE...` prints each entry, in libsystemd's order: the cursor's line, a
//! line `NAME LENGTH` and the value's bytes and a newline for each field in the file's order, and an
//! empty line. `scan FILE...` reads MESSAGE of each entry and prints the count and the bytes;
//! `match FIELD=VALUE FILE...` the same of one value's entries; `cold FIELD=VALUE FILE...` finds the
//! newest of them; `follow DIRECTORY FIELD=VALUE` prints microseconds since 1970 and MESSAGE of each
//! entry as it comes. Each but the first and the last prints its own time in microseconds.

use std::error::Error;
use std::io::{BufWriter, Write as _, stdout};
use std::time::{Duration, Instant, SystemTime};

use systemd::journal::{Journal, JournalSeek, OpenDirectoryOptions, OpenFilesOptions};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["entries", files @ ..] => entries(files),
        ["scan", files @ ..] => scan(None, files),
        ["match", value, files @ ..] => scan(Some(value), files),
        ["cold", value, files @ ..] => cold(value, files),
        ["follow", directory, value] => follow(directory, value),
        _ => Err("entries|scan|match FIELD=VALUE|cold FIELD=VALUE FILE..., or follow DIRECTORY FIELD=VALUE".into()),
    }
}

fn open(files: &[&str]) -> Result<Journal> {
    let files = files.iter().map(|file| (*file).to_owned());
    Ok(OpenFilesOptions::default().open_files(files)?)
}

fn add(journal: &mut Journal, value: &str) -> Result<()> {
    let (name, value) = value.split_once('=').ok_or("no FIELD=VALUE")?;
    journal.match_add(name, value)?;
    Ok(())
}

fn entries(files: &[&str]) -> Result<()> {
    let mut journal = open(files)?;
    // Zero: no value is cut.
    journal.set_data_threshold(0)?;
    let mut out = BufWriter::new(stdout().lock());
    while journal.next()? > 0 {
        writeln!(out, "{}", journal.cursor()?)?;
        journal.restart_data();
        while let Some(field) = journal.enumerate_data()? {
            let value = field.value().unwrap_or_default();
            out.write_all(field.name())?;
            writeln!(out, " {}", value.len())?;
            out.write_all(value)?;
            writeln!(out)?;
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

fn scan(value: Option<&str>, files: &[&str]) -> Result<()> {
    let begun = Instant::now();
    let mut journal = open(files)?;
    if let Some(value) = value {
        add(&mut journal, value)?;
    }
    let (mut count, mut bytes) = (0u64, 0u64);
    while journal.next()? > 0 {
        count += 1;
        if let Some(message) = journal.get_data("MESSAGE")? {
            bytes += message.value().unwrap_or_default().len() as u64;
        }
    }
    report(count, bytes, begun)
}

fn cold(value: &str, files: &[&str]) -> Result<()> {
    let begun = Instant::now();
    let mut journal = open(files)?;
    add(&mut journal, value)?;
    journal.seek(JournalSeek::Tail)?;
    let found = journal.previous()?;
    let message = journal.get_data("MESSAGE")?;
    let bytes = message.and_then(|m| m.value().map(<[u8]>::len));
    report(found, bytes.unwrap_or_default() as u64, begun)
}

fn report(count: u64, bytes: u64, begun: Instant) -> Result<()> {
    println!("{count} {bytes} {}", begun.elapsed().as_micros());
    print_memory()
}

/// Anonymous memory in KiB, on a line of its own.
fn print_memory() -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("RssAnon"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    println!("{}", kib.unwrap_or("0"));
    Ok(())
}

fn follow(directory: &str, value: &str) -> Result<()> {
    let mut journal = OpenDirectoryOptions::default().open_directory(directory.to_owned())?;
    add(&mut journal, value)?;
    journal.seek(JournalSeek::Tail)?;
    journal.previous()?;
    let mut out = stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    loop {
        while journal.next()? > 0 {
            let message = journal.get_data("MESSAGE")?;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            write!(out, "{} ", now.as_micros())?;
            out.write_all(message.as_ref().and_then(|m| m.value()).unwrap_or_default())?;
            writeln!(out)?;
            out.flush()?;
        }
        journal.wait(Some(Duration::from_secs(1)))?;
    }
}
