//! Convolutions through cuDNN's backend API, with the engine that its heuristics rank first: what frameworks run.

use super::backend::{Descriptor, check};
use super::failure::unsupported;
use crate::DeviceError;
use crate::launch::Address;
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Mode,
    cudnnBackendNumericalNote_t as Note, cudnnDataType_t as DataType,
};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::kernel::setting::Layout;
use joulecast_model::net::layer::Conv2d;

/// Unique ids of the three tensors in a variant pack.
const IDS: [i64; 3] = [1, 2, 3];

/// Scratch memory beyond which an engine is passed over.
const MOST_WORKSPACE: i64 = 4 << 30;

/// A convolution's sizes, with the batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvolutionSize {
    /// Batch, channels, height, width of the input.
    pub input: [i64; 4],
    /// Output channels, input channels per group, window height, window width.
    pub weights: [i64; 4],
    /// Batch, channels, height, width of the output.
    pub output: [i64; 4],
    /// Step, zeros on each side, distance of window elements; vertical then horizontal.
    pub stride: [i64; 2],
    /// Zeros on each side.
    pub padding: [i64; 2],
    /// Distance of window elements.
    pub dilation: [i64; 2],
    /// Channel groups.
    pub groups: i64,
}

impl ConvolutionSize {
    /// From a layer with its maps `[channels, height, width]`.
    pub fn new(layer: &Conv2d, batch: u64, input: (u64, u64, u64), output: (u64, u64, u64)) -> Self {
        let groups = layer.groups(input.0).max(1);
        let map = |(c, h, w): (u64, u64, u64)| [batch, c, h, w].map(|v| v as i64);
        Self {
            input: map(input),
            weights: [layer.channels, input.0 / groups, layer.kernel.h, layer.kernel.w].map(|v| v as i64),
            output: map(output),
            stride: [layer.stride.h, layer.stride.w].map(|v| v as i64),
            padding: [layer.padding.h, layer.padding.w].map(|v| v as i64),
            dilation: [layer.dilation.h, layer.dilation.w].map(|v| v as i64),
            groups: groups as i64,
        }
    }
}

/// Storage type of a precision.
pub fn data_type(precision: Precision) -> Result<DataType, DeviceError> {
    match precision {
        Precision::Fp32 | Precision::Tf32 => Ok(DataType::CUDNN_DATA_FLOAT),
        Precision::Fp16 => Ok(DataType::CUDNN_DATA_HALF),
        Precision::Bf16 => Ok(DataType::CUDNN_DATA_BFLOAT16),
        Precision::Int8 => Err(unsupported("convolution in int8", "no runner for it")),
        Precision::Fp8 => Err(unsupported("convolution in fp8", "no runner for it")),
    }
}

/// Strides of a four-dimensional tensor.
pub fn strides(dims: &[i64; 4], layout: Layout) -> [i64; 4] {
    let [_, c, h, w] = *dims;
    match layout {
        Layout::Nchw => [c * h * w, h * w, w, 1],
        Layout::Nhwc => [c * h * w, 1, w * c, c],
    }
}

fn tensor(id: i64, dims: &[i64; 4], layout: Layout, data: DataType) -> Result<Descriptor, DeviceError> {
    let tensor = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
    tensor.set_data_type(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, data)?;
    tensor.set_i64(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, dims)?;
    tensor.set_i64(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides(dims, layout))?;
    tensor.set_i64(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?;
    tensor.set_i64(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16])?;
    tensor.finalize("tensor")
}

/// Attribute names of an operation: its kind, then x, w, y, convolution, alpha, beta.
fn operation_names(phase: Phase) -> Option<(Kind, [Name; 6])> {
    match phase {
        Phase::Forward => Some((
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            ],
        )),
        Phase::BackwardData => Some((
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            ],
        )),
        Phase::BackwardWeights => Some((
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            ],
        )),
        Phase::Update => None,
    }
}

/// An engine, chosen and compiled for one convolution in one phase.
pub struct ConvolutionPlan {
    plan: Descriptor,
    handle: sys::cudnnHandle_t,
    /// Scratch memory in bytes.
    pub workspace: u64,
    /// Engine, its knobs and what it says of its arithmetic, as `eng38{1=2,23=0} winograd`.
    pub engine: String,
    // The plan refers to these.
    _graph: Descriptor,
    _parts: Vec<Descriptor>,
}

impl ConvolutionPlan {
    /// The first engine that the heuristics name, that keeps to the precision, and that compiles.
    ///
    /// For fp32 the engines that use tensor cores or convert their inputs down are passed over, as frameworks do
    /// with TF32 off.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] when no engine takes this convolution.
    pub fn new(
        handle: sys::cudnnHandle_t,
        size: &ConvolutionSize,
        phase: Phase,
        precision: Precision,
        layout: Layout,
    ) -> Result<Self, DeviceError> {
        let Some((kind, [x, w, y, convolution, alpha, beta])) = operation_names(phase) else {
            return Err(unsupported("the update of a convolution", "it is the optimizer's"));
        };
        let data = data_type(precision)?;
        let tensors = [
            tensor(IDS[0], &size.input, layout, data)?,
            tensor(IDS[1], &size.weights, layout, data)?,
            tensor(IDS[2], &size.output, layout, data)?,
        ];
        let window = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
        window.set_i64(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2])?;
        window.set_data_type(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, DataType::CUDNN_DATA_FLOAT)?;
        window.set_convolution_mode(
            Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE,
            sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
        )?;
        window.set_i64(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &size.padding)?;
        window.set_i64(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &size.padding)?;
        window.set_i64(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &size.dilation)?;
        window.set_i64(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &size.stride)?;
        let window = window.finalize("convolution")?;

        let operation = Descriptor::new(kind)?;
        for (name, tensor) in [x, w, y].into_iter().zip(&tensors) {
            operation.set_descriptors(name, &[tensor])?;
        }
        operation.set_descriptors(convolution, &[&window])?;
        operation.set_f32(alpha, 1.0)?;
        operation.set_f32(beta, 0.0)?;
        let operation = operation.finalize("operation")?;

        let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        graph.set_handle(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)?;
        graph.set_descriptors(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &[&operation])?;
        let graph = graph.finalize("operation graph")?;

        let mut last = None;
        for mode in [Mode::CUDNN_HEUR_MODE_INSTANT, Mode::CUDNN_HEUR_MODE_FALLBACK] {
            let heuristics = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
            heuristics.set_descriptors(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&graph])?;
            heuristics.set_heuristics(Name::CUDNN_ATTR_ENGINEHEUR_MODE, mode)?;
            let Ok(heuristics) = heuristics.finalize("heuristics") else { continue };
            let configurations = heuristics.get_descriptors(
                Name::CUDNN_ATTR_ENGINEHEUR_RESULTS,
                Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                None,
            )?;
            for configuration in configurations {
                let (engine, notes) = describe(&configuration)?;
                if precision == Precision::Fp32 && notes.iter().any(|n| lowers_precision(*n)) {
                    continue;
                }
                match compile(handle, &configuration) {
                    Ok((plan, workspace)) if workspace <= MOST_WORKSPACE => {
                        let mut parts: Vec<Descriptor> = tensors.into_iter().collect();
                        parts.extend([window, operation, configuration]);
                        let workspace = u64::try_from(workspace).unwrap_or(0);
                        return Ok(Self { plan, handle, workspace, engine, _graph: graph, _parts: parts });
                    }
                    Ok((_, workspace)) => last = Some(format!("{engine} wants {workspace} bytes of scratch memory")),
                    Err(error) => last = Some(error.to_string()),
                }
            }
        }
        Err(unsupported(
            format!("{phase} of this convolution in {precision}"),
            last.unwrap_or_else(|| "cuDNN names no engine for it".into()),
        ))
    }

    /// Binds the plan to addresses of x, w and y (or their gradients) and scratch memory.
    ///
    /// # Errors
    /// When cuDNN refuses the pointers.
    pub fn bind(&self, x: Address, w: Address, y: Address, workspace: Address) -> Result<Descriptor, DeviceError> {
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        pack.set_i64(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &IDS)?;
        pack.set_pointers(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &[x, w, y])?;
        pack.set_pointers(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[workspace])?;
        pack.finalize("variant pack")
    }

    /// Launches it on the handle's stream.
    ///
    /// # Errors
    /// When the launch fails.
    pub fn launch(&self, pack: &Descriptor) -> Result<(), DeviceError> {
        // SAFETY: plan and pack are finalized and alive; the pointers in the pack lie in the arena.
        let status = unsafe { sys::cudnnBackendExecute(self.handle, self.plan.raw(), pack.raw()) };
        check(status, "cudnnBackendExecute")
    }
}

fn compile(handle: sys::cudnnHandle_t, configuration: &Descriptor) -> Result<(Descriptor, i64), DeviceError> {
    let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
    plan.set_handle(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle)?;
    plan.set_descriptors(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[configuration])?;
    let plan = plan.finalize("execution plan")?;
    let workspace = plan.get_i64(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1)?;
    Ok((plan, workspace.first().copied().unwrap_or(0)))
}

fn lowers_precision(note: u32) -> bool {
    [Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE, Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS]
        .iter()
        .any(|n| *n as u32 == note)
}

/// Name of an engine configuration, and its numerical notes.
fn describe(configuration: &Descriptor) -> Result<(String, Vec<u32>), DeviceError> {
    let engines = configuration.get_descriptors(
        Name::CUDNN_ATTR_ENGINECFG_ENGINE,
        Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        Some(1),
    )?;
    let (index, notes) = match engines.first() {
        Some(engine) => (
            engine.get_i64(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1)?.first().copied().unwrap_or(-1),
            engine.get_notes(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 16)?,
        ),
        None => (-1, Vec::new()),
    };
    let mut knobs = Vec::new();
    let choices = configuration.get_descriptors(
        Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
        Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
        Some(32),
    )?;
    for choice in &choices {
        let kind = choice.get_knob_kind(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)?;
        let value = choice.get_i64(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 1)?;
        if let (Some(kind), Some(value)) = (kind, value.first()) {
            knobs.push(format!("{kind}={value}"));
        }
    }
    let words = [
        (Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE, " tensor_core"),
        (Note::CUDNN_NUMERICAL_NOTE_FFT, " fft"),
        (Note::CUDNN_NUMERICAL_NOTE_WINOGRAD, " winograd"),
    ];
    let said: String = words.iter().filter(|(n, _)| notes.contains(&(*n as u32))).map(|(_, word)| *word).collect();
    Ok((format!("eng{index}{{{}}}{said}", knobs.join(",")), notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_follow_the_layout() {
        assert_eq!(strides(&[2, 3, 5, 7], Layout::Nchw), [105, 35, 7, 1]);
        assert_eq!(strides(&[2, 3, 5, 7], Layout::Nhwc), [105, 1, 21, 3]);
    }
}
