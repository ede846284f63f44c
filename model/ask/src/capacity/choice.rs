//! Which of several fleets a plan takes, and what it would be if an input were otherwise.

use super::file::Minimise;
use super::fleet::{Assumptions, Board, Fleet, Price, Scenario, plan_fleet};
use super::pool::Service;
use crate::serving::Split;
use joulecast_model::base::units::Watts;
use std::fmt;

/// What a plan makes small, of a fleet.
pub fn objective(fleet: &Fleet, minimise: Minimise) -> f64 {
    match minimise {
        Minimise::Cost => fleet.cost_per_year,
        Minimise::Energy => fleet.energy_per_year.get(),
        Minimise::Carbon => fleet.carbon_g_per_year(),
        Minimise::Gpus => fleet.gpus as f64,
    }
}

/// The fleet with the least objective within a site's power; the one with fewer GPUs where they are equal.
pub fn best(fleets: &[Option<Fleet>], minimise: Minimise, site: Option<Watts>) -> Option<usize> {
    let within = |f: &Fleet| site.is_none_or(|limit| f.facility_peak <= limit);
    let list = fleets.iter().enumerate().filter_map(|(i, f)| f.as_ref().filter(|f| within(f)).map(|f| (i, f)));
    let order = |a: &Fleet, b: &Fleet| {
        let (x, y) = (objective(a, minimise), objective(b, minimise));
        x.total_cmp(&y).then(a.facility_peak.get().total_cmp(&b.facility_peak.get()))
    };
    list.min_by(|a, b| order(a.1, b.1)).map(|(i, _)| i)
}

/// An input of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Requests per second, at all times.
    Load,
    /// The latency target.
    Latency,
    /// Predicted time of every step.
    StepTime,
    /// Predicted energy of every step.
    StepEnergy,
    /// Power of waiting boards.
    WaitingPower,
    /// Power of servers besides their boards.
    ServerPower,
    /// Facility power over IT power, less one: 10 % of what cooling and distribution take.
    Overhead,
    /// Price of a kWh.
    EnergyPrice,
    /// Grams of CO2 equivalent per kWh.
    Carbon,
    /// Price of a GPU, to buy or by the hour.
    GpuPrice,
    /// Price of a server.
    ServerPrice,
    /// Embodied emissions of boards and servers.
    Embodied,
    /// Years of amortisation.
    Amortisation,
    /// The power limit, or the clock where that is what is set, as far as the board takes it.
    Setting,
}

impl Input {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Load,
        Self::Latency,
        Self::StepTime,
        Self::StepEnergy,
        Self::WaitingPower,
        Self::ServerPower,
        Self::Overhead,
        Self::EnergyPrice,
        Self::Carbon,
        Self::GpuPrice,
        Self::ServerPrice,
        Self::Embodied,
        Self::Amortisation,
        Self::Setting,
    ];
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "load",
            Self::Latency => "latency target",
            Self::StepTime => "predicted time of a step",
            Self::StepEnergy => "predicted energy of a step",
            Self::WaitingPower => "power of waiting boards",
            Self::ServerPower => "server power besides boards",
            Self::Overhead => "cooling and distribution (PUE - 1)",
            Self::EnergyPrice => "price per kWh",
            Self::Carbon => "carbon intensity",
            Self::GpuPrice => "price of a GPU",
            Self::ServerPrice => "price of a server",
            Self::Embodied => "embodied carbon",
            Self::Amortisation => "years of amortisation",
            Self::Setting => "power limit or clock",
        })
    }
}

/// A fleet with an input changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Which input.
    pub input: Input,
    /// With 10 % less of it; `None` where there is no fleet then.
    pub less: Option<Fleet>,
    /// With 10 % more.
    pub more: Option<Fleet>,
}

/// `moved`: the board with its setting changed, where it can be.
fn changed(
    board: &Board,
    load: &Assumptions,
    input: Input,
    end: usize,
    moved: Option<&Board>,
) -> Option<(Board, Assumptions)> {
    let (mut board, mut load, factor) = (board.clone(), load.clone(), CHANGES[end]);
    let each = |board: &mut Board, change: &dyn Fn(&mut Service)| {
        board.services.iter_mut().flatten().for_each(change);
    };
    match input {
        Input::Load => {
            load.peak_per_s *= factor;
            load.profile_per_s.iter_mut().for_each(|rate| *rate *= factor);
            for requests in &mut load.languages {
                requests.peak_per_s *= factor;
                requests.profile_per_s.iter_mut().for_each(|rate| *rate *= factor);
            }
        }
        Input::Latency => {
            if let Some(target) = &mut load.target {
                target.latency = target.latency * factor;
            }
            for of in &mut board.languages {
                of.value = of.targets.as_ref()?[end].clone();
            }
        }
        // The power of a step stays: what takes longer takes more energy.
        Input::StepTime => {
            each(&mut board, &|s| (s.time, s.energy) = (s.time.times(factor), s.energy.times(factor)));
            for of in &mut board.languages {
                of.value = of.steps.as_ref()?[end].clone();
            }
        }
        Input::StepEnergy => {
            each(&mut board, &|s| s.energy = s.energy.times(factor));
            let computing = |s: &mut Split| (s.prefill, s.decode) = (s.prefill * factor, s.decode * factor);
            board.languages.iter_mut().for_each(|of| of.each(computing));
        }
        Input::WaitingPower => {
            board.waiting = board.waiting * factor;
            board.languages.iter_mut().for_each(|of| of.each(|s| s.idle = s.idle * factor));
        }
        Input::ServerPower => load.server.overhead = load.server.overhead * factor,
        Input::Overhead => load.site.pue = 1.0 + (load.site.pue - 1.0) * factor,
        Input::EnergyPrice => load.site.price_per_kwh *= factor,
        Input::Carbon => load.site.carbon_g_per_kwh *= factor,
        Input::GpuPrice => {
            board.price = match board.price {
                Price::Buy(price) => Price::Buy(price * factor),
                Price::PerHour(price) => Price::PerHour(price * factor),
            }
        }
        Input::ServerPrice => load.server.price *= factor,
        Input::Embodied => {
            for kg in [&mut board.embodied_kg, &mut load.server.embodied_kg].into_iter().flatten() {
                *kg *= factor;
            }
        }
        Input::Amortisation => load.site.amortisation_years *= factor,
        Input::Setting => board = moved?.clone(),
    }
    Some((board, load))
}

/// How far an input is changed, down and up.
pub const CHANGES: [f64; 2] = [0.9, 1.1];

/// The fleet of a board with every input a tenth less and more; batches and GPUs follow. `moved`: the board as it is
/// predicted with its power limit or clock changed by [`CHANGES`]; `None` where it does not keep to that.
pub fn sensitivity(board: &Board, load: &Assumptions, moved: [Option<&Board>; 2]) -> Vec<Change> {
    let at = |input, end: usize| {
        let (board, load) = changed(board, load, input, end, moved[end])?;
        plan_fleet(&board, &load, Scenario::Value).ok()
    };
    Input::ALL.into_iter().map(|input| Change { input, less: at(input, 0), more: at(input, 1) }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fleet::testing::{board, load};
    use super::*;

    #[test]
    fn every_input_changes_what_it_should() {
        // Large enough that a tenth is more than one GPU.
        let load = Assumptions { peak_per_s: 10_000.0, profile_per_s: vec![2000.0, 6000.0], ..load() };
        let base = plan_fleet(&board(), &load, Scenario::Value).expect("a fleet");
        let of = |f: &Option<Fleet>| f.clone().expect("a fleet");
        let [slower, faster] = [1.2, 0.9].map(|factor| {
            let mut moved = board();
            moved.services.iter_mut().flatten().for_each(|s| s.time = s.time.times(factor));
            moved
        });
        for change in sensitivity(&board(), &load, [Some(&slower), Some(&faster)]) {
            let (less, more) = (of(&change.less), of(&change.more));
            let rises = |value: fn(&Fleet) -> f64| value(&less) < value(&base) && value(&base) < value(&more);
            match change.input {
                Input::Load | Input::StepTime => assert!(rises(|f| f.gpus as f64) && rises(|f| f.cost_per_year)),
                Input::Latency => assert!(less.gpus >= base.gpus && base.gpus >= more.gpus),
                Input::StepEnergy | Input::WaitingPower | Input::ServerPower | Input::Overhead => {
                    assert!(rises(|f| f.kwh_per_year()) && base.gpus == more.gpus, "{}", change.input);
                }
                Input::EnergyPrice | Input::GpuPrice | Input::ServerPrice => {
                    assert!(rises(|f| f.cost_per_year) && base.energy_per_year == more.energy_per_year);
                }
                Input::Carbon => assert!(rises(Fleet::carbon_g_per_year) && base.cost_per_year == more.cost_per_year),
                Input::Embodied => {
                    assert!(rises(Fleet::carbon_g_per_year) && base.energy_per_year == more.energy_per_year);
                }
                Input::Amortisation => assert!(less.cost_per_year > more.cost_per_year),
                Input::Setting => assert!(less.gpus > base.gpus && base.gpus > more.gpus),
            }
        }
    }

    /// Boards draw what they drew, for longer.
    #[test]
    fn longer_steps_take_more_energy() {
        let (board, load) = (board(), load());
        for (end, factor) in CHANGES.into_iter().enumerate() {
            let (changed, _) = changed(&board, &load, Input::StepTime, end, None).expect("a board");
            for (before, after) in board.services.iter().flatten().zip(changed.services.iter().flatten()) {
                for ratio in [
                    after.time.value / before.time.value,
                    after.energy.value / before.energy.value,
                    after.energy.p95 / before.energy.p95,
                ] {
                    assert!((ratio - factor).abs() < 1e-12, "{ratio}");
                }
            }
        }
    }

    #[test]
    fn of_equal_fleets_that_with_less_power_is_taken() {
        let fleet = plan_fleet(&board(), &load(), Scenario::Value).expect("a fleet");
        let less = Fleet { facility_peak: fleet.facility_peak * 0.5, ..fleet.clone() };
        for list in [[Some(fleet.clone()), Some(less.clone())], [Some(less.clone()), Some(fleet)]] {
            let taken = best(&list, Minimise::Cost, None).and_then(|i| list[i].as_ref()).expect("one");
            assert_eq!(taken.facility_peak, less.facility_peak);
        }
    }

    #[test]
    fn a_setting_that_cannot_be_kept_has_no_fleet() {
        let changes = sensitivity(&board(), &load(), [Some(&board()), None]);
        let of = |input| changes.iter().find(|c| c.input == input).expect("every input");
        assert!(of(Input::Setting).less.is_some() && of(Input::Setting).more.is_none());
        assert!(of(Input::Load).more.is_some());
    }

    #[test]
    fn the_least_within_the_site_is_taken() {
        let fleet = plan_fleet(&board(), &load(), Scenario::Value).expect("a fleet");
        let dear =
            Fleet { cost_per_year: 2.0 * fleet.cost_per_year, facility_peak: Watts::new(100.0), ..fleet.clone() };
        let list = [None, Some(fleet.clone()), Some(dear)];
        assert_eq!(best(&list, Minimise::Cost, None), Some(1));
        assert_eq!(best(&list, Minimise::Cost, Some(Watts::new(200.0))), Some(2));
        assert_eq!(best(&list, Minimise::Cost, Some(Watts::new(50.0))), None);
    }
}
