//! Secrets that cannot be printed by accident.
//!
//! A [`Secret`] has no `Display`, its `Debug` shows nothing of the value, and it is never part of an
//! error. Whoever needs the text asks for it by name, which keeps those places easy to find.

use std::fmt;

/// Text that must not reach logs, errors or `Debug` output: a SAS token, a shared access key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The text itself, for the one place that puts it on the wire.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_the_value() {
        let secret = Secret::new("SharedAccessSignature sr=x");
        assert_eq!(format!("{secret:?}"), "Secret(redacted)");
        assert_eq!(format!("{secret:#?}"), "Secret(redacted)");
    }
}
