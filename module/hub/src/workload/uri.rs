//! Address of the workload API: a unix socket on devices, plain HTTP for debug daemons and tests.

use std::fmt;
use std::path::PathBuf;

/// Where the workload API listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadUri {
    /// `unix:///path/to.sock`
    Unix(PathBuf),
    /// `http://host:port`
    Http {
        /// Name or address, without the brackets of IPv6.
        host: String,
        /// TCP port.
        port: u16,
    },
}

impl WorkloadUri {
    /// Reads `unix:///path` or `http://host[:port]`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            if !path.starts_with('/') || path == "/" {
                return Err(format!(
                    "{text:?} needs an absolute path, as in unix:///run/x.sock"
                ));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let Some(rest) = text.strip_prefix("http://") else {
            return Err(format!(
                "{text:?} is neither unix:///path nor http://host:port"
            ));
        };
        let authority: http::uri::Authority = rest
            .trim_end_matches('/')
            .parse()
            .map_err(|_| format!("{text:?} is not http://host:port"))?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(format!("{text:?} is not http://host:port"));
        }
        Ok(Self::Http {
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(80),
        })
    }
}

impl fmt::Display for WorkloadUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Http { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Http { host, port } => write!(f, "http://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_forms_that_occur() {
        for (text, shown) in [
            (
                "unix:///var/run/iotedge/workload.sock",
                "unix:///var/run/iotedge/workload.sock",
            ),
            ("http://127.0.0.1:15581", "http://127.0.0.1:15581"),
            ("http://localhost:15581/", "http://localhost:15581"),
            ("http://edge", "http://edge:80"),
            ("http://[::1]:7", "http://[::1]:7"),
        ] {
            assert_eq!(WorkloadUri::parse(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "/run/x.sock",
            "unix://",
            "unix:///",
            "unix://rel",
            "https://x:1",
            "http://",
        ] {
            assert!(WorkloadUri::parse(text).is_err(), "{text}");
        }
    }
}
