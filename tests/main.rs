//! One file a behaviour; see CONTRIBUTING.md.

mod catalogue;
mod cluster_trouble;
mod cluster_watch;
mod differential;
mod doctor_cluster;
mod inspect_live;
mod journal_damage;
mod journal_fixtures;
mod journal_follow;
mod journal_read;
mod journal_rules;
mod journal_sense;
mod journal_signals;
mod kubernetes_rights;
mod lab_cluster;
mod module_process;
mod mutation;
mod peers;
mod real_actions;
mod real_controller;
mod real_heal;
mod real_wedges;
mod same_api;
mod support;
mod tidy;
mod whole_loop;
