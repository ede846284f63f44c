//! Networks on GPUs side by side, which GPU is best for what, and budgets turned round.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::request::{Batch, Request, Team, only};
use crate::session::{Session, once};
use crate::source::Source;
use joulecast_ask::budget::{Bound, Budget, largest_batch};
use joulecast_ask::comparison::{Entry, Largest};
use joulecast_model::base::name::Name;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::predictor::NetworkPrediction;
use joulecast_reports::compare::{Comparison, LeftOut};
use joulecast_reports::warnings::words;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// No larger batch is tried for a budget.
const LARGEST_BATCH: u64 = 4096;
/// So many batches of a network are kept with their shapes at most.
const MOST_SHAPED: usize = 8;

/// Texts, of which those that are alike are one.
#[derive(Default)]
struct Texts(HashSet<Name>);

impl Texts {
    fn one(&mut self, text: String) -> Name {
        if let Some(known) = self.0.get(text.as_str()) {
            return known.clone();
        }
        let name = Name::from(text);
        self.0.insert(name.clone());
        name
    }
}

/// What is compared besides steps.
#[derive(Clone, Debug)]
pub struct Question {
    /// Whole answers of so many tokens, instead of steps.
    pub generate: Option<u64>,
    /// Weight of the error in the energy-precision ratio.
    pub alpha: f64,
    /// What a GPU costs per hour, by name or file, in any currency.
    pub prices: Vec<(String, f64)>,
    /// What a batch may take; where it says something, the largest within it is looked for.
    pub budget: Budget,
}

impl Default for Question {
    /// Steps side by side.
    fn default() -> Self {
        Self { generate: None, alpha: 1.0, prices: Vec::new(), budget: Budget::default() }
    }
}

/// A team with its price per hour.
struct Priced {
    name: Name,
    cluster: Cluster,
    price: Option<f64>,
}

/// A network on a team at any batch.
struct Pair<'a> {
    request: &'a Request,
    question: &'a Question,
    on: &'a Priced,
    source: &'a Source,
    network: &'a Name,
    /// The network with its shapes, which no team changes, by the samples of each GPU.
    shaped: &'a RefCell<BTreeMap<u64, Arc<ShapedNetwork>>>,
}

impl Pair<'_> {
    fn at(&self, batch: u64) -> Result<NetworkPrediction, Failure> {
        let (cluster, point) = (&self.on.cluster, self.request.point);
        match self.question.generate {
            Some(tokens) => Ok(cluster.answer(self.source, tokens, batch, point)?.total),
            None => cluster.step_by(self.source, Batch::Samples(batch), point, |each| {
                if let Some(known) = self.shaped.borrow().get(&each) {
                    return Ok(known.clone());
                }
                let shaped = Arc::new(cluster.shape(self.source, each)?);
                let mut known = self.shaped.borrow_mut();
                if known.len() < MOST_SHAPED {
                    known.insert(each, shaped.clone());
                }
                Ok(shaped)
            }),
        }
    }

    fn entry(&self, prediction: &NetworkPrediction) -> Entry {
        let error = self.source.network.published.top1_error;
        Entry::new((self.network, &self.on.name), prediction, error, self.question.alpha, self.on.price)
    }

    /// The largest batch within the budget, of those asked for or of all.
    fn largest(&self, batches: &[u64]) -> Result<Largest, Failure> {
        let broken = |batch| Ok::<_, Failure>(self.question.budget.broken(&self.at(batch)?));
        let (batch, stopped) = if batches.is_empty() {
            largest_batch(LARGEST_BATCH, broken)?
        } else {
            let mut asked = batches.to_vec();
            asked.sort_unstable();
            let (mut best, mut stopped) = (None, Bound::Tried);
            for batch in asked {
                match broken(batch)? {
                    None => (best, stopped) = (Some(batch), Bound::Tried),
                    Some(bound) if stopped == Bound::Tried => stopped = bound,
                    Some(_) => {}
                }
            }
            (best, stopped)
        };
        let entry = match batch {
            Some(batch) => Some(self.entry(&self.at(batch)?)),
            None => None,
        };
        Ok(Largest { network: self.network.clone(), gpu: self.on.name.clone(), entry, stopped })
    }
}

/// What each team costs, whatever its GPUs are called there.
///
/// # Errors
/// When a price is of a GPU that is not compared, or two are of one.
fn priced(session: &Session, request: &Request, prices: &[(String, f64)]) -> Result<Vec<(String, f64)>, Failure> {
    let kinds = request.teams.iter().flat_map(|team| &team.kinds);
    let compared = kinds.map(|(_, gpu)| session.identity(gpu)).collect::<Result<Vec<_>, _>>()?;
    let mut known: Vec<(String, f64)> = Vec::new();
    for (typed, price) in prices {
        let gpu = session.identity(typed)?;
        if !compared.contains(&gpu) {
            return Err(Failure::usage(format_args!("--price names {typed}, which --gpu does not")));
        }
        if known.iter().any(|(name, _)| *name == gpu) {
            return Err(Failure::usage(format_args!("--price names {typed} more than once, however it is written")));
        }
        known.push((gpu, *price));
    }
    Ok(known)
}

/// A team and what predicts on it.
type Able = (Team, Cluster);

/// The teams that do what is asked, and those that do not, with why. Where none does, the first one's reason is an error, here
/// or of its prediction.
fn able(session: &Session, request: &Request) -> Result<(Vec<Able>, Vec<LeftOut>), Failure> {
    let (precision, mode) = (*only(&request.precisions, "precision")?, *only(&request.modes, "mode")?);
    let (mut able, mut unable, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for team in session.teams(&request.teams)? {
        let mut leave = |why: String| left_out.push(LeftOut { gpu: team.name.clone(), why });
        match session.cluster(request, &team, precision, mode) {
            Ok(cluster) if cluster.gpus().iter().all(|gpu| gpu.computes_in(precision).is_some()) => {
                able.push((team, cluster));
            }
            Ok(cluster) => {
                leave(format!("no units that compute in {precision}"));
                unable.push(Ok((team, cluster)));
            }
            Err(Failure::Usage(why)) => {
                let why = Failure::Usage(why);
                leave(why.to_string());
                unable.push(Err(why));
            }
            Err(other) => return Err(other),
        }
    }
    match unable.into_iter().next().filter(|_| able.is_empty()) {
        Some(first) => Ok((vec![first?], Vec::new())),
        None => Ok((able, left_out)),
    }
}

fn title(request: &Request, question: &Question, first: &Cluster) -> String {
    let framework = first.first().framework();
    let launch = request.runner.launch.unwrap_or_else(|| framework.usual_launch());
    let mut title = format!("{} {}, {} profile ({launch})", first.precision, first.mode, framework.name);
    let mut also = |text: Option<String>| title.extend(text.map(|t| format!(", {t}")));
    also(framework.algorithm().map(|a| format!("convolutions by {}", a.name())));
    also(request.optimizer.map(|o| o.name().to_string()));
    also(request.reading.sequence.map(|n| format!("{n} tokens")));
    also(question.generate.map(|n| format!("answers of {n} tokens")));
    also(request.input_rate.as_ref().map(|rate| format!("fed at {rate}")));
    title
}

/// Every network on every team at every batch.
///
/// # Errors
/// When what is asked is wrong, or a step cannot be predicted.
pub fn compare(session: &Session, request: &Request, question: &Question) -> Result<Comparison, Failure> {
    let request = &session.settled(request)?;
    let budget = question.budget;
    let batch = |batch: &Batch| batch.samples().ok_or_else(|| Failure::usage("compare needs numbers as --batch"));
    let batches = request.batches.iter().map(batch).collect::<Result<Vec<_>, _>>()?;
    if batches.is_empty() && budget.is_free() {
        let why = "give --batch, or a budget: --target-latency, --energy-budget or --max-power";
        return Err(Failure::usage(why));
    }
    if budget.sure && budget.is_free() {
        let why = "--sure is about budgets: give --target-latency, --energy-budget or --max-power";
        return Err(Failure::usage(why));
    }
    let shared = request.teams.iter().any(|team| team.gpus() > 1);
    if batches.is_empty() && shared && !request.weak {
        return Err(Failure::usage("not every batch divides among GPUs: give --batch, or --scaling weak"));
    }
    let prices = priced(session, request, &question.prices)?;
    let networks = session.networks_in_turn(&request.networks, &request.reading)?;
    let mut on = Vec::new();
    let (able, left_out) = able(session, request)?;
    for (team, cluster) in able {
        // Of all GPUs of a team; where one has no price, neither has the team.
        let each = team.kinds.iter().map(|(count, gpu)| {
            let gpu = session.identity(gpu)?;
            Ok(prices.iter().find(|(name, _)| *name == gpu).map(|(_, price)| *count as f64 * price))
        });
        let price = each.collect::<Result<Option<Vec<f64>>, Failure>>()?.map(|each| each.iter().sum());
        on.push(Priced { name: cluster.name.as_str().into(), cluster, price });
    }
    let batches = once(batches, "--batch", u64::to_string);
    let mut texts = Texts::default();
    let most = networks.len() * on.len() * batches.len();
    let (mut entries, mut notes, mut largest) = (Vec::with_capacity(most), Vec::with_capacity(most), Vec::new());
    for source in networks {
        let source = &*source?;
        let (shaped, network) = (RefCell::default(), source.network.name.as_str().into());
        for on in &on {
            let pair = Pair { request, question, on, source, network: &network, shaped: &shaped };
            for &batch in &batches {
                let prediction = pair.at(batch)?;
                entries.push(pair.entry(&prediction));
                notes.push(prediction.warnings.iter().map(|warning| texts.one(words(warning))).collect());
            }
            if !budget.is_free() {
                largest.push(pair.largest(&batches)?);
            }
        }
    }
    let first = on.first().ok_or_else(|| Failure::usage("no GPU to compare"))?;
    let title = title(request, question, &first.cluster);
    let budget = (!budget.is_free()).then_some(budget);
    Ok(Comparison { title, alpha: question.alpha, entries, notes, left_out, budget, largest })
}
