//! What replicas of a language model cost: hours of their GPUs, and electricity.

use super::fleet::{HOURS_PER_YEAR, Price, Server, Site};
use crate::serving::Summary;
use joulecast_model::base::units::Watts;

/// What a GPU that is there all the time costs, in one currency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tariff {
    /// For every hour of a GPU, its part of a server among it.
    pub per_gpu_hour: f64,
    /// Of a kWh that is paid besides.
    pub per_kwh: f64,
    /// Facility power over that of GPUs and servers.
    pub pue: f64,
    /// What its part of a server draws besides the GPU.
    pub overhead: Watts,
}

impl Tariff {
    /// As a plan's fleet pays for it: what is bought is written off, with energy besides; an hour's rent includes energy. Of a
    /// server the part that belongs to a GPU.
    pub fn of(price: Price, server: &Server, site: &Site) -> Self {
        let gpus = server.gpus as f64;
        let (per_gpu_year, per_kwh) = price.of_year(1.0, 1.0 / gpus, server, site);
        Self { per_gpu_hour: per_gpu_year / HOURS_PER_YEAR, per_kwh, pue: site.pue, overhead: server.overhead / gpus }
    }

    /// Of an hour of so many GPUs that draw so much together: for the GPUs, and for electricity.
    pub fn per_hour(&self, gpus: u64, power: Watts) -> (f64, f64) {
        let gpus = gpus as f64;
        let kw = (power + self.overhead * gpus).get() * self.pue / 1e3;
        (self.per_gpu_hour * gpus, kw * self.per_kwh)
    }

    /// For a million tokens of answers that so many GPUs make; prompts and waiting are in it.
    pub fn per_million(&self, gpus: u64, summary: &Summary) -> f64 {
        let (hardware, electricity) = self.per_hour(gpus, summary.power);
        (hardware + electricity) / (summary.tokens_per_s * 3600.0) * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::{Assumptions, Board, Carrier, Carriers, Headroom, Requests, Scenario, plan_fleet};
    use crate::serving::{Demand, Lengths, Limits, Replica, StepCost, StepWork, Target, Which};
    use joulecast_model::base::units::{Joules, Seconds};
    use joulecast_model::net::share::Layout;

    fn site() -> Site {
        Site { rack: None, site: None, pue: 1.4, price_per_kwh: 0.2, carbon_g_per_kwh: 300.0, amortisation_years: 4.0 }
    }

    const SERVER: Server = Server { gpus: 8, overhead: Watts::new(2400.0), price: 60_000.0, embodied_kg: None };

    #[test]
    fn a_million_tokens_cost_what_a_pencil_says() {
        // Two GPUs of 3.00 an hour that draw 1000 W and make 500 tokens a second: 1.8 million an hour.
        let tariff = Tariff { per_gpu_hour: 3.0, per_kwh: 0.3, pue: 1.5, overhead: Watts::new(100.0) };
        let summary = Summary { power: Watts::new(1000.0), tokens_per_s: 500.0, ..Summary::default() };
        let (hardware, electricity) = tariff.per_hour(2, summary.power);
        assert!((hardware - 6.0).abs() < 1e-12 && (electricity - 1.2 * 1.5 * 0.3).abs() < 1e-12, "{electricity}");
        assert!((tariff.per_million(2, &summary) - 6.54 / 1.8).abs() < 1e-12);
    }

    struct Even;

    impl Replica for Even {
        fn step(&self, work: &StepWork) -> StepCost {
            StepCost {
                time: Seconds::new(1e-2),
                decode: Joules::new(2.0 * work.tokens() as f64),
                ..StepCost::default()
            }
        }

        fn waiting(&self) -> Watts {
            Watts::new(100.0)
        }
    }

    /// A fleet that fills its servers costs an hour what its tariff says of its GPUs and their power.
    #[test]
    fn a_fleet_pays_as_its_tariff_says() {
        let demand = Demand::poisson(400, Lengths::Constant(100), Lengths::Constant(20), 1);
        let limits = Limits { tokens: 512, sequences: 16, blocks: 10_000, ..Limits::AMPLE };
        let target = Target { to_first: Some(Seconds::new(1.0)), per_token: None, which: Which::P90 };
        let wanted = crate::capacity::Wanted { demand: &demand, target: &target };
        let carriers: Vec<Carrier> = wanted.carriers([(Layout::ALONE, limits, &Even)].into_iter()).expect("fits");
        for price in [Price::Buy(20_000.0), Price::PerHour(2.5)] {
            let board = Board {
                cap: Watts::new(700.0),
                clock: None,
                waiting: Watts::new(100.0),
                price,
                embodied_kg: None,
                services: Vec::new(),
                more_fit: Vec::new(),
                languages: vec![Carriers { value: carriers.clone(), ..Carriers::default() }],
            };
            let peak = 8.0 * carriers[0].highest() * 0.999;
            let load = Assumptions {
                peak_per_s: 0.0,
                profile_per_s: vec![0.0],
                target: None,
                shares: Vec::new(),
                languages: vec![Requests { peak_per_s: peak, profile_per_s: vec![peak] }],
                server: SERVER,
                site: site(),
                headroom: Headroom::NONE,
            };
            let fleet = plan_fleet(&board, &load, Scenario::Value).expect("a fleet");
            assert_eq!((fleet.gpus, fleet.servers), (8, 1));
            let boards = fleet.facility_mean / site().pue;
            let (hardware, electricity) = Tariff::of(price, &SERVER, &site()).per_hour(8, boards - SERVER.overhead);
            let found = hardware + electricity;
            assert!((found / fleet.day[0].cost_per_h - 1.0).abs() < 1e-9, "{found} and {}", fleet.day[0].cost_per_h);
        }
    }
}
