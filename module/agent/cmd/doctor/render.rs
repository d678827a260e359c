//! The result for people and for machines.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Check, Status};

/// The JSON document (contract: doctor).
pub(super) fn document(checks: &[Check]) -> Value {
    json!({"schema": "slice-healer/doctor/v1", "checks": checks})
}

/// One line a check, what to do below it, a count at the end.
pub(super) fn table(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let mark = match check.status {
            Status::Ok => "ok     ",
            Status::Warn => "warn   ",
            Status::Fail => "FAIL   ",
            Status::Skipped => "skipped",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{mark}  {:width$}  {}", check.id, check.message);
        if !check.fix.is_empty() {
            let _ = writeln!(out, "         {:width$}  -> {}", "", check.fix);
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let _ = writeln!(
        out,
        "{} ok, {} to watch, {} failed, {} skipped",
        count(Status::Ok),
        count(Status::Warn),
        count(Status::Fail),
        count(Status::Skipped)
    );
    out
}
