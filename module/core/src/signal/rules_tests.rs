//! Rules in force and rules refused, what they take from a line, and what a flood costs.

use super::*;

fn rule(pattern: &str) -> RuleSpec {
    RuleSpec {
        pattern: pattern.to_owned(),
        kind: SignalKind::FailedSync,
        severity: Severity::Warning,
        units: Vec::new(),
        fields: BTreeMap::new(),
        matches: Vec::new(),
        rejects: Vec::new(),
    }
}

fn set(rules: &[(&str, RuleSpec)]) -> RuleSet {
    let specs = rules
        .iter()
        .map(|(id, rule)| ((*id).to_owned(), rule.clone()));
    let (set, bad) = RuleSet::new(specs, ["slice-healer".to_owned()]);
    assert_eq!(bad, []);
    set
}

fn found(set: &RuleSet, fields: &[(&str, &[u8])]) -> Vec<Signal> {
    let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|(n, v)| (n.as_bytes(), *v)).collect();
    let line = Line {
        fields: &fields,
        at: Timestamp::UNIX_EPOCH,
    };
    set.signals(&line, || "cursor".to_owned())
}

#[test]
fn groups_become_names_and_only_what_can_be_a_name() {
    let set = set(&[(
        "r",
        rule(r#"sync "(?P<namespace>[^/]+)/(?P<service>[^"]+)""#),
    )]);
    let signals = found(
        &set,
        &[
            ("MESSAGE", br#"sync "line1/model-endpoint" failed"#),
            ("_SYSTEMD_UNIT", b"k3s.service"),
        ],
    );
    assert_eq!(signals.len(), 1);
    let signal = &signals[0];
    assert_eq!(signal.namespace.as_deref(), Some("line1"));
    assert_eq!(signal.service.as_deref(), Some("model-endpoint"));
    assert_eq!(signal.unit.as_deref(), Some("k3s.service"));
    assert_eq!((signal.count, signal.cursor.as_str()), (1, "cursor"));
    let strange = found(&set, &[("MESSAGE", br#"sync "Line 1/mo_del" failed"#)]);
    assert_eq!((&strange[0].namespace, &strange[0].service), (&None, &None));
}

#[test]
fn a_bad_rule_is_named_and_the_rest_are_in_force() {
    let with = |change: fn(&mut RuleSpec)| {
        let mut rule = rule("stale (?P<slice>[a-z0-9-]+)");
        change(&mut rule);
        rule
    };
    let specs = [
        ("good", with(|_| {})),
        ("open", with(|r| r.pattern = "(".to_owned())),
        ("any", with(|r| r.pattern = "x*".to_owned())),
        ("long", with(|r| r.pattern = "x".repeat(2000))),
        ("huge", with(|r| r.pattern = "[a-z]{1,900}{900}".to_owned())),
        ("group", with(|r| r.pattern = "(?P<servise>x)".to_owned())),
        ("misses", with(|r| r.matches = vec!["fresh".to_owned()])),
        ("takes", with(|r| r.rejects = vec!["stale web".to_owned()])),
        (
            "field",
            with(|r| {
                r.fields.insert("unit".to_owned(), Vec::new());
            }),
        ),
        ("Upper", with(|_| {})),
        ("good", with(|_| {})),
        ("last", with(|_| {})),
    ];
    let (set, bad) = RuleSet::new(specs.map(|(id, rule)| (id.to_owned(), rule)), []);
    assert_eq!(set.ids().collect::<Vec<_>>(), ["good", "last"]);
    let names: Vec<&str> = bad.iter().map(|bad| bad.id.as_str()).collect();
    let expected = [
        "open", "any", "long", "huge", "group", "misses", "takes", "field", "Upper", "good",
    ];
    assert_eq!(names, expected);
    assert!(bad[4].to_string().contains("`servise`"), "{}", bad[4]);
    assert_eq!(found(&set, &[("MESSAGE", b"stale web")]).len(), 2);
}

#[test]
fn unknown_keys_are_refused() {
    let text = r#"{"pattern": "x", "patern": "y"}"#;
    let error = serde_json::from_str::<RuleSpec>(text)
        .unwrap_err()
        .to_string();
    assert!(error.contains("patern"), "{error}");
    let least: RuleSpec = serde_json::from_str(r#"{"pattern": "x"}"#).unwrap();
    assert_eq!(
        (least.kind, least.severity),
        (SignalKind::Custom, Severity::Info)
    );
}

#[test]
fn units_and_fields_say_whose_lines() {
    let mut narrow = rule("stale");
    narrow.units = vec!["iotedge".to_owned(), "k3s.service".to_owned()];
    narrow
        .fields
        .insert("CONTAINER_NAME".to_owned(), vec!["proxy".to_owned()]);
    let set = set(&[("narrow", narrow)]);
    let hits = |fields: &[(&str, &[u8])]| {
        let mut fields = fields.to_vec();
        fields.push(("MESSAGE", b"stale"));
        found(&set, &fields).len()
    };
    assert_eq!(hits(&[("_SYSTEMD_UNIT", b"iotedge.service")]), 1);
    assert_eq!(hits(&[("_SYSTEMD_UNIT", b"k3s.service")]), 1);
    assert_eq!(hits(&[("UNIT", b"iotedge.service")]), 1);
    assert_eq!(
        hits(&[
            ("_SYSTEMD_UNIT", b"docker.service"),
            ("CONTAINER_NAME", b"proxy")
        ]),
        1
    );
    assert_eq!(hits(&[("_SYSTEMD_UNIT", b"iotedge.socket")]), 0);
    assert_eq!(hits(&[("_SYSTEMD_UNIT", b"k3s-agent.service")]), 0);
    assert_eq!(hits(&[]), 0);
    assert_eq!(
        set.wanted_fields().collect::<Vec<_>>(),
        [("CONTAINER_NAME", "proxy")]
    );
}

#[test]
fn what_we_log_ourselves_is_no_signal() {
    let set = set(&[("r", rule("stale"))]);
    for own in ["SYSLOG_IDENTIFIER", "CONTAINER_NAME"] {
        assert!(found(&set, &[("MESSAGE", b"stale"), (own, b"slice-healer")]).is_empty());
    }
    assert_eq!(
        found(&set, &[("MESSAGE", b"stale"), ("CONTAINER_NAME", b"other")]).len(),
        1
    );
}

#[test]
fn lines_need_not_be_text_and_may_come_several_to_an_entry() {
    let set = set(&[("r", rule("stale")), ("s", rule("slice"))]);
    let signals = found(
        &set,
        &[
            ("MESSAGE", b"\xff\xfe stale\n\x1b[31m"),
            ("MESSAGE", b"stale slice"),
        ],
    );
    let rules: Vec<&str> = signals.iter().map(|signal| signal.rule.as_str()).collect();
    assert_eq!(
        rules,
        ["r", "s"],
        "one signal a rule, from any of the messages"
    );
    assert!(!signals[0].message.contains(|c: char| c.is_control()));
}

#[test]
fn long_lines_are_cut_and_said_to_be() {
    let set = set(&[("r", rule("stale")), ("end", rule("the end$"))]);
    let mut line = b"stale ".to_vec();
    line.extend(vec![b'x'; 200_000]);
    line.extend(b" the end");
    let signals = found(&set, &[("MESSAGE", &line)]);
    assert_eq!(
        signals.len(),
        1,
        "what lies behind the limit is not looked at"
    );
    assert!(signals[0].message.len() < 600 && signals[0].message.ends_with('…'));
}
