//! Shared access signatures: what a module signs and how the password of CONNECT is put together.
//!
//! Pure: the time and the signature come from outside. Nothing here prints a token.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::encode::percent_encode;
use crate::secret::Secret;

/// The audience of a module's token, percent-encoded: `{hub}/devices/{device}/modules/{module}`.
///
/// The hub verifies the signature over this text exactly as it is sent.
pub(crate) fn audience(hub_host: &str, device_id: &str, module_id: &str) -> String {
    percent_encode(&format!(
        "{hub_host}/devices/{device_id}/modules/{module_id}"
    ))
}

/// The bytes to sign: the audience, a line feed, and the expiry in seconds since 1970.
pub(crate) fn text_to_sign(audience: &str, expiry_epoch_secs: u64) -> String {
    format!("{audience}\n{expiry_epoch_secs}")
}

/// The token, which is the MQTT password. `signature` is base64, as the workload API returns it.
pub(crate) fn token(audience: &str, signature: &str, expiry_epoch_secs: u64) -> Secret {
    Secret::new(format!(
        "SharedAccessSignature sr={audience}&sig={}&se={expiry_epoch_secs}",
        percent_encode(signature)
    ))
}

/// HMAC-SHA256 with a key that this process holds, in base64. Used with a connection string only:
/// on an edge device the key stays with the workload API.
pub(crate) fn sign_locally(key: &[u8], text: &str) -> String {
    // HMAC takes a key of any length; the error type exists for other algorithms.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return String::new();
    };
    mac.update(text.as_bytes());
    BASE64.encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRY: u64 = 1_700_003_600;

    /// The values were computed with Python's `hmac`, so that a fault of ours cannot hide.
    #[test]
    fn matches_the_independent_vector() {
        let audience = audience("test-hub.azure-devices.net", "edge1", "slice-healer");
        assert_eq!(
            audience,
            "test-hub.azure-devices.net%2Fdevices%2Fedge1%2Fmodules%2Fslice-healer"
        );
        let signature = sign_locally(&[b'k'; 32], &text_to_sign(&audience, EXPIRY));
        assert_eq!(signature, "YTDANX82FSJ4+VpPSB7C7GfbXAXC9t0XeCI+kaIfS9I=");
        assert_eq!(
            token(&audience, &signature, EXPIRY).expose(),
            "SharedAccessSignature sr=test-hub.azure-devices.net%2Fdevices%2Fedge1%2Fmodules%2F\
             slice-healer&sig=YTDANX82FSJ4%2BVpPSB7C7GfbXAXC9t0XeCI%2BkaIfS9I%3D&se=1700003600"
        );
    }
}
