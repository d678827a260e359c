//! Loads a dump as `inspect -f` does, judges it, and holds the answer against what must always be
//! so. The loader is compiled in by its path: the rest of the agent needs no fuzzing build.

use jiff::Timestamp;
use slice_core::judge::{Finding, JudgeContext, judge_world};
use slice_core::model::ServerVersion;

use crate::load::{Source, load};

/// Loads and judges; what cannot be loaded is refused with words.
pub(crate) fn judge(text: &str) {
    let now: Timestamp = "2026-11-30T10:00:00Z".parse().unwrap_or_default();
    let dump = match load(&[Source::Text(text.into())], now) {
        Ok(dump) => dump,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for server in [None, Some("v1.24.0"), Some("v1.36.2")] {
        for node in [None, Some("n1")] {
            let ctx = JudgeContext {
                server: server.and_then(ServerVersion::parse),
                node: node.map(str::to_owned),
                delete_leftover: node.is_some(),
                ..JudgeContext::at(now)
            };
            let findings = judge_world(&dump.world, &ctx);
            assert!(findings.is_sorted_by(|a, b| Finding::order(a, b).is_le()));
            for finding in &findings {
                assert!(!finding.message.is_empty() && !finding.remedy.reason.is_empty());
            }
            assert_eq!(findings, judge_world(&dump.world, &ctx), "two looks differ");
        }
    }
}
