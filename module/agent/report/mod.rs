//! What the fleet is told: telemetry, the module twin, direct methods.

pub mod methods;
pub mod model;
pub mod telemetry;
pub mod twin;
