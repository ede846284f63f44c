//! What to tell of a predicted step.

use super::operating_point::{Limits, OperatingPoint};
use super::settle::REACTION;
use super::step::Step;
use super::totals::Totals;
use super::{HostOf, LayerPrediction, Warning};
use crate::base::precision::{Phase, Precision};
use crate::base::units::{Joules, Seconds, Watts};
use crate::kernel::family::Family;
use crate::law::calibration::Tier;
use crate::law::lookup::Substitute;
use crate::law::power::ClockLaw;
use crate::step::framework::Launch;

/// Column `source` of the rows of the simulated device.
pub const SIMULATED: &str = "fake";

/// Shares of the time, and of clocks and powers, below this are not worth a warning.
const WORTH_A_WARNING: f64 = 0.01;
/// cuDNN of age 0 ([`crate::kernel::features::library_age`]).
const NEWEST: f64 = 9.0;
/// A board that keeps to less than this share of its limit is said to.
const KEPT: f64 = 0.98;

/// A step whose kernels are predicted.
pub(super) struct Settled<'a> {
    pub(super) point: OperatingPoint,
    pub(super) limits: &'a Limits,
    /// Relative core clock of every kernel.
    pub(super) clocks: &'a [f64],
    /// Their mean over time.
    pub(super) mean: f64,
    pub(super) layers: &'a [LayerPrediction],
    pub(super) totals: &'a Totals,
}

impl Step<'_> {
    /// In the order in which they are printed.
    pub(super) fn warnings(&self, settled: &Settled<'_>) -> Vec<Warning> {
        let mut list: Vec<Warning> = self.network.notes().iter().cloned().map(Warning::Network).collect();
        list.extend(settled.limits.notes.iter().cloned());
        list.extend(self.of_clocks(settled));
        list.extend(beyond_the_limit(settled.layers, settled.limits));
        if let Some(algorithm) = self.setup.framework.algorithm() {
            let convolutions = settled.layers.iter().filter(|l| l.kind == "conv2d" && l.phase != Phase::Update);
            let (by, all) = convolutions.fold((0, 0), |(by, all), l| (by + u32::from(l.algorithm.is_some()), all + 1));
            list.push(Warning::ByAlgorithm { by, all, algorithm });
        }
        list.extend(self.of_precision());
        list.extend(self.of_library());
        list.extend(self.of_rows(settled.totals));
        list.extend(self.of_host(settled.totals));
        list.extend(self.of_power());
        list
    }

    fn of_precision(&self) -> Option<Warning> {
        let network = self.network;
        let (precision, gpu) = (network.precision(), self.setup.gpu);
        if gpu.computes_in(precision) != Some(precision) {
            return Some(Warning::StoredHalves { gpu: gpu.name.clone() });
        }
        let precision = Some(precision).filter(|p| *p == Precision::Fp8)?;
        let products = network.layers().iter().filter(|l| Family::of(&l.case.layer, Phase::Forward) == Family::Gemm);
        let (fp8, of) =
            products.fold((0, 0), |(fp8, of), l| (fp8 + usize::from(l.case.runs_in(precision) == precision), of + 1));
        Some(Warning::InFp8 { products: fp8, of })
    }

    fn of_clocks(&self, settled: &Settled<'_>) -> Vec<Warning> {
        let Settled { point, limits, clocks, mean, layers, .. } = *settled;
        let gpu = self.setup.gpu;
        let boost = gpu.core_clock.boost.value;
        let mut list = Vec::new();
        let energy: Joules = layers.iter().map(|l| l.energy).sum();
        let time: Seconds = layers.iter().map(|l| l.time.value).sum();
        let cap = limits.cap;
        if energy / time > cap {
            list.push(Warning::BeyondLimit {
                cap,
                lowest: boost * limits.lowest,
                all: mean <= limits.lowest * (1.0 + WORTH_A_WARNING),
            });
        } else if mean < limits.ceiling * (1.0 - WORTH_A_WARNING) {
            let kept = (self.held < KEPT).then_some(cap * self.held);
            list.push(Warning::Held { cap, kept, clock: boost * mean, ceiling: boost * limits.ceiling });
        }
        let moved = self.kernels.iter().zip(clocks).any(|(k, c)| (c / k.reference - 1.0).abs() > WORTH_A_WARNING);
        let asked = point != OperatingPoint::default();
        let observed = self.law.clocks.filter(|_| self.power_tier <= Tier::Sibling);
        match observed {
            _ if !asked || !moved && limits.memory == 1.0 => {}
            Some((low, high)) if limits.memory == 1.0 => {
                if clocks.iter().any(|c| boost * *c < low || boost * *c > high) {
                    list.push(Warning::OutsideClocks { low, high });
                }
            }
            _ => list.push(Warning::ClocksByLaw),
        }
        if asked && matches!(self.clock_law, ClockLaw::Voltage(_)) && gpu.voltage.is_none() {
            list.push(Warning::Voltage { gpu: gpu.name.clone() });
        }
        list
    }

    /// Whether models know a library's version that is asked for.
    fn of_library(&self) -> Option<Warning> {
        let asked = self.setup.library?;
        let ages = self.kernels.iter().filter_map(|k| k.ages);
        let known = ages.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let gpu = self.setup.gpu.name.clone();
        match known {
            None if self.kernels.iter().any(|k| k.jump.is_some()) => None,
            None => Some(Warning::LibraryUnknown { gpu }),
            // Versions are read to one decimal.
            Some((old, new)) if asked < old - 0.05 || asked > new + 0.05 => {
                let known = (NEWEST + old, NEWEST + new);
                Some(Warning::LibraryOutside { asked: NEWEST + asked, known, gpu })
            }
            Some(_) => None,
        }
    }

    /// How far what was measured is from the device and its kernels.
    fn of_rows(&self, totals: &Totals) -> Vec<Warning> {
        let total = totals.time.value.get();
        let gpu = &self.setup.gpu.name;
        let mut list = Vec::new();
        match self.setup.calibration {
            None => {
                list.push(Warning::NoRows { gpu: gpu.clone() });
                if self.setup.of_other_vendor() {
                    list.push(Warning::OtherVendor { vendor: self.setup.gpu.vendor });
                }
                list.extend(substituted(totals, |by| by == Substitute::OneChip));
            }
            Some(calibration) => {
                if !calibration.boards.contains(gpu) {
                    list.push(Warning::OtherBoard { boards: calibration.boards.clone(), gpu: gpu.clone() });
                }
                if calibration.sources.iter().any(|s| s == SIMULATED) {
                    list.push(Warning::Simulated);
                }
                list.extend(substituted(totals, |_| true));
            }
        }
        let share = totals.outside / total;
        if share >= WORTH_A_WARNING {
            list.push(Warning::Outside { share });
        }
        list
    }

    fn of_host(&self, totals: &Totals) -> Vec<Warning> {
        let mut list = Vec::new();
        let share = totals.for_host / totals.time.value;
        if share >= WORTH_A_WARNING {
            list.push(Warning::WaitsForHost { share });
        }
        let framework = self.setup.framework;
        let name = || framework.name.clone();
        match self.host(totals) {
            Some(HostOf { source: Some(source), factor, .. }) => {
                list.push(Warning::KnownHost { framework: name(), factor, source });
            }
            Some(HostOf { decides: true, spread, .. }) => {
                list.push(Warning::UnknownHost { framework: name(), spread });
            }
            _ => {}
        }
        if self.setup.launch == Launch::Eager && framework.host.is_none() {
            list.push(Warning::NoHost { framework: name() });
        }
        list
    }

    fn of_power(&self) -> Option<Warning> {
        let idle_known = self.setup.gpu.power.idle.is_some();
        match self.power_tier {
            Tier::Sibling => Some(Warning::OtherPower { sibling: true, idle_known }),
            Tier::Transferred => Some(Warning::OtherPower { sibling: false, idle_known }),
            _ => None,
        }
    }
}

/// Kinds that other models stand in for, where that is worth a warning.
fn substituted(totals: &Totals, told: impl Fn(Substitute) -> bool) -> impl Iterator<Item = Warning> {
    let mut list: Vec<_> = totals.substituted.iter().filter(|(by, ..)| told(*by)).copied().collect();
    list.sort_by_key(|&(by, kind, _)| (by, kind));
    let groups: Vec<_> = list.chunk_by(|a, b| a.0 == b.0).map(<[_]>::to_vec).collect();
    groups.into_iter().filter_map(|kinds| {
        let (by, ..) = *kinds.first()?;
        let share = kinds.iter().map(|(.., time)| time).sum::<f64>() / totals.time.value.get();
        let kinds = || kinds.iter().map(|(_, kind, _)| *kind).collect();
        (share >= WORTH_A_WARNING).then(|| Warning::Substituted { kinds: kinds(), share, by })
    })
}

/// Layers that draw more than the limit although all of them together keep it.
fn beyond_the_limit(layers: &[LayerPrediction], limits: &Limits) -> Option<Warning> {
    let mean = layers.iter().map(|l| l.energy).sum::<Joules>() / layers.iter().map(|l| l.time.value).sum::<Seconds>();
    let most = layers.iter().map(|l| l.power).fold(Watts::ZERO, Watts::max);
    let cap = limits.cap;
    let beyond = mean <= cap && most > cap * (1.0 + WORTH_A_WARNING);
    beyond.then_some(Warning::LayersBeyondLimit { most, cap, over: REACTION })
}
