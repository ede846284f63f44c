//! Clock event ("throttle") reasons: NVML's bits and stable names for them.

/// Bits that mean the hardware itself cut the clock by temperature or by the external power brake
/// (`nvmlClocksThrottleReasonHwThermalSlowdown`, `...HwPowerBrakeSlowdown`).
pub const HARDWARE: u64 = 64 | 128;
/// The power limit holds the clock back.
pub const POWER_LIMIT: u64 = 4;

/// `nvmlClocksEventReason*` of `nvml.h`, in ascending order.
const NAMES: [(u64, &str); 9] = [
    (1, "gpu_idle"),
    (2, "applications_clocks_setting"),
    (4, "sw_power_cap"),
    (8, "hw_slowdown"),
    (16, "sync_boost"),
    (32, "sw_thermal_slowdown"),
    (64, "hw_thermal_slowdown"),
    (128, "hw_power_brake_slowdown"),
    (256, "display_clock_setting"),
];

/// Names joined by `;` in ascending order of the bits, `none` where no bit is set. A bit without a name keeps its
/// number (`bit_0x200`), so that nothing seen is lost.
pub fn names(bits: u64) -> String {
    let mut found: Vec<String> =
        NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| (*name).to_string()).collect();
    let known = NAMES.iter().fold(0, |sum, (bit, _)| sum | bit);
    found.extend((0..64).map(|n| 1_u64 << n).filter(|bit| bits & !known & bit != 0).map(|bit| format!("bit_{bit:#x}")));
    if found.is_empty() { "none".to_string() } else { found.join(";") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_and_nothing_is_lost() {
        assert_eq!(names(0), "none");
        assert_eq!(names(4 | 64), "sw_power_cap;hw_thermal_slowdown");
        assert_eq!(names(1 | 0x200 | (1 << 63)), "gpu_idle;bit_0x200;bit_0x8000000000000000");
    }
}
