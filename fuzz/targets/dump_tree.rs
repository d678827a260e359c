//! Dumps that are well-formed and wrong: a case of the catalogue in which values were removed,
//! doubled, swapped and replaced. Reaches rules that text which no longer parses never does.

#![no_main]

mod judged;
#[allow(dead_code, reason = "the agent uses more of it")]
#[path = "../../module/agent/load/mod.rs"]
mod load;

use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Value, json};

/// More changes than this and nothing of the case is left.
const CHANGES: usize = 24;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let cases = cases();
    let mut dump = cases[choices.next() % cases.len()].clone();
    for _ in 0..CHANGES {
        if choices.0.is_empty() {
            break;
        }
        change(&mut dump, &mut choices);
    }
    judged::judge(&dump.to_string());
});

/// The catalogue's objects, read once.
fn cases() -> &'static [Value] {
    static CASES: OnceLock<Vec<Value>> = OnceLock::new();
    CASES.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .expect("the catalogue is there")
            .map(|entry| entry.expect("it can be read").path().join("objects.yaml"))
            .filter(|file| file.is_file())
            .collect();
        files.sort();
        let read = |file| std::fs::read_to_string(file).expect("a case has objects");
        let all: Vec<Value> = files
            .into_iter()
            .filter_map(|file| serde_saphyr::from_str(&read(file)).ok())
            .collect();
        assert!(all.len() > 40, "only {} cases can be read", all.len());
        all
    })
}

/// The input, as choices.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> usize {
        let (now, rest) = self.0.split_at(self.0.len().min(2));
        self.0 = rest;
        now.iter()
            .fold(0, |all, byte| all << 8 | usize::from(*byte))
    }
}

fn change(dump: &mut Value, choices: &mut Choices<'_>) {
    let (what, at, other) = (choices.next(), choices.next(), choices.next());
    let size = count(dump);
    let value = match what % 8 {
        0 => Value::Null,
        1 => json!(""),
        2 => json!(["::1", "10.1.0.6", "2001:db8::1", "x"][other % 4]),
        3 => json!([0, -1, 65_536, i64::MAX, i64::MIN][other % 5]),
        4 => json!(other % 2 == 0),
        5 => json!(
            [
                "2026-11-30T09:00:00Z",
                "0001-01-01T00:00:00Z",
                "9999-12-31T23:59:59Z"
            ][other % 3]
        ),
        // Something else out of the same dump, in a list or in its place.
        _ => pick(dump, other % size).clone(),
    };
    match (pick_mut(dump, at % size), what % 8) {
        (Value::Array(items), 6) if items.len() < 64 => items.push(value),
        (Value::Array(items), 7) if !items.is_empty() => drop(items.remove(other % items.len())),
        (Value::Object(map), 7) if !map.is_empty() => {
            let key = map.keys().nth(other % map.len()).cloned();
            key.and_then(|key| map.remove(&key));
        }
        (place, _) if at % size > 0 => *place = value,
        _ => {}
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(map) => Box::new(map.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn count(value: &Value) -> usize {
    1 + children(value).map(count).sum::<usize>()
}

/// The value at this place, counted from the root.
fn pick(value: &Value, at: usize) -> &Value {
    let mut left = at;
    if left == 0 {
        return value;
    }
    left -= 1;
    for child in children(value) {
        let size = count(child);
        if left < size {
            return pick(child, left);
        }
        left -= size;
    }
    value
}

fn pick_mut(value: &mut Value, at: usize) -> &mut Value {
    if at == 0 {
        return value;
    }
    let mut left = at - 1;
    let sizes: Vec<usize> = children(value).map(count).collect();
    let mut index = 0;
    while index < sizes.len() && left >= sizes[index] {
        left -= sizes[index];
        index += 1;
    }
    let child = match value {
        Value::Array(items) => items.get_mut(index),
        Value::Object(map) => map.values_mut().nth(index),
        _ => None,
    };
    pick_mut(child.expect("it was counted"), left)
}
