//! `predict list`: what is built in, a row each.

use crate::table::{Column, Row, significant};
use joulecast_model::base::precision::Precision;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::device::interconnect::Interconnect;
use joulecast_model::law::calibration::{ANY_CHIP, Calibration, Tier};
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::rows::splits::Role;
use joulecast_model::step::framework::Framework;
use joulecast_model::step::framework::Input;

/// A network, its role, and what a sample passes through.
impl Row for (Network, Option<Role>, ShapedNetwork) {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("name", |(network, ..)| network.name.clone()),
        Column::text("role", |(_, role, _)| role.map_or(String::new(), |r| r.name().to_string())),
        Column::text("input", |(network, ..)| {
            network.inputs.iter().map(|i| format!("{}={}", i.name, i.shape)).collect::<Vec<_>>().join(" ")
        }),
        Column::number("layers", |(.., shaped)| shaped.layers().len().to_string()),
        Column::number("parameters", |(.., shaped)| shaped.parameters().to_string()),
        Column::number("GMAC", |(.., shaped)| significant(shaped.macs() as f64 / 1e9, 3)),
        Column::text("title", |(network, ..)| network.title.clone()),
    ];
}

/// A GPU, and what times of its layers rest on.
impl Row for (Gpu, Tier) {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("name", |(gpu, _)| gpu.name.clone()),
        Column::text("chip", |(gpu, _)| gpu.chip.clone()),
        Column::text("layer times", |(_, tier)| tier.to_string()),
        Column::text("architecture", |(gpu, _)| format!("{} {}", gpu.vendor.title(), gpu.architecture)),
        Column::number("fp32 TFLOP/s", |(gpu, _)| significant(gpu.vector_peak().get() / 1e12, 3)),
        Column::number("fp16 TFLOP/s", |(gpu, _)| {
            gpu.peak(Precision::Fp16).map_or(String::new(), |p| significant(p.get() / 1e12, 3))
        }),
        Column::number("GB/s", |(gpu, _)| significant(gpu.bandwidth.value.get() / 1e9, 3)),
        Column::number("GiB", |(gpu, _)| significant(gpu.memory.value.to_gib(), 3)),
        Column::number("limit W", |(gpu, _)| significant(gpu.power.limit.value.get(), 3)),
        Column::number("idle W", |(gpu, _)| {
            gpu.power.idle.as_ref().map_or("?".into(), |p| significant(p.value.get(), 2))
        }),
        // A maker's name may stand before each of them.
        Column::text("also called", |(gpu, _)| {
            let maker = format!("{}-", gpu.vendor.title().to_lowercase());
            gpu.aliases.iter().filter(|a| !a.starts_with(&maker)).map(String::as_str).collect::<Vec<_>>().join(" ")
        }),
    ];
}

impl Row for Interconnect {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("name", |i| i.name.clone()),
        Column::number("GB/s", |i| significant(i.bandwidth.get() / 1e9, 3)),
        Column::number("us", |i| significant(i.launch.to_us(), 3)),
        Column::number("us per step", |i| significant(i.hop.to_us(), 3)),
        Column::text("also called", |i| i.aliases.join(" ")),
        Column::text("title", |i| i.title.clone()),
    ];
}

impl Row for Framework {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("name", |f| f.name.clone()),
        Column::text("launch", |f| f.usual_launch().to_string()),
        Column::text("title", |f| f.title.clone()),
    ];
}

/// A framework's name, and an input pipeline whose rate its profile knows.
impl Row for (String, Input) {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("framework", |(framework, _)| framework.clone()),
        Column::text("name", |(_, input)| input.name.clone()),
        Column::number("samples/s", |(_, input)| significant(input.samples_per_second, 3)),
        Column::text("title", |(_, input)| input.title.clone()),
    ];
}

impl Row for Calibration {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("id", |c| c.id.clone()),
        Column::text("tier", |c| c.tier.to_string()),
        Column::number("models", |c| c.models.len().to_string()),
        Column::number("rows", |c| c.models.iter().map(|m| m.rows).sum::<usize>().to_string()),
        Column::text("sources", |c| c.sources.join(" ")),
        Column::text("boards", |c| if c.chip == ANY_CHIP { "all of these".into() } else { c.boards.join(" ") }),
    ];
}
