//! `predict --generate`: a language model's answer, the prompt's step and those of every token.

use crate::cli::PredictArgs;
use crate::commands::{Failure, Parts, check_fit, refused};
use crate::parallel::Batch;
use anyhow::anyhow;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::net::network::Network;
use joulecast_model::step::generation::{self, Generation, GenerationError};
use joulecast_model::step::predictor::{OperatingPoint, Setup};
use joulecast_reports::prediction::Shown;

/// What a language model's answer is predicted from: one GPU.
pub fn parts(args: &PredictArgs) -> Result<Parts, Failure> {
    match (&args.gpu, &args.parallel.gpus) {
        (Some(gpu), None) => Parts::read(args, gpu, args.network.name()),
        _ => Err(Failure::Usage(anyhow!("--generate is predicted on one GPU: --gpu NAME, without --gpus"))),
    }
}

/// An answer of so many tokens per sample to a prompt of the network's sequence.
pub fn answer(
    network: &Network,
    tokens: u64,
    size: (u64, Precision),
    setup: &Setup<'_>,
    point: OperatingPoint,
) -> Result<Generation, Failure> {
    let prompt = network.inputs.first().map_or(1, |input| input.shape.dims()[0]);
    generation::predict(network, (prompt, tokens), size, setup, point).map_err(|e| match e {
        GenerationError::Predict(e) => refused(e),
        GenerationError::Shape(_) => Failure::Failed(e.into()),
        _ => Failure::Usage(e.into()),
    })
}

/// Predicts and prints; the prompt has the tokens of the network's sequence.
pub fn predict(args: &PredictArgs, parts: &Parts, tokens: u64) -> Result<(), Failure> {
    if args.mode == Mode::Training {
        return Err(Failure::Usage(anyhow!("--generate is of inference")));
    }
    if args.input.input_rate.is_some() {
        return Err(Failure::Usage(anyhow!("--input-rate is of steps over samples, not of --generate")));
    }
    let Some(batch) = args.batch.unwrap_or(Batch::Samples(1)).samples() else {
        return Err(Failure::Usage(anyhow!("--generate needs a number as --batch")));
    };
    let size = (batch, args.precision);
    let mut found = answer(&parts.network, tokens, size, &parts.setup(args), args.operating.point())?;
    found.total.warnings.splice(..0, parts.note());
    check_fit(args, &found.total)?;
    let (gpu, asked) = (&parts.gpu, parts.asked(args));
    args.output.export(&Shown { prediction: &found, gpu, asked: &asked, layers: args.layers }, args.format)
}
