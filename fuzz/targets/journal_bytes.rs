//! Any bytes as a journal file, and real ones to begin with. The last byte says how they are read.

#![no_main]

mod read_through;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some(how) = input.last() {
        read_through::read(input, *how);
    }
});
