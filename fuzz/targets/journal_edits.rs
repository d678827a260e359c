//! Sound journal files in which some numbers were changed: of each variant of the format, and the ones that journald
//! wrote into the folder `FUZZ_JOURNALS`. Reaches what bytes that no longer have a header never do.

#![no_main]

#[allow(dead_code, reason = "the lab uses more of it")]
#[path = "../../module/lab/src/journal/mod.rs"]
mod journal;
mod read_through;

use std::path::Path;
use std::sync::OnceLock;

use journal::{Compression, Format, JournalWriter};

const BEGIN: u64 = 1_790_000_000_000_000;
/// Where the header of a journal file says its own size, how much follows, and where the last object begins
/// (systemd, src/libsystemd/sd-journal/journal-def.h).
const HEADER_SIZE: usize = 88;
const ARENA_SIZE: usize = 96;
const TAIL_OBJECT: usize = 136;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let [which, how, edits @ ..] = input else {
        return;
    };
    let bases = bases();
    let mut bytes = bases[usize::from(*which) % bases.len()].clone();
    for edit in edits.chunks_exact(6) {
        apply(&mut bytes, edit);
    }
    read_through::read(&bytes, *how);
});

/// One changed number: its place, its width and its value.
fn apply(bytes: &mut [u8], edit: &[u8]) {
    let place = usize::from(edit[0]) << 16 | usize::from(edit[1]) << 8 | usize::from(edit[2]);
    let kind = edit[3];
    // Half of the edits hit an aligned word, where offsets, sizes and hashes are; a quarter the header.
    let span = if kind & 3 == 0 {
        256.min(bytes.len())
    } else {
        bytes.len()
    };
    let mut at = place % span.max(1);
    if kind & 1 == 0 {
        at &= !7;
    }
    let small = u64::from(edit[4]) << 8 | u64::from(edit[5]);
    let size = bytes.len() as u64;
    let value = match kind >> 5 {
        0 => small,
        1 => u64::MAX - small,
        2 => size.wrapping_sub(small),
        3 => small << 3,
        4 => 1 << (small % 64),
        // A number out of the same file: an offset in the place of another one.
        5 | 6 => number(bytes, (small as usize * 8) % bytes.len().max(1)),
        _ => number(bytes, at) ^ small,
    };
    let width = [1, 8, 4, 8][usize::from(kind >> 3 & 3)];
    for (byte, new) in bytes[at..].iter_mut().zip(value.to_le_bytes()).take(width) {
        *byte = new;
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// Sound files, made once.
fn bases() -> &'static [Vec<u8>] {
    static BASES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    BASES.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("fuzz-journals-{}", std::process::id()));
        let mut all = Vec::new();
        use Compression::{Lz4, None, Xz, Zstd};
        for compression in [None, Zstd, Lz4, Xz] {
            for (compact, keyed) in [(true, true), (true, false), (false, true), (false, false)] {
                let format = Format {
                    compression,
                    compact,
                    keyed,
                };
                all.push(written(&folder.join(all.len().to_string()), format));
            }
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
        if let Some(real) = std::env::var_os("FUZZ_JOURNALS") {
            let files = std::fs::read_dir(real).expect("the folder of real journals is there");
            let mut files: Vec<_> = files.map(|f| f.expect("it can be read").path()).collect();
            files.sort();
            assert!(!files.is_empty(), "no journals in FUZZ_JOURNALS");
            for file in files {
                all.push(trimmed(std::fs::read(file).expect("a journal")));
            }
        }
        all
    })
}

fn written(folder: &Path, format: Format) -> Vec<u8> {
    let mut writer = JournalWriter::create(folder, format).expect("a journal");
    let long = "word ".repeat(400);
    for n in 0..40_u64 {
        let text = format!("line {n} {}", if n % 8 == 0 { long.as_str() } else { "" });
        let unit = ["iotedge.service", "aziot-edged.service", "cron.service"][n as usize % 3];
        let fields: [(&str, &[u8]); 3] = [
            ("_SYSTEMD_UNIT", unit.as_bytes()),
            ("MESSAGE", text.as_bytes()),
            ("PRIORITY", b"6"),
        ];
        writer.append(&fields, BEGIN + n).expect("an entry");
    }
    let path = writer.path();
    writer.close().expect("a sound end");
    trimmed(std::fs::read(path).expect("what was written"))
}

/// Without the room that journald sets aside behind the last object, and with a header that says so.
fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    let tail = number(&bytes, TAIL_OBJECT) as usize;
    let end = tail + (number(&bytes, tail + 8) as usize).next_multiple_of(8);
    bytes.truncate(end);
    let arena = end as u64 - number(&bytes, HEADER_SIZE);
    bytes[ARENA_SIZE..ARENA_SIZE + 8].copy_from_slice(&arena.to_le_bytes());
    bytes
}
