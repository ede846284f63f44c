//! Devices: what their data sheets and measurements say. The file format is documented in `data/gpus/README.md`.

use crate::base::file::{FileError, check_schema, quantity, within};
use crate::base::packed::{from_packed, from_toml};
use crate::base::precision::Precision;
use crate::base::text::{names, prose, shown};
use crate::base::units::{Bytes, BytesPerSecond, Dimension, Hertz, OpsPerSecond, Watts};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

/// Whether a vendor states a number or somebody measured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// A data sheet, white paper or specification.
    Vendor,
    /// A measurement.
    Measured,
}

/// A number with where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    /// The number.
    pub value: T,
    /// Vendor or measured.
    pub provenance: Provenance,
    /// The document or measurement, in words.
    pub source: String,
}

/// A GPU, or a CPU described in the same terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Name on the command line.
    pub name: String,
    /// Human-readable name.
    pub title: String,
    /// Further names.
    pub aliases: Vec<String>,
    /// GPU or CPU.
    pub device: Device,
    /// Who makes it.
    pub vendor: Vendor,
    /// The silicon: boards of one chip share calibrations and are left out together.
    pub chip: String,
    /// Microarchitecture.
    pub architecture: String,
    /// pcie, sxm2 ...
    pub form_factor: String,
    /// Streaming multiprocessors, or cores.
    pub sms: Sourced<u64>,
    /// Threads that a multiprocessor holds at once.
    pub threads_per_sm: u64,
    /// fp32 lanes per multiprocessor.
    pub cores_per_sm: Sourced<u64>,
    /// Peak throughput per precision at the boost clock; tensor cores where the file says so.
    pub peaks: BTreeMap<Precision, Sourced<OpsPerSecond>>,
    /// Memory size.
    pub memory: Sourced<Bytes>,
    /// Peak memory bandwidth.
    pub bandwidth: Sourced<BytesPerSecond>,
    /// Second-level cache.
    pub l2: Option<Sourced<Bytes>>,
    /// Memory clock as the driver reports it.
    pub memory_clock: Option<Sourced<Hertz>>,
    /// Range of memory clocks, where there is more than the one above.
    pub memory_clock_range: Option<(Sourced<Hertz>, Sourced<Hertz>)>,
    /// Core clocks.
    pub core_clock: CoreClock,
    /// Core voltage over the core clock, where known.
    pub voltage: Option<Voltage>,
    /// Power limits and idle power.
    pub power: Power,
}

/// What kind of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// A graphics processor.
    Gpu,
    /// A processor.
    Cpu,
}

/// Who makes a device, hence whose libraries run on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// NVIDIA.
    #[default]
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
}

impl Vendor {
    /// As it writes itself.
    pub fn title(self) -> &'static str {
        match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Intel => "Intel",
        }
    }
}

/// Core clocks.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreClock {
    /// Guaranteed clock, where the vendor names one.
    pub base: Option<Sourced<Hertz>>,
    /// The clock that the peaks refer to.
    pub boost: Sourced<Hertz>,
    /// Lowest settable clock.
    pub minimum: Option<Sourced<Hertz>>,
    /// Highest settable clock.
    pub maximum: Option<Sourced<Hertz>>,
    /// Distance of settable clocks.
    pub step: Option<Sourced<Hertz>>,
}

/// Core voltage over the core clock: constant up to a knee, then a straight line.
#[derive(Clone, Debug, PartialEq)]
pub struct Voltage {
    /// Up to this clock the voltage is constant; below the boost clock.
    pub knee: Sourced<Hertz>,
    /// What it gains from there to the boost clock, as a share of the constant voltage.
    pub rise: Sourced<f64>,
    /// Between what that gain lies at 90 %, where it was inferred and not read.
    pub likely: Option<(Sourced<f64>, Sourced<f64>)>,
}

/// Board power.
#[derive(Clone, Debug, PartialEq)]
pub struct Power {
    /// Default enforced limit.
    pub limit: Sourced<Watts>,
    /// Lowest settable limit.
    pub limit_minimum: Option<Sourced<Watts>>,
    /// Highest settable limit.
    pub limit_maximum: Option<Sourced<Watts>>,
    /// Idle at the lowest core clock, where known.
    pub idle: Option<Sourced<Watts>>,
    /// While a context waits at the boost clock and the usual memory clock, where known.
    pub waiting: Option<Sourced<Watts>>,
    /// Share of its limit that the board draws while that holds it back, where known; beside `draw`, with another chip's law.
    pub held: Option<Sourced<f64>>,
    /// What kernels draw above waiting, over what the law of power of another chip foretells, where known.
    pub draw: Option<Sourced<f64>>,
}

/// A device file that cannot be used, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GpuError(String);

impl From<FileError> for GpuError {
    fn from(error: FileError) -> Self {
        Self(error.to_string())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    #[serde(deserialize_with = "names")]
    name: String,
    #[serde(deserialize_with = "names")]
    title: String,
    #[serde(default, deserialize_with = "names")]
    aliases: Vec<String>,
    device: Device,
    #[serde(default)]
    vendor: Vendor,
    #[serde(deserialize_with = "names")]
    chip: String,
    #[serde(deserialize_with = "names")]
    architecture: String,
    #[serde(deserialize_with = "names")]
    form_factor: String,
    #[serde(default)]
    compute_capability: Option<String>,
    sms: Entry<u64>,
    cores_per_sm: Entry<u64>,
    #[serde(deserialize_with = "prose")]
    sources: HashMap<String, String>,
    peak: HashMap<String, Entry<String>>,
    memory: MemoryFile,
    core_clock: ClockFile,
    voltage: Option<VoltageFile>,
    power: PowerFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryFile {
    size: Entry<String>,
    bandwidth: Entry<String>,
    l2: Option<Entry<String>>,
    clock: Option<Entry<String>>,
    clock_minimum: Option<Entry<String>>,
    clock_maximum: Option<Entry<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockFile {
    base: Option<Entry<String>>,
    boost: Entry<String>,
    minimum: Option<Entry<String>>,
    maximum: Option<Entry<String>>,
    step: Option<Entry<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VoltageFile {
    knee: Entry<String>,
    rise: Entry<f64>,
    rise_minimum: Option<Entry<f64>>,
    rise_maximum: Option<Entry<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PowerFile {
    limit: Entry<String>,
    limit_minimum: Option<Entry<String>>,
    limit_maximum: Option<Entry<String>>,
    idle: Option<Entry<String>>,
    waiting: Option<Entry<String>>,
    held: Option<Entry<f64>>,
    draw: Option<Entry<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<T> {
    value: T,
    kind: Provenance,
    source: String,
    /// "tensor" or "vector": which unit reaches a peak; for the reader of the file.
    #[serde(default, rename = "unit")]
    _unit: Option<String>,
}

impl Gpu {
    /// Reads a device file.
    ///
    /// # Errors
    /// One line that names the field: a missing or unknown field, a missing unit, an unknown source key, a
    /// zero where a positive number is needed.
    pub fn from_toml(text: &str) -> Result<Self, GpuError> {
        Self::of(from_toml(text)?)
    }

    /// Reads a device file that is shipped.
    ///
    /// # Errors
    /// As [`Self::from_toml`].
    pub(crate) fn from_packed(bytes: &'static [u8]) -> Result<Self, GpuError> {
        Self::of(from_packed(bytes)?)
    }

    fn of(file: File) -> Result<Self, GpuError> {
        check_schema(&file.schema, "gpu/1")?;
        let reader = Reader { sources: &file.sources };
        let mut peaks = BTreeMap::new();
        for (name, entry) in file.peak {
            let precision = Precision::from_name(&name)
                .ok_or_else(|| GpuError(format!("peak.{}: unknown precision", shown(&name))))?;
            let field = format!("peak.{name}");
            peaks.insert(precision, reader.quantity(&field, entry, Dimension::Throughput)?.map(OpsPerSecond::new));
        }
        if !peaks.contains_key(&Precision::Fp32) {
            return Err(GpuError("peak.fp32 is missing".into()));
        }
        let clock = |field: &str, entry: Entry<String>| -> Result<Sourced<Hertz>, GpuError> {
            Ok(reader.quantity(field, entry, Dimension::Frequency)?.map(Hertz::new))
        };
        let watts = |field: &str, entry: Entry<String>| -> Result<Sourced<Watts>, GpuError> {
            Ok(reader.quantity(field, entry, Dimension::Power)?.map(Watts::new))
        };
        let size = |field: &str, entry: Entry<String>| -> Result<Sourced<Bytes>, GpuError> {
            Ok(reader.quantity(field, entry, Dimension::Memory)?.map(|b| Bytes::new(b as u64)))
        };
        let gpu = Self {
            sms: reader.count("sms", file.sms)?,
            threads_per_sm: threads_per_sm(file.compute_capability.as_deref()),
            cores_per_sm: reader.count("cores_per_sm", file.cores_per_sm)?,
            peaks,
            memory: size("memory.size", file.memory.size)?,
            bandwidth: reader
                .quantity("memory.bandwidth", file.memory.bandwidth, Dimension::Bandwidth)?
                .map(BytesPerSecond::new),
            l2: file.memory.l2.map(|e| size("memory.l2", e)).transpose()?,
            memory_clock: file.memory.clock.map(|e| clock("memory.clock", e)).transpose()?,
            memory_clock_range: match (file.memory.clock_minimum, file.memory.clock_maximum) {
                (Some(low), Some(high)) => {
                    Some((clock("memory.clock_minimum", low)?, clock("memory.clock_maximum", high)?))
                }
                (None, None) => None,
                _ => return Err(GpuError("memory.clock_minimum and memory.clock_maximum go together".into())),
            },
            core_clock: CoreClock {
                base: file.core_clock.base.map(|e| clock("core_clock.base", e)).transpose()?,
                boost: clock("core_clock.boost", file.core_clock.boost)?,
                minimum: file.core_clock.minimum.map(|e| clock("core_clock.minimum", e)).transpose()?,
                maximum: file.core_clock.maximum.map(|e| clock("core_clock.maximum", e)).transpose()?,
                step: file.core_clock.step.map(|e| clock("core_clock.step", e)).transpose()?,
            },
            voltage: match file.voltage {
                Some(v) => Some(Voltage {
                    knee: clock("voltage.knee", v.knee)?,
                    rise: reader.ratio("voltage.rise", v.rise, 1.0)?,
                    likely: match (v.rise_minimum, v.rise_maximum) {
                        (Some(low), Some(high)) => Some((
                            reader.ratio("voltage.rise_minimum", low, 1.0)?,
                            reader.ratio("voltage.rise_maximum", high, 1.0)?,
                        )),
                        (None, None) => None,
                        _ => {
                            return Err(GpuError("voltage.rise_minimum and voltage.rise_maximum go together".into()));
                        }
                    },
                }),
                None => None,
            },
            power: Power {
                limit: watts("power.limit", file.power.limit)?,
                limit_minimum: file.power.limit_minimum.map(|e| watts("power.limit_minimum", e)).transpose()?,
                limit_maximum: file.power.limit_maximum.map(|e| watts("power.limit_maximum", e)).transpose()?,
                idle: file.power.idle.map(|e| watts("power.idle", e)).transpose()?,
                waiting: file.power.waiting.map(|e| watts("power.waiting", e)).transpose()?,
                held: file.power.held.map(|e| reader.ratio("power.held", e, 1.0)).transpose()?,
                draw: file.power.draw.map(|e| reader.ratio("power.draw", e, 4.0)).transpose()?,
            },
            name: file.name,
            title: file.title,
            aliases: file.aliases,
            device: file.device,
            vendor: file.vendor,
            chip: file.chip,
            architecture: file.architecture,
            form_factor: file.form_factor,
        };
        gpu.check()?;
        Ok(gpu)
    }

    /// Numbers that contradict each other.
    fn check(&self) -> Result<(), GpuError> {
        let (clock, power) = (&self.core_clock, &self.power);
        let above =
            |low: Option<f64>, high: Option<f64>| matches!((low, high), (Some(l), Some(h)) if l > h * (1.0 + 1e-9));
        let mhz = |v: &Option<Sourced<Hertz>>| v.as_ref().map(|s| s.value.get());
        let watts = |v: &Option<Sourced<Watts>>| v.as_ref().map(|s| s.value.get());
        let (base, boost) = (mhz(&clock.base), Some(clock.boost.value.get()));
        let limit = Some(power.limit.value.get());
        for (low, high, why) in [
            (base, boost, "core_clock.base is above core_clock.boost"),
            (mhz(&clock.minimum), mhz(&clock.maximum), "core_clock.minimum is above core_clock.maximum"),
            (watts(&power.idle), watts(&power.waiting), "power.idle is above power.waiting"),
            (watts(&power.waiting), limit, "power.waiting is above power.limit"),
            (watts(&power.idle), limit, "power.idle is above power.limit"),
            (watts(&power.limit_minimum), limit, "power.limit_minimum is above power.limit"),
            (limit, watts(&power.limit_maximum), "power.limit is above power.limit_maximum"),
        ] {
            if above(low, high) {
                return Err(GpuError(why.into()));
            }
        }
        if let Some((low, high)) = &self.memory_clock_range {
            let usual = self.memory_clock.as_ref().map_or(high.value, |c| c.value);
            if !(low.value <= usual && usual <= high.value) {
                return Err(GpuError(
                    "memory.clock is not within memory.clock_minimum and memory.clock_maximum".into(),
                ));
            }
        }
        if let Some(voltage) = &self.voltage {
            if voltage.knee.value >= clock.boost.value {
                return Err(GpuError("voltage.knee is not below core_clock.boost".into()));
            }
            let rise = voltage.rise.value;
            if voltage.likely.as_ref().is_some_and(|(low, high)| low.value > rise || high.value < rise) {
                return Err(GpuError(
                    "voltage.rise is not within voltage.rise_minimum and voltage.rise_maximum".into(),
                ));
            }
        }
        Ok(())
    }

    /// Peak throughput at a precision; `None` where the hardware has no such mode.
    pub fn peak(&self, precision: Precision) -> Option<OpsPerSecond> {
        self.peaks.get(&precision).map(|p| p.value)
    }

    /// The precision of its arithmetic on numbers that are stored in `precision`: fp32 for fp16 on GPUs without fast fp16,
    /// whose libraries read halves and compute in fp32. `None` where it has no such mode.
    pub fn computes_in(&self, precision: Precision) -> Option<Precision> {
        let widened = precision == Precision::Fp16 && self.device == Device::Gpu;
        match self.peaks.contains_key(&precision) {
            true => Some(precision),
            false => widened.then_some(Precision::Fp32),
        }
    }

    /// Peak throughput on numbers that are stored in a precision.
    pub fn peak_on(&self, precision: Precision) -> Option<OpsPerSecond> {
        self.peak(self.computes_in(precision)?)
    }

    /// So many of it as one device: processors of several sockets.
    pub fn with_sockets(mut self, sockets: u64) -> Self {
        let times = sockets as f64;
        self.sms.value *= sockets;
        self.peaks.values_mut().for_each(|p| p.value = p.value * times);
        self.bandwidth.value = self.bandwidth.value * times;
        self.memory.value = Bytes::new(self.memory.value.get().saturating_mul(sockets));
        let power = &mut self.power;
        power.limit.value = power.limit.value * times;
        for watts in [&mut power.limit_minimum, &mut power.limit_maximum, &mut power.idle, &mut power.waiting] {
            watts.iter_mut().for_each(|w| w.value = w.value * times);
        }
        self
    }

    /// Peak of element-wise arithmetic, which no tensor core does: the fp32 lanes'.
    pub fn vector_peak(&self) -> OpsPerSecond {
        self.peaks.get(&Precision::Fp32).map_or(OpsPerSecond::ZERO, |p| p.value)
    }
}

impl<T> Sourced<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced { value: f(self.value), provenance: self.provenance, source: self.source }
    }
}

/// No share or factor of a board is smaller.
const LEAST_RATIO: f64 = 0.001;

struct Reader<'a> {
    sources: &'a HashMap<String, String>,
}

impl Reader<'_> {
    fn sourced<T>(&self, field: &str, kind: Provenance, key: &str, value: T) -> Result<Sourced<T>, GpuError> {
        let source = self
            .sources
            .get(key)
            .ok_or_else(|| GpuError(format!("{field}: source \"{}\" is not in [sources]", shown(key))))?;
        Ok(Sourced { value, provenance: kind, source: source.clone() })
    }

    fn quantity(&self, field: &str, entry: Entry<String>, dimension: Dimension) -> Result<Sourced<f64>, GpuError> {
        let value = quantity(field, &entry.value, dimension)?;
        if value <= 0.0 {
            return Err(GpuError(format!("{field} must be above zero; leave out what is unknown")));
        }
        self.sourced(field, entry.kind, &entry.source, value)
    }

    fn ratio(&self, field: &str, entry: Entry<f64>, most: f64) -> Result<Sourced<f64>, GpuError> {
        within(field, entry.value, LEAST_RATIO..=most)?;
        self.sourced(field, entry.kind, &entry.source, entry.value)
    }

    fn count(&self, field: &str, entry: Entry<u64>) -> Result<Sourced<u64>, GpuError> {
        if entry.value == 0 || entry.value > 1 << 20 {
            return Err(GpuError(format!("{field} must be between 1 and 1048576")));
        }
        self.sourced(field, entry.kind, &entry.source, entry.value)
    }
}

/// By compute capability (CUDA C++ Programming Guide, technical specifications); so many as most hold where there is none.
fn threads_per_sm(compute_capability: Option<&str>) -> u64 {
    match compute_capability {
        Some("7.5") => 1024,
        Some("8.6" | "8.7" | "8.9" | "12.0") => 1536,
        _ => 2048,
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub const TEXT: &str = r#"
schema = "gpu/1"
name = "toy"
title = "Toy GPU"
device = "gpu"
chip = "T1"
architecture = "toy"
form_factor = "pcie"
sms = { value = 80, kind = "vendor", source = "a" }
cores_per_sm = { value = 64, kind = "vendor", source = "a" }
[sources]
a = "nowhere"
[peak]
fp32 = { value = "15 TFLOP/s", kind = "vendor", source = "a" }
fp16 = { value = "120 TFLOP/s", kind = "vendor", source = "a", unit = "tensor" }
[memory]
size = { value = "16 GiB", kind = "vendor", source = "a" }
bandwidth = { value = "900 GB/s", kind = "vendor", source = "a" }
[core_clock]
base = { value = "1300 MHz", kind = "vendor", source = "a" }
boost = { value = "1500 MHz", kind = "vendor", source = "a" }
[power]
limit = { value = "300 W", kind = "vendor", source = "a" }
"#;

    pub fn toy() -> Gpu {
        Gpu::from_toml(TEXT).expect("a valid device")
    }
}

#[cfg(test)]
mod tests;
