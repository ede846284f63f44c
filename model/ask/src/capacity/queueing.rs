//! Waiting for a GPU.
//!
//! Requests arrive as a Poisson stream and gather into batches of a fixed size; a batch is served by one of c GPUs in its
//! predicted time, always the same. Batches therefore arrive as an Erlang-b renewal stream: an E_b/D/c queue, which with
//! batches of one is M/D/c.
//!
//! * Erlang's B and C formulas (Erlang 1917), by the recursion `B(c) = a B(c-1) / (c + a B(c-1))`.
//! * M/D/c: Cosmetatos's approximation (Operational Research Quarterly 26, 1975) of the mean wait,
//!   `W = 1/2 (1 + (1-r)(c-1)(sqrt(4+5c)-2) / (16 r c)) W(M/M/c)`, r = a / c; exact for one server, and held below its light-traffic
//!   limit `c / (c+1)` (Kimura, Journal of the Operational Research Society 42, 1991), which it would exceed there.
//! * E_b/D/c: that over b, since the squared coefficient of variation of arrivals is 1/b (Allen and Cunneen; Allen,
//!   Probability, Statistics and Queueing Theory, 1990). Erlang arrivals wait rather less than that.
//! * Quantiles: a wait that is not zero is taken as exponential with the mean that fits, its probability as Erlang's C.

use joulecast_model::base::units::Seconds;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Erlang's B: the share of arrivals that find all `servers` busy and leave. `erlangs`: arrival rate times service time.
pub fn erlang_b(servers: u64, erlangs: f64) -> f64 {
    (1..=servers).fold(1.0, |blocked, c| erlangs * blocked / (c as f64 + erlangs * blocked))
}

/// Erlang's C: the share of arrivals that wait in M/M/c; 1 where the queue grows without end.
pub fn erlang_c(servers: u64, erlangs: f64) -> f64 {
    let utilisation = erlangs / servers as f64;
    if utilisation >= 1.0 {
        return 1.0;
    }
    let blocked = erlang_b(servers, erlangs);
    blocked / (1.0 - utilisation * (1.0 - blocked))
}

/// A wait for a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// Share of arrivals that wait at all.
    pub probability: f64,
    /// Mean over all arrivals.
    pub mean: Seconds,
}

/// The wait of batches of so many for one of `servers` that take `service` for each; `erlangs`: batches per second times that.
/// `None` where the queue grows without end.
pub fn wait(servers: u64, erlangs: f64, service: Seconds, batch: u64) -> Option<Wait> {
    let c = servers as f64;
    let utilisation = erlangs / c;
    if utilisation >= 1.0 {
        return None;
    }
    if erlangs <= 0.0 {
        return Some(Wait { probability: 0.0, mean: Seconds::ZERO });
    }
    let probability = erlang_c(servers, erlangs);
    let exponential = service * (probability / (c - erlangs));
    let correction = (1.0 - utilisation) * (c - 1.0) * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * utilisation * c);
    let deterministic = (0.5 * (1.0 + correction)).min(c / (c + 1.0));
    Some(Wait { probability, mean: exponential * (deterministic / batch as f64) })
}

impl Wait {
    /// The wait that a share `quantile` of arrivals does not exceed.
    pub fn quantile(&self, quantile: f64) -> Seconds {
        if self.probability <= 1.0 - quantile {
            return Seconds::ZERO;
        }
        self.mean * ((self.probability / (1.0 - quantile)).ln() / self.probability)
    }
}

/// Steps of halving for the quantile of gathering.
const HALVINGS: usize = 50;

/// How long requests wait for their batch to be full, at a quantile, in mean times between arrivals.
///
/// The j-th of a batch waits for b - j more: `P(F > x) = sum over k < b-1 of (b-1-k)/b Poisson(k; x)`.
pub fn gathering(batch: u64, quantile: f64) -> f64 {
    if batch <= 1 {
        return 0.0;
    }
    let b = batch as f64;
    let longer = |arrivals: f64| -> f64 {
        let (mut log, mut sum) = (-arrivals, 0.0);
        for k in 0..batch - 1 {
            sum += (b - 1.0 - k as f64) / b * log.exp();
            log += (arrivals / (k as f64 + 1.0)).ln();
        }
        sum
    };
    let (mut low, mut high) = (0.0, 4.0 * b + 40.0);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if longer(middle) > 1.0 - quantile { low = middle } else { high = middle }
    }
    high
}

/// [`gathering`], worked out once for every batch and quantile: plans ask for the same few over and over.
pub(super) fn known_gathering(batch: u64, quantile: f64) -> f64 {
    static KNOWN: Mutex<BTreeMap<(u64, u64), f64>> = Mutex::new(BTreeMap::new());
    // A thread that panicked left whole entries.
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (batch, quantile.to_bits());
    let found = known().get(&key).copied();
    found.unwrap_or_else(|| {
        let worked_out = gathering(batch, quantile);
        known().insert(key, worked_out);
        worked_out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, within: f64) {
        assert!((a / b - 1.0).abs() < within, "{a} is not {b}");
    }

    #[test]
    fn erlangs_formulas_have_their_values() {
        // By hand from the sums: a^c/c! over sum of a^k/k!; C = B / (1 - r (1 - B)).
        near(erlang_b(2, 1.0), 0.5 / 2.5, 1e-12);
        near(erlang_c(2, 1.0), 1.0 / 3.0, 1e-12);
        near(erlang_c(3, 2.0), 4.0 / 9.0, 1e-12);
        near(erlang_c(1, 0.7), 0.7, 1e-12);
        assert_eq!(erlang_c(4, 4.0), 1.0);
    }

    #[test]
    fn erlangs_b_agrees_with_published_tables() {
        // erlang.com, calculator manual: 15 lines lose 1 % of 8.108 erlangs.
        near(erlang_b(15, 8.108), 0.01, 1e-3);
        // Carrier Grade Voice over IP, 2nd edition, appendix A, in tenths of an erlang: 10 channels lose 0.1 % of 3.1, 9 lose
        // 5 % of 5.4, 8 lose 1 % of 3.1.
        for (channels, blocking, erlangs) in [(10, 0.001, 3.1), (9, 0.05, 5.4), (8, 0.01, 3.1)] {
            let at = |shift: f64| erlang_b(channels, erlangs + shift);
            assert!(at(-0.05) < blocking && blocking < at(0.05), "{channels} channels");
        }
    }

    /// The mean wait of M/D/c exactly (Crommelin 1932): after a service time all that were served have left, and a Poisson
    /// number has come.
    fn exactly(servers: usize, erlangs: f64) -> f64 {
        let states = 20 * servers + 80;
        let mut poisson = vec![(-erlangs).exp()];
        (1..states).for_each(|k| poisson.push(poisson[k - 1] * erlangs / k as f64));
        let mut p = vec![0.0; states];
        p[0] = 1.0;
        for _ in 0..600 {
            let mut next = vec![0.0; states];
            for (n, share) in p.iter().enumerate().filter(|(_, share)| **share > 1e-18) {
                let left = n.saturating_sub(servers);
                next[left..].iter_mut().zip(&poisson).for_each(|(to, arrive)| *to += share * arrive);
            }
            let sum: f64 = next.iter().sum();
            p = next.into_iter().map(|v| v / sum).collect();
        }
        p.iter().enumerate().map(|(n, share)| share * n.saturating_sub(servers) as f64).sum::<f64>() / erlangs
    }

    #[test]
    fn waits_are_those_of_the_exact_solution() {
        for (servers, erlangs) in [(2, 1.0), (2, 1.8), (5, 4.0), (10, 9.0)] {
            let mean = wait(servers as u64, erlangs, Seconds::new(1.0), 1).expect("stable").mean.get();
            near(mean, exactly(servers, erlangs), 0.02);
        }
    }

    #[test]
    fn a_single_server_waits_as_pollaczek_and_khinchine_say() {
        // M/D/1: W = r t / (2 (1 - r)).
        for r in [0.2, 0.5, 0.9] {
            let wait = wait(1, r, Seconds::new(2.0), 1).expect("stable");
            near(wait.mean.get(), r * 2.0 / (2.0 * (1.0 - r)), 1e-12);
        }
        assert_eq!(wait(3, 3.0, Seconds::new(1.0), 1), None);
    }

    #[test]
    fn light_traffic_has_its_limit() {
        // Whoever finds all c busy waits the least of c uniform rests, t / (c+1); with exponential service t / c.
        let exponential = |c: u64, a: f64| erlang_c(c, a) / (c as f64 - a);
        for c in [2, 5, 50] {
            let a = 0.01 * c as f64;
            let ratio = wait(c, a, Seconds::new(1.0), 1).expect("stable").mean.get() / exponential(c, a);
            near(ratio, c as f64 / (c as f64 + 1.0), 1e-9);
        }
    }

    /// Mean and a quantile of the latency of requests beyond service, simulated: requests at random, batches in order.
    fn simulated(batch: u64, servers: usize, erlangs: f64, quantile: f64) -> (f64, f64) {
        let mut state = 88172645463325252u64;
        let mut uniform = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let rate = erlangs * batch as f64;
        let (mut free, mut now, mut waits) = (vec![0.0f64; servers], 0.0, Vec::new());
        for _ in 0..400_000 / batch {
            let mut arrived = Vec::new();
            for _ in 0..batch {
                now += -uniform().ln() / rate;
                arrived.push(now);
            }
            let first = (0..servers).min_by(|a, b| free[*a].total_cmp(&free[*b])).expect("a server");
            let start = now.max(free[first]);
            free[first] = start + 1.0;
            waits.extend(arrived.into_iter().map(|at| start - at));
        }
        waits.sort_by(f64::total_cmp);
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        (mean, waits[(waits.len() as f64 * quantile) as usize])
    }

    #[test]
    fn waits_are_those_of_a_simulation() {
        // Service takes 1 s; batches of one are M/D/c.
        for (servers, erlangs) in [(2, 1.6), (8, 7.2), (20, 18.0)] {
            let (mean, tail) = simulated(1, servers, erlangs, 0.99);
            let wait = wait(servers as u64, erlangs, Seconds::new(1.0), 1).expect("stable");
            near(wait.mean.get(), mean, 0.06);
            near(wait.quantile(0.99).get(), tail, 0.25);
        }
    }

    #[test]
    fn the_quantile_of_batches_is_not_promised_too_short() {
        for (batch, servers, erlangs) in [(4, 2, 1.6), (16, 4, 3.4), (32, 10, 9.0), (8, 3, 0.6)] {
            for quantile in [0.95, 0.99] {
                let (_, tail) = simulated(batch, servers, erlangs, quantile);
                let rate = erlangs * batch as f64;
                let wait = wait(servers as u64, erlangs, Seconds::new(1.0), batch).expect("stable");
                let planned = gathering(batch, quantile) / rate + wait.quantile(quantile).get();
                assert!(planned > 0.97 * tail, "{batch} {servers} {quantile}: {planned} promised, {tail} simulated");
                // The service of 1 s comes on top of either.
                assert!(planned + 1.0 < 1.5 * (tail + 1.0), "{batch} {servers} {quantile}: {planned} against {tail}");
            }
        }
    }

    #[test]
    fn gathering_two_is_half_an_exponential() {
        // Half of the requests complete a pair, the others wait for one arrival: P(F > x) = exp(-x) / 2.
        near(gathering(2, 0.95), 10f64.ln(), 1e-6);
        assert_eq!(gathering(1, 0.95), 0.0);
        for (batch, quantile) in [(7, 0.9), (8, 0.9), (7, 0.95), (7, 0.9)] {
            assert_eq!(known_gathering(batch, quantile), gathering(batch, quantile));
        }
        // A large batch fills evenly: a request is at a random place of it.
        near(gathering(500, 0.5), 0.5 * 499.0, 0.02);
    }
}
