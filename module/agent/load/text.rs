//! Cuts text into documents: JSON values one after the other, or YAML documents. Keeps JSON as text,
//! so that a dump of hundreds of megabytes is never held as a tree.

use serde_json::Value;
use serde_json::value::RawValue;

use super::Fault;

/// One document, not yet understood.
#[derive(Debug)]
pub(super) enum Document<'a> {
    /// JSON text.
    Json(&'a RawValue),
    /// A YAML document.
    Yaml(Value),
}

/// Deeper nesting than any Kubernetes object has is a fault, not a reason to overflow the stack.
const MAX_DEPTH: usize = 100;

pub(super) fn documents<'a>(
    text: &'a str,
) -> Box<dyn Iterator<Item = Result<Document<'a>, Fault>> + 'a> {
    if text.trim_start().starts_with(['{', '[']) {
        let values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        let mut failed = false;
        Box::new(values.map_while(move |value| {
            if failed {
                return None;
            }
            failed = value.is_err();
            Some(
                value
                    .map(Document::Json)
                    .map_err(|e| Fault::Syntax(e.to_string())),
            )
        }))
    } else {
        Box::new(
            yaml_parts(text)
                .filter(|part| has_content(part))
                .map(yaml)
                .filter(|document| !matches!(document, Ok(Document::Yaml(Value::Null)))),
        )
    }
}

/// A line that starts with `---` ends a document, also within a block of text: YAML has no way to
/// write such a line otherwise.
fn yaml_parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let whole = rest?;
        let mut start = 0;
        for line in whole.split_inclusive('\n') {
            let end = start + line.len();
            if start > 0 && is_marker(line) {
                let (part, next) = whole.split_at(start);
                rest = Some(next);
                return Some(part);
            }
            start = end;
        }
        rest = None;
        Some(whole)
    })
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn has_content(part: &str) -> bool {
    part.lines().any(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#') && line != "---" && line != "..."
    })
}

fn yaml<'a>(part: &str) -> Result<Document<'a>, Fault> {
    // Size is bounded by the input; what must stay bounded is what aliases blow up, and depth.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_depth: MAX_DEPTH,
        },
        with_snippet: false,
        // A name such as `y` or `no` is a name.
        strict_booleans: true,
    };
    serde_saphyr::from_str_with_options::<Value>(part, options)
        .map(Document::Yaml)
        .map_err(|e| Fault::Syntax(e.to_string()))
}
