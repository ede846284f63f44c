//! Measured layers: the rows that calibrations are fitted to, whoever measured them.

use crate::base::precision::{Mode, Phase, Precision, named_enum};
use crate::kernel::setting::{Algorithm, Cache, Layout};
use crate::kernel::work::Work;
use crate::net::case::LayerCase;
use crate::net::layer::{Optimizer, ShapeError};
use serde::{Deserialize, Serialize};

named_enum!(
    /// Under which regime a row was measured.
    Regime {
        /// The first tens of milliseconds, at full clock.
        Burst = "burst",
        /// After clock and power are steady.
        Sustained = "sustained",
        /// As somebody else published it.
        Import = "import",
    }
);

named_enum!(
    /// Order of a measured layer's operands in memory: a map's dimensions, or which matrices of a product are transposed.
    Order {
        /// Batch, channels, height, width.
        Nchw = "nchw",
        /// Channels last.
        Nhwc = "nhwc",
        /// A product of two matrices as they are.
        Nn = "nn",
        /// The second one transposed.
        Nt = "nt",
        /// The first one transposed.
        Tn = "tn",
        /// Both transposed.
        Tt = "tt",
    }
);

impl Order {
    /// That of maps; `None` of a product.
    pub fn of_maps(self) -> Option<Layout> {
        match self {
            Self::Nchw => Some(Layout::Nchw),
            Self::Nhwc => Some(Layout::Nhwc),
            Self::Nn | Self::Nt | Self::Tn | Self::Tt => None,
        }
    }
}

impl From<Layout> for Order {
    fn from(layout: Layout) -> Self {
        match layout {
            Layout::Nchw => Self::Nchw,
            Layout::Nhwc => Self::Nhwc,
        }
    }
}

/// One row of a dataset, `measurement/1`. Text that is unknown is `None`, never empty; numbers that
/// were not measured are `None`, never zero. Units stand in the names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// Unique: source and position in it.
    pub row_id: String,
    /// Level and hash of the recipe whose plan the trial belongs to; `None` of imported rows.
    pub plan_id: Option<String>,
    /// What was tried: equal for repeats.
    pub trial_id: String,
    /// Repeat number, from 0.
    pub repeat: u32,
    /// Name of the measuring campaign, or of the import.
    pub campaign: String,
    /// The board's UUID, as the driver gives it.
    pub board_uuid: Option<String>,
    /// Name in `data/gpus`.
    pub gpu: String,
    /// pcie, sxm2 ...
    pub form_factor: Option<String>,
    /// Version of the NVIDIA driver, such as `570.86.15`.
    pub driver: Option<String>,
    /// Version of CUDA, such as `12.8`.
    pub cuda: Option<String>,
    /// cuDNN version, as `8.9.2`.
    pub cudnn: Option<String>,
    /// Version of cuBLAS, as `12.8.4`.
    pub cublas: Option<String>,
    /// Key in `data/published/sources.toml`, or `own`.
    pub source: String,
    /// Licence under which the source published the row, as its SPDX name or in words.
    pub licence: Option<String>,
    /// The layer with its input shapes, without the batch.
    pub case: LayerCase,
    /// Which kernel of the layer: forward, gradient of the data, gradient of the weights, or update.
    pub phase: Phase,
    /// Samples per execution.
    pub batch: u64,
    /// Format of the operands in memory, and of the arithmetic but for `math`.
    pub precision: Precision,
    /// Where the forward phase differs between the two (batch norm, dropout).
    pub mode: Option<Mode>,
    /// Math mode where it differs from the precision's usual one.
    pub math: Option<String>,
    /// How its operands lie.
    pub layout: Option<Order>,
    /// What updated the parameters, in the update phase.
    #[serde(default)]
    pub optimizer: Option<Optimizer>,
    /// The algorithm of a convolution that was asked for.
    #[serde(default)]
    pub algorithm: Option<Algorithm>,
    /// What ran, in the library's words or those of who published it: `eng0`, `IMPLICIT_PRECOMP_GEMM`.
    pub algo: Option<String>,
    /// Device memory that the algorithm uses besides operands and results.
    pub workspace_bytes: Option<u64>,
    /// Whether its operands lay in the second-level cache or in memory.
    pub cache: Option<Cache>,
    /// Whether the time is of a burst, of a steady state, or imported.
    pub regime: Regime,
    /// How the time was taken: `event_single` (one call between events, host synchronized), `loop`
    /// (many calls back to back), `graph`.
    pub method: String,
    /// Number of timings behind the value.
    pub n: Option<u64>,
    /// Time of one execution, taken as `method` says.
    pub time_s: f64,
    /// 10 % quantile of the timings.
    pub time_p10_s: Option<f64>,
    /// 90 % quantile of the timings.
    pub time_p90_s: Option<f64>,
    /// Mean power of the board over the energy window.
    pub power_w: Option<f64>,
    /// Energy of one execution: `power_w` times its time in the window.
    pub energy_j: Option<f64>,
    /// Length of the window over which power is a mean.
    pub window_s: Option<f64>,
    /// How the energy was read: `counter_ticks` or `power_integral`.
    pub energy_method: Option<String>,
    /// Mean of the instantaneous power over the same window: the cross-check.
    pub power_integral_w: Option<f64>,
    /// The power limit that the driver enforced.
    pub power_limit_w: Option<f64>,
    /// Core clock that was asked for, where one was.
    pub core_mhz_requested: Option<f64>,
    /// Mean core clock while kernels ran.
    pub core_mhz_mean: Option<f64>,
    /// Lowest core clock seen.
    pub core_mhz_min: Option<f64>,
    /// Memory clock while kernels ran.
    pub mem_mhz: Option<f64>,
    /// Temperature of the chip before the first kernel.
    pub temp_start_c: Option<f64>,
    /// Temperature of the chip after the last kernel.
    pub temp_end_c: Option<f64>,
    /// Why the driver held the clock back, in the names of NVML, one after the other.
    pub reasons: Option<String>,
    /// How long the driver held the clock back.
    pub throttle_s: Option<f64>,
    /// What the host took to launch one execution.
    pub host_s: Option<f64>,
    /// Reasons to leave the row out of fits; none: usable.
    pub flags: Vec<String>,
}

impl Measurement {
    /// A row as an importer begins it: everything optional unknown, no flags.
    pub fn imported(
        source: &str,
        row: &str,
        gpu: &str,
        case: LayerCase,
        phase: Phase,
        batch: u64,
        time_s: f64,
    ) -> Self {
        Self {
            row_id: format!("{source}:{row}"),
            plan_id: None,
            trial_id: format!("{source}:{row}"),
            repeat: 0,
            campaign: format!("import-{source}"),
            board_uuid: None,
            gpu: gpu.to_string(),
            form_factor: None,
            driver: None,
            cuda: None,
            cudnn: None,
            cublas: None,
            source: source.to_string(),
            licence: None,
            case,
            phase,
            batch,
            precision: Precision::Fp32,
            mode: None,
            math: None,
            layout: None,
            optimizer: None,
            algorithm: None,
            algo: None,
            workspace_bytes: None,
            cache: None,
            regime: Regime::Import,
            method: "event_single".to_string(),
            n: None,
            time_s,
            time_p10_s: None,
            time_p90_s: None,
            power_w: None,
            energy_j: None,
            window_s: None,
            energy_method: None,
            power_integral_w: None,
            power_limit_w: None,
            core_mhz_requested: None,
            core_mhz_mean: None,
            core_mhz_min: None,
            mem_mhz: None,
            temp_start_c: None,
            temp_end_c: None,
            reasons: None,
            throttle_s: None,
            host_s: None,
            flags: Vec::new(),
        }
    }

    /// What ran, as far as the row says. A forward row that does not say is inference; others measured one buffer over
    /// and over, in the order of dimensions that frameworks use. What they name as algorithm is what their benchmark
    /// chose, not what it was asked for.
    ///
    /// # Errors
    /// When the layer does not take these inputs.
    pub fn work(&self) -> Result<Work<'_>, ShapeError> {
        let unsaid = if self.phase == Phase::Forward { Mode::Inference } else { Mode::Training };
        let mode = self.mode.unwrap_or(unsaid);
        let usual = Work::usual(&self.case, self.phase, self.batch, self.precision, mode)?;
        Ok(Work {
            layout: self.layout.and_then(Order::of_maps).unwrap_or(usual.layout),
            cache: self.cache.unwrap_or(Cache::Hot),
            algorithm: self.algorithm.unwrap_or(Algorithm::Heuristic),
            optimizer: self.optimizer,
            ..usual
        })
    }

    /// Once `algo` named optimizers and algorithms that were asked for, too: what it means stands where it belongs.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        let optimizer = self.algo.as_deref().and_then(Optimizer::from_name).filter(|_| self.phase == Phase::Update);
        let named = self.algo.as_deref().and_then(Algorithm::from_name).filter(|a| *a != Algorithm::Heuristic);
        let asked = named.filter(|_| self.regime != Regime::Import && optimizer.is_none());
        if optimizer.is_some() || asked.is_some() {
            (self.optimizer, self.algorithm, self.algo) = (optimizer, asked, None);
        }
        self
    }

    /// Whether fits may use it.
    pub fn usable(&self) -> bool {
        self.flags.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::shape::Shape;
    use crate::net::layer::{Layer, Linear};

    /// A row in whose column `algo` stood a name.
    fn row(regime: Regime, phase: Phase, algo: &str) -> Measurement {
        let inputs = vec![Shape::new(&[8]).expect("a shape")];
        let case = LayerCase { inputs, layer: Layer::Linear(Linear { features: 4, bias: false }) };
        let row = Measurement::imported("test", "1", "h200", case, phase, 2, 1e-3);
        Measurement { regime, algo: Some(algo.into()), ..row }.sorted()
    }

    #[test]
    fn what_an_algorithm_means_depends_on_who_measured_what() {
        let asked = row(Regime::Burst, Phase::Forward, "fft_tiling");
        assert_eq!((asked.algorithm, asked.optimizer, &asked.algo), (Some(Algorithm::FftTiling), None, &None));
        assert_eq!(asked.work().map(|w| w.algorithm), Ok(Algorithm::FftTiling));
        let chosen = row(Regime::Import, Phase::Forward, "fft_tiling");
        assert_eq!((chosen.algorithm, chosen.algo.as_deref()), (None, Some("fft_tiling")));
        assert_eq!(chosen.work().map(|w| w.algorithm), Ok(Algorithm::Heuristic));
        let update = row(Regime::Burst, Phase::Update, "adam");
        assert_eq!((update.optimizer, &update.algo), (Some(Optimizer::Adam), &None));
        assert_eq!(update.work().map(|w| w.optimizer), Ok(Some(Optimizer::Adam)));
        let engine = row(Regime::Burst, Phase::Forward, "eng12_k2");
        assert_eq!((engine.algorithm, engine.algo.as_deref()), (None, Some("eng12_k2")));
        let again = update.clone().sorted();
        assert_eq!(again, update, "sorted once is sorted");
    }

    #[test]
    fn what_a_row_does_not_say_is_as_others_measure() {
        let row = |phase| row(Regime::Import, phase, "x");
        let (forward, backward) = (row(Phase::Forward), row(Phase::BackwardData));
        let (forward, backward) = (forward.work().expect("fits"), backward.work().expect("fits"));
        assert_eq!((forward.mode, forward.cache, forward.layout), (Mode::Inference, Cache::Hot, Layout::Nchw));
        assert_eq!((backward.mode, backward.cache), (Mode::Training, Cache::Hot));
        let product = Measurement { layout: Some(Order::Tn), ..row(Phase::Forward) };
        assert_eq!(product.work().map(|w| w.layout), Ok(Layout::Nchw));
    }
}
