//! The guardian: a process that outlives the session and restores the prior settings when the session ends without
//! having done so. It waits at a pipe whose other end only the session holds, so the kernel tells it of any end.

use super::folder::Folder;
use super::journal::Journal;
use super::{failed, lock::Lock};
use crate::DeviceError;
use crate::clocks::ClockControl;
use crate::nvml::{self, BoardChoice, NvmlControl};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Said by the guardian when it can restore.
const READY: &[u8] = b"ready\n";
/// Said by the session when everything is restored.
const DONE: &[u8] = b"done\n";
/// Opening NVML takes a second or two on a cold driver.
const START_TIME: Duration = Duration::from_secs(60);
/// How long a session waits for its guardian to end.
const END_TIME: Duration = Duration::from_secs(15);
/// Attempts to restore, a second apart.
const ATTEMPTS: u32 = 5;

/// How to start a guardian: a program that calls [`main`] with its last argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardianCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
    library: Option<PathBuf>,
}

impl GuardianCommand {
    /// A program by absolute path.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), library: None }
    }

    /// The running program itself, with the hidden subcommand that calls [`main`].
    ///
    /// # Errors
    /// When the system does not tell the program's path.
    pub fn this_program(subcommand: &str) -> Result<Self, DeviceError> {
        let program = std::env::current_exe().map_err(|e| failed("finding this program", e))?;
        Ok(Self::new(program).argument(subcommand))
    }

    /// Adds an argument before the journal's path.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The NVML library that the guardian opens, where it is not the default one.
    #[must_use]
    pub fn library(mut self, library: Option<&Path>) -> Self {
        self.library = library.map(Path::to_path_buf);
        self
    }

    /// Starts the guardian of a journal and waits until it can restore. It inherits the lock, runs in a session of
    /// its own, and ignores the signals that end a terminal's processes.
    pub(super) fn start(&self, journal: &Path, lock: &Lock) -> Result<Guardian, DeviceError> {
        let fail = |why: String| failed(format!("starting the guardian {}", self.program.display()), why);
        let lock = lock.file().as_raw_fd();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(journal).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(library) = &self.library {
            command.env(nvml::LIBRARY_VARIABLE, library);
        }
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                ignore_signals();
                if libc::setsid() < 0 || libc::fcntl(lock, libc::F_SETFD, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let mut child = command.spawn().map_err(|e| fail(e.to_string()))?;
        let input = child.stdin.take();
        let mut guardian = Guardian { child, input };
        if let Err(why) = guardian.wait_until_ready() {
            // Nothing has changed yet, so there is nothing that it must restore.
            let _ = guardian.child.kill();
            let _ = guardian.child.wait();
            return Err(fail(why));
        }
        Ok(guardian)
    }
}

/// SIG_IGN outlasts exec, so there is no moment at which a signal from the terminal would end the guardian.
fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGTSTP] {
        // SAFETY: async-signal-safe, valid signal numbers.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// A running guardian. Dropping it closes the pipe: the guardian then restores.
#[derive(Debug)]
pub(super) struct Guardian {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guardian {
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let Some(mut output) = self.child.stdout.take() else { return Err("it has no output".to_string()) };
        let deadline = Instant::now() + START_TIME;
        let mut said = Vec::new();
        while said != READY {
            let mut poll = libc::pollfd { fd: output.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            let ready = unsafe { libc::poll(&raw mut poll, 1, 200) };
            if ready <= 0 {
                if Instant::now() > deadline {
                    return Err("it did not answer".to_string());
                }
                continue;
            }
            let mut buffer = [0; 16];
            match output.read(&mut buffer) {
                Ok(0) => return Err("it ended at once".to_string()),
                Ok(n) => said.extend_from_slice(buffer.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.to_string()),
            }
            if !READY.starts_with(&said) {
                return Err("it is no guardian".to_string());
            }
        }
        Ok(())
    }

    /// Whether it is still there to restore.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it: without restoring where `done`, else after it has tried to.
    pub(super) fn end(mut self, done: bool) {
        if let Some(mut input) = self.input.take()
            && done
        {
            // A guardian that is gone needs no word.
            let _ = input.write_all(DONE);
        }
        let deadline = Instant::now() + END_TIME;
        while self.is_alive() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What the guardian process does: opens the board that the journal is about, says that it is ready, waits for the end
/// of its input, and restores what the journal still says. Standard input and output belong to the session.
///
/// # Errors
/// When the journal, the library or the board cannot be opened, and when restoring failed (the journal then stays for
/// `restore`).
pub fn main(journal: &Path) -> Result<(), DeviceError> {
    ignore_signals();
    let (folder, uuid) = Journal::locate(journal)?;
    let gone = || failed(format!("reading {}", journal.display()), "it is not there");
    let folder = Folder::open(folder)?.ok_or_else(gone)?;
    Journal::read(&folder, &uuid)?.ok_or_else(gone)?;
    let mut control = NvmlControl::new(nvml::open(None)?.board(&BoardChoice::Uuid(uuid.clone()))?);
    let mut output = std::io::stdout();
    output.write_all(READY).and_then(|()| output.flush()).map_err(|e| failed("answering the session", e))?;
    let mut said = Vec::new();
    // Whatever ends the reading, the session is not there any more.
    let _ = std::io::stdin().read_to_end(&mut said);
    if said == DONE {
        return Ok(());
    }
    restore(&folder, &uuid, &mut control, Duration::from_secs(1))
}

fn restore<C: ClockControl>(folder: &Folder, uuid: &str, control: &mut C, pause: Duration) -> Result<(), DeviceError> {
    let Some(journal) = Journal::read(folder, uuid)? else { return Ok(()) };
    let mut attempt = 1;
    while let Err(e) = journal.restore(control) {
        if attempt == ATTEMPTS || matches!(e, DeviceError::NotPermitted(_)) {
            return Err(e);
        }
        attempt += 1;
        std::thread::sleep(pause);
    }
    Journal::remove(folder, uuid)
}
