//! What engines add to a step, learned from served language models: rows of NVIDIA AIConfigurator's `silicon_sample.csv`, which
//! are not in the repository. `JOULECAST_SERVING=FILE cargo test --release -p joulecast-model --test engines -- --nocapture`
//! prints each engine's least errors and what it adds there.

use joulecast_ask::serving::times::{Extent, Room, StepTimes};
use joulecast_ask::serving::{Demand, Lengths, Limits, Load, Summary, simulate};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_model::device::interconnect::Interconnect;
use joulecast_model::net::network::{Kept, Stored};
use joulecast_model::net::share::Layout;
use joulecast_model::step::framework::{Scheduling, Serving};
use joulecast_model::step::layout::Deployment;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_skipped::skipped;

/// A run of a server on GPUs that divide every block: so many users.
struct Row {
    engine: String,
    gpu: &'static str,
    net: &'static str,
    gpus: u64,
    precision: Precision,
    prompt: u64,
    answer: u64,
    users: usize,
    per_token: f64,
    to_first: f64,
}

/// The profile of an engine of the table.
fn profile(engine: &str) -> &str {
    if engine == "trtllm" { "tensorrt-llm" } else { engine }
}

impl Row {
    /// The form of keys and values, where that is not 16 bits. The table does not say it; but 128 users of 2048 + 128 tokens have
    /// their first one after 1.6 s on an H100 beside Qwen3 32B in fp8, where a cache in 16 bits would hold half of them under a
    /// rule that begins none whose whole answer has no room: TensorRT-LLM kept them in fp8.
    fn cache(&self) -> Option<Kept> {
        (self.engine == "trtllm" && self.precision == Precision::Fp8).then_some(Kept::Fp8)
    }
}

/// The rows of dense models, prompts and answers on the same.
fn rows(text: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<String> = reader.headers().expect("a header").iter().map(str::to_string).collect();
    let records = reader.records().map(|record| record.expect("a row"));
    let row = |record: csv::StringRecord| {
        let cell = |name: &str| header.iter().position(|h| h == name).and_then(|i| record.get(i)).unwrap_or_default();
        let net = match cell("model_group") {
            "llama-3.1-8b" => "llama3_8b",
            "qwen3-32b" => "qwen3_32b",
            _ => return None,
        };
        let gpu = if cell("system") == "h100_sxm" { "h100" } else { "h200" };
        let alone = cell("mode") == "agg" && cell("pp_size") == "1";
        let number = |name: &str| cell(name).parse::<f64>().ok();
        let precision = if cell("precision") == "fp8" { Precision::Fp8 } else { Precision::Bf16 };
        let found = Row {
            engine: cell("backend").to_string(),
            gpu,
            net,
            gpus: number("tp_size")? as u64,
            precision,
            prompt: number("isl")? as u64,
            answer: number("osl")? as u64,
            users: number("concurrency")? as usize,
            per_token: number("tpot_ms")?,
            to_first: number("ttft_ms")?,
        };
        alone.then_some(found)
    };
    records.filter_map(row).collect()
}

/// What a row is foreseen to be through an engine that adds so much, in milliseconds: each token, the first one.
struct Replica {
    times: StepTimes,
    limits: Limits,
    demand: Demand,
}

impl Replica {
    fn of(row: &Row) -> Self {
        let framework = catalog::framework(profile(&row.engine)).expect("shipped");
        let rule = framework.serving.expect("serves").rule;
        let predictor = Predictor::shipped(catalog::gpu(row.gpu).expect("shipped"), framework);
        let network = catalog::network(row.net).expect("shipped");
        let usual = Limits::usual(rule, predictor.gpu());
        let extent = Extent { tokens: usual.tokens, sequences: usual.sequences, length: row.prompt + row.answer };
        let known = catalog::interconnects().expect("shipped");
        let deployment = Deployment {
            predictor: &predictor,
            layout: Layout::new(row.gpus, 1, 1, None).expect("a layout"),
            interconnect: Interconnect::serving(&known, predictor.gpu(), row.gpus, None).expect("joined"),
            precision: row.precision,
            stored: Stored { cache: row.cache(), ..Stored::default() },
            point: OperatingPoint::default(),
        };
        let room = Room::of(&deployment, &network, extent, 0.9).expect("generates");
        let limits = Limits { blocks: room.blocks(usual.block), ..usual };
        let points = [OperatingPoint::default()];
        let times = StepTimes::of(&deployment, &network, extent, &points).expect("predicts").remove(0);
        let (prompt, answer) = (Lengths::Constant(row.prompt), Lengths::Constant(row.answer));
        Self { times, limits, demand: Demand::poisson((10 * row.users).max(100), prompt, answer, 1) }
    }

    fn foreseen(&self, row: &Row, engine: Serving) -> Option<(f64, f64)> {
        let times = self.times.clone().through(engine);
        let run = simulate(&times.value, self.demand.requests(), Load::Closed(row.users), &self.limits).ok()?;
        let summary = Summary::of(&run)?;
        Some((summary.per_token?.mean.to_ms(), summary.to_first.mean.to_ms()))
    }
}

/// Microseconds that are tried: for each step, and for each sequence in it.
const STEPS: [f64; 12] = [0.0, 250.0, 500.0, 750.0, 1000.0, 1500.0, 2000.0, 2500.0, 3000.0, 4000.0, 5000.0, 6000.0];
const SEQUENCES: [f64; 8] = [0.0, 2.0, 5.0, 10.0, 15.0, 20.0, 40.0, 80.0];

fn adds(step: f64, sequence: f64) -> Serving {
    Serving { step: Seconds::from_us(step), sequence: Seconds::from_us(sequence), rule: Scheduling::AnswersFirst }
}

/// Mean and median of errors.
fn score(errors: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut sizes: Vec<f64> = errors.map(f64::abs).collect();
    sizes.sort_by(f64::total_cmp);
    (sizes.iter().sum::<f64>() / sizes.len() as f64, sizes[sizes.len() / 2])
}

#[test]
fn engines_add_what_is_left() {
    let Some(path) = std::env::var_os("JOULECAST_SERVING") else {
        return skipped("engines::engines_add_what_is_left", "JOULECAST_SERVING names no file of served models");
    };
    let rows = rows(&std::fs::read_to_string(path).expect("the file"));
    let mut engines: Vec<&str> = rows.iter().map(|row| row.engine.as_str()).collect();
    engines.sort_unstable();
    engines.dedup();
    for engine in engines {
        // Time of each token with nothing added, and what a microsecond adds to it: nearly straight.
        let of: Vec<(&Row, Replica, [f64; 3])> = rows
            .iter()
            .filter(|row| row.engine == engine)
            .filter_map(|row| {
                let replica = Replica::of(row);
                let token = |engine| replica.foreseen(row, engine).map(|(token, _)| token);
                let bare = token(adds(0.0, 0.0))?;
                let slopes = [(token(adds(1000.0, 0.0))? - bare) / 1000.0, (token(adds(0.0, 20.0))? - bare) / 20.0];
                Some((row, replica, [bare, slopes[0], slopes[1]]))
            })
            .collect();
        let linear = |step: f64, sequence: f64| {
            score(of.iter().map(move |(row, _, [bare, a, b])| (bare + a * step + b * sequence) / row.per_token - 1.0))
        };
        let tried = STEPS.iter().flat_map(|&step| SEQUENCES.map(|sequence| (step, sequence)));
        let best = tried.min_by(|a, b| linear(a.0, a.1).0.total_cmp(&linear(b.0, b.1).0));
        let (step, sequence) = best.expect("tried");
        let found = |(row, replica, _): &(&Row, Replica, [f64; 3])| replica.foreseen(row, adds(step, sequence));
        let least = score(of.iter().filter_map(|one| Some(found(one)?.0 / one.0.per_token - 1.0)));
        // Learned from nothing of it: it says how far prompts and waiting are simulated as they were.
        let first = score(of.iter().filter_map(|one| Some(found(one)?.1 / one.0.to_first - 1.0)));
        let none = linear(0.0, 0.0);
        println!(
            "{engine}: {} rows; nothing added: mean {:.1} %, median {:.1} %; {step} us a step and {sequence} us a sequence: \
             {:.1} %, {:.1} %; until the first token {:.1} %, {:.1} %",
            of.len(),
            100.0 * none.0,
            100.0 * none.1,
            100.0 * least.0,
            100.0 * least.1,
            100.0 * first.0,
            100.0 * first.1
        );
        for one in &of {
            let (row, _, [bare, ..]) = one;
            let Some((token, first)) = found(one) else { continue };
            println!(
                "  {} x {} {} {} {}+{} x{}: each token {bare:.2} ms, {token:.2} with it, measured {:.2}; first {first:.0}, measured {:.0}",
                row.gpus,
                row.gpu,
                row.net,
                row.precision,
                row.prompt,
                row.answer,
                row.users,
                row.per_token,
                row.to_first
            );
        }
        assert!(least.0 <= none.0 + 0.01);
    }
}
