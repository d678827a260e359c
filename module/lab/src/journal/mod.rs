//! Writes systemd journal files, for the lab and as fixtures of the journal tests: each variant of
//! the format, readable by journalctl (`journalctl --verify` is its test).
//!
//! Needs no root and no journald. Never writes into the host's own journal by itself: the caller
//! names the directory.

mod file;
mod hash;
mod pack;

use file::{Ids, Stamp, State, Writer};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// How long payloads are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// As journald has done by default since 246.
    Zstd,
    /// As journald did on most distributions before.
    Lz4,
    /// As the oldest files have it.
    Xz,
}

/// A variant of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// For payloads of 512 bytes and more.
    pub compression: Compression,
    /// Offsets of four bytes (systemd 252 and later).
    pub compact: bool,
    /// Hashes keyed with the file id (systemd 246 and later).
    pub keyed: bool,
}

impl Format {
    /// What journald 252 writes.
    pub const MODERN: Self = Self {
        compression: Compression::Zstd,
        compact: true,
        keyed: true,
    };

    fn flags(self) -> u32 {
        let compression = match self.compression {
            Compression::None => 0,
            Compression::Xz => 1,
            Compression::Lz4 => 2,
            Compression::Zstd => 8,
        };
        compression | (u32::from(self.keyed) << 2) | (u32::from(self.compact) << 4)
    }
}

/// Writes `system.journal` in one directory, and its archived predecessors.
pub struct JournalWriter {
    directory: PathBuf,
    format: Format,
    machine: [u8; 16],
    boot: [u8; 16],
    seqnum_id: [u8; 16],
    writer: Writer,
    last: Stamp,
}

impl JournalWriter {
    /// Makes `directory` and a journal in it. The machine id is the directory's name where that is
    /// one, else made up; so is the boot.
    ///
    /// # Errors
    /// When the directory cannot be made or has a `system.journal` already.
    pub fn create(directory: impl Into<PathBuf>, format: Format) -> io::Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        let machine = machine_of(&directory).unwrap_or_else(id);
        let (boot, seqnum_id) = (id(), id());
        let writer = open(&directory, format, machine, boot, seqnum_id)?;
        Ok(Self {
            directory,
            format,
            machine,
            boot,
            seqnum_id,
            writer,
            last: Stamp {
                seqnum: 0,
                realtime: 0,
                monotonic: 1_000_000,
            },
        })
    }

    /// The file that entries go to.
    pub fn path(&self) -> PathBuf {
        self.directory.join("system.journal")
    }

    /// Appends an entry with these fields and the boot and machine id, as journald adds them;
    /// `realtime` in microseconds since 1970. Gives its cursor in journalctl's form.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append(&mut self, fields: &[(&str, &[u8])], realtime: u64) -> io::Result<String> {
        let boot = hex(&self.boot);
        let machine = hex(&self.machine);
        let own = [
            ("_BOOT_ID", boot.as_bytes()),
            ("_MACHINE_ID", machine.as_bytes()),
        ];
        let payloads: Vec<Vec<u8>> = fields
            .iter()
            .chain(&own)
            .map(|(name, value)| [name.as_bytes(), b"=", value].concat())
            .collect();
        // Within a boot the monotonic clock never stands still, whatever the wall clock does.
        let passed = realtime.saturating_sub(self.last.realtime);
        let step = if self.last.realtime == 0 {
            1
        } else {
            passed.max(1)
        };
        self.last = Stamp {
            seqnum: self.last.seqnum + 1,
            realtime,
            monotonic: self.last.monotonic + step,
        };
        let checksum = self.writer.append(&payloads, self.last, &self.boot)?;
        Ok(format!(
            "s={};i={:x};b={boot};m={:x};t={realtime:x};x={checksum:x}",
            hex(&self.seqnum_id),
            self.last.seqnum,
            self.last.monotonic,
        ))
    }

    /// Appends a line as a service's standard output gets there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn unit_line(
        &mut self,
        unit: &str,
        identifier: &str,
        message: &str,
        realtime: u64,
    ) -> io::Result<String> {
        self.append(
            &[
                ("_TRANSPORT", b"stdout"),
                ("PRIORITY", b"6"),
                ("SYSLOG_FACILITY", b"3"),
                ("SYSLOG_IDENTIFIER", identifier.as_bytes()),
                ("_SYSTEMD_UNIT", unit.as_bytes()),
                ("MESSAGE", message.as_bytes()),
            ],
            realtime,
        )
    }

    /// Archives the file and begins a new one, as journald does.
    ///
    /// # Errors
    /// When the file cannot be renamed or the new one not be made.
    pub fn rotate(&mut self) -> io::Result<()> {
        let Some(head) = self.writer.head() else {
            return Ok(());
        };
        let archived = format!(
            "system@{}-{:016x}-{:016x}.journal",
            hex(&self.seqnum_id),
            head.seqnum,
            head.realtime
        );
        fs::rename(self.path(), self.directory.join(archived))?;
        self.writer.state(State::Archived)?;
        self.writer = open(
            &self.directory,
            self.format,
            self.machine,
            self.boot,
            self.seqnum_id,
        )?;
        Ok(())
    }

    /// Marks the file as properly closed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn close(self) -> io::Result<()> {
        self.writer.state(State::Offline)
    }
}

fn open(
    directory: &Path,
    format: Format,
    machine: [u8; 16],
    boot: [u8; 16],
    seqnum: [u8; 16],
) -> io::Result<Writer> {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(directory.join("system.journal"))?;
    let ids = Ids {
        file: id(),
        machine,
        boot,
        seqnum,
    };
    Writer::create(file, format, &ids)
}

fn id() -> [u8; 16] {
    *uuid::Uuid::new_v4().as_bytes()
}

fn hex(id: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes(*id).simple().to_string()
}

fn machine_of(directory: &Path) -> Option<[u8; 16]> {
    let name = directory.file_name()?.to_str()?;
    let id = name.split('.').next()?;
    (id.len() == 32)
        .then(|| uuid::Uuid::try_parse(id).ok())
        .flatten()
        .map(uuid::Uuid::into_bytes)
}
