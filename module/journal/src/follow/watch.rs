//! Wakes the follower: inotify on the directories, plain waiting where there is none.

use inotify::{EventMask, Inotify, WatchMask};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) struct Watch {
    inotify: Option<Inotify>,
    wanted: bool,
    /// Why inotify does not do it.
    pub(crate) fallback: Option<String>,
}

impl Watch {
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            inotify: None,
            wanted,
            fallback: (!wanted).then(|| "switched off".to_owned()),
        }
    }

    /// Watches these directories too. Asking again for one that is watched costs one system call
    /// and covers a directory that was removed and made again under the same name.
    /// `parents` only for what is made in them: other writers may be busy there.
    pub(crate) fn directories(&mut self, parents: &[PathBuf], directories: &[PathBuf]) {
        if !self.wanted {
            return;
        }
        let made = WatchMask::CREATE | WatchMask::MOVE | WatchMask::ONLYDIR | WatchMask::MASK_ADD;
        let all = made | WatchMask::DELETE | WatchMask::MODIFY | WatchMask::ATTRIB;
        let watched = self
            .try_directories(parents, made)
            .and_then(|()| self.try_directories(directories, all));
        if let Err(e) = watched {
            // Watches and instances are limited per user; another look may find one free.
            self.fallback = Some(format!("inotify: {e}"));
        }
    }

    fn try_directories(&mut self, directories: &[PathBuf], mask: WatchMask) -> io::Result<()> {
        let inotify = match &mut self.inotify {
            Some(inotify) => inotify,
            None => self.inotify.insert(Inotify::init()?),
        };
        for directory in directories {
            match inotify.watches().add(directory, mask) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        self.fallback = None;
        Ok(())
    }

    /// Takes what has been reported; true where the set of files may have changed.
    pub(crate) fn drain(&mut self) -> bool {
        let Some(inotify) = &mut self.inotify else {
            return true;
        };
        let mut buffer = [0u8; 4096];
        let mut changed = false;
        // Bounded: on a directory that never rests the rest waits for the next look.
        for _ in 0..64 {
            match inotify.read_events(&mut buffer) {
                Ok(events) => {
                    changed |= events
                        .map(|event| event.mask)
                        .any(|mask| mask != EventMask::MODIFY);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return changed,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.fallback = Some(format!("inotify: {e}"));
                    self.inotify = None;
                    return true;
                }
            }
        }
        changed
    }

    /// Returns when something was reported, or after `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let Some(inotify) = &self.inotify else {
            std::thread::sleep(timeout);
            return;
        };
        let limit = Timespec {
            tv_sec: timeout.as_secs().min(3600) as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // An interrupted or failed wait only makes the next look come early.
        let mut fds = [PollFd::new(inotify, PollFlags::IN)];
        if poll(&mut fds, Some(&limit)).is_err() {
            std::thread::sleep(timeout.min(Duration::from_millis(20)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_new_file_wakes_and_asks_for_a_look() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(true);
        watch.directories(&[], &[dir.path().to_owned(), dir.path().join("absent")]);
        assert_eq!(watch.fallback, None);
        assert!(!watch.drain());
        std::fs::write(dir.path().join("a.journal"), b"x").unwrap();
        let begin = Instant::now();
        watch.wait(Duration::from_secs(20));
        assert!(begin.elapsed() < Duration::from_secs(19));
        assert!(watch.drain());
    }

    #[test]
    fn without_inotify_every_look_lists() {
        let mut watch = Watch::new(false);
        watch.directories(&[], &[PathBuf::from("/")]);
        assert!(watch.fallback.is_some() && watch.drain());
        watch.wait(Duration::from_millis(1));
    }
}
