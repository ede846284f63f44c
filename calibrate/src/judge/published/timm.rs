//! Whole networks through PyTorch on a GPU that nobody measured layers on: the RTX 3090 of timm's benchmarks (Apache-2.0,
//! huggingface/pytorch-image-models, results/benchmark-*rtx3090*.csv). Truth for predictions that rest on other chips alone.
//!
//! Half of the networks, by a hash of their names, may be looked at to find out why; the other half is for reporting.

use super::{mean_absolute, percent};
use crate::system::hash::sha256_hex;
use crate::system::quiet::quietly;
use anyhow::{Context, Result, bail};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::catalog;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::predict::Predictor;
use joulecast_reports::published::{TIMM, TIMM_MEANS, labelled};
use joulecast_reports::table::Table;
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Their names, and ours where they differ. The same layers under both: batch norm and activation apart, no squeeze that
/// ours lacks.
const NETWORKS: [(&str, &str); 32] = [
    ("convnext_tiny", "convnext_tiny"),
    ("densenet121", "densenet121"),
    ("densenet169", "densenet169"),
    ("densenet201", "densenet201"),
    ("efficientnet_b0", "efficientnet_b0"),
    ("efficientnet_b1", "efficientnet_b1"),
    ("efficientnet_b2", "efficientnet_b2"),
    ("inception_v3", "inception_v3"),
    ("inception_v4", "inception_v4"),
    ("mnasnet_050", "mnasnet0_5"),
    ("mnasnet_100", "mnasnet1_0"),
    ("mobilenetv1_100", "mobilenet_v1"),
    ("mobilenetv2_100", "mobilenet_v2"),
    ("mobilenetv3_large_100", "mobilenet_v3_large"),
    ("mobilenetv3_small_100", "mobilenet_v3_small"),
    ("regnetx_004_tv", "regnet_x_400mf"),
    ("regnetx_008", "regnet_x_800mf"),
    ("resnet101", "resnet101"),
    ("resnet152", "resnet152"),
    ("resnet18", "resnet18"),
    ("resnet34", "resnet34"),
    ("resnet50", "resnet50"),
    ("resnext101_32x8d", "resnext101_32x8d"),
    ("resnext50_32x4d", "resnext50_32x4d"),
    ("swin_tiny_patch4_window7_224", "swin_t"),
    ("vgg11_bn", "vgg11_bn"),
    ("vgg13", "vgg13"),
    ("vgg13_bn", "vgg13_bn"),
    ("vgg16", "vgg16"),
    ("vgg19", "vgg19"),
    ("wide_resnet101_2", "wide_resnet101_2"),
    ("wide_resnet50_2", "wide_resnet50_2"),
];

/// A measured step.
struct Run {
    gpu: String,
    mode: Mode,
    layout: String,
    ours: &'static str,
    size: u64,
    batch: u64,
    time_ms: f64,
}

/// The half that a network's rows belong to.
fn half(ours: &str) -> &'static str {
    if sha256_hex(ours.as_bytes()).as_bytes().first().is_some_and(|digit| *digit < b'8') { "look" } else { "report" }
}

fn runs(frame: &DataFrame) -> Result<Vec<Run>> {
    let text = |name: &str| Ok::<_, anyhow::Error>(frame.column(name)?.str()?.clone());
    let count = |name: &str| Ok::<_, anyhow::Error>(frame.column(name)?.i32()?.clone());
    let (gpu, mode, layout, model, torch) =
        (text("gpu")?, text("mode")?, text("layout")?, text("model")?, text("torch")?);
    let (size, batch, time) = (count("img_size")?, count("batch")?, frame.column("step_time_ms")?.f32()?);
    // The newest version of PyTorch counts.
    let mut newest: BTreeMap<_, (Vec<u64>, Run)> = BTreeMap::new();
    for i in 0..frame.height() {
        let cells = (gpu.get(i), mode.get(i), layout.get(i), model.get(i), torch.get(i));
        let numbers = (size.get(i), batch.get(i), time.get(i));
        let ((Some(gpu), Some(mode), Some(layout), Some(model), Some(torch)), (Some(size), Some(batch), Some(time))) =
            (cells, numbers)
        else {
            continue;
        };
        let Some((_, ours)) = NETWORKS.iter().find(|(theirs, _)| *theirs == model) else { continue };
        let version: Vec<u64> = torch.split('.').filter_map(|part| part.parse().ok()).collect();
        let run = Run {
            gpu: gpu.to_string(),
            mode: if mode == "train" { Mode::Training } else { Mode::Inference },
            layout: layout.to_string(),
            ours,
            size: u64::try_from(size)?,
            batch: u64::try_from(batch)?,
            time_ms: f64::from(time),
        };
        let key = (mode.to_string(), *ours, layout.to_string(), size);
        if newest.get(&key).is_none_or(|(known, _)| *known < version) {
            newest.insert(key, (version, run));
        }
    }
    Ok(newest.into_values().map(|(_, run)| run).collect())
}

/// How far off a run is, in percent, and whether its interval holds.
type Judged = (f64, bool);

/// Errors of all networks of both halves.
///
/// # Errors
/// When the file cannot be read, or has no network of ours.
pub fn tables(path: &Path) -> Result<Vec<Table>> {
    let name = || path.display().to_string();
    let file = File::open(path).with_context(name)?;
    let frame = quietly(|| ParquetReader::new(file).finish())?.with_context(name)?;
    let runs = runs(&frame).with_context(name)?;
    let gpu = catalog::gpu(&runs.first().with_context(|| format!("{}: no network of ours", name()))?.gpu)?;
    if runs.iter().any(|r| r.gpu != runs[0].gpu) {
        bail!("{}: several GPUs", name());
    }
    let predictor = Predictor::with(gpu, Calibrations::shipped(), catalog::framework("pytorch")?);
    let mut lines = Vec::new();
    let mut errors: BTreeMap<_, BTreeMap<&str, Vec<Judged>>> = BTreeMap::new();
    for run in &runs {
        let network = catalog::network(run.ours)?;
        let pixels = Shape::new(&[3, run.size, run.size])?;
        let inputs: Vec<(String, Shape)> = network.inputs.iter().map(|i| (i.name.clone(), pixels)).collect();
        let Ok(shaped) = predictor.shape(&network, run.batch, Precision::Fp16, &inputs) else { continue };
        let found = predictor.predict(&shaped, run.mode)?;
        let ms = |s: joulecast_model::base::units::Seconds| s.to_ms();
        let off = percent(ms(found.time.value), run.time_ms);
        let held = (ms(found.time.p05)..=ms(found.time.p95)).contains(&run.time_ms);
        let labels = [half(run.ours), run.ours, &run.mode.to_string(), &run.layout];
        let numbers = [run.size as f64, run.batch as f64, run.time_ms, ms(found.time.value), off];
        lines.push(labelled(labels, numbers.into_iter().chain([ms(found.time.p05), ms(found.time.p95)])));
        errors
            .entry((half(run.ours), run.mode, run.layout.clone()))
            .or_default()
            .entry(run.ours)
            .or_default()
            .push((off, held));
    }
    let means = errors.iter().map(|((half, mode, layout), networks)| {
        // Networks weigh the same, however many sizes of image they have.
        let n = networks.len() as f64;
        let mean = |of: &dyn Fn(&[Judged]) -> f64| networks.values().map(|list| of(list)).sum::<f64>() / n;
        let offs = |list: &[Judged]| list.iter().map(|(off, _)| *off).collect::<Vec<_>>();
        let absolute = mean(&|list| mean_absolute(&offs(list)));
        let signed = mean(&|list| offs(list).iter().sum::<f64>() / list.len() as f64);
        let held = mean(&|list| 100.0 * list.iter().filter(|(_, held)| *held).count() as f64 / list.len() as f64);
        labelled([*half, &mode.to_string(), layout], [n, absolute, signed, held])
    });
    Ok(vec![TIMM_MEANS.table(means), TIMM.table(lines)])
}
