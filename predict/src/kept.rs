//! What was made once and is wanted again: so many values, made anew where a file that they are of has changed.

use crate::failure::Failure;
use std::fmt::{self, Debug, Formatter};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fs, io};

/// Values by what they were made from, each made once; beyond a number of them the one that was longest not asked for goes.
pub(crate) struct Kept<K, V> {
    /// The last is the one that was asked for last.
    list: Mutex<Vec<Entry<K, V>>>,
    most: usize,
}

struct Entry<K, V> {
    key: K,
    stamp: Stamp,
    value: V,
}

impl<K, V> Debug for Kept<K, V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({} at most)", self.most)
    }
}

impl<K: PartialEq, V: Clone> Kept<K, V> {
    /// So many at most.
    pub fn most(most: usize) -> Self {
        Self { list: Mutex::default(), most }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Entry<K, V>>> {
        // A thread that panicked left whole entries.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a key, where the files that it is of are as they were.
    pub fn known(&self, key: &K) -> Option<V> {
        let mut list = self.list();
        let place = list.iter().rposition(|entry| entry.key == *key)?;
        let entry = list.remove(place);
        let value = entry.stamp.is_current().then(|| entry.value.clone());
        if value.is_some() {
            list.push(entry);
        }
        value
    }

    /// The same, or what is made now. Others wait for nothing meanwhile: what two threads make at once is made twice.
    pub fn get(
        &self,
        key: K,
        files: impl FnOnce() -> Vec<PathBuf>,
        make: impl FnOnce() -> Result<V, Failure>,
    ) -> Result<V, Failure> {
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        // Before they are read: what changes meanwhile is read again.
        let stamp = Stamp::of(files());
        let value = make()?;
        let mut list = self.list();
        list.retain(|entry| entry.key != key);
        if list.len() >= self.most {
            list.remove(0);
        }
        list.push(Entry { key, stamp, value: value.clone() });
        Ok(value)
    }

    /// Lets go of some.
    pub fn forget(&self, of: impl Fn(&K) -> bool) {
        self.list().retain(|entry| !of(&entry.key));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.list().len()
    }
}

/// How files were when they were about to be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamp(Vec<(State, PathBuf)>);

/// What tells a file's contents apart without reading them; none of what is not there.
#[derive(Clone, Debug, PartialEq)]
struct State {
    file: Option<Seen>,
    /// Whether it was changed so shortly before that a further change may have the same time.
    fresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    length: u64,
    modified: SystemTime,
    /// When anything of it was changed, where the system says so: also where somebody set its time back.
    changed: Option<SystemTime>,
    /// Which file of its device.
    number: u64,
}

impl Seen {
    fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        let (length, modified) = (file.len(), file.modified()?);
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let since = u64::try_from(file.ctime()).ok().zip(u32::try_from(file.ctime_nsec()).ok());
            let changed = since.map(|(seconds, nanos)| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos));
            Ok(Self { length, modified, changed, number: file.ino() })
        }
        #[cfg(not(unix))]
        Ok(Self { length, modified, changed: None, number: 0 })
    }
}

/// Times of files go on in steps of the kernel's clock.
const STEP: Duration = Duration::from_millis(20);
/// Those of some file systems in seconds, or two of them.
const COARSE_STEP: Duration = Duration::from_secs(2);

impl State {
    fn of(path: &Path) -> Self {
        let file = Seen::of(path).ok();
        let last = |seen: Seen| seen.changed.map_or(seen.modified, |changed| changed.max(seen.modified));
        let fresh = file.map(last).is_some_and(|last| {
            let whole = last.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|t| t.subsec_nanos() == 0);
            let step = if whole { COARSE_STEP } else { STEP };
            // Clocks of file servers go ahead.
            SystemTime::now().duration_since(last).map_or(true, |age| age < step)
        });
        Self { file, fresh }
    }
}

impl Stamp {
    /// Of files, and of the files in folders.
    pub fn of(paths: Vec<PathBuf>) -> Self {
        let mut states = Vec::with_capacity(paths.len());
        for path in paths {
            let inside = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
            states.extend(inside.chain([path.clone()]).map(|file| (State::of(&file), file)));
        }
        Self(states)
    }

    /// Whether none has changed since.
    pub fn is_current(&self) -> bool {
        self.0.iter().all(|(state, path)| !state.fresh && Seen::of(path).ok() == state.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes};
    use std::thread;

    /// Writes a file of that age, and waits until its times go on.
    fn put(path: &Path, text: &str, age: Duration) {
        fs::write(path, text).expect("written");
        let file = File::options().append(true).open(path).expect("open");
        file.set_times(FileTimes::new().set_modified(SystemTime::now() - age)).expect("set");
        thread::sleep(2 * STEP);
    }

    #[test]
    fn so_many_are_kept_and_the_longest_unasked_goes() {
        let kept: Kept<u32, u32> = Kept::most(2);
        let get = |key: u32| kept.get(key, Vec::new, || Ok(key + 10)).expect("made");
        assert_eq!((get(1), get(2), get(1), get(3)), (11, 12, 11, 13));
        assert_eq!((kept.known(&2), kept.known(&1), kept.known(&3), kept.len()), (None, Some(11), Some(13), 2));
        kept.forget(|key| *key == 1);
        assert_eq!(kept.known(&1), None);
        assert!(kept.get(4, Vec::new, || Err(Failure::usage("no"))).is_err() && kept.known(&4).is_none());
    }

    #[test]
    fn a_file_that_changed_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let kept: Kept<(), String> = Kept::most(2);
        let get = || kept.get((), || vec![path.clone()], || fs::read_to_string(&path).map_err(Failure::failed));
        assert!(get().is_err(), "it is not there");
        let hour = Duration::from_secs(3600);
        put(&path, "one", hour);
        assert_eq!((get().expect("read"), kept.known(&())), ("one".into(), Some("one".into())));
        // As long, and as old as it was.
        let modified = fs::metadata(&path).and_then(|file| file.modified()).expect("known");
        fs::write(&path, "two").expect("written");
        let file = File::options().append(true).open(&path).expect("open");
        file.set_times(FileTimes::new().set_modified(modified)).expect("set");
        if cfg!(unix) {
            // What changed in this moment is not trusted to stay.
            assert_eq!((get().expect("read"), kept.known(&())), ("two".into(), None));
        }
        put(&path, "three", hour);
        assert_eq!((get().expect("read"), kept.known(&())), ("three".into(), Some("three".into())));
        fs::remove_file(&path).expect("removed");
        assert!(get().is_err());
    }

    #[test]
    fn a_folder_is_all_of_its_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        put(&path, "one", Duration::from_secs(60));
        let stamp = Stamp::of(vec![folder.path().to_path_buf()]);
        assert!(stamp.is_current());
        put(&path, "longer", Duration::from_secs(60));
        assert!(!stamp.is_current());
    }
}
