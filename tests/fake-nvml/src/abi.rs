//! The functions of NVML that the program calls, with NVML's names, arguments and return codes (`nvml.h`).
//! Callers pass valid pointers, as NVML itself demands.

use crate::law;
use crate::state::{self, State};
use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NO_PERMISSION: c_int = 4;
const INSUFFICIENT_SIZE: c_int = 7;
const GPU_IS_LOST: c_int = 15;
const UNKNOWN: c_int = 999;

const UNSIGNED_INT: c_uint = 1;
const UNSIGNED_LONG_LONG: c_uint = 3;

const MEMORY_CLOCK: c_uint = 2;

type Device = *mut c_void;

/// `nvmlFieldValue_t`.
#[repr(C)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: c_longlong,
    latency: c_longlong,
    value_type: c_uint,
    result: c_int,
    value: u64,
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
struct ProcessInfo {
    pid: c_uint,
    used: c_ulonglong,
    instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
struct PciInfo {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    id: c_uint,
    subsystem: c_uint,
    bus_id: [c_char; 32],
}

/// The state file: named by the environment, else beside this library.
fn place() -> Option<&'static Path> {
    static PLACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    PLACE
        .get_or_init(|| {
            if let Some(path) = std::env::var_os(state::VARIABLE) {
                return Some(PathBuf::from(path));
            }
            let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
            // SAFETY: an address within this library and a valid place to write to.
            if unsafe { libc::dladdr(place as *const c_void, &raw mut info) } == 0 || info.dli_fname.is_null() {
                return None;
            }
            // SAFETY: the loader's name of this library lives as long as the library.
            let library = unsafe { CStr::from_ptr(info.dli_fname) }.to_str().ok()?;
            Some(Path::new(library).with_file_name("state.json"))
        })
        .as_deref()
}

/// A call about the board.
fn with(call: impl FnOnce(&mut State) -> c_int) -> c_int {
    let call = |state: &mut State| if state.faults.lost { GPU_IS_LOST } else { call(state) };
    place().and_then(|path| state::update(path, call).ok()).unwrap_or(UNKNOWN)
}

/// A call that reads a number.
unsafe fn read<T>(out: *mut T, value: impl FnOnce(&State) -> Option<T>) -> c_int {
    with(|state| match value(state) {
        Some(value) => {
            // SAFETY: the caller's pointer is valid.
            unsafe { out.write(value) };
            SUCCESS
        }
        None => NOT_SUPPORTED,
    })
}

/// A call that changes a setting and is written down.
fn set(call: String, change: impl FnOnce(&mut State) -> c_int) -> c_int {
    with(|state| {
        if state.faults.denied {
            return NO_PERMISSION;
        }
        let result = change(state);
        if result == SUCCESS {
            state.calls.push(call);
        }
        result
    })
}

unsafe fn text(out: *mut c_char, size: c_uint, text: &CStr) -> c_int {
    let bytes = text.to_bytes_with_nul();
    if bytes.len() > size as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller's buffer has `size` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    SUCCESS
}

unsafe fn list(count: *mut c_uint, out: *mut c_uint, values: &[c_uint]) -> c_int {
    // SAFETY: the caller's buffer has `count` elements.
    unsafe {
        let size = count.replace(values.len() as c_uint);
        if (size as usize) < values.len() {
            return INSUFFICIENT_SIZE;
        }
        std::ptr::copy_nonoverlapping(values.as_ptr(), out, values.len());
    }
    SUCCESS
}

fn field(state: &State, id: c_uint) -> Option<(c_uint, u64)> {
    let time = |ns: u64| (!state.faults.no_throttle_times).then_some((UNSIGNED_LONG_LONG, ns));
    match id {
        186 if !state.faults.no_instant => Some((UNSIGNED_INT, (state.power_w() * 1e3) as u64)),
        74 => time(state.capped_ns()),
        // In the numbering of CUDA 13 update 1: software thermal, hardware thermal, power brake.
        269 | 271 => time(0),
        270 => time(state.hot_ns()),
        _ => None,
    }
}

macro_rules! nvml {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: callers pass valid pointers.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*
    };
}

nvml! {
    fn nvmlInit_v2() { SUCCESS }
    fn nvmlShutdown() { SUCCESS }
    fn nvmlSystemGetDriverVersion(out: *mut c_char, size: c_uint) { text(out, size, c"580.159.04") }
    fn nvmlSystemGetNVMLVersion(out: *mut c_char, size: c_uint) { text(out, size, c"13.580.159.04") }
    fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) { out.write(13000); SUCCESS }
    fn nvmlDeviceGetCount_v2(out: *mut c_uint) { out.write(1); SUCCESS }
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Device) {
        if index != 0 { return INVALID_ARGUMENT }
        out.write(std::ptr::without_provenance_mut(1));
        SUCCESS
    }
    fn nvmlDeviceGetUUID(_device: Device, out: *mut c_char, size: c_uint) {
        text(out, size, c"GPU-FA4E0000-0000-4000-8000-000000000001")
    }
    fn nvmlDeviceGetName(_device: Device, out: *mut c_char, size: c_uint) { text(out, size, c"Fake H200") }
    fn nvmlDeviceGetPciInfo_v3(_device: Device, out: *mut PciInfo) {
        let mut info: PciInfo = std::mem::zeroed();
        info.bus = 0x17;
        let result = text(info.bus_id.as_mut_ptr(), 32, c"00000000:17:00.0");
        out.write(info);
        result
    }
    fn nvmlDeviceGetArchitecture(_device: Device, out: *mut c_uint) { read(out, |s| Some(s.architecture)) }
    fn nvmlDeviceGetCudaComputeCapability(_device: Device, major: *mut c_int, minor: *mut c_int) {
        with(|s| {
            // SAFETY: callers pass valid pointers.
            unsafe { major.write(s.capability.0); minor.write(s.capability.1) };
            SUCCESS
        })
    }
    fn nvmlDeviceGetEccMode(_device: Device, current: *mut c_uint, pending: *mut c_uint) {
        current.write(1);
        pending.write(1);
        SUCCESS
    }
    fn nvmlDeviceGetPersistenceMode(_device: Device, out: *mut c_uint) { out.write(1); SUCCESS }
    fn nvmlDeviceGetMigMode(_device: Device, current: *mut c_uint, pending: *mut c_uint) {
        current.write(0);
        pending.write(0);
        SUCCESS
    }
    fn nvmlDeviceGetPowerUsage(_device: Device, out: *mut c_uint) { read(out, |s| Some((s.power_w() * 1e3) as c_uint)) }
    fn nvmlDeviceGetTotalEnergyConsumption(_device: Device, out: *mut c_ulonglong) {
        read(out, |s| (!s.faults.no_counter).then(|| s.counter_mj()))
    }
    fn nvmlDeviceGetFieldValues(_device: Device, count: c_int, values: *mut FieldValue) {
        let values = std::slice::from_raw_parts_mut(values, usize::try_from(count).unwrap_or(0));
        with(|s| {
            for value in values {
                let found = field(s, value.field);
                value.result = if found.is_some() { SUCCESS } else { NOT_SUPPORTED };
                (value.value_type, value.value) = found.unwrap_or((UNSIGNED_INT, 0));
            }
            SUCCESS
        })
    }
    fn nvmlDeviceGetClockInfo(_device: Device, clock: c_uint, out: *mut c_uint) {
        read(out, |s| Some(if clock == MEMORY_CLOCK { law::MEMORY_MHZ } else { s.core_mhz() }))
    }
    fn nvmlDeviceGetMaxClockInfo(_device: Device, clock: c_uint, out: *mut c_uint) {
        read(out, |_| Some(if clock == MEMORY_CLOCK { law::MEMORY_MHZ } else { law::CORE_MAX_MHZ }))
    }
    fn nvmlDeviceGetTemperature(_device: Device, _sensor: c_uint, out: *mut c_uint) {
        read(out, |s| Some((30.0 + s.power_w() / 20.0) as c_uint))
    }
    fn nvmlDeviceGetCurrentClocksThrottleReasons(_device: Device, out: *mut c_ulonglong) {
        read(out, |s| {
            let idle = u64::from(s.load == 0.0);
            Some(idle | u64::from(s.is_capped()) << 2 | u64::from(s.faults.hot) << 6)
        })
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(_device: Device, count: *mut c_uint, out: *mut ProcessInfo) {
        with(|s| {
            let own = s.lists_caller.then(std::process::id);
            let pids: Vec<u32> = own.into_iter().chain(s.others.iter().copied()).collect();
            // SAFETY: the caller's buffer has `count` elements.
            unsafe {
                let size = count.replace(pids.len() as c_uint);
                if (size as usize) < pids.len() {
                    return INSUFFICIENT_SIZE;
                }
                for (index, pid) in pids.iter().enumerate() {
                    out.add(index).write(ProcessInfo { pid: *pid, used: 1 << 30, instance: !0, compute_instance: !0 });
                }
            }
            SUCCESS
        })
    }
    fn nvmlDeviceGetPowerManagementLimit(_device: Device, out: *mut c_uint) { read(out, |s| Some(s.limit_mw)) }
    fn nvmlDeviceGetEnforcedPowerLimit(_device: Device, out: *mut c_uint) { read(out, |s| Some(s.limit_mw)) }
    fn nvmlDeviceGetPowerManagementDefaultLimit(_device: Device, out: *mut c_uint) {
        read(out, |_| Some(law::LIMIT_MAX_MW))
    }
    fn nvmlDeviceGetPowerManagementLimitConstraints(_device: Device, low: *mut c_uint, high: *mut c_uint) {
        low.write(law::LIMIT_MIN_MW);
        high.write(law::LIMIT_MAX_MW);
        SUCCESS
    }
    fn nvmlDeviceGetSupportedMemoryClocks(_device: Device, count: *mut c_uint, out: *mut c_uint) {
        list(count, out, &[law::MEMORY_MHZ, 1593])
    }
    fn nvmlDeviceGetSupportedGraphicsClocks(_device: Device, memory: c_uint, count: *mut c_uint, out: *mut c_uint) {
        let highest = if memory == law::MEMORY_MHZ { law::CORE_MAX_MHZ } else { 1200 };
        let steps = (highest - law::CORE_MIN_MHZ) / law::CORE_STEP_MHZ;
        let clocks: Vec<c_uint> = (0..=steps).map(|i| highest - i * law::CORE_STEP_MHZ).collect();
        list(count, out, &clocks)
    }
    fn nvmlDeviceSetGpuLockedClocks(_device: Device, low: c_uint, high: c_uint) {
        set(format!("lock {low} {high}"), |s| {
            if low > high || high > law::CORE_MAX_MHZ { return INVALID_ARGUMENT }
            s.lock_mhz = Some((low, high));
            SUCCESS
        })
    }
    fn nvmlDeviceResetGpuLockedClocks(_device: Device) {
        set("unlock".to_string(), |s| {
            s.lock_mhz = None;
            SUCCESS
        })
    }
    fn nvmlDeviceSetPowerManagementLimit(_device: Device, limit: c_uint) {
        set(format!("limit {limit}"), |s| {
            if !(law::LIMIT_MIN_MW..=law::LIMIT_MAX_MW).contains(&limit) { return INVALID_ARGUMENT }
            if !s.faults.limit_ignored { s.limit_mw = limit }
            SUCCESS
        })
    }
}
