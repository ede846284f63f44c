//! A step over batches: what no batch changes is found once, and kernels that differ are predicted once each, several batches
//! side by side. [`Step::new`] is the plain way, and says the same but for rounding.

use super::bounds::{Bounds, FewerSamples, tiled};
use super::drained::places;
use super::kernel::{Answers, Asked, Kernel, Models, OfBatch, OnBoard, Plan, computed_in, plan, predict_kernel};
use super::network::law_of;
use super::step::Step;
use super::summary::{Order, Prepared};
use super::{PredictError, Setup};
use crate::base::name::Name;
use crate::base::number::{LANES, Lanes};
use crate::base::precision::{Phase, Precision};
use crate::kernel::work::Work;
use crate::law::batches::{CostLine, OverBatches, Room, SAMPLED, Sampled};
use crate::law::lookup::Substitute;
use crate::law::power::{Drives, PowerModel};
use crate::net::cost::LayerCost;
use crate::net::layer::Layer;
use crate::net::network::ShapedNetwork;
use crate::net::network::derived::mode_of;
use crate::step::memory::FootprintOverBatches;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A step of a network, ready to be predicted at other batches.
pub struct StepOverBatches<'a> {
    network: &'a ShapedNetwork,
    setup: Setup<'a>,
    law: &'a PowerModel,
    /// Kernels that were asked for.
    asked: Vec<Made<'a>>,
    /// Kernels that differ, at the network's own batch.
    kernels: Vec<Kernel<'a>>,
    order: Order,
    /// All kernels' operations and traffic.
    cost: CostLine,
    memory: FootprintOverBatches<'a>,
    /// Those that nobody works at.
    desks: Mutex<Vec<Desk<'a>>>,
}

/// What one thread works with, and what it found that holds at any batch.
struct Desk<'a> {
    room: Room,
    /// Of each kernel that was asked for what is known of fewer samples.
    fewer: Vec<Option<FewerSamples<'a, 'a>>>,
    /// Kernels that differ, of as many batches as go side by side: of those that were asked for last, none before that.
    kernels: [Vec<Kernel<'a>>; LANES],
}

/// A kernel as it is predicted at any batch.
struct Made<'a> {
    /// The first layer that has it.
    name: &'a Name,
    asked: Asked,
    cost: CostLine,
    /// Whether it runs once, whatever the batch.
    once: bool,
    /// Which kernels it is of those that differ.
    places: Vec<usize>,
    /// None of what goes the plain way.
    over: Option<Box<Over<'a>>>,
}

/// A kernel by its model, with what the framework makes of it.
struct Over<'a> {
    plan: Plan<'static, 'a>,
    kernel: OverBatches<'a, 'a>,
    /// [`Plan::errors`].
    errors: [f64; 2],
    /// Whether it takes what its model says, so that nobody asks for its load at every batch.
    plain: bool,
}

impl<'a> StepOverBatches<'a> {
    /// Of a network, whatever batch it has. `None` where another batch runs other kernels, not the same with more to do.
    ///
    /// # Errors
    /// As [`Step::new`].
    pub(crate) fn new(network: &'a ShapedNetwork, setup: &Setup<'a>) -> Result<Option<Self>, PredictError> {
        let (law, _) = law_of(setup)?;
        // What the step adds to kernels is taken to be of no batch.
        if setup.framework.rows_apart.is_some() && network.layers().iter().any(|layer| layer.apart) {
            return Ok(None);
        }
        let mut models = Models::noting(law);
        let step = Step::of(network, setup, &mut models)?;
        // Each is made anew at every batch, so that it has to be known what of.
        if step.kernels.iter().any(|kernel| kernel.asked.is_none()) {
            return Ok(None);
        }
        let mut own = models.asked.take().unwrap_or_default();
        // Other batches are asked what they run, not how long that takes.
        let mut firsts: Vec<Option<&Kernel<'a>>> = vec![None; own.len()];
        for kernel in &step.kernels {
            if let Some(place) = kernel.asked {
                firsts[place].get_or_insert(kernel);
            }
        }
        let known: Vec<Kernel<'a>> = firsts.iter().map_while(|first| first.copied()).collect();
        let (mut sampled, mut sums) = (Vec::with_capacity(SAMPLED.len()), Vec::with_capacity(SAMPLED.len()));
        for batch in SAMPLED {
            let Ok(network) = network.with_batch(batch) else { return Ok(None) };
            let mut models = Models::answering(law, Answers::of(own, known.clone()));
            let other = Step::of(&network, setup, &mut models)?;
            let Some(Answers { asked, costs, differ, .. }) = models.answers.take() else { return Ok(None) };
            own = asked;
            let alike = |(a, b): (&Kernel<'_>, &Kernel<'_>)| a.asked == b.asked && a.repeats == b.repeats;
            let kernels =
                step.kernels.len() == other.kernels.len() && step.kernels.iter().zip(&other.kernels).all(alike);
            if !kernels || differ || costs.len() != own.len() {
                return Ok(None);
            }
            sums.push(other.kernels.iter().fold(LayerCost::default(), |sum, kernel| sum + kernel.cost));
            sampled.push(costs);
        }
        let ([one, many, between], [first, last, middle]) = (&sampled[..], &sums[..]) else { return Ok(None) };
        let mut asked = Vec::with_capacity(own.len());
        for (i, kernel) in own.into_iter().enumerate() {
            let name = firsts[i].map_or(Name::none(), |kernel| kernel.name);
            let costs = [one[i].0, many[i].0, between[i].0];
            let Some(cost) = CostLine::through(costs) else { return Ok(None) };
            let once = many[i].1 == one[i].1;
            let over = if once { None } else { over(network, (name, &kernel), costs, setup, &mut models) };
            asked.push(Made { name, asked: kernel, cost, once, places: Vec::new(), over });
        }
        let Some(cost) = CostLine::through([*first, *last, *middle]) else { return Ok(None) };
        let Some(memory) = FootprintOverBatches::new(network, setup.mode, &setup.framework.memory, setup.choices())
        else {
            return Ok(None);
        };
        let mut order = Order::of(&step.kernels);
        (order.once, order.places) = (true, places(&step));
        let mut kernels: Vec<Kernel<'a>> = Vec::with_capacity(asked.len());
        // Where the first is of those that came of what was asked for.
        let mut begins = vec![None; asked.len()];
        for (kernel, alike) in step.kernels.into_iter().zip(&mut order.alike) {
            let what = |k: &Kernel<'_>| (k.asked, k.phase, k.kind, k.besides);
            let end = kernels.len();
            let begin = kernel.asked.map_or(0, |place| *begins[place].get_or_insert(end));
            let known = kernels[begin..].iter().position(|k| what(k) == what(&kernel));
            *alike = known.map_or(end, |known| begin + known);
            if known.is_none() {
                if let Some(place) = kernel.asked {
                    asked[place].places.push(end);
                }
                kernels.push(Kernel { repeats: None, ..kernel });
            }
        }
        let desks = Mutex::default();
        Ok(Some(Self { network, setup: *setup, law, asked, kernels, order, cost, memory, desks }))
    }

    /// How many kernels of those that were asked for are predicted for several batches at once, and of how many.
    pub fn side_by_side(&self) -> (usize, usize) {
        (self.asked.iter().filter(|made| made.over.is_some()).count(), self.asked.len())
    }

    /// What a function makes of the step at each of these batches, which the network can have ([`ShapedNetwork::with_batch`]); it
    /// is told the batch's place among them, too.
    ///
    /// # Errors
    /// As [`Step::new`].
    pub fn each<R>(
        &self,
        batches: &[u64],
        mut of: impl FnMut(usize, &Prepared<'_, 'a>) -> R,
    ) -> Result<Vec<R>, PredictError> {
        let mut place = 0..;
        self.kernels_of_each(batches, |batch, kernels| {
            let prepared = self.prepared_of(batch, std::mem::take(kernels))?;
            let result = of(place.next().unwrap_or_default(), &prepared);
            *kernels = prepared.into_kernels();
            Ok(result)
        })
    }

    /// The step at each of these batches, as [`Self::each`] tells them, to be kept.
    ///
    /// # Errors
    /// As [`Step::new`].
    pub fn all(&self, batches: &[u64]) -> Result<Vec<Prepared<'_, 'a>>, PredictError> {
        self.kernels_of_each(batches, |batch, kernels| self.prepared_of(batch, std::mem::take(kernels)))
    }

    /// What a function makes of each batch's kernels, which it may leave for those of further batches.
    fn kernels_of_each<R>(
        &self,
        batches: &[u64],
        mut of: impl FnMut(u64, &mut Vec<Kernel<'a>>) -> Result<R, PredictError>,
    ) -> Result<Vec<R>, PredictError> {
        let mut results = Vec::with_capacity(batches.len());
        let mut desk = self.desks().pop().unwrap_or_else(|| self.new_desk());
        for batches in batches.chunks(LANES) {
            self.make_kernels(batches, &mut desk)?;
            for (&batch, kernels) in batches.iter().zip(&mut desk.kernels) {
                results.push(of(batch, kernels)?);
            }
        }
        self.desks().push(desk);
        Ok(results)
    }

    fn prepared_of(&self, batch: u64, kernels: Vec<Kernel<'a>>) -> Result<Prepared<'_, 'a>, PredictError> {
        let step = Step::from_kernels(self.network, &self.setup, kernels)?;
        Ok(Prepared::of_alike(step, &self.order, self.cost.at(batch), self.memory.at(batch)))
    }

    fn desks(&self) -> MutexGuard<'_, Vec<Desk<'a>>> {
        // What a thread leaves behind that panicked is whole: it takes a desk away and puts it back.
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_desk(&self) -> Desk<'a> {
        Desk { room: Room::new(), fewer: self.asked.iter().map(|_| None).collect(), kernels: Default::default() }
    }

    /// Makes a desk's kernels those of at most [`LANES`] batches.
    fn make_kernels(&self, batches: &[u64], desk: &mut Desk<'a>) -> Result<(), PredictError> {
        let Desk { room, fewer, kernels: made } = desk;
        let made = &mut made[..batches.len()];
        made.iter_mut().filter(|kernels| kernels.is_empty()).for_each(|kernels| kernels.clone_from(&self.kernels));
        for kernel in made.iter_mut().flatten() {
            (kernel.reference, kernel.fastest) = (1.0, f64::INFINITY);
        }
        for (kernel, fewer) in self.asked.iter().zip(fewer) {
            match &kernel.over {
                Some(over) => self.make(kernel, over, batches, made, (fewer, room))?,
                None => self.make_plainly(kernel, batches, made)?,
            }
        }
        Ok(())
    }

    fn no_model(kernel: &Made<'_>) -> PredictError {
        let Asked { layer, phase, runs, .. } = &kernel.asked;
        PredictError::NoModel {
            layer: kernel.name.to_string(),
            kind: layer.case.layer.kind(),
            phase: *phase,
            precision: *runs,
        }
    }

    fn setup_of(&self, kernel: &Made<'_>) -> Setup<'a> {
        match kernel.once {
            true => Setup { mode: mode_of(&kernel.asked.layer.case.layer, self.setup.mode), ..self.setup },
            false => self.setup,
        }
    }

    /// Makes each batch's kernels that are such a one those of the batch.
    fn make_plainly(
        &self,
        kernel: &Made<'a>,
        batches: &[u64],
        made: &mut [Vec<Kernel<'a>>],
    ) -> Result<(), PredictError> {
        let Made { name, ref asked, ref cost, once, ref places, .. } = *kernel;
        let (setup, mut models) = (self.setup_of(kernel), Models::new(self.law));
        for (&batch, made) in batches.iter().zip(made) {
            let batch_of = if once { 1 } else { batch };
            let network = self.network.with_batch(batch_of).map_err(|_| Self::no_model(kernel))?;
            let (runs, cost) = ((&network, asked.runs), cost.at(batch));
            let alone = predict_kernel(runs, (name, &asked.layer), asked.phase, cost, &setup, &mut models)?;
            for &place in places {
                let Kernel { name, kind, phase, host, asked, besides, .. } = made[place];
                made[place] = Kernel { name, kind, phase, host, asked, ..alone };
                made[place].lengthen(besides);
            }
        }
        Ok(())
    }

    /// The same of what is predicted for several batches at once.
    fn make(
        &self,
        kernel: &Made<'a>,
        Over { plan, kernel: over, errors, plain }: &Over<'a>,
        batches: &[u64],
        made: &mut [Vec<Kernel<'a>>],
        (fewer, room): (&mut Option<FewerSamples<'a, 'a>>, &mut Room),
    ) -> Result<(), PredictError> {
        let (asked, setup) = (&kernel.asked, &self.setup);
        // Lanes that nothing is asked of are as the last.
        let batch = |i: usize| batches.get(i).or(batches.last()).map_or(1, |batch| *batch);
        let lanes: [u64; LANES] = std::array::from_fn(batch);
        let mut taken = over.taken(&lanes, room);
        let load = over.load();
        let bounds = Bounds { found: &plan.found, setup };
        // More experts than fewer samples use may lie below what was fitted, or not.
        let below = if matches!(asked.layer.case.layer, Layer::Experts(_)) { [false; LANES] } else { taken.below };
        let may_be_longer = |lane: usize| !taken.timed[lane].in_domain && !below[lane];
        let asking: [bool; LANES] = std::array::from_fn(|lane| lane < batches.len() && may_be_longer(lane));
        if asking.contains(&true) && asked.phase != Phase::Update {
            if fewer.is_none() {
                *fewer = bounds.fewer_samples(load);
            }
            if let Some(fewer) = fewer {
                let mut here = None;
                for lane in (0..LANES).filter(|lane| asking[*lane]) {
                    let (value, here, room) = (&mut taken.timed[lane].value, &mut here, &mut *room);
                    *value = bounds.as_for_fewer_samples(*value, batches[lane], fewer, move || {
                        &here.get_or_insert_with(|| over.bounding(&lanes, room))[lane]
                    });
                }
            }
        }
        let mut jumps = [None; LANES];
        if !plain {
            let mut load = load.clone();
            for ((&batch, timed), jump) in lanes.iter().zip(&mut taken.timed).zip(&mut jumps) {
                over.at(batch, &mut load);
                *timed = bounds.of_hardware(*timed, &load, self.network);
                (timed.value, *jump) = plan.time(&asked.layer, &load, timed.value, setup);
            }
        }
        let times = Lanes(taken.timed.each_ref().map(|timed| timed.value.get()));
        let on = OnBoard::of_each(&asked.layer, load, (&taken.amounts, times), setup);
        let parts = self.law.parts(load, &taken.amounts, (plan.found.model.floor, times));
        for (i, made) in made.iter_mut().enumerate() {
            let timed = &taken.timed[i];
            let of = OfBatch {
                cost: over.cost(lanes[i]),
                value: timed.value,
                edges: timed.edges.ok_or_else(|| Self::no_model(kernel))?,
                on: on[i],
                error: errors[usize::from(timed.in_domain)],
                drives: Drives::of(parts.map(|part| part.0[i])),
                engine: taken.engines[i],
                within: timed.in_domain,
                jump: jumps[i],
            };
            for &place in &kernel.places {
                let kernel = &mut made[place];
                kernel.become_of(plan, &of);
                let besides = std::mem::take(&mut kernel.besides);
                kernel.lengthen(besides);
            }
        }
        Ok(())
    }
}

/// A kernel of a step over batches; None where it is several kernels, the better of two, or not a straight line over the batch.
fn over<'a>(
    network: &ShapedNetwork,
    (name, asked): (&str, &Asked),
    costs: [LayerCost; 3],
    setup: &Setup<'a>,
    models: &mut Models<'a>,
) -> Option<Box<Over<'a>>> {
    let Asked { runs, ref layer, phase, .. } = *asked;
    let precision = computed_in(runs, layer, phase);
    let apart = setup.framework.groups_apart && layer.group().is_some();
    let work = Work::of(layer, phase, network.batch(), network.precision(), setup.mode);
    let looks_on = tiled(&work).is_some();
    if apart || layer.stored.weights.is_some() || layer.context().is_some() || work.bias_beside().is_some() || looks_on
    {
        return None;
    }
    let plan = plan(precision, network, (name, layer), phase, setup, models).ok()?.into_owned();
    let found = plan.found;
    let is_better_of_two = precision == Precision::Tf32
        && matches!(found.substitute, Some(Substitute::Universal | Substitute::Efficiency));
    let in_steps = found.substitute == Some(Substitute::Product) && matches!(layer.case.layer, Layer::Recurrent(_));
    if is_better_of_two || in_steps || found.substitute == Some(Substitute::OneChip) {
        return None;
    }
    let each = plan.work.batch / network.batch();
    let mut loads = found.model.loads(plan.work.clone(), costs[0], setup.gpu)?;
    let sampled = Sampled::of(&mut loads, each, costs, phase != Phase::Update);
    let siblings = setup.all_chips.siblings(found.tier);
    let (library, chip, narrowings) = (setup.library, setup.calibration, &mut models.narrowings);
    let kernel = OverBatches::new(found, siblings, loads, &sampled, library, chip, narrowings)?;
    let plain = !matches!(kernel.load().work.layer(), Layer::Attention(_) | Layer::LatentAttention(_))
        && plan.is_the_librarys(layer, kernel.load(), setup);
    Some(Box::new(Over { errors: plan.errors(setup), plan, kernel, plain }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::catalog;
    use crate::device::gpu::Gpu;
    use crate::net::network::Network;
    use crate::step::generation;
    use crate::step::predict::Predictor;
    use crate::step::predictor::OperatingPoint;

    /// Relative, of every number of a kernel. Half of it, but where times are carried to another memory, a root of differences,
    /// or a variable hardly varies among its model's rows (RMSNorm's balance, by 0.05 %), whose spread divides what the
    /// rounding of a logarithm leaves.
    const MOST: f64 = 2e-12;
    /// Which of a kernel's numbers are what it drives.
    const DRIVES: std::ops::Range<usize> = 5..8;

    /// Panics unless a kernel is another but for rounding.
    fn check(found: &Kernel<'_>, plain: &Kernel<'_>, what: &str) {
        let what = || format!("{what}: {} {} {}", plain.name, plain.kind, plain.phase);
        let words = |k: &Kernel<'_>| {
            let (engine, jump) = (k.engine.map(str::to_string), k.jump.map(str::to_string));
            let tier = (k.in_domain, k.in_range, k.substitute, k.tier);
            (k.kind, k.phase, k.cost, tier, k.algorithm, engine, jump, k.ages)
        };
        assert_eq!(words(found), words(plain), "{}", what());
        let numbers = |k: &Kernel<'_>| {
            let times = [k.time.value, k.time.p05, k.time.p95, k.bound, k.memory].map(|time| time.get());
            let [clock, arithmetic, traffic] = k.drives.parts();
            let others = [clock, arithmetic, traffic, k.reference, k.fastest];
            times.into_iter().chain(others)
        };
        // What a kernel drives while it is busy is of what its floor leaves of its time: of a kernel near its floor the last digit
        // of that quotient is many of the difference, and times differ by some of their last digits.
        let busy = 1.0 - plain.floor / (plain.time.value - plain.besides);
        let rounding = if busy > 0.0 { 8.0 * f64::EPSILON / busy } else { 0.0 };
        for (i, (found, plain)) in numbers(found).zip(numbers(plain)).enumerate() {
            let most = if DRIVES.contains(&i) { MOST.max(rounding) } else { MOST };
            let near = found == plain || (found - plain).abs() <= most * plain.abs();
            assert!(near, "{}: number {i} is {found}, not {plain} ({busy} busy)", what());
        }
    }

    /// The default, and a clock and a limit.
    fn points(gpu: &Gpu) -> [OperatingPoint; 3] {
        let default = OperatingPoint::default();
        let (clock, limit) = (gpu.core_clock.boost.value * 0.8, gpu.power.limit.value * 0.8);
        [
            default,
            OperatingPoint { core_clock: Some(clock), ..default },
            OperatingPoint {
                power_cap: gpu.power.limit_minimum.as_ref().map(|least| least.value.max(limit)),
                ..default
            },
        ]
    }

    /// What steps over batches are asked for.
    struct Asking {
        net: &'static str,
        gpu: &'static str,
        profile: &'static str,
        precision: Precision,
        mode: Mode,
        batches: Vec<u64>,
    }

    /// Of kernels that differ, how many were predicted for several batches at once, and how many there are; none of a network
    /// that cannot be asked.
    fn compare(asking: &Asking) -> Option<(usize, usize)> {
        compare_of(&catalog::network(asking.net).expect("shipped"), asking)
    }

    fn compare_of(network: &Network, asking: &Asking) -> Option<(usize, usize)> {
        let Asking { net, gpu, profile, precision, mode, ref batches } = *asking;
        let framework = catalog::framework(profile).expect("shipped");
        let predictor = Predictor::shipped(catalog::gpu(gpu).expect("shipped"), framework);
        let network = predictor.shape(network, 5, precision, &[]).ok()?;
        let over = predictor.over_batches(&network, mode).ok()??;
        let batches: Vec<u64> = batches.iter().copied().filter(|batch| network.with_batch(*batch).is_ok()).collect();
        let check_one = |place: usize, prepared: &Prepared<'_, '_>| {
            let batch = batches[place];
            let what = format!("{net} on {gpu} through {profile}, {precision} {mode}, batch {batch}");
            let alone = network.with_batch(batch).expect("fits");
            let step = predictor.step(&alone, mode).expect("as at its own batch");
            let plain = &step;
            let (found, order) = prepared.step();
            assert_eq!(order.alike.len(), plain.kernels.len(), "{what}");
            for (&at, plain) in order.alike.iter().zip(&plain.kernels) {
                check(&found.kernels[at], plain, &what);
            }
            let plain = plain.prepare();
            assert_eq!((prepared.cost, prepared.memory), (plain.cost, plain.memory), "{what}");
            assert_eq!(prepared.fits_in_memory, plain.fits_in_memory, "{what}");
            for point in points(predictor.gpu()) {
                let (found, plain) = (prepared.at(point).expect("taken"), plain.plainly_at(point).expect("taken"));
                let apart = (found.energy.value / plain.energy.value - 1.0).abs();
                let apart = apart.max((found.time.p95 / plain.time.p95 - 1.0).abs());
                assert!(apart < 1e-9, "{what} at {point:?}: {found:?} {plain:?}");
                assert_eq!((found.launch_bound, found.time_tier), (plain.launch_bound, plain.time_tier), "{what}");
                // Stretches one by one, whatever they are of.
                let whole = step.at(point).expect("taken");
                let apart = (found.energy.value / whole.energy.value - 1.0).abs();
                let apart = apart.max((found.clock / whole.clock - 1.0).abs());
                assert!(apart < 1e-9, "{what} at {point:?}: {found:?}, {} at {}", whole.energy.value, whole.clock);
            }
        };
        let checked = over.each(&batches, check_one).expect("as at its own batch").len();
        let told = over.each(&batches, |_, prepared| prepared.at(OperatingPoint::default())).expect("as before");
        let kept = over.all(&batches).expect("as before");
        assert_eq!(kept.iter().map(|prepared| prepared.at(OperatingPoint::default())).collect::<Vec<_>>(), told);
        assert_eq!(checked, batches.len());
        Some(over.side_by_side())
    }

    /// What is computed of weights alone does not grow with the batch, at either way.
    #[test]
    fn what_runs_once_runs_once_at_every_batch() {
        let mut network = catalog::network("resnet18").expect("shipped");
        network.derived =
            Network::from_toml(crate::step::predictor::derived::tests::STANDARDIZED).expect("valid").derived;
        for (precision, mode) in
            [(Precision::Fp32, Mode::Inference), (Precision::Fp16, Mode::Inference), (Precision::Fp32, Mode::Training)]
        {
            // More than go side by side, so that some follow others.
            let batches = vec![1, 2, 5, 63, 64, 300, 3, 4, 6, 500, 1];
            let asking = Asking { net: "resnet18", gpu: "h100-sxm", profile: "pytorch", precision, mode, batches };
            let (together, all) = compare_of(&network, &asking).expect("has a way over batches");
            assert!(0 < together && together < all, "{precision} {mode}: {together} of {all}");
        }
    }

    #[test]
    fn several_batches_at_once_are_each_alone() {
        let mut bits: u64 = 5;
        let mut draw = |of: usize| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (bits >> 33) as usize % of
        };
        let (nets, gpus): (Vec<_>, Vec<_>) = (catalog::network_names().collect(), catalog::gpu_names().collect());
        let profiles = ["cudnn", "pytorch", "tensorrt", "caffe", "cudnn"];
        let (mut steps, mut together, mut all) = (0, 0, 0);
        for i in 0..DRAWS {
            // What most is measured of comes often.
            let gpu = if i % 3 == 0 { ["h200", "v100", "h100-pcie"][draw(3)] } else { gpus[draw(gpus.len())] };
            let most = draw(12);
            let asking = Asking {
                net: nets[draw(nets.len())],
                gpu,
                profile: profiles[draw(profiles.len())],
                precision: Precision::ALL[draw(Precision::ALL.len())],
                mode: Mode::ALL[draw(Mode::ALL.len())],
                batches: (0..11).map(|_| 1 + draw(1 << most) as u64).collect(),
            };
            let Some((side_by_side, kernels)) = compare(&asking) else { continue };
            (steps, together, all) = (steps + 1, together + side_by_side, all + kernels);
        }
        assert!(steps > DRAWS / 3, "{steps} of {DRAWS} steps");
        assert!(together > all * 8 / 10, "{together} of {all} kernels");
    }

    /// Attention against a cache has bounds of its own: a tile's keys, and what memory delivers.
    #[test]
    fn steps_of_one_token_are_each_alone() {
        for (net, gpu, cached) in [
            ("llama3_2_1b", "l40s", 4095),
            ("llama3_2_1b", "l40s", 300_000),
            ("llama3_2_1b", "b200", 1024),
            ("llama3_2_1b", "h200", 1000),
        ] {
            let network = generation::decode(&catalog::network(net).expect("shipped"), cached).expect("generates");
            let (precision, mode, batches) = (Precision::Bf16, Mode::Inference, vec![1, 2, 7, 32, 64, 300]);
            let asking = Asking { net, gpu, profile: "vllm", precision, mode, batches };
            let (together, all) = compare_of(&network, &asking).expect("has a way over batches");
            assert!(together > all / 2, "{together} of {all}");
        }
    }

    /// Cells of which a chip has no rows are their products, token after token, at either way.
    #[test]
    fn recurrent_layers_are_each_alone() {
        let text = "schema = \"network/1\"\nname = \"n\"\ntitle = \"n\"\ninputs.x.shape = [50, 512]\n\
                    layers = [{ name = \"a\", kind = \"lstm\", hidden = 512 }, { name = \"b\", kind = \"linear\", features = 64 }]";
        let network = crate::net::network::Network::from_toml(text).expect("valid");
        for (gpu, mode, beside) in
            [("v100", Mode::Training, true), ("v100", Mode::Inference, true), ("h200", Mode::Inference, false)]
        {
            let (precision, batches) = (Precision::Fp32, vec![1, 3, 8, 64, 300]);
            let asking = Asking { net: "n", gpu, profile: "cudnn", precision, mode, batches };
            let (together, all) = compare_of(&network, &asking).expect("has a way over batches");
            assert!(together > 0 && (together < all) == beside, "{gpu}: {together} of {all}");
        }
    }

    /// How many combinations are drawn.
    const DRAWS: usize = 60;
}
