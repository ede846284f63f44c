//! A pool of GPUs that serves one network.

use super::queueing::{known_gathering, wait};
use joulecast_model::base::units::{Joules, Seconds, Watts};
use joulecast_model::step::predictor::Estimate;
use std::fmt;

/// A step at a batch, as it was predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Samples per step.
    pub batch: u64,
    /// Time of a step.
    pub time: Estimate<Seconds>,
    /// Energy of a step.
    pub energy: Estimate<Joules>,
}

/// What requests may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Share of the requests, such as 0.95.
    pub quantile: f64,
    /// From a request's arrival to its result.
    pub latency: Seconds,
}

/// What keeps a pool from being smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The GPUs are busy.
    Throughput,
    /// A longer latency would allow fewer GPUs.
    Latency,
    /// Larger batches would allow fewer GPUs, but do not fit in memory.
    Memory,
    /// There is no less than one GPU.
    OneGpu,
    /// Nor than one replica of a language model, however many GPUs share it.
    OneReplica,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Latency, Self::Throughput, Self::Memory, Self::OneGpu, Self::OneReplica];
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Memory => "memory",
            Self::OneGpu => "one GPU",
            Self::OneReplica => "one replica",
        })
    }
}

/// GPUs that serve a network at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// Samples per step.
    pub batch: u64,
    /// GPUs.
    pub gpus: u64,
    /// Share of the time in which they are busy.
    pub utilisation: f64,
    /// Latency at the target's quantile.
    pub latency: Seconds,
    /// Mean power of all its boards.
    pub power: Watts,
}

/// A step with how long its batch takes to gather, which does not depend on the rate but for its scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    service: Service,
    /// At the target's quantile, in mean times between arrivals.
    arrivals: f64,
}

/// Steps with their gathering.
pub(super) fn gathered(services: &[Service], quantile: f64) -> Vec<Gathered> {
    services.iter().map(|s| Gathered { service: *s, arrivals: known_gathering(s.batch, quantile) }).collect()
}

/// Latency at a quantile: quantiles of gathering and waiting added up, which promises rather too much than too little,
/// and the service. `None` where the queue grows without end.
fn latency(gathered: &Gathered, rate: f64, gpus: u64, quantile: f64) -> Option<Seconds> {
    let Gathered { service, arrivals } = gathered;
    let time = service.time.value;
    let erlangs = rate / service.batch as f64 * time.get();
    let waiting = wait(gpus, erlangs, time, service.batch)?.quantile(quantile);
    Some(Seconds::new(arrivals / rate) + waiting + time)
}

impl Pool {
    /// So many GPUs at a rate of requests per second; `waiting`: power of a board that waits. `None` where they cannot keep
    /// up.
    pub(super) fn at(gathered: &Gathered, rate: f64, gpus: u64, quantile: f64, waiting: Watts) -> Option<Self> {
        let (power, utilisation) = Self::drawing(gathered, rate, gpus, waiting);
        let latency = latency(gathered, rate, gpus, quantile)?;
        Some(Self { batch: gathered.service.batch, gpus, utilisation, latency, power })
    }

    /// What so many draw if they keep up, and the share of the time in which they are busy.
    pub(super) fn drawing(gathered: &Gathered, rate: f64, gpus: u64, waiting: Watts) -> (Watts, f64) {
        let service = &gathered.service;
        let steps = rate / service.batch as f64;
        let utilisation = steps * service.time.value.get() / gpus as f64;
        let power = Watts::new(steps * service.energy.value.get()) + waiting * (gpus as f64 * (1.0 - utilisation));
        (power, utilisation)
    }
}

/// What is left over by less than this share is nothing.
pub(super) const ROUNDING: f64 = 1e-12;

/// The fewest GPUs with which a service keeps a target at a rate, busy for no more than a share of the time.
fn fewest(gathered: &Gathered, rate: f64, target: &Target, busiest: f64) -> Option<u64> {
    let Gathered { service, arrivals } = gathered;
    let erlangs = rate / service.batch as f64 * service.time.value.get();
    let least = (erlangs / busiest * (1.0 - ROUNDING)).ceil() as u64;
    let in_time = |gpus| latency(gathered, rate, gpus, target.quantile).is_some_and(|l| l <= target.latency);
    let keeps = |gpus| gpus >= least && in_time(gpus);
    let mut low = (erlangs.floor() as u64).max(least.saturating_sub(1));
    let mut high = low + 1;
    // Waiting vanishes with enough GPUs: what is left is gathering and service.
    let floor = Seconds::new(arrivals / rate) + service.time.value;
    if floor > target.latency {
        return None;
    }
    while !keeps(high) {
        low = high;
        high += 1 + high / 8;
        if high > (1 << 32) {
            return None;
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if keeps(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// The smallest pool for a rate, of all services (batches, rising); among equally small ones the thriftiest, and what keeps it
/// from being smaller. `None` where no service keeps the target. `more_fit`: whether larger batches fit in memory.
pub fn size_pool(
    services: &[Service],
    rate: f64,
    target: &Target,
    waiting: Watts,
    more_fit: bool,
) -> Option<(Pool, Limit)> {
    size(&gathered(services, target.quantile), rate, target, 1.0, waiting, more_fit)
}

pub(super) fn size(
    services: &[Gathered],
    rate: f64,
    target: &Target,
    busiest: f64,
    waiting: Watts,
    more_fit: bool,
) -> Option<(Pool, Limit)> {
    let best = |target: &Target| -> Option<Pool> {
        let sized = services.iter().filter_map(|s| {
            let gpus = fewest(s, rate, target, busiest)?;
            Pool::at(s, rate, gpus, target.quantile, waiting)
        });
        sized.min_by(|a, b| a.gpus.cmp(&b.gpus).then(a.power.get().total_cmp(&b.power.get())))
    };
    let pool = best(target)?;
    let relaxed = best(&Target { latency: target.latency * 1.25, ..*target });
    let largest = services.last().is_some_and(|s| s.service.batch == pool.batch);
    let erlangs = services.iter().map(|s| rate / s.service.batch as f64 * s.service.time.value.get());
    let busy = erlangs.fold(f64::INFINITY, f64::min) / busiest;
    let idle = pool.gpus as f64 > 1.1 * busy.ceil();
    let limit = if pool.gpus == 1 {
        Limit::OneGpu
    } else if idle || relaxed.is_some_and(|p| p.gpus < pool.gpus) {
        Limit::Latency
    } else if largest && !more_fit {
        Limit::Memory
    } else {
        Limit::Throughput
    };
    Some((pool, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exactly<T: Copy>(value: T) -> Estimate<T> {
        Estimate { value, p05: value, p95: value }
    }

    fn service(batch: u64, ms: f64, joules: f64) -> Service {
        Service { batch, time: exactly(Seconds::from_ms(ms)), energy: exactly(Joules::new(joules)) }
    }

    const IDLE: Watts = Watts::new(40.0);

    #[test]
    fn a_pool_by_hand() {
        // 90 requests a second of 20 ms each are 1.8 erlangs: two GPUs would wait long, three wait with
        // probability C(3, 1.8) = 0.35474; P(W > x) falls with 0.3547 / W, W = 0.3547 * 20 / 1.2 * 0.5 (1 + 0.4 * 2 * 2.3589 / (16 * 0.6 * 3)).
        let target = Target { quantile: 0.95, latency: Seconds::from_ms(60.0) };
        let (pool, limit) = size_pool(&[service(1, 20.0, 4.0)], 90.0, &target, IDLE, true).expect("a pool");
        assert_eq!((pool.gpus, pool.batch, limit), (3, 1, Limit::Latency));
        assert!((pool.utilisation - 0.6).abs() < 1e-12);
        assert!((pool.power.get() - (90.0 * 4.0 + 3.0 * 0.4 * 40.0)).abs() < 1e-9);
        let mean: f64 = 0.354_744_5 * 20.0 / 1.2 * 0.5 * (1.0 + 0.4 * 2.0 * 2.358_898_9 / (16.0 * 0.6 * 3.0));
        let expected = 20.0 + mean / 0.354_744_5 * (0.354_744_5f64 / 0.05).ln();
        assert!((pool.latency.to_ms() - expected).abs() < 1e-3, "{} {expected}", pool.latency.to_ms());
    }

    #[test]
    fn batches_save_gpus_until_latency_or_memory_forbids() {
        let services = [service(1, 10.0, 2.0), service(8, 30.0, 6.0), service(64, 200.0, 40.0)];
        let at = |ms: f64, more_fit| {
            let target = Target { quantile: 0.99, latency: Seconds::from_ms(ms) };
            size_pool(&services, 1000.0, &target, IDLE, more_fit).map(|(p, l)| (p.batch, p.gpus, l))
        };
        assert_eq!(at(9.0, true), None);
        let (small, many, _) = at(20.0, true).expect("a pool");
        let (middle, some, _) = at(70.0, true).expect("a pool");
        let (large, few, limit) = at(1000.0, false).expect("a pool");
        assert_eq!((small, middle, large), (1, 8, 64));
        assert!(many > some && some > few, "{many} {some} {few}");
        assert_eq!(limit, Limit::Memory);
        assert_eq!(at(1000.0, true).expect("a pool").2, Limit::Throughput);
    }

    /// 100 erlangs: all GPUs are needed but for a few that keep waits short, which a longer latency would spare.
    #[test]
    fn latency_binds_where_more_of_it_would_spare_gpus() {
        let target = Target { quantile: 0.95, latency: Seconds::from_ms(26.0) };
        let at = |target: &Target| size_pool(&[service(1, 20.0, 4.0)], 5000.0, target, IDLE, true).expect("a pool");
        let ((pool, limit), (relaxed, _)) = (at(&target), at(&Target { latency: target.latency * 1.25, ..target }));
        assert!(relaxed.gpus < pool.gpus && pool.gpus < 110, "{} {}", relaxed.gpus, pool.gpus);
        assert_eq!(limit, Limit::Latency);
    }

    #[test]
    fn one_gpu_is_the_least() {
        let services = [service(1, 10.0, 2.0), service(8, 30.0, 6.0)];
        let target = Target { quantile: 0.99, latency: Seconds::new(1.0) };
        let at = |rate, more_fit| size_pool(&services, rate, &target, IDLE, more_fit).map(|(p, l)| (p.gpus, l));
        assert_eq!(at(5.0, true), Some((1, Limit::OneGpu)));
        assert_eq!(at(5.0, false), Some((1, Limit::OneGpu)));
        assert_eq!(at(1000.0, true).map(|(gpus, l)| (gpus > 1, l)), Some((true, Limit::Throughput)));
    }

    #[test]
    fn fewer_gpus_would_not_keep_the_target() {
        let s = gathered(&[service(8, 30.0, 6.0)], 0.95)[0];
        for rate in [10.0, 300.0, 5000.0, 100_000.0] {
            let target = Target { quantile: 0.95, latency: Seconds::new(2.0) };
            let gpus = fewest(&s, rate, &target, 1.0).expect("enough");
            let keeps = |c| latency(&s, rate, c, 0.95).is_some_and(|l| l <= target.latency);
            assert!(keeps(gpus) && (gpus == 1 || !keeps(gpus - 1)), "{rate}: {gpus}");
        }
    }
}
