//! What ends one day, of the cluster's side: the certificates and the token of the kubeconfig, the
//! certificates that the API server and k3s show. Within 30 days is a failure, within 90 a warning.

use jiff::Timestamp;

use super::{Check, Look};
use crate::expiry::{self, Credential, Credentials, Left, Node, TokenEnd};

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
    let mut checks: Vec<Check> = credentials
        .ends()
        .into_iter()
        .map(|(credential, end)| expiry_of(credential, end, look.now))
        .collect();
    checks.extend(credentials.token_end().and_then(token));
    let server = look.access.server.clone().unwrap_or(credentials.server);
    if let Some((host, port)) = expiry::https(&server) {
        checks.push(match expiry::shown(&host, port).await {
            Ok(end) => expiry_of(Credential::ServerCertificate, end, look.now),
            // That it cannot be reached is the message of another check.
            Err(error) => unseen(Credential::ServerCertificate, &error),
        });
    }
    checks.extend(k3s(look).await);
    checks
}

/// Where the API is no k3s, or does not answer, there is nothing to say.
async fn k3s(look: &Look) -> Option<Check> {
    let client = look.client.as_ref().ok()?;
    let node = Node::from(&look.settings);
    let shown = match expiry::k3s_node(client, &node).await {
        Ok(Some((host, port))) => expiry::shown(&host, port).await,
        Ok(None) => return None,
        Err(error) => Err(error),
    };
    Some(match shown {
        Ok(end) => expiry_of(Credential::K3sCertificate, end, look.now),
        Err(error) => unseen(Credential::K3sCertificate, &error),
    })
}

fn unseen(credential: Credential, error: &anyhow::Error) -> Check {
    Check::skipped(
        credential.as_str(),
        format!("cannot be looked at: {error:#}"),
    )
}

/// One line on something that ends.
pub(super) fn expiry_of(credential: Credential, end: Timestamp, now: Timestamp) -> Check {
    let (id, what, fix) = (credential.as_str(), credential.what(), credential.fix());
    let date = end.strftime("%Y-%m-%d");
    let days = end.duration_since(now).as_hours() / 24;
    let message = format!("{what} ends on {date}, in {days} days");
    match Left::until(end, now) {
        Left::Ended => Check::fail(id, format!("{what} ended on {date}"), fix),
        Left::Days30 => Check::fail(id, message, fix),
        Left::Days90 => Check::warn(id, message, fix),
        Left::Long | Left::Unknown => Check::ok(id, message),
    }
}

/// A token that does not end, or does not say so.
fn token(end: TokenEnd) -> Option<Check> {
    let id = Credential::Token.as_str();
    match end {
        TokenEnd::At(_) => None,
        TokenEnd::Untold => Some(Check::ok(
            id,
            "the kubeconfig's token does not say when it ends",
        )),
        TokenEnd::Never => Some(Check::ok(id, "the kubeconfig's token does not end")),
        TokenEnd::Nonsense => Some(Check::warn(
            id,
            "the kubeconfig's token has no sensible end",
            Credential::Token.fix(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::Status;
    use super::*;

    #[test]
    fn thirty_days_fail_and_ninety_warn_and_each_says_what_to_do() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        for credential in Credential::ALL {
            let check =
                |days: i64| expiry_of(credential, now + SignedDuration::from_hours(days * 24), now);
            for (days, status) in [
                (-1, Status::Fail),
                (0, Status::Fail),
                (30, Status::Fail),
                (31, Status::Warn),
                (90, Status::Warn),
                (91, Status::Ok),
            ] {
                let check = check(days);
                assert_eq!(check.status, status, "{credential:?} in {days} days");
                assert_eq!(check.id, credential.as_str());
                assert_eq!(check.fix.is_empty(), status == Status::Ok);
            }
            assert!(check(0).message.ends_with("ended on 2026-12-01"));
        }
    }
}
