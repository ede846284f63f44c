//! Replicas side by side. Those that are alike take requests in turn, whichever of them has least to do.

use super::ServingError;
use super::replica::Replica;
use super::requests::Request;
use super::scheduler::{Limits, Progress};
use super::service::Target;
use super::simulate::{self, Book, Counted, Kept, Load, Part, Run, Served, check, saturated};
use joulecast_model::base::order::sort_by;
use joulecast_model::base::units::{Seconds, Watts};

/// What replicas did, each for itself, so far.
#[derive(Default)]
pub(super) struct SideBySide {
    books: Vec<(Book, Book)>,
    /// Sequences that gave their cache back.
    pub preemptions: u64,
}

/// A span of time.
pub(super) type Span = (Seconds, Seconds);

/// From the arrival of the first request that counts to that of the first one after them, or to an end.
pub(super) fn span_of(requests: &[Request], of: &Counted, end: Seconds) -> Span {
    let at = |i: usize| requests.get(i).map_or(end, |r| r.at);
    (at(of.from), at(of.until))
}

impl SideBySide {
    pub fn add(&mut self, run: &Run) {
        self.preemptions += run.preemptions;
        self.books.push((run.whole, run.counted));
    }

    /// The books of all: sums, but for the spans. Each of the replicas waits, with so many watts, before its first request and
    /// after its last.
    pub fn books(&self, (waiting, replicas): (Watts, usize), whole: Span, counted: Span) -> (Book, Book) {
        let merged = |pick: fn(&(Book, Book)) -> &Book, (from, until): Span| {
            let (span, mut sum) = (until - from, Book::default());
            self.books.iter().for_each(|books| sum.add(pick(books), 1.0));
            let beside = (span * replicas as f64 - sum.span).max(Seconds::ZERO);
            sum.energy.idle += waiting * beside;
            Book { span, ..sum }
        };
        (merged(|books| &books.0, whole), merged(|books| &books.1, counted))
    }
}

/// Whose turn a request is: of those that come at their times every so many-th, of users, who keep to their replica, those of
/// every so many-th.
fn turn(number: usize, load: Load, copies: usize) -> usize {
    match load {
        Load::Open => number % copies,
        Load::Closed(users) => number % users.max(1) % copies,
    }
}

/// The users of a replica.
fn users_of(copy: usize, load: Load, copies: usize) -> Load {
    match load {
        Load::Open => Load::Open,
        Load::Closed(users) => Load::Closed((users.max(1) + copies - 1 - copy) / copies),
    }
}

/// Simulates requests on so many replicas that are alike until all are answered.
///
/// # Errors
/// When a request does not fit in the cache of one, or there is none.
pub fn simulate_copies(
    replica: &impl Replica,
    requests: &[Request],
    load: Load,
    limits: &Limits,
    copies: usize,
) -> Result<Run, ServingError> {
    simulate_filled(replica, requests, load, limits, (copies, 0))
}

/// As [`simulate_copies`], after so many requests that fill them.
pub(super) fn simulate_filled(
    replica: &impl Replica,
    requests: &[Request],
    load: Load,
    limits: &Limits,
    (copies, filling): (usize, usize),
) -> Result<Run, ServingError> {
    let run = simulate_while(replica, requests, load, limits, (copies, filling), |_, _, _| false)?;
    run.ok_or(ServingError::Nothing)
}

/// As [`simulate_filled`] of requests at their times, as long as they may keep a target: nothing where they do not.
pub(super) fn simulate_kept(
    replica: &impl Replica,
    requests: &[Request],
    limits: &Limits,
    (target, filling): (&Target, usize),
    copies: usize,
) -> Result<Option<Run>, ServingError> {
    let mut kept = Kept::of(target, requests, filling);
    let of = Counted::after(filling, requests.len(), Load::Open);
    simulate_while(replica, requests, Load::Open, limits, (copies, filling), |numbers, served, progress| {
        let is_counted = |own: &&usize| (of.from..of.until).contains(&numbers.map_or(**own, |all| all[**own]));
        // Once one is missed nothing else is asked.
        let mut first = progress.first.iter().filter(is_counted);
        let mut last = progress.finished.iter().filter(is_counted);
        first.any(|&i| kept.is_missed(0, Some(served[i].to_first())))
            || last.any(|&i| kept.is_missed(1, served[i].per_token()))
    })
}

/// The numbers among all of a replica's requests, where it has not all of them.
type Numbers<'n> = Option<&'n [usize]>;

/// As [`simulate_filled`], until the progress of a step of one of them says that it is enough: nothing then.
fn simulate_while(
    replica: &impl Replica,
    requests: &[Request],
    load: Load,
    limits: &Limits,
    (copies, filling): (usize, usize),
    mut is_enough: impl FnMut(Numbers<'_>, &[Served], &Progress) -> bool,
) -> Result<Option<Run>, ServingError> {
    check(requests, limits)?;
    if copies <= 1 {
        let part = Part { filling, ..Part::default() };
        let is_enough = |served: &[Served], progress: &Progress| is_enough(None, served, progress);
        return simulate::simulate_while(replica, requests, load, limits, part, is_enough);
    }
    let of = Counted::after(filling, requests.len(), load);
    let span = match load {
        Load::Open => span_of(requests, &of, Seconds::new(f64::MAX)),
        Load::Closed(_) => {
            // When users send what counts is known once they have.
            let Some((served, _)) = each(replica, requests, load, limits, (copies, None), &mut is_enough)? else {
                return Ok(None);
            };
            let arrived = |i: usize| served.get(i).map_or(Seconds::new(f64::MAX), |s| s.arrived);
            (arrived(of.from), arrived(of.until))
        }
    };
    let Some((served, side)) = each(replica, requests, load, limits, (copies, Some(span)), &mut is_enough)? else {
        return Ok(None);
    };
    let start = requests[0].at;
    let end = served.iter().fold(start, |end, s| end.max(s.last));
    let counted = (span.0.min(end), span.1.min(end));
    let (whole, counted) = side.books((replica.waiting(), copies), (start, end), counted);
    Ok(Some(Run { served, whole, counted, of, replicas: copies, preemptions: side.preemptions }))
}

/// Each of the replicas with its requests; what became of all, in the order of arrival. Nothing where it is enough before.
fn each(
    replica: &impl Replica,
    requests: &[Request],
    load: Load,
    limits: &Limits,
    (copies, span): (usize, Option<Span>),
    is_enough: &mut impl FnMut(Numbers<'_>, &[Served], &Progress) -> bool,
) -> Result<Option<(Vec<Served>, SideBySide)>, ServingError> {
    let (mut served, mut side) = (Vec::with_capacity(requests.len()), SideBySide::default());
    for copy in 0..copies {
        let own = |(i, request): (usize, &Request)| (turn(i, load, copies) == copy).then_some((i, *request));
        let (numbers, own): (Vec<usize>, Vec<Request>) = requests.iter().enumerate().filter_map(own).unzip();
        if own.is_empty() {
            continue;
        }
        // Users begin at once, whichever replica is theirs.
        let users = users_of(copy, load, copies);
        let own = match load {
            Load::Open => own,
            Load::Closed(_) => own.into_iter().map(|r| Request { at: requests[0].at, ..r }).collect(),
        };
        let part = Part { span, ..Part::default() };
        let is_enough = |served: &[Served], progress: &Progress| is_enough(Some(&numbers), served, progress);
        let Some(run) = simulate::simulate_while(replica, &own, users, limits, part, is_enough)? else {
            return Ok(None);
        };
        served.extend(numbers.into_iter().zip(run.served.iter().copied()));
        side.add(&run);
    }
    sort_by(&mut served, |a, b| a.1.arrived.get().total_cmp(&b.1.arrived.get()).then(a.0.cmp(&b.0)));
    Ok(Some((served.into_iter().map(|(_, s)| s).collect(), side)))
}

/// Requests a second that so many replicas carry at most.
///
/// # Errors
/// As [`simulate_copies`].
pub fn saturated_copies(
    replica: &impl Replica,
    requests: &[Request],
    limits: &Limits,
    copies: usize,
) -> Result<f64, ServingError> {
    Ok(saturated(replica, requests, limits)? * copies.max(1) as f64)
}
