//! The journal: readable, with entries of the units that count; the rules that are to match.

use std::time::Duration;

use slice_journal::{Fields, Follower, Match, Options, Start, State};

use super::{Check, Look};
use crate::sense::rules::Rules;

/// How long to wait for a first entry; one that is there comes at once.
const LOOK: Duration = Duration::from_secs(1);

pub(super) async fn checks(look: &Look) -> Vec<Check> {
    let journal = look.settings.journal.clone();
    let directories = journal.directories.0.clone();
    let units = journal.units.0.clone();
    // Reading files blocks.
    let read = tokio::task::spawn_blocking(move || read(&directories, &units)).await;
    let mut checks = read.unwrap_or_else(|error| {
        vec![Check::fail(
            "journal",
            format!("the reader ended: {error}"),
            "report this as a bug",
        )]
    });
    checks.push(rules(look));
    checks
}

fn read(directories: &[String], units: &[String]) -> Vec<Check> {
    let mut options = Options::directories(directories.iter().map(String::as_str));
    options.inotify = false;
    options.start = Start::Head;
    options.fields = Fields::Only(Vec::new());
    let follower = Follower::open(options.clone()).map(|mut follower| {
        let entry = follower.next(LOOK).is_some();
        (entry, follower.status())
    });
    let (entry, status) = match follower {
        Ok(seen) => seen,
        Err(error) => {
            return vec![Check::fail(
                "journal",
                error.to_string(),
                "set journal.directories",
            )];
        }
    };
    let places = directories.join(", ");
    let journal = match status.state {
        State::Denied => {
            let place = status
                .denied
                .map_or(places, |path| path.display().to_string());
            Check::fail(
                "journal",
                format!("{place} may not be read"),
                "give the module the host's group systemd-journal: GroupAdd with its number (getent group systemd-journal)",
            )
        }
        State::Waiting => Check::warn(
            "journal",
            format!("there is no journal in {places}"),
            "bind /var/log/journal and /run/log/journal of the host read-only; everything else works without",
        ),
        State::Following if status.unsupported_files > 0 => Check::warn(
            "journal",
            format!(
                "{} of its files are of a newer systemd and cannot be read",
                status.unsupported_files
            ),
            "update slice-healer; staleness is found without the journal",
        ),
        State::Following if !entry => {
            Check::warn("journal", "the journal is empty", "is journald running?")
        }
        State::Following => Check::ok(
            "journal",
            format!("{} files can be read in {places}", status.files),
        ),
    };
    let readable = status.state == State::Following;
    vec![
        journal,
        if readable {
            seen_units(&options, units)
        } else {
            Check::skipped("journal-units", "needs a journal")
        },
    ]
}

fn seen_units(options: &Options, units: &[String]) -> Check {
    let id = "journal-units";
    let mut seen = Vec::new();
    for unit in units {
        let name = if unit.contains('.') && unit.ends_with(".service") {
            unit.clone()
        } else {
            format!("{unit}.service")
        };
        let Ok(unit_match) = Match::new("_SYSTEMD_UNIT", &name) else {
            return Check::fail(
                id,
                format!("`{unit}` cannot be a unit"),
                "set journal.units",
            );
        };
        let mut one = options.clone();
        one.matches = vec![unit_match];
        let found =
            Follower::open(one).is_ok_and(|mut follower| follower.next(Duration::ZERO).is_some());
        if found {
            seen.push(unit.as_str());
        }
    }
    if seen.is_empty() {
        return Check::warn(
            id,
            format!("no entry of {}", units.join(", ")),
            "name the units of this host in journal.units (systemctl list-units); staleness is found without them",
        );
    }
    Check::ok(id, format!("entries of {}", seen.join(", ")))
}

/// The rules that `run` would put in force, with the lines that each must and must not match.
fn rules(look: &Look) -> Check {
    let id = "journal-rules";
    let rules = Rules::of_settings(&look.settings.journal, "slice-healer");
    let in_force = rules.set.ids().count();
    if rules.bad.is_empty() {
        return Check::ok(
            id,
            format!("{in_force} rules compile and match their samples"),
        );
    }
    let bad: Vec<String> = rules
        .bad
        .iter()
        .map(|bad| format!("{}: {}", bad.id, bad.why))
        .collect();
    Check::fail(
        id,
        format!(
            "{in_force} rules are in force, not these: {}",
            bad.join("; ")
        ),
        "config/journal-rules.toml shows the form",
    )
}
