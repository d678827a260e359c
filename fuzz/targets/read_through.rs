//! Reads bytes as a journal file to the end, as `run` and `signals` do, and holds the reader to what must be so of any
//! bytes: it ends, it stays within its limits, and a second look says the same.

use std::path::PathBuf;
use std::time::Duration;

use slice_journal::{Follower, Limits, Match, Options, Start};

/// Far more entries than a file of the fuzzer's size can hold.
const MOST: usize = 200_000;
/// A time in the middle of the files that are corrupted.
const SINCE: u64 = 1_790_000_000_000_020;
const LIMITS: Limits = Limits {
    value_bytes: 4 << 10,
    entry_bytes: 16 << 10,
    fields: 64,
};

/// Reads: all entries or those of one unit, from the head or from a time on.
pub(crate) fn read(bytes: &[u8], how: u8) {
    // In memory, one file a process: libFuzzer runs one input after the other. It stays there when the reader fails.
    let folder = PathBuf::from("/dev/shm");
    let path = folder.join(format!("fuzz-{}.journal", std::process::id()));
    std::fs::write(&path, bytes).expect("there is room in memory");
    if let (Some(first), Some(second)) = (look(&path, how), look(&path, how)) {
        assert_eq!(first, second, "two looks differ");
    }
}

/// How many entries there are, and bytes in them. None where damage would be looked at again later, in case somebody is
/// still writing: that takes longer than a fuzzer has.
fn look(path: &PathBuf, how: u8) -> Option<(usize, usize)> {
    let mut options = Options::files([path]);
    options.inotify = false;
    options.limits = LIMITS;
    if how & 1 != 0 {
        options.matches = ["iotedge.service", "aziot-edged.service"]
            .into_iter()
            .filter_map(|unit| Match::new("_SYSTEMD_UNIT", unit).ok())
            .collect();
    }
    if how & 2 != 0 {
        options.start = Start::Since(SINCE);
    }
    let mut follower = Follower::open(options).ok()?;
    let (mut entries, mut bytes) = (0, 0);
    while let Some(entry) = follower.next(Duration::ZERO) {
        entries += 1;
        assert!(entries < MOST, "entries without end");
        let size: usize = entry.fields.iter().map(|f| f.value().len()).sum();
        assert!(size <= LIMITS.entry_bytes && entry.fields.len() <= LIMITS.fields);
        bytes += size;
    }
    (!follower.is_retrying()).then_some((entries, bytes))
}
