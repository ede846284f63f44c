//! What can measure a layer kind.

use super::Layer;

/// What can measure a layer kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// The runner of `kernels`, and frameworks.
    ByRunner,
    /// Frameworks alone; it is one kernel of a library or as simple as one, so that rows of one framework speak for all.
    ByAnyFramework,
    /// Frameworks alone, each of which has kernels of its own for it.
    ByItsFramework,
    /// Nothing yet: it is predicted by other kinds' models.
    Nowhere,
}

impl Layer {
    /// What can measure a kind, which is one of [`Layer::KINDS`].
    pub fn measured(kind: &str) -> Measured {
        match kind {
            "attention" | "embedding" | "rms_norm" | "lstm" | "gru" | "rnn" | "gelu_tanh" | "position_embedding"
            | "class_token" | "reshape" | "permute" | "slice" => Measured::ByAnyFramework,
            "rotary" | "relative_position_bias" | "resize" => Measured::ByItsFramework,
            "elementwise" | "reduce" | "conv3d" | "max_pool3d" | "avg_pool3d" => Measured::Nowhere,
            _ => Measured::ByRunner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_measured_somewhere_or_known_not_to_be() {
        for (kind, by) in [
            ("attention", Measured::ByAnyFramework),
            ("slice", Measured::ByAnyFramework),
            ("rotary", Measured::ByItsFramework),
            ("resize", Measured::ByItsFramework),
            ("elementwise", Measured::Nowhere),
            ("conv3d", Measured::Nowhere),
            ("conv2d", Measured::ByRunner),
            ("softmax", Measured::ByRunner),
        ] {
            assert_eq!(Layer::measured(kind), by, "{kind}");
        }
    }
}
