//! Sessions of changed settings on the fake GPU: everything comes back, whatever ends the session.

use joulecast_fake_nvml::testing::{FakeGpu, UUID, ok};
use joulecast_kernels::nvml::LIBRARY_VARIABLE;
use joulecast_kernels::settings::restore::{Outcome, restore_all};
use joulecast_kernels::settings::{DryRun, GuardianCommand, Point, Session};
use joulecast_kernels::{ClockControl, DeviceError};
use joulecast_model::base::units::{Hertz, Watts};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fake-nvml-session");

fn guardian(gpu: &FakeGpu) -> GuardianCommand {
    GuardianCommand::new(PROGRAM).argument("guardian").library(Some(&gpu.library()))
}

fn begin(gpu: &FakeGpu) -> Result<Session<impl ClockControl + use<>>, DeviceError> {
    Session::begin(gpu.control(), &gpu.journals(), &guardian(gpu))
}

fn journal(gpu: &FakeGpu) -> PathBuf {
    gpu.journals().join(format!("{UUID}.journal"))
}

fn point(mhz: f64, watts: f64) -> Point {
    Point { core: Some(Hertz::from_mhz(mhz)), power_limit: Some(Watts::new(watts)) }
}

/// Lock and power limit of the GPU.
fn settings(gpu: &FakeGpu) -> (Option<(u32, u32)>, u32) {
    let state = gpu.state();
    (state.lock_mhz, state.limit_mw)
}

const BEFORE: (Option<(u32, u32)>, u32) = (None, 650_000);

/// A GPU whose prior power limit is not the default one.
fn gpu() -> FakeGpu {
    let gpu = FakeGpu::new();
    gpu.change(|s| s.limit_mw = 650_000);
    gpu
}

/// Another process with a session at 1200 MHz and 400 W.
struct Holder {
    child: Child,
    _input: Option<ChildStdin>,
}

impl Holder {
    fn start(gpu: &FakeGpu) -> Self {
        let mut child = ok(Command::new(PROGRAM)
            .args(["hold".as_ref(), gpu.journals().as_os_str(), "1200".as_ref(), "400".as_ref()])
            .env(LIBRARY_VARIABLE, gpu.library())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn());
        let mut line = String::new();
        let output = child.stdout.take().map(BufReader::new);
        ok(output.map_or(Ok(0), |mut output| output.read_line(&mut line)));
        assert_eq!(line, "applied\n");
        let input = child.stdin.take();
        Self { child, _input: input }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(mut self) {
        ok(self.child.kill());
        ok(self.child.wait());
    }
}

/// Waits generously, since the machine may be busy.
fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The guardian of a GPU's session: the process with the journal's path as its last argument.
fn guardian_of(gpu: &FakeGpu) -> u32 {
    let path = journal(gpu);
    let mut processes = ok(std::fs::read_dir("/proc")).filter_map(|entry| ok(entry).file_name().to_str()?.parse().ok());
    let found = processes.find(|pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            line.strip_suffix(b"\0").is_some_and(|line| line.ends_with(path.as_os_str().as_encoded_bytes()))
        })
    });
    found.unwrap_or_else(|| panic!("no guardian"))
}

fn signal(pid: u32, signal: i32) {
    let pid = ok(libc::pid_t::try_from(pid));
    // SAFETY: a process that this test started.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn finish_restores_and_leaves_no_journal() {
    let gpu = gpu();
    let mut session = ok(begin(&gpu));
    assert!(journal(&gpu).exists(), "written before the first change");
    assert_eq!(settings(&gpu), BEFORE);
    ok(session.apply(point(1200.0, 400.0)));
    assert_eq!(settings(&gpu), (Some((1200, 1200)), 400_000));
    ok(session.apply(point(900.0, 300.0)));
    assert_eq!(settings(&gpu), (Some((900, 900)), 300_000));
    ok(session.apply(Point::default()));
    assert_eq!(settings(&gpu), BEFORE, "a point without settings is the prior state");
    ok(session.apply(point(900.0, 300.0)));
    ok(session.finish());
    assert_eq!(settings(&gpu), BEFORE);
    assert!(!journal(&gpu).exists());
    ok(ok(begin(&gpu)).finish());
}

#[test]
fn a_dropped_session_restores() {
    let gpu = gpu();
    let mut session = ok(begin(&gpu));
    ok(session.apply(point(1200.0, 400.0)));
    drop(session);
    assert_eq!(settings(&gpu), BEFORE);
    assert!(!journal(&gpu).exists());
}

/// What was not changed is not "restored" either: an administrator's clock lock, which cannot be read, stays.
#[test]
fn only_what_was_changed_is_restored() {
    let gpu = gpu();
    gpu.change(|s| s.lock_mhz = Some((1500, 1500)));
    let mut session = ok(begin(&gpu));
    ok(session.apply(Point { core: None, power_limit: Some(Watts::new(400.0)) }));
    ok(session.finish());
    assert_eq!(settings(&gpu), (Some((1500, 1500)), 650_000));
    assert_eq!(gpu.state().calls, ["limit 400000", "limit 650000"]);
}

#[test]
fn the_guardian_restores_after_sigkill() {
    let gpu = gpu();
    let holder = Holder::start(&gpu);
    assert_eq!(settings(&gpu), (Some((1200, 1200)), 400_000));
    let mode = ok(std::fs::metadata(journal(&gpu))).permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    holder.kill();
    eventually("the guardian restores and removes the journal", || !journal(&gpu).exists());
    assert_eq!(settings(&gpu), BEFORE);
}

/// Ctrl-C and a closed terminal reach the guardian, too; it must outlive them.
#[test]
fn the_guardian_ignores_signals_of_the_terminal() {
    let gpu = gpu();
    let holder = Holder::start(&gpu);
    let guardian = guardian_of(&gpu);
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal(guardian, number);
    }
    // SAFETY: plain questions about processes that this test started.
    let session = |pid: u32| unsafe { libc::getsid(ok(libc::pid_t::try_from(pid))) };
    assert_ne!(session(guardian), session(holder.pid()), "a session of its own");
    holder.kill();
    eventually("the guardian restores and removes the journal", || !journal(&gpu).exists());
    assert_eq!(settings(&gpu), BEFORE);
}

/// Kills a session and its guardian, as a power failure would.
fn leave_stale(gpu: &FakeGpu) {
    let holder = Holder::start(gpu);
    let guardian = guardian_of(gpu);
    signal(guardian, libc::SIGKILL);
    eventually("the guardian is dead", || {
        let stat = std::fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z")
    });
    holder.kill();
    assert_eq!(settings(gpu), (Some((1200, 1200)), 400_000));
    assert!(journal(gpu).exists());
}

#[test]
fn a_stale_journal_is_recovered_by_the_next_session() {
    let gpu = gpu();
    leave_stale(&gpu);
    let session = ok(begin(&gpu));
    assert_eq!(session.recovered(), ["core clock unlocked", "power limit set back to 650 W"]);
    assert_eq!(settings(&gpu), BEFORE);
    assert_eq!(session.prior().power_limit, Watts::new(650.0));
    ok(session.finish());
    assert!(!journal(&gpu).exists());
}

fn restore(gpu: &FakeGpu) -> Vec<(String, Outcome)> {
    ok(restore_all(&gpu.journals(), |uuid| {
        assert_eq!(uuid, UUID);
        Ok(gpu.control())
    }))
}

#[test]
fn a_stale_journal_is_recovered_by_restore() {
    let gpu = gpu();
    assert_eq!(restore(&gpu), [], "no folder, nothing to do");
    leave_stale(&gpu);
    let [(_, Outcome::Restored(said))] = &restore(&gpu)[..] else { panic!("not restored") };
    assert_eq!(said.len(), 2);
    assert_eq!(settings(&gpu), BEFORE);
    assert!(!journal(&gpu).exists());
    assert_eq!(restore(&gpu), [], "nothing left to do");
}

#[test]
fn a_stale_journal_stays_while_it_cannot_be_restored() {
    let gpu = gpu();
    leave_stale(&gpu);
    gpu.change(|s| s.faults.denied = true);
    assert!(matches!(&restore(&gpu)[..], [(_, Outcome::Failed(DeviceError::NotPermitted(_)))]));
    assert!(matches!(begin(&gpu).err(), Some(DeviceError::NotPermitted(_))));
    assert!(journal(&gpu).exists());
    gpu.change(|s| s.faults.denied = false);
    assert!(matches!(&restore(&gpu)[..], [(_, Outcome::Restored(_))]));
    assert_eq!(settings(&gpu), BEFORE);
}

#[test]
fn a_second_session_is_refused_and_names_the_first() {
    let gpu = gpu();
    let holder = Holder::start(&gpu);
    let error = begin(&gpu).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains(&format!("process {}", holder.pid())), "{error}");
    assert_eq!(restore(&gpu), [(UUID.to_string(), Outcome::Running(format!("process {}", holder.pid())))]);
    assert_eq!(settings(&gpu), (Some((1200, 1200)), 400_000), "left alone");
    holder.kill();
    // Waits for the guardian of the dead session.
    let session = ok(begin(&gpu));
    assert_eq!(session.prior().power_limit, Watts::new(650.0));
    ok(session.finish());
}

#[test]
fn a_session_without_its_guardian_changes_nothing_more() {
    let gpu = gpu();
    let mut session = ok(begin(&gpu));
    ok(session.apply(point(1200.0, 400.0)));
    signal(guardian_of(&gpu), libc::SIGKILL);
    eventually("the session notices", || session.apply(point(900.0, 300.0)).is_err());
    let error = session.apply(point(900.0, 300.0)).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("guardian"), "{error}");
    ok(session.finish());
    assert_eq!(settings(&gpu), BEFORE);
    assert!(!journal(&gpu).exists());
}

#[test]
fn without_a_guardian_nothing_begins() {
    let gpu = gpu();
    for program in ["/nowhere/guardian", "/bin/true", "/bin/echo"] {
        let begun = Session::begin(gpu.control(), &gpu.journals(), &GuardianCommand::new(program));
        assert!(matches!(begun, Err(DeviceError::Call { .. })), "{program}");
        assert!(!journal(&gpu).exists());
    }
    assert_eq!(gpu.state().calls, [""; 0]);
}

#[test]
fn a_rehearsal_lists_the_calls_and_changes_nothing() {
    let gpu = gpu();
    let control = DryRun::new(gpu.control());
    let calls = control.calls();
    let mut session = ok(Session::rehearse(control));
    ok(session.apply(point(1200.0, 400.0)));
    assert!(matches!(session.apply(point(1201.0, 400.0)), Err(DeviceError::Unsupported { .. })), "as a real one");
    ok(session.finish());
    let list = calls.list();
    assert_eq!(list.len(), 4, "{list:?}");
    assert!(list[0].contains("lock the core clock at 1200 MHz") && list[1].contains("limit to 400 W"), "{list:?}");
    assert!(list[2].contains("unlock") && list[3].contains("limit to 650 W"), "{list:?}");
    assert_eq!(settings(&gpu), BEFORE);
    assert_eq!(gpu.state().calls, [""; 0]);
    assert!(!gpu.journals().exists());
}

#[test]
fn not_permitted_changes_nothing_and_leaves_no_journal() {
    let gpu = gpu();
    gpu.change(|s| s.faults.denied = true);
    for asked in [point(1200.0, 400.0), Point { core: None, power_limit: Some(Watts::new(400.0)) }] {
        let mut session = ok(begin(&gpu));
        assert!(matches!(session.apply(asked), Err(DeviceError::NotPermitted(_))));
        ok(session.finish());
        assert_eq!(settings(&gpu), BEFORE);
        assert!(!journal(&gpu).exists());
    }
    assert_eq!(gpu.state().calls, [""; 0]);
}

#[test]
fn what_the_board_does_not_offer_is_refused_before_anything_changes() {
    let gpu = gpu();
    let mut session = ok(begin(&gpu));
    for asked in [point(1201.0, 400.0), point(5000.0, 400.0), point(1200.0, 100.0), point(f64::NAN, 400.0)] {
        assert!(matches!(session.apply(asked), Err(DeviceError::Unsupported { .. })), "{asked:?}");
    }
    let error = session.apply(point(1204.0, 400.0)).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("1200 MHz"), "names the nearest: {error}");
    ok(session.finish());
    assert_eq!(gpu.state().calls, [""; 0]);
}

#[test]
fn a_limit_that_reads_back_differently_is_an_error() {
    let gpu = gpu();
    gpu.change(|s| s.faults.limit_ignored = true);
    let mut session = ok(begin(&gpu));
    assert!(matches!(session.apply(point(1200.0, 400.0)), Err(DeviceError::NotApplied { .. })));
    ok(session.finish());
    assert_eq!(settings(&gpu), BEFORE);
}

/// A lock is a request: only the clock under load tells.
#[test]
fn a_clamped_clock_shows_under_load_only() {
    let gpu = gpu();
    gpu.change(|s| s.faults.clamp_mhz = Some(1005));
    let mut session = ok(begin(&gpu));
    ok(session.apply(Point { core: Some(Hertz::from_mhz(1200.0)), power_limit: None }));
    let sample = ok(joulecast_kernels::PowerMeter::sample(&mut gpu.meter()));
    assert_eq!(sample.core, Some(Hertz::from_mhz(1005.0)));
    ok(session.finish());
}

#[test]
fn a_gpu_lost_in_a_session_leaves_the_journal() {
    let gpu = gpu();
    let mut session = ok(begin(&gpu));
    ok(session.apply(point(1200.0, 400.0)));
    gpu.change(|s| s.faults.lost = true);
    assert!(matches!(session.finish(), Err(DeviceError::Lost(_))));
    assert!(journal(&gpu).exists());
    gpu.change(|s| s.faults.lost = false);
    assert!(matches!(&restore(&gpu)[..], [(_, Outcome::Restored(_))]));
    assert_eq!(settings(&gpu), BEFORE);
}

fn mode(path: &Path, mode: u32) {
    ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)));
}

/// Text of a journal with a power limit to restore.
fn valid_journal() -> String {
    format!(
        r#"{{"schema":"settings-journal/1","uuid":"{UUID}","pid":1,"started_unix_s":1,"power_limit_w":300.0,
            "core_lock_mhz":null,"power_changed":true,"core_changed":false}}"#
    )
}

fn failure(gpu: &FakeGpu) -> String {
    match &restore(gpu)[..] {
        [(_, Outcome::Failed(e))] => e.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn journals_that_are_not_to_be_trusted_are_refused() {
    let gpu = gpu();
    let (folder, path) = (gpu.journals(), journal(&gpu));
    ok(std::fs::create_dir(&folder));
    mode(&folder, 0o700);
    ok(std::fs::write(&path, valid_journal()));

    for (bits, why) in [(0o644, "0644"), (0o660, "0660"), (0o4600, "4600")] {
        mode(&path, bits);
        assert!(failure(&gpu).contains(why), "{}", failure(&gpu));
    }
    mode(&path, 0o600);

    let second = gpu.folder().join("second");
    ok(std::fs::hard_link(&path, &second));
    assert!(failure(&gpu).contains("several names"));
    ok(std::fs::remove_file(&path));
    ok(std::os::unix::fs::symlink(&second, &path));
    failure(&gpu);
    ok(std::fs::remove_file(&path));

    let damaged = [
        valid_journal().replace("settings-journal/1", "settings-journal/2"),
        valid_journal().replace(UUID, "another-gpu"),
        valid_journal().replace("300.0", "-300.0"),
        valid_journal().replace("\"pid\"", "\"surplus\":1,\"pid\""),
        valid_journal().split_at(50).0.to_string(),
        String::new(),
    ];
    for text in damaged {
        ok(std::fs::write(&path, &text));
        mode(&path, 0o600);
        failure(&gpu);
        assert!(matches!(begin(&gpu), Err(DeviceError::Call { .. })), "{text}");
        assert!(path.exists(), "kept for whoever looks into it");
    }
    assert_eq!(settings(&gpu), BEFORE);

    ok(std::fs::write(&path, valid_journal()));
    mode(&folder, 0o770);
    let refused = restore_all(&folder, |_| Ok(gpu.control()));
    assert!(refused.err().is_some_and(|e| e.to_string().contains("others may write")));
    assert!(begin(&gpu).is_err());
    mode(&folder, 0o700);
    let link = gpu.folder().join("link");
    ok(std::os::unix::fs::symlink(&folder, &link));
    assert!(restore_all(&link, |_| Ok(gpu.control())).is_err());
    assert_eq!(settings(&gpu), BEFORE);

    // The same journal as it should be.
    assert!(matches!(&restore(&gpu)[..], [(_, Outcome::Restored(_))]));
    assert_eq!(settings(&gpu), (None, 300_000));
}

#[test]
fn a_journal_of_another_user_is_refused() {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        // Only root can give files away; that others' files differ in owner is the same check.
        return;
    }
    let gpu = gpu();
    let (folder, path) = (gpu.journals(), journal(&gpu));
    ok(std::fs::create_dir(&folder));
    mode(&folder, 0o700);
    ok(std::fs::write(&path, valid_journal()));
    mode(&path, 0o600);
    ok(std::os::unix::fs::chown(&path, Some(65534), None));
    assert!(failure(&gpu).contains("belongs to user 65534"));
    ok(std::os::unix::fs::chown(&path, Some(0), None));
    ok(std::os::unix::fs::chown(&folder, Some(65534), None));
    assert!(restore_all(&folder, |_| Ok(gpu.control())).is_err());
    assert_eq!(settings(&gpu), BEFORE);
}
