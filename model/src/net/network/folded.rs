//! What a layer's weights hold of the batch norm behind it.

/// Whether a layer's weights hold the batch norm that ran after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Folded {
    /// They do not.
    #[default]
    No,
    /// They do; what bias it has is the batch norm's.
    Norm,
    /// They do, and it had a bias of its own before.
    NormAfterBias,
}

/// How a file of ours says [`Folded::NormAfterBias`].
pub(crate) const AFTER_BIAS: &str = "after_bias";

impl Folded {
    /// Whether a batch norm is in it.
    pub fn holds(self) -> bool {
        self != Self::No
    }
}
