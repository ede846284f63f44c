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

/// What a board is taken to be where its runs do not tell. Limits are told from runs along a ridge: a voltage that rises more
/// and a board that draws more do the same to them, so that the very least error lies anywhere on it. The rise is the middle of
/// what was read of two A100s' voltages (0.22, 0.27) and fitted to savings over the clock (0.15 to 0.29) and to Hopper's
/// power (0.35); boards keep a little below their limit; heavy kernels draw nearly all of it.
const PRIOR: [f64; 3] = [0.25, 0.94, 0.9];
/// Errors that are larger by no more than this share are not told apart, as nowhere here (`joulecast_ask::optimum`).
const TIED: f64 = 0.02;

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
/// the default power; of constants whose error is as good as the least (2 %), those nearest to what boards usually are. Pattern
/// searches with shrinking steps.
///
/// # Errors
/// When a curve cannot be predicted.
pub fn fit(curves: &[&Curve], predictor: &Predictor) -> Result<Board, PredictError> {
    let error = |values| error_of(values, curves, predictor);
    let mut found = Vec::new();
    for start in STARTS {
        found.push(descend(start, &error)?);
    }
    let (best, least) = found.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((PRIOR, f64::INFINITY));
    Ok(Board::from(nearest(best, least * (1.0 + TIED), &error)?))
}

/// The mean error over curves with a board's constants, percent.
fn error_of(values: [f64; 3], curves: &[&Curve], predictor: &Predictor) -> Result<f64, PredictError> {
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
}

/// How far constants lie from the prior, in first steps: squared.
fn distance(values: [f64; 3]) -> f64 {
    (0..3).map(|i| ((values[i] - PRIOR[i]) / STEPS[i]).powi(2)).sum()
}

/// From constants on, those nearest to the prior with at most an error: by ever smaller steps to any of the 26 neighbours, since
/// a ridge may lie across all three.
fn nearest(
    from: [f64; 3],
    most: f64,
    error: &impl Fn([f64; 3]) -> Result<f64, PredictError>,
) -> Result<[f64; 3], PredictError> {
    if error(PRIOR)? <= most {
        return Ok(PRIOR);
    }
    let (mut best, mut steps) = (from, STEPS);
    for _ in 0..=HALVINGS {
        loop {
            let moved = |n: u32| -> [f64; 3] {
                let by = |i: usize| f64::from(n / 3u32.pow(i as u32) % 3) - 1.0;
                std::array::from_fn(|i| (best[i] + by(i) * steps[i]).clamp(LEAST[i], MOST[i]))
            };
            let mut nearer: Vec<[f64; 3]> =
                (0..27).map(moved).filter(|v| distance(*v) < distance(best) - 1e-9).collect();
            nearer.sort_by(|a, b| distance(*a).total_cmp(&distance(*b)));
            let mut next = None;
            for values in nearer {
                if error(values)? <= most {
                    next = Some(values);
                    break;
                }
            }
            match next {
                Some(values) => best = values,
                None => break,
            }
        }
        steps.iter_mut().for_each(|s| *s /= 2.0);
    }
    Ok(best)
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

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::precision::Precision;
    use joulecast_model::catalog;

    /// The least error by the searches alone, and by the tie-break after them.
    fn both(error: impl Fn([f64; 3]) -> f64) -> ([f64; 3], [f64; 3], f64) {
        let error = |values| Ok(error(values));
        let found = STARTS.map(|start| descend(start, &error).expect("no prediction"));
        let (least, at) = found.iter().fold((f64::INFINITY, STARTS[0]), |a, b| if b.1 < a.0 { (b.1, b.0) } else { a });
        (at, nearest(at, least * (1.0 + TIED), &error).expect("no prediction"), least)
    }

    /// Errors that are the same along a line across all three constants: of the line the point nearest to the prior is taken,
    /// wherever the searches end.
    #[test]
    fn of_a_ridge_the_point_nearest_to_the_prior_is_taken() {
        let along = [0.6, -0.09, 0.35];
        for through in [[0.45, 0.91, 1.05], [0.30, 0.9325, 0.9625], [0.65, 0.88, 1.1667]] {
            // How far a point lies from the line, in first steps.
            let off = |v: [f64; 3]| {
                let [u, d]: [[f64; 3]; 2] = [
                    std::array::from_fn(|i| along[i] / STEPS[i]),
                    std::array::from_fn(|i| (v[i] - through[i]) / STEPS[i]),
                ];
                let dot = |a: &[f64; 3], b: &[f64; 3]| (0..3).map(|i| a[i] * b[i]).sum::<f64>();
                (dot(&d, &d) - dot(&d, &u).powi(2) / dot(&u, &u)).max(0.0).sqrt()
            };
            let error = |v: [f64; 3]| 5.0 + 2.0 * off(v);
            let (searched, taken, least) = both(error);
            assert!(error(taken) <= least * (1.0 + TIED) + 1e-9, "{taken:?}");
            let foot = off(PRIOR).powi(2);
            assert!(distance(taken) <= distance(searched) + 1e-9);
            assert!(distance(taken) <= foot * 1.15 + 0.05, "{taken:?} {} of {foot}", distance(taken));
        }
    }

    /// Where runs tell the constants, they are taken however far they lie from the prior.
    #[test]
    fn what_runs_tell_is_not_overruled() {
        let truth = [0.6, 0.86, 1.2];
        let error = |v: [f64; 3]| 0.5 + (0..3).map(|i| 20.0 * ((v[i] - truth[i]) / STEPS[i]).abs()).sum::<f64>();
        let (_, taken, _) = both(error);
        assert!((0..3).all(|i| (taken[i] - truth[i]).abs() < 0.05 * STEPS[i]), "{taken:?}");
    }

    /// Runs that a board with the prior's constants would give, each a little off: the fit gives the prior back, and by runs of
    /// another board nothing that explains them no better and is farther from the prior than that board.
    #[test]
    fn runs_under_limits_give_the_prior_where_they_do_not_tell() {
        let (gpu, framework) = (catalog::gpu("v100").expect("known"), catalog::framework("cudnn").expect("known"));
        let predictor = Predictor::shipped(gpu.clone(), framework);
        let curve = |board: [f64; 3], name: &str| {
            let network = catalog::network(name).expect("known");
            let network = ShapedNetwork::new(&network, 64, Precision::Fp32, &[]).expect("fits");
            let on = predictor.clone().described(Board::from(board).on(&gpu));
            let step = on.step(&network, Mode::Training).expect("runs");
            let point = |cap: f64, off: f64| {
                let p = capped(&step, Watts::new(cap)).expect("a limit that it takes");
                Point { cap: Watts::new(cap), time: p.time.value * (1.0 + off), energy: p.energy.value * (1.0 - off) }
            };
            // Above and below at every limit, so that no other constants come nearer to both.
            let capped = (0..12)
                .map(|i| point(160.0 + 20.0 * f64::from(i / 2), if i % 2 == 0 { 0.04 } else { -0.04 }))
                .collect();
            let default = point(300.0, 0.0);
            Curve { name: name.to_string(), network, mode: Mode::Training, default, capped }
        };
        let curves = |board| ["alexnet"].map(|name| curve(board, name));
        let fitted = |board| {
            let curves = curves(board);
            let found = fit(&curves.iter().collect::<Vec<_>>(), &predictor).expect("runs");
            [found.rise, found.held, found.draw]
        };
        assert_eq!(fitted(PRIOR), PRIOR);
        let other = [0.45, 0.90, 0.95];
        let found = fitted(other);
        // Nothing that explains the runs as well is nearer to the prior.
        let curves = curves(other);
        let error = |values| error_of(values, &curves.iter().collect::<Vec<_>>(), &predictor).expect("runs");
        let as_well = error(other) <= error(found);
        assert!(!as_well || distance(found) <= distance(other) + 1e-9, "{found:?} is farther than {other:?}");
        assert!(distance(found) < distance(STARTS[0]) && error(found) < error(STARTS[0]), "{found:?}");
    }
}
