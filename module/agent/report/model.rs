//! The Plug and Play model that the module announces. Its text is `config/dtdl/slice-healer.json`;
//! `tests/plug_and_play.rs` holds what is sent against it. Names only: nothing is checked at run time.

/// The interface, as announced at connect.
pub const MODEL_ID: &str = "dtmi:io:sliceHealer;1";

/// The component that telemetry belongs to. Its fields share names with properties and commands of
/// the module itself, which one interface may not hold twice.
pub const EVENTS: &str = "events";
