//! A stand-in for libnvidia-ml.so with NVML's C ABI: one GPU whose power follows its clock, power limit and load by a
//! stated [`law`], with faults on request, so that measuring and setting are tested without a GPU.
//!
//! The GPU's [`state`] is a file that all processes share: the one that `FAKE_NVML_STATE` names, else `state.json`
//! beside the library. A test copies the library into a folder of its own and so has a GPU of its own.

mod abi;
pub mod law;
pub mod state;
pub mod testing;
