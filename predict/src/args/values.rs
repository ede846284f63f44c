//! Words of a command line as values.

use crate::request::HostAsked;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::shape::{MAX_DIMENSION, Shape};
use joulecast_model::base::units::{Dimension, Seconds, parse_with_unit};
use joulecast_model::kernel::features::library_age;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::net::layer::Optimizer;
use joulecast_model::net::network::{Kept, Weights};
use joulecast_model::step::framework::{HostSpeed, Launch, LossScaling};
use std::ops::RangeInclusive;

/// No machine park has more.
const MOST_GPUS: u64 = 65_536;
/// No dataset has more samples, no training more epochs.
const MOST: u64 = 1 << 48;

/// What `--gpus` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// So many of `--gpu`.
    Count(u64),
    /// So many of each name.
    Kinds(Vec<(u64, String)>),
}

pub fn parse_gpus(text: &str) -> Result<Gpus, String> {
    let count = |text: &str| {
        text.parse::<u64>()
            .ok()
            .filter(|n| (1..=MOST_GPUS).contains(n))
            .ok_or_else(|| format!("\"{text}\" is not a number of GPUs from 1 to {MOST_GPUS}"))
    };
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Gpus::Count(count(text)?));
    }
    let kind = |part: &str| match part.split_once('x') {
        Some((n, name)) if !name.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) && !n.is_empty() => {
            Ok((count(n)?, name.to_string()))
        }
        _ => Err(format!("\"{part}\" is not like 2xv100")),
    };
    Ok(Gpus::Kinds(text.split(',').map(|part| kind(part.trim())).collect::<Result<_, _>>()?))
}

/// A name of a list.
fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let known = || all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|one| name(*one) == text).ok_or_else(|| format!("known: {}", known()))
}

pub fn parse_weights(text: &str) -> Result<Weights, String> {
    named(text, Weights::ALL, Weights::name)
}

pub fn parse_cache(text: &str) -> Result<Kept, String> {
    named(text, Kept::ALL, Kept::name)
}

/// A name of a list: blanks after commas are none of it.
pub fn parse_name(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(text.trim().to_string())
}

pub fn parse_size(text: &str) -> Result<u64, String> {
    match text.trim().parse::<u64>() {
        Ok(n) if (1..=MAX_DIMENSION).contains(&n) => Ok(n),
        _ => Err(format!("must be a whole number from 1 to {MAX_DIMENSION}")),
    }
}

pub fn parse_positive(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(v) if v.is_finite() && v > 0.0 => Ok(v),
        _ => Err("must be a number above 0".into()),
    }
}

/// A factor, or a file; 1 is the profile's own host, whose speed is not known.
pub fn parse_host(text: &str) -> Result<HostAsked, String> {
    match text.parse::<f64>() {
        Ok(1.0) => Ok(HostAsked::Profile),
        Ok(factor) if HostSpeed::stated(factor, "").is_some() => Ok(HostAsked::Factor(factor)),
        Ok(_) => Err("must be from 0.01 to 100 times what the profile says, or a file".into()),
        Err(_) => Ok(HostAsked::File(text.into())),
    }
}

/// A number with its unit in base units: `5ms`, `0.2 kW`, `1.5GHz`, `900mhz`.
fn measured(text: &str, dimension: Dimension) -> Option<f64> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - unit.len()];
    let unit = match unit.trim() {
        "w" => "W",
        "kw" | "KW" => "kW",
        "hz" => "Hz",
        "mhz" | "Mhz" => "MHz",
        "ghz" | "Ghz" => "GHz",
        "j" => "J",
        other => other,
    };
    parse_with_unit(&format!("{number} {unit}"), dimension).ok()
}

/// A quantity in an option's own unit, of which there are so many base units: that unit need not be typed.
fn quantity(text: &str, dimension: Dimension, own: f64) -> Option<f64> {
    let text = text.trim();
    let plain = text.parse::<f64>().ok();
    plain.or_else(|| Some(measured(text, dimension)? / own)).filter(|v| v.is_finite() && *v >= 0.0)
}

/// The same above zero.
fn some(text: &str, dimension: Dimension, own: f64, what: &str) -> Result<f64, String> {
    let value = quantity(text, dimension, own).filter(|v| *v > 0.0);
    value.ok_or_else(|| format!("must be a number above 0, {what}"))
}

/// Milliseconds.
pub fn parse_ms(text: &str) -> Result<f64, String> {
    some(text, Dimension::Time, 1e-3, "in ms or as in 5ms, 0.2s")
}

/// Watts; no board takes less than one.
pub fn parse_watts(text: &str) -> Result<f64, String> {
    let watts = some(text, Dimension::Power, 1.0, "in W or as in 200W, 0.2kW")?;
    if watts < 1.0 {
        Err(format!("is {watts} W, which no board keeps to; in W or as in 200W, 0.2kW"))
    } else {
        Ok(watts)
    }
}

/// Joules.
pub fn parse_joules(text: &str) -> Result<f64, String> {
    some(text, Dimension::Energy, 1.0, "in J or as in 0.5J, 200mJ")
}

/// Megahertz.
pub fn parse_mhz(text: &str) -> Result<f64, String> {
    some(text, Dimension::Frequency, 1e6, "in MHz or as in 1200MHz, 1.2GHz")
}

/// Milliseconds, or none at all.
pub fn parse_latency_ms(text: &str) -> Result<f64, String> {
    quantity(text, Dimension::Time, 1e-3)
        .ok_or_else(|| "must be a number of at least 0, in ms or as in 5ms, 0.2s".into())
}

/// Seconds, or none at all.
pub fn parse_latency(text: &str) -> Result<f64, String> {
    quantity(text, Dimension::Time, 1.0).ok_or_else(|| "must be a number of at least 0, in s or as in 5s, 200ms".into())
}

/// A time above zero with its unit.
pub fn parse_time(text: &str) -> Result<Seconds, String> {
    let seconds = measured(text, Dimension::Time).filter(|s| *s > 0.0);
    seconds.map(Seconds::new).ok_or_else(|| "must be a time above 0 with its unit, as in 500ms or 2s".into())
}

/// Percent; a share such as 0.05 could mean either, and has to be typed with its sign.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let (number, signed) = text.strip_suffix('%').map_or((text, false), |number| (number, true));
    let known = number.trim().parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
    let percent = known.ok_or("must be a percentage of at least 0, as in 5%")?;
    match !signed && percent > 0.0 && percent < 1.0 {
        true => Err(format!("is it {percent}% or {}%? write the sign", (percent * 1e4).round() / 100.0)),
        false => Ok(percent),
    }
}

pub fn parse_precision(text: &str) -> Result<Precision, String> {
    // As frameworks call them.
    let name = match &text.trim().to_ascii_lowercase()[..] {
        "float32" | "float" => "fp32".into(),
        "float16" | "half" => "fp16".into(),
        "bfloat16" => "bf16".into(),
        other => other.to_string(),
    };
    Precision::from_name(&name).ok_or_else(|| one_of(Precision::ALL.iter().map(|p| p.name())))
}

pub fn parse_mode(text: &str) -> Result<Mode, String> {
    let name = match &text.trim().to_ascii_lowercase()[..] {
        "train" => "training".into(),
        "infer" | "eval" => "inference".into(),
        other => other.to_string(),
    };
    Mode::from_name(&name).ok_or_else(|| one_of(Mode::ALL.iter().map(|m| m.name())))
}

pub fn parse_launch(text: &str) -> Result<Launch, String> {
    Launch::from_name(&text.to_ascii_lowercase()).ok_or_else(|| one_of(Launch::ALL.iter().map(|l| l.name())))
}

/// Algorithms that were measured; cuDNN 9 has no fused Winograd on Hopper, and precomputed offsets too few rows.
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::Heuristic,
    Algorithm::Gemm,
    Algorithm::ImplicitGemm,
    Algorithm::Fft,
    Algorithm::FftTiling,
    Algorithm::WinogradNonfused,
];

pub fn parse_algorithm(text: &str) -> Result<Algorithm, String> {
    let text = text.to_ascii_lowercase().replace('-', "_");
    let known = ALGORITHMS.into_iter().find(|a| a.name() == text);
    known.ok_or_else(|| one_of(ALGORITHMS.iter().map(|a| a.name())))
}

/// Major versions that there are.
const CUDNN: RangeInclusive<u64> = 1..=9;

pub fn parse_cudnn(text: &str) -> Result<f64, String> {
    let (oldest, newest) = (CUDNN.start(), CUDNN.end());
    let known = text.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major| CUDNN.contains(&major));
    let age = library_age(text).filter(|_| known);
    age.ok_or_else(|| format!("must be a version such as 7.6: cuDNN {oldest} to {newest} are known"))
}

pub fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("must be one of {}", names.collect::<Vec<_>>().join(", "))
}

pub fn parse_input(text: &str) -> Result<(String, Shape), String> {
    let (name, dims) = text.split_once('=').ok_or("write it like image=3x299x299")?;
    let dims: Vec<u64> = dims
        .split('x')
        .map(|d| d.parse::<u64>().map_err(|_| format!("\"{d}\" is not a size; write it like image=3x299x299")))
        .collect::<Result<_, _>>()?;
    Ok((name.to_string(), Shape::new(&dims).map_err(|e| e.to_string())?))
}

pub fn parse_optimizer(text: &str) -> Result<Optimizer, String> {
    Optimizer::from_name(&text.to_ascii_lowercase()).ok_or_else(|| one_of(Optimizer::ALL.iter().map(|o| o.name())))
}

pub fn parse_loss_scaling(text: &str) -> Result<LossScaling, String> {
    LossScaling::from_name(&text.to_ascii_lowercase()).ok_or_else(|| one_of(LossScaling::ALL.iter().map(|l| l.name())))
}

pub fn parse_count(text: &str) -> Result<u64, String> {
    let count = text.parse::<u64>().ok().filter(|n| (1..=MOST).contains(n));
    count.ok_or_else(|| format!("must be a whole number from 1 to {MOST}"))
}

pub fn parse_price(text: &str) -> Result<(String, f64), String> {
    let (gpu, price) = text.split_once('=').ok_or("write it like v100=2.5")?;
    Ok((gpu.trim().to_string(), parse_positive(price)?))
}

/// Settings of an axis as they were typed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Axis {
    /// What the driver does.
    Default,
    /// From, to and step.
    Range(f64, f64, f64),
}

/// More settings than any device has.
const MOST_SETTINGS: f64 = 10_000.0;

pub fn parse_clocks(text: &str) -> Result<Axis, String> {
    parse_axis(text, parse_mhz)
}

pub fn parse_caps(text: &str) -> Result<Axis, String> {
    parse_axis(text, parse_watts)
}

fn parse_axis(text: &str, one: fn(&str) -> Result<f64, String>) -> Result<Axis, String> {
    if text.trim() == "default" {
        return Ok(Axis::Default);
    }
    let Some((from, rest)) = text.split_once("..") else {
        let value = one(text)?;
        return Ok(Axis::Range(value, value, 1.0));
    };
    let (to, step) = rest.split_once(':').ok_or("write a range like 600..1500:15, with its step")?;
    let (from, to, step) = (one(from)?, one(to)?, one(step)?);
    if to < from || (to - from) / step > MOST_SETTINGS {
        return Err(format!("a range goes up, in at most {MOST_SETTINGS} steps"));
    }
    Ok(Axis::Range(from, to, step))
}

/// All settings of an axis; none for what the driver does.
pub fn settings(axis: &[Axis]) -> Vec<Option<f64>> {
    let each = |axis: &Axis| match *axis {
        Axis::Default => vec![None],
        Axis::Range(from, to, step) => {
            let steps = ((to - from) / step + 1e-9).floor() as u64;
            (0..=steps).map(|i| Some(from + step * i as f64)).collect()
        }
    };
    axis.iter().flat_map(each).collect()
}

/// Batches as they were typed: from, to and step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    from: u64,
    to: u64,
    step: u64,
}

pub fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let Some((from, rest)) = text.split_once("..") else {
        let size = parse_size(text)?;
        return Ok(Sizes { from: size, to: size, step: 1 });
    };
    let (to, step) = rest.split_once(':').ok_or("write a range like 8..64:8, with its step")?;
    let (from, to, step) =
        (parse_size(from)?, parse_size(to)?, parse_size(step).map_err(|why| format!("its step {why}"))?);
    if to < from || ((to - from) / step) as f64 > MOST_SETTINGS {
        return Err(format!("a range goes up, in at most {MOST_SETTINGS} steps"));
    }
    Ok(Sizes { from, to, step })
}

/// All of them.
pub fn sizes(typed: &[Sizes]) -> Vec<u64> {
    typed.iter().flat_map(|s| (s.from..=s.to).step_by(s.step as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_a_number_or_kinds() {
        assert_eq!(parse_gpus("4"), Ok(Gpus::Count(4)));
        let mixed = vec![(2, "titan-x-pascal".to_string()), (2, "titan-x-maxwell".to_string())];
        assert_eq!(parse_gpus("2xtitan-x-pascal,2xtitan-x-maxwell"), Ok(Gpus::Kinds(mixed)));
        for wrong in ["0", "-1", "v100", "2x", "x2", "2xv100,", "99999999", ""] {
            assert!(parse_gpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn batches_are_numbers_and_ranges() {
        let typed = ["1", "8..64:16", "7..7:1"].map(|text| parse_sizes(text).expect("read"));
        assert_eq!(sizes(&typed), [1, 8, 24, 40, 56, 7]);
        for wrong in ["0", "8..64", "64..8:8", "0..8:1", "1..8:0", "1..2147483647:1", "1..x:1", "-1..4:1", ""] {
            assert!(parse_sizes(wrong).is_err(), "{wrong}");
        }
        assert!(parse_sizes("1..8:0").is_err_and(|why| why.starts_with("its step must be")));
    }

    #[test]
    fn axes_are_read() {
        assert_eq!(settings(&[Axis::Default]), [None]);
        let range = parse_clocks("600..700:50").expect("a range");
        assert_eq!(settings(&[Axis::Default, range]), [None, Some(600.0), Some(650.0), Some(700.0)]);
        for wrong in ["600..700", "700..600:5", "0", "-5", "600..700:0", "1..1000000:1", "x"] {
            assert!(parse_clocks(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_clocks("0.6GHz..700MHz:50"), parse_clocks("600..700:50"));
        assert_eq!(parse_caps("0.2kW"), Ok(Axis::Range(200.0, 200.0, 1.0)));
    }

    #[test]
    fn quantities_are_read_with_and_without_their_unit() {
        let near = |read: Result<f64, String>, value: f64| {
            let read = read.expect("read");
            assert!((read / value - 1.0).abs() < 1e-12, "{read} {value}");
        };
        for text in ["5", "5ms", "5 ms", "0.005s", "5000us", "5e0"] {
            near(parse_ms(text), 5.0);
        }
        for text in ["200", "200W", "0.2kW", "0.2 kw", "200w"] {
            near(parse_watts(text), 200.0);
        }
        for text in ["1200", "1200MHz", "1.2GHz", "1.2 ghz"] {
            near(parse_mhz(text), 1200.0);
        }
        near(parse_joules("200mJ"), 0.2);
        near(parse_latency("200ms"), 0.2);
        assert_eq!((parse_latency_ms("0"), parse_latency("0s")), (Ok(0.0), Ok(0.0)));
        for wrong in ["", "0", "-1", "-5ms", "5W", "ms", "5 m s", "NaN", "inf", "1e400", "5ms5"] {
            assert!(parse_ms(wrong).is_err(), "{wrong}");
        }
        for wrong in ["200J", "0W", "0.2kV", "infW"] {
            assert!(parse_watts(wrong).is_err(), "{wrong}");
        }
    }
}
