//! Text form of a calibration.

use super::bounds::{
    GB, LEAST_SCALE, MOST_BANDWIDTH, MOST_COEFFICIENT, MOST_COLUMN, MOST_ENGINE, MOST_INVERSE, MOST_LOG_RATIO,
    MOST_PERCENT, MOST_RESIDUAL, MOST_US, MOST_VARIABLE, either_side, number,
};
use super::choice_file::{ChoiceFile, apart, each_once, read_choice, write_choice};
use super::layer_model::engine_alone;
use super::models::Models;
use super::name::Name;
use super::part::{HeadPlaces, ModelHead, Wanted};
use super::power_file::{PowerFile, read_power, write_power};
use super::term::parse_term;
use super::transfer::{Transfer, TransferFile};
use super::{
    Bucket, Calibration, CalibrationError, Compiled, Cover, CrossValidation, Ellipsoid, EngineTerms, Later, LayerModel,
    NetworkSpread, Range, Term, Tier,
};
use crate::base::file::{FileError, check_schema, within};
use crate::base::packed::{self, Document, Kept, Packed, Parsed};
use crate::base::precision::{Phase, Precision};
use crate::base::text::{names, prose, shown};
use crate::base::units::{Bytes, BytesPerSecond, Seconds};
use crate::kernel::family::Family;
use crate::kernel::key::ModelKey;
use crate::kernel::load::Memory;
use crate::law::choice::Choice;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt::{Display, Write as _};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Bytes in the unit of the cache, and most of it.
const MIB: f64 = 1048576.0;
const MOST_CACHE: f64 = 1e6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    schema: String,
    #[serde(deserialize_with = "names")]
    id: String,
    #[serde(deserialize_with = "names")]
    chip: String,
    #[serde(deserialize_with = "names")]
    boards: Vec<String>,
    tier: Tier,
    #[serde(deserialize_with = "prose")]
    software: String,
    #[serde(deserialize_with = "prose")]
    sources: Vec<String>,
    #[serde(deserialize_with = "names")]
    fit: String,
    #[serde(deserialize_with = "names")]
    tool: String,
    dataset_hash: String,
    held_out_hash: Option<String>,
    /// Of files of earlier versions: the hash of all roles, of which most enter no fit.
    #[serde(rename = "splits_hash")]
    _splits_hash: Option<String>,
    fold_key: String,
    /// How many models follow: a file cut between two of them is damaged.
    model_count: usize,
    power: Option<PowerFile>,
    #[serde(default, rename = "network")]
    networks: Vec<NetworkSpread>,
    transfer: Option<TransferFile>,
    #[serde(default, rename = "choice")]
    choices: Vec<ChoiceFile>,
    #[serde(default, rename = "model", borrow)]
    models: Vec<ModelFile<'a>>,
}

/// What rows by an engine differ by: name, rows, intercept, range, terms, clamp.
type EngineFile<'a> = (Name<'a>, usize, f64, (f64, f64), Vec<TermFile<'a>>, Vec<RangeFile<'a>>);
/// Name, coefficient, mean, scale. The build folds means into one, and of engines' terms scales into coefficients.
#[derive(Deserialize)]
struct TermFile<'a>(#[serde(borrow)] Name<'a>, f64, #[serde(default)] f64, #[serde(default = "unscaled")] f64);

fn unscaled() -> f64 {
    1.0
}

/// Name, low, high.
type RangeFile<'a> = (Name<'a>, f64, f64);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile<'a> {
    #[serde(borrow)]
    kind: Name<'a>,
    phase: Phase,
    precision: Precision,
    framework: Option<String>,
    /// kind, phase, precision, of a model of several.
    #[serde(default, borrow)]
    covers: Vec<(Name<'a>, Phase, Precision)>,
    #[serde(default)]
    boards: Vec<String>,
    #[serde(default)]
    imported: bool,
    /// Bandwidth in GB/s, and second-level cache in MiB, 0 where not known.
    memory: Option<(f64, f64)>,
    family: Family,
    exponent: u32,
    floor_us: f64,
    library: f64,
    intercept: f64,
    ratio_range: (f64, f64),
    ordinary_range: (f64, f64),
    shortest_us: f64,
    rows: usize,
    mape_percent: f64,
    rmspe_percent: f64,
    median_percent: f64,
    /// up to (microseconds; inf), lower and upper log quantile, rows.
    residuals: Vec<(f64, f64, f64, usize)>,
    #[serde(default, borrow)]
    terms: Vec<TermFile<'a>>,
    #[serde(default, borrow)]
    clamp: Vec<RangeFile<'a>>,
    #[serde(default, borrow)]
    domain: Vec<RangeFile<'a>>,
    /// name, mean, deviation, and a row of the inverse correlation matrix.
    #[serde(default, borrow)]
    sizes: Vec<(Name<'a>, f64, f64, Vec<f64>)>,
    #[serde(default, borrow)]
    engines: Vec<EngineFile<'a>>,
}

/// The first and last keys of the file, in the order in which they are written.
#[derive(Serialize)]
struct Header<'a> {
    schema: &'a str,
    id: &'a str,
    chip: &'a str,
    boards: &'a [String],
    tier: Tier,
    software: &'a str,
    sources: &'a [String],
    fit: &'a str,
    tool: &'a str,
    dataset_hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_out_hash: Option<&'a str>,
    fold_key: &'a str,
    model_count: usize,
}

impl Calibration {
    /// Reads a calibration file.
    ///
    /// # Errors
    /// One line: malformed text, a wrong schema, an unknown variable, a number that is not finite, an engine that the
    /// library is never expected to choose.
    pub fn from_toml(text: &str) -> Result<Self, CalibrationError> {
        let text = Parsed::new(text).map_err(malformed)?;
        let file: File<'_> = text.read().map_err(malformed)?;
        file.models.iter().try_for_each(terms_apart)?;
        let read = Self::of(file)?;
        read.models.iter().try_for_each(|model| foreseen(model, &read.choices))?;
        Ok(read)
    }

    /// A file that is shipped, all of it or what one prediction can need. Its models are read when they are asked for.
    ///
    /// # Errors
    /// As [`Calibration::from_toml`], of what is read at once.
    pub(crate) fn from_packed(bytes: &'static [u8], wanted: Option<&Wanted<'_>>) -> Result<Self, CalibrationError> {
        let read = || -> Result<_, packed::Error> {
            let document = Arc::new(Document::new(bytes)?);
            let root = document.root();
            let items = |list: &str| root.field(list)?.map_or(Ok(Vec::new()), Packed::items);
            let (models, choices) = (items("model")?, items("choice")?);
            let mut file: File<'static> = root.without(&["model", "choice"])?;
            // A part is as whole as the file is.
            file.model_count = file.model_count.wrapping_sub(models.len());
            let (mut kept, places) = (Vec::new(), HeadPlaces::of(&document));
            for model in models {
                let head = ModelHead::read(model, &places)?;
                if wanted.is_none_or(|w| w.needs(&head)) {
                    kept.push((head.named()?, Kept::new(&document, model)));
                }
            }
            for choice in choices {
                if wanted.map_or(Ok(true), |w| Ok(w.asks(&choice.read()?)))? {
                    file.choices.push(ChoiceFile::from_packed(choice)?);
                }
            }
            Ok((file, Models::packed(kept, read_packed_model)))
        };
        let (file, models) = read().map_err(|e| malformed(e.into()))?;
        Ok(Self { models, ..Self::of(file)? })
    }

    fn of(file: File<'_>) -> Result<Self, CalibrationError> {
        check_schema(&file.schema, "calibration/1").map_err(malformed)?;
        if file.models.len() != file.model_count {
            let (found, expected) = (file.models.len(), file.model_count);
            let why = if found < expected { "the file was cut" } else { "model_count is not right" };
            return Err(CalibrationError(format!("has {found} models instead of {expected}: {why}")));
        }
        for n in &file.networks {
            let fail = |why| CalibrationError(format!("network {} {}: {why}", shown(&n.framework), n.mode));
            n.check().map_err(fail)?;
        }
        let choices = file.choices.into_iter().map(read_choice).collect::<Result<Vec<_>, _>>()?;
        apart(&choices)?;
        let models = file.models.into_iter().map(read_model).collect::<Result<Models, _>>()?;
        Ok(Self {
            id: file.id,
            chip: file.chip,
            boards: file.boards,
            tier: file.tier,
            software: file.software,
            sources: file.sources,
            fit: file.fit,
            tool: file.tool,
            dataset_hash: file.dataset_hash,
            held_out_hash: file.held_out_hash,
            fold_key: file.fold_key,
            power: file.power.map(read_power).transpose()?,
            networks: file.networks,
            transfer: file.transfer.map(Transfer::read).transpose()?,
            choices,
            models,
        })
    }

    /// The text of the file, deterministic, one term a line.
    ///
    /// # Errors
    /// When a string cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, CalibrationError> {
        let header = Header {
            schema: "calibration/1",
            id: &self.id,
            chip: &self.chip,
            boards: &self.boards,
            tier: self.tier,
            software: &self.software,
            sources: &self.sources,
            fit: &self.fit,
            tool: &self.tool,
            dataset_hash: &self.dataset_hash,
            held_out_hash: self.held_out_hash.as_deref(),
            fold_key: &self.fold_key,
            model_count: self.models.len(),
        };
        let mut text = String::from("# Written by `calibrate fit`; regenerated and compared, never edited by hand.\n");
        text += &toml::to_string(&header).map_err(|e| CalibrationError(e.to_string()))?;
        if let Some(power) = &self.power {
            write_power(&mut text, power);
        }
        for network in &self.networks {
            write_network(&mut text, network);
        }
        if let Some(transfer) = &self.transfer {
            transfer.write(&mut text, number);
        }
        for choice in &self.choices {
            write_choice(&mut text, choice);
        }
        for model in self.models.iter() {
            write_model(&mut text, model);
        }
        Ok(text)
    }
}

fn write_network(text: &mut String, network: &NetworkSpread) {
    let pair = |(low, high): (f64, f64)| format!("[{}, {}]", number(low), number(high));
    let (time, power, energy) = network.held;
    let _ = write!(
        text,
        "\n[[network]]\nframework = {:?}\nmode = \"{}\"\nlaunch_bound = {}\ntime = {}\npower = {}\nenergy = {}\n\
         networks = {}\nnames = {:?}\nruns = {}\nheld = [{}, {}, {}]\n",
        network.framework,
        network.mode,
        network.launch_bound,
        pair(network.time),
        pair(network.power),
        pair(network.energy),
        network.networks,
        network.names,
        network.runs,
        number(time),
        number(power),
        number(energy),
    );
}

fn write_model(text: &mut String, model: &LayerModel) {
    let names = model.family.variables();
    let _ = write!(
        text,
        "\n[[model]]\nkind = \"{}\"\nphase = \"{}\"\nprecision = \"{}\"\nfamily = \"{}\"\nexponent = {}\n\
         floor_us = {}\nlibrary = {}\nintercept = {}\nratio_range = [{}, {}]\nordinary_range = [{}, {}]\nshortest_us = {}\nrows = {}\n\
         mape_percent = {}\nrmspe_percent = {}\nmedian_percent = {}\n",
        model.key,
        model.phase,
        model.precision,
        model.family,
        model.exponent,
        number(model.floor.to_us()),
        number(model.library),
        number(model.intercept),
        number(model.ratio_range.0),
        number(model.ratio_range.1),
        number(model.ordinary_range.0),
        number(model.ordinary_range.1),
        number(model.shortest.to_us()),
        model.rows,
        number(model.cross_validation.mape),
        number(model.cross_validation.rmspe),
        number(model.cross_validation.median),
    );
    if let Some(framework) = &model.framework {
        let _ = writeln!(text, "framework = {framework:?}");
    }
    if !model.boards.is_empty() {
        let _ = writeln!(text, "boards = {:?}", model.boards);
    }
    if model.imported {
        text.push_str("imported = true\n");
    }
    if let Some(memory) = model.memory {
        let cache = memory.cache.map_or(0.0, |c| c.to_f64() / MIB);
        let _ = writeln!(text, "memory = [{}, {}]", number(memory.bandwidth.get() / GB), number(cache));
    }
    if !model.covers.is_empty() {
        text.push_str("covers = [\n");
        for c in &model.covers {
            let _ = writeln!(text, "  [\"{}\", \"{}\", \"{}\"],", c.key, c.phase, c.precision);
        }
        text.push_str("]\n");
    }
    text.push_str("residuals = [\n");
    for b in &model.residuals {
        let up_to = number(b.up_to.to_us());
        let _ = writeln!(text, "  [{up_to}, {}, {}, {}],", number(b.low), number(b.high), b.rows);
    }
    text.push_str("]\nterms = [\n");
    for t in &model.terms {
        let name = t.name(model.family);
        let _ = writeln!(text, "  [\"{name}\", {}, {}, {}],", number(t.coefficient), number(t.mean), number(t.scale));
    }
    text.push_str("]\n");
    for (key, ranges) in [("clamp", &model.clamp), ("domain", &model.domain)] {
        let _ = write!(text, "{key} = [");
        for (i, r) in ranges.iter().enumerate() {
            let separator = if i % 4 == 0 { "\n  " } else { " " };
            let _ = write!(text, "{separator}[\"{}\", {}, {}],", names[r.variable], number(r.low), number(r.high));
        }
        text.push_str("\n]\n");
    }
    text.push_str("sizes = [\n");
    let sizes = &model.sizes;
    let d = sizes.variables.len();
    for (i, &variable) in sizes.variables.iter().enumerate() {
        let row: Vec<String> = sizes.inverse[i * d..(i + 1) * d].iter().map(|v| number(*v)).collect();
        let (mean, scale) = (number(sizes.mean[i]), number(sizes.scale[i]));
        let _ = writeln!(text, "  [\"{}\", {mean}, {scale}, [{}]],", names[variable], row.join(", "));
    }
    text.push_str("]\n");
    if !model.engines.is_empty() {
        text.push_str("engines = [\n");
        model.engines.iter().for_each(|e| write_engine(text, e, model.family));
        text.push_str("]\n");
    }
}

fn write_engine(text: &mut String, engine: &EngineTerms, family: Family) {
    let (low, high) = engine.range;
    let (intercept, low, high) = (number(engine.intercept), number(low), number(high));
    let _ = write!(text, "  [{:?}, {}, {intercept}, [{low}, {high}], [", engine.engine, engine.rows);
    for t in engine.terms.iter() {
        let (coefficient, mean, scale) = (number(t.coefficient), number(t.mean), number(t.scale));
        let _ = write!(text, "\n    [\"{}\", {coefficient}, {mean}, {scale}],", t.name(family));
    }
    text.push_str("\n  ], [");
    for r in engine.clamp.iter() {
        let name = family.variables()[r.variable];
        let _ = write!(text, "\n    [\"{name}\", {}, {}],", number(r.low), number(r.high));
    }
    text.push_str("\n  ]],\n");
}

fn malformed(error: FileError) -> CalibrationError {
    CalibrationError(error.to_string())
}

/// Whether some tree names each engine of a model, alone or with knobs: what is never foreseen is never added.
fn foreseen(model: &LayerModel, choices: &[Choice]) -> Result<(), CalibrationError> {
    let own = (model.phase, model.precision);
    let ran = || model.covers.iter().map(|c| (c.phase, c.precision)).chain([own]);
    let named: HashSet<&str> = choices
        .iter()
        .filter(|choice| ran().any(|(phase, precision)| choice.is_for(phase, precision)))
        .flat_map(|choice| choice.engines.iter().flat_map(|e| [e.as_str(), engine_alone(e)]))
        .collect();
    match model.engines.iter().find(|e| !named.contains(e.engine.as_str())) {
        None => Ok(()),
        Some(e) => Err(CalibrationError(format!(
            "model {} {} {}: engine {} is in no [[choice]] of that phase and precision",
            model.key, model.phase, model.precision, e.engine
        ))),
    }
}

/// Whether no engine of a model has a term twice.
fn terms_apart(model: &ModelFile<'_>) -> Result<(), CalibrationError> {
    for (engine, .., terms, _) in &model.engines {
        let mut seen = HashSet::new();
        if let Some(TermFile(twice, ..)) = terms.iter().find(|TermFile(name, ..)| !seen.insert(name.as_ref())) {
            let (kind, engine) = (shown(model.kind.as_ref()), shown(engine.as_ref()));
            let (phase, precision, twice) = (model.phase, model.precision, shown(twice.as_ref()));
            let why = format!("model {kind} {phase} {precision}: engine {engine}: term {twice} is there twice");
            return Err(CalibrationError(why));
        }
    }
    Ok(())
}

/// A model of a packed file, whose engines' terms are read when they are asked for.
///
/// # Errors
/// As [`Calibration::from_toml`].
fn read_packed_model(kept: &Kept) -> Result<LayerModel, CalibrationError> {
    let packed = kept.value();
    let read = || -> Result<_, packed::Error> {
        let file: ModelFile<'static> = packed.without(&["engines"])?;
        let mut engines = Vec::new();
        for engine in packed.field("engines")?.map_or(Ok(Vec::new()), Packed::items)? {
            let [name, rows, intercept, range, terms, clamp] = engine.items()?[..] else {
                return Err(serde::de::Error::custom("an engine has six parts"));
            };
            let (terms, clamp) = (kept.within(terms), kept.within(clamp));
            let name: Name<'static> = name.read()?;
            engines.push(EngineTerms {
                engine: shown(name.as_ref()),
                rows: rows.read()?,
                intercept: intercept.read()?,
                range: range.read()?,
                terms: Later::packed(terms, file.family, |list, family| read_terms(list.read().ok()?, family).ok()),
                clamp: Later::packed(clamp, file.family, |list, family| read_ranges(list.read().ok()?, family).ok()),
                compiled: Compiled::default(),
            });
        }
        Ok((file, engines))
    };
    let (file, engines) = read().map_err(|e| malformed(e.into()))?;
    Ok(LayerModel { engines, ..read_model(file)? })
}

fn read_model(file: ModelFile<'_>) -> Result<LayerModel, CalibrationError> {
    let (kind, phase, precision) = (file.kind.clone(), file.phase, file.precision);
    let named = |why| format!("model {} {phase} {precision}: {why}", shown(kind.as_ref()));
    read_numbers(file).map_err(|CalibrationError(why)| CalibrationError(named(why)))
}

fn fail(why: &str) -> CalibrationError {
    CalibrationError(why.to_string())
}

fn bounded(field: &dyn Display, value: f64, range: RangeInclusive<f64>) -> Result<(), CalibrationError> {
    match range.contains(&value) {
        true => Ok(()),
        false => within(&field.to_string(), value, range).map(drop).map_err(|why| fail(&why.to_string())),
    }
}

fn interval(field: &dyn Display, (low, high): (f64, f64), most: f64) -> Result<(), CalibrationError> {
    bounded(&field, low, either_side(most))?;
    bounded(&field, high, either_side(most))?;
    if low <= high { Ok(()) } else { Err(fail(&format!("{field} is not a range"))) }
}

fn read_ranges(list: Vec<RangeFile<'_>>, family: Family) -> Result<Vec<Range>, CalibrationError> {
    list.into_iter()
        .map(|(name, low, high)| {
            let [factor] = parse_term(name.as_ref(), family)?[..] else {
                return Err(fail("a range is of one variable"));
            };
            interval(&format_args!("the range of {name}"), (low, high), MOST_VARIABLE)?;
            Ok(Range { variable: factor.variable, low, high })
        })
        .collect()
}

fn read_terms(list: Vec<TermFile<'_>>, family: Family) -> Result<Vec<Term>, CalibrationError> {
    list.into_iter()
        .map(|TermFile(name, coefficient, mean, scale)| {
            let factors = parse_term(name.as_ref(), family)?;
            bounded(&format_args!("the coefficient of {name}"), coefficient, either_side(MOST_COEFFICIENT))?;
            bounded(&format_args!("the mean of {name}"), mean, either_side(MOST_COLUMN))?;
            bounded(&format_args!("the scale of {name}"), scale, LEAST_SCALE..=MOST_COLUMN)?;
            Ok(Term { factors, coefficient, mean, scale })
        })
        .collect()
}

fn read_numbers<'a>(file: ModelFile<'a>) -> Result<LayerModel, CalibrationError> {
    let read_key = |kind: &str| kind.parse::<ModelKey>().map_err(|e| fail(&e.to_string()));
    let key = read_key(file.kind.as_ref())?;
    let cover = |(kind, phase, precision): &(Name<'_>, _, _)| {
        Ok(Cover { key: read_key(kind.as_ref())?, phase: *phase, precision: *precision })
    };
    let covers = file.covers.iter().map(cover).collect::<Result<_, _>>()?;
    if !matches!(file.exponent, 1 | 2 | 4) {
        return Err(fail("exponent must be 1, 2 or 4"));
    }
    for (field, value, range) in [
        ("floor_us", file.floor_us, 0.0..=MOST_US),
        ("shortest_us", file.shortest_us, 0.0..=MOST_US),
        ("library", file.library, either_side(MOST_VARIABLE)),
        ("intercept", file.intercept, either_side(MOST_COEFFICIENT)),
        ("mape_percent", file.mape_percent, 0.0..=MOST_PERCENT),
        ("rmspe_percent", file.rmspe_percent, 0.0..=MOST_PERCENT),
        ("median_percent", file.median_percent, 0.0..=MOST_PERCENT),
    ] {
        bounded(&field, value, range)?;
    }
    let memory = file.memory.map(|(bandwidth, cache)| {
        bounded(&"memory", bandwidth, 1.0..=MOST_BANDWIDTH)?;
        bounded(&"memory", cache, 0.0..=MOST_CACHE)?;
        let cache = (cache > 0.0).then(|| Bytes::new((cache * MIB).round() as u64));
        Ok(Memory { bandwidth: BytesPerSecond::new(bandwidth * GB), cache })
    });
    let memory = memory.transpose()?;
    interval(&"ratio_range", file.ratio_range, MOST_LOG_RATIO)?;
    interval(&"ordinary_range", file.ordinary_range, MOST_LOG_RATIO)?;
    let numbers = |(engine, rows, intercept, range, list, clamp): EngineFile<'a>| {
        bounded(&"intercept", intercept, either_side(MOST_ENGINE))?;
        interval(&"range", range, MOST_ENGINE)?;
        if rows == 0 {
            return Err(fail("rows is 0: nothing is learned from no row"));
        }
        Ok(EngineTerms {
            engine: shown(engine.as_ref()),
            rows,
            intercept,
            terms: read_terms(list, file.family)?.into(),
            range,
            clamp: read_ranges(clamp, file.family)?.into(),
            compiled: Compiled::default(),
        })
    };
    let engine = |(engine, rows, intercept, range, list, clamp): EngineFile<'a>| {
        let name = engine.clone();
        let named = |CalibrationError(why): CalibrationError| fail(&format!("engine {}: {why}", shown(name.as_ref())));
        numbers((engine, rows, intercept, range, list, clamp)).map_err(named)
    };
    each_once(&file.engines.iter().map(|e| &e.0).collect::<Vec<_>>()).map_err(|why| fail(&why))?;
    let engines = file.engines.into_iter().map(engine).collect::<Result<Vec<_>, CalibrationError>>()?;
    let residuals = file
        .residuals
        .into_iter()
        .map(|(up_to_us, low, high, rows)| {
            interval(&"residuals", (low, high), MOST_RESIDUAL)?;
            if up_to_us.is_nan() || up_to_us <= 0.0 {
                return Err(fail(&format!("residuals up to {up_to_us:?} us are of no time")));
            }
            Ok(Bucket { up_to: Seconds::from_us(up_to_us), low, high, rows })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut sizes = Ellipsoid::default();
    let dimensions = file.sizes.len();
    for (name, mean, scale, row) in file.sizes {
        let factor = parse_term(name.as_ref(), file.family)?;
        let [factor] = factor[..] else { return Err(fail("a size is one variable")) };
        bounded(&format_args!("the mean of size {name}"), mean, either_side(MOST_COLUMN))?;
        bounded(&format_args!("the deviation of size {name}"), scale, LEAST_SCALE..=MOST_COLUMN)?;
        for value in &row {
            bounded(&format_args!("the row of size {name}"), *value, either_side(MOST_INVERSE))?;
        }
        if row.len() != dimensions {
            return Err(fail(&format!("the row of size {name} is not as long as there are sizes")));
        }
        sizes.variables.push(factor.variable);
        sizes.mean.push(mean);
        sizes.scale.push(scale);
        sizes.inverse.extend(row);
    }
    if residuals.is_empty() {
        return Err(fail("no residual quantiles"));
    }
    Ok(LayerModel {
        clamp: read_ranges(file.clamp, file.family)?,
        domain: read_ranges(file.domain, file.family)?,
        sizes,
        key,
        phase: file.phase,
        precision: file.precision,
        framework: file.framework,
        covers,
        boards: file.boards,
        imported: file.imported,
        memory,
        family: file.family,
        exponent: file.exponent,
        floor: Seconds::from_us(file.floor_us),
        library: file.library,
        intercept: file.intercept,
        ratio_range: file.ratio_range,
        ordinary_range: file.ordinary_range,
        shortest: Seconds::from_us(file.shortest_us),
        terms: read_terms(file.terms, file.family)?,
        engines,
        rows: file.rows,
        cross_validation: CrossValidation {
            mape: file.mape_percent,
            rmspe: file.rmspe_percent,
            median: file.median_percent,
        },
        residuals,
        compiled: Compiled::default(),
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::base::precision::Mode;
    use crate::base::units::Hertz;
    use crate::kernel::key::ModelKey;
    use crate::law::calibration::term::parse_term;
    use crate::law::calibration::{Arithmetic, Factor, FewShot, Share, Siblings, Slope};
    use crate::law::choice::{Tree, Workspace};
    use crate::law::power::{Correction, PowerModel, TRAITS};
    use std::collections::BTreeMap;

    /// A calibration with one linear model, as `calibrate fit` would write it.
    pub fn sample() -> Calibration {
        let range = |variable, low, high| Range { variable, low, high };
        Calibration {
            id: "t1-imported-1".into(),
            chip: "T1".into(),
            boards: vec!["toy".into()],
            tier: Tier::Imported,
            software: "cuDNN 8.9".into(),
            sources: vec!["somewhere".into()],
            fit: "shipped".into(),
            tool: "joulecast 0.1.0".into(),
            dataset_hash: "00".into(),
            held_out_hash: Some("00".into()),
            fold_key: "kind + shape without batch".into(),
            power: Some(PowerModel {
                bandwidth: Some(BytesPerSecond::new(4.8e12)),
                coefficients: [0.5, 0.0, 0.125, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25],
                correction: Some(Correction {
                    intercept: 0.25,
                    terms: vec![(0, -0.5), (8, 0.125)],
                    clamp: vec![(-1.0, 2.0); TRAITS.len()],
                }),
                exponent: Some(2.0),
                burst: None,
                headroom: 0.96875,
                residuals: (-0.125, 0.125),
                mape: 6.5,
                rows: 500,
                clocks: Some((Hertz::from_mhz(1000.0), Hertz::from_mhz(1980.0))),
            }),
            networks: vec![NetworkSpread {
                framework: "pytorch".into(),
                mode: Mode::Training,
                launch_bound: true,
                time: (0.5, 0.25),
                power: (1.0, 1.5),
                energy: (0.5, 0.5),
                networks: 2,
                names: vec!["a".into(), "b".into()],
                runs: 100,
                held: (0.875, 0.9375, 1.0),
            }],
            transfer: Some(Transfer {
                siblings: Some(Siblings { low: -0.25, high: 0.5, boards: 4, rows: 120 }),
                slopes: vec![Slope {
                    share: Share::Linear,
                    factors: vec![Factor { variable: 0, power: 1 }],
                    deviation: 0.25,
                }],
                residuals: vec![FewShot {
                    share: Share::Bandwidth,
                    arithmetic: Arithmetic::Full,
                    rows: 20,
                    low: -0.5,
                    high: 0.25,
                }],
            }),
            choices: vec![Choice {
                workspaces: BTreeMap::from([("eng70".into(), Workspace::new([1.0, 0.5, 0.0, 0.25]))]),
                phase: Phase::Forward,
                precisions: vec![Precision::Fp32, Precision::Bf16],
                engines: vec!["eng3{} fft".into(), "eng70{2=12,18=0}".into()],
                asked: 1000,
                right: 0.875,
                tree: Tree::from_text("A4 0 1", 2).expect("a tree"),
            }],
            models: Models::from(vec![LayerModel {
                imported: true,
                memory: Some(Memory { bandwidth: BytesPerSecond::new(4.8e12), cache: Some(Bytes::new(60 << 20)) }),
                key: ModelKey::Kind("linear"),
                phase: Phase::Forward,
                precision: Precision::Fp32,
                framework: Some("pytorch".into()),
                boards: vec!["toy".into()],
                covers: Vec::new(),
                family: Family::Gemm,
                exponent: 2,
                floor: Seconds::from_us(4.0),
                library: -0.1,
                intercept: 0.25,
                ratio_range: (-0.5, 1.5),
                ordinary_range: (-0.25, 1.0),
                shortest: Seconds::from_us(20.0),
                terms: vec![Term {
                    factors: parse_term("m*n", Family::Gemm).expect("variables"),
                    coefficient: 0.125,
                    mean: 1.0,
                    scale: 2.0,
                }],
                engines: vec![EngineTerms {
                    engine: "eng70{2=12,18=0}".into(),
                    rows: 60,
                    intercept: -0.25,
                    terms: vec![Term {
                        factors: parse_term("k", Family::Gemm).expect("variables"),
                        coefficient: 0.5,
                        mean: 2.0,
                        scale: 1.0,
                    }]
                    .into(),
                    range: (-0.75, 0.75),
                    clamp: vec![range(2, 1.0, 3.0)].into(),
                    compiled: Compiled::default(),
                }],
                clamp: vec![range(0, -4.0, 4.0), range(1, -4.0, 4.0)],
                domain: vec![range(0, -2.0, 2.0)],
                sizes: Ellipsoid { variables: vec![0], mean: vec![0.5], scale: vec![1.5], inverse: vec![1.0] },
                rows: 100,
                cross_validation: CrossValidation { mape: 8.0, rmspe: 11.0, median: 6.0 },
                residuals: vec![Bucket { up_to: Seconds::new(f64::INFINITY), low: -0.2, high: 0.2, rows: 100 }],
                compiled: Compiled::default(),
            }]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::sample;
    use super::*;

    #[test]
    fn a_calibration_reads_back_what_was_written() -> Result<(), CalibrationError> {
        let text = sample().to_toml()?;
        assert_eq!(Calibration::from_toml(&text)?, sample());
        Ok(())
    }

    #[test]
    fn damage_is_named() -> Result<(), CalibrationError> {
        let text = sample().to_toml()?;
        for (from, to, expected) in [
            ("calibration/1", "calibration/7", "calibration/7"),
            ("\"m*n\"", "\"m*z\"", "\"z\""),
            ("intercept = 0.25", "intercept = nan", "intercept is NaN"),
            ("model_count = 1", "model_count = 2", "cut"),
            ("exponent = 2", "exponent = 3", "exponent"),
            ("[inf, -0.2, 0.2, 100]", "[inf, -0.2, 6.4e99, 100]", "residuals is 6.4e99"),
            ("[inf, -0.2, 0.2, 100]", "[0, -0.2, 0.2, 100]", "residuals up to 0"),
            ("floor_us = 4.0", "floor_us = 1e308", "floor_us is 1e308"),
            ("floor_us = 4.0", "floor_us = -1e-320", "floor_us is -1e-320"),
            ("ratio_range = [-0.5, 1.5]", "ratio_range = [-1e308, 1.5]", "ratio_range is -1e308"),
            ("ordinary_range = [-0.25, 1.0]", "ordinary_range = [1.0, -0.25]", "ordinary_range is not a range"),
            ("\"m*n\", 0.125, 1.0, 2.0", "\"m*n\", 1e300, 1.0, 2.0", "coefficient of m*n is 1e300"),
            ("\"m*n\", 0.125, 1.0, 2.0", "\"m*n\", 0.125, 1.0, 1e-320", "scale of m*n is 1e-320"),
            ("\"m*n\", 0.125, 1.0, 2.0", "\"m*n*m*n*m*n*m*n*m\", 0.125, 1.0, 2.0", "more than 8 variables"),
            ("[\"m\", 0.5, 1.5, [1.0]]", "[\"m\", 0.5, 1.5, [inf]]", "row of size m is inf"),
            (
                "[\"bandwidth\", \"full\", 20, -0.5, 0.25]",
                "[\"bandwidth\", \"full\", 20, -0.5, 6e99]",
                "residuals of bandwidth",
            ),
            ("residuals = [-0.125, 0.125]", "residuals = [-0.125, 6e99]", "power: residuals is 6e99"),
            ("[\"busy\", 0.5]", "[\"busy\", 1e308]", "busy is 1e308"),
            ("time = [0.5, 0.25]", "time = [0.5, 6e99]", "network pytorch training: time is 6e99"),
            ("[\"m\", -2.0, 2.0]", "[\"m\", 2.0, -2.0]", "range"),
            ("kind = \"linear\"", "", "kind"),
            ("A4 0 1", "A4 0 7", "choice forward fp32, bf16: node 2 of the tree names engine 7"),
            ("A4 0 1", "A-4 0 1", "splits at -4"),
            ("\"eng70{2=12,18=0}\",\n]", "\"eng3{} fft\",\n]", "engine eng3{} fft is there twice"),
            ("[\"eng70{2=12,18=0}\", 60", "[\" \", 60", "an engine has no name"),
            ("asked = 1000", "asked = 0", "asked is 0"),
            ("precisions = [\"fp32\", \"bf16\"]", "precisions = []", "no precisions"),
            (
                "precisions = [\"fp32\", \"bf16\"]",
                "precisions = [\"fp32\", \"fp32\"]",
                "choice forward fp32 is there twice",
            ),
            ("right = 0.875", "right = 1.5", "right is 1.5"),
            ("[-0.75, 0.75]", "[0.75, -0.75]", "linear forward fp32: engine eng70{2=12,18=0}: range is not a range"),
            ("60, -0.25,", "60, 50,", "engine eng70{2=12,18=0}: intercept is 50"),
            ("60, -0.25,", "0, -0.25,", "engine eng70{2=12,18=0}: rows is 0"),
            ("[\"k\", 0.5,", "[\"k\", 0.5, 2.0, 1.0], [\"k\", 0.5,", "engine eng70{2=12,18=0}: term k is there twice"),
            ("[\"eng70{2=12,18=0}\", 60", "[\"eng71{}\", 60", "engine eng71{} is in no [[choice]]"),
            ("phase = \"forward\"\nprecisions", "phase = \"backward_data\"\nprecisions", "is in no [[choice]]"),
            ("[\"k\", 0.5, 2.0, 1.0]", "[\"k\", 6e99, 2.0, 1.0]", "coefficient of k"),
            ("[\"busy\", 0.5]", "[\"bizzy\", 0.5]", "bizzy"),
            ("[\"busy\", 0.5]", "[\"busy\", -0.5]", "busy is -0.5"),
            ("headroom = 0.96875", "headroom = 1.5", "headroom"),
            ("time = [0.5, 0.25]", "time = [0.5, -0.25]", "time is -0.25"),
            ("[\"m\", 0.5, 1.5, [1.0]]", "[\"m\", 0.5, 1.5, [1.0, 2.0]]", "sizes"),
        ] {
            let error = Calibration::from_toml(&text.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(expected), "{error:?} should name {expected:?}");
        }
        for end in 0..text.len() {
            if let Some(head) = text.get(..end) {
                let _ = Calibration::from_toml(head);
            }
        }
        Ok(())
    }
}
