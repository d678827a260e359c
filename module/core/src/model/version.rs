//! Versions of the API server, on which some rules depend.

use std::fmt;

/// A version such as `v1.36.2+k3s1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    /// First number.
    pub major: u32,
    /// Second number, which rules depend on.
    pub minor: u32,
    text: Box<str>,
}

impl ServerVersion {
    /// Reads a version; the leading `v` and everything after the minor number may be missing.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut numbers = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?;
        let digits = minor
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(minor.len());
        let minor = minor.get(..digits)?.parse().ok()?;
        Some(Self {
            major,
            minor,
            text: text.into(),
        })
    }

    /// Whether it is this version or a newer one.
    pub fn is_at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_servers_say() {
        for (text, minor) in [
            ("v1.36.2+k3s1", 36),
            ("1.24", 24),
            ("v1.27+", 27),
            ("v1.37.0-beta.0", 37),
        ] {
            let version = ServerVersion::parse(text).unwrap();
            assert_eq!((version.major, version.minor), (1, minor), "{text}");
            assert_eq!(version.to_string(), text);
        }
        for bad in ["", "v1", "v1.x", "one.two"] {
            assert_eq!(ServerVersion::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn compares_by_number_not_text() {
        let version = ServerVersion::parse("v1.9.0").unwrap();
        assert!(version.is_at_least(1, 8));
        assert!(!version.is_at_least(1, 10));
    }
}
