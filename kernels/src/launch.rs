//! What a kernel launch is, and where a layer's tensors lie: pure values, so that launches are planned and checked
//! without a GPU.

/// Address in device memory.
pub type Address = u64;

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// Pointer; 0 is null.
    Pointer(Address),
    /// `long long`.
    I64(i64),
    /// `int`.
    I32(i32),
    /// `float`.
    F32(f32),
}

/// One launch of one of our own kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelLaunch {
    /// Name of the `extern "C"` function.
    pub function: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// Arguments in order.
    pub arguments: Vec<Argument>,
}

/// Device addresses of a layer's tensors; 0 where the layer or phase has none. Maps lie in the trial's layout,
/// everything else row by row. Activations and their gradients are in the storage format of the precision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operands {
    /// Inputs, in the layer's order.
    pub inputs: Vec<Address>,
    /// Output.
    pub output: Address,
    /// Gradient with respect to the output.
    pub grad_output: Address,
    /// Gradients with respect to the inputs.
    pub grad_inputs: Vec<Address>,
    /// Parameters. Convolution and linear: weights, then bias, in the storage format. Normalizations and scale:
    /// scale per channel, then shift, in fp32.
    pub parameters: Address,
    /// Gradients of the parameters, in the same order and format.
    pub grad_parameters: Address,
    /// Running mean, then running variance of a batch norm, in fp32.
    pub running: Address,
    /// What forward in training keeps for backward: mean, then reciprocal standard deviation per channel (batch
    /// norm) or row (layer norm) in fp32; one byte per element of a dropout's mask; the denominators of a local
    /// response normalization in the storage format.
    pub saved: Address,
    /// Fp32 master parameters of an update; the parameters themselves where storage is fp32.
    pub master: Address,
    /// Optimizer state of an update in fp32: all of the first moment, then all of the second.
    pub state: Address,
    /// Scratch memory of `streaming::scratch` bytes.
    pub scratch: Address,
}
