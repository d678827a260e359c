//! What this binary was made from: version, commit and target, for `--version`. Reads the compiler's
//! environment only, so that a build without `.git` (an image, a crate) works and says so.

use std::sync::LazyLock;

/// The commit that was built. `SLICE_HEALER_COMMIT` is set by `tools/build.sh`; cargo builds anew
/// when it changes.
pub const COMMIT: &str = match option_env!("SLICE_HEALER_COMMIT") {
    Some(commit) => commit,
    None => "",
};

const LIBC: &str = if cfg!(target_env = "musl") {
    "musl"
} else {
    "gnu"
};

/// Such as `0.1.0 (commit 4f2a91c03b7e, aarch64-linux-musl)`; without a commit, `unknown`.
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let commit = if COMMIT.is_empty() { "unknown" } else { COMMIT };
        let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
        let version = env!("CARGO_PKG_VERSION");
        format!("{version} (commit {commit}, {arch}-{os}-{LIBC})")
    });
    &TEXT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_release_commit_and_target() {
        let text = version();
        assert!(
            text.starts_with(concat!(env!("CARGO_PKG_VERSION"), " (commit ")),
            "{text}"
        );
        assert!(text.contains(std::env::consts::ARCH), "{text}");
        assert!(!text.contains("commit ,"), "{text}");
    }
}
