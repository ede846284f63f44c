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

pub fn parse_size(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(n) if (1..=MAX_DIMENSION).contains(&n) => Ok(n),
        _ => Err(format!("must be a whole number from 1 to {MAX_DIMENSION}")),
    }
}

pub fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
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

pub fn parse_latency(text: &str) -> Result<f64, String> {
    text.parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0).ok_or("must be a number of at least 0".into())
}

/// A time above zero with its unit.
pub fn parse_time(text: &str) -> Result<Seconds, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - unit.len()];
    let seconds = parse_with_unit(&format!("{number} {}", unit.trim()), Dimension::Time).ok().filter(|s| *s > 0.0);
    seconds.map(Seconds::new).ok_or_else(|| "must be a time above 0 with its unit, as in 500ms or 2s".into())
}

pub fn parse_percent(text: &str) -> Result<f64, String> {
    text.trim_end_matches('%')
        .parse::<f64>()
        .ok()
        .filter(|v| v.is_finite() && *v >= 0.0)
        .ok_or("must be a percentage of at least 0, as in 5%".into())
}

pub fn parse_precision(text: &str) -> Result<Precision, String> {
    Precision::from_name(&text.to_ascii_lowercase()).ok_or_else(|| one_of(Precision::ALL.iter().map(|p| p.name())))
}

pub fn parse_mode(text: &str) -> Result<Mode, String> {
    Mode::from_name(&text.to_ascii_lowercase()).ok_or_else(|| one_of(Mode::ALL.iter().map(|m| m.name())))
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
    Ok((gpu.to_string(), parse_positive(price)?))
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

pub fn parse_axis(text: &str) -> Result<Axis, String> {
    if text == "default" {
        return Ok(Axis::Default);
    }
    let Some((from, rest)) = text.split_once("..") else {
        let value = parse_positive(text)?;
        return Ok(Axis::Range(value, value, 1.0));
    };
    let (to, step) = rest.split_once(':').ok_or("write a range like 600..1500:15, with its step")?;
    let (from, to, step) = (parse_positive(from)?, parse_positive(to)?, parse_positive(step)?);
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
    let (from, to, step) = (parse_size(from)?, parse_size(to)?, parse_size(step)?);
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
    }

    #[test]
    fn axes_are_read() {
        assert_eq!(settings(&[Axis::Default]), [None]);
        let range = parse_axis("600..700:50").expect("a range");
        assert_eq!(settings(&[Axis::Default, range]), [None, Some(600.0), Some(650.0), Some(700.0)]);
        for wrong in ["600..700", "700..600:5", "0", "-5", "600..700:0", "1..1000000:1", "x"] {
            assert!(parse_axis(wrong).is_err(), "{wrong}");
        }
    }
}
