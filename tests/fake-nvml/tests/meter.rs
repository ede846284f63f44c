//! The meter and the energy readings on the fake GPU. Time passes as the test says, so nothing depends on the machine.

use joulecast_fake_nvml::law;
use joulecast_fake_nvml::state::{Faults, State};
use joulecast_fake_nvml::testing::{FakeGpu, UUID, ok};
use joulecast_kernels::energy::{self, Method, Rejection, Warning};
use joulecast_kernels::meter::Sample;
use joulecast_kernels::nvml::{self, BoardChoice, NvmlMeter, PowerMethod};
use joulecast_kernels::{DeviceError, PowerMeter};
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};

/// Samples over `seconds` at uneven steps of about 4 ms; `at` lets things happen on the way.
fn run(gpu: &FakeGpu, meter: &mut NvmlMeter, seconds: f64, mut at: impl FnMut(f64, &mut State)) -> Vec<Sample> {
    let begin = gpu.change(|s| s.time_s.unwrap_or(1000.013));
    let mut samples = Vec::new();
    let mut passed = 0.0;
    while passed < seconds {
        gpu.change(|s| {
            s.time_s = Some(begin + passed);
            at(passed, s);
        });
        let mut sample = ok(meter.sample());
        sample.at = Seconds::new(begin + passed);
        samples.push(sample);
        passed += if samples.len() % 3 == 0 { 0.0051 } else { 0.0033 };
    }
    samples
}

fn quiet(_: f64, _: &mut State) {}

#[test]
fn energy_between_ticks_is_what_the_law_says() {
    let gpu = FakeGpu::new();
    let mut meter = gpu.meter();
    for load in [1.0, 0.4] {
        gpu.change(|s| s.load = load);
        let samples = run(&gpu, &mut meter, 2.0, quiet);
        let reading = ok(energy::reading(&samples));
        let power = law::power_w(law::CORE_MAX_MHZ, load);
        let ticks = reading.ticks as f64 - 1.0;
        // The counter is in whole millijoules; the ticks' times are known to half a sampling interval.
        assert!((reading.energy.get() - power * ticks * law::TICK_S).abs() < 2e-3, "{reading:?}");
        assert!((reading.window().get() - ticks * law::TICK_S).abs() <= 0.0051, "{reading:?}");
        assert!((reading.power.get() / power - 1.0).abs() < 0.01);
        assert!((reading.power_integral.map_or(0.0, Watts::get) / power - 1.0).abs() < 1e-3);
        assert_eq!(reading.core_min, Some(Hertz::from_mhz(1980.0)));
        assert_eq!((reading.method, reading.ticks), (Method::CounterTicks, 20));
        assert!(reading.warnings.is_empty(), "{reading:?}");
        assert!(energy::steady(&samples, energy::STEADY_WINDOW).is_some());
    }
}

#[test]
fn a_sample_has_every_sensor() {
    let gpu = FakeGpu::new();
    let mut meter = gpu.meter();
    assert_eq!(meter.power_method(), PowerMethod::InstantField);
    let sample = ok(meter.sample());
    assert_eq!(sample.power, Some(Watts::new(625.0)));
    assert_eq!(sample.core, Some(Hertz::from_mhz(1980.0)));
    assert_eq!(sample.memory, Some(Hertz::from_mhz(3201.0)));
    assert_eq!(sample.temperature_c, Some(61.0));
    assert_eq!((sample.reasons, sample.others), (Some(0), Some(0)));
    assert_eq!(sample.limit.map(|l| l.get().round()), Some(700.0));
    assert!(sample.counter.is_some() && sample.throttled.is_some());
}

#[test]
fn the_power_limit_shows_in_clock_reasons_and_throttle_time() {
    let gpu = FakeGpu::new();
    let mut meter = gpu.meter();
    gpu.change(|s| s.limit_mw = 300_000);
    let reading = ok(energy::reading(&run(&gpu, &mut meter, 1.5, quiet)));
    let clock = law::core_mhz(law::CORE_MAX_MHZ, 1.0, 300.0);
    assert_eq!(reading.core_min.map(|c| c.to_mhz().round()), Some(f64::from(clock)));
    assert!((reading.power.get() / law::power_w(clock, 1.0) - 1.0).abs() < 0.01);
    assert_eq!(reading.reason_names().as_deref(), Some("sw_power_cap"));
    let held = reading.throttled.map_or(0.0, |t| t.power.get());
    assert!((held - reading.window().get()).abs() < 0.02, "{held}");
}

#[test]
fn a_frozen_and_a_falling_counter_are_rejected() {
    let gpu = FakeGpu::new();
    let mut meter = gpu.meter();
    let samples = run(&gpu, &mut meter, 2.5, |t, s| s.faults.frozen = t > 0.5);
    assert!(matches!(energy::reading(&samples), Err(Rejection::CounterFrozen(_))));
    gpu.change(|s| s.faults = Faults { falling: true, ..Faults::default() });
    let samples = run(&gpu, &mut meter, 0.5, quiet);
    assert!(matches!(energy::reading(&samples), Err(Rejection::CounterFalling(..))));
}

#[test]
fn without_a_counter_power_is_integrated() {
    let gpu = FakeGpu::new();
    gpu.change(|s| s.faults.no_counter = true);
    let mut meter = gpu.meter();
    assert!(!meter.has_counter());
    let reading = ok(energy::reading(&run(&gpu, &mut meter, 1.0, quiet)));
    assert_eq!((reading.method, reading.warnings), (Method::PowerIntegral, vec![Warning::NoCrossCheck]));
    assert!((reading.power.get() - 625.0).abs() < 0.01);
}

/// `nvmlDeviceGetPowerUsage` is an average over a second on an H200, which must not pass for instantaneous power.
#[test]
fn power_usage_is_used_only_where_it_is_instantaneous() {
    for (architecture, capability, method) in [
        (9, (9, 0), PowerMethod::None),
        (7, (8, 6), PowerMethod::None),
        (7, (8, 0), PowerMethod::Usage),
        (5, (7, 0), PowerMethod::Usage),
    ] {
        let gpu = FakeGpu::new();
        gpu.change(|s| {
            s.faults.no_instant = true;
            (s.architecture, s.capability) = (architecture, capability);
        });
        let mut meter = gpu.meter();
        assert_eq!(meter.power_method(), method, "{capability:?}");
        assert_eq!(ok(meter.sample()).power.is_some(), method == PowerMethod::Usage);
        let reading = ok(energy::reading(&run(&gpu, &mut meter, 0.6, quiet)));
        assert_eq!(reading.warnings.is_empty(), method == PowerMethod::Usage, "{reading:?}");
    }
}

#[test]
fn a_lost_gpu_is_an_error() {
    let gpu = FakeGpu::new();
    let mut meter = gpu.meter();
    ok(meter.sample());
    gpu.change(|s| s.faults.lost = true);
    assert!(matches!(meter.sample(), Err(DeviceError::Lost(_))));
    assert!(matches!(NvmlMeter::new(gpu.board()), Err(DeviceError::Lost(_))));
}

#[test]
fn what_disturbs_a_measurement_is_rejected() {
    let gpu = FakeGpu::new();
    let mut meter = gpu.meter();
    let hot = run(&gpu, &mut meter, 1.0, |t, s| s.faults.hot = (0.4..0.5).contains(&t));
    let Err(Rejection::HardwareThrottle(time)) = energy::reading(&hot) else { panic!("not rejected") };
    assert!((time.get() - 0.1).abs() < 0.02, "{time}");
    let shared = run(&gpu, &mut meter, 1.0, |t, s| s.others = if t > 0.5 { vec![1, 2] } else { Vec::new() });
    assert_eq!(energy::reading(&shared), Err(Rejection::OtherProcesses(2)));
    gpu.change(|s| s.others.clear());
    let limited = run(&gpu, &mut meter, 1.0, |t, s| s.limit_mw = if t > 0.5 { 650_000 } else { 700_000 });
    assert!(matches!(energy::reading(&limited), Err(Rejection::LimitChanged(..))));
}

#[test]
fn missing_throttle_times_are_missing_and_not_zero() {
    let gpu = FakeGpu::new();
    gpu.change(|s| s.faults.no_throttle_times = true);
    let mut meter = gpu.meter();
    assert_eq!(ok(meter.sample()).throttled, None);
    // The reasons still tell.
    let hot = run(&gpu, &mut meter, 1.0, |t, s| s.faults.hot = t > 0.5);
    assert_eq!(energy::reading(&hot), Err(Rejection::HardwareThrottle(Seconds::ZERO)));
}

#[test]
fn limit_and_processes_are_read_seldom() {
    let gpu = FakeGpu::new();
    let mut meter = ok(NvmlMeter::new(gpu.board())).slow_every(Seconds::new(3600.0));
    ok(meter.sample());
    gpu.change(|s| {
        s.limit_mw = 400_000;
        s.load = 0.0;
    });
    let sample = ok(meter.sample());
    assert_eq!(sample.limit.map(|l| l.get().round()), Some(700.0), "from the sample before");
    assert_eq!(sample.power, Some(Watts::new(law::IDLE_W)), "read anew");
}

#[test]
fn a_board_is_found_by_index_and_by_any_spelling_of_its_uuid() {
    let gpu = FakeGpu::new();
    let api = ok(nvml::open(Some(&gpu.library())));
    assert_eq!(ok(api.boards()), [UUID]);
    for choice in ["0", UUID, "GPU-FA4E0000-0000-4000-8000-000000000001"] {
        assert_eq!(ok(api.board(&BoardChoice::parse(choice))).uuid(), UUID);
    }
    for choice in ["1", "GPU-1"] {
        let error = api.board(&BoardChoice::parse(choice)).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(choice) && error.contains(UUID), "{error}");
    }
}

#[test]
fn the_board_describes_itself() {
    let found = ok(FakeGpu::new().board().describe());
    assert_eq!(found.name.as_deref(), Some("Fake H200"));
    assert_eq!(found.pci.as_deref(), Some("00000000:17:00.0"));
    assert_eq!((found.driver.as_deref(), found.cuda_driver.as_deref()), (Some("580.159.04"), Some("13.0")));
    assert_eq!((found.ecc, found.persistence, found.mig), (Some(true), Some(true), Some(false)));
    assert_eq!((found.architecture.as_deref(), found.compute_capability), (Some("Hopper"), Some((9, 0))));
    assert_eq!(found.power_limits.map(|(low, high)| (low.get(), high.get())), Some((200.0, 700.0)));
    assert_eq!(found.core_default, None, "the library has no such function");
    assert!(found.to_string().contains("highest core clock: 1980 MHz\n"), "{found}");
}

/// Without the test's time the counter follows the machine's clock.
#[test]
fn the_counter_counts_in_real_time() {
    let gpu = FakeGpu::new();
    let mut meter = gpu.meter();
    let mut samples = vec![ok(meter.sample())];
    while samples.last().and_then(|s| s.counter) < Some(Joules::new(625.0 * 0.35)) {
        samples.push(ok(meter.sample()));
    }
    let (_, edges) = ok(energy::edges(&samples));
    let (Some(first), Some(last)) = (edges.first(), edges.last()) else { panic!("no ticks") };
    let periods = (last.energy - first.energy).get() / (625.0 * law::TICK_S);
    assert!((periods - periods.round()).abs() < 1e-3 && periods > 1.5, "{periods}");
}
