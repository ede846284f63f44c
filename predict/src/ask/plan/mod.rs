//! Fleets of GPUs for a load.

mod language;

use super::settings::{caps, clocks, least_cap};
use super::sweep::WORTH_IT;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::request::{Reading, Request, Runner, Team};
use crate::session::Session;
use crate::source::Source;
use anyhow::anyhow;
use joulecast_ask::capacity::{
    Assumptions, Board, CHANGES, CandidateFile, Carrier, Carriers, Fleet, Headroom, Misfit, PlanFile, Scenario,
    Service, Vary, best, plan_fleet, sensitivity,
};
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::{Bytes, Watts};
use joulecast_model::device::gpu::{Device, Gpu};
use joulecast_model::law::power::{waiting, waiting_source};
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::generation;
use joulecast_model::step::predictor::{
    NetworkPrediction, OperatingPoint, Prepared, Step, StepOverBatches, Warning, core_range,
};
use joulecast_reports::fleet::{AtSetting, Candidate, Plan};
use joulecast_reports::verdict::Verdict;
use joulecast_reports::warnings::words;
use language::{Laid, Language};
use rayon::prelude::*;
use std::sync::Arc;

/// At most so many power limits are tried besides the default, and so many clocks.
const CAPS: usize = 8;
const CLOCKS: usize = 12;
/// Fewer where language models are simulated at each.
const CAPS_SIMULATED: usize = 4;
const CLOCKS_SIMULATED: usize = 4;

/// Waiting in larger pools takes long to compute, and nobody builds one.
const MOST_GPUS: f64 = 100_000.0;

/// Batches worth a try: every one up to four, then four for every doubling.
fn batches(most: u64) -> Vec<u64> {
    let octave = |i: u32| [4u64, 5, 6, 7].map(|b| b << i);
    (1..4).chain((0..u64::BITS - 3).flat_map(octave)).take_while(|b| *b <= most).collect()
}

/// Some of a list, evenly, its ends among them.
fn some<T: Copy>(list: &[T], most: usize) -> Vec<T> {
    if list.len() <= most {
        return list.to_vec();
    }
    (0..most).map(|i| list[i * (list.len() - 1) / (most - 1)]).collect()
}

/// Settings of a GPU worth a try: as it comes, under power limits, at clocks.
fn settings(gpu: &Gpu, vary: &[Vary], (most_caps, most_clocks): (usize, usize)) -> Vec<OperatingPoint> {
    let mut list = vec![OperatingPoint::default()];
    if vary.contains(&Vary::Cap) {
        let at = |cap| OperatingPoint { power_cap: Some(cap), ..OperatingPoint::default() };
        list.extend(some(&caps(gpu), most_caps).into_iter().map(at));
    }
    if vary.contains(&Vary::Clock) && gpu.device == Device::Gpu {
        let at = |clock| OperatingPoint { core_clock: Some(clock), ..OperatingPoint::default() };
        list.extend(clocks(gpu, most_clocks).into_iter().map(at));
    }
    list
}

/// A setting a tenth lower and higher, as far as the board takes it.
fn moved(gpu: &Gpu, board: &Board) -> [OperatingPoint; 2] {
    CHANGES.map(|factor| match board.clock {
        Some(clock) => {
            let (low, high) = core_range(gpu);
            OperatingPoint { core_clock: Some((clock * factor).max(low).min(high)), ..OperatingPoint::default() }
        }
        None => {
            let most = gpu.power.limit_maximum.as_ref().map_or(gpu.power.limit.value, |p| p.value);
            let cap = (board.cap * factor).max(least_cap(gpu)).min(most);
            OperatingPoint { power_cap: Some(cap), ..OperatingPoint::default() }
        }
    })
}

/// A candidate's boards, one per setting; none where the predicted steps do not keep it. And what its predictions rest on.
struct Predicted<'l> {
    boards: Vec<Option<Board>>,
    languages: Vec<Laid<'l>>,
    rests_on: Vec<String>,
    warnings: Vec<String>,
    /// Expected error of a network's energy, and what to measure to be surer, of the one of which most is expected.
    surer: Option<(f64, String)>,
}

/// A network's steps at the batches that fit in memory, rising, and whether those were all.
struct Steps<'s, 'a> {
    prepared: Vec<(u64, Prepared<'s, 'a>)>,
    more_fit: bool,
    /// What the first does, as the GPU comes.
    first: Option<NetworkPrediction>,
    /// What one sample needs of memory, where that is too much.
    needed: Option<Bytes>,
}

impl<'s, 'a> Steps<'s, 'a> {
    /// A network's at these batches: of its step over batches, beside which the step at the first is, or of the steps at each
    /// that was made.
    fn of(over: Option<&'s StepOverBatches<'a>>, alone: &'s [Step<'a>], batches: &[u64]) -> Result<Self, Failure> {
        let all = match over {
            Some(over) => over.all(batches)?,
            None => alone.iter().map(Step::prepare).collect(),
        };
        let all = batches.iter().copied().zip(all);
        let (prepared, larger): (Vec<_>, Vec<_>) = all.partition(|(_, prepared)| prepared.fits_in_memory);
        let needed = larger.first().filter(|_| prepared.is_empty()).map(|(_, prepared)| prepared.memory.total());
        let first = alone.first().filter(|_| needed.is_none()).map(|step| step.at(OperatingPoint::default()));
        Ok(Self { more_fit: larger.is_empty(), prepared, first: first.transpose()?, needed })
    }
}

/// The steps of all networks on a GPU, for `then` to ask at settings.
fn with_steps<T>(
    file: &PlanFile,
    networks: &[Arc<Source>],
    cluster: &Cluster,
    then: impl FnOnce(&[Steps<'_, '_>]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (predictor, mode) = (cluster.first(), cluster.mode);
    let batches = batches(file.largest_batch);
    let singles = networks.iter().map(|source| cluster.shape(source, 1));
    let singles = singles.collect::<Result<Vec<ShapedNetwork>, Failure>>()?;
    let over = singles.iter().map(|single| match batches.len() >= WORTH_IT {
        true => predictor.over_batches(single, mode),
        false => Ok(None),
    });
    let over = over.collect::<Result<Vec<_>, _>>()?;
    // Networks whose steps are predicted one by one, up to the first batch that does not fit, which says what it needs.
    let fits = |shaped: &ShapedNetwork| predictor.memory(shaped, mode).total() <= predictor.gpu().memory.value;
    let shapes = |source: &Source, single: &ShapedNetwork| {
        let mut list = Vec::new();
        for &batch in &batches {
            let shaped =
                single.with_batch(batch).map_err(|e| Failure::Failed(anyhow!("{}: {e}", source.network.name)))?;
            let last = !fits(&shaped);
            list.push(shaped);
            if last {
                break;
            }
        }
        Ok(list)
    };
    let shaped = networks.iter().zip(&singles).zip(&over).map(|((source, single), over)| match over {
        Some(_) => Ok(vec![single.clone()]),
        None => shapes(source, single),
    });
    let shaped = shaped.collect::<Result<Vec<Vec<ShapedNetwork>>, Failure>>()?;
    let step = |shaped| predictor.step(shaped, mode);
    let alone = shaped.iter().map(|list| list.iter().map(step).collect::<Result<Vec<_>, _>>());
    let alone = alone.collect::<Result<Vec<Vec<Step<'_>>>, _>>()?;
    let steps = over.iter().zip(&alone).map(|(over, alone)| Steps::of(over.as_ref(), alone, &batches));
    let steps = steps.collect::<Result<Vec<_>, Failure>>()?;
    then(&steps)
}

/// More GPUs than a plan is made for.
fn too_many(name: &str, gpu: &Gpu, gpus: f64) -> Failure {
    Failure::Failed(anyhow!(
        "{name} on {}: at least {gpus:.0} GPUs at the peak, and no plan is made for more than {MOST_GPUS}: divide the load",
        gpu.name
    ))
}

/// Networks and language models of a plan on a GPU.
#[derive(Clone, Copy)]
struct Planned<'p> {
    file: &'p PlanFile,
    candidate: &'p CandidateFile,
    networks: &'p [Arc<Source>],
    cluster: &'p Cluster,
    languages: &'p [(&'p Language<'p>, Cluster)],
}

/// `ends`: whether those of the predictions' intervals are asked for.
fn predict<'p>(
    planned: Planned<'p>,
    steps: &[Steps<'_, '_>],
    settings: &[OperatingPoint],
    ends: bool,
) -> Result<Predicted<'p>, Failure> {
    let Planned { file, candidate, networks, cluster, languages } = planned;
    let gpu = cluster.first().gpu();
    let mut boards: Vec<Option<Board>> = settings
        .iter()
        .map(|point| {
            Some(Board {
                cap: point.power_cap.unwrap_or(gpu.power.limit.value),
                clock: point.core_clock,
                waiting: waiting(gpu),
                price: candidate.price,
                embodied_kg: candidate.embodied_kg,
                services: Vec::new(),
                more_fit: Vec::new(),
                languages: Vec::new(),
            })
        })
        .collect();
    let (mut rests_on, mut warnings): (_, Vec<String>) = (Vec::new(), cluster.notes().map(words).collect());
    let mut surer: Option<(f64, String)> = None;
    for ((entry, source), steps) in file.networks.iter().zip(networks).zip(steps) {
        let network = &source.network;
        let mut services: Vec<Vec<Service>> = vec![Vec::new(); settings.len()];
        if generation::check(network, 1, 1).is_ok() {
            warnings.push(words(&Warning::OneStep { network: network.name.clone() }));
        }
        if let Some(needed) = steps.needed {
            let has = gpu.memory.value;
            warnings.push(words(&Warning::NoBatch { network: network.name.clone(), needed, has }));
        }
        if let Some(first) = &steps.first {
            let verdict = Verdict::of(first);
            rests_on.push(format!("{}: {}", network.name, verdict.words()));
            let error = verdict.trust().energy.error;
            if surer.as_ref().is_none_or(|(most, _)| error > *most) {
                surer = verdict.surer().map(|measured| (error, measured)).or(surer);
            }
            let new = first.warnings.iter().map(words).filter(|w| !warnings.contains(w)).collect::<Vec<_>>();
            warnings.extend(new);
        }
        for (batch, prepared) in &steps.prepared {
            for ((point, services), board) in settings.iter().zip(&mut services).zip(&mut boards) {
                let total = prepared.at(*point)?;
                // What the board cannot keep to is no choice.
                if point.power_cap.is_some_and(|cap| total.power.value > cap) {
                    *board = None;
                }
                services.push(Service { batch: *batch, time: total.time, energy: total.energy });
            }
        }
        let each = |s: &Service| s.time.value.get() / s.batch as f64;
        let busy = services.iter().flatten().map(each).fold(f64::INFINITY, f64::min) * file.peak_per_s * entry.share;
        if busy.is_finite() && busy > MOST_GPUS {
            return Err(too_many(&network.name, gpu, busy));
        }
        for (board, services) in boards.iter_mut().zip(services) {
            if let Some(board) = board {
                board.services.push(services);
                board.more_fit.push(steps.more_fit);
            }
        }
    }
    let mut laid = Vec::new();
    for (language, cluster) in languages {
        let replicas = language.laid(candidate, cluster, settings)?;
        warnings.extend(cluster.notes().map(words).filter(|w| !warnings.contains(w)).collect::<Vec<_>>());
        replicas.tell(&mut rests_on, &mut warnings);
        let peak = language.planned.requests.peak_per_s;
        let found = (0..settings.len()).into_par_iter().map(|i| replicas.at(i, ends));
        let found = found.collect::<Result<Vec<Carriers>, Failure>>()?;
        for ((point, carriers), board) in settings.iter().zip(found).zip(&mut boards) {
            let gpus = |c: &Carrier| peak / c.highest() * c.layout.gpus() as f64;
            let least = carriers.value.iter().map(gpus).fold(f64::INFINITY, f64::min);
            if least.is_finite() && least > MOST_GPUS {
                return Err(too_many(&language.planned.name, gpu, least));
            }
            let over = |c: &Carrier| point.power_cap.is_some_and(|cap| c.busy_power() > cap);
            match board {
                Some(board) if !carriers.value.iter().any(over) => board.languages.push(carriers),
                board => *board = None,
            }
        }
        laid.push(replicas);
    }
    Ok(Predicted { boards, languages: laid, rests_on, warnings, surer })
}

/// Why none of a candidate's fleets is taken: of those that carry the load none is within the site's power.
fn reason(fleets: &[Result<Fleet, Misfit>]) -> String {
    if fleets.iter().any(Result::is_ok) {
        return "site power".into();
    }
    let mut words: Vec<String> = fleets.iter().filter_map(|f| f.as_ref().err()).map(Misfit::to_string).collect();
    words.sort();
    words.dedup();
    words.join(", ")
}

/// The fleets of a candidate at all its settings, and the one it would be taken with.
fn candidate(planned: Planned<'_>) -> Candidate {
    let Planned { file, candidate: c, networks, cluster, languages } = planned;
    let gpu = cluster.first().gpu();
    let most = if languages.is_empty() { (CAPS, CLOCKS) } else { (CAPS_SIMULATED, CLOCKS_SIMULATED) };
    let made = with_steps(file, networks, cluster, |steps| {
        let at = |settings: &[OperatingPoint], ends| predict(planned, steps, settings, ends);
        let predicted = at(&settings(gpu, &c.vary, most), true)?;
        of_predicted(planned, predicted, |ends| at(ends, false).map(|p| p.boards).unwrap_or_default())
    });
    // What a GPU cannot do is no reason to leave out the others.
    made.unwrap_or_else(|failure| Candidate { reason: Some(failure.to_string()), ..without_fleets(planned) })
}

/// A candidate of which nothing is predicted.
fn without_fleets(planned: Planned<'_>) -> Candidate {
    let Planned { candidate: c, cluster, .. } = planned;
    let gpu = cluster.first().gpu();
    let (options, chosen, sensitivity, rests_on, warnings) = Default::default();
    Candidate {
        name: c.name.clone(),
        gpu: c.gpu.clone(),
        title: gpu.title.clone(),
        price: c.price,
        price_source: c.price_source.clone(),
        server: c.server,
        embodied_kg: c.embodied_kg,
        waiting: (waiting(gpu), waiting_source(gpu)),
        reason: None,
        site_bound: false,
        options,
        chosen,
        sensitivity,
        rests_on,
        warnings,
        surer: None,
    }
}

/// A candidate whose boards are predicted; `at`: its boards at other settings.
fn of_predicted(
    planned: Planned<'_>,
    predicted: Predicted<'_>,
    at: impl Fn(&[OperatingPoint]) -> Vec<Option<Board>>,
) -> Result<Candidate, Failure> {
    let Planned { file, candidate: c, cluster, .. } = planned;
    let gpu = cluster.first().gpu();
    let boards = predicted.boards.into_iter().enumerate().filter_map(|(i, board)| Some((i, board?)));
    let (places, mut boards): (Vec<usize>, Vec<Board>) = boards.unzip();
    let load = assumptions(file, c);
    let fleets: Vec<_> = boards.iter().map(|b| plan_fleet(b, &load, Scenario::Value)).collect();
    let why = reason(&fleets);
    let fleets: Vec<_> = fleets.into_iter().map(Result::ok).collect();
    let chosen = best(&fleets, file.minimise, file.site.site);
    let free = best(&fleets, file.minimise, None);
    let changes = match chosen {
        Some(i) => {
            for (laid, carriers) in predicted.languages.iter().zip(&mut boards[i].languages) {
                laid.changed(places[i], carriers)?;
            }
            let ends = moved(gpu, &boards[i]);
            let boards_there = at(&ends);
            let at = |end: usize| boards_there.get(end)?.as_ref();
            sensitivity(&boards[i], &load, [at(0), at(1)])
        }
        None => Vec::new(),
    };
    let options: Vec<AtSetting> = boards
        .iter()
        .zip(fleets)
        .map(|(board, value)| AtSetting {
            cap: board.cap,
            clock: board.clock,
            value,
            low: plan_fleet(board, &load, Scenario::Low).ok(),
            high: plan_fleet(board, &load, Scenario::High).ok(),
        })
        .collect();
    Ok(Candidate {
        sensitivity: changes,
        reason: chosen.is_none().then_some(why),
        site_bound: chosen != free,
        options,
        chosen,
        rests_on: predicted.rests_on,
        warnings: predicted.warnings,
        surer: predicted.surer.map(|(_, measured)| measured),
        ..without_fleets(planned)
    })
}

fn assumptions(file: &PlanFile, c: &CandidateFile) -> Assumptions {
    Assumptions {
        peak_per_s: file.peak_per_s,
        profile_per_s: file.profile_per_s.clone(),
        target: file.target,
        shares: file.networks.iter().map(|n| n.share).collect(),
        languages: file.languages.iter().map(|of| of.requests.clone()).collect(),
        server: c.server,
        site: file.site,
        headroom: Headroom { busiest: file.utilisation, spares: c.spares },
    }
}

/// The fleets of a plan's candidates, and the best of them; `made_by` says what made it.
///
/// # Errors
/// When a network, GPU or profile cannot be had.
pub fn plan(
    session: &Session,
    file: PlanFile,
    reading: &Reading,
    runner: &Runner,
    made_by: String,
) -> Result<Plan, Failure> {
    let networks = file.networks.iter().map(|n| session.network(&n.net, reading));
    let languages = file.languages.iter().map(|of| Language::read(session, of, reading));
    let (networks, languages) = (networks.collect::<Vec<_>>(), languages.collect::<Vec<_>>());
    let (precisions, runner) = (vec![file.precision], runner.clone());
    let request = Request { precisions, runner, ..Request::new("", "") };
    let gpus = file.candidates.iter().map(|c| session.gpu(&c.gpu).err());
    // All names that nothing is known of, at once; of each the first failure.
    let framework = session.framework(&request.runner, file.precision).err();
    let unknown = networks.iter().map(|n| n.as_ref().err().map(Failure::to_string));
    let unknown = unknown.chain(languages.iter().map(|l| l.as_ref().err().map(Failure::to_string)));
    let unknown = unknown.chain(gpus.chain([framework]).map(|failure| failure.map(|f| f.to_string())));
    let mut told: Vec<String> = Vec::new();
    unknown.flatten().for_each(|why| {
        if !told.contains(&why) {
            told.push(why)
        }
    });
    if told.len() > 1 {
        return Err(Failure::usage(told.join("; ")));
    }
    let networks = networks.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let languages = languages.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let made = |c: &CandidateFile| {
        let cluster = session.cluster(&request, &Team::of(1, &c.gpu), file.precision, Mode::Inference)?;
        let on = |language| Ok((language, Language::cluster(language, session, &request.runner, &c.gpu)?));
        let languages = languages.iter().map(on).collect::<Result<Vec<_>, Failure>>()?;
        let (cluster, languages) = (&cluster, &languages[..]);
        Ok(candidate(Planned { file: &file, candidate: c, networks: &networks, cluster, languages }))
    };
    let candidates: Vec<Result<Candidate, Failure>> = file.candidates.par_iter().map(made).collect();
    let candidates = candidates.into_iter().collect::<Result<Vec<_>, _>>()?;
    let chosen: Vec<_> = candidates.iter().map(|c| c.chosen.and_then(|i| c.options[i].value.clone())).collect();
    let winner = best(&chosen, file.minimise, None::<Watts>);
    let framework = session.framework(&request.runner, file.precision)?;
    let launch = request.runner.launch.unwrap_or_else(|| framework.usual_launch());
    Ok(Plan { file, launch, candidates, winner, command: made_by, figures: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::precision::Precision;
    use joulecast_model::catalog;
    use joulecast_model::step::predict::Predictor;

    #[test]
    fn steps_end_where_memory_does_by_a_step_over_batches_and_one_by_one() {
        let framework = catalog::framework("cudnn").expect("shipped");
        let predictor = Predictor::shipped(catalog::gpu("p4").expect("shipped"), framework);
        let network = catalog::network("vgg16").expect("shipped");
        let single = predictor.shape(&network, 1, Precision::Fp32, &[]).expect("shaped");
        let batches = batches(1024);
        let over = predictor.over_batches(&single, Mode::Inference).expect("predicts").expect("the same kernels");
        let shaped: Vec<_> = batches.iter().map(|batch| single.with_batch(*batch).expect("shaped")).collect();
        let alone: Vec<_> = shaped.iter().map(|s| predictor.step(s, Mode::Inference).expect("predicts")).collect();
        let of = |over, alone, most: usize| Steps::of(over, alone, &batches[..most]);
        let [by_over, one_by_one] = [of(Some(&over), &alone[..1], batches.len()), of(None, &alone[..], batches.len())]
            .map(|steps| steps.expect("predicts"));
        let times = |steps: &Steps<'_, '_>| -> Vec<(u64, f64)> {
            let time = |(batch, prepared): &(u64, Prepared<'_, '_>)| {
                (*batch, prepared.at(OperatingPoint::default()).expect("predicts").time.value.get())
            };
            steps.prepared.iter().map(time).collect()
        };
        let (found, plain) = (times(&by_over), times(&one_by_one));
        assert!(found.len() > 20 && found.len() < batches.len(), "{found:?}");
        assert_eq!(found.len(), plain.len());
        for ((batch, time), (plain_batch, plain)) in found.iter().zip(&plain) {
            assert!(batch == plain_batch && (time / plain - 1.0).abs() < 1e-9, "{batch}: {time} {plain}");
        }
        assert!(!by_over.more_fit && !one_by_one.more_fit && by_over.needed.is_none());
        assert!(of(Some(&over), &alone[..1], 3).expect("predicts").more_fit);
    }
}
