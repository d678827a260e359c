//! One file a behaviour; see CONTRIBUTING.md.
