//! Reads journal files with this crate and prints how long that took: the counterpart of
//! `tests/oracles/systemd` for `just bench-journal`. Writes nothing.
//!
//! `scan FILE...` reads MESSAGE of each entry, `match FIELD=VALUE FILE...` of one value's entries,
//! `cold FIELD=VALUE FILE...` opens and finds the end of one value's entries. Each prints the count,
//! the bytes of MESSAGE and microseconds, and on a second line KiB of anonymous memory.
//! `follow DIRECTORY FIELD=VALUE` prints microseconds since 1970 and MESSAGE of each entry as it comes.
#![allow(clippy::print_stdout)]

use slice_journal::{Fields, Follower, Match, Options, Start};
use std::error::Error;
use std::io::{Write as _, stdout};
use std::time::{Duration, Instant, SystemTime};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (value, start, files) = match words.split_first() {
        Some((what, files)) if what == "scan" => (None, Start::Head, files),
        Some((what, [value, files @ ..])) if what == "match" => (Some(value), Start::Head, files),
        Some((what, [value, files @ ..])) if what == "cold" => (Some(value), Start::Tail, files),
        Some((what, [directory, value])) if what == "follow" => return follow(directory, value),
        _ => {
            return Err(
                "scan FILE..., match or cold FIELD=VALUE FILE..., follow DIRECTORY FIELD=VALUE"
                    .into(),
            );
        }
    };
    let begun = Instant::now();
    let mut options = Options::files(files);
    options.inotify = false;
    options.fields = Fields::Only(vec!["MESSAGE".to_owned()]);
    options.start = start;
    if let Some(value) = value {
        options.matches = vec![Match::parse(value)?];
    }
    let mut follower = Follower::open(options)?;
    let (mut count, mut bytes) = (0u64, 0u64);
    while let Some(entry) = follower.next(Duration::ZERO) {
        count += 1;
        bytes += entry.get("MESSAGE").unwrap_or_default().len() as u64;
    }
    println!("{count} {bytes} {}", begun.elapsed().as_micros());
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("RssAnon"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    println!("{}", kib.unwrap_or("0"));
    Ok(())
}

fn follow(directory: &str, value: &str) -> Result<(), Box<dyn Error>> {
    let mut options = Options::directories([directory]);
    options.fields = Fields::Only(vec!["MESSAGE".to_owned()]);
    options.start = Start::Tail;
    options.matches = vec![Match::parse(value)?];
    let mut follower = Follower::open(options)?;
    let mut out = stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    loop {
        let Some(entry) = follower.next(Duration::from_secs(1)) else {
            continue;
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        write!(out, "{} ", now.as_micros())?;
        out.write_all(entry.get("MESSAGE").unwrap_or_default())?;
        writeln!(out)?;
        out.flush()?;
    }
}
