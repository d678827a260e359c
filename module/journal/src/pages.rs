//! A small cache of file blocks, filled with pread: neighbouring objects cost one system call.
//!
//! Bounded at a fixed size for all files together; never maps a file and never serves a block of a
//! live file that was read before the list that led there (see [`Pages::read`]'s generation).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const BLOCK: u64 = 16 * 1024;
const SLOTS: usize = 96;

/// Which bytes a block holds: file number, its generation, block number.
type Key = (u32, u32, u64);

pub(crate) struct Pages {
    slots: Vec<(Key, Vec<u8>)>,
    scratch: Vec<u8>,
}

impl Pages {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| ((0, 0, 0), Vec::new())).collect(),
            scratch: Vec::new(),
        }
    }

    /// `len` bytes at `offset`, or fewer where the file ends. File numbers start at 1; a reader of
    /// a file that is being written raises `generation` whenever it needs fresh bytes.
    pub(crate) fn read(
        &mut self,
        file: &File,
        (number, generation): (u32, u32),
        offset: u64,
        len: usize,
    ) -> io::Result<&[u8]> {
        let block = offset / BLOCK;
        let start = (offset % BLOCK) as usize;
        if start + len <= BLOCK as usize {
            let slot = self.fill(file, (number, generation, block))?;
            let bytes = &self.slots[slot].1;
            return Ok(&bytes[start.min(bytes.len())..(start + len).min(bytes.len())]);
        }
        self.scratch.clear();
        let mut at = offset;
        while self.scratch.len() < len {
            let slot = self.fill(file, (number, generation, at / BLOCK))?;
            let bytes = &self.slots[slot].1;
            let from = ((at % BLOCK) as usize).min(bytes.len());
            let to = bytes.len().min(from + len - self.scratch.len());
            self.scratch.extend_from_slice(&bytes[from..to]);
            if bytes.len() < BLOCK as usize {
                break;
            }
            at = (at / BLOCK + 1) * BLOCK;
        }
        Ok(&self.scratch)
    }

    fn fill(&mut self, file: &File, key: Key) -> io::Result<usize> {
        // The multiplier spreads the files; neighbours of one file stay apart.
        let slot = (key.2 as usize).wrapping_add((key.0 as usize).wrapping_mul(37)) % SLOTS;
        let (held, bytes) = &mut self.slots[slot];
        if *held != key || bytes.is_empty() {
            bytes.resize(BLOCK as usize, 0);
            *held = (0, 0, 0);
            let read = pread(file, bytes, key.2 * BLOCK)?;
            bytes.truncate(read);
            *held = key;
        }
        Ok(slot)
    }
}

/// Reads until `buffer` is full or the file ends; gives the number of bytes read.
pub(crate) fn pread(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reads_across_blocks_and_up_to_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..3 * BLOCK + 100).map(|i| (i % 251) as u8).collect();
        file.write_all(&content).unwrap();
        let mut pages = Pages::new();
        for (offset, len) in [(0, 10), (BLOCK - 4, 8), (100, 40_000), (3 * BLOCK + 96, 50)] {
            let end = content.len().min(offset as usize + len);
            assert_eq!(
                pages.read(&file, (1, 0), offset, len).unwrap(),
                &content[offset as usize..end],
                "{len} at {offset}"
            );
        }
        assert!(pages.read(&file, (1, 0), 10 * BLOCK, 8).unwrap().is_empty());
    }

    #[test]
    fn a_new_generation_sees_what_was_written() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"old", 0).unwrap();
        let mut pages = Pages::new();
        assert_eq!(pages.read(&file, (1, 0), 0, 3).unwrap(), b"old");
        file.write_all_at(b"new", 0).unwrap();
        assert_eq!(pages.read(&file, (1, 1), 0, 3).unwrap(), b"new");
    }
}
