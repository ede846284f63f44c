//! How fast this machine's host launches PyTorch's operations, beside what a framework profile's table foresees.

use anyhow::{Context, Result, bail, ensure};
use joulecast_model::base::units::Seconds;
use joulecast_model::step::framework::{ByGroup, Framework, Group, Host, HostRecord};
use joulecast_reports::table::{Table, significant, with_unit};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What measures: it runs where PyTorch is, and prints `host_chains/1`.
const SCRIPT: &str = include_str!("../tools/torch_host.py");
const SCHEMA: &str = "host_chains/1";
/// The profile whose table the chains are of.
pub const FRAMEWORK: &str = "pytorch";
/// Importing PyTorch and building the chains, beside measuring them.
const PATIENCE: Duration = Duration::from_secs(120);
/// A script that prints more is not ours.
const MOST_BYTES: u64 = 4 << 20;
/// Where less of the elapsed time was computed, other processes had the cores.
const SHARE_ALONE: f64 = 0.9;
/// The share of rounds that lie within the spread.
const HOLDS: f64 = 0.9;

/// What the script measured, schema `host_chains/1`.
#[derive(Clone, Debug, Deserialize)]
pub struct Chains {
    schema: String,
    date: String,
    cpu: String,
    device: String,
    torch: String,
    chains: Vec<Chain>,
}

/// One chain of layers in one variant; times are microseconds of the whole chain.
#[derive(Clone, Debug, Deserialize)]
struct Chain {
    chain: String,
    mode: String,
    precision: String,
    autocast: bool,
    layout: String,
    /// How many there are of each kind, as profiles name kinds.
    layers: BTreeMap<String, u64>,
    median_us: f64,
    p10_us: f64,
    p90_us: f64,
    cpu_share: f64,
    rounds_us: Vec<f64>,
}

impl Chain {
    /// Steps of which group it stands for; none under autocast in inference, which a profile does not foresee.
    fn group(&self) -> Option<Group> {
        match (&self.mode[..], self.autocast) {
            ("inference", false) => Some(Group::Inference),
            ("training", false) => Some(Group::Training),
            ("training", true) => Some(Group::Autocast),
            _ => None,
        }
    }

    /// Whether it is in the layout that the profile's table is of: convolutions in 16 bits channels-last in inference, all
    /// else not.
    fn of_the_table(&self) -> bool {
        let convolves = self.layers.contains_key("conv2d");
        let last = convolves && self.mode == "inference" && self.precision != "fp32";
        self.layout == if last { "nhwc" } else { "nchw" }
    }

    /// What the profile says the host takes for it; `None` where it does not.
    fn foreseen(&self, host: &Host) -> Option<Seconds> {
        let group = self.group()?;
        let of = |(name, count): (&String, &u64)| {
            let costs = host.kinds.iter().find(|k| k.kind == *name).unwrap_or(&host.other).costs;
            let half = usize::from(self.precision != "fp32");
            let times = if group == Group::Inference { costs.inference } else { costs.training };
            times[half] * *count as f64
        };
        Some(self.layers.iter().map(of).sum())
    }
}

/// A chain that counts, beside what is foreseen: its median, and that of every round, over that.
struct Ratio {
    group: Group,
    whole: f64,
    rounds: Vec<f64>,
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v.ln(), count + 1.0));
    (sum / count).exp()
}

impl Chains {
    /// Reads what the script wrote.
    ///
    /// # Errors
    /// When it is something else, or holds numbers that are no times.
    pub fn from_json(text: &str) -> Result<Self> {
        let chains: Self = serde_json::from_str(text).context("not what machine/tools/torch_host.py writes")?;
        ensure!(chains.schema == SCHEMA, "schema \"{}\" instead of {SCHEMA}", chains.schema);
        let positive = |v: f64| v.is_finite() && v > 0.0;
        for chain in &chains.chains {
            let times =
                [chain.median_us, chain.p10_us, chain.p90_us].into_iter().chain(chain.rounds_us.iter().copied());
            ensure!(times.into_iter().all(positive), "chain {}: times must be above 0", chain.chain);
            ensure!(!chain.rounds_us.is_empty(), "chain {}: no rounds", chain.chain);
        }
        Ok(chains)
    }

    fn ratios(&self, host: &Host) -> Vec<Ratio> {
        let counted = self.chains.iter().filter(|chain| chain.of_the_table());
        let ratio = |chain: &Chain| {
            let (group, foreseen) = (chain.group()?, chain.foreseen(host)?.to_us());
            let rounds = chain.rounds_us.iter().map(|us| us / foreseen).collect();
            Some(Ratio { group, whole: chain.median_us / foreseen, rounds })
        };
        counted.filter_map(ratio).collect()
    }

    /// The machine's host beside the profile's table: the geometric mean over chains of each group, what that is for
    /// networks, and within which factor 90 % of the rounds lie around it.
    ///
    /// # Errors
    /// When the profile has no host, or no chain of a group was measured.
    pub fn record(&self, profile: &Framework) -> Result<HostRecord> {
        let host = profile.host.as_ref().context("the profile does not say what a host does")?;
        let ratios = self.ratios(host);
        let (mut factor, mut spread) = (ByGroup::all(1.0), ByGroup::all(1.0));
        let mut most = 0;
        for group in Group::ALL {
            let of: Vec<&Ratio> = ratios.iter().filter(|r| r.group == group).collect();
            let rounds = of.iter().map(|r| r.rounds.len()).min().unwrap_or(0);
            if rounds == 0 {
                bail!("no chain of {} was measured", group.name());
            }
            most = most.max(rounds);
            factor[group] = geometric_mean(of.iter().map(|r| r.whole));
            let round = |i: usize| geometric_mean(of.iter().map(|r| r.rounds[i]));
            let mut apart: Vec<f64> = (0..rounds).map(|i| (round(i) / factor[group]).ln().abs()).collect();
            apart.sort_by(f64::total_cmp);
            let within = (rounds as f64 * HOLDS).ceil() as usize;
            spread[group] = apart[within.clamp(1, rounds) - 1].exp();
        }
        let what = [&self.cpu, &self.device, &self.torch, &self.date].map(String::as_str);
        let chains = factor;
        if let Some(networks) = &host.networks {
            Group::ALL.iter().for_each(|&group| factor[group] = networks.factor(group, chains[group]));
        }
        Ok(HostRecord::new(&profile.name, what, most as u64, (factor, spread), chains))
    }

    /// Every chain beside what is foreseen.
    ///
    /// # Errors
    /// When the profile has no host.
    pub fn table(&self, profile: &Framework) -> Result<Table> {
        let host = profile.host.as_ref().context("the profile does not say what a host does")?;
        let time = |us: f64| with_unit(us * 1e-6, "s");
        let mut table =
            Table::new(&["chain", "mode", "precision", "layout", "host", "p10 to p90", "profile", "factor"], 4);
        for c in &self.chains {
            let precision = if c.autocast { format!("{}, autocast", c.precision) } else { c.precision.clone() };
            let foreseen = c.foreseen(host).filter(|_| c.of_the_table()).map(|s| s.to_us());
            table.row(vec![
                c.chain.clone(),
                c.mode.clone(),
                precision,
                c.layout.clone(),
                time(c.median_us),
                format!("{} to {}", time(c.p10_us), time(c.p90_us)),
                foreseen.map_or(String::new(), time),
                foreseen.map_or(String::new(), |us| significant(c.median_us / us, 3)),
            ]);
        }
        Ok(table)
    }

    /// The share of the elapsed time in which the process computed, where others had the cores meanwhile.
    pub fn disturbed(&self) -> Option<f64> {
        let least = self.chains.iter().map(|c| c.cpu_share).fold(f64::INFINITY, f64::min);
        (least < SHARE_ALONE).then_some(least)
    }
}

/// The factors of a host, as a table.
pub fn factors(record: &HostRecord) -> Table {
    let mut table = Table::new(&["steps", "chains", "90 % of rounds within", "networks"], 1);
    let chains = record.of_chains();
    for group in Group::ALL {
        let spread = 100.0 * (record.spread[group] - 1.0);
        let factor = |of: f64| significant(of, 3);
        table.row(vec![
            group.name().into(),
            factor(chains[group]),
            format!("{spread:.1} %"),
            factor(record.factor[group]),
        ]);
    }
    table
}

/// Measures here, by a Python that has PyTorch, for so many seconds.
///
/// # Errors
/// In one line: when there is no such program, no PyTorch, no GPU, or it does not end.
pub fn measure(python: &str, seconds: f64) -> Result<Chains> {
    let mut child = Command::new(python)
        .args(["-", "--seconds", &seconds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{python} does not start: --python names one that has PyTorch"))?;
    // A program that ends without reading has its reasons, which it says.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(SCRIPT.as_bytes()));
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = ended(&mut child, PATIENCE + Duration::from_secs_f64(seconds))?;
    let text = |thread: thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let (out, err) = (text(out), text(err));
    if !status {
        let last = err.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        bail!("{python} with machine/tools/torch_host.py failed: {}", last.trim());
    }
    written.transpose().with_context(|| format!("{python} took no program"))?;
    Chains::from_json(&out)
}

fn reader(from: Option<impl std::io::Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read until it failed says more than nothing.
        let _ = from.map(|f| f.take(MOST_BYTES).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether a program ended well; one that does not end is ended.
fn ended(child: &mut Child, within: Duration) -> Result<bool> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if begin.elapsed() > within {
            child.kill()?;
            child.wait()?;
            bail!("PyTorch's chains took longer than {} s", within.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::catalog;

    /// Chains as a machine would show them whose host takes so many times as long in inference, training, autocast.
    fn recorded(factors: [f64; 3], rounds: &[f64]) -> String {
        let profile = catalog::framework(FRAMEWORK).expect("shipped");
        let host = profile.host.expect("has one");
        let mut chains = Vec::new();
        for (mode, precision, autocast, layout, factor) in [
            ("inference", "fp32", false, "nchw", Some(factors[0])),
            ("inference", "fp16", false, "nhwc", Some(factors[0])),
            ("inference", "fp16", false, "nchw", None),
            ("inference", "fp16", true, "nchw", None),
            ("training", "fp32", false, "nchw", Some(factors[1])),
            ("training", "fp16", true, "nchw", Some(factors[2])),
        ] {
            let chain = Chain {
                chain: "convolution".into(),
                mode: mode.into(),
                precision: precision.into(),
                autocast,
                layout: layout.into(),
                layers: [("conv2d".to_string(), 16), ("relu".to_string(), 32)].into(),
                median_us: 1.0,
                p10_us: 1.0,
                p90_us: 1.0,
                cpu_share: 1.0,
                rounds_us: Vec::new(),
            };
            // What does not count is far off.
            let us = factor.map_or(1e6, |f| f * chain.foreseen(&host).expect("foreseen").to_us());
            let rounds: Vec<f64> = rounds.iter().map(|r| r * us).collect();
            chains.push(serde_json::json!({
                "chain": chain.chain, "mode": mode, "precision": precision, "autocast": autocast, "layout": layout,
                "layers": chain.layers, "median_us": us, "p10_us": us, "p90_us": us, "cpu_share": 1.0, "rounds_us": rounds,
            }));
        }
        let document = serde_json::json!({
            "schema": SCHEMA, "date": "2026-11-22T20:00:00Z", "cpu": "A CPU", "device": "NVIDIA H200", "torch": "2.11.0",
            "chains": chains,
        });
        document.to_string()
    }

    #[test]
    fn what_a_chain_takes_is_the_sum_of_its_layers() {
        let profile = catalog::framework(FRAMEWORK).expect("shipped");
        let chains = Chains::from_json(&recorded([1.0; 3], &[1.0])).expect("whole");
        let foreseen = |i: usize| chains.chains[i].foreseen(profile.host.as_ref().expect("has one")).map(|s| s.to_us());
        // The profile's 24.5 and 11.9 us in 32 bits, 149 and 35 in mixed precision.
        assert!((foreseen(0).expect("inference") - (16.0 * 24.5 + 32.0 * 11.9)).abs() < 1e-6);
        assert!((foreseen(5).expect("autocast") - (16.0 * 149.0 + 32.0 * 35.0)).abs() < 1e-6);
        assert_eq!(foreseen(3), None, "no profile says what autocast takes in inference");
    }

    #[test]
    fn factors_are_by_group_and_the_spread_is_that_of_rounds() {
        let profile = catalog::framework(FRAMEWORK).expect("shipped");
        let mut rounds = vec![1.0; 18];
        rounds.extend([1.2, 5.0]);
        let chains = Chains::from_json(&recorded([0.7, 1.1, 1.3], &rounds)).expect("whole");
        let record = chains.record(&profile).expect("all groups");
        let networks = profile.host.as_ref().and_then(|host| host.networks.as_ref()).expect("in the profile");
        for (group, factor) in Group::ALL.into_iter().zip([0.7, 1.1, 1.3]) {
            assert!((record.of_chains()[group] - factor).abs() < 1e-9, "{}", group.name());
            assert!((record.factor[group] - networks.factor(group, factor)).abs() < 1e-9, "{}", group.name());
            // 18 of 20 rounds are alike.
            assert!((record.spread[group] - 1.0).abs() < 1e-9);
        }
        rounds[0] = 1.2;
        let chains = Chains::from_json(&recorded([0.7, 1.1, 1.3], &rounds)).expect("whole");
        let spread = chains.record(&profile).expect("all groups").spread[Group::Training];
        assert!((spread - 1.2).abs() < 1e-9, "{spread}");
        let text = toml::to_string(&record).expect("written");
        assert_eq!(HostRecord::from_toml(&text).expect("read"), record);
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        let whole = recorded([1.0; 3], &[1.0]);
        for (from, to, why) in [
            (SCHEMA, "host_chains/9", "host_chains/9"),
            ("\"rounds_us\":[1000000.0]", "\"rounds_us\":[]", "no rounds"),
            ("\"rounds_us\":[1000000.0]", "\"rounds_us\":[-1.0]", "above 0"),
        ] {
            let error = Chains::from_json(&whole.replace(from, to)).expect_err(to);
            assert!(format!("{error:#}").contains(why), "{error:#}");
        }
        let profile = catalog::framework(FRAMEWORK).expect("shipped");
        let without = Chains::from_json(&whole.replace("\"training\"", "\"other\"")).expect("read");
        assert!(without.record(&profile).expect_err("no training").to_string().contains("training"));
    }

    #[test]
    fn a_python_without_pytorch_is_told_in_one_line() {
        let error = format!("{:#}", measure("no-such-python", 1.0).expect_err("none"));
        assert!(error.contains("--python") && !error.contains('\n'), "{error}");
        let error = format!("{:#}", measure("false", 1.0).expect_err("it fails"));
        assert!(error.contains("it says nothing"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
        let begin = Instant::now();
        let error = ended(&mut child, Duration::from_millis(50)).expect_err("too long");
        assert!(error.to_string().contains("took longer") && begin.elapsed() < Duration::from_secs(30));
    }
}
