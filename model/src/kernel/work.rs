//! What one kernel does, and in which way: the one description that trials, measured rows and predictions share.

use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::Shape;
use crate::base::units::Bytes;
use crate::kernel::family::Family;
use crate::kernel::key::ModelKey;
use crate::kernel::setting::{Algorithm, Cache, Layout};
use crate::net::case::{AnyCase, LayerCase};
use crate::net::cost::{LayerCost, Site};
use crate::net::layer::{Layer, LayerOp, Optimizer, ShapeError, update_cost};
use crate::net::network::ShapedLayer;
use serde::{Deserialize, Serialize};

/// A layer at its shapes, in a phase, over a batch, in a precision, run in one way. Built valid by [`Work::usual`] and
/// [`Work::of`]; what follows from the shapes is never stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Work<'a> {
    /// The layer with its input shapes, without the batch.
    pub case: AnyCase<'a>,
    /// Output shape, without the batch.
    pub output: Shape,
    /// Which kernel of the layer: forward, gradient of the data, gradient of the weights, or update.
    pub phase: Phase,
    /// Samples per execution.
    pub batch: u64,
    /// Format of operands in memory and of the arithmetic.
    pub precision: Precision,
    /// Inference or training: batch norm and dropout differ in the forward phase.
    pub mode: Mode,
    /// Order of the dimensions of maps in memory: NCHW or NHWC.
    pub layout: Layout,
    /// Whether operands may lie in the second-level cache.
    pub cache: Cache,
    /// What computes a convolution: the library's choice, or one that was asked for.
    pub algorithm: Algorithm,
    /// What updates the parameters; of the update phase alone.
    pub optimizer: Option<Optimizer>,
}

/// Work of no network, as plans, journals and datasets hold it.
pub type Trial = Work<'static>;

impl<'a> Work<'a> {
    /// As frameworks run the layer: usual layout, the library's choice of algorithm, backward from memory.
    ///
    /// # Errors
    /// When the layer does not take its inputs.
    pub fn usual(
        case: impl Into<AnyCase<'a>>,
        phase: Phase,
        batch: u64,
        precision: Precision,
        mode: Mode,
    ) -> Result<Self, ShapeError> {
        let case = case.into();
        let output = case.output()?;
        Ok(Self::checked(case, output, phase, batch, precision, mode))
    }

    /// A layer of a network, as frameworks run it.
    pub fn of(layer: &'a ShapedLayer, phase: Phase, batch: u64, precision: Precision, mode: Mode) -> Self {
        Self::checked(AnyCase::Lent(&layer.case), layer.output, phase, batch, precision, mode)
    }

    fn checked(case: AnyCase<'a>, output: Shape, phase: Phase, batch: u64, precision: Precision, mode: Mode) -> Self {
        Self {
            case,
            output,
            phase,
            batch,
            precision,
            mode,
            layout: Layout::usual(precision),
            cache: Cache::usual(mode),
            algorithm: Algorithm::Heuristic,
            optimizer: (phase == Phase::Update).then_some(Optimizer::Momentum),
        }
    }

    /// The same, of no network.
    pub fn into_owned(self) -> Trial {
        Work { case: self.case.into_owned().into(), ..self }
    }

    /// The layer.
    pub fn layer(&self) -> &Layer {
        &self.case.layer
    }

    /// Its input shapes, without the batch.
    pub fn inputs(&self) -> &[Shape] {
        &self.case.inputs
    }

    /// The first of them; the output's where it reads nothing.
    pub fn input(&self) -> Shape {
        self.case.inputs.first().copied().unwrap_or(self.output)
    }

    /// Operations and traffic; `None` where no kernel runs. The algorithm of an update is its optimizer.
    ///
    /// # Errors
    /// When the layer does not take its inputs.
    pub fn cost(&self) -> Result<Option<LayerCost>, ShapeError> {
        match (self.phase, self.optimizer) {
            (Phase::Update, Some(optimizer)) => Ok(update_cost(self.case.parameters(), optimizer)),
            _ => {
                let Self { batch, output, precision, mode, .. } = *self;
                Ok(self
                    .case
                    .layer
                    .cost(self.phase, &Site { batch, inputs: &self.case.inputs, output, precision, mode }))
            }
        }
    }

    /// Memory of one set of operands, without workspace: everything read and written at least once.
    ///
    /// # Errors
    /// When the layer does not take its inputs.
    pub fn footprint(&self) -> Result<Bytes, ShapeError> {
        Ok(self.cost()?.map_or(Bytes::ZERO, |c| c.bytes()))
    }

    /// Which variables its kernels have.
    pub fn family(&self) -> Family {
        Family::of(&self.case.layer, self.phase)
    }

    /// Which model predicts its kernels, whatever algorithm was asked for. Of work as it runs ([`Work::as_run`]).
    pub fn key(&self) -> ModelKey {
        ModelKey::of(&self.case.layer, &self.case.inputs, self.phase, self.mode, self.precision)
    }
}

/// As plans and journals write it: the output shape follows from the rest.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Trial")]
struct Written {
    case: LayerCase,
    phase: Phase,
    batch: u64,
    precision: Precision,
    mode: Mode,
    layout: Layout,
    cache: Cache,
    algorithm: Algorithm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    optimizer: Option<Optimizer>,
}

impl TryFrom<Written> for Work<'_> {
    type Error = ShapeError;

    fn try_from(w: Written) -> Result<Self, ShapeError> {
        let Written { case, phase, batch, precision, mode, layout, cache, algorithm, optimizer } = w;
        Ok(Self { layout, cache, algorithm, optimizer, ..Self::usual(case, phase, batch, precision, mode)? })
    }
}

impl From<Work<'_>> for Written {
    fn from(w: Work<'_>) -> Self {
        Self {
            case: w.case.into_owned(),
            phase: w.phase,
            batch: w.batch,
            precision: w.precision,
            mode: w.mode,
            layout: w.layout,
            cache: w.cache,
            algorithm: w.algorithm,
            optimizer: w.optimizer,
        }
    }
}
