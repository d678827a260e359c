//! Settings in layers: compiled default (`config/default.toml`), file, environment, and the part
//! that the module twin may change. Unknown keys are errors; nothing here is a secret, and nothing
//! but [`Loaded::load`] touches the world.

mod check;
mod layers;
mod model;
mod policy;
mod tree;
mod twin;
mod types;
mod windows;

#[cfg(test)]
mod tests;

pub use layers::{DEFAULT, ENV_PREFIX, Loaded, Origin, Problem, Row, SettingsError};
pub use model::{
    BudgetSettings, ClusterSettings, DbusSettings, Enabled, FindingSettings, GraceSettings,
    HealSettings, HubSettings, JournalSettings, LogLevel, PaceSettings, ProbeSettings,
    ReportSettings, RuleSettings, ScopeSettings, ServeSettings, Settings, Spans, StoreSettings,
};
pub use policy::Closed;
pub use tree::Path as SettingPath;
pub use twin::{Ack, MAX_DESIRED, SETTABLE, TwinOutcome};
pub use types::{Ladder, Names, Selector, Span, Unset};
pub use windows::Window;

/// Tables whose entries have names of the operator's own: no default stands behind them.
const ENTRIES: [&str; 2] = ["RuleSettings", "ProbeSettings"];

/// The JSON schema of a settings file. It may leave out whatever it likes: the defaults are below.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Settings).to_value();
    let optional = |table: &mut serde_json::Value| {
        if let Some(table) = table.as_object_mut() {
            table.remove("required");
        }
    };
    optional(&mut schema);
    for (name, table) in schema["$defs"].as_object_mut().into_iter().flatten() {
        if !ENTRIES.contains(&name.as_str()) {
            optional(table);
        }
    }
    schema
}
