//! The command line of slice-healer.

fn main() {}
