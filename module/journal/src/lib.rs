//! Reads and follows systemd journal files.
