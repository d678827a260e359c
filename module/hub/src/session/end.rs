//! Why a link ended or an attempt did not become one.

use crate::event::DisconnectReason;

/// The end of a link or of an attempt. The text never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) reason: DisconnectReason,
    pub(crate) detail: String,
}

impl End {
    pub(crate) fn new(reason: DisconnectReason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }

    pub(crate) fn refused(code: u8) -> Self {
        let meaning = match code {
            1 => "the protocol version is not supported",
            2 => "the client id is not allowed",
            3 => "the hub is not available",
            4 => "user name or password is malformed",
            5 => "not authorised: the hub does not know the module yet, or the clock is wrong",
            _ => "for a reason that MQTT does not define",
        };
        Self::new(
            DisconnectReason::Refused,
            format!("the hub refused CONNECT with {code}: {meaning}"),
        )
    }
}
