//! Reading a board's sensors through NVML.

use super::{Board, describe, sensor};
use crate::DeviceError;
use crate::meter::{PowerMeter, Sample, ThrottleTimes};
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper_sys::bindings::field_id;
use std::time::{Duration, Instant};

/// How often limit and processes are read: they change rarely and cost as much as everything else.
const SLOW_EVERY: Duration = Duration::from_millis(500);

/// On the first process id namespace of a machine (`PROC_PID_INIT_INO` of Linux): outside of containers.
const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Where instantaneous power comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerMethod {
    /// Field 186, `NVML_FI_DEV_POWER_INSTANT`.
    InstantField,
    /// `nvmlDeviceGetPowerUsage` on a board where that is instantaneous.
    Usage,
    /// The board tells an average over a second at best, which is not used.
    None,
}

impl PowerMethod {
    /// A stable name for files.
    pub fn name(self) -> &'static str {
        match self {
            Self::InstantField => "power_instant",
            Self::Usage => "power_usage",
            Self::None => "none",
        }
    }
}

/// Fields of one `nvmlDeviceGetFieldValues` call, as far as the board has them. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    PowerInstant,
    HeldByPower,
    HeldByThermalPolicy,
    HeldByBoardLimit,
    HeldBySoftwareThermal,
    HeldByHardwareThermal,
    HeldByPowerBrake,
}

impl Field {
    const ALL: [Self; 7] = [
        Self::PowerInstant,
        Self::HeldByPower,
        Self::HeldByThermalPolicy,
        Self::HeldByBoardLimit,
        Self::HeldBySoftwareThermal,
        Self::HeldByHardwareThermal,
        Self::HeldByPowerBrake,
    ];

    /// In the numbering of CUDA 12; nvml-wrapper translates what CUDA 13 update 1 renumbered.
    fn id(self) -> FieldId {
        FieldId(match self {
            Self::PowerInstant => field_id::NVML_FI_DEV_POWER_INSTANT,
            Self::HeldByPower => field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
            Self::HeldByThermalPolicy => field_id::NVML_FI_DEV_PERF_POLICY_THERMAL,
            Self::HeldByBoardLimit => field_id::NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT,
            Self::HeldBySoftwareThermal => field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
            Self::HeldByHardwareThermal => field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
            Self::HeldByPowerBrake => field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
        })
    }
}

/// Sensors of one board. Sensors that the board lacks are found out once and not asked for again.
#[derive(Debug)]
pub struct NvmlMeter {
    board: Board,
    origin: Instant,
    power: PowerMethod,
    fields: Vec<Field>,
    has_counter: bool,
    slow_every: Duration,
    slow: Option<(Instant, Option<Watts>, Option<u32>)>,
    in_container: bool,
}

impl NvmlMeter {
    /// Finds out which sensors the board has. The time origin of the samples is now.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] when the board does not answer.
    pub fn new(board: Board) -> Result<Self, DeviceError> {
        let mut meter = Self {
            origin: Instant::now(),
            power: PowerMethod::None,
            fields: Field::ALL.to_vec(),
            has_counter: sensor(board.device().total_energy_consumption())?.is_some(),
            slow_every: SLOW_EVERY,
            slow: None,
            in_container: std::fs::read_link("/proc/self/ns/pid")
                .map_or(true, |link| link.as_os_str() != HOST_PID_NAMESPACE),
            board,
        };
        let found = meter.field_values()?;
        meter.fields = Field::ALL.into_iter().filter(|field| value_of(&found, *field).is_some()).collect();
        let has = |field| meter.fields.contains(&field);
        // Newer drivers tell hardware and software causes apart; the older policies then say nothing more.
        let (thermal, hardware) =
            (has(Field::HeldBySoftwareThermal), has(Field::HeldByHardwareThermal) && has(Field::HeldByPowerBrake));
        meter.fields.retain(|field| match field {
            Field::HeldByThermalPolicy => !thermal,
            Field::HeldByBoardLimit => !hardware,
            _ => true,
        });
        if meter.fields.contains(&Field::PowerInstant) {
            meter.power = PowerMethod::InstantField;
        } else if describe::usage_is_instantaneous(&meter.board)?
            && sensor(meter.board.device().power_usage())?.is_some()
        {
            meter.power = PowerMethod::Usage;
        }
        Ok(meter)
    }

    /// Reads limit and processes at most this often; otherwise every 0.5 s.
    #[must_use]
    pub fn slow_every(mut self, interval: Seconds) -> Self {
        self.slow_every = Duration::try_from_secs_f64(interval.get()).unwrap_or(SLOW_EVERY);
        self
    }

    /// Where instantaneous power comes from on this board.
    pub fn power_method(&self) -> PowerMethod {
        self.power
    }

    /// Whether the board has a total energy counter.
    pub fn has_counter(&self) -> bool {
        self.has_counter
    }

    /// Which board.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Host time now in the time of the samples.
    pub fn now(&self) -> Seconds {
        Seconds::new(self.origin.elapsed().as_secs_f64())
    }

    fn field_values(&self) -> Result<Vec<(Field, f64)>, DeviceError> {
        if self.fields.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<FieldId> = self.fields.iter().map(|field| field.id()).collect();
        let Some(values) = sensor(self.board.device().field_values_for(&ids))? else { return Ok(Vec::new()) };
        let mut found = Vec::with_capacity(values.len());
        for (field, value) in self.fields.iter().zip(values) {
            if let Some(value) = sensor(value.and_then(|v| v.value))? {
                found.push((*field, number(&value)));
            }
        }
        Ok(found)
    }

    fn slow_values(&mut self) -> Result<(Option<Watts>, Option<u32>), DeviceError> {
        if let Some((when, limit, others)) = self.slow
            && when.elapsed() < self.slow_every
        {
            return Ok((limit, others));
        }
        let limit = sensor(self.board.device().enforced_power_limit())?.map(|mw| Watts::new(f64::from(mw) * 1e-3));
        let pids: Option<Vec<u32>> = sensor(self.board.device().running_compute_processes())?
            .map(|processes| processes.into_iter().map(|p| p.pid).collect());
        let others = pids.and_then(|pids| others(&pids, std::process::id(), self.in_container));
        self.slow = Some((Instant::now(), limit, others));
        Ok((limit, others))
    }
}

/// Compute processes other than `own`. In a container the driver may hide processes or give their numbers outside of
/// it; only a list that names this very process is known to be in the container's numbers.
fn others(pids: &[u32], own: u32, in_container: bool) -> Option<u32> {
    let others = pids.iter().filter(|&&pid| pid != own).count();
    if in_container && others == pids.len() { None } else { u32::try_from(others).ok() }
}

fn number(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(v) => v,
        SampleValue::U32(v) => f64::from(v),
        SampleValue::U64(v) => v as f64,
        SampleValue::I64(v) => v as f64,
    }
}

fn value_of(values: &[(Field, f64)], field: Field) -> Option<f64> {
    values.iter().find(|(f, _)| *f == field).map(|(_, value)| *value)
}

/// Throttle times; `None` unless every cause is known, since a cause that is not counted must not read as zero.
/// Hardware thermal slowdown counts as hardware. Drivers before these counters have policies instead: thermal, and
/// the board's limit for its brakes.
fn throttle_times(values: &[(Field, f64)]) -> Option<ThrottleTimes> {
    let seconds = |field| value_of(values, field).map(|ns| Seconds::new(ns * 1e-9));
    let hardware = seconds(Field::HeldByHardwareThermal)
        .zip(seconds(Field::HeldByPowerBrake))
        .map(|(thermal, brake)| thermal + brake)
        .or_else(|| seconds(Field::HeldByBoardLimit));
    Some(ThrottleTimes {
        power: seconds(Field::HeldByPower)?,
        thermal: seconds(Field::HeldBySoftwareThermal).or_else(|| seconds(Field::HeldByThermalPolicy))?,
        hardware: hardware?,
    })
}

impl PowerMeter for NvmlMeter {
    /// The time is that of the read of the energy counter, the one value whose time matters most.
    fn sample(&mut self) -> Result<Sample, DeviceError> {
        let begin = self.now();
        let counter = if self.has_counter { sensor(self.board.device().total_energy_consumption())? } else { None };
        let end = self.now();
        let fields = self.field_values()?;
        let device = self.board.device();
        let power_mw = match self.power {
            PowerMethod::InstantField => value_of(&fields, Field::PowerInstant),
            PowerMethod::Usage => sensor(device.power_usage())?.map(f64::from),
            PowerMethod::None => None,
        };
        let mhz = |mhz: u32| Hertz::from_mhz(f64::from(mhz));
        let core = sensor(device.clock_info(Clock::SM))?.map(mhz);
        let memory = sensor(device.clock_info(Clock::Memory))?.map(mhz);
        let temperature_c = sensor(device.temperature(TemperatureSensor::Gpu))?.map(f64::from);
        let reasons = sensor(device.current_throttle_reasons())?.map(|r| r.bits());
        let (limit, others) = self.slow_values()?;
        Ok(Sample {
            at: (begin + end) / 2.0,
            counter: counter.map(|mj| Joules::new(mj as f64 * 1e-3)),
            power: power_mw.map(|mw| Watts::new(mw * 1e-3)),
            core,
            memory,
            temperature_c,
            reasons,
            throttled: throttle_times(&fields),
            limit,
            others,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_are_counted_only_where_they_can_be() {
        assert_eq!(others(&[], 7, false), Some(0));
        assert_eq!(others(&[7], 7, false), Some(0));
        assert_eq!(others(&[7, 8], 7, false), Some(1));
        assert_eq!(others(&[8], 7, false), Some(1));
        assert_eq!(others(&[7], 7, true), Some(0));
        assert_eq!(others(&[7, 9], 7, true), Some(1));
        assert_eq!(others(&[], 7, true), None, "hidden or none");
        assert_eq!(others(&[4711], 7, true), None, "perhaps this very process, in numbers of the host");
    }

    #[test]
    fn throttle_times_need_every_cause() {
        let mut values = vec![
            (Field::HeldByPower, 1e9),
            (Field::HeldBySoftwareThermal, 2e9),
            (Field::HeldByHardwareThermal, 3e9),
            (Field::HeldByPowerBrake, 4e9),
        ];
        let all = ThrottleTimes { power: Seconds::new(1.0), thermal: Seconds::new(2.0), hardware: Seconds::new(7.0) };
        assert_eq!(throttle_times(&values), Some(all));
        values.truncate(3);
        assert_eq!(throttle_times(&values), None);
        let older = [(Field::HeldByPower, 1e9), (Field::HeldByThermalPolicy, 2e9), (Field::HeldByBoardLimit, 5e8)];
        assert_eq!(throttle_times(&older).map(|t| t.hardware), Some(Seconds::new(0.5)));
    }
}
