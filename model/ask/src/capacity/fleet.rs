//! Pools put together: servers, racks, facility power, energy, cost and carbon.
//!
//! Carbon follows the Software Carbon Intensity specification (ISO/IEC 21031:2024): `SCI = (E I + M) / R`, E the facility's
//! energy, I the location-based intensity of the grid, M the embodied emissions of the hardware spread over its years, R a
//! million inferences. The power usage effectiveness (PUE, ISO/IEC 30134-2) multiplies IT power once.

use super::pool::{Gathered, Limit, Pool, ROUNDING, Service, Target, gathered, size};
use super::replicas::{self, Carriers, ReplicaPool, Requests};
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use joulecast_model::step::predictor::Estimate;
use std::fmt;

/// Hours of a year of 365 days.
pub const HOURS_PER_YEAR: f64 = 8760.0;
const SECONDS_PER_YEAR: f64 = HOURS_PER_YEAR * 3600.0;
const JOULES_PER_KWH: f64 = 3.6e6;
/// Beyond twice as many GPUs as the peak needs and so many more, quiet times are not waited for.
const MORE_GPUS: u64 = 8;

/// Which end of the predictions' intervals is taken: a step's time and energy at that quantile together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// 5 % quantiles.
    Low,
    /// The values.
    Value,
    /// 95 % quantiles.
    High,
}

/// What a GPU of a fleet costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Price {
    /// To buy, in the plan's currency; energy is paid besides.
    Buy(f64),
    /// To rent, per hour of every GPU, energy included.
    PerHour(f64),
}

impl Price {
    /// What so many GPUs with so many servers cost in a year, and what a kilowatt-hour costs besides: rented GPUs include their
    /// energy.
    pub(super) fn of_year(self, gpus: f64, servers: f64, server: &Server, site: &Site) -> (f64, f64) {
        match self {
            Self::Buy(price) => {
                let bought = price * gpus + server.price * servers;
                (bought / site.amortisation_years, site.price_per_kwh)
            }
            Self::PerHour(price) => (price * gpus * HOURS_PER_YEAR, 0.0),
        }
    }
}

/// The machine that GPUs stand in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Server {
    /// GPUs in it.
    pub gpus: u64,
    /// What it draws besides its GPUs.
    pub overhead: Watts,
    /// Its price without GPUs; for rented GPUs part of theirs.
    pub price: f64,
    /// Embodied emissions without GPUs, kg of CO2 equivalent, where known.
    pub embodied_kg: Option<f64>,
}

/// A candidate board at a power limit or clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// What it is limited to.
    pub cap: Watts,
    /// The clock it is locked to; `None`: as high as the limit allows.
    pub clock: Option<Hertz>,
    /// Power of a board that waits with a context.
    pub waiting: Watts,
    /// What it costs.
    pub price: Price,
    /// Embodied emissions, kg of CO2 equivalent, where known.
    pub embodied_kg: Option<f64>,
    /// Steps of every network of the plan, at rising batches.
    pub services: Vec<Vec<Service>>,
    /// Whether larger batches than those would fit in memory, for every network.
    pub more_fit: Vec<bool>,
    /// Replicas of every language model of the plan.
    pub languages: Vec<Carriers>,
}

/// Where the fleet stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Site {
    /// Power of a rack, where limited.
    pub rack: Option<Watts>,
    /// Power of the facility, where limited.
    pub site: Option<Watts>,
    /// Facility power over IT power.
    pub pue: f64,
    /// Price of a kWh.
    pub price_per_kwh: f64,
    /// Grams of CO2 equivalent per kWh, location-based.
    pub carbon_g_per_kwh: f64,
    /// Years over which what is bought is written off.
    pub amortisation_years: f64,
}

/// What is planned for.
#[derive(Clone, Debug, PartialEq)]
pub struct Assumptions {
    /// Requests per second at the worst moment, over all networks.
    pub peak_per_s: f64,
    /// Requests per second through the day, in equal parts of it.
    pub profile_per_s: Vec<f64>,
    /// What they may take; `None` of no network.
    pub target: Option<Target>,
    /// Share of the requests of every network; adds up to one.
    pub shares: Vec<f64>,
    /// Requests to every language model; their days have as many parts.
    pub languages: Vec<Requests>,
    /// The machine.
    pub server: Server,
    /// Where it stands.
    pub site: Site,
    /// What is left free.
    pub headroom: Headroom,
}

/// What of a fleet is left free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headroom {
    /// Share of the time that pools are busy at most at the peak; of a language model's replicas the share of the highest rate
    /// that keeps its target.
    pub busiest: f64,
    /// Spare boards, as a share of those in pools, rounded up. They wait, switched on, in servers like the others.
    pub spares: f64,
}

impl Headroom {
    /// None: what comes is as foreseen, and nothing fails.
    pub const NONE: Self = Self { busiest: 1.0, spares: 0.0 };

    /// Boards beside those of pools.
    fn boards(&self, gpus: u64) -> u64 {
        (gpus as f64 * self.spares * (1.0 - ROUNDING)).ceil() as u64
    }
}

impl Assumptions {
    /// Requests per second in a part of the day, over all networks and language models.
    fn rate_of_part(&self, part: usize) -> f64 {
        let languages = self.languages.iter().filter_map(|of| of.profile_per_s.get(part));
        self.profile_per_s.get(part).into_iter().chain(languages).sum()
    }
}

/// A fleet in a part of the day.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Requests per second, over all networks and language models.
    pub rate_per_s: f64,
    /// Batch of every pool; `None` where nothing comes.
    pub batches: Vec<Option<u64>>,
    /// GPUs that are busy, on average.
    pub busy: f64,
    /// The facility.
    pub facility: Watts,
    /// Hardware, rent and energy, per hour.
    pub cost_per_h: f64,
    /// Operational and embodied carbon, grams of CO2 equivalent per hour.
    pub carbon_g_per_h: f64,
}

/// Why there is no fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// A network does not fit in a board's memory, not even at the smallest batch.
    Memory,
    /// No number of GPUs keeps the latency target.
    Latency,
    /// A rack's power does not carry one server.
    Rack,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Latency => "latency",
            Self::Rack => "rack power",
        })
    }
}

/// A fleet that carries the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// A pool per network at peak, and what keeps it from being smaller.
    pub pools: Vec<(Pool, Limit)>,
    /// Replicas of every language model.
    pub languages: Vec<ReplicaPool>,
    /// GPUs of all pools, and spares.
    pub gpus: u64,
    /// Of which spares.
    pub spares: u64,
    /// Servers.
    pub servers: u64,
    /// Racks; `None` without a limit per rack.
    pub racks: Option<u64>,
    /// Boards and servers at peak load.
    pub it_peak: Watts,
    /// The facility at peak load.
    pub facility_peak: Watts,
    /// The facility on average.
    pub facility_mean: Watts,
    /// The facility over a year.
    pub energy_per_year: Joules,
    /// Hardware, rent and energy of a year.
    pub cost_per_year: f64,
    /// Of which energy.
    pub energy_cost_per_year: f64,
    /// E I, grams of CO2 equivalent a year.
    pub operational_g_per_year: f64,
    /// M, grams a year; `None` where not even the boards' is known.
    pub embodied_g_per_year: Option<f64>,
    /// Requests of a year.
    pub requests_per_year: f64,
    /// The parts of the day, in their order.
    pub day: Vec<Part>,
}

impl Fleet {
    /// The facility's energy of one request.
    pub fn energy_per_request(&self) -> Joules {
        self.energy_per_year / self.requests_per_year
    }
    /// Cost of a million requests.
    pub fn cost_per_million(&self) -> f64 {
        self.cost_per_year / self.requests_per_year * 1e6
    }
    /// `E I + M`, grams of CO2 equivalent a year.
    pub fn carbon_g_per_year(&self) -> f64 {
        self.operational_g_per_year + self.embodied_g_per_year.unwrap_or(0.0)
    }
    /// SCI with a million requests as functional unit, grams of CO2 equivalent.
    pub fn carbon_g_per_million(&self) -> f64 {
        self.carbon_g_per_year() / self.requests_per_year * 1e6
    }
    /// Energy of a year in kWh.
    pub fn kwh_per_year(&self) -> f64 {
        self.energy_per_year.get() / JOULES_PER_KWH
    }
}

fn end<T: Copy>(estimate: &Estimate<T>, scenario: Scenario) -> Estimate<T> {
    let value = match scenario {
        Scenario::Low => estimate.p05,
        Scenario::Value => estimate.value,
        Scenario::High => estimate.p95,
    };
    Estimate { value, p05: value, p95: value }
}

fn in_scenario(service: &Service, scenario: Scenario) -> Service {
    Service { time: end(&service.time, scenario), energy: end(&service.energy, scenario), ..*service }
}

/// The fleet of a board for a load. Every network has a pool of its own, as small as the target allows at the peak and in
/// every part of the day; its GPUs stay on, and each part of the day takes the batch with the least power among those that
/// keep the target. Every language model has a pool of as many replicas as its peak needs, which stay on.
///
/// # Errors
/// Where memory, the latency target or a rack's power allows no fleet; memory first.
pub fn plan_fleet(board: &Board, load: &Assumptions, scenario: Scenario) -> Result<Fleet, Misfit> {
    if board.services.iter().any(Vec::is_empty) {
        return Err(Misfit::Memory);
    }
    let mut pools = Vec::new();
    let parts = load.profile_per_s.len() as f64;
    let mut peak = Watts::ZERO;
    // Pools, power of the boards and busy GPUs of language models in every part of the day.
    let mut parts_of_day = vec![(Vec::new(), Watts::ZERO, 0.0); load.profile_per_s.len()];
    for ((services, &share), &more_fit) in board.services.iter().zip(&load.shares).zip(&board.more_fit) {
        let services: Vec<Service> = services.iter().map(|s| in_scenario(s, scenario)).collect();
        let target = load.target.as_ref().ok_or(Misfit::Latency)?;
        let services = gathered(&services, target.quantile);
        let rate = load.peak_per_s * share;
        let busiest = load.headroom.busiest;
        let (smallest, limit) =
            size(&services, rate, target, busiest, board.waiting, more_fit).ok_or(Misfit::Latency)?;
        // Quieter times fill batches more slowly: a pool must keep the target then, too, if need be with smaller ones.
        let keeping = (smallest.gpus..=2 * smallest.gpus + MORE_GPUS).find_map(|gpus| {
            let at = |rate: f64| best_at(&services, rate * share, gpus, (target, busiest), board.waiting);
            let day = load.profile_per_s.iter().map(|&rate| at(rate)).collect::<Option<Vec<_>>>()?;
            let pool = if gpus == smallest.gpus { smallest } else { at(load.peak_per_s)?.0? };
            Some((pool, day))
        });
        let (pool, day) = keeping.ok_or(Misfit::Latency)?;
        peak += pool.power;
        for ((pools, power, _), (pool, more)) in parts_of_day.iter_mut().zip(day) {
            pools.push(pool);
            *power += more;
        }
        let limit = if pool.gpus > smallest.gpus { Limit::Latency } else { limit };
        pools.push((pool, limit));
    }
    let mut languages = Vec::new();
    for (carriers, requests) in board.languages.iter().zip(&load.languages) {
        let sized = replicas::size(carriers.of(scenario), requests, load.headroom.busiest).ok_or(Misfit::Latency)?;
        let (replicas, gpus) = (sized.pool.replicas as f64, sized.pool.gpus() as f64);
        peak += sized.pool.power();
        for ((_, power, busy), at) in parts_of_day.iter_mut().zip(sized.day) {
            *power += at.power() * replicas;
            *busy += at.busy * gpus;
        }
        languages.push(sized.pool);
    }
    let of_languages: u64 = languages.iter().map(ReplicaPool::gpus).sum();
    let pooled: u64 = pools.iter().map(|(p, _)| p.gpus).sum::<u64>() + of_languages;
    let spares = load.headroom.boards(pooled);
    let gpus = pooled + spares;
    let spare = board.waiting * spares as f64;
    peak += spare;
    parts_of_day.iter_mut().for_each(|(_, power, _)| *power += spare);
    let mean = parts_of_day.iter().map(|(_, power, _)| *power).sum::<Watts>() / parts;
    let server = &load.server;
    let servers = gpus.div_ceil(server.gpus);
    let overhead = server.overhead * servers as f64;
    let full = board.cap * server.gpus as f64 + server.overhead;
    let racks = match load.site.rack {
        Some(rack) => {
            let each = (rack / full + 1e-9).floor() as u64;
            Some(servers.div_ceil((each > 0).then_some(each).ok_or(Misfit::Rack)?))
        }
        None => None,
    };
    let site = &load.site;
    let (it_peak, it_mean) = (peak + overhead, mean + overhead);
    let facility_mean = it_mean * site.pue;
    let energy_per_year = facility_mean * Seconds::new(SECONDS_PER_YEAR);
    let kwh = energy_per_year.get() / JOULES_PER_KWH;
    let (hardware, price_per_kwh) = board.price.of_year(gpus as f64, servers as f64, server, site);
    let energy_cost = kwh * price_per_kwh;
    let embodied = board.embodied_kg.map(|kg| {
        let all = kg * gpus as f64 + server.embodied_kg.unwrap_or(0.0) * servers as f64;
        1000.0 * all / site.amortisation_years
    });
    let rates = (0..load.profile_per_s.len()).map(|i| load.rate_of_part(i));
    let rates: Vec<f64> = rates.collect();
    let day = rates.iter().zip(parts_of_day).map(|(&rate_per_s, (pools, boards, of_languages))| {
        let facility = (boards + overhead) * site.pue;
        let kw = facility.get() / 1e3;
        Part {
            rate_per_s,
            batches: pools.iter().map(|p| p.map(|p| p.batch)).collect(),
            busy: pools.iter().flatten().map(|p| p.gpus as f64 * p.utilisation).sum::<f64>() + of_languages,
            facility,
            cost_per_h: hardware / HOURS_PER_YEAR + kw * price_per_kwh,
            carbon_g_per_h: kw * site.carbon_g_per_kwh + embodied.unwrap_or(0.0) / HOURS_PER_YEAR,
        }
    });
    Ok(Fleet {
        day: day.collect(),
        pools,
        languages,
        gpus,
        spares,
        servers,
        racks,
        it_peak,
        facility_peak: it_peak * site.pue,
        facility_mean,
        energy_per_year,
        cost_per_year: hardware + energy_cost,
        energy_cost_per_year: energy_cost,
        operational_g_per_year: kwh * site.carbon_g_per_kwh,
        embodied_g_per_year: embodied,
        requests_per_year: rates.iter().sum::<f64>() / parts * SECONDS_PER_YEAR,
    })
}

/// The pool of so many GPUs with the least power at a rate, and that power; waiting boards where nothing comes. `None` where
/// no batch keeps the target.
fn best_at(
    services: &[Gathered],
    rate: f64,
    gpus: u64,
    (target, busiest): (&Target, f64),
    waiting: Watts,
) -> Option<(Option<Pool>, Watts)> {
    if rate <= 0.0 {
        return Some((None, waiting * gpus as f64));
    }
    let drawing = services.iter().map(|s| (s, Pool::drawing(s, rate, gpus, waiting)));
    let keeping = drawing.filter(|(_, (_, utilisation))| *utilisation <= busiest * (1.0 + ROUNDING));
    let mut able = Vec::with_capacity(services.len());
    able.extend(keeping.map(|(s, (power, _))| (power.get(), s)));
    // How long a queue becomes takes longest to say: only of those that draw least, one after the other.
    loop {
        let (least, _) = able.iter().enumerate().min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b))?;
        let pool = Pool::at(able.remove(least).1, rate, gpus, target.quantile, waiting);
        if let Some(best) = pool.filter(|p| p.latency <= target.latency) {
            return Some((Some(best), best.power));
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    fn around(value: f64) -> Estimate<f64> {
        Estimate { value, p05: 0.8 * value, p95: 1.25 * value }
    }

    pub fn service(batch: u64, ms: f64, joules: f64) -> Service {
        let (t, e) = (around(ms), around(joules));
        Service {
            batch,
            time: Estimate {
                value: Seconds::from_ms(t.value),
                p05: Seconds::from_ms(t.p05),
                p95: Seconds::from_ms(t.p95),
            },
            energy: Estimate { value: Joules::new(e.value), p05: Joules::new(e.p05), p95: Joules::new(e.p95) },
        }
    }

    pub fn board() -> Board {
        Board {
            cap: Watts::new(300.0),
            clock: None,
            waiting: Watts::new(50.0),
            price: Price::Buy(5000.0),
            embodied_kg: Some(150.0),
            services: vec![vec![service(1, 10.0, 2.0)], vec![service(1, 20.0, 5.0)]],
            more_fit: vec![true, true],
            languages: Vec::new(),
        }
    }

    pub fn load() -> Assumptions {
        Assumptions {
            peak_per_s: 1000.0,
            profile_per_s: vec![200.0, 600.0],
            target: Some(Target { quantile: 0.95, latency: Seconds::from_ms(60.0) }),
            shares: vec![0.75, 0.25],
            languages: Vec::new(),
            server: Server { gpus: 4, overhead: Watts::new(400.0), price: 10_000.0, embodied_kg: Some(1000.0) },
            site: Site {
                rack: Some(Watts::new(8000.0)),
                site: None,
                pue: 1.4,
                price_per_kwh: 0.2,
                carbon_g_per_kwh: 350.0,
                amortisation_years: 4.0,
            },
            headroom: Headroom::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{self, board, load};
    use super::*;

    /// Larger batches take fewer joules for a request; the largest takes too long.
    #[test]
    fn each_part_of_a_day_takes_the_batch_that_draws_least_in_time() {
        let batches = [(1, 10.0, 2.0), (8, 30.0, 8.0), (4, 20.0, 6.0), (64, 900.0, 16.0)];
        let services = batches.map(|(batch, ms, joules)| testing::service(batch, ms, joules));
        let target = Target { quantile: 0.95, latency: Seconds::from_ms(200.0) };
        let services = gathered(&services, target.quantile);
        let at = |rate: f64| best_at(&services, rate, 40, (&target, 1.0), Watts::new(50.0)).expect("in time");
        let (pool, power) = at(600.0);
        assert_eq!(pool.map(|p| (p.batch, p.power)), Some((8, power)));
        // When little comes, a batch takes longer to gather than a request may take.
        assert_eq!(at(5.0).0.map(|p| p.batch), Some(1));
        assert_eq!(at(0.0), (None, Watts::new(2000.0)));
        let hopeless = Target { latency: Seconds::from_ms(5.0), ..target };
        assert_eq!(best_at(&services, 600.0, 40, (&hopeless, 1.0), Watts::new(50.0)), None);
    }

    #[test]
    fn a_fleet_by_hand() {
        let fleet = plan_fleet(&board(), &load(), Scenario::Value).expect("a fleet");
        // 7.5 and 5 erlangs; energy of a request 2 and 5 J whatever the batch, the rest of the time waits at 50 W.
        let (first, second) = (fleet.pools[0].0, fleet.pools[1].0);
        assert!(first.gpus >= 8 && second.gpus >= 6 && fleet.gpus == first.gpus + second.gpus);
        let gpus = fleet.gpus as f64;
        assert_eq!((fleet.servers, fleet.racks), (fleet.gpus.div_ceil(4), Some(fleet.servers.div_ceil(5))));
        let it = |rate: f64| {
            let (a, b) = (0.75 * rate, 0.25 * rate);
            let busy = a * 0.01 + b * 0.02;
            a * 2.0 + b * 5.0 + 50.0 * (gpus - busy) + 400.0 * fleet.servers as f64
        };
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");
        close(fleet.it_peak.get(), it(1000.0));
        close(fleet.facility_peak.get(), 1.4 * it(1000.0));
        let mean = 1.4 * 0.5 * (it(200.0) + it(600.0));
        close(fleet.facility_mean.get(), mean);
        let kwh = mean * 8.76;
        close(fleet.kwh_per_year(), kwh);
        let hardware = (5000.0 * gpus + 10_000.0 * fleet.servers as f64) / 4.0;
        close(fleet.cost_per_year, hardware + 0.2 * kwh);
        let embodied = (150.0 * gpus + 1000.0 * fleet.servers as f64) * 1000.0 / 4.0;
        close(fleet.carbon_g_per_year(), 350.0 * kwh + embodied);
        close(fleet.requests_per_year, 400.0 * 31_536_000.0);
        close(fleet.energy_per_request().get(), mean / 400.0);
    }

    #[test]
    fn the_parts_of_a_day_add_up_to_the_year() {
        let quiet = Assumptions { profile_per_s: vec![0.0, 200.0, 600.0, 1000.0], ..load() };
        for price in [Price::Buy(5000.0), Price::PerHour(1.5)] {
            let fleet = plan_fleet(&Board { price, ..board() }, &quiet, Scenario::Value).expect("a fleet");
            let mean = |of: fn(&Part) -> f64| fleet.day.iter().map(of).sum::<f64>() / fleet.day.len() as f64;
            let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");
            close(mean(|p| p.facility.get()), fleet.facility_mean.get());
            close(mean(|p| p.cost_per_h) * HOURS_PER_YEAR, fleet.cost_per_year);
            close(mean(|p| p.carbon_g_per_h) * HOURS_PER_YEAR, fleet.carbon_g_per_year());
            assert_eq!((fleet.day[0].busy, &fleet.day[0].batches), (0.0, &vec![None, None]));
            // 7.5 and 5 erlangs at the peak, as the steps last however many they serve.
            close(fleet.day[1].busy, 0.2 * 12.5);
            assert!(fleet.day.windows(2).all(|w| w[0].busy < w[1].busy && w[0].facility < w[1].facility));
        }
    }

    #[test]
    fn slower_and_hungrier_steps_need_more_of_everything() {
        let at = |scenario| plan_fleet(&board(), &load(), scenario).expect("a fleet");
        let (low, value, high) = (at(Scenario::Low), at(Scenario::Value), at(Scenario::High));
        assert!(low.gpus < value.gpus && value.gpus < high.gpus);
        assert!(low.kwh_per_year() < value.kwh_per_year() && value.kwh_per_year() < high.kwh_per_year());
        assert!(low.cost_per_year < value.cost_per_year && value.cost_per_year < high.cost_per_year);
    }

    #[test]
    fn what_cannot_be_has_no_fleet() {
        let tight = Target { quantile: 0.95, latency: Seconds::from_ms(15.0) };
        assert_eq!(
            plan_fleet(&board(), &Assumptions { target: Some(tight), ..load() }, Scenario::Value),
            Err(Misfit::Latency)
        );
        let site = Site { rack: Some(Watts::new(1500.0)), ..load().site };
        assert_eq!(plan_fleet(&board(), &Assumptions { site, ..load() }, Scenario::Value), Err(Misfit::Rack));
        let mut large = board();
        large.services[1].clear();
        assert_eq!(plan_fleet(&large, &load(), Scenario::Value), Err(Misfit::Memory));
    }

    #[test]
    fn headroom_takes_gpus_which_wait() {
        let at = |busiest, spares| {
            let headroom = Headroom { busiest, spares };
            plan_fleet(&board(), &Assumptions { headroom, ..load() }, Scenario::Value).expect("a fleet")
        };
        let (none, spared, slack) = (at(1.0, 0.0), at(1.0, 0.1), at(0.5, 0.0));
        let pooled: u64 = spared.pools.iter().map(|(p, _)| p.gpus).sum();
        assert_eq!((none.spares, spared.spares), (0, pooled.div_ceil(10)));
        assert_eq!((spared.gpus, &spared.pools), (none.gpus + spared.spares, &none.pools));
        let waiting = 50.0 * spared.spares as f64 + 400.0 * (spared.servers - none.servers) as f64;
        for (more, less) in [(spared.it_peak, none.it_peak), (spared.facility_mean / 1.4, none.facility_mean / 1.4)] {
            assert!(((more - less).get() - waiting).abs() < 1e-6, "{more:?} {less:?}");
        }
        assert!(spared.cost_per_year > none.cost_per_year && spared.embodied_g_per_year > none.embodied_g_per_year);
        // 7.5 and 5 erlangs at half their GPUs.
        assert_eq!(slack.pools.iter().map(|(p, _)| p.gpus).collect::<Vec<_>>(), [15, 10]);
        assert!(slack.pools.iter().all(|(p, _)| p.utilisation <= 0.5) && slack.spares == 0);
        assert_eq!(at(1.0, 0.0), plan_fleet(&board(), &load(), Scenario::Value).expect("a fleet"));
    }

    #[test]
    fn racks_carry_servers_with_what_they_draw_besides() {
        let at = |watts| {
            let site = Site { rack: Some(Watts::new(watts)), ..load().site };
            plan_fleet(&board(), &Assumptions { site, ..load() }, Scenario::Value).expect("a fleet")
        };
        // Four boards of 300 W and 400 W besides.
        let each = |watts: f64| Some(at(watts).servers.div_ceil((watts / 1600.0) as u64));
        assert!(at(1600.0).servers > 2);
        for watts in [1600.0, 3199.0, 3200.0] {
            assert_eq!(at(watts).racks, each(watts), "{watts} W");
        }
    }

    /// A batch that draws less is not taken where its pool would be busier than it may be.
    #[test]
    fn no_part_of_the_day_is_busier_than_pools_may_be() {
        let mut board = board();
        let first = board.services[0][0];
        let busy = |time, energy| Service { time: first.time.times(time), energy: first.energy.times(energy), ..first };
        // Slower and thriftier.
        board.services = vec![vec![busy(1.0, 1.0), busy(1.6, 0.2)]];
        board.more_fit = vec![true];
        let headroom = Headroom { busiest: 0.5, spares: 0.0 };
        let load = Assumptions { shares: vec![1.0], profile_per_s: vec![300.0, 1000.0], headroom, ..load() };
        let fleet = plan_fleet(&board, &load, Scenario::Value).expect("a fleet");
        for part in &fleet.day {
            assert!(part.busy <= 0.5 * fleet.gpus as f64 * (1.0 + 1e-9), "{part:?} of {}", fleet.gpus);
        }
    }

    /// In quiet times large batches fill too slowly for the target: what keeps the pool from being smaller is the latency.
    #[test]
    fn a_pool_that_quiet_times_enlarge_is_bound_by_latency() {
        let mut board = board();
        let first = board.services[0][0];
        let of = |batch, ms: f64| Service { batch, time: first.time.times(ms / first.time.value.to_ms()), ..first };
        board.services = vec![vec![of(1, 20.0), of(8, 30.0)]];
        board.more_fit = vec![true];
        let target = Some(Target { quantile: 0.95, latency: Seconds::from_ms(110.0) });
        let at = |profile_per_s| {
            let load = Assumptions { shares: vec![1.0], peak_per_s: 150.0, profile_per_s, target, ..load() };
            plan_fleet(&board, &load, Scenario::Value).expect("a fleet").pools[0]
        };
        let ((busy, limit), (quiet, bound)) = (at(vec![150.0]), at(vec![75.0]));
        assert_eq!((busy.gpus, limit), (1, Limit::OneGpu));
        assert_eq!((quiet.gpus > 1, bound), (true, Limit::Latency));
    }

    #[test]
    fn rented_gpus_cost_their_hours_and_no_energy() {
        let rented = Board { price: Price::PerHour(1.5), ..board() };
        let fleet = plan_fleet(&rented, &load(), Scenario::Value).expect("a fleet");
        assert!((fleet.cost_per_year - 1.5 * 8760.0 * fleet.gpus as f64).abs() < 1e-6);
        assert_eq!(fleet.energy_cost_per_year, 0.0);
        assert!(fleet.kwh_per_year() > 0.0);
    }
}
