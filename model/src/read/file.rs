//! The network file format, documented in `data/nets/README.md`.

use crate::base::file::check_schema;
use crate::base::mark::Quick;
use crate::base::packed::{from_packed, from_table, from_toml};
use crate::base::shape::Shape;
use crate::base::text::{closest, names, prose, shown, toml_message};
use crate::net::case::LayerCase;
use crate::net::layer::Layer;
use crate::net::network::folded::{AFTER_BIAS, Folded};
use crate::net::network::folding::{self, may_hold};
use crate::net::network::{Derived, Input, Network, NetworkError, Node, Published, Source, Stated, derived};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use toml::{Table, Value};

/// No network has more layers; a file that expands to more is a mistake.
pub const MAX_LAYERS: usize = 20_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    #[serde(deserialize_with = "names")]
    name: String,
    #[serde(deserialize_with = "names")]
    title: String,
    #[serde(default, deserialize_with = "prose")]
    source: String,
    #[serde(default, deserialize_with = "names")]
    aliases: Vec<String>,
    #[serde(default)]
    published: Published,
    inputs: toml::map::Map<String, Value>,
    #[serde(default)]
    outputs: Vec<String>,
    #[serde(default)]
    dimensions: HashMap<String, u64>,
    #[serde(default, rename = "block")]
    blocks: Vec<Block>,
    #[serde(default, alias = "layer")]
    layers: Vec<Table>,
    #[serde(default)]
    derived: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    name: String,
    #[serde(default)]
    parameters: Vec<String>,
    layers: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputFile {
    shape: Vec<Dimension>,
    #[serde(default)]
    dtype: DType,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a size or the name of a dimension")]
enum Dimension {
    Size(u64),
    Name(String),
}

/// Integers are indices, which embeddings read.
#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum DType {
    #[default]
    Float,
    Int,
}

impl Network {
    /// Reads a network file.
    ///
    /// # Errors
    /// One line that names the line, layer or field at fault.
    pub fn from_toml(text: &str) -> Result<Self, NetworkError> {
        Self::of(from_toml(text).map_err(|e| NetworkError::Format(e.to_string()))?)
    }

    /// Reads a network file that is shipped.
    ///
    /// # Errors
    /// As [`Self::from_toml`].
    pub(crate) fn from_packed(bytes: &'static [u8]) -> Result<Self, NetworkError> {
        Self::of(from_packed(bytes).map_err(|e| NetworkError::Format(e.to_string()))?)
    }

    fn of(file: File) -> Result<Self, NetworkError> {
        check_schema(&file.schema, "network/1").map_err(|e| NetworkError::Format(e.to_string()))?;
        let inputs = read_inputs(&file.inputs, &file.dimensions)?;
        let mut expander = Expander { blocks: &file.blocks, nodes: Vec::new() };
        let names = inputs.iter().enumerate().map(|(i, input)| (input.name.clone(), Source::Input(i))).collect();
        let scope = Scope { prefix: String::new(), names, arguments: &Table::new(), visible_blocks: file.blocks.len() };
        expander.expand(&file.layers, scope, Source::Input(0))?;
        let nodes = expander.nodes;
        check_names(&inputs, &nodes)?;
        check_integers(&inputs, &nodes)?;
        let outputs = file
            .outputs
            .iter()
            .map(|name| nodes.iter().position(|n| n.name == *name))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| NetworkError::Format("outputs names a layer that is not there".into()))?;
        check_all_used(&nodes, &outputs)?;
        if file.published.top1_error.is_some_and(|e| !(e > 0.0 && e < 1.0)) {
            return Err(NetworkError::Format("published.top1_error is a share: above 0 and below 1".into()));
        }
        let derived = read_derived(file.derived)?;
        let folded = nodes.iter().filter(|n| n.folded.holds()).count();
        let notes = [
            (folded > 0).then(|| folding::open(folded)),
            (!derived.is_empty()).then(|| derived::each_step(derived.len())),
        ];
        Ok(Self {
            name: file.name,
            title: file.title,
            source: file.source,
            aliases: file.aliases,
            published: file.published,
            inputs,
            nodes,
            outputs,
            derived,
            notes: notes.into_iter().flatten().collect(),
            stated: Stated::default(),
        })
    }
}

fn read_inputs(
    table: &toml::map::Map<String, Value>,
    dimensions: &HashMap<String, u64>,
) -> Result<Vec<Input>, NetworkError> {
    let inputs = table
        .iter()
        .map(|(name, value)| {
            let fail = |why: String| NetworkError::Format(format!("input {}: {why}", shown(name)));
            let Value::Table(fields) = value else {
                return Err(fail(format!("expected a table, not {}", value.type_str())));
            };
            let input: InputFile = from_table(fields).map_err(|wrong| fail(toml_message(&wrong.to_string())))?;
            let dims = input
                .shape
                .iter()
                .map(|d| match d {
                    Dimension::Size(n) => Ok(*n),
                    Dimension::Name(n) => {
                        let missing = || fail(format!("dimension {} is not in [dimensions]", shown(n)));
                        dimensions.get(n).copied().ok_or_else(missing)
                    }
                })
                .collect::<Result<Vec<_>, _>>()?;
            let shape = Shape::new(&dims).map_err(|e| fail(e.to_string()))?;
            let symbol = |d: &Dimension| match d {
                Dimension::Size(_) => None,
                Dimension::Name(name) => Some(name.clone()),
            };
            let symbols = input.shape.iter().map(symbol).collect();
            Ok(Input { name: name.clone(), shape, symbols, integer: matches!(input.dtype, DType::Int) })
        })
        .collect::<Result<Vec<_>, _>>()?;
    if inputs.is_empty() {
        return Err(NetworkError::Format("no inputs".into()));
    }
    Ok(inputs)
}

fn read_derived(entries: Vec<Table>) -> Result<Vec<Derived>, NetworkError> {
    if entries.len() > MAX_LAYERS {
        return Err(NetworkError::Format(format!("derived has more than {MAX_LAYERS} layers")));
    }
    let (mut derived, mut taken) = (Vec::with_capacity(entries.len()), HashSet::new());
    for (position, mut fields) in entries.into_iter().enumerate() {
        let Some(Value::String(name)) = fields.remove("name") else {
            return Err(at(&format!("derived#{}", position + 1), "has no name"));
        };
        check_name(&name).map_err(|why| at(&name, why))?;
        if !taken.insert(name.clone()) {
            return Err(at(&name, "the name is used twice"));
        }
        let inputs = fields.remove("inputs").ok_or_else(|| at(&name, "needs inputs: the shapes that it reads"))?;
        let inputs: Vec<Shape> =
            inputs.try_into().map_err(|e: toml::de::Error| at(&name, &toml_message(e.message())))?;
        let wants_gradient = match fields.remove("wants_gradient") {
            None => true,
            Some(Value::Boolean(wants)) => wants,
            Some(_) => return Err(at(&name, "wants_gradient is true or false")),
        };
        let Some(Value::String(kind)) = fields.remove("kind") else { return Err(at(&name, "needs a kind")) };
        let case = LayerCase { inputs, layer: layer_of(&name, &kind, fields)? };
        case.output().map_err(|e| at(&name, &e.to_string()))?;
        derived.push(Derived { name: name.into(), case, wants_gradient });
    }
    Ok(derived)
}

/// A layer by its kind and fields.
fn layer_of(name: &str, kind: &str, fields: Table) -> Result<Layer, NetworkError> {
    let unknown = || format!("unknown kind \"{}\"{}", shown(kind), closest(kind, Layer::KINDS.iter().copied()));
    let layer = Layer::from_table(kind, fields).ok_or_else(|| at(name, &unknown()))?;
    layer.map_err(|e| at(name, &toml_message(&e)))
}

struct Expander<'a> {
    blocks: &'a [Block],
    nodes: Vec<Node>,
}

/// Sources by the names that they have in a scope; a file has at most [`MAX_LAYERS`].
type Names = HashMap<String, Source, Quick>;

struct Scope<'a> {
    /// Put before every local name.
    prefix: String,
    /// What local names stand for.
    names: Names,
    /// Values of the block's parameters.
    arguments: &'a Table,
    /// Only blocks before this one may be used: no recursion.
    visible_blocks: usize,
}

impl Expander<'_> {
    /// Appends the nodes of a list of layers and block uses; returns where the last one's result is.
    fn expand(&mut self, entries: &[Table], mut scope: Scope<'_>, first: Source) -> Result<Source, NetworkError> {
        let mut previous = first;
        if entries.is_empty() {
            return Err(NetworkError::Format("no layers".into()));
        }
        for (position, entry) in entries.iter().enumerate() {
            let mut fields = entry.clone();
            let local = match fields.remove("name") {
                Some(Value::String(name)) => name,
                _ => return Err(at(&format!("{}#{}", scope.prefix, position + 1), "has no name")),
            };
            let full = format!("{}{local}", scope.prefix);
            check_name(&local).map_err(|why| at(&full, why))?;
            substitute(&mut fields, scope.arguments).map_err(|why| at(&full, &why))?;
            let from = match fields.remove("from") {
                None => vec![previous],
                Some(value) => resolve(&value, &scope.names).map_err(|why| at(&full, &why))?,
            };
            let result = match (fields.remove("kind"), fields.remove("block")) {
                (Some(Value::String(kind)), None) => self.add_layer(&full, &kind, fields, from)?,
                (None, Some(Value::String(block))) => self.add_block(&full, &block, fields, from, &scope)?,
                _ => return Err(at(&full, "needs either a kind or a block")),
            };
            if scope.names.insert(local, result).is_some() {
                return Err(at(&full, "the name is used twice"));
            }
            previous = result;
        }
        Ok(previous)
    }

    fn add_layer(
        &mut self,
        full: &str,
        kind: &str,
        mut fields: Table,
        from: Vec<Source>,
    ) -> Result<Source, NetworkError> {
        let tied = match fields.remove("tied") {
            None => None,
            Some(Value::String(name)) => Some(
                self.nodes
                    .iter()
                    .position(|n| n.name == name)
                    .ok_or_else(|| at(full, &format!("tied names \"{}\", which is not before it", shown(&name))))?,
            ),
            Some(_) => return Err(at(full, "tied must be a layer's full name")),
        };
        let folded = fields.remove("folded");
        let layer = layer_of(full, kind, fields)?;
        if self.nodes.len() >= MAX_LAYERS {
            return Err(NetworkError::Format(format!("expands to more than {MAX_LAYERS} layers")));
        }
        let folded = match folded {
            None | Some(Value::Boolean(false)) => Folded::No,
            Some(Value::Boolean(true)) if may_hold(&layer) => Folded::Norm,
            Some(Value::String(word)) if word == AFTER_BIAS && may_hold(&layer) => Folded::NormAfterBias,
            Some(_) => {
                let why = "folded is true or \"after_bias\" of a convolution or linear layer, or false";
                return Err(at(full, why));
            }
        };
        self.nodes.push(Node { name: full.into(), layer, from: from.into(), tied, folded });
        Ok(Source::Node(self.nodes.len() - 1))
    }

    fn add_block(
        &mut self,
        full: &str,
        name: &str,
        mut fields: Table,
        from: Vec<Source>,
        scope: &Scope<'_>,
    ) -> Result<Source, NetworkError> {
        let blocks = self.blocks;
        let (index, block) = blocks[..scope.visible_blocks]
            .iter()
            .enumerate()
            .find(|(_, b)| b.name == name)
            .ok_or_else(|| at(full, &format!("block \"{}\" is not defined before it", shown(name))))?;
        let [mut input] = from[..] else {
            return Err(at(full, "a block reads one tensor"));
        };
        let repeat = match fields.remove("repeat") {
            None => None,
            Some(Value::Integer(n)) if (1..=MAX_LAYERS as i64).contains(&n) => Some(n),
            Some(_) => return Err(at(full, &format!("repeat must be a whole number from 1 to {MAX_LAYERS}"))),
        };
        for parameter in &block.parameters {
            if !fields.contains_key(parameter) {
                let (block, parameter) = (shown(name), shown(parameter));
                return Err(at(full, &format!("block \"{block}\" needs {parameter}")));
            }
        }
        if let Some(extra) = fields.keys().find(|k| !block.parameters.contains(k)) {
            let (block, extra) = (shown(name), shown(extra));
            return Err(at(full, &format!("block \"{block}\" has no parameter {extra}")));
        }
        for copy in 0..repeat.unwrap_or(1) {
            let prefix = match repeat {
                Some(_) => format!("{full}.{copy}."),
                None => format!("{full}."),
            };
            let names = Names::from_iter([("input".to_string(), input)]);
            let inner = Scope { prefix, names, arguments: &fields, visible_blocks: index };
            input = self.expand(&block.layers, inner, input)?;
        }
        Ok(input)
    }
}

fn at(name: &str, why: &str) -> NetworkError {
    NetworkError::Layer { name: shown(name), why: why.to_string() }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-');
    if name.is_empty() || name.len() > 100 || !name.bytes().all(legal) {
        return Err("names are up to 100 letters, digits, '.', '_', '/', '-'");
    }
    Ok(())
}

/// Replaces every string `"$name"` by the argument of that name.
fn substitute(fields: &mut Table, arguments: &Table) -> Result<(), String> {
    fn replace(value: &mut Value, arguments: &Table) -> Result<(), String> {
        match value {
            Value::String(text) => {
                if let Some(name) = text.strip_prefix('$') {
                    *value = arguments
                        .get(name)
                        .cloned()
                        .ok_or_else(|| format!("${} is not a parameter here", shown(name)))?;
                }
                Ok(())
            }
            Value::Array(items) => items.iter_mut().try_for_each(|item| replace(item, arguments)),
            _ => Ok(()),
        }
    }
    fields.iter_mut().try_for_each(|(_, value)| replace(value, arguments))
}

fn resolve(from: &Value, names: &Names) -> Result<Vec<Source>, String> {
    let find = |value: &Value| {
        let name = value.as_str().ok_or("from must be a name or a list of names")?;
        names.get(name).copied().ok_or_else(|| {
            let near = closest(name, names.keys().map(String::as_str));
            format!("from names \"{}\", which is not before it{near}", shown(name))
        })
    };
    match from {
        Value::Array(items) if items.is_empty() => Err("from is empty".into()),
        Value::Array(items) => items.iter().map(find).collect(),
        single => Ok(vec![find(single)?]),
    }
}

fn check_all_used(nodes: &[Node], outputs: &[usize]) -> Result<(), NetworkError> {
    let mut used = vec![false; nodes.len()];
    for source in nodes.iter().flat_map(|node| node.from.iter()) {
        if let Source::Node(i) = *source {
            used[i] = true;
        }
    }
    match (0..nodes.len().saturating_sub(1)).find(|i| !used[*i] && !outputs.contains(i)) {
        Some(i) => Err(at(&nodes[i].name, "its result is never used")),
        None => Ok(()),
    }
}

/// Full names are keys wherever a prediction tells layers apart, and a file with blocks written out has nothing else: no two
/// are one, and each may stand in a file.
///
/// # Errors
/// One that names the input or layer at fault.
pub fn check_names(inputs: &[Input], nodes: &[Node]) -> Result<(), NetworkError> {
    let mut taken = HashSet::with_capacity_and_hasher(inputs.len() + nodes.len(), Quick::default());
    for name in inputs.iter().map(|i| i.name.as_str()).chain(nodes.iter().map(|n| n.name.as_str())) {
        check_name(name).map_err(|why| at(name, why))?;
        if !taken.insert(name) {
            return Err(at(name, "the full name is used twice, as by a layer and one within a block: rename one"));
        }
    }
    Ok(())
}

/// Embeddings read integers, and nothing else does.
fn check_integers(inputs: &[Input], nodes: &[Node]) -> Result<(), NetworkError> {
    let integer = |source: &Source| matches!(source, Source::Input(i) if inputs[*i].integer);
    for node in nodes {
        match (matches!(node.layer, Layer::Embedding(_)), node.from.iter().any(integer)) {
            (true, false) => return Err(at(&node.name, "an embedding reads an input of dtype = \"int\"")),
            (false, true) => return Err(at(&node.name, "only an embedding reads integers")),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "schema = \"network/1\"\nname = \"n\"\ntitle = \"n\"\n";

    fn read(body: &str) -> Result<Network, NetworkError> {
        Network::from_toml(&format!("{HEAD}{body}"))
    }

    #[test]
    fn what_is_wrong_with_an_input_is_said_in_words() {
        let told = |input: &str| {
            read(&format!("layers = [{{ name = \"a\", kind = \"relu\" }}]\n[inputs]\nimage = {input}\n"))
                .expect_err("no input")
                .to_string()
        };
        for (input, why) in [
            ("{ shape = \"3x224x224\" }", "input image: shape: invalid type: string \"3x224x224\", expected a list"),
            ("[3, 224, 224]", "input image: expected a table, not array"),
            ("{ shape = [3], kind = 1 }", "input image: unknown field `kind`"),
        ] {
            assert!(told(input).contains(why), "{}", told(input));
        }
    }

    const RESIDUAL: &str = r#"
layers = [
  { name = "stem", kind = "conv2d", channels = 8, kernel = 3, padding = 1 },
  { name = "stage", block = "basic", c = 8, repeat = 2 },
  { name = "pool", kind = "global_avg_pool2d", from = "stage" },
]
[inputs]
image = { shape = [3, "size", "size"] }
[dimensions]
size = 8
[[block]]
name = "basic"
parameters = ["c"]
layers = [
  { name = "conv", kind = "conv2d", channels = "$c", kernel = 3, padding = 1, bias = false },
  { name = "sum", kind = "add", from = ["conv", "input"] },
]
"#;

    #[test]
    fn names_have_few_characters_and_are_short() {
        for (name, legal) in [
            ("a.B_1/c-2", true),
            (&"n".repeat(100) as &str, true),
            (&"n".repeat(101), false),
            ("", false),
            ("a b", false),
            ("a\\u001b[31m", false),
            ("a+b", false),
        ] {
            let body =
                format!("layers = [{{ name = \"{name}\", kind = \"relu\" }}]\n[inputs]\nx = {{ shape = [3, 8, 8] }}\n");
            assert_eq!(read(&body).is_ok(), legal, "{name:?}");
        }
    }

    #[test]
    fn repeated_blocks_are_chained() -> Result<(), NetworkError> {
        let net = read(RESIDUAL)?;
        let names: Vec<_> = net.nodes.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["stem", "stage.0.conv", "stage.0.sum", "stage.1.conv", "stage.1.sum", "pool"]);
        assert_eq!(*net.nodes[4].from, [Source::Node(3), Source::Node(2)]);
        assert_eq!(net.inputs[0].shape.dims(), [3, 8, 8]);
        Ok(())
    }

    const LANGUAGE: &str = r#"
layers = [
  { name = "wte", kind = "embedding", vocabulary = 100, features = 8 },
  { name = "head", kind = "linear", features = 100, bias = false, tied = "wte" },
]
[inputs]
tokens = { shape = ["sequence"], dtype = "int" }
[dimensions]
sequence = 16
"#;

    #[test]
    fn a_named_dimension_can_be_bound() -> Result<(), NetworkError> {
        let mut net = read(LANGUAGE)?;
        assert_eq!((net.inputs[0].shape.dims(), net.dimensions()), (&[16][..], vec!["sequence"]));
        net.bind("sequence", 128)?;
        assert_eq!(net.inputs[0].shape.dims(), [128]);
        assert!(net.bind("height", 128).is_err_and(|e| e.to_string().contains("it has sequence")));
        assert!(net.bind("sequence", 0).is_err());
        Ok(())
    }

    /// A layer within a block and one beside it may have one full name.
    #[test]
    fn two_layers_of_one_full_name_are_refused() {
        let text = |block: &str, layer: &str| {
            format!(
                "layers = [{{ name = \"{block}\", block = \"b\" }}, {{ name = \"{layer}\", kind = \"relu\" }}]\n\
                 [inputs]\n\"x.y\" = {{ shape = [3, 8, 8] }}\n[[block]]\nname = \"b\"\n\
                 layers = [{{ name = \"conv.0\", kind = \"relu\" }}]\n"
            )
        };
        assert!(read(&text("features.3", "features.3.conv.1")).is_ok());
        for (block, layer) in [("features.3", "features.3.conv.0"), ("a", "a.conv.0")] {
            let error = read(&text(block, layer)).expect_err("one name twice").to_string();
            assert!(error.starts_with(&format!("layer {layer}: the full name is used twice")), "{error}");
        }
        let input = text("x", "last").replace("conv.0", "y");
        assert!(read(&input).is_err_and(|e| e.to_string().starts_with("layer x.y: the full name")));
        // What blocks make of long names has to stand in a file, too.
        let long = text(&"a".repeat(98), "last");
        assert!(read(&long).is_err_and(|e| e.to_string().contains("up to 100 letters")));
    }

    #[test]
    fn what_is_computed_of_weights_is_read_back_and_its_mistakes_are_named() -> Result<(), NetworkError> {
        let with = |entry: &str| {
            format!("layers = [{{ name = \"a\", kind = \"relu\" }}]\nderived = [{entry}]\ninputs.x.shape = [3, 8, 8]")
        };
        let good = r#"{ name = "n", kind = "batch_norm", inputs = [[8, 1, 27]] }, { name = "t", kind = "linear", features = 4, inputs = [[9, 2]], wants_gradient = false }"#;
        let network = read(&with(good))?;
        let wants: Vec<bool> = network.derived.iter().map(|d| d.wants_gradient).collect();
        assert_eq!((wants, network.notes.clone()), (vec![true, false], vec![derived::each_step(2)]));
        assert_eq!(Network::from_toml(&network.to_toml())?, network);
        for (wrong, word) in [
            (good.replace("name = \"t\"", "name = \"n\""), "used twice"),
            (good.replace("[[9, 2]]", "[[9, 0]]"), "layer t"),
            (good.replace(", inputs = [[9, 2]]", ""), "needs inputs"),
            (good.replace("= false", "= 1"), "wants_gradient"),
            (good.replace("features = 4, ", ""), "features"),
            (good.replace("\"linear\"", "\"linaer\""), "unknown kind"),
            (good.replace("[[9, 2]]", "[[9, 2], [9, 2]]"), "layer t"),
        ] {
            let error = read(&with(&wrong)).expect_err(&wrong).to_string();
            assert!(error.contains(word) && !error.contains('\n'), "{error:?} should name {word:?}");
        }
        Ok(())
    }

    #[test]
    fn names_and_titles_carry_nothing_but_themselves() -> Result<(), NetworkError> {
        let body = "layers = [{ name = \"a\", kind = \"relu\" }]\ninputs.x.shape = [3, 8, 8]";
        let head = "schema = \"network/1\"\nname = \"x\\u001b]0;pwn\\u0007\\r\\n\"\n\
                    title = \"<script>![a](javascript:b)\\nforged line\"\nsource = \"a < b\\u009b2J\"\naliases = [\"`x`\"]\n";
        let network = Network::from_toml(&format!("{head}{body}"))?;
        assert_eq!((&network.name[..], &network.title[..]), ("x 0;pwn", "script ! a (javascript:b) forged line"));
        assert_eq!((&network.source[..], &network.aliases[..]), ("a < b 2J", &["x".to_string()][..]));
        assert_eq!(Network::from_toml(&network.to_toml())?, network, "what was cleaned stays as it is");
        for input in ["\"x\\u001b\"", "\"<b>\"", "\"\""] {
            assert!(read(&body.replace("inputs.x", &format!("inputs.{input}"))).is_err(), "{input}");
        }
        Ok(())
    }

    /// What a file has at length is quoted at length nowhere.
    #[test]
    fn long_texts_make_short_messages() {
        let long = "x".repeat(100_000);
        for body in [
            format!("layers = [{{ name = \"a\", kind = \"relu\", from = \"{long}\" }}]\ninputs.x.shape = [3]"),
            format!("layers = [{{ name = \"a\", kind = \"{long}\" }}]\ninputs.x.shape = [3]"),
            format!("layers = [{{ name = \"a\", block = \"{long}\" }}]\ninputs.x.shape = [3]"),
            format!("layers = [{{ name = \"{long}\", kind = \"relu\" }}]\ninputs.x.shape = [3]"),
            format!("layers = [{{ name = \"a\", kind = \"relu\", tied = \"{long}\" }}]\ninputs.x.shape = [3]"),
            format!("layers = [{{ name = \"a\", kind = \"relu\" }}]\ninputs.x.shape = [\"{long}\"]"),
            format!("layers = [{{ name = \"a\", kind = \"relu\" }}]\ninputs.{long}.shape = [3]"),
            format!("layers = [{{ name = \"a\", kind = \"relu\", of = \"${long}\" }}]\ninputs.x.shape = [3]"),
            format!("layers = \"{long}\"\ninputs.x.shape = [3]"),
            format!("{long} = 1\nlayers = []\ninputs.x.shape = [3]"),
        ] {
            let error = read(&body).expect_err("wrong").to_string();
            assert!(error.len() < 400, "{} bytes: {}", error.len(), &error[..200]);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let layer = |fields: &str| format!("layers = [{{ name = \"a\", {fields} }}]\ninputs.x.shape = [3, 8, 8]");
        for (body, expected) in [
            (layer("kind = \"conv\", channels = 1, kernel = 1"), "conv2d"),
            (layer("kind = \"conv2d\", channels = 1"), "kernel"),
            (layer("kind = \"conv2d\", channels = -1, kernel = 1"), "layer a"),
            (layer("kind = \"relu\", from = \"y\""), "\"y\""),
            (layer("kind = \"relu\", slope = 1"), "slope"),
            (layer("block = \"b\""), "\"b\""),
            (layer("kind = \"relu\", from = \"$z\""), "$z"),
            ("inputs.x.shape = [3, 8, 8]".to_string(), "no layers"),
            ("layers = [\ninputs".to_string(), "line"),
            (RESIDUAL.replace("from = \"stage\"", "from = \"stem\""), "never used"),
            (RESIDUAL.replace("repeat = 2", "repeat = 20001"), "repeat"),
            (RESIDUAL.replace("c = 8,", ""), "needs c"),
            (LANGUAGE.replace("int", "float"), "dtype"),
            (LANGUAGE.replace("\"linear\"", "\"linear\", from = \"tokens\""), "integers"),
            (LANGUAGE.replace("tied = \"wte\"", "tied = \"wpe\""), "\"wpe\""),
            (RESIDUAL.replace("\"size\", \"size\"", "\"size\", \"width\""), "width"),
        ] {
            let error = read(&body).expect_err(&body).to_string();
            assert!(error.contains(expected), "{error:?} should name {expected:?}");
            assert!(!error.contains('\n'), "{error:?} is one line");
        }
    }

    /// Words of a file that are no field make no message as long as they are.
    #[test]
    fn long_fields_make_short_messages() {
        let long = "x".repeat(20_000);
        for layer in
            [format!("kind = \"conv2d\", channels = 8, kernel = 3, {long} = 1"), format!("kind = \"relu\", {long} = 2")]
        {
            let text = format!(
                "schema = \"network/1\"\nname = \"n\"\ntitle = \"n\"\nlayers = [\n  {{ name = \"a\", {layer} }},\n]\ninputs.x.shape = [3, 9, 9]\n"
            );
            let told = Network::from_toml(&text).expect_err("no such field").to_string();
            assert!(told.contains("layer a: unknown field") && told.len() < 400, "{} bytes", told.len());
        }
    }
}
