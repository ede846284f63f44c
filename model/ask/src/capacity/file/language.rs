//! `[[service]]` of a plan file: a language model, what is asked of it and what that may take.

use super::super::replicas::Requests;
use super::mistakes::Mistakes;
use super::{LoadFile, PlanError, load, number, place};
use crate::serving::{Demand, Engine, Lengths, Target, Which};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::text::{in_short, names as shown_names, shown};
use joulecast_model::base::units::Seconds;
use joulecast_model::net::network::{Kept, Stored, Weights};
use serde::Deserialize;

/// A language model of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedLanguage {
    /// What it is called in the plan; no two are called the same.
    pub name: String,
    /// Its name or file.
    pub net: String,
    /// What comes.
    pub requests: Requests,
    /// Tokens of a prompt.
    pub prompt: Lengths,
    /// Tokens of an answer.
    pub answer: Lengths,
    /// So many requests are simulated.
    pub simulated: u64,
    /// What decides their times and lengths.
    pub seed: u64,
    /// What requests may take: to the first token, for each further one, or both.
    pub target: Target,
    /// Framework profile of its engine.
    pub framework: String,
    /// Storage and arithmetic.
    pub precision: Precision,
    /// What is stored in fewer bits.
    pub stored: Stored,
    /// How many GPUs may divide every block of a replica; `None`: all powers of two that a server has.
    pub tensor: Option<Vec<u64>>,
    /// Limits of its engine.
    pub engine: Engine,
}

impl PlannedLanguage {
    /// The requests that are simulated.
    pub fn demand(&self) -> Demand {
        Demand::poisson(self.simulated as usize, self.prompt, self.answer, self.seed)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceFile {
    #[serde(default, deserialize_with = "shown_names")]
    name: Option<String>,
    pub net: String,
    mean_per_s: Option<f64>,
    peak_per_s: Option<f64>,
    pub profile_per_s: Option<Vec<f64>>,
    prompt: Tokens,
    answer: Tokens,
    #[serde(default = "requests")]
    requests: u64,
    #[serde(default = "seed")]
    seed: u64,
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    #[serde(default = "quantile")]
    quantile: String,
    #[serde(default = "framework")]
    framework: String,
    #[serde(default = "precision")]
    precision: Precision,
    weights: Option<Weights>,
    cache: Option<Kept>,
    tensor_parallel: Option<Vec<u64>>,
    max_num_batched_tokens: Option<u64>,
    max_num_seqs: Option<u64>,
    block_size: Option<u64>,
    #[serde(default = "memory")]
    gpu_memory_utilization: f64,
    chunked_prefill: Option<bool>,
    #[serde(default = "yes")]
    scheduler_reserve_full_isl: bool,
}

/// `1024` or, as `predict serve` takes them, `"512..1536"`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "tokens are written as 1024 or as \"512..1536\"")]
enum Tokens {
    Number(u64),
    Text(String),
}

fn requests() -> u64 {
    2000
}

fn seed() -> u64 {
    1
}

fn quantile() -> String {
    Which::P90.name().into()
}

fn framework() -> String {
    "vllm".into()
}

fn precision() -> Precision {
    Precision::Bf16
}

fn memory() -> f64 {
    Engine::MEMORY
}

fn yes() -> bool {
    true
}

/// Requests that a simulation has: fewer say nothing of percentiles, more take minutes on every layout and setting.
const SIMULATED: std::ops::RangeInclusive<u64> = 100..=100_000;
/// More layouts than a server has.
const MOST_LAYOUTS: usize = 12;

impl ServiceFile {
    /// What it is called where it says so, else its network.
    pub fn called(&self) -> String {
        self.name.clone().unwrap_or_else(|| shown(&self.net))
    }

    /// As it is planned, with a name that no other one has; what is wrong is told, all of it.
    pub fn planned(self, found: &mut Mistakes<'_>) -> Option<PlannedLanguage> {
        let name = self.called();
        let of = |field: &str| format!("{field} of {name}");
        found.keep(place("net", &self.net));
        found.keep(place("framework", &self.framework));
        let coming =
            LoadFile { mean_per_s: self.mean_per_s, peak_per_s: self.peak_per_s, profile_per_s: self.profile_per_s };
        let coming = found.keep(load(Some(&name), &coming));
        let mut tokens = |field: &str, tokens: Tokens| {
            let text = match tokens {
                Tokens::Number(n) => n.to_string(),
                Tokens::Text(text) => text,
            };
            let read = text.parse::<Lengths>();
            found.keep(read.map_err(|why| PlanError::one(format!("{}: {}", of(field), in_short(&why)))))
        };
        let (prompt, answer) = (tokens("prompt", self.prompt), tokens("answer", self.answer));
        let has_target = self.ttft_ms.is_some() || self.tpot_ms.is_some();
        let mut limit = |field: &str, ms: Option<f64>| {
            let ms = ms.map(|ms| number(&of(field), ms, false).map(Seconds::from_ms)).transpose();
            found.keep(ms).flatten()
        };
        let (to_first, per_token) = (limit("ttft_ms", self.ttft_ms), limit("tpot_ms", self.tpot_ms));
        let which = Which::ALL.into_iter().find(|(_, known)| *known == self.quantile);
        if which.is_none() {
            let known = Which::ALL.map(|(_, name)| name).join(", ");
            found.add(format!("{} is one of {known}, not {}", of("quantile"), shown(&self.quantile)));
        }
        if !has_target {
            found.add(format!("{name} has no target: ttft_ms, tpot_ms or both"));
        }
        if self.ttft_ms.is_none() && self.tpot_ms.is_some() && answer == Some(Lengths::Constant(1)) {
            found.add(format!("answers of {name} have one token, which tpot_ms says nothing of: ttft_ms"));
        }
        if !SIMULATED.contains(&self.requests) {
            let (least, most) = SIMULATED.into_inner();
            found.add(format!("{} must be from {least} to {most}, not {}", of("requests"), self.requests));
        }
        for (field, count) in [
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_num_seqs", self.max_num_seqs),
            ("block_size", self.block_size),
        ] {
            if count.is_some_and(|n| !(1..=Engine::MOST).contains(&n)) {
                found.add(format!("{} must be from 1 to {}", of(field), Engine::MOST));
            }
        }
        if !(self.gpu_memory_utilization > 0.0 && self.gpu_memory_utilization <= 1.0) {
            let field = of("gpu_memory_utilization");
            found.add(format!("{field} must be above 0 and at most 1, not {}", self.gpu_memory_utilization));
        }
        if let Some(list) = &self.tensor_parallel
            && (list.is_empty() || list.len() > MOST_LAYOUTS || list.contains(&0))
        {
            let field = of("tensor_parallel");
            found.add(format!("{field} lists from 1 to {MOST_LAYOUTS} numbers of GPUs, each above 0"));
        }
        let (peak_per_s, profile_per_s) = coming?;
        Some(PlannedLanguage {
            requests: Requests { peak_per_s, profile_per_s },
            prompt: prompt?,
            answer: answer?,
            simulated: self.requests,
            seed: self.seed,
            target: Target { to_first, per_token, which: which?.0 },
            framework: self.framework,
            precision: self.precision,
            stored: Stored { weights: self.weights, cache: self.cache },
            tensor: self.tensor_parallel,
            engine: Engine {
                tokens: self.max_num_batched_tokens,
                sequences: self.max_num_seqs,
                block: self.block_size,
                memory: self.gpu_memory_utilization,
                chunked: self.chunked_prefill,
                reserve: self.scheduler_reserve_full_isl,
            },
            net: self.net,
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::PlanFile;
    use super::*;

    const REST: &str = r#"
schema = "capacity/1"
title = "toy"
currency = "EUR"
[[candidate]]
gpu = "h100"
price = 1000.0
price_source = "a"
gpus_per_server = 8
server_overhead_w = 300.0
[site]
pue = 1.3
price_per_kwh = 0.2
carbon_g_per_kwh = 300.0
carbon_source = "b"
amortisation_years = 4.0
"#;

    const NETWORKS: &str = r#"
[load]
profile_per_s = [10.0, 20.0]
[latency]
percentile = 95.0
target_ms = 50.0
[[network]]
net = "resnet50"
share = 1.0
"#;

    const SERVICE: &str = r#"
[[service]]
net = "llama3_8b"
prompt = "512..1536"
answer = 256
mean_per_s = 2.0
peak_per_s = 3.0
ttft_ms = 500.0
"#;

    fn read(parts: &[&str]) -> Result<PlanFile, PlanError> {
        PlanFile::from_toml(&format!("{REST}{}", parts.concat()))
    }

    #[test]
    fn a_language_model_is_planned_as_it_is_served() {
        let plan = read(&[SERVICE]).expect("a plan");
        let [of] = &plan.languages[..] else { panic!("one") };
        assert_eq!((&of.name[..], &of.framework[..], of.precision), ("llama3_8b", "vllm", Precision::Bf16));
        assert_eq!((of.prompt, of.answer), (Lengths::Uniform(512, 1536), Lengths::Constant(256)));
        assert_eq!(of.requests, Requests { peak_per_s: 3.0, profile_per_s: vec![2.0] });
        let target = Target { to_first: Some(Seconds::from_ms(500.0)), per_token: None, which: Which::P90 };
        assert_eq!((of.target, of.simulated, of.demand().requests().len()), (target, 2000, 2000));
        // Without networks there is no other load.
        assert_eq!((plan.target, plan.peak_per_s, &plan.profile_per_s[..]), (None, 0.0, &[0.0][..]));
        assert!(plan.networks.is_empty());
    }

    #[test]
    fn the_example_is_a_plan() {
        let plan = PlanFile::from_toml(include_str!("../../../../../data/capacity/assistant.toml")).expect("a plan");
        let names: Vec<&str> = plan.languages.iter().map(|of| &of.name[..]).collect();
        assert_eq!((&names[..], plan.networks.len(), plan.candidates.len()), (&["assistant", "coder"][..], 2, 3));
        assert!(plan.languages.iter().all(|of| joulecast_model::catalog::network(&of.net).is_ok()));
    }

    #[test]
    fn days_have_as_many_parts_as_the_longest() {
        let plan = read(&[NETWORKS, SERVICE]).expect("a plan");
        assert_eq!(plan.languages[0].requests.profile_per_s, [2.0, 2.0]);
        let four = SERVICE.replace("mean_per_s = 2.0", "profile_per_s = [1.0, 2.0, 3.0, 0.0]");
        let plan = read(&[&four]).expect("a plan");
        assert_eq!((plan.profile_per_s.len(), plan.languages[0].requests.profile_per_s.len()), (4, 4));
        let one = NETWORKS.replace("[10.0, 20.0]", "[20.0]");
        assert_eq!(read(&[&one, &four]).expect("a plan").profile_per_s, [20.0; 4]);
        let error = read(&[NETWORKS, &four]).expect_err("two and four parts").to_string();
        assert_eq!(error, "the day of llama3_8b has 4 parts, another one 2: give all the same, or one");
    }

    #[test]
    fn mistakes_of_a_service_are_named() {
        let two = format!("{SERVICE}{SERVICE}");
        for (from, to, expected) in [
            ("ttft_ms = 500.0", "", "llama3_8b has no target: ttft_ms, tpot_ms or both"),
            (
                "answer = 256\n",
                "answer = 256\nquantile = \"p42\"\n",
                "quantile of llama3_8b is one of mean, p50, p90, p99, not p42",
            ),
            ("ttft_ms = 500.0", "tpot_ms = 0", "tpot_ms of llama3_8b must be above 0, not 0"),
            ("answer = 256\n", "answer = 0\n", "answer of llama3_8b: \"0\" is not a whole number of tokens"),
            ("answer = 256\n", "answer = -1\n", "tokens are written as 1024 or as"),
            ("512..1536", "9..3", "prompt of llama3_8b: 9 is above 3"),
            ("mean_per_s = 2.0\npeak_per_s = 3.0", "profile_per_s = [0.0]", "load of llama3_8b is never above 0"),
            ("peak_per_s = 3.0", "peak_per_s = 1.0", "peak_per_s of llama3_8b of 1 is below the load of 2"),
            ("peak_per_s = 3.0", "", "mean_per_s of llama3_8b needs peak_per_s of llama3_8b"),
            ("mean_per_s = 2.0\npeak_per_s = 3.0", "", "llama3_8b needs mean_per_s and peak_per_s, or profile_per_s"),
            ("mean_per_s = 2.0", "mean_per_s = -2.0", "load of llama3_8b must be at least 0, not -2"),
            ("ttft_ms = 500.0", "ttft_ms = 500.0\nrequests = 5", "requests of llama3_8b must be from 100 to 100000"),
            ("ttft_ms = 500.0", "ttft_ms = 500.0\nmax_num_seqs = 0", "max_num_seqs of llama3_8b must be from 1"),
            ("ttft_ms = 500.0", "ttft_ms = 500.0\ntensor_parallel = []", "tensor_parallel of llama3_8b lists"),
            ("ttft_ms = 500.0", "ttft_ms = 500.0\ntensor_parallel = [0]", "tensor_parallel of llama3_8b lists"),
            ("ttft_ms = 500.0", "ttft_ms = 500.0\ngpu_memory_utilization = 2", "at most 1, not 2"),
            ("ttft_ms = 500.0", "ttft_ms = 500.0\nweights = \"int3\"", "int3"),
            ("ttft_ms = 500.0", "ttfd_ms = 500.0", "ttfd_ms"),
            ("answer = 256\n", "", "answer"),
            (
                "answer = 256\nmean_per_s = 2.0\npeak_per_s = 3.0\nttft_ms",
                "answer = 1\nprofile_per_s = [2]\ntpot_ms",
                "one token",
            ),
        ] {
            assert!(SERVICE.contains(from), "{from}");
            let error = read(&[&SERVICE.replace(from, to)]).expect_err(expected).to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error:?} should say {expected:?}");
        }
        // All of them at once, of each service.
        let wrong =
            SERVICE.replace("ttft_ms = 500.0", "ttft_ms = -1\nquantile = \"p42\"\nblock_size = 0\nrequests = 5");
        let wrong = wrong.replace("512..1536", "9..3").replace("mean_per_s = 2.0", "mean_per_s = 4.0");
        let error =
            read(&[&wrong, &wrong.replace("[[service]]", "[[service]]\nname = \"other\"")]).expect_err("a dozen");
        for name in ["llama3_8b", "other"] {
            for field in ["ttft_ms", "quantile", "block_size", "requests", "prompt", "peak_per_s"] {
                let begins = format!("{field} of {name}");
                assert!(error.mistakes().iter().any(|m| m.starts_with(&begins)), "{begins}: {:#?}", error.mistakes());
            }
        }
        assert_eq!(error.mistakes().len(), 12, "{:#?}", error.mistakes());
        let twice = read(&[&two]).expect_err("one name twice").to_string();
        assert_eq!(twice, "two services are called llama3_8b: give one another name");
        assert!(read(&[&two.replacen("[[service]]", "[[service]]\nname = \"a\"", 1)]).is_ok());
        assert_eq!(read(&[]).expect_err("nothing").to_string(), "there is no [[network]] and no [[service]]");
        for lacking in ["[load]", "[latency]"] {
            let without = NETWORKS.replace(lacking, "[x]").replace("[x]\nprofile_per_s = [10.0, 20.0]", "");
            let without = without.replace("[x]\npercentile = 95.0\ntarget_ms = 50.0", "");
            let error = read(&[&without, SERVICE]).expect_err(lacking).to_string();
            assert_eq!(error, format!("networks need {lacking}"));
        }
        let idle = NETWORKS.replace("[[network]]\nnet = \"resnet50\"\nshare = 1.0", "");
        let error = read(&[&idle, SERVICE]).expect_err("for nothing").to_string();
        assert_eq!(error, "[load] and [latency] are of networks, and there is no [[network]]");
    }
}
