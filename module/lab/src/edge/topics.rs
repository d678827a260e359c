//! The topics of edgeHub's MQTT head: what a publish means, which filters mean something, and the
//! ordinary matching of MQTT. Knows no sessions.

use super::message::Bag;

/// What a module's publish is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Telemetry with its property bag.
    Telemetry(Bag),
    /// Twin read; the request id.
    TwinGet(String),
    /// Reported patch; the request id.
    TwinReport(String),
    /// Answer to a direct method: status if it is a number, request id.
    MethodAnswer(Option<i32>, String),
    /// A twin topic that edgeHub cannot read: it closes the connection.
    Fatal(&'static str),
    /// No template matches: dropped, but acknowledged.
    Unknown,
}

/// Reads a publish topic.
pub(crate) fn intent(topic: &str) -> Intent {
    if let Some(rest) = topic.strip_prefix("$iothub/twin/") {
        return twin(rest);
    }
    if let Some(rest) = topic.strip_prefix("$iothub/methods/res/") {
        let Some((status, query)) = rest.split_once("/?") else {
            return Intent::Unknown;
        };
        return match rid(query) {
            Some(rid) => Intent::MethodAnswer(status.parse().ok(), rid),
            None => Intent::Unknown,
        };
    }
    let segments: Vec<&str> = topic.split('/').collect();
    // A trailing slash is part of some templates and some clients' bags.
    let segments = match segments.as_slice() {
        [rest @ .., ""] => rest,
        all => all,
    };
    match segments {
        ["devices", _, "messages", "events"]
        | ["devices", _, "modules", _, "messages", "events"] => Intent::Telemetry(Bag::default()),
        ["devices", _, "messages", "events", bag]
        | ["devices", _, "modules", _, "messages", "events", bag] => {
            Intent::Telemetry(Bag::parse(bag))
        }
        _ => Intent::Unknown,
    }
}

fn twin(rest: &str) -> Intent {
    let (verb, query) = rest.split_once("/?").unwrap_or((rest, ""));
    match (verb, rid(query)) {
        ("GET", Some(rid)) => Intent::TwinGet(rid),
        ("PATCH/properties/reported", Some(rid)) => Intent::TwinReport(rid),
        ("GET" | "PATCH/properties/reported", None) => Intent::Fatal("twin topic without $rid"),
        _ => Intent::Fatal("twin topic with an unknown verb"),
    }
}

fn rid(query: &str) -> Option<String> {
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("$rid="))?;
    (!value.is_empty()).then(|| value.to_owned())
}

/// The subscriptions that mean something to edgeHub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Answers to twin requests.
    TwinAnswers,
    /// Desired changes.
    Desired,
    /// Direct methods.
    Methods,
    /// Input messages.
    Inputs,
}

impl Subject {
    /// What a filter subscribes to; `None` is granted and never matches.
    pub(crate) fn of(filter: &str, device: &str, module: &str) -> Option<Self> {
        if filter.starts_with("$iothub/twin/res/") {
            Some(Self::TwinAnswers)
        } else if filter.starts_with("$iothub/twin/PATCH/properties/desired/") {
            Some(Self::Desired)
        } else if filter.starts_with("$iothub/methods/POST/") {
            Some(Self::Methods)
        } else if filter.starts_with(&format!("devices/{device}/modules/{module}/inputs/")) {
            Some(Self::Inputs)
        } else {
            None
        }
    }
}

/// Whether a topic name matches a filter, by section 4.7 of MQTT 3.1.1.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telemetry_topics_of_modules_and_devices_are_known() {
        for topic in [
            "devices/d/messages/events",
            "devices/d/messages/events/",
            "devices/d/modules/m/messages/events/",
            "devices/d/modules/m/messages/events",
        ] {
            assert_eq!(intent(topic), Intent::Telemetry(Bag::default()), "{topic}");
        }
        let bag = Bag::parse("a=1");
        for topic in [
            "devices/d/modules/m/messages/events/a=1",
            "devices/d/modules/m/messages/events/a=1/",
        ] {
            assert_eq!(intent(topic), Intent::Telemetry(bag.clone()), "{topic}");
        }
    }

    /// A client that passes `device/module` off as a device id publishes to a topic that is neither.
    #[test]
    fn a_module_in_the_place_of_a_device_is_unknown() {
        assert_eq!(
            intent("devices/edge1/slice-healer/messages/events/"),
            Intent::Unknown
        );
        assert_eq!(intent("anything"), Intent::Unknown);
    }

    #[test]
    fn twin_topics_without_rid_or_verb_are_fatal() {
        assert_eq!(
            intent("$iothub/twin/GET/?$rid=7"),
            Intent::TwinGet("7".into())
        );
        assert_eq!(
            intent("$iothub/twin/PATCH/properties/reported/?$rid=a-b"),
            Intent::TwinReport("a-b".into())
        );
        for topic in [
            "$iothub/twin/GET/",
            "$iothub/twin/GET/?$rid=",
            "$iothub/twin/DELETE/?$rid=1",
            "$iothub/twin/PATCH/properties/desired/?$rid=1",
        ] {
            assert!(matches!(intent(topic), Intent::Fatal(_)), "{topic}");
        }
    }

    #[test]
    fn method_answers_keep_a_status_that_is_no_number() {
        assert_eq!(
            intent("$iothub/methods/res/200/?$rid=ab"),
            Intent::MethodAnswer(Some(200), "ab".into())
        );
        assert_eq!(
            intent("$iothub/methods/res/ok/?$rid=ab"),
            Intent::MethodAnswer(None, "ab".into())
        );
        assert_eq!(intent("$iothub/methods/res/200/"), Intent::Unknown);
    }

    #[test]
    fn filters_match_as_the_standard_says() {
        assert!(matches(
            "$iothub/twin/res/#",
            "$iothub/twin/res/200/?$rid=1"
        ));
        assert!(matches("a/#", "a"));
        assert!(matches("a/+/c", "a/b/c"));
        assert!(!matches("a/+", "a/b/c"));
        assert!(!matches("a/b", "a/b/c"));
        assert_eq!(
            Subject::of("devices/d/modules/m/inputs/#", "d", "m"),
            Some(Subject::Inputs)
        );
        assert_eq!(Subject::of("devices/d/modules/x/inputs/#", "d", "m"), None);
        assert_eq!(Subject::of("#", "d", "m"), None);
    }
}
