//! Requests through one replica, step by step.

use super::ServingError;
use super::pipeline;
use super::replica::{Replica, StepCost, StepWork};
use super::requests::Request;
use super::scheduler::{Limits, Progress, Scheduler};
use super::service::Target;
use joulecast_model::base::units::{Joules, Seconds};
use joulecast_model::step::framework::Scheduling;

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// At their times, whatever the replica does.
    Open,
    /// Of so many users, each of whom sends the next one when the last one is answered; their times say nothing.
    Closed(usize),
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// When it came.
    pub arrived: Seconds,
    /// When its first token was there.
    pub first: Seconds,
    /// When its last one was.
    pub last: Seconds,
    /// Tokens of its answer.
    pub answer: u64,
}

impl Served {
    /// Until the first token.
    pub fn to_first(&self) -> Seconds {
        self.first - self.arrived
    }

    /// Until the last token.
    pub fn to_last(&self) -> Seconds {
        self.last - self.arrived
    }

    /// Time of each token after the first; none of an answer of one.
    pub fn per_token(&self) -> Option<Seconds> {
        (self.answer > 1).then(|| (self.last - self.first) / (self.answer - 1) as f64)
    }
}

/// Energy by what it was for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Split {
    /// Prompts, and what is computed again after preemption.
    pub prefill: Joules,
    /// Answers.
    pub decode: Joules,
    /// Waiting: for the engine in a step, and for requests.
    pub idle: Joules,
}

impl Split {
    /// All of it.
    pub fn total(&self) -> Joules {
        self.prefill + self.decode + self.idle
    }
}

/// What happened in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Book {
    /// How long it was.
    pub span: Seconds,
    /// Of that, time in steps.
    pub busy: Seconds,
    /// Steps.
    pub steps: f64,
    /// Energy.
    pub energy: Split,
    /// Tokens of prompts that were computed, those computed again included.
    pub prompt_tokens: f64,
    /// Tokens of answers.
    pub answer_tokens: f64,
    /// Requests that were answered.
    pub finished: f64,
    /// Sequences in steps, times time.
    pub running: f64,
    /// Sequences that wait, times time.
    pub waiting: f64,
    /// Blocks in use, times time.
    pub blocks: f64,
}

impl Book {
    /// A share of another one is added: of each of its amounts.
    pub(super) fn add(&mut self, other: &Self, share: f64) {
        self.span += other.span * share;
        self.busy += other.busy * share;
        self.steps += other.steps * share;
        self.energy.prefill += other.energy.prefill * share;
        self.energy.decode += other.energy.decode * share;
        self.energy.idle += other.energy.idle * share;
        self.prompt_tokens += other.prompt_tokens * share;
        self.answer_tokens += other.answer_tokens * share;
        self.finished += other.finished * share;
        self.running += other.running * share;
        self.waiting += other.waiting * share;
        self.blocks += other.blocks * share;
    }
}

/// Requests by their order of arrival that count: neither those that found the replica empty nor those after which no more
/// came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The first.
    pub from: usize,
    /// The first one after them.
    pub until: usize,
}

/// One of so many requests at each end does not count.
const ENDS: usize = 10;
/// Nor at the beginning more than one of so many, however long it takes until a replica is full.
const FILLING: usize = 4;

impl Counted {
    /// Of users who begin at once: with fewer requests for each the first and the last of each count, too.
    pub const FEWEST_OF_USER: usize = 4;
    /// The share of requests that counts of a load for which the tenths at both ends are enough.
    pub const SHARE_BEFORE_LAST: f64 = 1.0 - 1.0 / ENDS as f64;

    /// All but the first and the last tenth; of users that begin at once, at least the first and the last request of each
    /// where there are [`Self::FEWEST_OF_USER`] for each.
    pub fn of(requests: usize, load: Load) -> Self {
        let ends = match load {
            Load::Closed(users) if requests >= Self::FEWEST_OF_USER * users => users.max(requests / ENDS),
            _ => requests / ENDS,
        };
        Self { from: ends, until: requests - ends }
    }

    /// The same, after so many that fill the replica, as far as enough are left.
    pub fn after(filling: usize, requests: usize, load: Load) -> Self {
        let of = Self::of(requests, load);
        Self { from: of.from.max(filling.min(requests / FILLING)), ..of }
    }
}

/// What came out of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Every request, in the order of arrival.
    pub served: Vec<Served>,
    /// From the first request's arrival to the last token.
    pub whole: Book,
    /// From the arrival of the first request that counts to that of the first one after them.
    pub counted: Book,
    /// Those that count.
    pub of: Counted,
    /// Replicas that worked side by side; books are their sums, but for the span.
    pub replicas: usize,
    /// Sequences that gave their cache back, of all requests.
    pub preemptions: u64,
}

/// What is being written down.
#[derive(Default)]
pub(super) struct Books {
    pub whole: Book,
    pub counted: Book,
    /// The span that counts, as far as it is known.
    pub from: Option<Seconds>,
    pub until: Option<Seconds>,
}

impl Books {
    /// Something that happened evenly from `start` on.
    pub fn add(&mut self, start: Seconds, entry: &Book) {
        self.whole.add(entry, 1.0);
        let end = start + entry.span;
        let Some(from) = self.from.filter(|from| *from < end) else { return };
        let from = from.max(start);
        let until = self.until.unwrap_or(end).min(end);
        if until > from {
            self.counted.add(entry, (until - from) / entry.span);
        }
    }
}

/// Requests on their way to a scheduler.
pub(super) struct Coming<'r> {
    requests: &'r [Request],
    load: Load,
    cached: bool,
    /// Which of them count.
    of: Counted,
    /// How many came.
    come: usize,
    /// Users who may send one now.
    users: usize,
}

impl<'r> Coming<'r> {
    pub fn new(requests: &'r [Request], load: Load, part: Part, books: &mut Books) -> Self {
        let of = Counted::after(part.filling, requests.len(), load);
        let users = match load {
            Load::Open => usize::MAX,
            Load::Closed(users) => users.max(1),
        };
        if load == Load::Open {
            let at = |i: usize| requests.get(i).map(|r| r.at);
            (books.from, books.until) = (at(of.from), at(of.until));
        }
        if let Some((from, until)) = part.span {
            (books.from, books.until) = (Some(from), Some(until));
        }
        Self { requests, load, cached: part.cached, of, come: 0, users }
    }

    /// Which of them count.
    pub fn counted(&self) -> Counted {
        self.of
    }

    /// The next one.
    pub fn next(&self) -> Option<&'r Request> {
        self.requests.get(self.come)
    }

    /// When the next one comes; unknown of users.
    pub fn next_at(&self) -> Option<Seconds> {
        self.next().filter(|_| self.load == Load::Open).map(|r| r.at)
    }

    /// Those who are there by now.
    pub fn admit(&mut self, now: Seconds, books: &mut Books, served: &mut Vec<Served>, scheduler: &mut Scheduler) {
        let is_open = self.load == Load::Open;
        while let Some(request) = self.next().filter(|r| self.users > 0 && (!is_open || r.at <= now)) {
            let arrived = if is_open { request.at } else { now };
            // Of users; other times are known.
            if self.come == self.of.from && books.from.is_none() {
                books.from = Some(arrived);
            }
            if self.come == self.of.until && books.until.is_none() {
                books.until = Some(arrived);
            }
            let first = if self.cached { arrived } else { Seconds::ZERO };
            served.push(Served { arrived, first, last: Seconds::ZERO, answer: request.answer });
            scheduler.add(request, self.cached);
            self.come += 1;
            self.users = self.users.saturating_sub(usize::from(!is_open));
        }
    }

    /// So many were answered.
    pub fn answered(&mut self, requests: usize) {
        if self.load != Load::Open {
            self.users += requests;
        }
    }
}

/// Whether requests can be served at all, one by one.
///
/// # Errors
/// When one does not fit in the cache, or its prompt in a step that has to hold it, or there is none.
pub fn check(requests: &[Request], limits: &Limits) -> Result<(), ServingError> {
    if requests.is_empty() || limits.tokens == 0 || limits.sequences == 0 || limits.block == 0 {
        return Err(ServingError::Nothing);
    }
    let longest = requests.iter().map(|r| r.prompt).max().unwrap_or(0);
    // SGLang takes a longer one alone.
    let alone = limits.rule == Scheduling::PromptsFirst;
    if !alone && !limits.chunked && longest > limits.tokens {
        return Err(ServingError::Prompt { tokens: longest, most: limits.tokens });
    }
    let capacity = limits.capacity();
    match requests.iter().map(|r| r.prompt + r.answer).max() {
        Some(tokens) if tokens > capacity => Err(ServingError::Cache { tokens, capacity }),
        _ => Ok(()),
    }
}

/// Simulates requests on a replica until all are answered.
///
/// # Errors
/// Those of [`check`].
pub fn simulate(
    replica: &impl Replica,
    requests: &[Request],
    load: Load,
    limits: &Limits,
) -> Result<Run, ServingError> {
    simulate_part(replica, requests, load, limits, Part::default())
}

/// Latencies of which no more than some may be too long.
pub(super) struct Kept {
    /// Those until the first token, and of each token after it: how long they may be, and how many of longer ones are too many.
    limits: [Option<(Seconds, usize)>; 2],
    missed: [usize; 2],
}

impl Kept {
    /// So that requests that come may keep a target, after so many that do not count.
    pub fn of(target: &Target, requests: &[Request], filling: usize) -> Self {
        let Counted { from, until } = Counted::after(filling, requests.len(), Load::Open);
        let counted = requests.get(from..until).unwrap_or_default();
        let many = |limit: Option<Seconds>, of: usize| Some((limit?, target.which.too_many(of)?));
        let several = counted.iter().filter(|r| r.answer > 1).count();
        let limits = [many(target.to_first, counted.len()), many(target.per_token, several)];
        Self { limits, missed: [0; 2] }
    }

    /// Whether the target is missed whatever comes: so long it took, of the first or of the other kind.
    pub(super) fn is_missed(&mut self, kind: usize, took: Option<Seconds>) -> bool {
        let (Some((limit, many)), Some(took)) = (self.limits[kind], took) else { return false };
        self.missed[kind] += usize::from(took > limit);
        self.missed[kind] >= many
    }
}

/// What of the work and of the time a replica has that shares both with others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Part {
    /// Prompts come with their caches and the answers' first tokens, which another replica made; answers of one token have
    /// no place here.
    pub cached: bool,
    /// The span that counts, where requests do not say it.
    pub span: Option<(Seconds, Seconds)>,
    /// So many requests fill the replica before any counts, at least.
    pub filling: usize,
}

/// As [`simulate`], of a part.
pub(super) fn simulate_part(
    replica: &impl Replica,
    requests: &[Request],
    load: Load,
    limits: &Limits,
    part: Part,
) -> Result<Run, ServingError> {
    let run = simulate_while(replica, requests, load, limits, part, |_, _| false)?;
    run.ok_or(ServingError::Nothing)
}

/// As [`simulate_part`], until a step's progress says that it is enough: nothing then.
pub(super) fn simulate_while(
    replica: &impl Replica,
    requests: &[Request],
    load: Load,
    limits: &Limits,
    part: Part,
    mut is_enough: impl FnMut(&[Served], &Progress) -> bool,
) -> Result<Option<Run>, ServingError> {
    check(requests, limits)?;
    if replica.stages() > 1 {
        if limits.rule == Scheduling::PromptsFirst {
            return Err(ServingError::Staged);
        }
        return Ok(pipeline::simulate_while(replica, requests, load, limits, part, is_enough));
    }
    let mut books = Books::default();
    let mut coming = Coming::new(requests, load, part, &mut books);
    let of = coming.counted();
    let mut scheduler = Scheduler::new(*limits);
    let mut served: Vec<Served> = Vec::with_capacity(requests.len());
    let (mut work, mut progress) = (StepWork::default(), Progress::default());
    let mut now = requests[0].at;
    loop {
        coming.admit(now, &mut books, &mut served, &mut scheduler);
        if !scheduler.schedule(&mut work) {
            // Whatever comes next comes later, or never.
            let Some(next) = coming.next() else { break };
            let span = next.at - now;
            let idle = Split { idle: replica.waiting() * span, ..Split::default() };
            books.add(now, &Book { span, energy: idle, ..Book::default() });
            now = next.at;
            continue;
        }
        if scheduler.is_quiet() {
            // Whoever comes next ends it, and what counts begins and ends between entries.
            let ends = [coming.next_at(), books.from, books.until].into_iter().flatten().filter(|end| *end > now);
            let end = ends.fold(None, |first: Option<Seconds>, end| Some(first.map_or(end, |first| first.min(end))));
            let each = work.decodes as f64;
            let entry = |steps: u64, span: Seconds, energy: Split, blocks: f64| Book {
                span,
                busy: span,
                steps: steps as f64,
                energy,
                answer_tokens: each * steps as f64,
                running: each * span.get(),
                blocks,
                ..Book::default()
            };
            let (start, mut steps, mut energy, mut blocks) = (now, 0, Split::default(), 0.0);
            let mut last = None;
            replica.growing(&work, |StepCost { time, prefill, decode, waiting }| {
                let (begin, used) = (now, scheduler.used() as f64 * time.get());
                now += time;
                steps += 1;
                if end.is_some_and(|end| now >= end) {
                    last = Some((begin, entry(1, time, Split { prefill, decode, idle: waiting }, used)));
                    return false;
                }
                energy.prefill += prefill;
                energy.decode += decode;
                energy.idle += waiting;
                blocks += used;
                scheduler.stays_quiet(steps)
            });
            scheduler.grown(steps);
            let (until, before) = last.map_or((now, steps), |(begin, _)| (begin, steps - 1));
            if before > 0 {
                books.add(start, &entry(before, until - start, energy, blocks));
            }
            if let Some((begin, entry)) = last {
                books.add(begin, &entry);
            }
            continue;
        }
        let cost = replica.step(&work);
        let (start, used) = (now, scheduler.used());
        now += cost.time;
        scheduler.finish(&mut progress);
        progress.first.iter().for_each(|&number| served[number].first = now);
        progress.finished.iter().for_each(|&number| served[number].last = now);
        if is_enough(&served, &progress) {
            return Ok(None);
        }
        coming.answered(progress.finished.len());
        let span = cost.time;
        let entry = Book {
            span,
            busy: span,
            steps: 1.0,
            energy: Split { prefill: cost.prefill, decode: cost.decode, idle: cost.waiting },
            prompt_tokens: work.prompt_tokens() as f64,
            answer_tokens: progress.tokens as f64,
            finished: progress.finished.len() as f64,
            running: work.sequences() as f64 * span.get(),
            waiting: scheduler.waiting() as f64 * span.get(),
            blocks: used as f64 * span.get(),
        };
        books.add(start, &entry);
    }
    let Books { whole, counted, .. } = books;
    Ok(Some(Run { served, whole, counted, of, replicas: 1, preemptions: scheduler.preemptions() }))
}

/// Requests a second that a replica answers while there are always more than it can take: what it carries at most.
///
/// # Errors
/// Those of [`check`].
pub fn saturated(replica: &impl Replica, requests: &[Request], limits: &Limits) -> Result<f64, ServingError> {
    saturated_part(replica, requests, limits, false)
}

/// As [`saturated`], of prompts that come with their caches or do not.
pub(super) fn saturated_part(
    replica: &impl Replica,
    requests: &[Request],
    limits: &Limits,
    cached: bool,
) -> Result<f64, ServingError> {
    check(requests, limits)?;
    // As many as run at once, each a few times, lengths as they come. Where answers get their blocks as they grow, whoever has
    // room for its prompt runs, and is sent back once answers need the room: that is what a queue lasts with.
    let room = |r: &Request| match limits.rule {
        Scheduling::AnswersFirst | Scheduling::PromptsFirst => r.prompt,
        Scheduling::WholeAnswers => r.prompt + r.answer,
    };
    let mean = requests.iter().map(room).sum::<u64>() as f64 / requests.len() as f64;
    let fit = (limits.capacity() as f64 / mean).ceil().max(1.0);
    let users = fit.min(limits.sequences as f64) as usize + BEYOND;
    let many: Vec<Request> = requests.iter().copied().cycle().take(users * ROUNDS).collect();
    let run = simulate_part(replica, &many, Load::Closed(users), limits, Part { cached, ..Part::default() })?;
    let mean = |tokens: fn(&Request) -> u64| many.iter().map(tokens).sum::<u64>() as f64 / many.len() as f64;
    let book = &run.counted;
    let answers = book.answer_tokens / (mean(|r| r.answer) - f64::from(u8::from(cached)));
    // Requests come in waves, as all users began at once: prompts are ahead of them and answers behind. What is computed
    // again is of no prompt that comes: those are told by who came.
    let prompts = match (cached, run.preemptions) {
        (true, _) => answers,
        (false, 0) => book.prompt_tokens / mean(|r| r.prompt),
        (false, _) => (run.of.until - run.of.from) as f64,
    };
    Ok((prompts + answers) / 2.0 / book.span.get())
}

/// So many more users than sequences can run: somebody always waits.
const BEYOND: usize = 8;
/// Requests of each user.
const ROUNDS: usize = 16;
