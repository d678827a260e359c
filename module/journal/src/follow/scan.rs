//! Which journal files are there: the roots themselves and their machine directories.

use crate::Id128;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A journal file by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) inode: (u64, u64),
}

/// What one look at the directories gave.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) files: Vec<Found>,
    /// Where the roots themselves may appear.
    pub(crate) parents: Vec<PathBuf>,
    /// Directories that hold journals or may come to hold some.
    pub(crate) directories: Vec<PathBuf>,
    /// The first place that may not be read.
    pub(crate) denied: Option<PathBuf>,
    /// The first other failure.
    pub(crate) problem: Option<String>,
}

impl Listing {
    pub(crate) fn of(roots: &[PathBuf]) -> Self {
        let mut listing = Self::default();
        for root in roots {
            if let Some(parent) = root.parent().filter(|p| p.is_dir()) {
                listing.parents.push(parent.to_owned());
            }
            listing.directory(root, true);
        }
        listing
    }

    /// Adds single files that are named by the caller.
    pub(crate) fn add_named(&mut self, files: &[PathBuf]) {
        for path in files {
            match fs::metadata(path) {
                Ok(meta) => self.files.push(Found {
                    path: path.clone(),
                    inode: (meta.dev(), meta.ino()),
                }),
                Err(e) => self.failed(path, &e),
            }
        }
    }

    fn directory(&mut self, directory: &Path, is_root: bool) {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(e) => return self.failed(directory, &e),
        };
        self.directories.push(directory.to_owned());
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    self.failed(directory, &e);
                    break;
                }
            };
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if is_journal(&name) {
                match fs::metadata(&path) {
                    Ok(meta) if meta.is_file() => self.files.push(Found {
                        path,
                        inode: (meta.dev(), meta.ino()),
                    }),
                    Ok(_) => {}
                    Err(e) => self.failed(&path, &e),
                }
            } else if is_root && is_machine(&name) && path.is_dir() {
                self.directory(&path, false);
            }
        }
    }

    pub(crate) fn failed(&mut self, path: &Path, error: &io::Error) {
        match error.kind() {
            // Gone between two looks, or not there yet.
            io::ErrorKind::NotFound => {}
            io::ErrorKind::PermissionDenied => {
                self.denied.get_or_insert_with(|| path.to_owned());
            }
            _ => {
                self.problem
                    .get_or_insert_with(|| format!("{}: {error}", path.display()));
            }
        }
    }
}

fn is_journal(name: &str) -> bool {
    name.ends_with(".journal") || name.ends_with(".journal~")
}

/// No writer appends to a file of such a name any more: it was rotated away, or set aside after a
/// crash.
pub(crate) fn is_final(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy());
    name.is_some_and(|name| name.ends_with('~') || name.contains('@'))
}

/// A machine id, with a namespace behind a dot or without.
fn is_machine(name: &str) -> bool {
    let id = name.split_once('.').map_or(name, |(id, _)| id);
    id.len() == 32 && id.parse::<Id128>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_files_of_roots_machines_and_namespaces() {
        let dir = tempfile::tempdir().unwrap();
        let machine = "0123456789abcdef0123456789abcdef";
        for sub in [machine, &format!("{machine}.plc"), "remote"] {
            let sub = dir.path().join(sub);
            fs::create_dir(&sub).unwrap();
            fs::write(sub.join("system.journal"), b"").unwrap();
            fs::write(sub.join("notes.txt"), b"").unwrap();
        }
        fs::write(dir.path().join("a@1.journal~"), b"").unwrap();
        fs::create_dir(dir.path().join("x.journal")).unwrap();
        let listing = Listing::of(&[dir.path().to_owned(), dir.path().join("later")]);
        let mut names: Vec<_> = listing
            .files
            .iter()
            .map(|f| f.path.strip_prefix(dir.path()).unwrap().to_owned())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                PathBuf::from(format!("{machine}.plc/system.journal")),
                PathBuf::from(format!("{machine}/system.journal")),
                PathBuf::from("a@1.journal~"),
            ]
            .into_iter()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
        );
        assert!(listing.denied.is_none() && listing.problem.is_none());
    }

    #[test]
    fn names_tell_what_is_final() {
        assert!(is_final(Path::new("/x/system@00f-01.journal")));
        assert!(is_final(Path::new("/x/system@00f.journal~")));
        assert!(!is_final(Path::new("/x@y/system.journal")));
    }
}
