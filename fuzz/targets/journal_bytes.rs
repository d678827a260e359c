//! Any bytes as a journal file. The first byte says how they are read.

#![no_main]

mod read_through;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((how, bytes)) = input.split_first() {
        read_through::read(bytes, *how);
    }
});
