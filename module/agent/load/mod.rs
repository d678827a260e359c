//! Reads a dump of a cluster: whatever kubectl prints, from files or stdin. Contacts nothing, and
//! concludes nothing from kinds that are not in it.

mod decode;
mod text;
mod times;

use std::fmt;
use std::io::Read as _;
use std::path::PathBuf;

use jiff::Timestamp;
use slice_core::model::{Kind, Object, World};

pub use times::newest_before;

/// What a dump holds.
#[derive(Debug, Default)]
pub struct Dump {
    /// The objects that are judged, with the kinds that were seen.
    pub world: World,
    /// When kube-controller-manager last renewed its lease, and for how many seconds.
    pub controller_lease: Option<(Timestamp, i64)>,
    /// The newest moment before `now` that the objects mention, ends of grace periods left out.
    pub newest: Option<Timestamp>,
    /// What is missing and what cannot be judged for it, for a person.
    pub notes: Vec<String>,
}

/// Where a dump comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
    /// Text at hand.
    Text(String),
}

impl Source {
    /// `-` is standard input, everything else a file.
    pub fn new(argument: &str) -> Self {
        if argument == "-" {
            Self::Stdin
        } else {
            Self::File(argument.into())
        }
    }

    fn read(&self) -> std::io::Result<String> {
        match self {
            Self::Stdin => {
                let mut text = String::new();
                std::io::stdin().lock().read_to_string(&mut text)?;
                Ok(text)
            }
            Self::File(path) => std::fs::read_to_string(path),
            Self::Text(text) => Ok(text.clone()),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str("standard input"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Text(_) => f.write_str("the text"),
        }
    }
}

/// Why a dump cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {from}: check the path, and that it is UTF-8 text")]
    Read {
        /// Which.
        from: Source,
        /// Why.
        source: std::io::Error,
    },
    /// It is neither JSON nor YAML.
    #[error("{from}, document {document}: not JSON or YAML as kubectl prints it: {why}")]
    Syntax {
        /// Which file.
        from: Source,
        /// Which document of it, from 1.
        document: usize,
        /// Why.
        why: String,
    },
    /// An object is not what its kind says.
    #[error("{from}, document {document}: {object} is broken: {why}")]
    Object {
        /// Which file.
        from: Source,
        /// Which document of it, from 1.
        document: usize,
        /// Kind and name of the object.
        object: String,
        /// Why.
        why: String,
    },
    /// There is nothing in it.
    #[error("{from} holds no object: print some with `kubectl get … -o yaml`")]
    Empty {
        /// Which file.
        from: Source,
    },
}

/// Reads all sources into one dump; a later object of the same name wins.
///
/// # Errors
/// The first source, document or object that cannot be read.
pub fn load(sources: &[Source], now: Timestamp) -> Result<Dump, LoadError> {
    let mut found = Found::default();
    let mut dump = Dump::default();
    for source in sources {
        let text = source.read().map_err(|e| LoadError::Read {
            from: source.clone(),
            source: e,
        })?;
        load_text(source, &text, &mut found)?;
        dump.newest = dump.newest.max(newest_before(&text, now));
    }
    finish(found, dump)
}

fn load_text(from: &Source, text: &str, found: &mut Found) -> Result<(), LoadError> {
    let text = text.trim_start_matches('\u{feff}');
    let before = found.documents;
    for (number, document) in (1..).zip(text::documents(text)) {
        document
            .and_then(|document| decode::document(&document, found))
            .map_err(|fault| fault.at(from, number))?;
        found.documents += 1;
    }
    if found.documents == before {
        return Err(LoadError::Empty { from: from.clone() });
    }
    Ok(())
}

/// What the documents held.
#[derive(Debug, Default)]
struct Found {
    documents: usize,
    objects: Vec<Object>,
    /// Kinds that were there as a list, even an empty one.
    listed: Vec<Kind>,
    lease: Option<(Timestamp, i64)>,
    other_kinds: std::collections::BTreeMap<String, usize>,
    old_slices: usize,
}

/// What is wrong with a document.
#[derive(Debug)]
enum Fault {
    Syntax(String),
    Object { object: String, why: String },
}

impl Fault {
    fn at(self, from: &Source, document: usize) -> LoadError {
        let from = from.clone();
        match self {
            Self::Syntax(why) => LoadError::Syntax {
                from,
                document,
                why,
            },
            Self::Object { object, why } => LoadError::Object {
                from,
                document,
                object,
                why,
            },
        }
    }
}

fn finish(found: Found, mut dump: Dump) -> Result<Dump, LoadError> {
    let count = |kind| found.objects.iter().filter(|o| o.kind() == kind).count();
    let whole_cluster = found.objects.iter().any(|o| match o {
        Object::Service(s) => {
            slice_core::model::Service::is_kubernetes(&s.meta.namespace, &s.meta.name)
        }
        _ => false,
    });
    let mut seen: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|k| count(*k) > 0 || found.listed.contains(k))
        .collect();
    // Slices are what is judged: none among Services means that there are none, unless even the
    // API's own, which no cluster lacks, is not there.
    if !seen.contains(&Kind::EndpointSlice) && count(Kind::Service) > 0 {
        if !whole_cluster {
            seen.push(Kind::EndpointSlice);
        }
        dump.notes.push(match whole_cluster {
            true => {
                "no EndpointSlice in the input, not even the API's own: nothing is judged. Add \
                     them: kubectl get endpointslices -A -o yaml"
                    .into()
            }
            false => "no EndpointSlice in the input: the Services are judged as having none".into(),
        });
    }
    let mirrored = found.objects.iter().any(
        |o| matches!(o, Object::Slice(s) if s.manager() == slice_core::model::Manager::Mirroring),
    );
    let missing = [
        (
            Kind::Service,
            true,
            "orphans, selectors and expectations are not judged",
        ),
        (Kind::Pod, true, "no finding that depends on pods is made"),
        (
            Kind::Node,
            true,
            "zones, missing nodes and node addresses are not judged",
        ),
        (
            Kind::Endpoints,
            mirrored,
            "mirrored slices are not compared",
        ),
    ];
    for (kind, matters, what) in missing {
        if matters && !seen.contains(&kind) {
            dump.notes.push(format!("no {kind} in the input: {what}"));
        }
    }
    if found.old_slices > 0 {
        dump.notes.push(format!(
            "{} slices are of discovery.k8s.io/v1beta1 and left out: dump \
             endpointslices.v1.discovery.k8s.io",
            found.old_slices
        ));
    }
    dump.controller_lease = found.lease;
    for object in found.objects {
        dump.world.apply(object);
    }
    for kind in seen {
        dump.world.set_seen(kind, true);
    }
    Ok(dump)
}

#[cfg(test)]
mod tests;
