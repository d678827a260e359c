//! Any text as a dump: YAML, JSON, neither.

#![no_main]

mod judged;
#[allow(dead_code, reason = "the agent uses more of it")]
#[path = "../../module/agent/load/mod.rs"]
mod load;

libfuzzer_sys::fuzz_target!(|text: &str| judged::judge(text));
