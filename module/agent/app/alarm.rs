//! What the hub does wrong to the module twin, told as telemetry: the twin itself cannot say that it is
//! stuck. Pure.

use jiff::Timestamp;
use slice_core::event::{Event, EventType};
use slice_core::judge::Severity;

/// The event to be told, if the client's event is one for the fleet.
pub(super) fn of(event: &slice_hub::Event, at: Timestamp) -> Option<Event> {
    let (kind, severity, message, evidence) = match event {
        slice_hub::Event::ReportedStuck => (
            EventType::Escalated,
            Severity::Warning,
            "edgeHub accepts reported properties and the cloud does not get them: this device's twin is \
             out of date until edgeHub's store is cleared"
                .to_owned(),
            Vec::new(),
        ),
        slice_hub::Event::ReportedRecovered => (
            EventType::Resolved,
            Severity::Info,
            "reported properties reach the cloud again".to_owned(),
            Vec::new(),
        ),
        slice_hub::Event::ReportedRefused { section, status } => (
            EventType::Escalated,
            Severity::Warning,
            format!("the hub refuses the section {section} of the reported document; it is left out"),
            vec![
                ("section".to_owned(), section.clone()),
                ("status".to_owned(), status.to_string()),
            ],
        ),
        _ => return None,
    };
    Some(Event {
        evidence,
        ..Event::of_module(kind, at, severity, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_twin_and_a_refused_section_are_told_and_ordinary_events_are_not() {
        let told = |event| of(&event, Timestamp::UNIX_EPOCH);
        let stuck = told(slice_hub::Event::ReportedStuck).unwrap();
        assert_eq!(
            (stuck.kind, stuck.severity),
            (EventType::Escalated, Severity::Warning)
        );
        assert_eq!(
            told(slice_hub::Event::ReportedRecovered).unwrap().kind,
            EventType::Resolved
        );
        let refused = told(slice_hub::Event::ReportedRefused {
            section: "labels".to_owned(),
            status: 400,
        });
        assert!(refused.unwrap().message.contains("labels"));
        assert_eq!(told(slice_hub::Event::ReportedSettled), None);
    }
}
