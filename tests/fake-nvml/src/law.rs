//! How the board behaves: `P(f) = idle + dynamic * load * (f / f_max)^3`, with f the highest clock of the grid at which
//! P stays within the power limit.

/// Power without load in watts.
pub const IDLE_W: f64 = 75.0;
/// Power that full load adds at the highest clock, in watts.
pub const DYNAMIC_W: f64 = 550.0;
/// Lowest core clock in MHz.
pub const CORE_MIN_MHZ: u32 = 345;
/// Highest core clock in MHz.
pub const CORE_MAX_MHZ: u32 = 1980;
/// Step of the clock grid in MHz.
pub const CORE_STEP_MHZ: u32 = 15;
/// Memory clock in MHz.
pub const MEMORY_MHZ: u32 = 3201;
/// Lowest power limit in mW.
pub const LIMIT_MIN_MW: u32 = 200_000;
/// Highest power limit, and the default, in mW.
pub const LIMIT_MAX_MW: u32 = 700_000;
/// The energy counter changes this often, in seconds.
pub const TICK_S: f64 = 0.1;

/// Power in watts at a core clock in MHz and a load from 0 to 1.
pub fn power_w(core_mhz: u32, load: f64) -> f64 {
    IDLE_W + DYNAMIC_W * load * (f64::from(core_mhz) / f64::from(CORE_MAX_MHZ)).powi(3)
}

/// Core clock in MHz, at most `highest` and as low as the power limit in watts demands.
pub fn core_mhz(highest: u32, load: f64, limit_w: f64) -> u32 {
    let mut clock = highest.clamp(CORE_MIN_MHZ, CORE_MAX_MHZ);
    while clock > CORE_MIN_MHZ && power_w(clock, load) > limit_w {
        clock = clock.saturating_sub(CORE_STEP_MHZ).max(CORE_MIN_MHZ);
    }
    clock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_pulls_the_clock_down_and_no_further_than_needed() {
        assert_eq!(core_mhz(CORE_MAX_MHZ, 1.0, 700.0), CORE_MAX_MHZ);
        let capped = core_mhz(CORE_MAX_MHZ, 1.0, 300.0);
        assert!(power_w(capped, 1.0) <= 300.0 && power_w(capped + CORE_STEP_MHZ, 1.0) > 300.0);
        assert_eq!(core_mhz(990, 1.0, 700.0), 990);
        assert_eq!(core_mhz(CORE_MAX_MHZ, 1.0, 1.0), CORE_MIN_MHZ);
    }
}
