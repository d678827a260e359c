//! What ends one day: the certificates and the token of the kubeconfig, the API server's
//! certificate. Within 30 days is a failure, within 90 a warning. Never shows what it read.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::ExposeSecret as _;
use serde::Deserialize;

use super::{Check, Look, der, tls};
use crate::client::Access;

const FAIL: SignedDuration = SignedDuration::from_hours(30 * 24);
const WARN: SignedDuration = SignedDuration::from_hours(90 * 24);

/// What a kubeconfig's context leads to.
pub(super) struct Credentials {
    pub(super) server: String,
    authority: Option<Vec<u8>>,
    client: Option<Vec<u8>>,
    token: Option<String>,
}

impl Credentials {
    /// `None` where there is no kubeconfig: the account of the pod is used.
    pub(super) fn read(access: &Access) -> Result<Option<Self>, String> {
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
}

/// Inline data wins over a file, as for kubectl.
fn pem(data: Option<&str>, file: Option<&str>) -> Option<Vec<u8>> {
    match data {
        Some(data) => STANDARD.decode(data.trim()).ok(),
        None => std::fs::read(file?).ok(),
    }
}

pub(super) async fn checks(look: &Look) -> Vec<Check> {
    let credentials = match Credentials::read(&look.access) {
        Ok(Some(credentials)) => credentials,
        Ok(None) | Err(_) => {
            return vec![Check::skipped(
                "certificates",
                "there is no kubeconfig to look into",
            )];
        }
    };
    let mut checks = Vec::new();
    if let Some(end) = earliest(credentials.authority.as_deref()) {
        let fix = "renew the cluster's CA (k3s certificate rotate-ca, kubeadm certs), then take a fresh kubeconfig";
        checks.push(expiry(
            "ca-certificate",
            "the cluster's CA",
            end,
            look.now,
            fix,
        ));
    }
    if let Some(end) = earliest(credentials.client.as_deref()) {
        let fix = "k3s renews it at a restart within 90 days (120 from 1.33 on); kubeadm certs renew all; then take a fresh kubeconfig";
        checks.push(expiry(
            "client-certificate",
            "the kubeconfig's certificate",
            end,
            look.now,
            fix,
        ));
    }
    if let Some(token) = &credentials.token {
        checks.push(token_expiry(token.trim(), look.now));
    }
    let server = look.access.server.clone().unwrap_or(credentials.server);
    checks.extend(server_certificate(&server, look.now).await);
    checks
}

fn earliest(pem: Option<&[u8]>) -> Option<Timestamp> {
    der::certificates(pem?)
        .iter()
        .filter_map(|der| der::not_after(der))
        .min()
}

/// One line on something that ends.
pub(super) fn expiry(
    id: &'static str,
    what: &str,
    end: Timestamp,
    now: Timestamp,
    fix: &str,
) -> Check {
    let left = end.duration_since(now);
    let days = left.as_hours() / 24;
    let date = end.strftime("%Y-%m-%d");
    if left.is_negative() || left.is_zero() {
        return Check::fail(id, format!("{what} ended on {date}"), fix);
    }
    let message = format!("{what} ends on {date}, in {days} days");
    if left <= FAIL {
        Check::fail(id, message, fix)
    } else if left <= WARN {
        Check::warn(id, message, fix)
    } else {
        Check::ok(id, message)
    }
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<i64>,
}

fn token_expiry(token: &str, now: Timestamp) -> Check {
    let id = "token";
    let claims = token
        .split('.')
        .nth(1)
        .and_then(|part| URL_SAFE_NO_PAD.decode(part.trim_end_matches('=')).ok())
        .and_then(|json| serde_json::from_slice::<Claims>(&json).ok());
    match claims {
        None => Check::ok(id, "the kubeconfig's token does not say when it ends"),
        Some(Claims { exp: None }) => Check::ok(id, "the kubeconfig's token does not end"),
        Some(Claims { exp: Some(exp) }) => match Timestamp::from_second(exp) {
            Ok(end) => expiry(
                id,
                "the kubeconfig's token",
                end,
                now,
                "use the token of the Secret in config/kubernetes, which does not end",
            ),
            Err(_) => Check::warn(
                id,
                "the kubeconfig's token has no sensible end",
                "take a fresh one",
            ),
        },
    }
}

async fn server_certificate(server: &str, now: Timestamp) -> Option<Check> {
    let id = "server-certificate";
    let uri: http::Uri = server.parse().ok()?;
    if uri.scheme_str() != Some("https") {
        return None;
    }
    let host = uri.host()?.trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let address = tokio::net::lookup_host((host.as_str(), port))
        .await
        .ok()?
        .next()?;
    match tls::server_certificate(address, &host).await {
        Ok(certificate) => {
            let end = der::not_after(&certificate)?;
            Some(expiry(
                id,
                "the API server's certificate",
                end,
                now,
                "k3s renews it at a restart within 90 days (120 from 1.33 on); kubeadm certs renew all",
            ))
        }
        // That it cannot be reached is the message of another check.
        Err(error) => Some(Check::skipped(id, format!("cannot be looked at: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn thirty_days_fail_and_ninety_warn() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let status = |days: i64| {
            expiry(
                "x",
                "it",
                now + SignedDuration::from_hours(days * 24),
                now,
                "fix",
            )
            .status
        };
        assert_eq!(
            [
                status(-1),
                status(0),
                status(30),
                status(31),
                status(90),
                status(91)
            ],
            [
                Status::Fail,
                Status::Fail,
                Status::Fail,
                Status::Warn,
                Status::Warn,
                Status::Ok
            ]
        );
        assert!(
            expiry("x", "it", now, now, "")
                .message
                .contains("ended on 2026-12-01")
        );
    }

    #[test]
    fn a_token_tells_its_end_and_is_never_shown() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let token = |claims: &str| format!("aaaa.{}.ssss", URL_SAFE_NO_PAD.encode(claims));
        let soon = token(&format!("{{\"exp\":{}}}", now.as_second() + 3600));
        let check = token_expiry(&soon, now);
        assert_eq!(check.status, Status::Fail);
        assert!(!check.message.contains("aaaa"));
        assert_eq!(token_expiry(&token("{}"), now).status, Status::Ok);
        assert_eq!(token_expiry("opaque", now).status, Status::Ok);
    }
}
