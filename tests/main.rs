//! One file a behaviour; see CONTRIBUTING.md.

mod real_controller;
mod real_wedges;
mod support;
mod tidy;
