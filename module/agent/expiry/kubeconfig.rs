//! What a kubeconfig's context leads to, as far as something in it can end. The parser's own words
//! are never passed on: they quote the file.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::ExposeSecret as _;
use serde::Deserialize;

use super::Credential;
use super::der::earliest_end;
use crate::client::Access;

/// What a kubeconfig's context leads to.
pub struct Credentials {
    /// The URL of the API server.
    pub server: String,
    authority: Option<Vec<u8>>,
    client: Option<Vec<u8>>,
    token: Option<String>,
}

impl Credentials {
    /// `None` where there is no kubeconfig: the account of the pod is used.
    ///
    /// # Errors
    /// It leads nowhere; the text says why and quotes nothing of it.
    pub fn read(access: &Access) -> Result<Option<Self>, String> {
        let mut merged: Option<Kubeconfig> = None;
        for file in access.files().into_iter().filter(|file| file.exists()) {
            // The parser's own words are left out: they quote the file.
            let read = || format!("{} cannot be read as a kubeconfig", file.display());
            let next = Kubeconfig::read_from(&file).map_err(|_| read())?;
            merged = Some(match merged {
                None => next,
                Some(before) => before.merge(next).map_err(|_| read())?,
            });
        }
        let Some(config) = merged else {
            return Ok(None);
        };
        let name = access
            .context
            .clone()
            .or(config.current_context)
            .ok_or("it has no current context")?;
        let context = config
            .contexts
            .into_iter()
            .find(|context| context.name == name)
            .and_then(|context| context.context)
            .ok_or_else(|| format!("it has no context {name}"))?;
        let cluster = config
            .clusters
            .into_iter()
            .find(|cluster| cluster.name == context.cluster)
            .and_then(|cluster| cluster.cluster)
            .ok_or_else(|| format!("it has no cluster {}", context.cluster))?;
        let user = config
            .auth_infos
            .into_iter()
            .find(|user| Some(&user.name) == context.user.as_ref())
            .and_then(|user| user.auth_info)
            .unwrap_or_default();
        Ok(Some(Self::of(&cluster, &user)))
    }

    fn of(cluster: &Cluster, user: &AuthInfo) -> Self {
        let token = user
            .token
            .as_ref()
            .map(|token| token.expose_secret().to_owned());
        Self {
            server: cluster.server.clone().unwrap_or_default(),
            authority: pem(
                cluster.certificate_authority_data.as_deref(),
                cluster.certificate_authority.as_deref(),
            ),
            client: pem(
                user.client_certificate_data.as_deref(),
                user.client_certificate.as_deref(),
            ),
            token: token.or_else(|| std::fs::read_to_string(user.token_file.as_deref()?).ok()),
        }
    }

    /// What of it ends, and when.
    pub fn ends(&self) -> Vec<(Credential, Timestamp)> {
        let certificate = |pem: &Option<Vec<u8>>| pem.as_deref().and_then(earliest_end);
        let token = match self.token_end() {
            Some(TokenEnd::At(end)) => Some(end),
            _ => None,
        };
        [
            (Credential::CaCertificate, certificate(&self.authority)),
            (Credential::ClientCertificate, certificate(&self.client)),
            (Credential::Token, token),
        ]
        .into_iter()
        .filter_map(|(credential, end)| Some((credential, end?)))
        .collect()
    }

    /// What the token says of its end; `None` where there is no token.
    pub fn token_end(&self) -> Option<TokenEnd> {
        self.token
            .as_deref()
            .map(|token| TokenEnd::of(token.trim()))
    }
}

/// What a token says of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenEnd {
    /// It is not in the form of a service account's token.
    Untold,
    /// It has no end.
    Never,
    /// Then.
    At(Timestamp),
    /// It names a time that is none.
    Nonsense,
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<i64>,
}

impl TokenEnd {
    /// Of a JSON Web Token (RFC 7519); its signature is nobody's business here.
    fn of(token: &str) -> Self {
        let claims = token
            .split('.')
            .nth(1)
            .and_then(|part| URL_SAFE_NO_PAD.decode(part.trim_end_matches('=')).ok())
            .and_then(|json| serde_json::from_slice::<Claims>(&json).ok());
        match claims {
            None => Self::Untold,
            Some(Claims { exp: None }) => Self::Never,
            Some(Claims { exp: Some(exp) }) => {
                Timestamp::from_second(exp).map_or(Self::Nonsense, Self::At)
            }
        }
    }
}

/// Inline data wins over a file, as for kubectl.
fn pem(data: Option<&str>, file: Option<&str>) -> Option<Vec<u8>> {
    match data {
        Some(data) => STANDARD.decode(data.trim()).ok(),
        None => std::fs::read(file?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("aaaa.{}.ssss", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_token_tells_its_end() {
        let end: Timestamp = "2026-12-01T01:00:00Z".parse().unwrap();
        let soon = token(&format!("{{\"exp\":{}}}", end.as_second()));
        assert_eq!(TokenEnd::of(&soon), TokenEnd::At(end));
        assert_eq!(TokenEnd::of(&token("{}")), TokenEnd::Never);
        assert_eq!(TokenEnd::of("opaque"), TokenEnd::Untold);
        let far = token("{\"exp\":9223372036854775807}");
        assert_eq!(TokenEnd::of(&far), TokenEnd::Nonsense);
    }

    #[test]
    fn everything_that_ends_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let pem = include_str!("testdata/utc-time.pem");
        std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
        let data = STANDARD.encode(include_str!("testdata/generalized-time.pem"));
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": "https://k:6443", "certificate-authority": "ca.pem"}}],
            "users": [{"name": "u", "user": {
                "client-certificate-data": data, "token": token("{\"exp\":1800000000}"),
            }}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, text.to_string()).unwrap();
        let mut access = Access {
            kubeconfig: Some(path),
            ..Access::default()
        };
        let read = Credentials::read(&access).unwrap().unwrap();
        let ends: Vec<(&str, String)> = read
            .ends()
            .into_iter()
            .map(|(one, end)| (one.as_str(), end.to_string()))
            .collect();
        assert_eq!(
            ends,
            [
                ("ca-certificate", "2031-05-06T07:08:09Z".to_owned()),
                ("client-certificate", "2055-01-02T03:04:05Z".to_owned()),
                ("token", "2027-01-15T08:00:00Z".to_owned()),
            ]
        );
        access.context = Some("elsewhere".to_owned());
        let Err(error) = Credentials::read(&access) else {
            panic!("there is no such context");
        };
        assert!(
            error.contains("elsewhere") && !error.contains("ssss"),
            "{error}"
        );
    }
}
