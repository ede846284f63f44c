//! What tests need: a GPU of their own, and the processes that use it.

use crate::state::{self, State};
use joulecast_kernels::nvml::{self, Board, BoardChoice, NvmlControl, NvmlMeter};
use std::path::{Path, PathBuf};

/// UUID of the GPU in the program's spelling.
pub const UUID: &str = "fa4e0000-0000-4000-8000-000000000001";

/// Unwraps with the error as the test's message.
///
/// # Panics
/// On an error.
#[track_caller]
pub fn ok<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|e| panic!("{e}"))
}

/// A GPU with a state of its own, in a folder that goes with it.
#[derive(Debug)]
pub struct FakeGpu {
    folder: tempfile::TempDir,
}

impl FakeGpu {
    /// Copies the library that cargo built beside the running test. A link would not do: the loader knows a file that
    /// it has loaded already, and the state with it.
    ///
    /// # Panics
    /// When the library is not there.
    pub fn new() -> Self {
        let test = ok(std::env::current_exe());
        let built = test
            .ancestors()
            .skip(1)
            .take(2)
            .map(|folder| folder.join("libjoulecast_fake_nvml.so"))
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("no libjoulecast_fake_nvml.so near {}", test.display()));
        let folder = ok(tempfile::tempdir());
        ok(std::fs::copy(built, folder.path().join("libnvidia-ml.so.1")));
        Self { folder }
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// A folder for journals; not there yet.
    pub fn journals(&self) -> PathBuf {
        self.folder.path().join("journals")
    }

    /// The folder of everything.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Changes the state.
    pub fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        ok(state::update(&self.folder.path().join("state.json"), change))
    }

    /// The state now.
    pub fn state(&self) -> State {
        self.change(|s| s.clone())
    }

    /// The board through the library.
    pub fn board(&self) -> Board {
        ok(ok(nvml::open(Some(&self.library()))).board(&BoardChoice::Index(0)))
    }

    /// Its sensors, all of them read each time.
    pub fn meter(&self) -> NvmlMeter {
        ok(NvmlMeter::new(self.board())).slow_every(joulecast_model::base::units::Seconds::ZERO)
    }

    /// Its settings.
    pub fn control(&self) -> NvmlControl {
        NvmlControl::new(self.board())
    }
}

impl Default for FakeGpu {
    fn default() -> Self {
        Self::new()
    }
}
