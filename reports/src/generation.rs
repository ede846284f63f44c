//! A language model's answer as table, JSON, CSV and Markdown: the contract `prediction/1` of the whole answer, with the
//! key `generation`.

use crate::export::{Export, ExportError, Format};
use crate::layout;
use crate::markup::markdown_text;
use crate::page;
use crate::prediction::{Asked, Shown, data, heading, layers_and_notes, layers_and_notes_in_markdown, provenance};
use crate::table::{Table, interval, significant, with_unit};
use crate::verdict::Verdict;
use joulecast_model::base::units::Seconds;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::step::generation::Generation;
use joulecast_model::step::predictor::NetworkPrediction;
use serde_json::{Value, json as value};

/// A part of the answer.
fn part(p: &NetworkPrediction) -> Value {
    value!({
        "time_s": p.time.value.get(),
        "time_s_p05": p.time.p05.get(),
        "time_s_p95": p.time.p95.get(),
        "power_w": p.power.value.get(),
        "energy_j": p.energy.value.get(),
        "energy_j_p05": p.energy.p05.get(),
        "energy_j_p95": p.energy.p95.get(),
        "core_clock_mhz": p.clock.to_mhz(),
        "bound_s": p.bound.get(),
    })
}

fn document(g: &Generation) -> Value {
    value!({
        "prompt_tokens": g.prompt,
        "generated_tokens": g.tokens,
        "prefill": part(&g.prefill),
        "decode": g.decode.as_ref().map(part),
        "decode_steps": g.tokens - 1,
        "time_per_step_s": g.time_per_step().map(Seconds::get),
        "tokens_per_s": g.tokens_per_second(),
        "energy_per_token_j": g.energy_per_token().get(),
        "kv_cache_bytes": g.cache.get(),
    })
}

/// The prompt, the steps after it, and both.
pub(crate) fn parts(g: &Generation) -> Table {
    let mut table =
        Table::new(&["", "steps", "time", "90 % interval", "power", "energy", "per step", "tokens/s", "per token"], 1);
    let samples = g.total.batch;
    let mut row = |name: &str, p: &NetworkPrediction, steps: u64, tokens: u64| {
        let rate = (samples * tokens) as f64 / p.time.value.get();
        table.row(vec![
            name.into(),
            steps.to_string(),
            with_unit(p.time.value.get(), "s"),
            interval(p.time.p05.get(), p.time.p95.get(), "s"),
            with_unit(p.power.value.get(), "W"),
            with_unit(p.energy.value.get(), "J"),
            with_unit(p.time.value.get() / steps as f64, "s"),
            significant(rate, 3),
            with_unit(p.energy.value.get() / (samples * tokens) as f64, "J"),
        ]);
    };
    row("prefill", &g.prefill, 1, g.prompt);
    if let Some(decode) = &g.decode {
        row("decode", decode, g.tokens - 1, g.tokens - 1);
    }
    row("answer", &g.total, g.tokens, g.tokens);
    table
}

fn title(g: &Generation, gpu: &Gpu, asked: &Asked<'_>) -> String {
    format!("{}; {} tokens after a prompt of {}", heading(&g.total, gpu, asked), g.tokens, g.prompt)
}

fn memory(g: &Generation, gpu: &Gpu) -> String {
    let fits = if g.total.fits_in_memory { "fits in" } else { "does not fit in" };
    format!(
        "memory {:.2} GiB{}, keys and values at the end {:.2} GiB; {fits} {:.1} GiB",
        g.total.memory.total().to_gib(),
        if g.total.layout.as_ref().is_some_and(|l| l.layout.gpus() > 1) { " of the fullest GPU" } else { "" },
        g.cache.to_gib(),
        gpu.memory.value.to_gib()
    )
}

impl Export for Shown<'_, Generation> {
    const FORMS: &'static [(Format, &'static str)] = <Shown<'_>>::FORMS;

    /// Prefill's tokens are the prompt's.
    fn export(&self, format: Format) -> Result<String, ExportError> {
        let Self { prediction: g, gpu, asked, layers } = *self;
        let (title, provenance, memory) = (title(g, gpu, asked), provenance(&g.total), memory(g, gpu));
        let verdict = || Verdict::of(&g.total).lines().into_iter();
        // As tokens follow tokens, where there are several.
        let last = g.decode.as_ref().unwrap_or(&g.prefill);
        let used = last.layout.as_ref().map(|layout| layout::table(&g.total, layout));
        match format {
            Format::Table => {
                let (parts, layers) = (parts(g).to_text(), layers_and_notes(&g.total, layers));
                let used = used.map_or(String::new(), |table| format!("\n{}", table.to_text()));
                let verdict: String = verdict().map(|line| line + "\n").collect();
                Ok(format!("{title}\n{verdict}{provenance}\n\n{parts}\n{memory}\n{used}{layers}"))
            }
            Format::Markdown => {
                let (parts, layers) = (parts(g).to_markdown(), layers_and_notes_in_markdown(&g.total, layers));
                let used = used.map_or(String::new(), |table| format!("{}\n", table.to_markdown()));
                let verdict: String = verdict().map(|line| line + "\n\n").collect();
                Ok(markdown_text(&format!(
                    "## {title}\n\n{verdict}{provenance}\n\n{parts}\n{memory}\n\n{used}{layers}"
                )))
            }
            Format::Html => Ok(page::answer(title, &g.total, (parts(g), memory, used))?.to_html()),
            Format::Json | Format::Csv => data(&g.total, asked, Some(document(g)), layers, format),
        }
    }
}
