//! What is particular to a board and no data sheet says, found from runs under power limits.

use super::percent;
use anyhow::Result;
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use joulecast_model::device::gpu::{Gpu, Provenance, Sourced, Voltage};
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint, PredictError, Step};

/// Fields of a device file (data/gpus/README.md).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Board {
    /// `voltage.rise`.
    pub rise: f64,
    /// `power.held`.
    pub held: f64,
    /// `power.draw`.
    pub draw: f64,
}

/// Where the searches begin, how far they step at first, and where they must stay. Order: rise, held, draw.
const STARTS: [[f64; 3]; 2] = [[0.6, 0.94, 0.9], [0.65, 0.95, 0.75]];
const STEPS: [f64; 3] = [0.1, 0.02, 0.15];
const LEAST: [f64; 3] = [0.0, 0.80, 0.3];
const MOST: [f64; 3] = [1.0, 1.0, 3.0];
/// Halvings of the steps.
const HALVINGS: usize = 5;

impl Board {
    /// A device with these constants; its knee stays, or is three quarters of the boost clock.
    pub fn on(&self, gpu: &Gpu) -> Gpu {
        let sourced = |value| Sourced { value, provenance: Provenance::Measured, source: "fitted here".to_string() };
        let mut gpu = gpu.clone();
        let knee = gpu.voltage.as_ref().map_or(gpu.core_clock.boost.value * 0.75, |v| v.knee.value);
        let knee = Sourced::<Hertz> { value: knee, provenance: Provenance::Measured, source: "its file".into() };
        gpu.voltage = Some(Voltage { knee, rise: sourced(self.rise), likely: None });
        gpu.power.held = Some(sourced(self.held));
        gpu.power.draw = Some(sourced(self.draw));
        gpu
    }

    fn from([rise, held, draw]: [f64; 3]) -> Self {
        Self { rise, held, draw }
    }
}

/// A run at one power limit.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The limit.
    pub cap: Watts,
    /// Time of a step.
    pub time: Seconds,
    /// Its energy.
    pub energy: Joules,
}

/// Runs of a network at several power limits on one board.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name, for tables.
    pub name: String,
    /// The network with its batch.
    pub network: ShapedNetwork,
    /// Phases.
    pub mode: Mode,
    /// At the default limit.
    pub default: Point,
    /// At the others.
    pub capped: Vec<Point>,
}

/// Time and energy over those at the default.
#[derive(Clone, Copy, Debug)]
pub struct Relative {
    /// Time.
    pub time: f64,
    /// Energy.
    pub energy: f64,
}

impl Curve {
    /// What was measured at a limit.
    pub fn measured(&self, point: &Point) -> Relative {
        Relative { time: point.time / self.default.time, energy: point.energy / self.default.energy }
    }

    /// What is predicted at every limit but the default one; `given`: from the measured default on.
    ///
    /// # Errors
    /// When the device does not take a limit.
    pub fn predicted(&self, predictor: &Predictor, given: bool) -> Result<Vec<Relative>, PredictError> {
        let mut step = predictor.step(&self.network, self.mode)?;
        if given {
            step = step.anchored(self.default.time, self.default.energy / self.default.time)?;
        }
        let default = step.at(OperatingPoint::default())?;
        self.capped.iter().map(|point| Ok(relative(&capped(&step, point.cap)?, &default))).collect()
    }
}

/// A step under a power limit.
///
/// # Errors
/// When the device does not take it.
pub fn capped(step: &Step<'_>, cap: Watts) -> Result<NetworkPrediction, PredictError> {
    step.at(OperatingPoint { power_cap: Some(cap), ..OperatingPoint::default() })
}

fn relative(point: &NetworkPrediction, default: &NetworkPrediction) -> Relative {
    Relative { time: point.time.value / default.time.value, energy: point.energy.value / default.energy.value }
}

/// The constants with which the mean error over curves is least: of time and energy along each, its default given, and of
/// the default power. A pattern search with shrinking steps.
///
/// # Errors
/// When a curve cannot be predicted.
pub fn fit(curves: &[&Curve], predictor: &Predictor) -> Result<Board, PredictError> {
    let error = |values: [f64; 3]| -> Result<f64, PredictError> {
        let predictor = predictor.clone().described(Board::from(values).on(predictor.gpu()));
        let mut errors = Vec::new();
        for curve in curves {
            for (point, p) in curve.capped.iter().zip(curve.predicted(&predictor, true)?) {
                let m = curve.measured(point);
                errors.extend([percent(p.time, m.time), percent(p.energy, m.energy)]);
            }
            let power = predictor.predict(&curve.network, curve.mode)?.power;
            let measured = curve.default.energy / curve.default.time;
            // As heavy as the curve, so that `draw` is what most networks need, not what bends one of them.
            errors.extend(vec![percent(power.value.get(), measured.get()); 2 * curve.capped.len()]);
        }
        Ok(super::mean_absolute(&errors))
    };
    let mut found = Vec::new();
    for start in STARTS {
        found.push(descend(start, &error)?);
    }
    let best = found.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(STARTS[0], |(values, _)| values);
    Ok(Board::from(best))
}

/// A pattern search from a start: values and the least error.
fn descend(
    start: [f64; 3],
    error: &impl Fn([f64; 3]) -> Result<f64, PredictError>,
) -> Result<([f64; 3], f64), PredictError> {
    let (mut best, mut steps, mut least) = (start, STEPS, error(start)?);
    for _ in 0..=HALVINGS {
        let mut moved = true;
        while moved {
            moved = false;
            for i in 0..best.len() {
                for sign in [1.0, -1.0] {
                    let mut trial = best;
                    trial[i] = (trial[i] + sign * steps[i]).clamp(LEAST[i], MOST[i]);
                    let found = if trial == best { f64::INFINITY } else { error(trial)? };
                    if found < least - 1e-6 {
                        (best, least, moved) = (trial, found, true);
                        break;
                    }
                }
            }
        }
        steps.iter_mut().for_each(|s| *s /= 2.0);
    }
    Ok((best, least))
}
