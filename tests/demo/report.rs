//! The one table of the demonstration and the page around it. Renders what was measured; adds nothing.

use std::fmt::Write as _;
use std::time::Duration;

use super::traffic::Counts;

/// What became of one lane.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// `A`, `B` or `C`.
    pub(super) letter: char,
    /// What is done about staleness there.
    pub(super) cure: &'static str,
    /// The requests since the redeployment.
    pub(super) counts: Counts,
    /// From the redeployment to the last request that was not answered rightly; none when they went
    /// on to the end.
    pub(super) right_after: Option<Duration>,
    /// Writes to Services and slices, such as `1 patch services`; empty for none.
    pub(super) writes: Vec<String>,
    /// How many slices the Service has at the end.
    pub(super) slices: usize,
    /// Until when the controller would not have tried by itself, from the end.
    pub(super) next_try: Duration,
}

/// The whole demonstration.
#[derive(Debug, Clone)]
pub(super) struct Report {
    /// What the API server says of itself.
    pub(super) version: String,
    /// How long the lanes were watched after the controller was allowed to write again.
    pub(super) window: Duration,
    /// Requests a second in each lane.
    pub(super) rate: u64,
    /// The lanes, in order.
    pub(super) lanes: Vec<Lane>,
}

impl Report {
    /// The table alone.
    pub(super) fn table(&self) -> String {
        let mut text = String::from(
            "| lane | wrong answers | failed requests | of these refused: no endpoint | seconds to \
             right | writes | slices left |\n\
             | --- | ---: | ---: | ---: | ---: | --- | ---: |\n",
        );
        for lane in &self.lanes {
            let Counts {
                wrong,
                failed,
                refused,
                ..
            } = lane.counts;
            let right = match lane.right_after {
                Some(after) => format!("{:.1}", after.as_secs_f64()),
                None => "not yet".to_owned(),
            };
            let writes = match lane.writes.is_empty() {
                true => "none".to_owned(),
                false => lane.writes.join(", "),
            };
            let _ = writeln!(
                text,
                "| {} {} | {wrong} | {failed} | {refused} | {right} | {writes} | {} |",
                lane.letter, lane.cure, lane.slices
            );
        }
        text
    }

    /// The page, Markdown.
    pub(super) fn page(&self) -> String {
        let window = self.window.as_secs();
        let mut text = format!(
            "# The same redeployment, three ways\n\n\
             Kubernetes {}: real kube-apiserver, kube-controller-manager and kube-proxy (nftables), \
             in a network namespace of their own. Three Services, each with three pods of model \
             2.0 that answer with their version, and {} requests a second through each ClusterIP, \
             each on a connection of its own. The host's journal holds no line about slices.\n\n\
             kube-controller-manager is restarted. Then an admission policy refuses its writes, as \
             a webhook does that is down; the pods are replaced by pods of model 2.1, and the \
             policy goes away again. One of the old containers of each lane goes on answering, two \
             are gone. What differs is only what is done next.\n\n{}\n\
             Counted from the redeployment to {window} s after the controller was allowed to write \
             again.\n\n",
            self.version,
            self.rate,
            self.table()
        );
        for lane in &self.lanes {
            let _ = writeln!(text, "- {}", sentence(lane, window));
        }
        text
    }
}

fn sentence(lane: &Lane, window: u64) -> String {
    let Counts {
        sent,
        wrong,
        failed,
        ..
    } = lane.counts;
    let bad = wrong + failed;
    let name = format!("**{}**, {}", lane.letter, lane.cure);
    match (lane.right_after, lane.slices) {
        (Some(after), _) => format!(
            "{name}: right after {:.1} s; {bad} of {sent} requests were not answered rightly until \
             then, none after.",
            after.as_secs_f64()
        ),
        (None, 0) => format!(
            "{name}: the Service has no slice at all, so nobody is reached. The controller did not \
             have the slice in its memory and took no notice of the delete; its own next try is \
             {:.0} s away.",
            lane.next_try.as_secs_f64()
        ),
        (None, _) => format!(
            "{name}: still stale after {window} s, {bad} of {sent} requests not answered rightly. \
             The controller's own next try is {:.0} s away.",
            lane.next_try.as_secs_f64()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(letter: char, right_after: Option<Duration>, slices: usize) -> Lane {
        Lane {
            letter,
            cure: "cure",
            counts: Counts {
                sent: 100,
                wrong: 7,
                failed: 13,
                refused: 3,
            },
            right_after,
            writes: vec!["1 patch services".into(), "2 delete endpointslices".into()],
            slices,
            next_try: Duration::from_secs(940),
        }
    }

    fn report() -> Report {
        let lanes = vec![
            Lane {
                writes: Vec::new(),
                ..lane('A', None, 1)
            },
            lane('B', None, 0),
            lane('C', Some(Duration::from_millis(5_240)), 1),
        ];
        let (window, rate) = (Duration::from_secs(45), 50);
        Report {
            version: "v1.37.2".into(),
            window,
            rate,
            lanes,
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_lane_with_what_was_measured() {
        let table = report().table();
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 5);
        assert_eq!(rows[2], "| A cure | 7 | 13 | 3 | not yet | none | 1 |");
        let writes = "1 patch services, 2 delete endpointslices";
        assert_eq!(
            rows[3],
            format!("| B cure | 7 | 13 | 3 | not yet | {writes} | 0 |")
        );
        assert_eq!(
            rows[4],
            format!("| C cure | 7 | 13 | 3 | 5.2 | {writes} | 1 |")
        );
        let columns = rows[0].matches('|').count();
        assert!(rows.iter().all(|row| row.matches('|').count() == columns));
    }

    #[test]
    fn the_page_says_of_each_lane_how_it_ended() {
        let page = report().page();
        for part in [
            "v1.37.2",
            "**A**, cure: still stale after 45 s, 20 of 100 requests",
            "**B**, cure: the Service has no slice at all",
            "next try is 940 s away",
            "**C**, cure: right after 5.2 s; 20 of 100 requests",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(page.contains(&report().table()));
    }
}
