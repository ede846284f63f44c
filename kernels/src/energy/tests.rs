#![allow(clippy::unwrap_used)]

use super::*;

/// A board whose power follows `watts(t)`; its counter ticks every `period`, in whole millijoules.
struct Board<'a> {
    period: f64,
    watts: &'a dyn Fn(f64) -> f64,
}

impl Board<'_> {
    fn counter(&self, t: f64) -> f64 {
        let end = (t / self.period).floor() * self.period;
        let steps = 4000;
        let dt = end / f64::from(steps);
        let joules: f64 = (0..steps).map(|i| (self.watts)((f64::from(i) + 0.5) * dt) * dt).sum();
        (joules * 1e3).floor() / 1e3
    }

    /// Samples about every `interval`, jittered by up to a quarter of it.
    fn samples(&self, seconds: f64, interval: f64) -> Vec<Sample> {
        let mut seed = 7_u64;
        let mut t = 0.013;
        let mut samples = Vec::new();
        while t < seconds {
            samples.push(Sample {
                at: Seconds::new(100.0 + t),
                counter: Some(Joules::new(5e6 + self.counter(t))),
                power: Some(Watts::new((self.watts)(t))),
                core: Some(Hertz::from_mhz(1980.0)),
                memory: Some(Hertz::from_mhz(3201.0)),
                temperature_c: Some(40.0 + t),
                reasons: Some(0),
                throttled: Some(ThrottleTimes::default()),
                limit: Some(Watts::new(700.0)),
                others: Some(0),
            });
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            t += interval * (0.75 + 0.5 * ((seed >> 33) as f64 / f64::from(1_u32 << 31)));
        }
        samples
    }
}

fn constant(seconds: f64) -> Vec<Sample> {
    Board { period: 0.1, watts: &|_| 500.0 }.samples(seconds, 0.01)
}

fn close(found: f64, expected: f64, relative: f64) {
    assert!((found / expected - 1.0).abs() <= relative, "{found} is not {expected}");
}

#[test]
fn constant_power_is_found_between_ticks() {
    let reading = reading(&constant(3.05)).unwrap();
    assert_eq!(reading.method, Method::CounterTicks);
    assert_eq!(reading.ticks, 30);
    // Ticks lie at 0.1 to 3.0 s: 2.9 s and their energy, whatever the sampling does in between.
    close(reading.energy.get(), 2.9 * 500.0, 1e-5);
    close(reading.window().get(), 2.9, 0.0125 / 2.9);
    close(reading.power.get(), 500.0, 0.005);
    close(reading.power_integral.unwrap().get(), 500.0, 1e-9);
    close(reading.core_mean.unwrap().to_mhz(), 1980.0, 1e-9);
    assert_eq!(reading.core_min, Some(Hertz::from_mhz(1980.0)));
    assert_eq!(reading.limit, Some(Watts::new(700.0)));
    assert_eq!(reading.throttled, Some(ThrottleTimes::default()));
    assert_eq!(reading.reason_names().as_deref(), Some("none"));
    assert!(reading.warnings.is_empty());
    close(reading.temperature_start_c.unwrap(), 40.1, 0.001);
    close(reading.temperature_end_c.unwrap(), 43.0, 0.001);
}

/// The energy outside the ticks would be wrong by up to a period; a naive difference of first and last sample is.
#[test]
fn edges_are_ticks_and_not_the_first_and_last_samples() {
    let samples = constant(0.995);
    let reading = reading(&samples).unwrap();
    close(reading.power.get(), 500.0, 0.01);
    let (first, last) = (samples.first().unwrap(), samples.last().unwrap());
    let naive = (last.counter.unwrap() - first.counter.unwrap()) / (last.at - first.at);
    assert!((naive.get() / 500.0 - 1.0).abs() > 0.05, "{naive}");
}

#[test]
fn a_ramp_gives_its_mean() {
    let board = Board { period: 0.1, watts: &|t| 300.0 + 50.0 * t };
    let reading = reading(&board.samples(2.05, 0.01)).unwrap();
    // Mean over 0.1 to 2.0 s.
    close(reading.power.get(), 352.5, 0.006);
    close(reading.power_integral.unwrap().get(), 352.5, 0.002);
}

#[test]
fn a_fast_counter_ticks_at_every_sample() {
    let reading = reading(&Board { period: 0.02, watts: &|_| 250.0 }.samples(2.0, 0.03)).unwrap();
    close(reading.power.get(), 250.0, 0.015);
}

#[test]
fn clocks_are_weighted_by_time() {
    let mut samples = constant(2.05);
    for sample in samples.iter_mut().filter(|s| s.at.get() > 101.05) {
        sample.core = Some(Hertz::from_mhz(1500.0));
        sample.reasons = Some(4);
    }
    // A burst of samples in the second half must not count more than its time.
    let dense: Vec<Sample> = samples
        .iter()
        .flat_map(|s| {
            let n = if s.at.get() > 101.06 { 5 } else { 1 };
            (0..n).map(move |i| Sample { at: s.at + Seconds::new(1e-4 * f64::from(i)), ..*s })
        })
        .collect();
    for samples in [samples, dense] {
        let reading = reading(&samples).unwrap();
        close(reading.core_mean.unwrap().to_mhz(), 1740.0, 0.005);
        assert_eq!(reading.core_min, Some(Hertz::from_mhz(1500.0)));
        assert_eq!(reading.reason_names().as_deref(), Some("sw_power_cap"));
    }
}

#[test]
fn a_frozen_counter_is_rejected_from_the_start_and_in_the_middle() {
    let mut samples = constant(3.0);
    let stuck = samples[100].counter;
    for sample in &mut samples[100..] {
        sample.counter = stuck;
    }
    assert!(matches!(reading(&samples), Err(Rejection::CounterFrozen(t)) if t > FROZEN), "{:?}", reading(&samples));
    assert!(steady(&samples, Seconds::new(0.5)).is_none());
    for sample in &mut samples {
        sample.counter = stuck;
    }
    assert!(matches!(reading(&samples), Err(Rejection::CounterFrozen(_))));
    // A pause between samples is no proof of a frozen counter.
    let paused: Vec<Sample> = constant(4.0).into_iter().filter(|s| !(101.0..103.0).contains(&s.at.get())).collect();
    close(reading(&paused).unwrap().power.get(), 500.0, 0.005);
}

#[test]
fn a_falling_counter_is_rejected() {
    let mut samples = constant(1.0);
    samples[60].counter = Some(Joules::new(1.0));
    assert!(matches!(reading(&samples), Err(Rejection::CounterFalling(old, new)) if new < old));
}

#[test]
fn too_short_and_disordered_samples_are_rejected() {
    assert_eq!(reading(&constant(0.15)), Err(Rejection::TooFewTicks(1)));
    assert_eq!(reading(&[]), Err(Rejection::NoSensor));
    let mut samples = constant(1.0);
    samples.swap(3, 4);
    assert_eq!(reading(&samples), Err(Rejection::OutOfOrder));
}

#[test]
fn without_a_counter_power_is_integrated() {
    let mut samples = Board { period: 0.1, watts: &|t| 300.0 + 50.0 * t }.samples(2.0, 0.01);
    for sample in &mut samples {
        sample.counter = None;
    }
    let found = reading(&samples).unwrap();
    assert_eq!(found.method, Method::PowerIntegral);
    close(found.power.get(), 350.0, 0.002);
    assert_eq!((found.power_integral, found.warnings), (None, vec![Warning::NoCrossCheck]));
    for sample in &mut samples {
        sample.power = None;
    }
    assert_eq!(reading(&samples), Err(Rejection::NoSensor));
}

#[test]
fn missing_sensors_stay_missing() {
    let bare: Vec<Sample> =
        constant(1.05).iter().map(|s| Sample { at: s.at, counter: s.counter, ..Sample::default() }).collect();
    let found = reading(&bare).unwrap();
    close(found.power.get(), 500.0, 0.02);
    assert_eq!(found.power_integral, None);
    assert_eq!((found.core_mean, found.core_min, found.memory), (None, None, None));
    assert_eq!((found.temperature_start_c, found.temperature_end_c), (None, None));
    assert_eq!((found.reasons, found.throttled, found.limit), (None, None, None));
    assert_eq!(found.warnings, vec![Warning::NoCrossCheck]);
}

#[test]
fn the_cross_check_warns_and_rejects() {
    let with_gain = |gain: f64| {
        let mut samples = constant(3.05);
        for sample in &mut samples {
            sample.power = sample.power.map(|p| p * gain);
        }
        reading(&samples)
    };
    assert!(with_gain(1.01).unwrap().warnings.is_empty());
    assert!(matches!(with_gain(0.965).unwrap().warnings[..], [Warning::CrossCheck(d)] if (0.03..0.04).contains(&d)));
    assert!(matches!(with_gain(1.08), Err(Rejection::CrossCheck { integral, .. }) if integral.get() > 539.0));
    assert!(matches!(with_gain(0.0), Err(Rejection::CrossCheck { .. })));
    assert!(matches!(with_gain(f64::NAN).unwrap().warnings[..], [Warning::NoCrossCheck]));
}

#[test]
fn what_disturbs_within_the_window_rejects_and_outside_does_not() {
    let disturbed = |at: f64, change: &dyn Fn(&mut Sample)| {
        let mut samples = constant(2.05);
        for sample in samples.iter_mut().filter(|s| s.at.get() >= at) {
            change(sample);
        }
        reading(&samples)
    };
    let brake = |s: &mut Sample| {
        s.throttled = Some(ThrottleTimes { hardware: Seconds::new(0.02), ..ThrottleTimes::default() });
    };
    assert_eq!(disturbed(101.0, &brake), Err(Rejection::HardwareThrottle(Seconds::new(0.02))));
    // Held back long ago: the counter's value itself means nothing.
    assert!(disturbed(0.0, &brake).is_ok());
    let others = |s: &mut Sample| s.others = Some(2);
    assert_eq!(disturbed(101.0, &others), Err(Rejection::OtherProcesses(2)));
    let limit = |s: &mut Sample| s.limit = Some(Watts::new(600.0));
    assert_eq!(disturbed(101.0, &limit), Err(Rejection::LimitChanged(Watts::new(700.0), Watts::new(600.0))));
    assert_eq!(disturbed(0.0, &limit).unwrap().limit, Some(Watts::new(600.0)));
    let hot = |s: &mut Sample| s.reasons = Some(64);
    assert_eq!(disturbed(101.0, &hot), Err(Rejection::HardwareThrottle(Seconds::ZERO)));
    for change in [&brake as &dyn Fn(&mut Sample), &others, &limit, &hot] {
        assert!(disturbed(102.04, change).is_ok(), "after the last tick");
    }
    let cap = |s: &mut Sample| {
        s.throttled = Some(ThrottleTimes { power: Seconds::new(0.7), ..ThrottleTimes::default() });
    };
    assert_eq!(disturbed(101.0, &cap).unwrap().throttled.unwrap().power, Seconds::new(0.7));
}

#[test]
fn steady_waits_for_the_window_and_for_level_power() {
    assert!(steady(&constant(1.5), STEADY_WINDOW).is_none(), "not long enough yet");
    let found = steady(&constant(4.05), STEADY_WINDOW).unwrap();
    close(found.window().get(), 1.5, 0.02);
    close(found.end.get(), 104.0, 1e-4);
    close(found.power.get(), 500.0, 0.01);

    // Power settles from 600 to 500 W: an exponential with 0.5 s.
    let watts = |t: f64| 500.0 + 100.0 * (-t / 0.5).exp();
    let samples = Board { period: 0.1, watts: &watts }.samples(6.05, 0.01);
    let until = |t: f64| {
        let n = samples.partition_point(|s| s.at.get() < 100.0 + t);
        steady(&samples[..n], STEADY_WINDOW)
    };
    assert!(until(2.05).is_none(), "still settling");
    close(until(6.05).unwrap().power.get(), 500.0, 0.01);
}

#[test]
fn steady_works_without_a_counter() {
    let mut samples = constant(2.0);
    for sample in &mut samples {
        sample.counter = None;
    }
    assert_eq!(steady(&samples, STEADY_WINDOW).unwrap().method, Method::PowerIntegral);
}

#[test]
fn a_step_of_power_is_not_steady() {
    let watts = |t: f64| if t < 1.3 { 510.0 } else { 490.0 };
    let samples = Board { period: 0.1, watts: &watts }.samples(2.05, 0.01);
    assert!(steady(&samples, STEADY_WINDOW).is_none());
}
