//! The table of edgeHub's behaviour in the README names tests; each of them must exist.

const README: &str = include_str!("../../README.md");

/// Test modules by the name that the table uses.
const SOURCES: [(&str, &str); 4] = [
    ("connect", include_str!("connect.rs")),
    ("faults", include_str!("faults.rs")),
    ("telemetry", include_str!("telemetry.rs")),
    ("twin", include_str!("twin.rs")),
];

#[test]
fn every_row_names_tests_that_exist() {
    let rows = README
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("::"));
    let mut count = 0;
    for row in rows {
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        assert_eq!(cells.len(), 3, "{row}");
        for name in cells[2].split('`').skip(1).step_by(2) {
            let (module, test) = name.split_once("::").expect(name);
            let found = SOURCES
                .iter()
                .any(|(m, text)| *m == module && text.contains(&format!("fn {test}(")));
            assert!(found, "{name} is no test");
        }
        count += 1;
    }
    assert_eq!(count, 16);
}
