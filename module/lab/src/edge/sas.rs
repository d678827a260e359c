//! Shared access signatures and MQTT user names, judged as edgeHub judges them. Verification runs
//! over the token's text exactly as it was sent; ids are decoded only to be compared. Never logs or
//! prints a signature.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::percent_decode_str;
use sha2::Sha256;

/// HMAC-SHA256.
pub(crate) fn hmac_sha256(key: &[u8], data: &[u8]) -> Vec<u8> {
    // HMAC takes keys of any length, so the error case of the trait cannot occur.
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}

/// A token in its parts, still encoded.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SasToken {
    resource: String,
    signature: Vec<u8>,
    expiry_text: String,
    /// End of validity, seconds since the epoch.
    pub(crate) expires: i64,
}

impl std::fmt::Debug for SasToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SasToken(sr={}, se={})", self.resource, self.expires)
    }
}

/// Whom a token must be for.
pub(crate) struct Audience<'a> {
    /// Host names that are accepted: the hub's and edgeHub's own.
    pub(crate) hosts: &'a [&'a str],
    /// Device id.
    pub(crate) device: &'a str,
    /// Module id.
    pub(crate) module: &'a str,
}

impl SasToken {
    /// Takes a password apart. Field order is free; `skn` and unknown fields are ignored.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub(crate) fn parse(password: &str) -> Result<Self, &'static str> {
        let fields = password
            .strip_prefix("SharedAccessSignature ")
            .ok_or("the password is no SharedAccessSignature")?;
        let field = |name: &str| {
            fields.split('&').find_map(|pair| {
                let (key, value) = pair.split_once('=')?;
                (key.trim() == name).then_some(value.trim())
            })
        };
        let resource = field("sr").ok_or("the token has no sr")?;
        let signature = field("sig").ok_or("the token has no sig")?;
        let expiry_text = field("se").ok_or("the token has no se")?;
        let signature = percent_decode_str(signature)
            .decode_utf8()
            .map_err(|_| "sig is no text")?;
        Ok(Self {
            resource: resource.to_owned(),
            signature: BASE64
                .decode(signature.as_bytes())
                .map_err(|_| "sig is no base64")?,
            expires: expiry_text.parse().map_err(|_| "se is no number")?,
            expiry_text: expiry_text.to_owned(),
        })
    }

    /// Checks the signature with each key, then the audience.
    ///
    /// # Errors
    /// A sentence that says which check failed.
    pub(crate) fn verify(&self, keys: &[&[u8]], wanted: &Audience<'_>) -> Result<(), &'static str> {
        let text = format!("{}\n{}", self.resource, self.expiry_text);
        let signed = keys
            .iter()
            .any(|key| hmac_sha256(key, text.as_bytes()) == self.signature);
        if !signed {
            return Err("the signature is by no key of this module");
        }
        // One decoding is the rule; the C# SDK encodes the ids twice.
        let once = percent_decode_str(&self.resource)
            .decode_utf8_lossy()
            .into_owned();
        let twice = percent_decode_str(&once).decode_utf8_lossy().into_owned();
        let fits = |text: &str| {
            wanted.hosts.iter().any(|host| {
                text.strip_prefix(host)
                    == Some(&format!(
                        "/devices/{}/modules/{}",
                        wanted.device, wanted.module
                    ))
            })
        };
        if fits(&once) || fits(&twice) {
            Ok(())
        } else {
            Err("the token is for another identity")
        }
    }
}

/// What a user name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Username {
    /// First segment; edgeHub ignores it.
    pub host: String,
    /// Device id.
    pub device: String,
    /// Module id; `None` for a leaf device.
    pub module: Option<String>,
    /// `api-version`; compulsory, its value is not judged.
    pub api_version: String,
    /// `DeviceClientType`, percent-decoded.
    pub client_type: Option<String>,
    /// `model-id`, percent-decoded.
    pub model_id: Option<String>,
}

impl Username {
    /// Takes a user name apart: `host/device[/module]/?api-version=…` or the same without `?`.
    /// More than four segments are refused, so a raw `/` in a product name is.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let segments: Vec<&str> = text.split('/').collect();
        let (host, device, module, query) = match segments.as_slice() {
            [host, device, query] => (*host, *device, None, *query),
            [host, device, module, query] => (*host, *device, Some(*module), *query),
            _ => return Err("the user name does not have three or four segments"),
        };
        if device.is_empty() || module.is_some_and(str::is_empty) {
            return Err("the user name has an empty id");
        }
        let query = query.strip_prefix('?').unwrap_or(query);
        let value = |name: &str| {
            query.split('&').find_map(|pair| {
                let (key, value) = pair.split_once('=')?;
                (key == name).then(|| percent_decode_str(value).decode_utf8_lossy().into_owned())
            })
        };
        Ok(Self {
            host: host.to_owned(),
            device: device.to_owned(),
            module: module.map(str::to_owned),
            api_version: value("api-version").ok_or("the user name has no api-version")?,
            client_type: value("DeviceClientType"),
            model_id: value("model-id"),
        })
    }
}

/// A password that may be shown: the signature is cut out.
pub(crate) fn redact(password: &str) -> String {
    match SasToken::parse(password) {
        Ok(token) => format!("{token:?}"),
        Err(reason) => format!("({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SR: &str = "test-hub.azure-devices.net%2Fdevices%2Fedge1%2Fmodules%2Fslice-healer";

    fn token(sr: &str, key: &[u8], se: &str) -> String {
        let digest = BASE64.encode(hmac_sha256(key, format!("{sr}\n{se}").as_bytes()));
        let sig = digest
            .replace('+', "%2B")
            .replace('/', "%2F")
            .replace('=', "%3D");
        format!("SharedAccessSignature se={se}&sr={sr}&sig={sig}")
    }

    fn audience() -> Audience<'static> {
        Audience {
            hosts: &["test-hub.azure-devices.net", "gateway"],
            device: "edge1",
            module: "slice-healer",
        }
    }

    /// The digest was made by Python's hmac module.
    #[test]
    fn the_digest_is_the_one_that_python_makes() {
        let digest = hmac_sha256(&[b'k'; 32], format!("{SR}\n1700003600").as_bytes());
        assert_eq!(
            BASE64.encode(digest),
            "YTDANX82FSJ4+VpPSB7C7GfbXAXC9t0XeCI+kaIfS9I="
        );
    }

    #[test]
    fn the_signature_covers_the_text_as_sent() {
        let lower = SR.replace("%2F", "%2f");
        for sr in [SR, lower.as_str()] {
            let token = SasToken::parse(&token(sr, b"key", "1700003600")).unwrap();
            assert_eq!(token.verify(&[b"other", b"key"], &audience()), Ok(()));
            assert!(token.verify(&[b"other"], &audience()).is_err());
            assert_eq!(token.expires, 1_700_003_600);
        }
    }

    #[test]
    fn ids_are_compared_exactly_after_one_or_two_decodings() {
        let mut wanted = audience();
        wanted.module = "a b";
        for (sr, fits) in [
            ("gateway%2Fdevices%2Fedge1%2Fmodules%2Fa%20b", true),
            ("gateway%2Fdevices%2Fedge1%2Fmodules%2Fa%2520b", true),
            ("gateway/devices/edge1/modules/a b", true),
            ("gateway%2Fdevices%2Fedge1%2Fmodules%2FA%20b", false),
            ("gateway%2Fdevices%2Fedge1", false),
            ("elsewhere%2Fdevices%2Fedge1%2Fmodules%2Fa%20b", false),
        ] {
            let token = SasToken::parse(&token(sr, b"key", "1")).unwrap();
            assert_eq!(token.verify(&[b"key"], &wanted).is_ok(), fits, "{sr}");
        }
    }

    #[test]
    fn a_broken_token_is_named_and_never_shown() {
        for text in [
            "",
            "Bearer x",
            "SharedAccessSignature sr=a&se=1",
            "SharedAccessSignature sr=a&sig=!&se=1",
        ] {
            assert!(SasToken::parse(text).is_err(), "{text}");
        }
        let password = token(SR, b"key", "17");
        let signature = password.rsplit_once("sig=").unwrap().1;
        assert!(!redact(&password).contains(signature));
    }

    #[test]
    fn user_names_of_the_known_clients_parse() {
        let python =
            "hub/edge1/slice-healer/?api-version=2019-10-01&DeviceClientType=py-iothub%2F2.14";
        let parsed = Username::parse(python).unwrap();
        assert_eq!(parsed.module.as_deref(), Some("slice-healer"));
        assert_eq!(parsed.client_type.as_deref(), Some("py-iothub/2.14"));
        let plain = Username::parse("hub/d/m/api-version=1&model-id=dtmi%3Aa%3Bb;1").unwrap();
        assert_eq!(plain.model_id.as_deref(), Some("dtmi:a;b;1"));
        assert_eq!(
            Username::parse("hub/d/?api-version=1").unwrap().module,
            None
        );
    }

    #[test]
    fn user_names_that_edge_hub_refuses_are_refused() {
        for text in [
            "",
            "hub/d/m",
            "hub/d/m/?DeviceClientType=x",
            "hub/d/m/?api-version=1&DeviceClientType=a/b",
            "hub//m/?api-version=1",
        ] {
            assert!(Username::parse(text).is_err(), "{text}");
        }
    }
}
