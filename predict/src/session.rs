//! What questions share: networks, GPUs and calibrations that were read, each once.

use crate::cluster::{Cluster, Member};
use crate::failure::Failure;
use crate::kept::{Kept, Stamp};
use crate::ready::Steps;
use crate::request::{HostAsked, Reading, Request, Runner, Team};
use crate::source::Source;
use anyhow::{Context, Result};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::device::gpu::{Device, Gpu};
use joulecast_model::law::calibration::ANY_CHIP;
use joulecast_model::net::network::Stated;
use joulecast_model::net::network::folding::Folding;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::{Framework, HostSpeed, Launch};
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::Warning;
use joulecast_read::Format;
use joulecast_reports::given;
use rayon::prelude::*;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// So many networks are looked at by several threads, which take longer to wake up than few networks take.
const MANY: usize = 16;

/// What is asked of each network, in their order.
pub(crate) fn of_each<T: Sync, R: Send>(networks: &[T], of: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    match networks.len() {
        0..MANY => networks.iter().map(of).collect(),
        _ => networks.par_iter().map(of).collect(),
    }
}

/// Calibrations of a file or folder that somebody names.
#[derive(Clone)]
struct Given {
    /// Of one chip, where it is a file of one.
    chip: Option<String>,
    /// Whether it is a file of the models over all chips.
    any: bool,
    calibrations: Arc<Calibrations>,
}

/// The content of a network file that is none.
#[derive(Clone, Debug)]
pub struct Held {
    /// Its bytes.
    pub content: Arc<[u8]>,
    /// What becomes of its folded batch norms where nothing else is asked for.
    pub folding: Folding,
}

/// Answers questions. Whatever several of them need is read once and shared, from any thread.
///
/// ```
/// use joulecast_predict::{Request, Session, ask};
///
/// # fn main() -> Result<(), joulecast_predict::Failure> {
/// let answer = ask::step(&Session::new(), &Request::new("resnet50", "v100").batch(64))?;
/// assert!(answer.prediction.time.value.to_ms() > 1.0);
/// # Ok(())
/// # }
/// ```
pub struct Session {
    shipped: Arc<Calibrations>,
    given: Kept<PathBuf, Given>,
    /// Network files that are no files, by name.
    held: Mutex<HashMap<String, Held>>,
    networks: Kept<(String, Reading), Arc<Source>>,
    gpus: Kept<String, Arc<Gpu>>,
    /// With the framework profiles that they are of.
    hosts: Kept<PathBuf, (HostSpeed, String)>,
    predictors: Kept<(String, Runner), Member>,
    steps: Arc<Steps>,
    /// Questions that keep steps.
    questions: AtomicU64,
}

/// Networks one after the other.
pub(crate) type InTurn<'a> = Box<dyn ExactSizeIterator<Item = Result<Arc<Source>, Failure>> + 'a>;

/// Values of each kind that a session keeps at most.
const MOST: usize = 512;
/// Steps, of some hundred bytes a kernel, that a session keeps at most.
const STEPS: usize = 256;

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// One that has read nothing yet.
    pub fn new() -> Self {
        Self {
            shipped: Calibrations::shipped(),
            given: Kept::most(MOST),
            held: Mutex::default(),
            networks: Kept::most(MOST),
            gpus: Kept::most(MOST),
            hosts: Kept::most(MOST),
            predictors: Kept::most(MOST),
            steps: Arc::new(Kept::most(STEPS)),
            questions: AtomicU64::new(0),
        }
    }

    /// A network of the zoo or of a file.
    ///
    /// # Errors
    /// When there is none, its file cannot be used, or it has no such inputs.
    pub fn network(&self, name: &str, reading: &Reading) -> Result<Arc<Source>, Failure> {
        let files = || self.file_of(name).into_iter().collect();
        self.networks.get((name.to_string(), reading.clone()), files, || self.read(name, reading))
    }

    fn read(&self, name: &str, reading: &Reading) -> Result<Arc<Source>, Failure> {
        Ok(Arc::new(Source::read(name, self.held(name).as_ref(), reading)?))
    }

    /// The file that a network is read of, where it is of one.
    fn file_of(&self, network: &str) -> Option<PathBuf> {
        if self.held(network).is_some() { None } else { Source::file(network) }
    }

    /// Where steps are kept, and the number of a further question there.
    pub(crate) fn steps(&self) -> (Arc<Steps>, u64) {
        (Arc::clone(&self.steps), self.questions.fetch_add(1, Ordering::Relaxed))
    }

    /// How the files are that a request names.
    pub(crate) fn stamp(&self, request: &Request) -> Stamp {
        let networks = request.networks.iter().filter_map(|name| self.file_of(name));
        let gpus = request.teams.iter().flat_map(|team| &team.kinds).filter_map(|(_, gpu)| file_of_gpu(gpu));
        Stamp::of(networks.chain(gpus).chain(files_of(&request.runner)).collect())
    }

    fn held(&self, name: &str) -> Option<Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Takes a network file's content under a name, which says by its ending what it is and hides a file of that name.
    pub fn hold(&self, name: &str, held: Held) {
        self.forget(name);
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_string(), held);
    }

    /// Forgets what was taken under a name, and what was read of it.
    pub fn forget(&self, name: &str) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.networks.forget(|(known, _)| known == name);
    }

    /// Networks of a list, each once, whatever it is called there.
    ///
    /// # Errors
    /// Those of [`Self::network`]; when two files hold networks of one name, whose results could not be told apart.
    pub fn networks(&self, typed: &[String], reading: &Reading) -> Result<Vec<Arc<Source>>, Failure> {
        let all: Vec<String> = match are_all(typed) {
            true => catalog::network_names().map(str::to_string).collect(),
            false => typed.to_vec(),
        };
        let all = of_each(&all, |name| self.network(name, reading));
        let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
        let identity = |s: &Arc<Source>| match Format::of(&s.typed) {
            Format::Zoo => s.network.name.clone(),
            _ => place(&s.typed),
        };
        let all = once(all, "--net", identity);
        let mut called: HashMap<&str, &str> = HashMap::new();
        for source in &all {
            let (name, typed) = (&source.network.name, &source.typed);
            if let Some(other) = called.insert(name, typed) {
                return Err(Failure::usage(format_args!(
                    "--net: {other} and {typed} are both called {name}, so their rows would be alike: rename one"
                )));
            }
        }
        Ok(all)
    }

    /// The same one after the other. Where all of the zoo are asked for, each is read when it is its turn, and not kept.
    ///
    /// # Errors
    /// Those of [`Self::networks`].
    pub(crate) fn networks_in_turn<'a>(
        &'a self,
        typed: &[String],
        reading: &'a Reading,
    ) -> Result<InTurn<'a>, Failure> {
        if !are_all(typed) {
            return Ok(Box::new(self.networks(typed, reading)?.into_iter().map(Ok)));
        }
        let names: Vec<&str> = catalog::network_names().collect();
        Ok(Box::new(names.into_iter().map(|name| {
            let known = self.networks.known(&(name.to_string(), reading.clone()));
            known.map_or_else(|| self.read(name, reading), Ok)
        })))
    }

    /// A GPU of the catalog or a file.
    ///
    /// # Errors
    /// When there is none, or its file cannot be used.
    pub fn gpu(&self, name: &str) -> Result<Arc<Gpu>, Failure> {
        let files = || file_of_gpu(name).into_iter().collect();
        self.gpus.get(name.to_string(), files, || {
            if is_file(name) {
                let read = || -> Result<Gpu> {
                    Gpu::from_toml(&given::text(Path::new(name))?).with_context(|| name.to_string())
                };
                return read().map(Arc::new).map_err(Failure::Failed);
            }
            catalog::gpu(name).map(Arc::new).map_err(|e| Failure::Usage(e.into()))
        })
    }

    /// What a typed GPU is, however it is written: a built-in one by its own name, a file by where it is.
    ///
    /// # Errors
    /// When no such GPU is built in.
    pub fn identity(&self, typed: &str) -> Result<String, Failure> {
        if is_file(typed) { Ok(place(typed)) } else { Ok(self.gpu(typed)?.name.clone()) }
    }

    /// Teams of one kind of GPU each, those that name one twice once.
    ///
    /// # Errors
    /// When no such GPU is built in.
    pub fn teams(&self, typed: &[Team]) -> Result<Vec<Team>, Failure> {
        let mut known = Vec::with_capacity(typed.len());
        for team in typed {
            let name = match &team.kinds[..] {
                [(_, only)] => self.identity(only)?,
                _ => team.name.clone(),
            };
            known.push((name, team.clone()));
        }
        Ok(once(known, "--gpu", |(name, _)| name.clone()).into_iter().map(|(_, team)| team).collect())
    }

    /// The framework profile as it is asked for, in a precision.
    ///
    /// # Errors
    /// When there is none of that name, no algorithm in that precision, or a host where none launches.
    pub fn framework(&self, runner: &Runner, precision: Precision) -> Result<Framework, Failure> {
        let framework = catalog::framework(&runner.framework).map_err(|e| Failure::Usage(e.into()))?;
        if runner.algorithm.is_some() && precision != Precision::Fp32 {
            return Err(Failure::usage(format_args!(
                "--conv-algorithm: algorithms were measured in fp32 alone, not in {precision}"
            )));
        }
        let mut framework = framework.by(runner.algorithm);
        if runner.best_algorithms {
            framework.rules.clear();
        }
        if runner.loss_scaling.is_some() && !framework.scales_losses() {
            return Err(Failure::usage(format_args!(
                "--loss-scaling: the {} profile does not say what that takes; others do, such as --framework pytorch",
                framework.name
            )));
        }
        let framework = framework.scaling_loss(runner.loss_scaling);
        Ok(match self.host(runner, &framework)? {
            Some(speed) => framework.on_host(speed),
            None => framework,
        })
    }

    /// How fast the host is, where that is said and a host launches.
    fn host(&self, runner: &Runner, framework: &Framework) -> Result<Option<HostSpeed>, Failure> {
        let name = &framework.name;
        let launches = framework.host.is_some() && runner.launch != Some(Launch::Graph);
        let read = |path: &Path| {
            let files = || vec![path.to_path_buf()];
            self.hosts.get(path.to_path_buf(), files, || given::host(path).map_err(Failure::failed))
        };
        match &runner.host {
            HostAsked::Profile => Ok(None),
            HostAsked::Usual(_) if !launches => Ok(None),
            HostAsked::Usual(path) => match read(path) {
                Ok((speed, theirs)) => Ok((theirs == *name).then_some(speed)),
                Err(Failure::Failed(e)) => Err(Failure::Failed(e.context("--host 1 predicts without this file"))),
                Err(other) => Err(other),
            },
            _ if framework.host.is_none() => Err(Failure::usage(format_args!(
                "--host: the {name} profile does not say what a host does; others do, such as --framework pytorch"
            ))),
            _ if !launches => Err(Failure::usage("--host: a graph is launched at once; hosts are of --launch eager")),
            HostAsked::Factor(factor) => Ok(HostSpeed::stated(*factor, "--host")),
            HostAsked::File(path) => match read(path)? {
                (speed, theirs) if theirs == *name => Ok(Some(speed)),
                (_, theirs) => Err(Failure::usage(format_args!(
                    "--host: {} is of the {theirs} profile, not of {name}: --host FACTOR",
                    path.display()
                ))),
            },
        }
    }

    /// Calibrations of a file or folder.
    fn given(&self, path: &Path) -> Result<Given, Failure> {
        self.given.get(
            path.to_path_buf(),
            || vec![path.to_path_buf()],
            || {
                let mut list = given::calibrations(path).map_err(Failure::failed)?;
                let (mut chip, mut any) = (None, false);
                if let ([only], false) = (&list[..], path.is_dir()) {
                    any = only.chip == ANY_CHIP;
                    chip = (!any).then(|| only.chip.clone());
                }
                if chip.is_some() {
                    list.push(catalog::all_chips().map_err(Failure::failed)?);
                }
                let named = |e| Failure::Failed(anyhow::Error::from(e).context(path.display().to_string()));
                Ok(Given { chip, any, calibrations: Calibrations::given(list).map_err(named)? })
            },
        )
    }

    /// What predicts on a GPU, and what to tell of its calibration.
    ///
    /// # Errors
    /// When something is asked for that the GPU does not do, or a file cannot be used.
    pub fn member(&self, gpu: &str, runner: &Runner, precision: Precision) -> Result<Member, Failure> {
        let known = self.gpu(gpu)?;
        let framework = self.framework(runner, precision)?;
        if known.device == Device::Cpu && framework.algorithm().is_some() {
            return Err(Failure::usage(format_args!("{} is a processor: --conv-algorithm is of cuDNN", known.name)));
        }
        if known.device == Device::Cpu && runner.launch == Some(Launch::Graph) {
            return Err(Failure::usage(format_args!(
                "{} is a processor: it has no CUDA graphs; --launch eager",
                known.name
            )));
        }
        let files = || file_of_gpu(gpu).into_iter().chain(files_of(runner)).collect();
        self.predictors.get((gpu.to_string(), runner.clone()), files, || {
            let mut note = None;
            let calibrations = match &runner.calibration {
                None => self.shipped.clone(),
                Some(path) => {
                    let (given, name) = (self.given(path)?, path.display());
                    if let Some(theirs) = given.chip.filter(|chip| *chip != known.chip) {
                        let (gpu, ours) = (&known.name, &known.chip);
                        return Err(Failure::usage(format_args!("{name} is for chip {theirs}, but {gpu} is a {ours}")));
                    }
                    let (file, gpu) = (name.to_string(), known.name.clone());
                    note = given.any.then_some(Warning::OfAllChips { file, gpu });
                    given.calibrations
                }
            };
            let predictor = Predictor::with(known, calibrations, framework);
            Ok(Member { predictor: predictor.launched(runner.launch).with_library(runner.library), note })
        })
    }

    /// A request that nobody chose a precision for, in what its networks' files say that they are published in, where they agree;
    /// where all of them could say it and do not, in 16 bits, as servers take such.
    ///
    /// # Errors
    /// Those of [`Self::network`].
    pub fn settled(&self, request: &Request) -> Result<Request, Failure> {
        let (mut stated, mut is_silent) = (None, false);
        if request.open && request.networks.iter().all(|name| name != "all") {
            let each = request.networks.iter().map(|name| Ok(self.network(name, &request.reading)?.network.stated));
            let each = each.collect::<Result<Vec<Stated>, Failure>>()?;
            let first = each.first().and_then(|first| first.precision);
            stated = first.filter(|first| each.iter().all(|other| other.precision == Some(*first)));
            is_silent = !each.is_empty() && each.iter().all(|each| each.is_silent);
        }
        let settled = Request { open: false, ..request.clone() };
        Ok(match stated {
            Some(precision) => {
                let told = settled.told.iter().cloned().chain([Warning::Published { precision }]).collect();
                Request { precisions: vec![precision], told, ..settled }
            }
            None if is_silent => {
                let precision = self.halves(&settled)?;
                let told = format!(
                    "in {precision}: config.json says no precision that is known (torch_dtype), and servers take such in 16 bits: --precision for another"
                );
                let told = settled.told.iter().cloned().chain([Warning::Network(told)]).collect();
                Request { precisions: vec![precision], told, ..settled }
            }
            None => settled,
        })
    }

    /// The 16 bits that all GPUs of a request compute in.
    fn halves(&self, request: &Request) -> Result<Precision, Failure> {
        for (_, name) in request.teams.iter().flat_map(|team| &team.kinds) {
            if self.gpu(name)?.computes_in(Precision::Bf16).is_none() {
                return Ok(Precision::Fp16);
            }
        }
        Ok(Precision::Bf16)
    }

    /// The GPUs of a team, ready to predict in a precision and mode.
    ///
    /// # Errors
    /// When something is asked for that they do not do, or a file cannot be used.
    pub fn cluster(
        &self,
        request: &Request,
        team: &Team,
        precision: Precision,
        mode: Mode,
    ) -> Result<Cluster, Failure> {
        let mut seen: HashMap<String, (u64, &str)> = HashMap::new();
        for (count, name) in team.kinds.iter().filter(|_| team.kinds.len() > 1) {
            if let Some((before, other)) = seen.insert(self.identity(name)?, (*count, name)) {
                let sum = before + count;
                return Err(Failure::usage(format_args!(
                    "--gpus: {other} and {name} are one kind of GPU: write {sum}x{name}"
                )));
            }
        }
        let member = |(count, gpu): &(u64, String)| Ok((*count, self.member(gpu, &request.runner, precision)?));
        let members = team.kinds.iter().map(member).collect::<Result<Vec<_>, Failure>>()?;
        Cluster::new(request, team, members, precision, mode)
    }

    /// What to tell of the calibrations that a request names, each once.
    ///
    /// # Errors
    /// As [`Self::member`].
    pub fn notes(&self, request: &Request) -> Result<Vec<Warning>, Failure> {
        let (mut notes, runner) = (Vec::new(), Runner { launch: None, ..request.runner.clone() });
        for (_, gpu) in request.teams.iter().flat_map(|team| &team.kinds) {
            let precision = request.precisions.first().copied().unwrap_or(Precision::Fp32);
            let note = self.member(gpu, &runner, precision)?.note;
            notes.extend(note.filter(|note| !notes.contains(note)));
        }
        Ok(notes)
    }
}

/// Whether a list of networks is all of the zoo.
fn are_all(typed: &[String]) -> bool {
    matches!(typed, [all] if all == "all")
}

/// Whether an argument means a file rather than a built-in name.
fn is_file(argument: &str) -> bool {
    argument.contains(['/', '\\']) || [".toml", ".json"].iter().any(|ending| argument.ends_with(ending))
}

/// The file that a GPU is read of, where it is of one.
fn file_of_gpu(gpu: &str) -> Option<PathBuf> {
    is_file(gpu).then(|| PathBuf::from(gpu))
}

/// The files that what runs steps is read of.
fn files_of(runner: &Runner) -> Vec<PathBuf> {
    let host = match &runner.host {
        HostAsked::File(path) | HostAsked::Usual(path) => Some(path.clone()),
        HostAsked::Profile | HostAsked::Factor(_) => None,
    };
    runner.calibration.clone().into_iter().chain(host).collect()
}

/// Where a path leads, however it is written; as it is written where it leads nowhere.
fn place(path: &str) -> String {
    fs::canonicalize(path).map_or_else(|_| path.to_string(), |p| p.display().to_string())
}

/// A list without repetitions, each told once on standard error. `name`: what two of the same share.
pub(crate) fn once<T>(list: Vec<T>, option: &str, name: impl Fn(&T) -> String) -> Vec<T> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let first = |item: &T| {
        let name = name(item);
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        if *times == 2 {
            joulecast_reports::say(format_args!("note: {option} names {name} more than once: taken once"));
        }
        *times == 1
    };
    list.into_iter().filter(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::shape::Shape;

    #[test]
    fn what_is_named_twice_is_taken_once() {
        let session = Session::new();
        assert_eq!(once(vec![3, 1, 3, 2, 1], "--batch", u64::to_string), [3, 1, 2]);
        let typed = ["v100-sxm2", "t4", "v100"].map(|gpu| Team::of(1, gpu));
        let teams = session.teams(&typed).expect("known");
        assert_eq!(teams.iter().map(|team| team.name.as_str()).collect::<Vec<_>>(), ["v100-sxm2", "t4"]);
        let same = |a: &str, b: &str| session.identity(a).expect("known") == session.identity(b).expect("known");
        assert!(same("v100-sxm2", "V100") && !same("v100", "t4"));
        assert!(same("./Cargo.toml", "src/../Cargo.toml") && !same("./Cargo.toml", "./none.toml"));
    }

    #[test]
    fn a_network_is_read_from_memory_until_it_is_forgotten() {
        let (session, reading) = (Session::new(), Reading::default());
        let held = |bytes: &[u8]| Held { content: bytes.into(), folding: Folding::Open };
        let text = joulecast_model::catalog::network("alexnet").expect("known").to_toml();
        session.hold("memory:1/mine.toml", held(text.as_bytes()));
        let read = session.network("memory:1/mine.toml", &reading).expect("read");
        assert_eq!((read.kind, read.network.inputs.len()), ("file", 1));
        session.hold("memory:1/mine.toml", held(b"no network"));
        assert!(session.network("memory:1/mine.toml", &reading).is_err(), "what was read is of other content");
        session.forget("memory:1/mine.toml");
        assert!(session.network("memory:1/mine.toml", &reading).is_err());
    }

    #[test]
    fn in_turn_networks_are_those_of_the_list() {
        let (session, reading) = (Session::new(), Reading::default());
        for typed in [&["all"][..], &["lenet5", "alexnet", "LeNet-5"]] {
            let typed: Vec<String> = typed.iter().map(|name| name.to_string()).collect();
            let in_turn = session.networks_in_turn(&typed, &reading).expect("known");
            let in_turn = in_turn.collect::<Result<Vec<_>, _>>().expect("read");
            assert!(session.networks.known(&("vgg16".to_string(), reading.clone())).is_none(), "kept");
            let name = |source: &Arc<Source>| source.network.name.clone();
            let listed = Session::new().networks(&typed, &reading).expect("known");
            assert_eq!(in_turn.iter().map(name).collect::<Vec<_>>(), listed.iter().map(name).collect::<Vec<_>>());
        }
        assert!(session.networks_in_turn(&["alexnet".into(), "no_such_net".into()], &reading).is_err());
    }

    #[test]
    fn what_was_read_is_shared() {
        let session = Session::new();
        let read = || session.network("alexnet", &Reading::default()).expect("known");
        assert!(Arc::ptr_eq(&read(), &read()));
        assert!(Arc::ptr_eq(&session.gpu("t4").expect("known"), &session.gpu("t4").expect("known")));
        let other = Reading {
            inputs: vec![("image".into(), Shape::new(&[3, 300, 300]).expect("a shape"))],
            ..Reading::default()
        };
        assert!(!Arc::ptr_eq(&read(), &session.network("alexnet", &other).expect("known")));
    }
}
