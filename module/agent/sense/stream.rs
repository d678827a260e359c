//! Journal entries as journalctl prints them, from a stream: the export format and JSON.
//!
//! Keeps a bounded part of each field however long it is; never waits for the end of the stream to
//! hand out an entry.

use std::io::{BufRead, Read};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// Bytes of a field that are kept.
const MAX_FIELD: usize = 64 << 10;
/// Fields of an entry that are kept.
const MAX_FIELDS: usize = 1024;
/// A longer field name is no field name.
const MAX_NAME: usize = 64;

/// One entry: names and values in their order, those with `__` included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record(pub Vec<(Vec<u8>, Vec<u8>)>);

impl Record {
    /// The first value of a field.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(known, _)| known == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    /// When journald took the entry, in microseconds since 1970.
    pub fn realtime_usec(&self) -> Option<u64> {
        let text = self.get("__REALTIME_TIMESTAMP")?;
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    fn push(&mut self, name: Vec<u8>, value: Vec<u8>) {
        if self.0.len() < MAX_FIELDS {
            self.0.push((name, value));
        }
    }
}

/// Reads entries one by one.
pub struct Records<R> {
    input: R,
    form: Option<Form>,
    line: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Export,
    Json,
}

impl<R: BufRead> Records<R> {
    /// Finds out by the first byte which form it is.
    pub fn new(input: R) -> Self {
        Self {
            input,
            form: None,
            line: 0,
        }
    }

    /// The next entry; None at the end of the stream.
    ///
    /// # Errors
    /// The stream cannot be read or is in neither form.
    pub fn read(&mut self) -> Result<Option<Record>> {
        let Some(first) = self.skip_space()? else {
            return Ok(None);
        };
        let form = *self.form.get_or_insert(match first {
            b'{' => Form::Json,
            _ => Form::Export,
        });
        match form {
            Form::Json => self.json(),
            Form::Export => self.export(),
        }
    }

    /// The first byte that is not between entries. `-o json-seq` puts a record separator there.
    fn skip_space(&mut self) -> Result<Option<u8>> {
        loop {
            let buffer = self.input.fill_buf()?;
            let Some(byte) = buffer.first().copied() else {
                return Ok(None);
            };
            if !byte.is_ascii_whitespace() && byte != 0x1e {
                return Ok(Some(byte));
            }
            self.line += u64::from(byte == b'\n');
            self.input.consume(1);
        }
    }

    /// One object, on one line or on several.
    fn json(&mut self) -> Result<Option<Record>> {
        // Generous: numbers in an array take up to five characters a byte.
        let limit = (MAX_FIELD * 5 * 16) as u64;
        let text = self.object(limit)?;
        let object: serde_json::Map<String, Value> = serde_json::from_slice(&text)
            .with_context(|| format!("line {} is no JSON object of journalctl's", self.line + 1))?;
        let mut record = Record::default();
        for (name, value) in object {
            for value in values(value) {
                record.push(name.clone().into_bytes(), value);
            }
        }
        Ok(Some(record))
    }

    /// The bytes up to the brace that closes the first one.
    fn object(&mut self, limit: u64) -> Result<Vec<u8>> {
        let (mut text, mut depth, mut quoted, mut escaped) = (Vec::new(), 0usize, false, false);
        loop {
            let buffer = self.input.fill_buf()?;
            ensure!(!buffer.is_empty(), "the stream ends within an entry");
            for (i, byte) in buffer.iter().enumerate() {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if quoted => escaped = true,
                    b'"' => quoted = !quoted,
                    b'{' if !quoted => depth += 1,
                    b'}' if !quoted => depth = depth.saturating_sub(1),
                    b'\n' => self.line += 1,
                    _ => {}
                }
                if depth == 0 {
                    text.extend_from_slice(&buffer[..=i]);
                    self.input.consume(i + 1);
                    return Ok(text);
                }
            }
            let length = buffer.len();
            text.extend_from_slice(buffer);
            self.input.consume(length);
            ensure!(text.len() as u64 <= limit, "an entry of over {limit} bytes");
        }
    }

    /// Lines `NAME=value`; or `NAME` alone, then the value's length, the value, a line break.
    fn export(&mut self) -> Result<Option<Record>> {
        let mut record = Record::default();
        loop {
            let line = self.export_line()?;
            let Some(line) = line.filter(|line| !line.is_empty()) else {
                return Ok((!record.0.is_empty()).then_some(record));
            };
            let (name, value) = match line.iter().position(|b| *b == b'=') {
                Some(at) => (line[..at].to_vec(), line[at + 1..].to_vec()),
                None => {
                    self.check_name(&line)?;
                    let value = self.export_binary()?;
                    (line, value)
                }
            };
            self.check_name(&name)?;
            record.push(name, value);
        }
    }

    fn check_name(&self, name: &[u8]) -> Result<()> {
        let fits = (1..=MAX_NAME).contains(&name.len())
            && name
                .iter()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_');
        if !fits {
            bail!(
                "line {} is neither in journalctl's export format nor in its JSON: use -o export or -o json",
                self.line
            );
        }
        Ok(())
    }

    /// A line without its break, cut at the limit; None at the end of the stream.
    fn export_line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut any = false;
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(any.then_some(line));
            }
            any = true;
            let end = buffer.iter().position(|b| *b == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let room = (MAX_FIELD + MAX_NAME + 1).saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                self.line += 1;
                return Ok(Some(line));
            }
        }
    }

    fn export_binary(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 8];
        self.input.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        let kept = length.min(MAX_FIELD as u64);
        let mut value = Vec::new();
        (&mut self.input).take(kept).read_to_end(&mut value)?;
        let rest = length - kept;
        let skipped = std::io::copy(&mut (&mut self.input).take(rest), &mut std::io::sink())?;
        ensure!(
            value.len() as u64 == kept && skipped == rest,
            "the stream ends within a field"
        );
        let mut end = [0];
        self.input.read_exact(&mut end)?;
        ensure!(
            end == *b"\n",
            "a field of {length} bytes does not end in a line break"
        );
        Ok(value)
    }
}

/// A text, an array of bytes, an array of either, or null for what journalctl found too long.
fn values(value: Value) -> Vec<Vec<u8>> {
    let bytes = |items: &[Value]| -> Option<Vec<u8>> {
        let byte = |item: &Value| item.as_u64().and_then(|n| u8::try_from(n).ok());
        items.iter().map(byte).collect()
    };
    let mut found = match value {
        Value::Null => Vec::new(),
        Value::Array(items) => match bytes(&items) {
            Some(bytes) => vec![bytes],
            None => items.into_iter().flat_map(values).collect(),
        },
        Value::String(text) => vec![text.into_bytes()],
        other => vec![other.to_string().into_bytes()],
    };
    found.iter_mut().for_each(|value| value.truncate(MAX_FIELD));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> Result<Vec<Record>> {
        // A tiny buffer, so that each boundary falls somewhere inside.
        let mut records = Records::new(std::io::BufReader::with_capacity(3, input));
        let mut all = Vec::new();
        while let Some(record) = records.read()? {
            all.push(record);
        }
        Ok(all)
    }

    #[test]
    fn export_with_text_and_binary_fields() {
        let mut input = b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=17\nMESSAGE=a=b\nMESSAGE\n".to_vec();
        input.extend(5u64.to_le_bytes());
        input.extend(b"\xff\n\0{}\nEMPTY=\n\n\n__CURSOR=s=2\nMESSAGE=last");
        let records = read(&input).unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].get("__CURSOR"), Some(&b"s=1"[..]));
        assert_eq!(records[0].realtime_usec(), Some(17));
        assert_eq!(
            records[0].0[3],
            (b"MESSAGE".to_vec(), b"\xff\n\0{}".to_vec())
        );
        assert_eq!(records[0].get("EMPTY"), Some(&b""[..]));
        assert_eq!(records[1].get("MESSAGE"), Some(&b"last"[..]));
    }

    #[test]
    fn json_in_each_of_its_layouts() {
        let one = r#"{"MESSAGE":"brace } and \" quote","N":[255,10],"M":["a",[98]],"LONG":null}"#;
        let pretty = "{\n\t\"MESSAGE\" : \"two\"\n}";
        let input = format!("\x1e{one}\n\x1e{pretty}\n{one}");
        let records = read(input.as_bytes()).unwrap();
        assert_eq!(records.len(), 3);
        assert_eq!(
            records[0].get("MESSAGE"),
            Some(&b"brace } and \" quote"[..])
        );
        assert_eq!(records[0].get("N"), Some(&b"\xff\n"[..]));
        assert_eq!(records[0].get("LONG"), None);
        let several: Vec<_> = records[0]
            .0
            .iter()
            .filter(|(name, _)| name == b"M")
            .collect();
        assert_eq!(several.len(), 2);
        assert_eq!(records[1].get("MESSAGE"), Some(&b"two"[..]));
    }

    #[test]
    fn long_fields_are_cut_and_what_follows_is_read() {
        let mut input = format!("MESSAGE={}\nBIG\n", "x".repeat(200_000)).into_bytes();
        input.extend(100_000u64.to_le_bytes());
        input.extend(vec![b'y'; 100_000]);
        input.extend(b"\nLAST=1\n\n");
        let records = read(&input).unwrap();
        assert_eq!(records[0].get("BIG").unwrap().len(), MAX_FIELD);
        assert!(records[0].get("MESSAGE").unwrap().len() <= MAX_FIELD + MAX_NAME);
        assert_eq!(records[0].get("LAST"), Some(&b"1"[..]));
    }

    #[test]
    fn what_is_neither_form_is_an_error_that_says_what_to_do() {
        let error = read(b"Dec 01 10:00:00 edge iotedge[1]: Cache hit\n").unwrap_err();
        assert!(error.to_string().contains("-o export"), "{error}");
        assert!(read(b"{\"MESSAGE\":").is_err());
        assert!(read(b"MESSAGE\n\x08\0\0").is_err());
        assert_eq!(read(b" \n").unwrap(), []);
    }
}
