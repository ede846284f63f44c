//! Clocks and power limit that a user asks for, and what the device makes of them.

use super::Warning;
use crate::base::number::{Lanes, Number as _};
use crate::base::units::{Hertz, Watts};
use crate::device::gpu::Gpu;

/// The lowest clock where the device's file does not say, as a share of the boost clock.
const LOWEST_CLOCK: f64 = 0.2;
/// The default limit leaves a kernel at least so much of the base clock: of 5,032 steps of networks measured on H100 and
/// H200 (`sm_mhz_min` of data/measurements) the slowest sample ran at 1290 MHz, 0.81 of it.
const OF_BASE: f64 = 0.8;
/// The same of the boost clock where the device's file names no base clock: 0.65 there.
const OF_BOOST: f64 = 0.6;
/// Clocks are quoted in whole megahertz: so much off the grid is not worth a warning.
const WHOLE: Hertz = Hertz::from_mhz(1.0);
/// Clocks are solved for to this share of the boost clock.
const RESOLUTION: f64 = 1e-9;
/// Steps along secants before halving, which always ends.
const SECANTS: usize = 12;

/// What is set on the device; what is left out stays as the driver has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperatingPoint {
    /// Highest core clock.
    pub core_clock: Option<Hertz>,
    /// Memory clock.
    pub memory_clock: Option<Hertz>,
    /// Power limit.
    pub power_cap: Option<Watts>,
}

/// What cannot be set on a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{gpu} has no {what} of {asked}; {range}")]
pub struct OperatingError {
    gpu: String,
    what: &'static str,
    asked: String,
    range: String,
}

/// An operating point as a device takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Highest core clock, relative to the boost clock.
    pub ceiling: f64,
    /// Lowest core clock, relative to the boost clock.
    pub lowest: f64,
    /// Memory clock, relative to the usual one.
    pub memory: f64,
    /// Power limit.
    pub cap: Watts,
    /// What was taken otherwise than asked for.
    pub notes: Vec<Warning>,
}

impl OperatingPoint {
    /// What the device makes of it: a core clock off the grid becomes the nearest on it.
    ///
    /// # Errors
    /// For a clock or limit outside of the device's range; the message names the range.
    pub fn on(&self, gpu: &Gpu) -> Result<Limits, OperatingError> {
        let mut notes = Vec::new();
        let boost = gpu.core_clock.boost.value;
        let ceiling = match self.core_clock {
            None => 1.0,
            Some(asked) => {
                let asked = within(gpu, "core clock", asked, core_range(gpu), Hertz::to_mhz, "MHz")?;
                let clock = on_grid(gpu, asked);
                if (clock.get() - asked.get()).abs() > WHOLE.get() {
                    notes.push(Warning::OffGrid { asked, nearest: clock });
                }
                clock / boost
            }
        };
        let memory = match (self.memory_clock, &gpu.memory_clock) {
            (None, _) => 1.0,
            (Some(asked), Some(usual)) => {
                let range =
                    gpu.memory_clock_range.as_ref().map_or((usual.value, usual.value), |r| (r.0.value, r.1.value));
                within(gpu, "memory clock", asked, range, Hertz::to_mhz, "MHz")? / usual.value
            }
            (Some(asked), None) => {
                let range = "its memory clocks are not known".to_string();
                return Err(error(gpu, "memory clock", format!("{:.0} MHz", asked.to_mhz()), range));
            }
        };
        let cap = match self.power_cap {
            None => gpu.power.limit.value,
            Some(asked) => {
                let least = gpu.power.limit_minimum.as_ref().map(|p| p.value);
                let most = gpu.power.limit_maximum.as_ref().map_or(gpu.power.limit.value, |p| p.value);
                if least.is_none() {
                    notes.push(Warning::LowestLimit { gpu: gpu.name.clone() });
                }
                within(gpu, "power limit", asked, (least.unwrap_or(Watts::ZERO), most), Watts::get, "W")?
            }
        };
        Ok(Limits { ceiling, lowest: lowest(gpu).min(ceiling), memory, cap, notes })
    }
}

/// Lowest and highest core clock that can be set.
pub fn core_range(gpu: &Gpu) -> (Hertz, Hertz) {
    let boost = gpu.core_clock.boost.value;
    let low = gpu.core_clock.minimum.as_ref().map_or(boost * LOWEST_CLOCK, |c| c.value);
    (low, gpu.core_clock.maximum.as_ref().map_or(boost, |c| c.value).max(low))
}

/// The lowest core clock, relative to the boost clock.
pub fn lowest(gpu: &Gpu) -> f64 {
    core_range(gpu).0 / gpu.core_clock.boost.value
}

/// The lowest core clock that the default limit leaves any kernel, relative to the boost clock.
pub(super) fn lowest_by_default(gpu: &Gpu) -> f64 {
    let clock = &gpu.core_clock;
    clock.base.as_ref().map_or(OF_BOOST, |base| OF_BASE * (base.value / clock.boost.value)).max(lowest(gpu))
}

/// The nearest clock that can be set; the clock itself where the grid is not known.
fn on_grid(gpu: &Gpu, clock: Hertz) -> Hertz {
    let (Some(low), Some(step)) = (&gpu.core_clock.minimum, &gpu.core_clock.step) else { return clock };
    let steps = ((clock - low.value) / step.value).round();
    (low.value + step.value * steps).min(core_range(gpu).1)
}

fn error(gpu: &Gpu, what: &'static str, asked: String, range: String) -> OperatingError {
    OperatingError { gpu: gpu.name.clone(), what, asked, range }
}

fn within<T: PartialOrd + Copy>(
    gpu: &Gpu,
    what: &'static str,
    asked: T,
    (low, high): (T, T),
    number: fn(T) -> f64,
    unit: &str,
) -> Result<T, OperatingError> {
    // Half a unit, since ranges are quoted in whole ones.
    if number(asked) >= number(low) - 0.5 && number(asked) <= number(high) + 0.5 && number(asked) > 0.0 {
        return Ok(if asked < low {
            low
        } else if asked > high {
            high
        } else {
            asked
        });
    }
    // How low it goes need not be known.
    let range = match number(low) {
        low if low > 0.0 => format!("it goes from {low:.0} to {:.0} {unit}", number(high)),
        _ => format!("it goes up to {:.0} {unit}", number(high)),
    };
    Err(error(gpu, what, format!("{:.0} {unit}", number(asked)), range))
}

/// The highest clock from `low` to `high` at which `excess`, which rises with the clock, is not above zero; `None` where it is
/// above zero even at the lowest. Found to [`RESOLUTION`] whatever the bracket, and never above zero.
///
/// Regula falsi with the Illinois correction (Dowell and Jarratt, BIT 11, 1971), kept off the ends so that both close in.
pub fn highest(low: f64, high: f64, excess: impl Fn(f64) -> f64) -> Option<f64> {
    let mut above = (high, excess(high));
    if above.1 <= 0.0 {
        return Some(high);
    }
    let mut below = (low, excess(low));
    if below.1 > 0.0 {
        return None;
    }
    let mut last = None;
    for step in 0.. {
        let width = above.0 - below.0;
        if width <= RESOLUTION {
            break;
        }
        let secant = below.0 + width * below.1 / (below.1 - above.1);
        let middle = below.0 + width / 2.0;
        let least = (RESOLUTION / 2.0).min(width / 4.0);
        let clock = if step < SECANTS { secant.clamp(below.0 + least, above.0 - least) } else { middle };
        let value = excess(clock);
        let keeps = value <= 0.0;
        if keeps {
            below = (clock, value);
            above.1 *= if last == Some(true) { 0.5 } else { 1.0 };
        } else {
            above = (clock, value);
            below.1 *= if last == Some(false) { 0.5 } else { 1.0 };
        }
        last = Some(keeps);
    }
    Some(below.0)
}

/// The same where what `excess` changes by per clock is known besides: Newton's steps, kept between clocks below and above, to
/// [`DIGITS`].
pub(super) fn highest_by_slope(low: f64, high: f64, excess: impl Fn(f64) -> (f64, f64)) -> Option<f64> {
    highest_near(None, low, high, excess)
}

/// The same for several things side by side, and `low` where that is too high, by Newton's steps alone; `None` where these come to
/// no end.
#[inline(always)]
pub(super) fn highest_of_each(low: f64, high: f64, excess: impl Fn(Lanes) -> (Lanes, Lanes)) -> Option<Lanes> {
    let mut clock = Lanes::of(high);
    for _ in 0..MOST_STEPS {
        let (value, slope) = excess(clock);
        let next = (clock - value / slope).max(Lanes::of(low));
        let stays =
            next.0.iter().zip(clock.0).fold(true, |all, (next, clock)| all & ((next - clock).abs() <= DIGITS * clock));
        clock = next;
        if stays {
            return Some(clock);
        }
    }
    None
}

/// The same of one, beginning where the clock is expected.
#[inline]
pub(super) fn highest_near(near: Option<f64>, low: f64, high: f64, excess: impl Fn(f64) -> (f64, f64)) -> Option<f64> {
    let (value, slope) = excess(high);
    if value <= 0.0 {
        return Some(high);
    }
    let (mut below, mut above) = (None, high);
    let (mut clock, mut next) = (high, near.unwrap_or(high - value / slope));
    for _ in 0..MOST_STEPS {
        if (next - clock).abs() <= DIGITS * clock {
            return Some(next.clamp(low, high));
        }
        // Halving, from the lowest clock on, where a step leads out.
        if !(next > below.unwrap_or(low) && next < above) {
            if below.is_none() && excess(low).0 > 0.0 {
                return None;
            }
            let least = *below.get_or_insert(low);
            next = least + (above - least) / 2.0;
        }
        clock = next;
        let (value, slope) = excess(clock);
        if value <= 0.0 {
            below = Some(clock);
        } else {
            above = clock;
        }
        next = clock - value / slope;
        if above - below.unwrap_or(low) <= DIGITS * clock {
            break;
        }
    }
    Some(below.unwrap_or(low))
}

/// What rounding leaves of a clock, generously.
const DIGITS: f64 = 64.0 * f64::EPSILON;
/// Many more steps than Newton's ever take, and halving alone needs.
const MOST_STEPS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::testing::TEXT;

    fn gpu() -> Gpu {
        let clocks = r#"boost = { value = "1500 MHz", kind = "vendor", source = "a" }
minimum = { value = "300 MHz", kind = "vendor", source = "a" }
maximum = { value = "1600 MHz", kind = "vendor", source = "a" }
step = { value = "20 MHz", kind = "vendor", source = "a" }"#;
        let limits = r#"limit = { value = "300 W", kind = "vendor", source = "a" }
limit_minimum = { value = "150 W", kind = "vendor", source = "a" }"#;
        let text = TEXT
            .replace(r#"boost = { value = "1500 MHz", kind = "vendor", source = "a" }"#, clocks)
            .replace(r#"limit = { value = "300 W", kind = "vendor", source = "a" }"#, limits);
        Gpu::from_toml(&text).expect("a valid device")
    }

    #[test]
    fn nothing_asked_is_the_default() {
        let limits = OperatingPoint::default().on(&gpu()).expect("the default");
        assert_eq!((limits.ceiling, limits.memory, limits.cap), (1.0, 1.0, Watts::new(300.0)));
        assert!(limits.notes.is_empty());
    }

    #[test]
    fn a_range_whose_lower_end_nobody_knows_has_none() {
        let above =
            |low| within(&gpu(), "limit", 400.0, (low, 350.0), |watts| watts, "W").expect_err("above").to_string();
        assert!(above(0.0).contains("it goes up to 350 W") && above(100.0).contains("it goes from 100 to 350 W"));
    }

    #[test]
    fn a_clock_off_the_grid_becomes_the_nearest_and_says_so() {
        let point = |mhz| OperatingPoint { core_clock: Some(Hertz::from_mhz(mhz)), ..OperatingPoint::default() };
        let limits = point(1009.0).on(&gpu()).expect("within the range");
        assert!((limits.ceiling * 1500.0 - 1000.0).abs() < 1e-6);
        assert!(
            matches!(limits.notes[..], [Warning::OffGrid { nearest, .. }] if (nearest.to_mhz() - 1000.0).abs() < 1e-6),
            "{:?}",
            limits.notes
        );
        assert!(point(1000.0).on(&gpu()).expect("on the grid").notes.is_empty());
        assert!(point(1600.0).on(&gpu()).expect("the highest").ceiling > 1.0);
    }

    #[test]
    fn what_does_not_exist_is_an_error_that_names_the_range() {
        let core = OperatingPoint { core_clock: Some(Hertz::from_mhz(200.0)), ..OperatingPoint::default() };
        let cap = |watts| OperatingPoint { power_cap: Some(Watts::new(watts)), ..OperatingPoint::default() };
        let memory = OperatingPoint { memory_clock: Some(Hertz::from_mhz(800.0)), ..OperatingPoint::default() };
        for (point, range) in [(core, "300 to 1600 MHz"), (cap(100.0), "150 to 300 W"), (cap(301.0), "150 to 300 W")] {
            let error = point.on(&gpu()).expect_err(range).to_string();
            assert!(error.contains(range), "{error}");
        }
        assert!(memory.on(&gpu()).expect_err("unknown").to_string().contains("not known"));
    }

    /// A base clock is what vendors promise under the limit, about.
    #[test]
    fn the_default_limit_leaves_most_of_the_base_clock() {
        let base = "base = { value = \"1300 MHz\", kind = \"vendor\", source = \"a\" }\n";
        let near = |text: &str, mhz: f64| {
            let gpu = Gpu::from_toml(text).expect("a valid device");
            (lowest_by_default(&gpu) * 1500.0 - mhz).abs() < 1e-9
        };
        assert!(TEXT.contains(base) && near(TEXT, 1040.0));
        assert!(near(&TEXT.replace("1300 MHz", "100 MHz"), 300.0), "the lowest clock at the least");
        assert!(near(&TEXT.replace(base, ""), 900.0));
    }

    #[test]
    fn the_highest_clock_that_keeps_a_limit() {
        let over = |limit: f64| move |clock: f64| clock.powi(3) - limit.powi(3);
        assert_eq!(highest(0.2, 1.0, over(2.0)), Some(1.0));
        assert_eq!(highest(0.2, 1.0, over(0.1)), None);
        for high in [0.701, 0.8, 1.0, 1.3] {
            let found = highest(0.2, high, over(0.7)).expect("within");
            assert!(found <= 0.7 && found > 0.7 - 2.0 * RESOLUTION, "{high}: {found}");
        }
    }

    #[test]
    fn slopes_lead_to_the_same_clock_in_fewer_steps() {
        let count = std::cell::Cell::new(0);
        let counted = |low: f64, high: f64, excess: fn(f64) -> (f64, f64)| {
            count.set(0);
            let found = highest_by_slope(low, high, |clock| {
                count.set(count.get() + 1);
                excess(clock)
            });
            (found, count.get())
        };
        let cube = |clock: f64| (clock.powi(3) - 0.343, 3.0 * clock.powi(2));
        assert_eq!(counted(0.2, 0.6, cube), (Some(0.6), 1));
        assert_eq!(counted(0.8, 1.0, cube).0, None);
        let (found, steps) = counted(0.2, 1.0, cube);
        assert!((found.expect("within") - 0.7).abs() < 1e-14 && steps <= 8, "{found:?} {steps}");
        // A kink, and a jump, beyond which slopes say nothing of the root.
        let kink = |clock: f64| if clock < 0.5 { (clock - 0.3, 1.0) } else { (0.2 + 9.0 * (clock - 0.5), 9.0) };
        assert!((counted(0.2, 1.0, kink).0.expect("within") - 0.3).abs() < 1e-14);
        let (found, steps) = counted(0.2, 1.0, |clock| if clock <= 0.6 { (-1.0, 0.0) } else { (5.0, 0.0) });
        assert!((found.expect("within") - 0.6).abs() < 1e-12 && steps < 60, "{found:?} {steps}");
    }

    #[test]
    fn a_limit_is_found_in_few_steps_and_across_a_jump() {
        let count = std::cell::Cell::new(0);
        let counted = |excess: fn(f64) -> f64| {
            count.set(0);
            let found = highest(0.2, 1.0, |clock| {
                count.set(count.get() + 1);
                excess(clock)
            });
            (found.expect("within"), count.get())
        };
        // As power is: below the knee of the voltage a line, above it a cubic.
        let (found, steps) = counted(|clock| 0.3 + 0.5 * clock * (1.0 + (clock - 0.75).max(0.0)).powi(2) - 0.72);
        assert!((0.3 + 0.5 * found * (1.0 + (found - 0.75)).powi(2) - 0.72).abs() < 1e-8 && steps <= 14, "{steps}");
        let (found, steps) = counted(|clock| if clock <= 0.6 { -1.0 } else { 5.0 });
        assert!(found <= 0.6 && found > 0.6 - 2.0 * RESOLUTION && steps < 60, "{found} {steps}");
    }

    /// Ranges are quoted in whole units: half of one beyond an end is that end.
    #[test]
    fn just_beyond_a_range_is_its_end() {
        let cap = |watts| OperatingPoint { power_cap: Some(Watts::new(watts)), ..OperatingPoint::default() };
        let taken = |watts| cap(watts).on(&gpu()).map(|l| l.cap);
        assert_eq!(taken(300.4), Ok(Watts::new(300.0)));
        assert_eq!(taken(149.6), Ok(Watts::new(150.0)));
        assert_eq!(taken(222.2), Ok(Watts::new(222.2)));
        assert!(taken(300.6).is_err() && taken(149.4).is_err());
    }
}
