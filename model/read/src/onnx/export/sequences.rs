//! Layers over sequences of tokens as operators.

use super::site::Site;
use super::{Int, Ints, Word, Writer};
use joulecast_model::net::layer::{Attention, Recurrent, Rotary};

impl Writer<'_> {
    pub(super) fn attention(&mut self, attention: &Attention, site: &Site<'_>) -> Result<(), String> {
        if attention.cached.is_some() {
            return Err("a step with a cache of keys and values is not written".into());
        }
        if attention.window.is_some() || attention.sinks || attention.bias.is_some() {
            return Err("attention over a window, with sinks or with a bias of its scores is not written".into());
        }
        if attention.context.is_some() {
            return Err("attention to another sequence is not written".into());
        }
        self.modern = true;
        let sizes = attention.sizes(&site.read).map_err(|e| e.to_string())?;
        let mut from = site.from.clone();
        if let [packed] = &from[..] {
            let packed = packed.clone();
            let parts = ["q", "k", "v"].map(|part| site.named(part));
            let wide = [sizes.heads, sizes.kv_heads, sizes.kv_heads].map(|h| (h * sizes.dimension) as i64);
            let split = self.integers(&site.named("split"), &wide);
            let names = [&parts[0][..], &parts[1], &parts[2]];
            self.node_of_many("Split", &[&packed, &split], &names, &[("axis", Int(2))]);
            from = parts.to_vec();
        }
        let attributes = [
            ("q_num_heads", Int(sizes.heads as i64)),
            ("kv_num_heads", Int(sizes.kv_heads as i64)),
            ("is_causal", Int(attention.causal.into())),
        ];
        self.node("Attention", &[&from[0], &from[1], &from[2]], site.name, &attributes);
        Ok(())
    }

    pub(super) fn rotary(&mut self, rotary: &Rotary, site: &Site<'_>) {
        self.modern = true;
        let heads = rotary.heads;
        let (tokens, half) = (site.dims()[0], rotary.turned(site.read[0].last() / heads) / 2);
        let tables = ["cos", "sin"].map(|part| self.weight(&site.named(part), &[tokens, half]));
        let positions: Vec<i64> = (0..tokens as i64).collect();
        let positions = self.integers(&site.named("positions"), &positions);
        let every = site.named("positions_of_all");
        self.spread_over_batch(&positions, &[tokens], site, &every);
        let inputs = [site.x(), &tables[0], &tables[1], &every];
        // No such number means all features of a head.
        let turned = ("rotary_embedding_dim", Int(rotary.rotated.unwrap_or(0) as i64));
        self.node("RotaryEmbedding", &inputs, site.name, &[("num_heads", Int(heads as i64)), turned]);
    }

    /// Copies a constant for every sample of what the layer reads.
    fn spread_over_batch(&mut self, constant: &str, dims: &[u64], site: &Site<'_>, output: &str) {
        let part = |name: &str| format!("{output}.{name}");
        self.node("Shape", &[site.x()], &part("batch"), &[("start", Int(0)), ("end", Int(1))]);
        let sizes: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
        let sizes = self.integers(&part("sizes"), &sizes);
        self.node("Concat", &[&part("batch"), &sizes], &part("shape"), &[("axis", Int(0))]);
        self.node("Expand", &[constant, &part("shape")], output, &[]);
    }

    pub(super) fn class_token(&mut self, site: &Site<'_>) {
        let features = site.read[0].last();
        let token = self.weight_of(site, &[1, 1, features]);
        let tokens = site.named("tokens");
        self.spread_over_batch(&token, &[1, features], site, &tokens);
        self.node("Concat", &[&tokens, site.x()], site.name, &[("axis", Int(1))]);
    }

    pub(super) fn relative_position_bias(&mut self, heads: u64, window: u64, site: &Site<'_>) {
        let (tokens, distances) = (window * window, 2 * window - 1);
        let table = self.weight_of(site, &[distances * distances, heads]);
        let distance = |from: u64, to: u64| {
            let (down, across) = (from / window + window - 1 - to / window, from % window + window - 1 - to % window);
            (down * distances + across) as i64
        };
        let pairs: Vec<i64> = (0..tokens).flat_map(|from| (0..tokens).map(move |to| distance(from, to))).collect();
        let pairs = self.integers(&site.named("relative_position_index"), &pairs);
        let part = |name: &str| site.named(name);
        self.node("Gather", &[&table, &pairs], &part("of_pairs"), &[("axis", Int(0))]);
        let square = self.integers(&part("square"), &[tokens as i64, tokens as i64, heads as i64]);
        self.node("Reshape", &[&part("of_pairs"), &square], &part("of_tokens"), &[]);
        self.node("Transpose", &[&part("of_tokens")], &part("of_heads"), &[("perm", Ints(&[2, 0, 1]))]);
        self.reshape(site.x(), &[heads, tokens, tokens], &part("windows"));
        self.node("Add", &[&part("windows"), &part("of_heads")], &part("biased"), &[]);
        self.reshape(&part("biased"), site.output.dims(), site.name);
    }

    pub(super) fn recurrent(&mut self, recurrent: &Recurrent, site: &Site<'_>) {
        let (directions, hidden, gates) = (recurrent.directions(), recurrent.hidden, recurrent.cell.gates());
        let op = recurrent.cell.name().to_uppercase();
        let (mut input, mut length) = (site.named("steps"), site.read[0].last());
        // Sequences of a sample are samples of their own here.
        let several = site.read[0].dims().len() == 3;
        let mut from = site.x().to_string();
        if let (true, &[_, tokens, features]) = (several, site.read[0].dims()) {
            let target = self.integers(&site.named("side_by_side"), &[-1, tokens as i64, features as i64]);
            from = site.named("sequences");
            self.node("Reshape", &[site.x(), &target], &from, &[]);
        }
        self.node("Transpose", &[&from], &input, &[("perm", Ints(&[1, 0, 2]))]);
        let direction = if recurrent.bidirectional { "bidirectional" } else { "forward" };
        for layer in 0..recurrent.layers {
            let part = |name: &str| site.named(&format!("{layer}.{name}"));
            let mut inputs = vec![
                input,
                self.vector_of(site, &format!("{layer}.W"), &[directions, gates * hidden, length]),
                self.vector_of(site, &format!("{layer}.R"), &[directions, gates * hidden, hidden]),
            ];
            if recurrent.bias {
                inputs.push(self.vector_of(site, &format!("{layer}.B"), &[directions, 2 * gates * hidden]));
            }
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let attributes = [("hidden_size", Int(hidden as i64)), ("direction", Word(direction))];
            self.node(&op, &inputs, &part("states"), &attributes);
            // [steps, directions, batch, hidden] to [steps, batch, directions hidden].
            self.node("Transpose", &[&part("states")], &part("rows"), &[("perm", Ints(&[0, 2, 1, 3]))]);
            length = directions * hidden;
            input = part("output");
            let target = self.integers(&part("shape"), &[0, 0, length as i64]);
            self.node("Reshape", &[&part("rows"), &target], &input, &[]);
        }
        let states = if several { site.named("all_states") } else { site.name.to_string() };
        self.node("Transpose", &[&input], &states, &[("perm", Ints(&[1, 0, 2]))]);
        if several {
            self.reshape(&states, site.output.dims(), site.name);
        }
    }
}
