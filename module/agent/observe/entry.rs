//! One log entry, taken out of tracing: message, fields, span fields. Secrets are cut out here, for
//! every output at once.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, span};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// What begins a secret in the texts that pass through here: SAS keys and signatures, bearer tokens.
/// Nothing of ours logs them; an error text of somebody else's could.
const SECRETS: [&str; 6] = [
    "SharedAccessKey=",
    "SharedAccessSignature ",
    "sig=",
    "Bearer ",
    "\"token\":",
    "client-key-data:",
];

/// An entry that owns its texts, so that it can leave the thread that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) level: Level,
    pub(super) target: String,
    pub(super) module: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) message: String,
    pub(super) fields: Vec<(String, String)>,
}

/// The fields of a span, kept with it.
#[derive(Debug, Default)]
pub(super) struct SpanFields(pub(super) Vec<(String, String)>);

impl SpanFields {
    pub(super) fn of(attributes: &span::Attributes<'_>) -> Self {
        let mut reader = Reader::default();
        attributes.record(&mut reader);
        Self(reader.fields)
    }

    pub(super) fn add(&mut self, values: &span::Record<'_>) {
        let mut reader = Reader::default();
        values.record(&mut reader);
        self.0.extend(reader.fields);
    }
}

impl Entry {
    /// Takes an event with the fields of the spans around it, outermost first.
    pub(super) fn of<S>(event: &Event<'_>, context: &Context<'_, S>) -> Self
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let mut reader = Reader::default();
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root())
        {
            if let Some(SpanFields(fields)) = span.extensions().get::<SpanFields>() {
                reader.fields.extend(fields.iter().cloned());
            }
        }
        event.record(&mut reader);
        let meta = event.metadata();
        Self {
            level: *meta.level(),
            target: meta.target().to_owned(),
            module: meta.module_path().map(str::to_owned),
            file: meta.file().map(str::to_owned),
            line: meta.line(),
            message: reader.message,
            fields: reader.fields,
        }
    }
}

#[derive(Default)]
struct Reader {
    message: String,
    fields: Vec<(String, String)>,
}

impl Reader {
    fn put(&mut self, field: &Field, value: &str) {
        let value = redact(value);
        if field.name() == "message" {
            self.message = value;
        } else {
            self.fields.push((field.name().to_owned(), value));
        }
    }
}

impl Visit for Reader {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        self.put(field, &text);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &format!("{value:?}"));
    }
}

/// Cuts out what follows the beginning of a secret, up to a space, quote, `;`, `&` or `,`.
pub(super) fn redact(text: &str) -> String {
    let mut out = text.to_owned();
    for start in SECRETS {
        let mut from = 0;
        while let Some(at) = out[from..].find(start) {
            let begin = from + at + start.len();
            let secret = out[begin..].trim_start_matches([' ', '"']);
            let begin = out.len() - secret.len();
            let length = secret
                .find([' ', '"', '\'', ';', '&', ',', '\n', '}'])
                .unwrap_or(secret.len());
            if length > 0 {
                out.replace_range(begin..begin + length, "…");
            }
            from = begin;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_cut_out_and_nothing_else() {
        for (text, shown) in [
            (
                "HostName=h;SharedAccessKey=abc123=;ModuleId=m",
                "HostName=h;SharedAccessKey=…;ModuleId=m",
            ),
            (
                "SharedAccessSignature sr=x&sig=abc%3D&se=1",
                "SharedAccessSignature …&sig=…&se=1",
            ),
            (
                "Authorization: Bearer eyJh.x.y and more",
                "Authorization: Bearer … and more",
            ),
            (
                "{\"token\": \"abc\", \"a\": 1}",
                "{\"token\": \"…\", \"a\": 1}",
            ),
            ("sig=", "sig="),
            (
                "a Service healed, nothing secret",
                "a Service healed, nothing secret",
            ),
        ] {
            assert_eq!(redact(text), shown);
        }
    }
}
