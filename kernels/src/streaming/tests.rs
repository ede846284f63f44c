use super::*;
use crate::launch::{Address, Argument};
use joulecast_model::kernel::setting::{Cache, Layout};
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{
    Activation, AdaptivePool2d, Add, BatchNorm, Concat, Conv2d, Dropout, Flatten, Function, GlobalPool2d, Groups,
    LayerNorm, Linear, LocalResponseNorm, Multiply, Optimizer, Pad, Pair, Pool2d, PoolOp, Reads, Scale, Softmax,
};
use std::collections::{BTreeMap, BTreeSet};

fn shape(dims: &[u64]) -> Shape {
    Shape::new(dims).expect("a test shape")
}

fn pool(op: PoolOp, kernel: u64, stride: u64, padding: u64, ceil: bool) -> Layer {
    let [kernel, stride, padding] = [kernel, stride, padding].map(Pair::square);
    Layer::Pool2d(Pool2d { op, kernel, stride: Some(stride), padding, ceil })
}

/// Every kind that runs here, on shapes that do and do not fill 16-byte units.
pub(crate) fn cases() -> Vec<LayerCase> {
    let mut cases = Vec::new();
    let mut case = |inputs: &[Shape], layer: Layer| cases.push(LayerCase { inputs: inputs.to_vec(), layer });
    let maps = [[16, 8, 8], [5, 7, 9], [1, 1, 1], [64, 13, 13]].map(|dims| shape(&dims));
    let rows = [vec![24], vec![1], vec![1001], vec![5, 64], vec![3, 7]].map(|dims| shape(&dims));
    for input in maps.iter().chain(&rows) {
        for &function in Function::ALL {
            case(&[*input], Layer::Activation(Activation { function }));
        }
        for count in [2, 3, 4, 5, 6, 7, 8, 9, 17] {
            case(&vec![*input; count], Layer::Add(Add {}));
        }
        case(&[*input; 2], Layer::Multiply(Multiply {}));
        for affine in [true, false] {
            case(&[*input], Layer::BatchNorm(BatchNorm { affine }));
            case(&[*input], Layer::LayerNorm(LayerNorm { affine }));
            case(&[*input], Layer::Scale(Scale { bias: affine }));
        }
        case(&[*input], Layer::Softmax(Softmax::default()));
        for probability in [0.0, 0.5, 1.0] {
            case(&[*input], Layer::Dropout(Dropout { probability }));
        }
        case(&[*input], Layer::Flatten(Flatten {}));
        case(&[*input; 6], Layer::Concat(Concat::default()));
    }
    for input in maps {
        let (c, h, w) = input.as_map().expect("a map");
        case(&[input, shape(&[c, 1, 1])], Layer::Multiply(Multiply {}));
        case(&[input, shape(&[8, h, w]), shape(&[3, h, w])], Layer::Concat(Concat::default()));
        case(&[input], Layer::Pad(Pad { padding: [0, 1, 2, 3], mirrors: false }));
        for size in [1, 4, 5] {
            case(&[input], Layer::LocalResponseNorm(LocalResponseNorm { size }));
        }
        for op in [PoolOp::Max, PoolOp::Avg] {
            case(&[input], Layer::GlobalPool2d(GlobalPool2d { op }));
            for output in [1, 3] {
                case(&[input], Layer::AdaptivePool2d(AdaptivePool2d { op, output: Pair::square(output) }));
            }
            if h > 1 {
                case(&[input], pool(op, 2, 2, 0, false));
                case(&[input], pool(op, 3, 2, 1, true));
                case(&[input], pool(op, 3, 1, 1, false));
                case(&[input], pool(op, 2, 3, 1, true));
            }
        }
    }
    // Rows that many threads hold, and rows that their registers cannot.
    for input in [vec![2, 768], vec![5000], vec![40000], vec![600, 2, 2]].map(|dims| shape(&dims)) {
        case(&[input], Layer::LayerNorm(LayerNorm { affine: true }));
        case(&[input], Layer::LayerNorm(LayerNorm { affine: false }));
        case(&[input], Layer::Softmax(Softmax::default()));
    }
    // One map whose sums are split into parts.
    let large = shape(&[1, 64, 64]);
    case(&[large, shape(&[1, 1, 1])], Layer::Multiply(Multiply {}));
    case(&[large], Layer::GlobalPool2d(GlobalPool2d { op: PoolOp::Max }));
    cases
}

/// Every trial of a case: phases, modes, layouts, precisions, optimizers.
pub(crate) fn trials(case: &LayerCase, batch: u64) -> Vec<Trial> {
    let mut trials = Vec::new();
    for &precision in &[Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16] {
        for &layout in Layout::ALL {
            for &mode in Mode::ALL {
                for &phase in mode.phases() {
                    let optimizers: &[Option<Optimizer>] = if phase == Phase::Update {
                        &[Some(Optimizer::Sgd), Some(Optimizer::Momentum), Some(Optimizer::Adam)]
                    } else {
                        &[None]
                    };
                    trials.extend(optimizers.iter().map(|&optimizer| Trial {
                        layout,
                        cache: Cache::Hot,
                        optimizer,
                        ..Trial::usual(case.clone(), phase, batch, precision, mode).expect("fits")
                    }));
                }
            }
        }
    }
    trials
}

/// Distinct addresses, 512-byte aligned.
fn operands(inputs: usize) -> Operands {
    let list = |first: u64| (0..inputs as u64).map(|i| (first + i) << 40).collect();
    let at = |index: u64| index << 50;
    Operands {
        inputs: list(1),
        grad_inputs: list(100),
        output: at(1),
        grad_output: at(2),
        parameters: at(3),
        grad_parameters: at(4),
        running: at(5),
        saved: at(6),
        master: at(7),
        state: at(8),
        scratch: at(9),
    }
}

const DEVICE: Limits = Limits::new(132);

#[test]
fn what_costs_something_is_planned_with_functions_that_exist() {
    let names: BTreeSet<String> = functions().into_iter().collect();
    for trial in cases().iter().flat_map(|case| trials(case, 3)) {
        let planned = launches(&trial, &operands(trial.case.inputs.len()), &DEVICE).expect("planned");
        let costs = trial.cost().expect("fits").is_some();
        assert_eq!(planned.is_empty(), !costs, "{trial:?}");
        for launch in planned {
            assert!(names.contains(&launch.function), "{}", launch.function);
            let threads: u32 = launch.block.iter().product();
            assert!((1..=512).contains(&threads) && launch.grid.iter().all(|&g| g > 0), "{launch:?}");
        }
    }
}

/// The parameter list of a function as the source declares it, by kind: `pointer`, `i64`, `int`, `float`.
fn declared_parameters(source: &str, function: &str) -> Vec<&'static str> {
    let kinds = |list: &str| -> Vec<&'static str> {
        list.split(',')
            .map(|parameter| match parameter {
                p if p.contains('*') => "pointer",
                p if p.contains("i64") => "i64",
                p if p.contains("float") => "float",
                _ => "int",
            })
            .collect()
    };
    let inside = |text: &str| {
        let begin = text.find('(').expect("a list") + 1;
        let end = text.find(')').expect("a list");
        text[begin..end].to_string()
    };
    let base = function.rsplit_once('_').map_or(function, |(base, _)| base);
    let forms = [format!("\nKERNEL({base})"), format!("\nWIDE_KERNEL({base})"), format!("\nPLAIN_KERNEL({function})")];
    if let Some(at) = forms.iter().find_map(|form| source.find(form)) {
        let rest = &source[at..];
        return kinds(&inside(&rest[rest.find(')').expect("a name") + 1..]));
    }
    let (name, ending) = base.rsplit_once('_').expect("an ending");
    if let Some(at) = source.find(&format!("\nROWS({name},")) {
        return kinds(&inside(&source[at + "\nROWS(".len()..]));
    }
    let form = if source.contains(&format!("\nCHANNELS({name},")) { "CHANNELS" } else { "REDUCTION" };
    let at = source.find(&format!("\n{form}({name},")).unwrap_or_else(|| panic!("{function} is nowhere"));
    let call = &source[at..];
    // Behind the operation in parentheses: its own parameters.
    let own = &call[call.find("}),").expect("an operation") + 3..];
    let own = kinds(&own[..own.find(')').expect("an end")]);
    let template = &source[source.find(&format!("#define {form}(")).expect("the form")..];
    let list = &template[template.find(&format!("KERNEL(name##_{ending})")).expect("the kernel")..];
    let list = inside(&list[list.find(')').expect("a name") + 1..]);
    let mut all = kinds(list.rsplit_once(',').expect("the operation's own come last").0);
    all.extend(own);
    all
}

#[test]
fn arguments_match_the_declared_parameters() {
    let source = source();
    let mut seen = BTreeSet::new();
    let mut check = |launch: &KernelLaunch| {
        if !seen.insert(launch.function.clone()) {
            return;
        }
        let given: Vec<&str> = launch
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Pointer(_) => "pointer",
                Argument::I64(_) => "i64",
                Argument::I32(_) => "int",
                Argument::F32(_) => "float",
            })
            .collect();
        assert_eq!(given, declared_parameters(&source, &launch.function), "{}", launch.function);
    };
    for batch in [1, 3, 4096] {
        for trial in cases().iter().flat_map(|case| trials(case, batch)) {
            launches(&trial, &operands(trial.case.inputs.len()), &DEVICE).expect("planned").iter().for_each(&mut check);
        }
    }
    let linear = LayerCase { inputs: vec![shape(&[6])], layer: Layer::Linear(Linear { features: 5, bias: true }) };
    for trial in trials(&linear, 1).iter().filter(|trial| trial.phase == Phase::Update) {
        launches(trial, &operands(1), &DEVICE).expect("planned").iter().for_each(&mut check);
    }
    let map = shape(&[64, 28, 28]);
    for &precision in &[Precision::Fp32, Precision::Fp16, Precision::Bf16] {
        copy(precision, 1, 2, 99, &DEVICE).expect("planned").iter().for_each(&mut check);
        accumulate(precision, 1, 2, 99, &DEVICE).expect("planned").iter().for_each(&mut check);
        fill_normal(precision, 1, 99, 1.0, 7, &DEVICE).expect("planned").iter().for_each(&mut check);
        fill_constant(precision, 1, 99, 1.0, &DEVICE).expect("planned").iter().for_each(&mut check);
        for to_storage in [true, false] {
            cast(precision, to_storage, 1, 2, 99, &DEVICE).expect("planned").iter().for_each(&mut check);
        }
        for &layout in Layout::ALL {
            bias_launches(&map, 8, layout, precision, 1, 2, &DEVICE).expect("planned").iter().for_each(&mut check);
            bias_gradient_launches(&map, 8, layout, precision, 1, 2, 3, &DEVICE)
                .expect("planned")
                .iter()
                .for_each(&mut check);
        }
    }
    check(&fma_burn(1, 100, &DEVICE).expect("planned").0);
    let missed: Vec<String> = functions().into_iter().filter(|name| !seen.contains(name)).collect();
    assert_eq!(missed, Vec::<String>::new(), "functions that nothing plans");
}

#[test]
fn tensors_beyond_32_bits_are_covered_whole() {
    let input = shape(&[64, 1024, 1024]);
    let batch = 64;
    let elements = batch * input.elements();
    assert!(elements > 1 << 31);
    let first = |layer: Layer, precision: Precision, layout: Layout| {
        let case = LayerCase { inputs: vec![input], layer };
        let trial =
            Trial { layout, ..Trial::usual(case, Phase::Forward, batch, precision, Mode::Inference).expect("fits") };
        launches(&trial, &operands(1), &DEVICE).expect("planned").remove(0)
    };
    let size = |sizes: [u32; 3]| sizes.map(u64::from);
    for (precision, lanes) in [(Precision::Fp32, 4), (Precision::Fp16, 8)] {
        let relu = first(Layer::Activation(Activation { function: Function::Relu }), precision, Layout::Nchw);
        assert_eq!(relu.arguments[2], Argument::I64(elements as i64));
        assert!(size(relu.grid)[0] * size(relu.block)[0] * 4 * lanes >= elements);

        let norm = first(Layer::BatchNorm(BatchNorm { affine: true }), precision, Layout::Nchw);
        assert!(size(norm.grid)[0] * size(norm.block)[0] * 2 * lanes >= elements);

        let pooled = first(pool(PoolOp::Max, 2, 2, 0, false), precision, Layout::Nhwc);
        assert!(size(pooled.grid)[0] * size(pooled.block)[0] >= elements / 4 / lanes);
        let pooled = first(pool(PoolOp::Max, 2, 2, 0, false), precision, Layout::Nchw);
        assert!(size(pooled.grid)[0] * u64::from(pooled.shared) >= elements * 16 / lanes);
    }
}

#[test]
fn what_is_not_ours_says_so() {
    let conv = Conv2d {
        channels: 8,
        kernel: Pair::square(3),
        stride: Pair::square(1),
        padding: Pair::square(1),
        dilation: Pair::square(1),
        groups: Groups::Count(1),
        bias: true,
    };
    let case = LayerCase { inputs: vec![shape(&[4, 8, 8])], layer: Layer::Conv2d(conv) };
    for trial in trials(&case, 2) {
        let planned = launches(&trial, &operands(1), &DEVICE);
        assert_eq!(planned.is_ok(), trial.phase == Phase::Update, "{trial:?}");
        assert_eq!(covers(&trial), trial.phase == Phase::Update);
    }
    let relu = Layer::Activation(Activation { function: Function::Relu });
    let case = LayerCase { inputs: vec![shape(&[8])], layer: relu };
    let mut trial = trials(&case, 1).remove(0);
    trial.precision = Precision::Int8;
    assert!(matches!(launches(&trial, &operands(1), &DEVICE), Err(DeviceError::Unsupported { .. })));
    trial.precision = Precision::Fp32;
    assert!(launches(&trial, &operands(0), &DEVICE).is_err(), "an input without an address");
}

#[test]
fn an_update_writes_stored_weights_only_where_they_differ_from_the_master() {
    let linear = LayerCase { inputs: vec![shape(&[6])], layer: Layer::Linear(Linear { features: 5, bias: true }) };
    let norm = LayerCase { inputs: vec![shape(&[6])], layer: Layer::BatchNorm(BatchNorm { affine: true }) };
    for (case, precision, function, writes) in [
        (&linear, Precision::Fp32, "update_adam_f32", false),
        (&linear, Precision::Bf16, "update_adam_bf16", true),
        (&norm, Precision::Bf16, "update_adam_f32", false),
    ] {
        let found =
            trials(case, 1).into_iter().find(|t| t.precision == precision && t.optimizer == Some(Optimizer::Adam));
        let planned = launches(&found.expect("a trial"), &operands(1), &DEVICE).expect("planned");
        assert_eq!(planned[0].function, function);
        let weights = if writes { operands(1).parameters } else { 0 };
        assert_eq!(planned[0].arguments[2], Argument::Pointer(weights));
    }
}

#[test]
fn what_forward_saves_is_sized() {
    let map = shape(&[16, 8, 8]);
    for (layer, fp32, fp16) in [
        (Layer::BatchNorm(BatchNorm { affine: false }), 128, 128),
        (Layer::LayerNorm(LayerNorm { affine: true }), 3 * 64 * 8, 3 * 64 * 8),
        (Layer::Dropout(Dropout { probability: 0.5 }), 3 * 1024, 3 * 1024),
        (Layer::LocalResponseNorm(LocalResponseNorm { size: 5 }), 3 * 4096, 3 * 2048),
        (Layer::Softmax(Softmax::default()), 0, 0),
    ] {
        let case = LayerCase { inputs: vec![map], layer };
        for trial in trials(&case, 3) {
            let keeps = trial.mode == Mode::Training && trial.phase != Phase::Update;
            let expected = if trial.precision.bytes() == 4 { fp32 } else { fp16 };
            assert_eq!(saved(&trial).expect("sized").get(), if keeps { expected } else { 0 }, "{trial:?}");
        }
    }
}

#[test]
fn backward_passes_read_what_the_table_of_kinds_says() {
    let mut read: BTreeMap<&str, (Reads, Reads)> = BTreeMap::new();
    for case in cases().iter().filter(|case| case.inputs.len() < 3) {
        let operands = operands(case.inputs.len());
        for trial in trials(case, 3).iter().filter(|t| matches!(t.phase, Phase::BackwardData | Phase::BackwardWeights))
        {
            let planned = launches(trial, &operands, &DEVICE).expect("planned");
            let pointers: Vec<Address> = planned
                .iter()
                .flat_map(|launch| &launch.arguments)
                .filter_map(|a| if let Argument::Pointer(address) = a { Some(*address) } else { None })
                .collect();
            let none = Reads { inputs: false, output: false };
            let (found, said) = read.entry(case.layer.kind()).or_insert((none, none));
            found.inputs |= pointers.iter().any(|p| operands.inputs.contains(p));
            found.output |= pointers.contains(&operands.output);
            *said = case.layer.row().saved.by_runner();
        }
    }
    assert!(read.len() > 20, "{read:?}");
    for (kind, (found, said)) in read {
        assert_eq!(found, said, "{kind}");
    }
}
