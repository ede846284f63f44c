//! Our kernels, compiled by NVRTC for the GPU at hand when they are first needed, and kept for the next start.

use super::failure::{call, driver};
use crate::DeviceError;
use crate::streaming;
use cudarc::driver::{CudaContext, CudaFunction, CudaModule};
use cudarc::nvrtc::{self, Ptx};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

/// Kernels that are compiled so far.
pub struct Kernels {
    context: Arc<CudaContext>,
    architecture: String,
    compiler: (i32, i32),
    modules: HashMap<String, Arc<CudaModule>>,
    functions: HashMap<String, CudaFunction>,
    cache: Option<PathBuf>,
}

impl Kernels {
    /// For a GPU of that compute capability.
    pub fn new(context: Arc<CudaContext>, capability: (i32, i32), compiler: (i32, i32)) -> Self {
        let architecture = format!("compute_{}{}", capability.0, capability.1);
        Self { context, architecture, compiler, modules: HashMap::new(), functions: HashMap::new(), cache: cache() }
    }

    /// A kernel by its name, compiled if it is not yet.
    ///
    /// # Errors
    /// When there is no such kernel, or the compiler or driver refuses it.
    pub fn function(&mut self, name: &str) -> Result<CudaFunction, DeviceError> {
        if let Some(function) = self.functions.get(name) {
            return Ok(function.clone());
        }
        let source = streaming::module(name).ok_or_else(|| call("module", format!("no kernel is named {name}")))?;
        let module = match self.modules.get(&source.name) {
            Some(module) => module.clone(),
            None => {
                let text = self.compiled(&source)?;
                let module = self.context.load_module(text).map_err(driver("cuModuleLoadData"))?;
                self.modules.insert(source.name, module.clone());
                module
            }
        };
        let function = module.load_function(name).map_err(driver(name))?;
        self.functions.insert(name.to_string(), function.clone());
        Ok(function)
    }

    /// A module in the driver's language, from the cache or the compiler.
    fn compiled(&self, module: &streaming::Module) -> Result<Ptx, DeviceError> {
        let path = self.cache.as_ref().map(|folder| folder.join(self.file_name(module)));
        if let Some(text) = path.as_ref().and_then(|p| fs::read_to_string(p).ok()) {
            return Ok(Ptx::from_src(text));
        }
        let options = nvrtc::CompileOptions {
            options: vec![format!("--gpu-architecture={}", self.architecture), "--std=c++14".into()],
            ..Default::default()
        };
        let compiled = nvrtc::compile_ptx_with_opts(&module.source, options)
            .map_err(|e| call("nvrtcCompileProgram", format!("{}: {e}", module.name)))?;
        if let Some(path) = path {
            // A cache that cannot be written is no error: the next start compiles again.
            let _ = keep(&path, &compiled.to_src());
        }
        Ok(compiled)
    }

    /// Names everything that decides the compiled text.
    fn file_name(&self, module: &streaming::Module) -> String {
        let (major, minor) = self.compiler;
        let digest = Sha256::digest(&module.source);
        let short: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
        format!("{}-{}-nvrtc{major}.{minor}-{short}.ptx", module.name, self.architecture)
    }
}

/// The user's own cache folder, where it is there or can be made, and nobody else may write to it.
fn cache() -> Option<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env::var_os("HOME")?).join(".cache"),
    };
    if !base.is_absolute() {
        return None;
    }
    let folder = base.join("joulecast");
    if !folder.is_dir() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    }
    let about = fs::symlink_metadata(&folder).ok()?;
    // SAFETY: takes nothing, always succeeds.
    let user = unsafe { libc::geteuid() };
    (about.is_dir() && about.uid() == user && about.mode() & 0o022 == 0).then_some(folder)
}

fn keep(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension(format!("{}.part", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temporary, path)
}
