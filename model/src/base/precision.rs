//! Number formats and the phases of a step.

use serde::{Deserialize, Serialize};

/// An enumeration whose variants have names in files and on the command line: `ALL`, `name`, `from_name`, serde and `Display`.
/// `serde::{Serialize, Deserialize}` must be in scope.
#[macro_export]
macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant),+
        }
        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The name used in files and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
            /// By its name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.name() == name)
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub use named_enum;

named_enum!(
    /// How numbers are stored and multiplied.
    Precision {
        /// 32-bit floating point, TF32 off.
        Fp32 = "fp32",
        /// 32-bit storage, TF32 in convolution and matrix products.
        Tf32 = "tf32",
        /// 16-bit floating point; mixed precision in training.
        Fp16 = "fp16",
        /// bfloat16; mixed precision in training.
        Bf16 = "bf16",
        /// 8-bit integers.
        Int8 = "int8",
        /// 8-bit floating point, four bits of exponent and three of fraction (e4m3; Micikevicius et al. 2022), in
        /// products of learned weights; everything else in bfloat16.
        Fp8 = "fp8",
    }
);

impl Precision {
    /// Whether frameworks keep maps with channels last: where tensor cores read them in 16 bits or fewer.
    pub fn channels_last(self) -> bool {
        self.is_narrow()
    }

    /// Whether operands take fewer bytes than in fp32.
    pub fn is_narrow(self) -> bool {
        self.bytes() < Self::Fp32.bytes()
    }

    /// Storage width of a kernel's operands in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Fp32 | Self::Tf32 => 4,
            Self::Fp16 | Self::Bf16 => 2,
            Self::Int8 | Self::Fp8 => 1,
        }
    }

    /// Storage width of a kernel's results in bytes, hence of what layers hand on: products of 8-bit floating point
    /// numbers are stored in 16 bits.
    pub fn result_bytes(self) -> u64 {
        if self == Self::Fp8 { Self::Bf16.bytes() } else { self.bytes() }
    }
}

named_enum!(
    /// A part of a step that runs as kernels of its own.
    Phase {
        /// From inputs to outputs.
        Forward = "forward",
        /// Gradient with respect to the inputs.
        BackwardData = "backward_data",
        /// Gradient with respect to the parameters.
        BackwardWeights = "backward_weights",
        /// The optimizer's step over the parameters.
        Update = "update",
    }
);

named_enum!(
    /// What one step does.
    Mode {
        /// Forward only, with frozen statistics.
        Inference = "inference",
        /// Forward, backward and update.
        Training = "training",
    }
);

impl Mode {
    /// The phases a step of this mode consists of.
    pub fn phases(self) -> &'static [Phase] {
        match self {
            Self::Inference => &[Phase::Forward],
            Self::Training => Phase::ALL,
        }
    }
}
