use super::*;
use crate::fake::law::Effort;
use crate::fake::{FakeGpu, Faults};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::units::Bytes;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{Activation, Function, Layer, Linear};

fn gpu() -> Gpu {
    catalog::gpu("h200").expect("in the catalog")
}

fn heavy() -> Trial {
    let case = LayerCase {
        inputs: vec![Shape::new(&[8192]).expect("shape")],
        layer: Layer::Linear(Linear { features: 8192, bias: false }),
    };
    Trial::usual(case, Phase::Forward, 8192, Precision::Bf16, Mode::Inference).expect("fits")
}

fn light() -> Trial {
    let case = LayerCase {
        inputs: vec![Shape::map(64, 56, 56).expect("shape")],
        layer: Layer::Activation(Activation { function: Function::Relu }),
    };
    Trial::usual(case, Phase::Forward, 64, Precision::Fp32, Mode::Inference).expect("fits")
}

fn measured(trial: &Trial, faults: Faults) -> (Burst, Sustained, Effort) {
    let fake = FakeGpu::new(&gpu(), 7, faults);
    let (mut runner, mut meter) = (fake.clone(), fake);
    runner.load(trial).expect("runs");
    let rules = Rules::default();
    let burst = burst(&mut runner, Some(&mut meter), &rules).expect("measured");
    let mut sustained = sustained(&mut runner, &mut meter, &rules).expect("measured");
    check_clock(&burst, &mut sustained);
    (burst, sustained, Effort::of_trial(trial, &gpu()).expect("work"))
}

fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a / b - 1.0).abs() < tolerance, "{a} {b}");
}

#[test]
fn a_burst_is_at_full_clock_and_a_heavy_sustained_run_at_the_cap() {
    let (burst, sustained, work) = measured(&heavy(), Faults::default());
    close(burst.timing.time.get(), work.time(1.0).get(), 0.01);
    let fast = burst.sample.and_then(|s| s.core).expect("clock");
    assert_eq!(fast.to_mhz().round(), 1980.0);
    assert_eq!((burst.flags.len(), &sustained.flags), (0, &Vec::new()));
    let reading = sustained.reading.as_ref().expect("steady");
    let slow = reading.core_mean.expect("clock");
    assert!(slow < fast * 0.95, "{slow}");
    close(sustained.timing.time.get(), work.time(slow / fast).get(), 0.01);
    close(reading.power.get(), work.power(slow / fast).get(), 0.01);
    close(sustained.energy().expect("energy").get(), (reading.power * sustained.timing.time).get(), 1e-12);
    assert_eq!(reading.reason_names().as_deref(), Some("sw_power_cap"));
}

#[test]
fn a_light_layer_keeps_its_clock() {
    let (burst, sustained, work) = measured(&light(), Faults::default());
    close(sustained.timing.time.get(), work.time(1.0).get(), 0.01);
    close(burst.timing.time.get(), sustained.timing.time.get(), 0.01);
    close(sustained.reading.expect("steady").power.get(), work.power(1.0).get(), 0.01);
    assert!(burst.timing.blocks >= 5 && burst.timing.p10 <= burst.timing.time);
}

#[test]
fn what_cannot_be_believed_is_flagged_and_kept() {
    let (_, frozen, work) = measured(&light(), Faults { frozen_counter: true, ..Faults::default() });
    assert_eq!(frozen.flags, ["counter_frozen"]);
    assert!(frozen.reading.is_none() && frozen.energy().is_none());
    close(frozen.timing.time.get(), work.time(1.0).get(), 0.01);
    let (_, drifting, _) = measured(&light(), Faults { drifting: true, ..Faults::default() });
    assert_eq!(drifting.flags, [DRIFTING]);
    assert!(drifting.reading.is_some(), "the last window");
}

#[test]
fn a_clock_that_lies_is_flagged() {
    let (mut burst, mut sustained, _) = measured(&light(), Faults::default());
    burst.timing.time = burst.timing.time * 0.9;
    check_clock(&burst, &mut sustained);
    assert_eq!(sustained.flags, [CLOCK_BELOW]);
}

#[test]
fn a_burst_needs_no_meter() {
    let mut runner = FakeGpu::new(&gpu(), 7, Faults::default());
    runner.load(&light()).expect("runs");
    let burst = burst(&mut runner, None, &Rules::default()).expect("measured");
    assert!(burst.sample.is_none() && burst.flags.is_empty());
}

#[test]
fn scattered_blocks_are_flagged_when_the_budget_ends() {
    let mut runner = FakeGpu::new(&gpu(), 7, Faults::default());
    runner.load(&light()).expect("runs");
    let rules = Rules { spread: 1e-6, ..Rules::default() };
    let burst = burst(&mut runner, None, &rules).expect("measured");
    assert_eq!(burst.flags, [SPREAD]);
    let total = burst.timing.time * burst.timing.executions as f64;
    assert!(total >= rules.burst_budget * 0.95 && total < rules.burst_budget * 1.2, "{total}");
}

#[test]
fn a_lost_device_is_an_error() {
    for calls in 2..40 {
        let fake = FakeGpu::new(&gpu(), 7, Faults { lost_after: Some(calls), ..Faults::default() });
        let (mut runner, mut meter) = (fake.clone(), fake);
        runner.load(&light()).expect("loads");
        let run = burst(&mut runner, Some(&mut meter), &Rules::default())
            .and_then(|_| sustained(&mut runner, &mut meter, &Rules::default()));
        assert!(matches!(run, Err(DeviceError::Lost(_))), "{run:?}");
    }
}

/// A runner whose blocks end at once, so that the meter's reads are gaps.
struct Instant(crate::runner::Identity, u64);

impl LayerRunner for Instant {
    fn identity(&self) -> &crate::runner::Identity {
        &self.0
    }
    fn load(&mut self, _: &Trial) -> Result<crate::runner::Loaded, DeviceError> {
        Ok(crate::runner::Loaded { memory: Bytes::ZERO, ..Default::default() })
    }
    fn load_network(&mut self, _: &crate::runner::NetworkTrial<'_>) -> Result<crate::runner::Loaded, DeviceError> {
        Ok(crate::runner::Loaded::default())
    }
    fn enqueue(&mut self) -> Result<(), DeviceError> {
        self.1 += 1;
        Ok(())
    }
    fn finished(&mut self, _: bool) -> Result<Vec<Block>, DeviceError> {
        let block = Block { executions: 1, duration: Seconds::from_us(1.0) };
        Ok(vec![block; std::mem::take(&mut self.1) as usize])
    }
}

#[test]
fn a_device_that_runs_dry_is_flagged() {
    let mut meter = FakeGpu::new(&gpu(), 7, Faults::default());
    let run = sustained(&mut Instant(Default::default(), 0), &mut meter, &Rules::default()).expect("measured");
    assert!(run.flags.contains(&IDLE_GAPS.to_string()), "{:?}", run.flags);
}

#[test]
fn quantiles_lie_between_values() {
    assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5), Some(Seconds::new(2.0)));
    assert_eq!(quantile(&[1.0, 2.0], 0.5), Some(Seconds::new(1.5)));
    assert_eq!(quantile(&[], 0.5), None);
}

#[test]
fn a_disturbed_sample_is_flagged() {
    let clean = Sample { others: Some(0), reasons: Some(4), ..Sample::default() };
    assert!(disturbances(&clean).is_empty());
    let disturbed = Sample { others: Some(2), reasons: Some(64), ..Sample::default() };
    let names: Vec<&str> = disturbances(&disturbed).into_iter().map(Rejection::name).collect();
    assert_eq!(names, ["other_processes", "hardware_throttle"]);
}
