use super::*;
use crate::base::precision::Precision;
use crate::net::network::Network;
use std::collections::BTreeMap;

#[test]
fn what_is_free_is_used_again_and_cut_to_size() {
    let mut pool = Pool::default();
    assert_eq!(pool.take(1000), 0);
    assert_eq!(pool.used, 1024);
    pool.give(0, 1000);
    assert_eq!((pool.take(400), pool.take(500)), (0, 512));
    assert_eq!((pool.used, pool.free.len()), (1024, 0));
    pool.give(0, 400);
    pool.give(512, 500);
    // Neighbours are not joined.
    assert_eq!(pool.take(1000), 1024);
    assert_eq!(pool.used, 2048);
}

fn network(layers: &str, shape: &str) -> ShapedNetwork {
    let text =
        format!("schema = \"network/1\"\nname = \"n\"\ntitle = \"n\"\nlayers = [{layers}]\ninputs.x.shape = {shape}\n");
    let network = Network::from_toml(&text).expect("valid");
    ShapedNetwork::new(&network, 3, Precision::Fp32, &[]).expect("fits")
}

/// What lies where: a tensor and its size by its offset.
#[derive(Default)]
struct Memory {
    tensors: BTreeMap<u64, (String, u64)>,
    size: u64,
}

impl Memory {
    /// A kernel writes a tensor: what it overlaps is gone.
    fn write(&mut self, at: u64, bytes: u64, name: String) {
        assert!(at.is_multiple_of(ALIGNMENT) && at + bytes <= self.size, "{name} at {at} of {}", self.size);
        self.tensors.retain(|&other, (_, size)| other >= at + bytes || at >= other + *size);
        self.tensors.insert(at, (name, bytes));
    }

    /// A kernel reads a tensor, or a part of one.
    fn read(&self, at: u64, bytes: u64, name: &str, reader: &str) {
        let found = self.tensors.get(&at).map(|(name, size)| (name.as_str(), *size >= bytes));
        assert_eq!(found, Some((name, true)), "{reader} reads at {at}");
    }
}

/// Executes a plan on names: every kernel finds what it reads, as the table of kinds says what that is.
fn executed(network: &ShapedNetwork, mode: Mode) {
    let plan = BufferPlan::new(network, mode);
    let layers = network.layers();
    let bytes = |elements: u64| elements * network.batch() * network.precision().bytes();
    let mut memory = Memory { size: plan.bytes, ..Memory::default() };
    for (i, (&at, shape)) in plan.inputs.iter().zip(network.inputs()).enumerate() {
        memory.write(at, bytes(shape.elements()), format!("input {i}"));
    }
    // The tensor that a view shows goes by that one's name.
    let mut names: Vec<String> = Vec::new();
    let source = |names: &[String], source: &Source| match *source {
        Source::Node(k) => (plan.forward[k].output, names[k].clone()),
        Source::Input(k) => (plan.inputs[k], format!("input {k}")),
    };
    for (layer, placed) in layers.iter().zip(&plan.forward) {
        for (from, shape) in layer.from.iter().zip(&layer.case.inputs) {
            let (at, name) = source(&names, from);
            memory.read(at, bytes(shape.elements()), &name, &layer.name);
        }
        assert_eq!(placed.runs, !layer.case.layer.is_view(mode));
        if placed.runs {
            memory.write(placed.output, bytes(layer.output.elements()), layer.name.to_string());
            names.push(layer.name.to_string());
        } else {
            let (at, name) = source(&names, &layer.from[0]);
            assert_eq!(at, placed.output, "{} is seen where it lies", layer.name);
            names.push(name);
        }
    }
    // Gradients by name: of what they are, and how often it was read.
    let mut parts = vec![0; layers.len()];
    let mut told: Vec<Option<(u64, String)>> = vec![None; layers.len()];
    for step in &plan.backward {
        let layer = &layers[step.layer];
        let size = bytes(layer.output.elements());
        match &told[step.layer] {
            Some((at, name)) => {
                assert!(!step.given && step.output == *at, "{}", layer.name);
                memory.read(*at, size, name, &layer.name);
            }
            None => {
                assert!(step.given, "{}", layer.name);
                memory.write(step.output, size, format!("d {}", layer.name));
            }
        }
        let reads = layer.case.layer.saved().by_runner();
        let learns = network.cost(layer, Phase::BackwardWeights, Mode::Training).is_some();
        if !step.inputs.is_empty() || learns {
            if reads.output {
                memory.read(plan.forward[step.layer].output, size, &names[step.layer], &layer.name);
            }
            for (from, shape) in layer.from.iter().zip(&layer.case.inputs).filter(|_| reads.inputs) {
                let (at, name) = source(&names, from);
                memory.read(at, bytes(shape.elements()), &name, &layer.name);
            }
        }
        for (j, (&at, shape)) in step.inputs.iter().zip(&layer.case.inputs).enumerate() {
            memory.write(at, bytes(shape.elements()), format!("d {} {j}", layer.name));
        }
        let mut sums = step.sums.iter();
        for (j, from) in layer.from.iter().enumerate() {
            let Source::Node(k) = *from else { continue };
            let made = match step.inputs.get(j) {
                Some(&at) => (at, format!("d {} {j}", layer.name)),
                None if passes_on(network, layer) => {
                    (step.output, told[step.layer].clone().map_or(format!("d {}", layer.name), |(_, name)| name))
                }
                None => continue,
            };
            parts[k] += 1;
            told[k] = Some(match told[k].take() {
                None => made,
                Some((before, name)) => {
                    let sum = sums.next().expect("a sum");
                    assert_eq!(sum.terms, [before, made.0], "{}", layer.name);
                    memory.read(before, sum.bytes, &name, "a sum");
                    memory.read(made.0, sum.bytes, &made.1, "a sum");
                    let name = format!("sum of {} at {}", parts[k], layers[k].name);
                    memory.write(sum.output, sum.bytes, name.clone());
                    (sum.output, name)
                }
            });
        }
        assert!(sums.next().is_none(), "{}", layer.name);
    }
}

#[test]
fn every_kernel_finds_what_it_reads() {
    let conv = |name: &str, from: &str| {
        format!("{{ name = \"{name}\", kind = \"conv2d\", channels = 4, kernel = 1{from} }}, ")
    };
    let residual = conv("a", "")
        + "{ name = \"relu\", kind = \"relu\" }, "
        + &conv("b", "")
        + &conv("c", "")
        + "{ name = \"sum\", kind = \"add\", from = [\"c\", \"relu\"] }, { name = \"last\", kind = \"relu\" }, "
        + "{ name = \"drop\", kind = \"dropout\" }, { name = \"flat\", kind = \"flatten\" }, "
        + "{ name = \"end\", kind = \"linear\", features = 3 }, { name = \"p\", kind = \"softmax\" }, { name = \"r\", kind = \"relu\" }";
    let cut = conv("a", "")
        + "{ name = \"rows\", kind = \"reshape\", shape = [4, 16] }, { name = \"turned\", kind = \"permute\", order = [1, 0] }, "
        + "{ name = \"left\", kind = \"slice\", axis = 1, size = 2 }, { name = \"l\", kind = \"tanh\" }, "
        + "{ name = \"right\", kind = \"slice\", axis = 1, start = 2, size = 2, from = \"turned\" }, "
        + "{ name = \"m\", kind = \"gelu\" }, { name = \"both\", kind = \"multiply\", from = [\"l\", \"m\"] }";
    let seen = "{ name = \"flat\", kind = \"flatten\" }, { name = \"a\", kind = \"relu\" }, \
                { name = \"b\", kind = \"linear\", features = 5, from = \"flat\" }, \
                { name = \"c\", kind = \"linear\", features = 5, from = \"a\" }, \
                { name = \"d\", kind = \"concat\", from = [\"b\", \"c\"] }, { name = \"e\", kind = \"sigmoid\" }";
    for layers in [&residual, &cut, seen] {
        for &mode in Mode::ALL {
            executed(&network(layers, "[1, 4, 4]"), mode);
        }
    }
}

#[test]
fn every_kernel_of_the_zoo_finds_what_it_reads() {
    for name in crate::catalog::network_names() {
        let network = crate::catalog::network(name).expect("valid");
        let network = ShapedNetwork::new(&network, 2, Precision::Fp16, &[]).expect("fits");
        Mode::ALL.iter().for_each(|&mode| executed(&network, mode));
    }
}

#[test]
fn a_view_of_an_input_takes_no_buffer() {
    let plan = BufferPlan::new(
        &network(
            "{ name = \"flat\", kind = \"flatten\" }, { name = \"a\", kind = \"linear\", features = 2 }",
            "[1, 4, 4]",
        ),
        Mode::Inference,
    );
    assert_eq!(plan.bytes, 2 * ALIGNMENT);
    assert_eq!(plan.forward[0], Placed { output: plan.inputs[0], runs: false });
}

#[test]
fn an_activation_overwrites_what_no_backward_pass_reads() {
    let output = |layers: &str, mode| {
        let plan = BufferPlan::new(&network(layers, "[1, 4, 4]"), mode);
        (plan.forward[0].output, plan.forward[1].output)
    };
    for (maker, function, training) in [
        ("kind = \"conv2d\", kernel = 1, channels = 2", "relu", true),
        ("kind = \"batch_norm\"", "sigmoid", true),
        ("kind = \"batch_norm\"", "silu", false),
        ("kind = \"softmax\"", "relu", false),
        ("kind = \"tanh\"", "relu", false),
    ] {
        let layers = format!("{{ name = \"a\", {maker} }}, {{ name = \"b\", kind = \"{function}\" }}");
        let same = |mode| {
            let (a, b) = output(&layers, mode);
            a == b
        };
        assert_eq!((same(Mode::Inference), same(Mode::Training)), (true, training), "{layers}");
    }
}
