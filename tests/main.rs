//! One file a behaviour; see CONTRIBUTING.md.

mod journal_follow;
mod journal_read;
mod real_controller;
mod real_wedges;
mod support;
mod tidy;
