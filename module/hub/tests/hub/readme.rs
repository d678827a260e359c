//! The table of failure kinds in the README names tests; each of them must exist.

const README: &str = include_str!("../../README.md");

/// Test modules by the name that the table uses.
const SOURCES: [(&str, &str); 11] = [
    ("connect", include_str!("connect.rs")),
    ("credentials", include_str!("credentials.rs")),
    ("messages", include_str!("messages.rs")),
    ("methods", include_str!("methods.rs")),
    ("methods", include_str!("../../src/methods_tests.rs")),
    ("twin", include_str!("twin.rs")),
    ("twin", include_str!("../../src/session/tests/twin.rs")),
    ("link", include_str!("../../src/session/tests/link.rs")),
    ("loss", include_str!("../../src/session/tests/loss.rs")),
    ("desired", include_str!("../../src/twin/desired.rs")),
    ("reported", include_str!("../../src/twin/reported_tests.rs")),
];

#[test]
fn every_kind_has_a_row_and_every_test_in_it_exists() {
    let rows: Vec<_> = README
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter(|row| row.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert_eq!(rows.len(), 23);
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row.split(" | ").collect();
        assert_eq!(cells[0], (index + 1).to_string());
        let names: Vec<_> = cells[3].split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            let (module, test) = name.split_once("::").expect(name);
            let (start, exact) = match test.strip_suffix('…') {
                Some(start) => (start, ""),
                None => (test, "("),
            };
            let wanted = format!("fn {start}{exact}");
            let found = SOURCES
                .iter()
                .any(|(m, text)| *m == module && text.contains(&wanted));
            assert!(found, "{name} of kind {} is no test", index + 1);
        }
    }
}
