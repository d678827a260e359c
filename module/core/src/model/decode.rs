//! Helpers for decoding Kubernetes JSON: the API writes `null` where it means "nothing". Never fails
//! on what it does not know.

use serde::{Deserialize, Deserializer};

/// Decodes `null` as the default, as Go clients do.
pub(crate) fn null_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// Decodes "there is something" without keeping it.
pub(crate) fn present<'de, D>(from: D) -> Result<bool, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(Option::<serde::de::IgnoredAny>::deserialize(from)?.is_some())
}
