//! Findings for a person: worst first, at most 100 columns, colour only where asked for.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use slice_core::judge::{Finding, RemedyAction, Severity};

use super::findings::Look;

/// No line is longer than this, in characters.
const WIDTH: usize = 100;
/// Where the text under a finding's first line begins.
const INDENT: usize = 10;
/// Findings of one kind in one slice that are shown in full; the rest is counted.
const ALIKE: usize = 3;

/// Writes a look as text.
pub(super) fn render(look: &Look, colour: bool) -> String {
    let mut out = String::new();
    let mut alike: BTreeMap<(Severity, &str, Option<&str>, Option<&str>, Option<&str>), usize> =
        BTreeMap::new();
    let group = |f: &Finding| {
        (
            f.severity,
            f.kind.as_str(),
            None::<()>,
            f.namespace.clone(),
            f.service.clone(),
            f.slice.clone(),
        )
    };
    let mut findings = look.findings.iter().peekable();
    while let Some(finding) = findings.next() {
        let seen = alike
            .entry((
                finding.severity,
                finding.kind.as_str(),
                finding.namespace.as_deref(),
                finding.service.as_deref(),
                finding.slice.as_deref(),
            ))
            .or_default();
        *seen += 1;
        if *seen <= ALIKE {
            one(&mut out, finding, colour);
        }
        let last = findings
            .peek()
            .is_none_or(|next| group(next) != group(finding));
        if last && *seen > ALIKE {
            let more = format!("and {} more like these", *seen - ALIKE);
            wrapped(&mut out, INDENT, &more);
            out.push('\n');
        }
    }
    let cluster = &look.cluster;
    let _ = writeln!(
        out,
        "{} critical, {} warning, {} info, as of {} (server {})",
        look.summary.critical,
        look.summary.warning,
        look.summary.info,
        look.observed_at,
        cluster.server_version.as_deref().unwrap_or("unknown"),
    );
    out
}

fn one(out: &mut String, finding: &Finding, colour: bool) {
    let severity = finding.severity.as_str();
    let painted = match (colour, finding.severity) {
        (false, _) => format!("{severity:<INDENT$}"),
        (true, Severity::Critical) => format!("\u{1b}[1;31m{severity:<INDENT$}\u{1b}[0m"),
        (true, Severity::Warning) => format!("\u{1b}[33m{severity:<INDENT$}\u{1b}[0m"),
        (true, Severity::Info) => format!("\u{1b}[36m{severity:<INDENT$}\u{1b}[0m"),
    };
    let place = match (&finding.namespace, &finding.service) {
        (Some(namespace), Some(service)) => format!("{namespace}/{service}"),
        (Some(namespace), None) => namespace.clone(),
        _ => "the cluster".to_owned(),
    };
    let room = WIDTH - INDENT - 20;
    let _ = writeln!(
        out,
        "{painted}{:<19} {}",
        finding.kind.as_str(),
        shortened(&place, room)
    );
    wrapped(out, INDENT, &finding.message);
    let action = match finding.remedy.action {
        RemedyAction::None => "No heal: ".to_owned(),
        action => format!("Heal with {action}: "),
    };
    wrapped(out, INDENT, &format!("{action}{}", finding.remedy.reason));
    out.push('\n');
}

/// Wraps at spaces; a word that is longer than a line is cut into pieces.
fn wrapped(out: &mut String, indent: usize, text: &str) {
    let room = WIDTH - indent;
    let mut line = String::new();
    let mut length = 0;
    let mut flush = |line: &mut String, length: &mut usize| {
        let _ = writeln!(out, "{:indent$}{line}", "");
        line.clear();
        *length = 0;
    };
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().filter(|c| !c.is_control()).collect();
        if length > 0 && length + 1 + rest.len() > room {
            flush(&mut line, &mut length);
        }
        while rest.len() > room {
            let tail = rest.split_off(room);
            line.extend(rest);
            flush(&mut line, &mut length);
            rest = tail;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        length += rest.len();
        line.extend(rest);
    }
    if length > 0 {
        flush(&mut line, &mut length);
    }
}

fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(room.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use slice_core::judge::{Evidence, FindingKind, Remedy};
    use slice_core::model::Counts;

    use super::*;

    fn finding(name: &str, message: &str) -> Finding {
        Finding {
            kind: FindingKind::GhostEndpoint,
            severity: Severity::Critical,
            namespace: Some("line1".into()),
            service: Some(name.into()),
            slice: None,
            addresses: vec![],
            pod: None,
            message: message.into(),
            evidence: Evidence::default(),
            remedy: Remedy::default(),
        }
    }

    fn render_all(findings: Vec<Finding>, colour: bool) -> String {
        let at = jiff::Timestamp::UNIX_EPOCH;
        render(
            &Look::new(at, None, Counts::default(), findings, vec![]),
            colour,
        )
    }

    #[test]
    fn no_line_is_longer_than_100_columns_whatever_the_names() {
        let long = "n".repeat(250);
        let text = render_all(
            vec![finding(
                &long,
                &format!("Slice {long} lists é {}", "word ".repeat(60)),
            )],
            false,
        );
        for line in text.lines() {
            assert!(
                line.chars().count() <= WIDTH,
                "{} {line}",
                line.chars().count()
            );
        }
        assert!(!text.contains('\u{1b}'));
        assert!(render_all(vec![finding("web", "x")], true).contains("\u{1b}[1;31mcritical"));
    }

    #[test]
    fn many_alike_are_counted() {
        let text = render_all(
            (0..10).map(|n| finding("web", &format!("m{n}"))).collect(),
            false,
        );
        assert_eq!(text.matches("GhostEndpoint").count(), ALIKE);
        assert!(text.contains("and 7 more like these"), "{text}");
        assert!(text.contains("10 critical, 0 warning"), "{text}");
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        let text = render_all(vec![finding("web", "a\u{1b}[2Jb")], false);
        assert!(text.contains("a[2Jb"), "{text}");
    }
}
