//! Whether JSON fits a DTDL v2 model: what is reported, sent, asked and answered.
//!
//! Reads models and values. Whether the model itself is DTDL is for a foreign parser to say
//! (`tests/peers/node/dtdl.js`).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value};

/// The interfaces of one file, by id.
pub struct Model {
    interfaces: BTreeMap<String, Value>,
    main: String,
}

/// The model that is shipped.
pub const FILE: &str = "config/dtdl/slice-healer.json";

impl Model {
    /// The model that is shipped.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn shipped() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
        Self::read(&std::fs::read_to_string(path).context(FILE)?)
    }

    /// Reads a list of interfaces, the module's own first.
    ///
    /// # Errors
    /// When the text is no list of interfaces with ids.
    pub fn read(text: &str) -> Result<Self> {
        let list: Vec<Value> = serde_json::from_str(text)?;
        let id = |one: &Value| one["@id"].as_str().map(str::to_owned).context("no @id");
        let main = id(list.first().context("no interface")?)?;
        let mut interfaces = BTreeMap::new();
        for one in list {
            interfaces.insert(id(&one)?, one);
        }
        Ok(Self { interfaces, main })
    }

    /// The id that a module announces.
    pub fn id(&self) -> &str {
        &self.main
    }

    /// The names of one type of element (`Command`, `Property`, ...) in the main interface, or in
    /// one of its components.
    ///
    /// # Errors
    /// When there is no such component.
    pub fn names(&self, component: Option<&str>, element: &str) -> Result<Vec<&str>> {
        let all = self.contents(self.interface(component)?)?;
        let of_type = all.iter().filter(|one| one["@type"] == element);
        Ok(of_type.filter_map(|one| one["name"].as_str()).collect())
    }

    /// Whether a whole reported document fits.
    ///
    /// # Errors
    /// When it does not; the message says where.
    pub fn check_reported(&self, document: &Value) -> Result<()> {
        let main = self.interface(None)?;
        for (name, value) in fields(document)? {
            let element = self.element(main, name)?;
            match element["@type"].as_str() {
                Some("Property") => {
                    ensure!(
                        element["writable"] != true,
                        "{name}: an acknowledgement is needed"
                    );
                    fits(&element["schema"], value, name)?;
                }
                Some("Component") => {
                    ensure!(
                        value["__t"] == "c",
                        "{name}: a component without its marker"
                    );
                    let interface = self.interface(Some(name))?;
                    self.check_acknowledged(interface, value, name)?;
                }
                other => bail!("{name}: reported, but the model says {other:?}"),
            }
        }
        Ok(())
    }

    /// Whether a telemetry body fits the component that its message names.
    ///
    /// # Errors
    /// When it does not.
    pub fn check_telemetry(&self, component: &str, body: &Value) -> Result<()> {
        let interface = self.interface(Some(component))?;
        for (name, value) in fields(body)? {
            let element = self.element(interface, name)?;
            ensure!(element["@type"] == "Telemetry", "{name}: is no telemetry");
            let value = without_nulls(value);
            if !value.is_null() {
                fits(&element["schema"], &value, name)?;
            }
        }
        Ok(())
    }

    /// Whether a command exists and its request (`response`: its answer) fits. A model may leave an
    /// answer without a schema; then everything fits.
    ///
    /// # Errors
    /// When there is no such command, or the payload does not fit.
    pub fn check_command(&self, name: &str, part: &str, payload: &Value) -> Result<()> {
        let element = self.element(self.interface(None)?, name)?;
        ensure!(element["@type"] == "Command", "{name}: is no command");
        match element.get(part) {
            Some(of) => fits(&of["schema"], payload, name),
            None if part == "response" || payload.is_null() => Ok(()),
            None => bail!("{name}: takes no payload"),
        }
    }

    /// The properties of the desired component `component` with every field below them, as paths
    /// whose free keys are `*`.
    ///
    /// # Errors
    /// When there is no such component.
    pub fn leaves(&self, component: &str) -> Result<Vec<String>> {
        let mut out = Vec::new();
        for one in self.contents(self.interface(Some(component))?)? {
            let name = one["name"].as_str().context("no name")?;
            leaves(&one["schema"], name, &mut out);
        }
        out.sort();
        Ok(out)
    }

    fn check_acknowledged(&self, interface: &Value, value: &Value, path: &str) -> Result<()> {
        for (name, ack) in fields(value)?.iter().filter(|(name, _)| *name != "__t") {
            let path = format!("{path}.{name}");
            let element = self.element(interface, name).context(path.clone())?;
            ensure!(
                element["writable"] == true,
                "{path}: acknowledged, not writable"
            );
            let ack = fields(ack)?;
            let keys: Vec<&str> = ack.keys().map(String::as_str).collect();
            ensure!(keys == ["ac", "ad", "av", "value"], "{path}: {keys:?}");
            ensure!(
                ack["ac"].is_u64() && ack["av"].is_u64() && ack["ad"].is_string(),
                "{path}: {ack:?}"
            );
            fits(&element["schema"], &ack["value"], &path)?;
        }
        Ok(())
    }

    fn interface(&self, component: Option<&str>) -> Result<&Value> {
        let main = &self.interfaces[&self.main];
        let Some(component) = component else {
            return Ok(main);
        };
        let id = self.element(main, component)?["schema"]
            .as_str()
            .with_context(|| format!("{component}: is no component"))?;
        self.interfaces
            .get(id)
            .with_context(|| format!("{id}: not in the file"))
    }

    fn element<'a>(&self, interface: &'a Value, name: &str) -> Result<&'a Value> {
        self.contents(interface)?
            .iter()
            .find(|one| one["name"] == name)
            .with_context(|| format!("{name}: not in the model"))
    }

    fn contents<'a>(&self, interface: &'a Value) -> Result<&'a Vec<Value>> {
        interface["contents"].as_array().context("no contents")
    }
}

fn fields(value: &Value) -> Result<&Map<String, Value>> {
    value.as_object().context("is no object")
}

/// What does not apply is null in our telemetry, or left out; DTDL knows only the latter.
fn without_nulls(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return value.clone();
    };
    let kept = fields.iter().filter(|(_, value)| !value.is_null());
    Value::Object(kept.map(|(k, v)| (k.clone(), without_nulls(v))).collect())
}

fn leaves(schema: &Value, path: &str, out: &mut Vec<String>) {
    match schema["@type"].as_str() {
        Some("Object") => {
            for field in schema["fields"].as_array().into_iter().flatten() {
                let name = field["name"].as_str().unwrap_or_default();
                leaves(&field["schema"], &format!("{path}.{name}"), out);
            }
        }
        // A map to true is a list in the settings, and so is one leaf there.
        Some("Map") if schema["mapValue"]["schema"] != "boolean" => {
            leaves(&schema["mapValue"]["schema"], &format!("{path}.*"), out);
        }
        _ => out.push(path.to_owned()),
    }
}

/// Whether a value fits a schema.
fn fits(schema: &Value, value: &Value, path: &str) -> Result<()> {
    if let Some(primitive) = schema.as_str() {
        ensure!(
            is_primitive(primitive, value),
            "{path}: {value} is no {primitive}"
        );
        return Ok(());
    }
    match schema["@type"].as_str() {
        Some("Enum") => {
            let values = schema["enumValues"].as_array().context("no enumValues")?;
            ensure!(
                values.iter().any(|one| one["enumValue"] == *value),
                "{path}: {value} is none of the enumeration"
            );
        }
        Some("Object") => {
            let known = schema["fields"].as_array().context("no fields")?;
            for (name, value) in fields(value).with_context(|| path.to_owned())? {
                let path = format!("{path}.{name}");
                let field = known.iter().find(|one| one["name"] == **name);
                let field = field.with_context(|| format!("{path}: not in the model"))?;
                fits(&field["schema"], value, &path)?;
            }
        }
        Some("Map") => {
            for (name, value) in fields(value).with_context(|| path.to_owned())? {
                fits(
                    &schema["mapValue"]["schema"],
                    value,
                    &format!("{path}.{name}"),
                )?;
            }
        }
        Some("Array") => {
            for value in value.as_array().with_context(|| path.to_owned())? {
                fits(&schema["elementSchema"], value, path)?;
            }
        }
        other => bail!("{path}: a schema of type {other:?}"),
    }
    Ok(())
}

fn is_primitive(name: &str, value: &Value) -> bool {
    match name {
        "boolean" => value.is_boolean(),
        "integer" => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        "long" => value.is_i64(),
        "double" => value.is_number(),
        "string" => value.is_string(),
        "dateTime" => value
            .as_str()
            .is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok()),
        "duration" => value
            .as_str()
            .is_some_and(|text| text.starts_with('P') && text.parse::<jiff::Span>().is_ok()),
        _ => false,
    }
}
