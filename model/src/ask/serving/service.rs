//! A replica and what is asked of it: latencies and energy at a rate or of so many users, and the highest rate that keeps a
//! target.

use super::ServingError;
use super::copies::{saturated_copies, simulate_copies};
use super::pools::Pools;
use super::replica::Replica;
use super::requests::Demand;
use super::scheduler::Limits;
use super::simulate::{Load, simulate_kept};
use super::summary::{Summary, Which};
use super::times::{StepTimes, Times};
use crate::base::units::Seconds;
use crate::step::predictor::Estimate;

/// Latencies that are to be kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Until the first token.
    pub to_first: Option<Seconds>,
    /// For each token after it.
    pub per_token: Option<Seconds>,
    /// By which requests.
    pub which: Which,
}

impl Target {
    /// Whether it is kept; answers of one token have no time for each further one.
    pub fn is_kept(&self, summary: &Summary) -> bool {
        let within = |limit: Option<Seconds>, found: Option<Seconds>| match (limit, found) {
            (Some(limit), Some(found)) => found <= limit,
            _ => true,
        };
        within(self.to_first, Some(summary.to_first.at(self.which)))
            && within(self.per_token, summary.per_token.map(|q| q.at(self.which)))
    }
}

/// A replica under a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// Requests that come in a second; none of users, who wait for their answers.
    pub rate: Option<f64>,
    /// Requests a second that it carries at most: the least, where all steps take as long as their 95 % quantiles.
    pub most: Estimate<f64>,
    /// What is most likely; nothing where more comes than it carries, for then waits grow as long as requests come.
    pub value: Option<Summary>,
    /// The same if all steps take time and energy of their 5 % quantiles.
    pub low: Option<Summary>,
    /// And of their 95 % quantiles.
    pub high: Option<Summary>,
}

impl Outlook {
    /// Whether more comes than it carries, most likely.
    pub fn is_overloaded(&self) -> bool {
        self.rate.is_some_and(|rate| rate >= self.most.value)
    }
}

/// Replicas that share what comes.
#[derive(Clone, Copy, Debug)]
pub enum Group<'a> {
    /// So many that are alike, in turn, at least one.
    Alike(usize),
    /// Some for prompts and others for answers.
    Apart(&'a Pools),
}

impl Group<'_> {
    /// One does everything.
    pub const ONE: Self = Self::Alike(1);
}

/// A replica, and requests to be asked for at any rate.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// What its steps take.
    pub times: &'a StepTimes,
    /// Its scheduler's.
    pub limits: Limits,
    /// What comes.
    pub demand: &'a Demand,
    /// Which replicas there are.
    pub group: Group<'a>,
}

/// Steps that always take as long, and requests to be asked for at any rate.
#[derive(Clone, Copy, Debug)]
pub struct Steps<'a, R> {
    /// What takes them.
    pub replica: &'a R,
    /// Its scheduler's.
    pub limits: &'a Limits,
    /// What comes.
    pub demand: &'a Demand,
    /// Which replicas there are.
    pub group: Group<'a>,
}

/// Rates are found to this share of what a replica carries.
const RESOLUTION: f64 = 1e-3;
/// A share of what it carries at which hardly a request meets another.
const LONELY: f64 = 1e-3;

impl<R: Replica> Steps<'_, R> {
    /// Requests a second that are carried at most.
    ///
    /// # Errors
    /// When a request does not fit in the cache.
    pub fn most(&self) -> Result<f64, ServingError> {
        let requests = self.demand.requests();
        match self.group {
            Group::Apart(pools) => pools.saturated(self.replica, requests, self.limits),
            Group::Alike(copies) => saturated_copies(self.replica, requests, self.limits, copies),
        }
    }

    /// What comes of so many requests a second; nothing where that is no less than `most`, what is carried.
    ///
    /// # Errors
    /// As [`Self::most`].
    pub fn at(&self, rate: f64, most: f64) -> Result<Option<Summary>, ServingError> {
        if rate >= most {
            return Ok(None);
        }
        let requests = self.demand.at_rate(rate);
        let run = match self.group {
            Group::Apart(pools) => pools.simulate(self.replica, &requests, self.limits)?,
            Group::Alike(copies) => simulate_copies(self.replica, &requests, Load::Open, self.limits, copies)?,
        };
        Ok(Summary::of(&run))
    }

    /// The highest rate that keeps a target, by halving, to a share of `most`, what is carried; `None` where not even a lone
    /// request keeps it.
    ///
    /// # Errors
    /// As [`Self::most`].
    pub fn highest(&self, target: &Target, most: f64, resolution: f64) -> Result<Option<f64>, ServingError> {
        Ok(self.highest_kept(target, most, resolution)?.map(|(rate, _)| rate))
    }

    /// The same with what comes of that rate.
    pub(crate) fn highest_kept(
        &self,
        target: &Target,
        most: f64,
        resolution: f64,
    ) -> Result<Option<(f64, Summary)>, ServingError> {
        let (mut low, mut high) = (LONELY * most, most);
        let Some(mut kept) = self.kept(target, low, most)? else { return Ok(None) };
        while high - low > resolution * most {
            let middle = low + (high - low) / 2.0;
            match self.kept(target, middle, most)? {
                Some(summary) => (low, kept) = (middle, summary),
                None => high = middle,
            }
        }
        Ok(Some((low, kept)))
    }

    /// As [`Self::at`]; nothing where a target is not kept.
    fn kept(&self, target: &Target, rate: f64, most: f64) -> Result<Option<Summary>, ServingError> {
        let summary = match self.group {
            Group::Alike(1) if rate < most => {
                let run = simulate_kept(self.replica, &self.demand.at_rate(rate), self.limits, target)?;
                run.as_ref().and_then(Summary::of)
            }
            _ => self.at(rate, most)?,
        };
        Ok(summary.filter(|summary| target.is_kept(summary)))
    }
}

impl Service<'_> {
    fn with<'s>(&'s self, times: &'s Times) -> Steps<'s, Times> {
        Steps { replica: times, limits: &self.limits, demand: self.demand, group: self.group }
    }

    fn carries(&self) -> Result<Estimate<f64>, ServingError> {
        let most = |times| self.with(times).most();
        let StepTimes { low, value, high, .. } = self.times;
        Ok(Estimate { value: most(value)?, p05: most(high)?, p95: most(low)? })
    }

    /// Requests that come at so many a second, whatever the replica does.
    ///
    /// # Errors
    /// When one does not fit in the cache.
    pub fn open(&self, rate: f64) -> Result<Outlook, ServingError> {
        let (StepTimes { low, value, high, .. }, most) = (self.times, self.carries()?);
        Ok(Outlook {
            rate: Some(rate),
            most,
            value: self.with(value).at(rate, most.value)?,
            low: self.with(low).at(rate, most.p95)?,
            high: self.with(high).at(rate, most.p05)?,
        })
    }

    /// So many users of replicas that are alike, each of whom sends the next request when the last one is answered.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn closed(&self, users: usize) -> Result<Outlook, ServingError> {
        let copies = match self.group {
            Group::Alike(copies) => copies,
            Group::Apart(_) => return Err(ServingError::Apart),
        };
        let summary = |times: &Times| {
            let run = simulate_copies(times, self.demand.requests(), Load::Closed(users), &self.limits, copies)?;
            Ok::<_, ServingError>(Summary::of(&run))
        };
        let StepTimes { low, value, high, .. } = self.times;
        let most = self.carries()?;
        Ok(Outlook { rate: None, most, value: summary(value)?, low: summary(low)?, high: summary(high)? })
    }

    /// The highest rate that keeps a target, all steps being as is most likely, by halving; `None` where not even a lone request
    /// keeps it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn highest(&self, target: &Target) -> Result<Option<f64>, ServingError> {
        let steps = self.with(&self.times.value);
        steps.highest(target, steps.most()?, RESOLUTION)
    }
}
