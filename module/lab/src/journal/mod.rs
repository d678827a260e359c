//! Writes systemd journal files, for the lab and as fixtures of the journal tests.
