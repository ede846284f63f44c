//! Networks on GPUs side by side: which GPU is best for what, and which of those that keep a budget to take.

use crate::budget::{Bound, Budget};
use crate::metric::energy_precision_ratio;
use joulecast_model::base::name::Name;
use joulecast_model::base::order::sort_by;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::Joules;
use joulecast_model::step::predictor::{Estimate, HostOf, NetworkPrediction, Summary};
use joulecast_model::step::trust::{Cause, Doubt, Trust, variance};

/// A network on a GPU at a batch: what of its prediction is compared. Thousands are held side by side, so that texts are shared
/// and layers left out.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The network's name.
    pub network: Name,
    /// The GPU as typed.
    pub gpu: Name,
    /// The first GPU that takes part, by its own name; of a prediction that names none, none.
    pub device: Option<Name>,
    /// Samples per step.
    pub batch: u64,
    /// Format of activations and weights.
    pub precision: Precision,
    /// Whether a step of inference or of training.
    pub mode: Mode,
    /// Time, power and energy of the step.
    pub summary: Summary,
    /// The host of an eager step, where the framework profile says what it does.
    pub host: Option<Box<HostOf>>,
    /// Whether the step fits in the device's memory.
    pub fits_in_memory: bool,
    /// How far the prediction can be trusted, as its layers say; of its doubts those that are the widest of any [`Measure`].
    pub trust: Trust,
    /// Published top-1 error of trained weights.
    pub top1_error: Option<f64>,
    /// Energy-precision ratio.
    pub epr: Option<Joules>,
    /// Price of the GPU, where given.
    pub price_per_hour: Option<f64>,
    /// Price of a million samples.
    pub price_per_million: Option<f64>,
}

/// A text, which is the known one where they are alike.
fn shared(known: &Name, text: &str) -> Name {
    if *known == *text { known.clone() } else { text.into() }
}

/// The doubt that has the largest part of the variance of a measure's interval, and that part from 0 to 1.
fn widest(doubts: &[Doubt], measure: Measure) -> Option<(f64, &Doubt)> {
    let share = |doubt: &Doubt| match measure {
        Measure::Time | Measure::PricePerMillion => doubt.of_time,
        Measure::EnergyPerSample | Measure::Edp => doubt.of_energy,
        Measure::Power if doubt.cause == Cause::Power => 1.0,
        Measure::Power => 0.0,
    };
    let parts = doubts.iter().map(|doubt| (share(doubt), doubt));
    parts.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(part, _)| *part > 0.0)
}

/// Without the doubts that are never the widest.
fn deciding(trust: Trust) -> Trust {
    let widest = Measure::ALL.map(|measure| widest(&trust.doubts, measure));
    let is_one = |doubt: &&Doubt| widest.iter().flatten().any(|(_, one)| std::ptr::eq(*one, *doubt));
    let mut doubts: Vec<Doubt> = trust.doubts.iter().filter(is_one).copied().collect();
    doubts.shrink_to_fit();
    Trust { doubts, ..trust }
}

impl Entry {
    /// Of a prediction of this network on this GPU as typed; `alpha`: weight of the error in the energy-precision ratio.
    pub fn new(
        (network, gpu): (&Name, &Name),
        p: &NetworkPrediction,
        top1_error: Option<f64>,
        alpha: f64,
        price_per_hour: Option<f64>,
    ) -> Self {
        Self {
            network: shared(network, &p.network),
            gpu: gpu.clone(),
            device: p.devices.first().map(|device| shared(gpu, &device.gpu)),
            batch: p.batch,
            precision: p.precision,
            mode: p.mode,
            summary: p.summary(),
            host: p.host.clone().map(Box::new),
            fits_in_memory: p.fits_in_memory,
            trust: deciding(Trust::of(p)),
            top1_error,
            epr: top1_error.map(|e| energy_precision_ratio(e, alpha, p.energy_per_sample())),
            price_per_hour,
            price_per_million: price_per_hour.map(|price| price / 3600.0 * 1e6 / p.samples_per_second()),
        }
    }

    /// Whether the host, not the GPU, decides how long its step takes.
    pub fn of_host(&self) -> bool {
        self.host.as_ref().is_some_and(|h| h.decides)
    }

    /// Whether each bound of a budget is kept, of those that there are.
    pub fn kept(&self, budget: &Budget) -> impl Iterator<Item = (Bound, bool)> + use<> {
        budget.kept(&self.summary, self.batch, self.fits_in_memory)
    }
}

/// The largest batch within a budget.
#[derive(Clone, Debug)]
pub struct Largest {
    /// The network.
    pub network: Name,
    /// The GPU as typed.
    pub gpu: Name,
    /// With that batch; `None` where no batch keeps the budget.
    pub entry: Option<Entry>,
    /// What a larger batch would break, or what every batch does.
    pub stopped: Bound,
}

/// What GPUs are compared by; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Time of a step.
    Time,
    /// Energy per sample.
    EnergyPerSample,
    /// Energy-delay product of a step.
    Edp,
    /// Mean power.
    Power,
    /// Price of a million samples.
    PricePerMillion,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Time, Self::EnergyPerSample, Self::Edp, Self::Power, Self::PricePerMillion];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::EnergyPerSample => "energy per sample",
            Self::Edp => "EDP",
            Self::Power => "power",
            Self::PricePerMillion => "price per million",
        }
    }

    /// Its unit; empty for a price, whose currency is the user's.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Time => "s",
            Self::EnergyPerSample => "J",
            Self::Edp => "J s",
            Self::Power => "W",
            Self::PricePerMillion => "",
        }
    }

    /// Of an entry, in the unit; `None` without a price. A product of time and energy has the width of energy, whose
    /// interval is the wider one.
    pub fn of(self, e: &Entry) -> Option<Estimate<f64>> {
        let p = &e.summary;
        let time = [p.time.value, p.time.p05, p.time.p95].map(|v| v.get());
        let energy = [p.energy.value, p.energy.p05, p.energy.p95].map(|v| v.get());
        let ([value, p05, p95], by) = match self {
            Self::Time => (time, 1.0),
            Self::EnergyPerSample => (energy, 1.0 / e.batch as f64),
            Self::Edp => (energy, time[0]),
            Self::Power => ([p.power.value, p.power.p05, p.power.p95].map(|v| v.get()), 1.0),
            Self::PricePerMillion => (time, e.price_per_million? / time[0]),
        };
        Some(Estimate { value, p05, p95 }.times(by))
    }
}

/// The best GPU for a network and batch, or that none is.
#[derive(Clone, Debug)]
pub struct Best<'a> {
    /// By what.
    pub measure: Measure,
    /// The least of its network and batch.
    pub entry: &'a Entry,
    /// Its value, in the measure's unit.
    pub value: f64,
    /// Whether the GPU is what makes it the least. Where the host decides how long its step takes, another host makes another
    /// GPU the best, and none is called so.
    pub by_gpu: bool,
    /// Whether all GPUs have the measure: one without a price may cost less.
    pub of_all: bool,
    /// Others whose 90 % interval reaches the best one's, those with the least first: it is not surely better than those.
    pub near: Vec<&'a Entry>,
}

impl<'a> Best<'a> {
    /// Whether the GPU is the best whatever the intervals hold.
    pub fn sure(&self) -> bool {
        self.by_gpu && self.of_all && self.near.is_empty()
    }

    /// The least, and what its interval reaches.
    pub fn contenders(&self) -> impl Iterator<Item = &'a Entry> + '_ {
        std::iter::once(self.entry).chain(self.near.iter().copied())
    }

    /// Of whom what is to be measured to learn which is the best: the widest doubt of any of the contenders, by its part of the
    /// variance of the measure's interval. `None` where there is none to be better than.
    pub fn decided_by(&self) -> Option<(&'a Entry, &'a Doubt)> {
        let of = |entry: &'a Entry| {
            let value = self.measure.of(entry)?;
            let (part, doubt) = widest(&entry.trust.doubts, self.measure)?;
            Some((variance(value.p05, value.p95) * part, entry, doubt))
        };
        if self.near.is_empty() {
            return None;
        }
        let widest = self.contenders().filter_map(of).max_by(|a, b| a.0.total_cmp(&b.0));
        widest.filter(|(part, ..)| *part > 0.0).map(|(_, entry, doubt)| (entry, doubt))
    }
}

/// The best of some entries by a measure; `None` where none has it.
fn best_of<'a>(entries: &[&'a Entry], measure: Measure) -> Option<Best<'a>> {
    let mut values: Vec<(&Entry, Estimate<f64>)> = entries.iter().filter_map(|e| Some((*e, measure.of(e)?))).collect();
    sort_by(&mut values, |a, b| a.1.value.total_cmp(&b.1.value));
    let ((entry, least), others) = values.split_first()?;
    let near = others.iter().filter(|(_, v)| v.p05 <= least.p95).map(|(e, _)| *e).collect();
    let of_all = values.len() == entries.len();
    Some(Best { measure, entry, value: least.value, by_gpu: !entry.of_host(), of_all, near })
}

/// The best GPU by every measure, for every network and batch in the order they came; what does not fit is no choice.
pub fn best(entries: &[Entry]) -> Vec<Best<'_>> {
    let mut groups: Vec<Vec<&Entry>> = Vec::new();
    for e in entries.iter().filter(|e| e.fits_in_memory) {
        let alike = |other: &Entry| other.network == e.network && other.batch == e.batch;
        match groups.iter_mut().find(|group| alike(group[0])) {
            Some(group) => group.push(e),
            None => groups.push(vec![e]),
        }
    }
    let mut list = Vec::new();
    for group in &groups {
        for measure in Measure::ALL {
            list.extend(best_of(group, measure));
        }
    }
    list
}

/// Networks, batches and GPUs that [`best`] leaves out since they do not fit, GPUs by network and batch.
pub fn no_choice(entries: &[Entry]) -> Vec<(&str, u64, Vec<&str>)> {
    let mut list: Vec<(&str, u64, Vec<&str>)> = Vec::new();
    for e in entries.iter().filter(|e| !e.fits_in_memory) {
        let (network, batch) = (e.network.as_str(), e.batch);
        match list.iter_mut().find(|(n, b, _)| (*n, *b) == (network, batch)) {
            Some((_, _, gpus)) => gpus.push(&e.gpu),
            None => list.push((network, batch, vec![&e.gpu])),
        }
    }
    list
}

fn within(largest: &[Largest]) -> impl Iterator<Item = &Entry> {
    largest.iter().filter_map(|l| l.entry.as_ref())
}

/// The network with the least error that keeps the budget somewhere, where it takes the least energy per sample.
pub fn most_accurate(largest: &[Largest]) -> Option<&Entry> {
    let order = |e: &Entry| Some((e.top1_error?, e.summary.energy_per_sample(e.batch).get()));
    let known = within(largest).filter_map(|e| Some((e, order(e)?)));
    known.min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(e, _)| e)
}

/// For every network the GPU with the least price per million samples that keeps the budget.
pub fn cheapest(largest: &[Largest]) -> Vec<Best<'_>> {
    let mut groups: Vec<Vec<&Entry>> = Vec::new();
    for e in within(largest) {
        match groups.iter_mut().find(|group| group[0].network == e.network) {
            Some(group) => group.push(e),
            None => groups.push(vec![e]),
        }
    }
    groups.iter().filter_map(|group| best_of(group, Measure::PricePerMillion)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::units::{Seconds, Watts};
    use joulecast_model::catalog;
    use joulecast_model::net::network::ShapedNetwork;
    use joulecast_model::step::predict::Predictor;

    fn entry(gpu: &str, network: &str, ms: f64, watts: f64, price: Option<f64>) -> Entry {
        let board = catalog::gpu("v100").expect("known");
        let framework = catalog::framework("cudnn").expect("known");
        let lenet = ShapedNetwork::new(&catalog::network("lenet5").expect("known"), 4, Precision::Fp32, &[]);
        let predictor = Predictor::shipped(board, framework);
        let mut p = predictor.predict(&lenet.expect("fits"), Mode::Inference).expect("runs");
        let around = |v: f64| (v, 0.9 * v, 1.1 * v);
        p.network = network.into();
        let (value, p05, p95) = around(1e-3 * ms);
        p.time = Estimate { value: Seconds::new(value), p05: Seconds::new(p05), p95: Seconds::new(p95) };
        let (value, p05, p95) = around(watts);
        p.power = Estimate { value: Watts::new(value), p05: Watts::new(p05), p95: Watts::new(p95) };
        let (value, p05, p95) = around(1e-3 * ms * watts);
        p.energy = Estimate { value: Joules::new(value), p05: Joules::new(p05), p95: Joules::new(p95) };
        Entry::new((&network.into(), &gpu.into()), &p, (network == "known").then_some(0.25), 1.0, price)
    }

    /// What would decide is read off the entries, as layers said when they were made.
    #[test]
    fn an_entry_doubts_what_its_whole_prediction_does() {
        for (gpu, framework, mode) in [("h200", "pytorch", Mode::Training), ("v100", "cudnn", Mode::Inference)] {
            let board = catalog::gpu(gpu).expect("known");
            let profile = catalog::framework(framework).expect("known");
            let network = catalog::network("resnet50").expect("known");
            let network = ShapedNetwork::new(&network, 8, Precision::Fp16, &[]).expect("fits");
            let p = Predictor::shipped(board, profile).predict(&network, mode).expect("runs");
            let entry = Entry::new((&"resnet50".into(), &gpu.into()), &p, None, 1.0, None);
            let whole = Trust::of(&p);
            assert!(whole.doubts.len() > 3, "{gpu}: {:?}", whole.doubts);
            for measure in Measure::ALL {
                let found = widest(&entry.trust.doubts, measure);
                assert_eq!(found, widest(&whole.doubts, measure), "{gpu} {}", measure.name());
                assert!(found.is_some(), "{gpu} {}", measure.name());
            }
            assert_eq!(Trust { doubts: Vec::new(), ..entry.trust }, Trust { doubts: Vec::new(), ..whole }, "{gpu}");
        }
    }

    #[test]
    fn the_least_wins_and_what_its_interval_reaches_is_named() {
        let entries = [
            entry("fast", "a", 10.0, 200.0, None),
            entry("near", "a", 11.0, 100.0, None),
            entry("slow", "a", 30.0, 50.0, Some(1.0)),
            entry("other", "b", 1.0, 10.0, None),
        ];
        let found = best(&entries);
        let of = |network: &str, measure| {
            let found = found.iter().find(|b| b.entry.network == *network && b.measure == measure);
            found.map(|b| (b.entry.gpu.as_str(), b.near.iter().map(|e| e.gpu.as_str()).collect::<Vec<_>>()))
        };
        assert_eq!(of("a", Measure::Time), Some(("fast", vec!["near"])));
        assert_eq!(of("a", Measure::Power), Some(("slow", vec![])));
        assert_eq!(of("a", Measure::EnergyPerSample).map(|f| f.0), Some("near"));
        assert_eq!(of("a", Measure::PricePerMillion), Some(("slow", vec![])), "the others have no price");
        assert_eq!(of("b", Measure::Time), Some(("other", vec![])));
        assert_eq!(of("b", Measure::PricePerMillion), None);
    }

    #[test]
    fn those_with_the_least_are_named_first() {
        let entries = [("third", 11.0), ("first", 10.0), ("second", 10.5)];
        let entries = entries.map(|(gpu, ms)| entry(gpu, "a", ms, 100.0, None));
        let found = best(&entries);
        assert!(found[0].contenders().map(|e| e.gpu.as_str()).eq(["first", "second", "third"]));
    }

    #[test]
    fn a_price_that_is_not_known_may_be_less() {
        let entries = [entry("priced", "a", 10.0, 200.0, Some(1.0)), entry("other", "a", 90.0, 200.0, None)];
        let found = best(&entries);
        let by = |measure| found.iter().find(|b| b.measure == measure).expect("measured");
        assert!(by(Measure::Time).sure());
        let price = by(Measure::PricePerMillion);
        assert!(!price.of_all && !price.sure() && price.near.is_empty() && price.decided_by().is_none());
    }

    #[test]
    fn no_first_place_that_intervals_do_not_carry() {
        let entries = [
            entry("fast", "a", 10.0, 200.0, None),
            entry("near", "a", 11.0, 100.0, None),
            entry("slow", "a", 30.0, 50.0, None),
        ];
        let found = best(&entries);
        let by = |measure| found.iter().find(|b| b.measure == measure).expect("measured");
        let time = by(Measure::Time);
        assert!(!time.sure() && time.contenders().map(|e| e.gpu.as_str()).eq(["fast", "near"]));
        // Both have the same doubts; that of the wider interval on a logarithmic scale, of equal ones the last, is named.
        assert!(
            matches!(time.decided_by(), Some((_, Doubt { cause: Cause::Kernels(_), .. }))),
            "{:?}",
            time.decided_by().map(|d| d.1)
        );
        assert!(by(Measure::Power).decided_by().is_none());
        assert!(by(Measure::Power).sure());
        let mut apart = entries.to_vec();
        apart[1].summary.power.p05 = Watts::new(40.0);
        let found = best(&apart);
        let power = found.iter().find(|b| b.measure == Measure::Power).expect("measured");
        assert_eq!(power.decided_by().map(|(e, doubt)| (e.gpu.as_str(), doubt.cause)), Some(("near", Cause::Power)));
    }

    #[test]
    fn what_does_not_fit_is_never_best() {
        let mut entries = [entry("small", "a", 1.0, 10.0, None), entry("large", "a", 9.0, 90.0, None)];
        entries[0].fits_in_memory = false;
        assert!(best(&entries).iter().all(|b| b.entry.gpu == "large" && b.near.is_empty()));
        assert_eq!(no_choice(&entries), [("a", 4, vec!["small"])]);
        entries[1].fits_in_memory = false;
        assert!(best(&entries).is_empty());
        assert_eq!(no_choice(&entries), [("a", 4, vec!["small", "large"])]);
    }

    #[test]
    fn accuracy_and_price_choose_among_what_keeps_the_budget() {
        let largest = |entry: Option<Entry>| Largest {
            network: entry.as_ref().map_or("c".into(), |e| e.network.clone()),
            gpu: entry.as_ref().map_or("v100".into(), |e| e.gpu.clone()),
            entry,
            stopped: Bound::Latency,
        };
        let list = [
            largest(Some(entry("dear", "known", 10.0, 100.0, Some(9.0)))),
            largest(Some(entry("cheap", "known", 20.0, 40.0, Some(1.0)))),
            largest(Some(entry("free", "unknown", 1.0, 1.0, None))),
            largest(None),
        ];
        assert_eq!(most_accurate(&list).map(|e| e.gpu.as_str()), Some("cheap"), "less energy at the same error");
        assert_eq!(cheapest(&list).iter().map(|b| b.entry.gpu.as_str()).collect::<Vec<_>>(), ["cheap"]);
        assert!(most_accurate(&list[2..]).is_none() && cheapest(&list[2..]).is_empty());
        let (epr, energy) = (list[0].entry.as_ref().and_then(|e| e.epr), 0.25 * 1e-3 * 10.0 * 100.0 / 4.0);
        assert!(epr.is_some_and(|epr| (epr.get() / energy - 1.0).abs() < 1e-9));
    }
}
