//! Which model predicts a kernel: the only place that knows the names of models.

use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::Shape;
use crate::base::text::{closest, shown};
use crate::kernel::setting::Algorithm;
use crate::net::layer::{Attention, Conv2d, Kind, Layer, PoolOp, SharedModel};
use std::fmt;
use std::str::FromStr;

/// Convolutions over maps by the kernels that they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvClass {
    /// Everything that is in no other class, and those of `Plain1x1` and `Plain3x3` where these have too few rows.
    General,
    /// 1x1 with stride 1, neither dilated nor grouped: plain matrix products.
    Plain1x1,
    /// 3x3 with stride 1, neither dilated nor grouped: what Winograd's algorithm can do.
    Plain3x3,
    /// Other windows over the few channels of an image, to more: tensor cores want more of them, and libraries have kernels of
    /// their own, others in each precision.
    Image,
    /// Groups as wide in as out, by a power of two: libraries have kernels for these.
    Grouped,
    /// All other groups of more than one input channel, ten times as slow per operation in 16 bits.
    GroupedOdd,
    /// One input channel per group, one result of each.
    Depthwise,
    /// The same with a window or stride that cuDNN's depthwise kernels cannot do: a tenth of their rate in 16 bits.
    DepthwiseWide,
    /// One input channel per group and several results of each, which cuDNN's depthwise kernels cannot do: up to 100 times
    /// as long in 16 bits.
    DepthwiseMultiplier,
}

/// Images have red, green, blue, and perhaps a fourth.
const CHANNELS_OF_IMAGES: u64 = 4;

impl ConvClass {
    const ALL: [Self; 9] = [
        Self::General,
        Self::Plain1x1,
        Self::Plain3x3,
        Self::Image,
        Self::Grouped,
        Self::GroupedOdd,
        Self::Depthwise,
        Self::DepthwiseWide,
        Self::DepthwiseMultiplier,
    ];

    /// The class of a convolution that reads so many channels.
    pub fn of(conv: &Conv2d, channels: u64) -> Self {
        let groups = conv.groups(channels).max(1);
        let plain = conv.stride.is(1) && conv.dilation.is(1) && groups == 1;
        match groups {
            1 if plain && conv.kernel.is(1) => Self::Plain1x1,
            1 if plain && conv.kernel.is(3) => Self::Plain3x3,
            1 if channels <= CHANNELS_OF_IMAGES && conv.channels > channels => Self::Image,
            1 => Self::General,
            _ if groups == channels && conv.channels == channels => {
                let usual = [1, 3, 5, 7].iter().any(|&side| conv.kernel.is(side)) && conv.stride.area() <= 4;
                if usual { Self::Depthwise } else { Self::DepthwiseWide }
            }
            _ if groups == channels => Self::DepthwiseMultiplier,
            _ if channels == conv.channels && (channels / groups).is_power_of_two() => Self::Grouped,
            _ => Self::GroupedOdd,
        }
    }
}

/// The name of a model: whose times it predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelKey {
    /// A layer kind's, by its name; convolutions over maps are [`ModelKey::Conv`].
    Kind(&'static str),
    /// A class of convolutions over maps, by whatever algorithm the library chooses.
    Conv(ConvClass),
    /// Convolutions by an algorithm that was asked for; never the library's choice.
    By(Algorithm),
    /// How far convolutions of a class are from the linear layers' model taken for them.
    ByProduct(ConvClass),
    /// Attention against a cache, which reading that bounds.
    AttentionDecode,
    /// Attention that adds a bias to its scores.
    AttentionBiased,
    /// Forward attention with a bias whose gradient will be wanted or that has no dimension of samples, for which PyTorch 2.11 has
    /// other kernels in 16 bits.
    AttentionBiasLearned,
    /// Attention that keeps its scores in memory.
    AttentionUnfused,
    /// Linear layers whose bias a framework has added within the product, where that is another kernel than the library's
    /// choice without.
    LinearBiased,
    /// Optimizer updates, whatever the layer.
    Update,
    /// Element-wise rows together: the bandwidth model of kinds without rows.
    Stream,
    /// Kinds that read and write each value once, where they have few rows.
    Pointwise,
    /// Kinds that move values to other places, where they have few rows.
    Copies,
}

impl ModelKey {
    /// The model of a layer's phase: its kind, except that convolutions fall into classes which run different kernels.
    /// Attention against a cache, with a bias, and that which keeps its scores in memory are other kernels than fused attention
    /// of many tokens.
    pub fn of(layer: &Layer, inputs: &[Shape], phase: Phase, mode: Mode, precision: Precision) -> Self {
        match layer {
            _ if phase == Phase::Update => Self::Update,
            Layer::Conv2d(conv) => Self::Conv(ConvClass::of(conv, inputs.first().map_or(1, Shape::axis))),
            Layer::Attention(attention) if attention.decodes() => Self::AttentionDecode,
            Layer::Attention(attention) if !attention.fused => Self::AttentionUnfused,
            Layer::Attention(Attention { bias: Some(bias), .. }) => {
                let wants_gradient = mode == Mode::Training && bias.parameters > 0;
                let unbatched = bias.unbatched && precision.is_narrow();
                let apart = phase == Phase::Forward && (wants_gradient || unbatched);
                if apart { Self::AttentionBiasLearned } else { Self::AttentionBiased }
            }
            // Runners and frameworks take the mean of a whole map by kernels of its own, whatever it is called.
            Layer::AdaptivePool2d(pool) if pool.is_global() => Self::Kind(match pool.op {
                PoolOp::Avg => "global_avg_pool2d",
                PoolOp::Max => "global_max_pool2d",
            }),
            _ => Self::Kind(layer.kind()),
        }
    }

    /// Convolutions by an algorithm; `None` for the library's choice.
    pub fn by(algorithm: Algorithm) -> Option<Self> {
        (algorithm != Algorithm::Heuristic).then_some(Self::By(algorithm))
    }

    /// The model that a kind shares with others where it has few rows.
    pub fn shared(self) -> Option<Self> {
        let Self::Kind(kind) = self else { return None };
        match Kind::named(kind)?.shares {
            SharedModel::Own => None,
            SharedModel::Pointwise => Some(Self::Pointwise),
            SharedModel::Copies => Some(Self::Copies),
        }
    }

    /// Whether its kernels forward read and write each value of a map once, side by side: activations, batch norm.
    pub fn goes_over_maps_once(self) -> bool {
        match self {
            Self::Kind("concat") => false,
            Self::Kind("batch_norm") => true,
            _ => self.shared() == Some(Self::Pointwise),
        }
    }

    /// The model that a class of convolutions, or of attention, shares where it has too few rows for one of its own.
    pub fn general(self) -> Option<Self> {
        match self {
            Self::Conv(ConvClass::Plain1x1 | ConvClass::Plain3x3 | ConvClass::Image) => {
                Some(Self::Conv(ConvClass::General))
            }
            Self::Conv(ConvClass::DepthwiseWide | ConvClass::DepthwiseMultiplier) => {
                Some(Self::Conv(ConvClass::Depthwise))
            }
            Self::AttentionBiased | Self::AttentionBiasLearned => Some(Self::Kind("attention")),
            _ => None,
        }
    }

    /// Whether a framework alone has such kernels: rows of the library are of its kind's own model.
    pub fn is_frameworks(self) -> bool {
        self == Self::LinearBiased
    }

    /// How its convolutions compare with matrix products; `None` of what is no convolution.
    pub fn by_product(self) -> Option<Self> {
        if let Self::Conv(class) = self { Some(Self::ByProduct(class)) } else { None }
    }

    /// Whether it is of convolutions by an algorithm that was asked for.
    pub fn is_asked_for(self) -> bool {
        matches!(self, Self::By(_))
    }

    /// Whether its kernels run in groups, which are no matrix products.
    pub fn in_groups(self) -> bool {
        use ConvClass::{Depthwise, DepthwiseMultiplier, DepthwiseWide, Grouped, GroupedOdd};
        matches!(self, Self::Conv(Grouped | GroupedOdd | Depthwise | DepthwiseWide | DepthwiseMultiplier))
    }

    /// Whether one chip alone was measured with such kernels, and its library runs them in ways of its own: what it takes says
    /// little of another chip.
    pub fn is_of_one_chip(self) -> bool {
        matches!(self, Self::Conv(ConvClass::DepthwiseWide | ConvClass::DepthwiseMultiplier))
    }

    /// Whether its products are batched: attention's are, over samples and heads.
    pub fn is_attention(self) -> bool {
        use ModelKey::{AttentionBiasLearned, AttentionBiased, AttentionDecode, AttentionUnfused};
        matches!(
            self,
            Self::Kind("attention" | "latent_attention")
                | AttentionDecode
                | AttentionBiased
                | AttentionBiasLearned
                | AttentionUnfused
        )
    }

    /// As calibration files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kind(kind) => kind,
            Self::Conv(ConvClass::General) => "conv2d",
            Self::Conv(ConvClass::Plain1x1) => "conv2d_1x1",
            Self::Conv(ConvClass::Plain3x3) => "conv2d_3x3",
            Self::Conv(ConvClass::Image) => "conv2d_image",
            Self::Conv(ConvClass::Grouped) => "conv2d_grouped",
            Self::Conv(ConvClass::GroupedOdd) => "conv2d_grouped_odd",
            Self::Conv(ConvClass::Depthwise) => "conv2d_depthwise",
            Self::Conv(ConvClass::DepthwiseWide) => "conv2d_depthwise_wide",
            Self::Conv(ConvClass::DepthwiseMultiplier) => "conv2d_depthwise_multiplier",
            Self::By(Algorithm::Heuristic) => "conv2d_by_heuristic",
            Self::By(Algorithm::Gemm) => "conv2d_by_gemm",
            Self::By(Algorithm::ImplicitGemm) => "conv2d_by_implicit_gemm",
            Self::By(Algorithm::ImplicitPrecompGemm) => "conv2d_by_implicit_precomp_gemm",
            Self::By(Algorithm::Fft) => "conv2d_by_fft",
            Self::By(Algorithm::FftTiling) => "conv2d_by_fft_tiling",
            Self::By(Algorithm::Winograd) => "conv2d_by_winograd",
            Self::By(Algorithm::WinogradNonfused) => "conv2d_by_winograd_nonfused",
            Self::ByProduct(ConvClass::General) => "conv2d_by_product",
            Self::ByProduct(ConvClass::Plain1x1) => "conv2d_1x1_by_product",
            Self::ByProduct(ConvClass::Plain3x3) => "conv2d_3x3_by_product",
            Self::ByProduct(ConvClass::Image) => "conv2d_image_by_product",
            Self::ByProduct(ConvClass::Grouped) => "conv2d_grouped_by_product",
            Self::ByProduct(ConvClass::GroupedOdd) => "conv2d_grouped_odd_by_product",
            Self::ByProduct(ConvClass::Depthwise) => "conv2d_depthwise_by_product",
            Self::ByProduct(ConvClass::DepthwiseWide) => "conv2d_depthwise_wide_by_product",
            Self::ByProduct(ConvClass::DepthwiseMultiplier) => "conv2d_depthwise_multiplier_by_product",
            Self::AttentionDecode => "attention_decode",
            Self::AttentionBiased => "attention_biased",
            Self::AttentionBiasLearned => "attention_bias_learned",
            Self::AttentionUnfused => "attention_unfused",
            Self::LinearBiased => "linear_biased",
            Self::Update => "update",
            Self::Stream => "stream",
            Self::Pointwise => "pointwise",
            Self::Copies => "copies",
        }
    }

    /// All there are.
    fn all() -> impl Iterator<Item = Self> {
        let kinds = Layer::KINDS.iter().filter(|kind| **kind != "conv2d").copied().map(Self::Kind);
        let classes = ConvClass::ALL.into_iter().flat_map(|class| [Self::Conv(class), Self::ByProduct(class)]);
        let others = [
            Self::AttentionDecode,
            Self::AttentionBiased,
            Self::AttentionBiasLearned,
            Self::AttentionUnfused,
            Self::LinearBiased,
            Self::Update,
            Self::Stream,
            Self::Pointwise,
            Self::Copies,
        ];
        kinds.chain(classes).chain(Algorithm::ALL.iter().copied().filter_map(Self::by)).chain(others)
    }
}

impl fmt::Display for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no model has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no model is of kind \"{name}\"{hint}")]
pub struct UnknownKey {
    name: String,
    hint: String,
}

impl FromStr for ModelKey {
    type Err = UnknownKey;

    fn from_str(name: &str) -> Result<Self, UnknownKey> {
        Self::all()
            .find(|key| key.name() == name)
            .ok_or_else(|| UnknownKey { name: shown(name), hint: closest(name, Self::all().map(Self::name)) })
    }
}

/// In the order of their names, in which files list models.
impl Ord for ModelKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.name().cmp(other.name())
    }
}

impl PartialOrd for ModelKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_read_back_and_is_unique() {
        let mut names = BTreeSet::new();
        for key in ModelKey::all() {
            assert_eq!(key.to_string().parse(), Ok(key));
            assert!(names.insert(key.name()), "{key} twice");
        }
        assert!(names.contains("conv2d") && names.contains("linear") && !names.contains("conv2d_by_heuristic"));
        let error = "matmull".parse::<ModelKey>().expect_err("no such kind").to_string();
        assert_eq!(error, "no model is of kind \"matmull\"; did you mean \"matmul\"?");
    }

    #[test]
    fn a_window_over_the_whole_map_is_global() {
        for (kind, fields, expected) in [
            ("adaptive_avg_pool2d", "output = 1", "global_avg_pool2d"),
            ("adaptive_max_pool2d", "output = 1", "global_max_pool2d"),
            ("adaptive_avg_pool2d", "output = [1, 2]", "adaptive_avg_pool2d"),
        ] {
            let layer = Layer::from_table(kind, fields.parse().expect("fields")).expect("a kind").expect("a layer");
            let key = ModelKey::of(
                &layer,
                &[Shape::map(8, 14, 14).expect("a shape")],
                Phase::Forward,
                Mode::Inference,
                Precision::Fp32,
            );
            assert_eq!(key.name(), expected, "{fields}");
        }
    }

    /// Which kernels classes stand for, at every edge of a class.
    #[test]
    fn classes_of_convolutions() {
        let class = |fields: &str, channels: u64| {
            let layer = Layer::from_table("conv2d", fields.parse().expect("fields")).expect("a kind").expect("a layer");
            ModelKey::of(
                &layer,
                &[Shape::new(&[channels, 14, 14]).expect("a shape")],
                Phase::Forward,
                Mode::Inference,
                Precision::Fp32,
            )
        };
        for (fields, channels, expected) in [
            ("channels = 8\nkernel = 1", 32, "conv2d_1x1"),
            ("channels = 8\nkernel = 1\nstride = 2", 32, "conv2d"),
            ("channels = 8\nkernel = 3", 32, "conv2d_3x3"),
            ("channels = 8\nkernel = 3\nstride = 2", 32, "conv2d"),
            ("channels = 8\nkernel = 3\ndilation = 2", 32, "conv2d"),
            ("channels = 8\nkernel = 5", 32, "conv2d"),
            ("channels = 32\nkernel = 3\ngroups = 2", 32, "conv2d_grouped"),
            ("channels = 64\nkernel = 3\ngroups = 2", 32, "conv2d_grouped_odd"),
            ("channels = 24\nkernel = 3\ngroups = 2", 24, "conv2d_grouped_odd"),
            ("channels = 32\nkernel = 3\ngroups = 32", 32, "conv2d_depthwise"),
            ("channels = 32\nkernel = 3\ngroups = \"depthwise\"", 32, "conv2d_depthwise"),
            ("channels = 32\nkernel = 7\nstride = 2\ngroups = 32", 32, "conv2d_depthwise"),
            ("channels = 32\nkernel = 9\ngroups = 32", 32, "conv2d_depthwise_wide"),
            ("channels = 32\nkernel = [1, 7]\ngroups = 32", 32, "conv2d_depthwise_wide"),
            ("channels = 32\nkernel = 7\nstride = 4\ngroups = 32", 32, "conv2d_depthwise_wide"),
            ("channels = 64\nkernel = 9\ngroups = \"depthwise\"", 32, "conv2d_depthwise_multiplier"),
            ("channels = 64\nkernel = 3\ngroups = \"depthwise\"", 32, "conv2d_depthwise_multiplier"),
            ("channels = 32\nkernel = 3\ngroups = \"depthwise\"", 1, "conv2d_3x3"),
            ("channels = 64\nkernel = 3", 3, "conv2d_3x3"),
            ("channels = 64\nkernel = 3\nstride = 2", 3, "conv2d_image"),
            ("channels = 5\nkernel = 7\nstride = 2", 4, "conv2d_image"),
            ("channels = 4\nkernel = 3", 4, "conv2d_3x3"),
            ("channels = 1\nkernel = 1", 1, "conv2d_1x1"),
            ("channels = 64\nkernel = 7\nstride = 2", 5, "conv2d"),
        ] {
            assert_eq!(class(fields, channels).name(), expected, "{fields}, {channels}");
        }
        let general = |name: &str| name.parse::<ModelKey>().expect("a model").general().map(ModelKey::name);
        assert_eq!(general("conv2d_3x3"), Some("conv2d"));
        assert_eq!(general("conv2d_1x1"), Some("conv2d"));
        assert_eq!(general("conv2d_image"), Some("conv2d"));
        assert_eq!(general("conv2d_depthwise_multiplier"), Some("conv2d_depthwise"));
        assert_eq!(general("conv2d_depthwise_wide"), Some("conv2d_depthwise"));
        assert_eq!(general("conv2d_grouped"), None);
    }

    #[test]
    fn a_learned_bias_runs_another_kernel_forward_in_training() {
        let key_in = |precision, bias: &str, phase, mode| {
            let fields = format!("heads = 4\n{bias}").parse().expect("fields");
            let layer = Layer::from_table("attention", fields).expect("a kind").expect("valid");
            ModelKey::of(&layer, &[Shape::new(&[8, 96]).expect("a shape")], phase, mode, precision).name()
        };
        let key = |bias: &str, phase, mode| key_in(Precision::Bf16, bias, phase, mode);
        let (learned, given) = ("bias = { heads = 4, parameters = 60 }", "bias = { heads = 4 }");
        let (forward, backward) = (Phase::Forward, Phase::BackwardData);
        assert_eq!(key(learned, forward, Mode::Training), "attention_bias_learned");
        assert_eq!(key(learned, forward, Mode::Inference), "attention_biased");
        assert_eq!(key(learned, backward, Mode::Training), "attention_biased");
        assert_eq!(key(given, forward, Mode::Training), "attention_biased");
        let unbatched = "bias = { heads = 4, unbatched = true }";
        assert_eq!(key(unbatched, forward, Mode::Inference), "attention_bias_learned");
        assert_eq!(key(unbatched, backward, Mode::Training), "attention_biased");
        assert_eq!(key_in(Precision::Tf32, unbatched, forward, Mode::Inference), "attention_biased");
        assert_eq!(key("", forward, Mode::Training), "attention");
        for name in ["attention_biased", "attention_bias_learned"] {
            let key: ModelKey = name.parse().expect("a model");
            assert!(key.is_attention());
            assert_eq!(key.general(), Some(ModelKey::Kind("attention")));
        }
    }
}
